"""Finds what is to be judged: a named file always, in a folder everything that a command of ours would take.

A file that is surely ours by its name, or looks like ours by its content, is returned even where it cannot be read: whoever
reads it then says so. Links are followed, once each, since the commands follow them too.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from policies.files import FILE_NAME, shown
from provisioner.errors import Position, UsageError
from provisioner.records import record

_LEFT_OUT = frozenset({"node_modules", "__pycache__", ".git", ".hg", ".svn", ".terraform"})
"""Folders that version control and package managers fill; a virtual environment is known by its ``pyvenv.cfg``."""
_YAML = (".yaml", ".yml")
_SPEC_NAMES = ("workload.yaml", "workload.yml", "workload.json")
_SPEC_ENDS = tuple(f".{name}" for name in _SPEC_NAMES)
_VERSION_LINE = re.compile(r"^[\"']?version[\"']?\s*:", re.MULTILINE)
_TASK_LINE = re.compile(r"^[\"']?task[\"']?\s*:", re.MULTILINE)
_ESCAPED_KEY = re.compile(r'"(?:[^"\\\n]|\\[^\n])*\\(?:[^"\\\n]|\\[^\n])*"\s*:')
"""A quoted key with an escape in it may spell any word."""
_PLAN_SCHEMA = re.compile(r'"schema"\s*:\s*"gpuprov\.plan\\?/1"')
_TERRAFORM_WORDS = ("resource_changes", "planned_values", "format_version")
_PARSED_CHARACTERS_MAX = 2**20
"""Longest YAML that is parsed to see whether it is a spec; a longer one counts by its lines, and no spec may be that long."""
_LOOKED_BYTES_MAX = 256 * 2**20


@record(frozen=True, slots=True)
class Files:
    """Files to judge in the order of the paths; files of folders that are not ours, counted; folders not looked into."""

    ours: tuple[Path, ...]
    skipped: int = 0
    left_out: tuple[str, ...] = ()


def find_files(paths: Sequence[Path]) -> Files:
    """The files of all paths, each once.

    Raises:
        UsageError: a path does not exist, or a folder holds nothing to judge, or cannot be listed.
    """
    found: dict[Path, Path] = {}
    left_out: list[str] = []
    skipped = 0
    for path in paths:
        if path.is_dir():
            inside = list(_walk(path, left_out))
            ours = [file for file in inside if is_ours(file)]
            skipped += len(inside) - len(ours)
            if not ours:
                raise UsageError(
                    f"{shown(path)} holds nothing to judge ({len(inside)} other files)",
                    where=Position(shown(path)),
                    remedy="name a file, or a folder with workload.yaml, *.workload.yaml, *.tfplan.json or a saved plan",
                )
        elif path.exists():
            ours = [path]
        else:
            raise UsageError(f"there is no {shown(path)}", where=Position(shown(path)), remedy="check the path")
        for file in ours:
            found.setdefault(_real(file), file)
    return Files(tuple(found.values()), skipped, tuple(dict.fromkeys(left_out)))


def _real(path: Path) -> Path:
    try:
        return path.resolve()
    except (OSError, RuntimeError):  # a circle of links
        return path.absolute()


def _walk(folder: Path, left_out: list[str]) -> Iterator[Path]:
    """Whatever is no folder below a folder, in a stable order; a folder that several links lead to is seen once."""
    seen = {_real(folder)}
    for root, folders, names in os.walk(folder, onerror=_refuse, followlinks=True):
        kept = []
        for name in sorted(folders):
            inner = Path(root) / name
            if name in _LEFT_OUT or (inner / "pyvenv.cfg").is_file():
                left_out.append(shown(inner))
            elif (real := _real(inner)) not in seen:
                seen.add(real)
                kept.append(name)
        folders[:] = kept
        for name in sorted(names):
            yield Path(root) / name


def _refuse(error: OSError) -> None:
    where = shown(Path(str(error.filename)))
    raise UsageError(
        f"cannot list {where}: {error.strerror}",
        where=Position(where),
        remedy="make the folder readable, or name the files to judge",
    ) from None


def is_ours(file: Path) -> bool:
    """Whether a file of a folder is one of those that the gate judges."""
    name, suffix = file.name.lower(), file.suffix.lower()
    if name in _SPEC_NAMES or name.endswith((*_SPEC_ENDS, ".tfplan.json")):
        return True
    if file.name == FILE_NAME or (suffix not in _YAML and suffix != ".json") or not file.is_file():
        return False
    text = _text(file)
    return _is_spec(text) if suffix in _YAML else _is_document(text)


def _text(file: Path) -> str:
    """The text of a file for a look at it: bytes that cannot be decoded, and the zeros of UTF-16, do not matter here."""
    try:
        with file.open("rb") as stream:
            content = stream.read(_LOOKED_BYTES_MAX)
    except OSError:
        return ""
    return content.replace(b"\0", b"").decode("utf-8-sig", errors="replace")


def _is_spec(text: str) -> bool:
    """Whether the top level of a YAML text has both ``version`` and ``task``; one that cannot be parsed counts by its lines."""
    if ("version" not in text or "task" not in text) and not _ESCAPED_KEY.search(text):
        return False
    by_lines = bool(_VERSION_LINE.search(text) and _TASK_LINE.search(text))
    if len(text) > _PARSED_CHARACTERS_MAX:
        return by_lines
    from provisioner.workload.tree import Branch
    from provisioner.workload.yaml_tree import YamlFault, read_yaml

    try:
        root = read_yaml(text.lstrip("\ufffd\ufeff"))
    except YamlFault:
        return by_lines
    return isinstance(root, Branch) and {"version", "task"} <= root.keys.keys()


def _is_document(text: str) -> bool:
    """Whether a JSON text is a saved plan, a Terraform plan or a spec; one that cannot be parsed counts by its words."""
    looks_ours = bool(_PLAN_SCHEMA.search(text)) or (
        "terraform_version" in text and any(word in text for word in _TERRAFORM_WORDS)
    )
    words = ("gpuprov.plan", "\\u", *_TERRAFORM_WORDS)
    if not any(word in text for word in words) and not ('"version"' in text and '"task"' in text):
        return False
    from policies.facts_terraform import is_terraform

    try:
        document: Any = json.loads(text.lstrip("\ufffd"))
    except (ValueError, RecursionError):
        return looks_ours
    if not isinstance(document, dict):
        return looks_ours
    is_plan = document.get("schema") == "gpuprov.plan/1"
    return is_plan or is_terraform(document) or {"version", "task", "model"} <= document.keys()
