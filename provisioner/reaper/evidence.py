"""Idle by what can be seen from outside: the watcher's own lines on the console, and the cloud's metrics."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from datetime import datetime, timedelta
from math import inf
from typing import Any

from provisioner import tags
from provisioner.node.idleness import BUSY, IDLE, QUIET, UNKNOWN, Memory, Rules, decide
from provisioner.reaper.console import said
from provisioner.reaper.machines import Observed, Sample, moment

SILENT_AFTER = timedelta(minutes=15)
"""Three heartbeats of the watcher: one that says nothing for longer is dead, and what it would say is unknown."""
_CALM = (QUIET, IDLE)
_DECISIONS = (BUSY, UNKNOWN, QUIET, IDLE)


@dataclass(frozen=True, slots=True)
class Evidence:
    """What is seen of one machine."""

    state: str
    """``busy``, ``unknown`` or ``idle``; how long is in ``quiet``."""
    quiet: timedelta
    reason: str
    idle_after: timedelta | None = None
    """The threshold that the machine itself goes by."""


def last_line(console: Sequence[str], *, decisions: bool = False) -> Mapping[str, Any] | None:
    """The last line that the watcher wrote on a console, or the last one that judges a reading."""
    for line in reversed(console):
        found = said(line)
        if found is not None and (not decisions or found.get("state") in _DECISIONS):
            return found
    return None


def silent_since(console: Sequence[str], now: datetime) -> str | None:
    """When the watcher judged a reading for the last time, if it should have done so again since; else ``None``."""
    line = last_line(console, decisions=True)
    said_at = moment(str(line.get("at"))) if line is not None else None
    return str(line.get("at")) if line is not None and said_at is not None and now - said_at > SILENT_AFTER else None


def judge(observed: Observed, now: datetime, since: datetime | None = None) -> Evidence:
    """All sources together: idle only if each one that exists says so, for as long as the shortest says.

    Args:
        observed: what was read.
        now: the cloud's time.
        since: the machine's start or the end of its last work as known otherwise; it cannot have been idle before.
    """
    found = [e for e in (_from_console(observed.console, now), _from_samples(observed, now)) if e is not None]
    told = next((e.idle_after for e in found if e.idle_after is not None), None)
    if not found:
        return Evidence(UNKNOWN, timedelta(0), "neither its watcher nor a metric tells anything")
    for word in (BUSY, UNKNOWN):
        for entry in found:
            if entry.state == word:
                return Evidence(word, timedelta(0), entry.reason, told)
    quiet = min(entry.quiet for entry in found)
    if since is not None:
        quiet = min(quiet, now - since)
    return Evidence(IDLE, max(quiet, timedelta(0)), "; ".join(entry.reason for entry in found), told)


def _from_console(console: Sequence[str], now: datetime) -> Evidence | None:
    line = last_line(console, decisions=True)
    if line is None:
        return None
    try:
        said_at = tags.parse_time(str(line.get("at")))
        quiet_s, after_s = float(line.get("quiet_s") or 0), line.get("idle_after_s")
        told = timedelta(seconds=float(after_s)) if after_s else None
    except (ValueError, TypeError):
        return Evidence(UNKNOWN, timedelta(0), "its watcher's last line does not read")
    state = str(line.get("state"))
    if said_at is None or now - said_at > SILENT_AFTER:
        return Evidence(UNKNOWN, timedelta(0), f"its watcher has said nothing since {line.get('at')}", told)
    if state not in _CALM:
        word = state if state in (BUSY, UNKNOWN) else BUSY
        return Evidence(word, timedelta(0), f"watcher: {line.get('why', state)}", told)
    # The guest's clock may be ahead: a line from the future has just been written.
    age = max(now - said_at, timedelta(0))
    return Evidence(IDLE, timedelta(seconds=quiet_s) + age, f"watcher: {line.get('why', state)}", told)


def _from_samples(observed: Observed, now: datetime) -> Evidence | None:
    samples = observed.samples
    if not samples:
        return None
    if not any("gpus" in sample.reading for sample in samples):
        return Evidence(UNKNOWN, timedelta(0), "no metric of its GPUs exists (absent is not idle)")
    # The window is the caller's question; here it only matters since when everything is quiet.
    rules = Rules(inf, inf if observed.holds else observed.period_s)
    memory, begin, last = Memory(), samples[0].at, samples[-1].at
    keys = {key for sample in samples for key in sample.reading}
    # What works now works whatever was before; only what seems quiet is read from its beginning.
    _, decision = decide(memory, 0.0, _known(samples[-1], keys), rules)
    if decision.state in _CALM:
        for sample in samples:
            memory, decision = decide(memory, (sample.at - begin).total_seconds(), _known(sample, keys), rules)
    if decision.state not in _CALM:
        return Evidence(decision.state, timedelta(0), f"metrics: {decision.reason}")
    if not observed.holds and (now - last).total_seconds() > 2.5 * observed.period_s:
        return Evidence(UNKNOWN, timedelta(0), f"its metrics stopped at {tags.format_time(last)}")
    quiet = now - begin - timedelta(seconds=memory.quiet_since_s or 0)
    shown = "; ".join(f"{name} {text}" for name, (_, text) in decision.sources.items())
    return Evidence(IDLE, quiet, f"metrics: {shown}")


def _known(sample: Sample, keys: AbstractSet[str]) -> Mapping[str, Any]:
    """A sample in which a source that others have, and this one lacks, is unknown."""
    missing = keys - sample.reading.keys()
    return {**dict.fromkeys(missing), **sample.reading} if missing else sample.reading
