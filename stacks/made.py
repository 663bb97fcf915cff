"""The stack-ids that a backend has made: what ``gc`` may take for ours once no state holds them any more.

One line an id, added by the plugin before the id is committed, so before anything carries it. With a file backend the list lies
beside its states and goes where they go; of a remote one each host knows what it made itself, and the rest is somebody else's.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

from provisioner.errors import UsageError
from provisioner.tags import format_time

if TYPE_CHECKING:
    from stacks.backend import Backend

VARIABLE = "GPUPROV_MADE_FILE"
"""Where the plugin finds the list; without it (an ordinary Pulumi project) ids are not written down, and stay foreign."""


def made_file(home: Path, backend: Backend) -> Path:
    """The list of a backend."""
    if backend.directory is not None:
        return backend.directory / "made.jsonl"
    return home / "made" / f"{backend.key}.jsonl"


def note_made(stack_id: str, stack: str, now: datetime, environ: Mapping[str, str] = os.environ) -> None:
    """Write a new id down for good.

    Raises:
        UsageError: the file cannot be written; nothing was made.
    """
    if not environ.get(VARIABLE):
        return
    path = Path(environ[VARIABLE])
    line = json.dumps({"stack_id": stack_id, "stack": stack, "at": format_time(now)}, ensure_ascii=False)
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            os.write(descriptor, f"{line}\n".encode())  # one write of one line: others append at the same time
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
    except OSError as error:
        raise UsageError(
            f"{path}: {error.strerror}; nothing was made", remedy="set GPUPROV_HOME to a folder that can be written"
        ) from None


def read_made(path: Path) -> Mapping[str, str]:
    """Stack-id -> name of its stack; a line that a crash has cut is none."""
    try:
        lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
    except FileNotFoundError:
        return {}
    found: dict[str, str] = {}
    for line in lines:
        try:
            entry = json.loads(line)
            found[str(entry["stack_id"])] = str(entry["stack"])
        except (ValueError, KeyError, TypeError):
            continue
    return found
