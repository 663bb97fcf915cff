"""How long a machine may live, from a spec as a plain document (defaults of CONTRACTS section 4).

The document may come from a program that has resolved every ``auto``, or straight from a user's YAML; nothing here needs
the spec's models, so the plugin starts without them.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

from provisioner import tags
from provisioner.errors import UsageError
from provisioner.units import parse_duration
from provisioner.vocabulary import Pattern, Task

MAX_LIFETIME_BURSTY = timedelta(hours=24)
TERMINATE_AFTER = "7d"
OFF = "off"
AUTO = "auto"


def pattern(workload: Mapping[str, Any]) -> Pattern:
    """``steady`` for serving, ``bursty`` for everything else, unless the spec says it.

    Raises:
        UsageError: the spec says another word.
    """
    stated = part(workload, "lifecycle").get("pattern")
    if stated in tuple(Pattern):
        return Pattern(stated)
    if stated is not None:
        raise UsageError(f"workload.lifecycle.pattern is {stated!r}", remedy=f"write {' or '.join(Pattern)}")
    return Pattern.STEADY if workload.get("task") == Task.SERVE else Pattern.BURSTY


def max_lifetime(workload: Mapping[str, Any]) -> timedelta | None:
    """How long a machine lives from its creation or its last start; ``None`` without a limit.

    Raises:
        UsageError: the spec states something that is no duration.
    """
    stated = part(workload, "lifecycle").get("max_lifetime")
    if stated is None:
        return MAX_LIFETIME_BURSTY if pattern(workload) is Pattern.BURSTY else None
    if stated == OFF:
        return None
    return _duration("lifecycle.max_lifetime", stated)


def expires_at(workload: Mapping[str, Any], since: datetime) -> str:
    """The end of a machine that lives from ``since``, as its tag says it: RFC 3339 UTC, or ``none``."""
    lifetime = max_lifetime(workload)
    return tags.NONE if lifetime is None else tags.format_time(since + lifetime)


def idle_after(workload: Mapping[str, Any]) -> str:
    """Value of the idle tag: a duration, ``auto`` (the node decides) or ``none``."""
    idle = part(part(workload, "lifecycle"), "idle").get("after")
    if idle is None:
        idle = AUTO if pattern(workload) is Pattern.BURSTY else OFF
    return tags.NONE if idle == OFF else str(idle)


def idle_then(workload: Mapping[str, Any]) -> str | None:
    """What an idle machine does by the spec: ``stop`` or ``terminate``; ``None`` leaves it to its market and disks."""
    then = part(part(workload, "lifecycle"), "idle").get("then")
    return str(then) if then is not None else None


def terminate_after(workload: Mapping[str, Any]) -> str:
    """Value of the tag that says how long a machine may stay stopped."""
    return str(part(part(workload, "lifecycle"), "stopped").get("terminate_after") or TERMINATE_AFTER)


def part(document: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    """A section of a document; an empty one where it is absent or no object."""
    value = document.get(key)
    return value if isinstance(value, Mapping) else {}


def _duration(key: str, value: Any) -> timedelta:
    try:
        duration = parse_duration(value) if isinstance(value, str) else None
    except ValueError:
        duration = None
    if duration is None or duration <= timedelta(0):
        raise UsageError(f"workload.{key} is {value!r}, not a duration", remedy="write it as 12h, 90m, 7d or off")
    return duration
