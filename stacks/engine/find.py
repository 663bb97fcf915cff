"""One way to the Pulumi engine: PATH, the cached copy, the official installer, a build from Go; in this order."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

from provisioner.errors import EngineMissing, UsageError
from stacks.engine import build, cache, install
from stacks.engine.cache import Say
from stacks.engine.releases import ENGINE, YAML_LANGUAGE, Release

ENGINE_VARIABLE = "GPUPROV_PULUMI"
FOUR_WAYS = (
    f"put pulumi >= {ENGINE.minimum} on PATH, point {ENGINE_VARIABLE} at one, give the machine a way to get.pulumi.com, "
    f"or install Go >= {build.GO_MINIMUM[0]}.{build.GO_MINIMUM[1]} so that it can be built"
)
YAML_WAYS = f"put {YAML_LANGUAGE.program} on PATH, or install Go >= {build.GO_MINIMUM[0]}.{build.GO_MINIMUM[1]}"
_VERSION_TIMEOUT_S = 60.0
"""An engine answers its version in under a second; a program that never ends is no engine."""


@dataclass(frozen=True, slots=True)
class Engine:
    """An engine program that will do. ``source`` is ``variable``, ``path``, ``cache``, ``installer`` or ``go``."""

    path: Path
    version: str
    source: str


def find_engine(say: Say = lambda _text: None, *, obtain: bool = True) -> Engine:
    """The engine to use; without ``obtain`` only what is there already.

    ``GPUPROV_PULUMI`` names the engine and nothing else is tried then. Getting one shows progress through ``say``, holds a lock
    against a second process and is atomic: an interruption leaves no half program.

    Raises:
        UsageError: ``GPUPROV_PULUMI`` names no usable engine.
        EngineMissing: none of the ways gave one; the message lists why, each.
    """
    named = os.environ.get(ENGINE_VARIABLE)
    if named:
        return _named(Path(named))
    reasons: list[str] = []
    found = _on_path(ENGINE, reasons) or _cached(ENGINE, reasons)
    if found is None and obtain:
        found = _obtain(ENGINE, say, reasons, (("installer", install.install), ("go", build.build)))
    return found or _missing(ENGINE, reasons, FOUR_WAYS)


def find_yaml_language(say: Say = lambda _text: None, *, obtain: bool = True) -> Engine:
    """The YAML language host, for ordinary ``runtime: yaml`` projects with the stock CLI; never needed by gpuprov itself.

    Raises:
        EngineMissing: not there, and it cannot be built.
    """
    on_path = shutil.which(YAML_LANGUAGE.program)
    if on_path:
        return Engine(Path(on_path), "unknown", "path")
    reasons = [f"1. no {YAML_LANGUAGE.program} on PATH"]
    found = _cached(YAML_LANGUAGE, reasons)
    if found is None and obtain:
        found = _obtain(YAML_LANGUAGE, say, reasons, (("go", build.build),))
    return found or _missing(YAML_LANGUAGE, reasons, YAML_WAYS)


def _named(path: Path) -> Engine:
    version = program_version(path)
    if version is None:
        raise UsageError(
            f"{ENGINE_VARIABLE} names {path}, which is no pulumi that runs", remedy=f"unset it, or {FOUR_WAYS}"
        )
    if _order(version) < _order(ENGINE.minimum):
        raise UsageError(
            f"{ENGINE_VARIABLE} names pulumi {version}, older than {ENGINE.minimum}", remedy=f"unset it, or {FOUR_WAYS}"
        )
    return Engine(path, version, "variable")


def _on_path(release: Release, reasons: list[str]) -> Engine | None:
    found = shutil.which(release.program)
    if found is None:
        reasons.append(f"1. no {release.program} on PATH")
        return None
    version = program_version(Path(found))
    if version is None or _order(version) < _order(release.minimum):
        reasons.append(f"1. {found} is {version or 'of unknown version'}, {release.minimum} or later is needed")
        return None
    return Engine(Path(found), version, "path")


def _cached(release: Release, reasons: list[str]) -> Engine | None:
    path = cache.cached_program(release)
    if _is_program(path):
        return Engine(path, release.version, "cache")
    reasons.append(f"2. no cached copy at {path}")
    return None


def _is_program(path: Path) -> bool:
    return path.is_file() and os.access(path, os.X_OK)


def _obtain(
    release: Release,
    say: Say,
    reasons: list[str],
    ways: tuple[tuple[str, Callable[[Release, Path, Say], None]], ...],
) -> Engine | None:
    """The program by the first way that gives one, kept in the cache; ``None`` where none does, with the reasons added."""
    with cache.exclusive(release, say):
        # Another process may have finished while we waited for the lock.
        found = _cached(release, [])
        if found:
            return found
        for source, way in ways:
            with cache.staging(release) as folder:
                try:
                    way(release, folder, say)
                except (build.BuildFailed, install.InstallFailed) as error:
                    reasons.append(f"{len(reasons) + 1}. {error}")
                    continue
                if not _is_program(folder / "bin" / release.program):
                    reasons.append(f"{len(reasons) + 1}. the {source} left no {release.program}")
                    continue
                return Engine(cache.publish(release, folder), release.version, source)
    return None


def _missing(release: Release, reasons: list[str], ways: str) -> NoReturn:
    raise EngineMissing(f"no {release.program}: {'; '.join(reasons)}", remedy=ways)


def _order(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", version)[:3])


def program_version(path: Path) -> str | None:
    """Version that a pulumi program reports, or ``None`` where it does not run; remembered by path, size and time of change."""
    try:
        facts = path.stat()
    except OSError:
        return None
    key = f"{path}:{facts.st_size}:{facts.st_mtime_ns}"
    memory = cache.engine_folder() / "versions.json"
    known = _remembered(memory)
    if key in known:
        return known[key]
    version = _ask_version(path)
    if version is not None:
        _remember(memory, {**known, key: version})
    return version


def _ask_version(path: Path) -> str | None:
    environment = {**os.environ, "PULUMI_SKIP_UPDATE_CHECK": "true"}
    try:
        answer = subprocess.run(
            [str(path), "version"],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            check=False,
            env=environment,
            timeout=_VERSION_TIMEOUT_S,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    match = re.fullmatch(r"v?(\d+\.\d+\.\d+\S*)", answer.stdout.decode("utf-8", "replace").strip())
    return match[1] if match and answer.returncode == 0 else None


def _remembered(memory: Path) -> dict[str, str]:
    try:
        known = json.loads(memory.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        # A memory that cannot be read costs one more `pulumi version`, nothing else.
        return {}
    pairs = known.items() if isinstance(known, dict) else ()
    return {key: version for key, version in pairs if isinstance(version, str)}


def _remember(memory: Path, known: dict[str, str]) -> None:
    temporary = memory.with_name(f"{memory.name}.{os.getpid()}")
    try:
        memory.parent.mkdir(parents=True, exist_ok=True)
        temporary.write_text(json.dumps(known), encoding="utf-8")
        temporary.replace(memory)
    except OSError:
        temporary.unlink(missing_ok=True)
