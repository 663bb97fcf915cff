"""The user's cache folder for engine programs: one folder a version, filled atomically under a lock."""

from __future__ import annotations

import fcntl
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from provisioner.home import default_cache
from stacks.engine.releases import Release

Say = Callable[[str], None]


def cached_program(release: Release) -> Path:
    """Where a release's program is kept; the same shape as the official installer's root (``bin`` below it)."""
    return release_folder(release) / "bin" / release.program


def release_folder(release: Release) -> Path:
    """The folder of one version of one program."""
    return engine_folder() / f"{release.program}-{release.version}"


def engine_folder() -> Path:
    """Where all programs are kept: in the user's cache, never below ``GPUPROV_HOME``, so that an empty home costs no build."""
    return default_cache() / "engine"


@contextmanager
def exclusive(release: Release, say: Say) -> Iterator[None]:
    """Hold the lock of a release against other processes; says so once when it has to wait.

    The lock is the kernel's (flock), so a killed holder frees it.
    """
    folder = engine_folder()
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / f"{release.program}.lock").open("w") as handle:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say(f"another process is getting {release.program} {release.version}: waiting for it")
            fcntl.flock(handle, fcntl.LOCK_EX)
        yield


@contextmanager
def staging(release: Release) -> Iterator[Path]:
    """An empty folder beside the final one. Leftovers of killed runs are removed first; call only under ``exclusive``."""
    parent = release_folder(release).parent
    parent.mkdir(parents=True, exist_ok=True)
    for leftover in parent.glob(f".{release.program}-*.partial"):
        shutil.rmtree(leftover, ignore_errors=True)
    folder = Path(tempfile.mkdtemp(prefix=f".{release.program}-", suffix=".partial", dir=parent))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def publish(release: Release, folder: Path) -> Path:
    """Make a finished staging folder the release's folder in one rename; gives the program's path."""
    final = release_folder(release)
    if final.exists():
        shutil.rmtree(final)
    folder.rename(final)
    return cached_program(release)
