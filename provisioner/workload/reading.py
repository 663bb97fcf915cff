"""From nodes to a ``Workload``: keys and values, rules between keys, defaults; or the one error to show.

The walk is our own rather than pydantic's: every complaint has a place and our words, and building pydantic's validators
would cost each ``plan`` more than all the rest of reading.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel

from provisioner.errors import SpecError
from provisioner.workload.defaults import with_defaults
from provisioner.workload.faults import (
    FAULTS_MAX,
    Fault,
    first_error,
    misfit_value,
    missing_key,
    no_mapping,
    unknown_key,
)
from provisioner.workload.keys import parts_and_kinds
from provisioner.workload.kinds import Misfit, WordOrPart
from provisioner.workload.patterns import VERSION
from provisioner.workload.rules import rule_faults, task_faults
from provisioner.workload.spec import Workload
from provisioner.workload.tree import Branch, Node, Path, Scalar, from_python, node_at


def read_workload(root: Node, file: str | None) -> Workload:
    """The workload that the nodes say, with defaults.

    Raises:
        SpecError: the first of what is wrong, by position in ``file`` (``None`` = by key).
    """
    if (other := _other_version(root)) is not None:
        raise first_error(root, [other], file)
    out_of_place = task_faults(root)
    faults: list[Fault] = []
    workload = _read_part(Workload, root, (), faults)
    faults = out_of_place + [fault for fault in faults if not _is_below(fault, out_of_place)]
    if not faults and isinstance(workload, Workload):
        faults = rule_faults(root, workload)
        if not faults:
            return with_defaults(workload)
    raise first_error(root, faults, file)


def _other_version(root: Node) -> Fault | None:
    """The fault of another format version, which makes every other fault meaningless."""
    written = node_at(root, ("version",))
    if not isinstance(written, Scalar) or isinstance(written.value, bool) or not isinstance(written.value, int):
        return None
    try:
        VERSION.read(written)
    except Misfit as misfit:
        return misfit_value(("version",), misfit)
    return None


def _read_part(part: type[BaseModel], node: Node, path: Path, faults: list[Fault]) -> BaseModel | None:
    """A part of the spec; what is wrong is added to ``faults``, and the result then means nothing."""
    if not isinstance(node, Branch):
        faults.append(no_mapping(part, path, node))
        return None
    valid = parts_and_kinds(part)
    values: dict[str, Any] = {}
    for key, child in node.values.items():
        if len(faults) >= FAULTS_MAX:
            break
        if key not in valid:
            faults.append(unknown_key(Workload, (*path, key)))
        elif not _says_nothing(valid[key][0], child):
            values[key] = _read_value(valid[key], child, (*path, key), faults)
    required = (key for key, info in part.model_fields.items() if info.is_required())
    faults.extend(missing_key((*path, key)) for key in required if key not in node.values)
    return part.model_construct(set(values), **values)


def _read_value(behind: tuple[type[BaseModel] | None, Any], node: Node, path: Path, faults: list[Fault]) -> Any:
    part, kind = behind
    if part is not None:
        if isinstance(kind, WordOrPart) and isinstance(node, Scalar) and node.value in kind.words:
            return node.value
        return _read_part(part, node, path, faults)
    try:
        return kind.read(node)
    except Misfit as misfit:
        faults.append(misfit_value(path, misfit))
        return None


def _says_nothing(part: type[BaseModel] | None, node: Node) -> bool:
    """Whether an optional part is written as an empty mapping: the same as not written."""
    is_empty = isinstance(node, Branch) and not node.values
    return is_empty and part is not None and not any(info.is_required() for info in part.model_fields.values())


def _is_below(fault: Fault, others: list[Fault]) -> bool:
    """Whether a fault lies inside a key that is out of place as a whole."""
    return any(fault.path[: len(other.path)] == other.path for other in others)


def workload_from_document(document: Mapping[str, Any]) -> Workload:
    """The workload of a JSON document.

    Raises:
        SpecError: it is no valid spec; ``where`` is the key.
    """
    try:
        root = from_python(document)
    except (TypeError, ValueError) as error:
        remedy = "write it as a spec's keys"
        raise SpecError(f"the workload is no JSON document: {error}", where="workload", remedy=remedy) from None
    return read_workload(root, None)
