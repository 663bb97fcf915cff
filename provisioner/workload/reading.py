"""From nodes to a ``Workload``: shape, rules between keys, defaults; or the one error to show."""

from __future__ import annotations

from typing import Any

from pydantic import ValidationError

from provisioner.errors import SpecError
from provisioner.workload.defaults import with_defaults
from provisioner.workload.faults import Fault, first_error, shape_faults
from provisioner.workload.rules import rule_faults, task_faults
from provisioner.workload.spec import Workload
from provisioner.workload.tree import Node, as_input, from_python


def read_workload(root: Node, file: str | None) -> Workload:
    """The workload that the nodes say, with defaults.

    Raises:
        SpecError: the first of what is wrong, by position in ``file`` (``None`` = by key).
    """
    faults = task_faults(root)
    try:
        workload = Workload.model_validate(as_input(root))
    except ValidationError as error:
        faults += [fault for fault in shape_faults(root, Workload, error) if not _is_below(fault, faults)]
    else:
        if not faults:
            faults = rule_faults(root, workload)
        if not faults:
            return with_defaults(workload)
    raise first_error(root, faults, file)


def _is_below(fault: Fault, others: list[Fault]) -> bool:
    """Whether a fault lies inside a key that is out of place as a whole."""
    return any(fault.path[: len(other.path)] == other.path for other in others)


def workload_from_document(document: dict[str, Any]) -> Workload:
    """The workload of a JSON document.

    Raises:
        SpecError: it is no valid spec; ``where`` is the key.
    """
    try:
        root = from_python(document)
    except (TypeError, RecursionError) as error:
        raise SpecError(
            f"the workload is no JSON document: {error}", where="workload", remedy="write it as a spec's keys"
        ) from None
    return read_workload(root, None)
