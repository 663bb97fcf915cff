"""The dead man's switch: ends the machine at its lifetime, its spend or its lease, whatever else has died.

Run by a systemd timer, once a period, as a process of its own: systemd is the only thing that must live. It counts the time
that the machine has run, on the monotonic clock and on disk; steps of the wall clock, a reboot, a suspended machine or a dead
watcher neither disarm nor hasten it. Python 3.9 and its standard library only.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, fields, replace
from datetime import datetime
from math import isfinite
from pathlib import Path
from typing import Any

LEASE_TAG = "gpuprov-lease-until"
EXPIRY_TAG = "gpuprov:expires-at"
LEASE_MAX_S = 366 * 24 * 3600.0
"""A keepalive beyond it is a mistyped date."""
NONE = "none"
START_GRACE_S = 600.0
"""A machine that was ended and runs again was started by somebody: so long it waits to be told its new end."""


@dataclass(frozen=True)
class Limits:
    """What ends the machine; ``None`` is no such limit. Seconds of running time."""

    lifetime_s: float | None = None
    """From the creation or the last start."""
    spend_s: float | None = None
    """From the creation, all runs together: ``max_spend`` at the price at creation."""
    lease_s: float | None = None


@dataclass(frozen=True)
class Switch:
    """What is on disk."""

    boot_id: str = ""
    at_s: float = 0.0
    """Monotonic time of the last tick."""
    used_s: float = 0.0
    """Since the creation or the last start."""
    total_s: float = 0.0
    lifetime_s: float | None = None
    """As armed: the configured one, or what the tag said when it changed."""
    lease_left_s: float | None = None
    lease_tag: str = ""
    expiry_tag: str = ""
    ended_by: str = ""
    """Why it has begun to end the machine; once begun it goes on."""


def advance(
    switch: Switch | None,
    limits: Limits,
    clock: tuple[str, float],
    tags: Mapping[str, str] | None,
    now: float | None,
) -> Switch:
    """The switch after a look at the clock and at the tags.

    Args:
        switch: from disk; ``None`` arms it.
        limits: as the machine was made with.
        clock: the id of this boot, since another one means that the monotonic clock began anew, and the seconds since it,
            time asleep included.
        tags: the machine's tags; ``None`` where they cannot be read, which changes nothing.
        now: wall time of the host; ``None`` where only the guest's could be had.
    """
    boot, at_s = clock
    if switch is None:
        switch = Switch(boot_id=boot, at_s=0.0, lifetime_s=limits.lifetime_s, lease_left_s=limits.lease_s)
        if tags is not None:
            switch = replace(switch, expiry_tag=tags.get(EXPIRY_TAG, ""))
    is_same_boot = switch.boot_id == boot and at_s >= switch.at_s
    if switch.ended_by and switch.boot_id != boot:
        switch = _started_again(switch, limits)
    passed_s = at_s - switch.at_s if is_same_boot else at_s
    switch = replace(
        switch,
        boot_id=boot,
        at_s=at_s,
        used_s=switch.used_s + passed_s,
        total_s=switch.total_s + passed_s,
        lease_left_s=None if switch.lease_left_s is None else switch.lease_left_s - passed_s,
    )
    if tags is not None:
        switch = _follow_expiry(switch, limits, tags.get(EXPIRY_TAG, ""), now)
        switch = _follow_lease(switch, limits, tags.get(LEASE_TAG, ""), now)
    return replace(switch, ended_by=switch.ended_by or _due(switch, limits))


def _started_again(switch: Switch, limits: Limits) -> Switch:
    """An end that has happened is over: what was used up leaves the grace, in which a renewed tag can be read."""
    used_s, total_s, left_s = switch.used_s, switch.total_s, switch.lease_left_s
    if switch.lifetime_s is not None:
        used_s = min(used_s, switch.lifetime_s - START_GRACE_S)
    if limits.spend_s is not None:
        total_s = min(total_s, limits.spend_s - START_GRACE_S)
    if left_s is not None:
        left_s = max(left_s, START_GRACE_S)
    return replace(switch, ended_by="", used_s=used_s, total_s=total_s, lease_left_s=left_s)


def _follow_expiry(switch: Switch, limits: Limits, tag: str, now: float | None) -> Switch:
    """``start`` writes a new end: the lifetime counts anew. An end in the tag that makes no sense is the full lifetime."""
    if not tag or tag == switch.expiry_tag:
        return switch
    left_s = _left(tag, now)
    if tag == NONE:
        lifetime_s = None
    elif left_s is not None and 0 < left_s <= LEASE_MAX_S:
        lifetime_s = left_s
    else:
        lifetime_s = limits.lifetime_s
    return replace(switch, expiry_tag=tag, used_s=0.0, lifetime_s=lifetime_s)


def _follow_lease(switch: Switch, limits: Limits, tag: str, now: float | None) -> Switch:
    """A new lease, turned into running time when it is first seen; also where the spec asks for none, it holds off idleness."""
    if not tag or tag == switch.lease_tag:
        return switch
    left_s = _left(tag, now)
    if left_s is None or left_s > LEASE_MAX_S:
        left_s = limits.lease_s
    elif left_s <= 0:  # an old tag, or a clock that is off: neither cuts short what runs
        left_s = switch.lease_left_s
    return replace(switch, lease_tag=tag, lease_left_s=left_s)


def ends_of(switch: Switch, limits: Limits) -> list[tuple[float, str]]:
    """What ends the machine: seconds of running time until then, 0 or less where it is due, and why."""
    found = []
    if switch.lifetime_s is not None:
        found.append((switch.lifetime_s - switch.used_s, f"its lifetime of {_hours(switch.lifetime_s)} is over"))
    if limits.spend_s is not None:
        used_s = max(switch.total_s, limits.spend_s)
        found.append((limits.spend_s - switch.total_s, f"its max_spend is used up after {_hours(used_s)}"))
    if limits.lease_s is not None and switch.lease_left_s is not None:
        found.append((switch.lease_left_s, "its lease was not renewed"))
    return found


def _due(switch: Switch, limits: Limits) -> str:
    """Why the machine has to end now; empty while it has not."""
    return next((why for left_s, why in ends_of(switch, limits) if left_s <= 0), "")


def load_switch(path: Path) -> Switch | None:
    """The switch on disk; ``None`` where there is none that reads, whatever else stands there."""
    try:
        document = json.loads(path.read_text())
        known = {f.name for f in fields(Switch)}
        switch = Switch(**{key: value for key, value in document.items() if key in known})
        # Words are words and numbers are numbers, or this fails; one that is none would never come due.
        _ = switch.boot_id + switch.lease_tag + switch.expiry_tag + switch.ended_by
        numbers = switch.at_s + switch.used_s + switch.total_s + (switch.lifetime_s or 0) + (switch.lease_left_s or 0)
        return switch if isfinite(numbers) else None
    except (OSError, ValueError, TypeError, AttributeError):
        return None


def newest_switch(paths: Iterable[Path], boot: str) -> Switch | None:
    """The switch of several copies that was written last: of this boot, by its clock; else the first that reads."""
    found = [switch for switch in map(load_switch, paths) if switch is not None]
    ours = [switch for switch in found if switch.boot_id == boot]
    return max(ours, key=lambda switch: switch.at_s) if ours else next(iter(found), None)


def save_switch(path: Path, switch: Switch) -> bool:
    """Write the switch so that a cut at any moment leaves the old or the new one; whether that worked (a disk may be full)."""
    fresh = path.with_name(f"{path.name}.{os.getpid()}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with fresh.open("w") as file:
            json.dump(asdict(switch), file)
            file.flush()
            os.fsync(file.fileno())
        fresh.replace(path)
    except OSError:
        with suppress(OSError):
            fresh.unlink()
        return False
    return True


def limits_of(config: Mapping[str, Any]) -> Limits:
    """The limits of a node's configuration."""
    return Limits(config.get("lifetime_s"), config.get("spend_s"), config.get("lease_s"))


def moment(text: str) -> float | None:
    """Seconds since 1970 of an RFC 3339 time; ``None`` for anything else."""
    try:
        found = datetime.fromisoformat(f"{text[:-1]}+00:00" if text.endswith("Z") else text)
    except ValueError:
        return None
    return found.timestamp() if found.tzinfo is not None else None


def _left(tag: str, now: float | None) -> float | None:
    until = moment(tag)
    return None if until is None or now is None else until - now


def _hours(seconds: float) -> str:
    return f"{seconds / 3600:.1f} h" if seconds >= 3600 else f"{seconds:.0f} s"


def boot_id(root: Path) -> str:
    """The kernel's id of this boot; empty where it cannot be read, and the monotonic clock alone tells a reboot."""
    try:
        return (root / "proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""
