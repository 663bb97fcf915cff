"""Files of a run: where its policy and its project's root are, how paths are shown, how files of ours are read."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from pathlib import Path

from provisioner.errors import Position, UsageError

FILE_NAME = "gpuprov-policy.yaml"
SIZE_BYTES_MAX = 2**20
"""Largest policy, waiver or baseline file that is read."""
NO_FILE = "-"
"""File of subjects and positions that lie in none (the engine's)."""


class PolicyFileError(UsageError):
    """A policy, waiver or baseline file is wrong."""

    kind = "policy-file"


def find_policy(paths: Iterable[Path]) -> Path | None:
    """The policy file for some paths: beside the first path or in a folder above it, not above its repository's root."""
    for path in paths:
        start = path.absolute()
        for folder in (start, *start.parents) if start.is_dir() else start.parents:
            if (folder / FILE_NAME).is_file():
                return folder / FILE_NAME
            if (folder / ".git").exists():
                break
    return None


def find_root(paths: Iterable[Path]) -> Path:
    """The folder that report paths are relative to: the repository of the first path, else the current folder."""
    for path in paths:
        start = path.absolute().resolve()
        for folder in (start, *start.parents) if start.is_dir() else start.parents:
            if (folder / ".git").exists():
                return folder
    return Path.cwd().resolve()


def read_text(path: Path) -> str:
    """The text of a policy, waiver or baseline file.

    Raises:
        PolicyFileError: it cannot be read, is too large, or is not UTF-8.
    """
    where = Position(shown(path))
    try:
        content = path.read_bytes()
    except OSError as error:
        reason = error.strerror or str(error)
        raise PolicyFileError(
            f"cannot read {shown(path)}: {reason}", where=where, remedy="name a file that can be read"
        ) from None
    if len(content) > SIZE_BYTES_MAX:
        raise PolicyFileError(
            f"{shown(path)} is larger than {SIZE_BYTES_MAX // 2**20} MiB", where=where, remedy="is it the right file?"
        )
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise PolicyFileError(f"{shown(path)} is not UTF-8", where=where, remedy="save it as UTF-8") from None


def shown(path: Path) -> str:
    """A path as people read it: relative to the current folder where it lies below."""
    try:
        return path.absolute().relative_to(Path.cwd()).as_posix()
    except ValueError:
        return path.as_posix()


@cache
def report_path(file: str, root: Path | None) -> str:
    """A file's path as reports name it: relative to the project's root where it lies below, else as it was given."""
    if root is None or file == NO_FILE:
        return file
    try:
        return Path(file).absolute().resolve().relative_to(root).as_posix()
    except ValueError:
        return file
