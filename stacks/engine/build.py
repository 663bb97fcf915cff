"""Build an engine program from its Go module, where the official installer cannot be reached."""

from __future__ import annotations

import re
import shutil
import subprocess
import time
from pathlib import Path

from stacks.engine.cache import Say
from stacks.engine.releases import Release

GO_MINIMUM = (1, 26)
_PROGRESS_EVERY_S = 15.0
_VERSION_TIMEOUT_S = 60.0


class BuildFailed(Exception):
    """Why this way gave no program; the text is for the list of the four ways."""


def go_version() -> tuple[int, int] | None:
    """Version of ``go`` on PATH as (major, minor), or ``None`` where there is none that answers."""
    go = shutil.which("go")
    if go is None:
        return None
    try:
        answer = subprocess.run(
            [go, "version"], stdin=subprocess.DEVNULL, capture_output=True, check=False, timeout=_VERSION_TIMEOUT_S
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    match = re.search(r"go(\d+)\.(\d+)", answer.stdout.decode("utf-8", "replace"))
    return (int(match[1]), int(match[2])) if match else None


def build(release: Release, folder: Path, say: Say) -> None:
    """Build ``release`` into ``folder/bin``; about five minutes cold on two cores, seconds from Go's own cache.

    Raises:
        BuildFailed: no Go, a Go that is too old, or a build that fails (with the compiler's last lines).
    """
    version = go_version()
    if version is None:
        raise BuildFailed("no `go` on PATH that answers its version")
    if version < GO_MINIMUM:
        raise BuildFailed(f"go {version[0]}.{version[1]} is older than {GO_MINIMUM[0]}.{GO_MINIMUM[1]}")
    module = folder / "module"
    shutil.copytree(release.module, module)
    say(f"building {release.program} {release.version} from its Go module (once; some minutes on two cores)")
    command = [
        "go", "build", "-v", "-mod=readonly", "-buildvcs=false", "-trimpath",
        "-ldflags", release.linker_flags,
        "-o", str(folder / "bin" / release.program),
        release.package,
    ]  # fmt: skip
    tail = _run(command, module, say)
    if tail is not None:
        raise BuildFailed(f"`go build` failed: {tail}")
    shutil.rmtree(module)


def _run(command: list[str], folder: Path, say: Say) -> str | None:
    """Run the build and count packages for progress; ``None`` on success, else the last lines of its output."""
    began = last = time.monotonic()
    lines: list[str] = []
    packages = 0
    with subprocess.Popen(
        command,
        cwd=folder,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        encoding="utf-8",
        errors="replace",
    ) as process:
        try:
            for line in process.stderr or ():
                lines = [*lines[-5:], line.strip()]
                packages += 1
                now = time.monotonic()
                if now - last >= _PROGRESS_EVERY_S:
                    last = now
                    say(f"  {packages} packages, {now - began:.0f} s")
        except BaseException:
            process.kill()
            raise
    if process.returncode == 0:
        say(f"  built in {time.monotonic() - began:.0f} s")
        return None
    return " / ".join(lines) or f"exit {process.returncode}"
