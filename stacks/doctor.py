"""What gpuprov needs on this machine, examined one by one: ok, warning or broken, each with its fix."""

from __future__ import annotations

import os
import shutil
import stat
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Protocol, runtime_checkable

from provisioner.errors import GpuprovError
from stacks.engine.find import find_engine

PROGRAMS = ("pulumi-resource-gpuprov", "gpuprov-policy")
PRICE_AGE_WARNING_DAYS = 90


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing examined. ``state`` is ``ok``, ``warning`` or ``broken``; ``fix`` is ``None`` only where it is ok."""

    check: str
    state: str
    found: str
    fix: str | None = None


@runtime_checkable
class Identified(Protocol):
    """A cloud that can say whose credentials it has."""

    def identity(self) -> str:
        """Who they are and what they reach, for people."""
        ...


def examine(home: Path, cloud: str, spec: Path | None = None, today: date | None = None) -> list[Finding]:
    """All findings, in the order in which a person would mend them. Nothing is changed, fetched or created."""
    findings = [_engine(), *_programs(), _home(home), _passphrase(home), _catalog(today or datetime.now(UTC).date())]
    findings.append(_cloud(cloud, home))
    if spec is not None:
        findings.append(_spec(spec))
    return findings


def _engine() -> Finding:
    try:
        engine = find_engine(obtain=False)
    except GpuprovError as error:
        return Finding(
            "engine", "broken", error.message, "run `gpuprov doctor --get-engine`; or " + (error.remedy or "")
        )
    return Finding("engine", "ok", f"pulumi {engine.version} at {engine.path} ({engine.source})")


def program_path(name: str) -> Path | None:
    """A console script of ours: beside the running interpreter, else on PATH."""
    beside = Path(sys.executable).parent / name
    if beside.is_file():
        return beside
    found = shutil.which(name)
    return Path(found) if found else None


def _programs() -> Iterator[Finding]:
    for name in PROGRAMS:
        path = program_path(name)
        if path is None:
            yield Finding(
                name, "broken", "not installed beside this interpreter nor on PATH", "reinstall gpuprov (`make setup`)"
            )
        else:
            yield Finding(name, "ok", str(path))


def _home(home: Path) -> Finding:
    existing = next(folder for folder in (home, *home.parents) if folder.exists())
    if not existing.is_dir() or not os.access(existing, os.W_OK | os.X_OK):
        return Finding("home", "broken", f"{home} cannot be written", "set GPUPROV_HOME or --home to a folder of yours")
    return Finding("home", "ok", str(home) + ("" if home.exists() else " (made when first needed)"))


def _passphrase(home: Path) -> Finding:
    backend = os.environ.get("GPUPROV_BACKEND")
    if backend and not backend.startswith("file://"):
        if os.environ.get("GPUPROV_SECRETS_PROVIDER"):
            return Finding("state", "ok", f"{backend}, secrets by {os.environ['GPUPROV_SECRETS_PROVIDER']}")
        return Finding(
            "state",
            "broken",
            f"{backend} has no secrets provider",
            "set GPUPROV_SECRETS_PROVIDER to awskms://…, gcpkms://… or passphrase",
        )
    for file in sorted(home.glob("**/passphrase")) if home.is_dir() else []:
        mode = stat.S_IMODE(file.stat().st_mode)
        if mode & 0o077:
            return Finding("state", "warning", f"{file} is readable by others ({mode:04o})", f"chmod 600 {file}")
    return Finding("state", "ok", backend or f"local files below {home}")


def _catalog(today: date) -> Finding:
    from provisioner.catalog.snapshot import load_catalog

    try:
        catalog = load_catalog(Path(os.environ["GPUPROV_CATALOG"]) if os.environ.get("GPUPROV_CATALOG") else None)
    except GpuprovError as error:
        return Finding(
            "catalog", "broken", str(error), error.remedy or "unset GPUPROV_CATALOG to use the bundled catalog"
        )
    age_days = (today - date.fromisoformat(catalog.as_of[:10])).days
    found = f"newest price of {catalog.as_of}, {age_days} days old"
    if age_days > PRICE_AGE_WARNING_DAYS:
        return Finding("catalog", "warning", found, "upgrade gpuprov, or give a newer catalog by GPUPROV_CATALOG")
    return Finding("catalog", "ok", found)


def _cloud(cloud: str, home: Path) -> Finding:
    from stacks.clouds import open_cloud

    def look() -> str:
        opened = open_cloud(cloud, home)
        if isinstance(opened, Identified):
            return opened.identity()
        opened.list_objects()
        return "answers"

    if cloud == "sandbox" and not (home / "sandbox.sqlite").exists():
        return Finding("cloud sandbox", "ok", "no objects yet; nothing real is ever created there")
    return _tried(f"cloud {cloud}", look)


def _spec(spec: Path) -> Finding:
    from provisioner.planner.request import demand_for, shape_for
    from provisioner.workload.load import load

    def look() -> str:
        loaded = load(spec)
        shape = shape_for(loaded.workload)
        demand_for(loaded.workload, shape)
        warned = f", {len(loaded.warnings)} warnings" if loaded.warnings else ""
        return f"{loaded.workload.task} of {shape.id}{warned}; `gpuprov plan {spec}` says whether it fits"

    return _tried(f"spec {spec}", look)


def _tried(check: str, look: Callable[[], str]) -> Finding:
    try:
        return Finding(check, "ok", look())
    except GpuprovError as error:
        return Finding(check, "broken", error.message, error.remedy or "see the message")
