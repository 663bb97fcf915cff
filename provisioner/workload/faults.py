"""What is wrong with a spec, key by key, and which of it to show."""

from __future__ import annotations

from collections.abc import Iterable

from pydantic import BaseModel

from provisioner.errors import Position, SpecError
from provisioner.records import record
from provisioner.workload.keys import all_keys, part_of
from provisioner.workload.kinds import OR_REMOVE, Misfit
from provisioner.workload.nearest import nearest
from provisioner.workload.tree import Mark, Node, Path, Scalar, dotted, key_mark, mark_of, show, shown_path

REQUIRED_KEYS = {
    "version": "add version: 1",
    "name": "add name: and a short name such as llama-8b-chat",
    "task": "add task: serve, batch, finetune or pretrain",
    "model": "add model: and below it id: and a model such as meta-llama/Llama-3.1-8B-Instruct",
    "training.method": "add method: full, lora or qlora",
}
"""Required keys and how to add each."""

FAULTS_MAX = 50
"""Faults that are collected before reading stops: one is shown, and each unknown key costs a search."""

PLACES_MAX = 3
"""Places that are named when a key belongs elsewhere; more would only confuse."""


@record(frozen=True, slots=True)
class Fault:
    """One thing that is wrong. ``at_key`` points at the key rather than at its value; ``missing`` names an absent key."""

    path: Path
    message: str
    remedy: str
    at_key: bool = False
    missing: Path | None = None

    def mark(self, root: Node) -> Mark | None:
        """Where to look."""
        return key_mark(root, self.path) if self.at_key else mark_of(root, self.path)


def first_error(root: Node, faults: Iterable[Fault], file: str | None) -> SpecError:
    """The error to show: the first by position, with the number of others."""
    ordered = sorted(_without_consequences(list(faults)), key=lambda fault: fault.mark(root) or (0, 0))
    first = ordered[0]
    more = len(ordered) - 1
    count = f"at least {more}" if len(ordered) >= FAULTS_MAX else str(more)
    message = f"{first.message} (and {count} more)" if more else first.message
    where = Position(file, *(first.mark(root) or (1, 1))) if file else shown_path(first.path) or "workload"
    return SpecError(message, where=where, remedy=first.remedy)


def _without_consequences(faults: list[Fault]) -> list[Fault]:
    """Without the missing keys that a mistyped neighbour explains."""
    misspelt = {
        (fault.path[:-1], nearest(str(fault.path[-1]), [str(other.missing[-1])]))
        for fault in faults
        if fault.at_key and fault.path
        for other in faults
        if other.missing
    }
    kept = [
        fault for fault in faults if fault.missing is None or (fault.missing[:-1], fault.missing[-1]) not in misspelt
    ]
    return kept or faults


def misfit_value(path: Path, misfit: Misfit) -> Fault:
    """A value that its key cannot take."""
    inner = (*path, *misfit.path)
    remedy = misfit.remedy.removesuffix(OR_REMOVE) if dotted(inner) in REQUIRED_KEYS else misfit.remedy
    return Fault(inner, f"{shown_path(inner)}: {misfit.message}", remedy, at_key=misfit.at_key)


def missing_key(path: Path) -> Fault:
    """A required key that is absent; shown at its parent."""
    key = dotted(path)
    return Fault(
        path[:-1], f"the required key {key} is missing", REQUIRED_KEYS.get(key, f"add {path[-1]}:"), missing=path
    )


def unknown_key(top: type[BaseModel], path: Path) -> Fault:
    """A key that is not valid where it stands."""
    key = str(path[-1])
    parent = dotted(path[:-1])
    siblings = list(_part_at(top, path[:-1]).model_fields)
    message = f"unknown key {show(key)} in {parent}" if parent else f"unknown key {show(key)}"
    if key == "<<":
        return Fault(path, f"{message}: merge keys are YAML 1.1", "write the keys out", at_key=True)
    near = nearest(key, siblings)
    elsewhere = [dotted(place) for place in all_keys(top) if place[-1] == key][:PLACES_MAX]
    belongs = f"it belongs at {' or '.join(elsewhere)}" if elsewhere else ""
    if near:
        remedy = f"did you mean {near}?" + (f" Or else {belongs}" if belongs else "")
    elif belongs:
        remedy = belongs
    else:
        far = _far(top, key)
        remedy = f"did you mean {far}?" if far else f"the keys here are {', '.join(siblings)}"
    return Fault(path, message, remedy, at_key=True)


def _far(top: type[BaseModel], key: str) -> str | None:
    """The full name of the nearest key anywhere."""
    by_last: dict[str, str] = {}
    for place in all_keys(top):
        by_last.setdefault(place[-1], dotted(place))
    near = nearest(key, by_last)
    return by_last[near] if near else None


def no_mapping(part: type[BaseModel], path: Path, node: Node) -> Fault:
    """Something else where keys should stand."""
    keys = ", ".join(part.model_fields)
    name = dotted(path) or "the top level"
    if isinstance(node, Scalar) and node.value is None:
        end = "" if name in REQUIRED_KEYS else ", or remove it"
        return Fault(path, f"{name} has no keys", f"write keys below it ({keys}){end}")
    wants_id = name == "model" and isinstance(node, Scalar)
    remedy = f"write id: {show(node)} below it" if wants_id else f"write keys below it: {keys}"
    return Fault(path, f"{name} is a mapping of keys, not {show(node)}", remedy)


def _part_at(top: type[BaseModel], path: Path) -> type[BaseModel]:
    part = top
    for step in path:
        part = part_of(part, str(step)) or part
    return part
