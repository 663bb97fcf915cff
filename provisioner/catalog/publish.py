"""Writing the catalog cache: one writer at a time, everything synced, one rename at the end (see ``catalog.cache``)."""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from provisioner.catalog.cache import CURRENT, cache_folder
from provisioner.errors import UsageError

_PARTIAL = ".partial-"
_KEPT_SNAPSHOTS = 2
"""The current one and the one before: a reader that followed the link just before it moved still finds its files."""


@contextmanager
def exclusive(folder: Path | None = None) -> Iterator[Path]:
    """Hold the cache against other writers; gives its folder. The lock is the kernel's, so a killed holder frees it."""
    where = folder or cache_folder()
    try:
        where.mkdir(parents=True, exist_ok=True)
        handle = (where / ".lock").open("w", encoding="utf-8")
    except OSError as error:
        raise UsageError(
            f"the catalog cache cannot be written: {error.strerror}", where=str(where), remedy="set XDG_CACHE_HOME"
        ) from None
    with handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield where


def publish(folder: Path, contents: Mapping[str, bytes], name: str) -> Path:
    """Make ``contents`` (a file name -> its bytes) the current snapshot; call only under ``exclusive``.

    Nothing changes for readers before the last step, which is one rename of a link.
    """
    for leftover in folder.glob(f"{_PARTIAL}*"):
        _remove(leftover)
    partial = Path(tempfile.mkdtemp(prefix=_PARTIAL, dir=folder))
    for file, content in contents.items():
        write_synced(partial / file, content)
    _sync_folder(partial)
    final = folder / name
    if final.exists():
        final = folder / f"{name}-{partial.name.removeprefix(_PARTIAL)}"
    partial.rename(final)
    _link(folder, final)
    _clear_old(folder, final)
    return final


def write_synced(path: Path, content: bytes) -> None:
    """Write a file and wait until it is on disk."""
    with path.open("wb") as handle:
        handle.write(content)
        handle.flush()
        os.fsync(handle.fileno())


def replace_file(path: Path, content: bytes) -> None:
    """Replace a file in one step; call only under ``exclusive``."""
    fresh = path.with_name(f"{_PARTIAL}{path.name}")
    write_synced(fresh, content)
    fresh.replace(path)
    _sync_folder(path.parent)


def _link(folder: Path, target: Path) -> None:
    fresh = folder / f"{_PARTIAL}{CURRENT}"
    fresh.symlink_to(target.name)
    fresh.replace(folder / CURRENT)
    _sync_folder(folder)


def _clear_old(folder: Path, current: Path) -> None:
    """Remove snapshots other than the current one and the newest before it."""
    others = [one for one in folder.iterdir() if one.is_dir() and not one.is_symlink() and one != current]
    others.sort(key=lambda one: one.stat().st_mtime, reverse=True)
    for old in others[_KEPT_SNAPSHOTS - 1 :]:
        shutil.rmtree(old)


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink()


def _sync_folder(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
