"""What somebody has changed on a stack's machine behind its back: told as long as it is so, and put right where that costs nothing.

Told beside the state, since a refresh takes what the cloud shows into the state: what was asked for would be forgotten there.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Protocol, runtime_checkable

from provisioner.clouds.cloud import Cloud, ForeignChange, Inspection, Placement, Terms


@runtime_checkable
class Inspecting(Protocol):
    """A cloud that can tell a machine from what it was asked for."""

    def inspect(self, placement: Placement, instance_id: str, terms: Terms) -> Inspection:
        """What is other; what may not be read is unknown and no error."""
        ...

    def put_right(self, placement: Placement, instance_id: str, terms: Terms) -> None:
        """Change back what one call each changes back while the machine runs."""
        ...


def inspect(cloud: Cloud, placement: Placement, instance_id: str, terms: Terms) -> Inspection:
    """What is other about a machine; nothing where its cloud tells no such thing."""
    return cloud.inspect(placement, instance_id, terms) if isinstance(cloud, Inspecting) else Inspection()


def put_right(cloud: Cloud, placement: Placement, instance_id: str, terms: Terms) -> None:
    """Change back what can be, on a cloud that can."""
    if isinstance(cloud, Inspecting):
        cloud.put_right(placement, instance_id, terms)


def words(change: ForeignChange) -> str:
    """A change for people: ``instance type is g6.2xlarge, not g6.xlarge``."""
    return f"{change.what} is {change.found}, not {change.wanted}"


def document(change: ForeignChange) -> dict[str, str]:
    """A change among outputs and in JSON; without ``undo``, ``up`` puts it right."""
    parts = {"what": change.what, "wanted": change.wanted, "found": change.found}
    return parts if change.undo is None else {**parts, "undo": change.undo}


def read(documents: Any) -> tuple[ForeignChange, ...]:
    """The changes of an output; what is none is left out."""
    entries: Iterable[Any] = documents if isinstance(documents, (list, tuple)) else ()
    return tuple(
        ForeignChange(str(entry["what"]), str(entry["wanted"]), str(entry["found"]), entry.get("undo"))
        for entry in entries
        if isinstance(entry, Mapping) and entry.keys() >= {"what", "wanted", "found"}
    )


def left(changes: Iterable[ForeignChange]) -> tuple[ForeignChange, ...]:
    """Those that ``up`` does not put right."""
    return tuple(change for change in changes if change.undo is not None)
