"""What gpuprov needs on this machine, examined one by one: ok, warning or broken, each with its fix."""

from __future__ import annotations

import os
import shutil
import stat
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from provisioner.errors import EngineMissing, GpuprovError
from stacks.engine.find import find_engine

PROGRAMS = ("pulumi-resource-gpuprov", "gpuprov-policy")


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing examined. ``state`` is ``ok``, ``warning`` or ``broken``; ``fix`` is ``None`` only where it is ok."""

    check: str
    state: str
    found: str
    fix: str | None = None
    exit_code: int = GpuprovError.exit_code
    """What ``doctor`` ends with where this alone is broken: the cause's own, as the other commands end with it, else unclassified."""


@runtime_checkable
class Identified(Protocol):
    """A cloud that can say whose credentials it has."""

    def identity(self) -> str:
        """Who they are and what they reach, for people."""
        ...


def examine(home: Path, cloud: str, spec: Path | None = None, today: date | None = None) -> list[Finding]:
    """All findings, in the order in which a person would mend them. Nothing is changed, fetched or created."""
    findings = [_engine(), *_programs(), _home(home), _state(home), _catalog(today or datetime.now(UTC).date())]
    findings.append(_cloud(cloud, home, _settings(cloud, spec)))
    if spec is not None:
        findings.append(_spec(spec))
        if all(finding.state != "broken" for finding in findings[-2:]):
            findings += _launch(cloud, home, spec)
    return findings


def _engine() -> Finding:
    try:
        engine = find_engine(obtain=False)
    except EngineMissing as error:
        fix = "run `gpuprov doctor --get-engine`" + (f"; or {error.remedy}" if error.remedy else "")
        return Finding("engine", "broken", error.message, fix)
    except GpuprovError as error:
        return _broken("engine", error)
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
    existing = next((folder for folder in (home, *home.parents) if _is_there(folder)), None)
    if existing is None or not existing.is_dir() or not os.access(existing, os.W_OK | os.X_OK):
        return Finding("home", "broken", f"{home} cannot be written", "set GPUPROV_HOME or --home to a folder of yours")
    return Finding("home", "ok", str(home) + ("" if existing == home else " (made when first needed)"))


def _is_there(path: Path) -> bool:
    """Whether something is at a path; one below a folder that may not be entered counts as not there."""
    try:
        return path.exists()
    except OSError:
        return False


def _state(home: Path) -> Finding:
    """The backend, without touching it: a remote one is named and its secrets provider checked, a local one's passphrase too."""
    url = os.environ.get("GPUPROV_BACKEND") or ""
    if url not in ("", "local") and not url.startswith("file://"):
        return _tried("state", lambda: _remote_state(home))
    folder = Path(url.removeprefix("file://")).expanduser() if url.startswith("file://") else home / "state"
    file = folder / "passphrase"
    has_provider = bool(os.environ.get("GPUPROV_SECRETS_PROVIDER"))
    try:
        mode = stat.S_IMODE(file.stat().st_mode)
    except OSError:
        if not has_provider and any(folder.glob(".pulumi/stacks/**/*.json")):
            fix = "restore that file, or set GPUPROV_SECRETS_PROVIDER=passphrase and PULUMI_CONFIG_PASSPHRASE"
            return Finding("state", "broken", f"{file} is gone, and the stacks in {folder} were made with it", fix)
        mode = 0
    if mode & 0o077:
        return Finding("state", "warning", f"{file} is readable by others ({mode:04o})", f"chmod 600 {file}")
    return Finding("state", "ok", f"local files in {folder}")


def _remote_state(home: Path) -> str:
    from stacks.backend import choose_backend

    backend = choose_backend(home, None)
    return f"{backend.url}, secrets by {backend.secrets_provider}"


def _catalog(today: date) -> Finding:
    from provisioner.catalog.freshness import OLD_PRICE_DAYS, age_days, describe_age
    from provisioner.catalog.snapshot import load_catalog

    try:
        catalog = load_catalog()
        days = age_days(catalog.as_of, today)
    except GpuprovError as error:
        return _broken("catalog", error, "unset GPUPROV_CATALOG to use the bundled catalog")
    found = f"newest price of {describe_age(catalog.as_of, today)}"
    if days > OLD_PRICE_DAYS:
        return Finding("catalog", "warning", found, "run `gpuprov prices refresh`")
    return Finding("catalog", "ok", found)


def _settings(cloud: str, spec: Path | None) -> Mapping[str, Any] | None:
    """The spec's own settings of the cloud, its profile above all; a spec that does not read has a finding of its own."""
    from provisioner.workload.load import load

    if spec is None:
        return None
    try:
        found = load(spec).workload.to_document().get(cloud)
    except GpuprovError:
        return None
    return found if isinstance(found, Mapping) else None


def _cloud(cloud: str, home: Path, settings: Mapping[str, Any] | None) -> Finding:
    from stacks.clouds import open_cloud

    def look() -> str:
        opened = open_cloud(cloud, home, settings)
        if isinstance(opened, Identified):
            return opened.identity()
        opened.list_objects()
        return "answers"

    if cloud == "sandbox" and not _is_there(home / "sandbox.sqlite"):
        return Finding("cloud sandbox", "ok", "no objects yet; nothing real is ever created there")
    return _tried(f"cloud {cloud}", look)


def _spec(spec: Path) -> Finding:
    from provisioner.planner.request import demand_for, shape_for
    from provisioner.planner.requirements import KeyedSpecError
    from provisioner.workload.load import load

    def look() -> str:
        loaded = load(spec)
        try:
            shape = shape_for(loaded.workload)
            demand_for(loaded.workload, shape)
        except KeyedSpecError as error:
            error.where = error.where or loaded.position(error.key)
            raise
        warned = f", {len(loaded.warnings)} warnings" if loaded.warnings else ""
        return f"{loaded.workload.task} of {shape.id}{warned}; `gpuprov plan {spec}` says whether it fits"

    return _tried(f"spec {spec}", look)


def _launch(provider: str, home: Path, spec: Path) -> list[Finding]:
    """What would refuse a launch of the spec, where the cloud can tell before anything is made; one finding a check."""
    from provisioner.catalog.snapshot import load_catalog
    from provisioner.workload.load import load
    from stacks import preflight
    from stacks.clouds import open_cloud
    from stacks.program import inputs_of_plan
    from stacks.provider.inputs import ROOT_VOLUME_BYTES, read_offers
    from stacks.sticky import plan_for_stack

    check = f"launch on {provider}"
    try:
        workload = load(spec).workload
        plan = plan_for_stack(workload, load_catalog(), None, provider=provider, replan=False)
        inputs = inputs_of_plan(plan, workload)
        offers = read_offers(list(inputs.offers))
        told = preflight.script_refusal(inputs) or preflight.credentials_refusal(inputs, provider)
        if told is not None:
            return [_broken(check, told)]
        cloud = open_cloud(provider, home, inputs.workload.get(provider))
        found = preflight.look(cloud, offers, inputs.root_bytes or ROOT_VOLUME_BYTES)
    except GpuprovError as error:
        return [_broken(check, error)]
    refused = preflight.refusal(found, offers)
    if refused is not None:
        return [_broken(check, refused)]
    shown: dict[tuple[str, str], Finding] = {}
    for one in found:
        name = f"{check}: {one.check}"
        if one.error is not None:
            fix = one.error.remedy or "another offer is tried instead"
            shown[name, one.error.message] = Finding(name, "warning", one.error.message, fix)
        elif one.unknown is not None:
            shown[name, one.unknown] = Finding(
                name, "warning", f"cannot be told: {one.unknown}", "nothing is refused for it"
            )
    return list(shown.values()) or (
        [Finding(check, "ok", f"{len(found)} looks at its first offers found nothing wrong")] if found else []
    )


def _tried(check: str, look: Callable[[], str]) -> Finding:
    try:
        return Finding(check, "ok", look())
    except GpuprovError as error:
        return _broken(check, error)


def _broken(check: str, error: GpuprovError, fix: str = "see the message") -> Finding:
    found = f"{error.where}: {error.message}" if error.where else error.message
    return Finding(check, "broken", found, error.remedy or fix, error.exit_code)
