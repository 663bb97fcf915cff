"""Reads a spec file: bytes, YAML, workload; every failure is one ``SpecError`` with file, line and column."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import field, replace
from pathlib import Path

from provisioner.added_models import read_added
from provisioner.errors import Position, SpecError
from provisioner.records import record
from provisioner.workload.adapters import with_local_adapters
from provisioner.workload.formats import format_warnings
from provisioner.workload.pending import pending_warnings
from provisioner.workload.reading import read_workload
from provisioner.workload.spec import Workload
from provisioner.workload.steps import steps_of
from provisioner.workload.tree import Branch, Mark, Node, Scalar, from_python, mark_of, node_at
from provisioner.workload.yaml_tree import YamlFault, read_yaml

SIZE_BYTES_MAX = 2**20
"""Largest spec, and largest config.json, that is read: real ones have a few kilobytes."""

_UNPRINTABLE = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u2028\u2029\ufffe\uffff]")
"""What YAML does not print, and the line ends of YAML 1.1 that YAML 1.2 and every editor take for part of a line."""
_WIDE_MARKS = {b"\xff\xfe": "UTF-16", b"\xfe\xff": "UTF-16"}


@record(frozen=True, slots=True)
class Loaded:
    """A spec as read. ``warnings`` name the keys whose feature is not built yet, and values that are taken for others."""

    path: Path
    workload: Workload
    warnings: tuple[str, ...]
    root: Node = field(repr=False)
    overrides: tuple[str, ...] = ()
    """Changes of the command line, which are in the workload."""

    def position(self, dotted_key: str) -> Position:
        """Where a key such as ``placement.gpus[0]`` stands in the file, or its nearest existing parent."""
        line, column = mark_of(self.root, steps_of(dotted_key)) or (1, 1)
        return Position(str(self.path), line, column)

    def origin(self, dotted_key: str) -> Position | str:
        """Where a key was written: its place in the file, or the flag that changed it."""
        place = self.position(dotted_key)
        if place.line > 0:
            return place
        from provisioner.workload.overrides import flag_of

        return flag_of((place.line, place.column), self.overrides) or place


def load(path: Path, overrides: Sequence[str] = ()) -> Loaded:
    """The workload of a spec file, with what-if changes such as ``inference.context_tokens=65536`` over it.

    Raises:
        SpecError: the file cannot be read, or is no valid spec, or a change makes it none.
    """
    return parse(_read_bytes(path, "the spec", str(path)), path, overrides)


def parse(content: bytes, path: Path, overrides: Sequence[str] = ()) -> Loaded:
    """The workload of a spec file's content; ``path`` names it in errors and is where relative paths start.

    Raises:
        SpecError: the content is no valid spec, or an override makes it none.
    """
    try:
        return _parse(content, path, tuple(overrides))
    except SpecError as error:
        if overrides:
            from provisioner.workload.overrides import name_flag

            name_flag(error, overrides)
        raise


def _parse(content: bytes, path: Path, overrides: tuple[str, ...]) -> Loaded:
    file = str(path)
    text = _decode(content, file)
    try:
        root = read_yaml(text)
    except YamlFault as fault:
        raise _error(fault.message, fault.remedy, file, fault.mark) from None
    if overrides:
        from provisioner.workload.overrides import apply_overrides  # only where something is changed

        root = apply_overrides(root, overrides)
    root = with_local_adapters(_with_added(_with_config(root, path)), path)
    workload = read_workload(root, file)
    return Loaded(path, workload, (*pending_warnings(root), *format_warnings(root, workload)), root, overrides)


def _error(message: str, remedy: str, file: str, mark: Mark | None) -> SpecError:
    return SpecError(message, where=Position(file, *(mark or (1, 1))), remedy=remedy)


def _read_bytes(path: Path, what: str, where: Position | str) -> bytes:
    try:
        with path.open("rb") as stream:
            content = stream.read(SIZE_BYTES_MAX + 1)
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise SpecError(f"cannot read {what}: {reason}", where=where, remedy="name a file that can be read") from None
    if len(content) > SIZE_BYTES_MAX:
        raise SpecError(
            f"{what} is larger than {SIZE_BYTES_MAX // 2**20} MiB", where=where, remedy="is it the right file?"
        )
    return content


def _decode(content: bytes, file: str) -> str:
    """The text of UTF-8 content, without a byte order mark, free of control characters."""
    wide = _WIDE_MARKS.get(content[:2])
    if wide:
        raise _error(f"the file is {wide}, not UTF-8", "save it as UTF-8", file, (1, 1))
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        before = content[: error.start].decode("utf-8-sig", errors="replace")
        byte = content[error.start]
        raise _error(
            f"the file is not UTF-8: byte 0x{byte:02x}", "save it as UTF-8", file, _mark_after(before)
        ) from None
    if found := _UNPRINTABLE.search(text):
        mark = _mark_after(text[: found.start()])
        raise _error(
            f"control character U+{ord(found[0]):04X} in the file",
            "remove it, or write it as an escape in double quotes",
            file,
            mark,
        )
    return text


def _mark_after(before: str) -> Mark:
    return before.count("\n") + 1, len(before) - (before.rfind("\n") + 1) + 1


def _with_config(root: Node, spec_path: Path) -> Node:
    """The nodes with ``model.config`` replaced by the content of the file that it names."""
    written = node_at(root, ("model", "config"))
    if not isinstance(written, Scalar) or not isinstance(written.value, str) or not written.value:
        return root
    where = Position(str(spec_path), *(written.mark or (1, 1)))
    path = spec_path.parent / written.value
    try:
        path = path / "config.json" if path.is_dir() else path
        is_special = path.exists() and not path.is_file()
    except (OSError, ValueError):
        raise SpecError("model.config is no path", where=where, remedy="write a path such as ./config.json") from None
    if is_special:
        raise SpecError(f"model.config: {path} is no file", where=where, remedy="name a model's config.json")
    content = _read_bytes(path, f"model.config {path}", where)
    try:
        config = from_python(json.loads(content))
    except (ValueError, RecursionError) as error:
        remedy = "name a model's config.json"
        raise SpecError(f"model.config: {path} is not JSON: {error}", where=where, remedy=remedy) from None
    if not isinstance(config, Branch):
        raise SpecError(f"model.config: {path} holds no JSON object", where=where, remedy="name a model's config.json")
    model = node_at(root, ("model",))
    if not isinstance(root, Branch) or not isinstance(model, Branch):
        return root
    config = replace(config, mark=written.mark)
    changed = replace(model, values={**model.values, "config": config})
    return replace(root, values={**root.values, "model": changed})


def _with_added(root: Node) -> Node:
    """The nodes with the config of a model that ``gpuprov models add`` fetched beside its id.

    The spec is whole then: a plan made from it can be judged and applied where nobody added the model.
    """
    model = node_at(root, ("model",))
    written = node_at(root, ("model", "id"))
    if not isinstance(written, Scalar) or not isinstance(written.value, str):
        return root
    if not isinstance(root, Branch) or not isinstance(model, Branch) or "config" in model.values:
        return root
    record = read_added(written.value)
    if record is None:
        return root
    config = replace(from_python(record["config"]), mark=written.mark)
    keys = {**model.keys, "config": model.keys["id"]}
    changed = replace(model, keys=keys, values={**model.values, "config": config})
    return replace(root, values={**root.values, "model": changed})
