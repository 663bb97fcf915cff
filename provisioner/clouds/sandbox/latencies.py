"""How long things take in the sandbox: calls that block, changes that need time, and lists that lag behind."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import timedelta
from sqlite3 import Connection

from provisioner.clouds.sandbox.clock import duration_us
from provisioner.clouds.sandbox.store import read_setting, write_setting
from provisioner.errors import UsageError

CALLS = ("create", "start", "stop", "terminate", "volume", "read", "other")
"""Call latencies: the caller is blocked for as long, in real time."""

CHANGES = ("boot", "ready", "stopping", "terminating", "visibility")
"""Time that a change needs by the sandbox's clock; ``ready`` is from running to a workload that answers, ``visibility`` is how long lists and reads lag behind a create."""

DEFAULTS = {
    "boot": timedelta(milliseconds=200),
    "ready": timedelta(milliseconds=300),
    "stopping": timedelta(milliseconds=100),
    "terminating": timedelta(milliseconds=100),
    "visibility": timedelta(milliseconds=300),
}
"""Short enough for a demo, long enough that a caller which does not wait is caught."""

LONGEST = timedelta(days=30)
"""Longest latency: beyond it nothing is rehearsed, and the host can no longer sleep so long."""

RECORD_AT_START = "start"
RECORD_AT_END = "end"

_OPERATIONS = {
    "create_instance": "create",
    "start_instance": "start",
    "stop_instance": "stop",
    "terminate_instance": "terminate",
    "create_volume": "volume",
    "get_instance": "read",
    "find_instances": "read",
    "find_volumes": "read",
    "list_objects": "read",
}


@dataclass(frozen=True, slots=True)
class Latency:
    """One entry: how long, and for a slow call whether its effect is recorded before or after the wait."""

    name: str
    duration: timedelta
    record_at: str = RECORD_AT_START

    @property
    def blocks_s(self) -> float:
        """Seconds that a call is blocked."""
        return self.duration.total_seconds()


def names() -> tuple[str, ...]:
    """All latencies that can be set."""
    return CALLS + CHANGES


def of_operation(connection: Connection, operation: str) -> Latency:
    """Latency of an operation of the cloud's interface."""
    return read(connection, _OPERATIONS.get(operation, "other"))


def read(connection: Connection, name: str) -> Latency:
    """A latency as it is set now."""
    default = str(duration_us(DEFAULTS.get(name, timedelta(0))))
    return Latency(
        name=name,
        duration=timedelta(microseconds=int(read_setting(connection, f"latency.{name}", default))),
        record_at=read_setting(connection, f"latency.{name}.record_at", RECORD_AT_START),
    )


def read_us(connection: Connection, name: str) -> int:
    """A latency in microseconds."""
    return duration_us(read(connection, name).duration)


def write(connection: Connection, latency: Latency) -> Latency:
    """Set a latency; what is not a call has no moment of recording.

    Raises:
        UsageError: an unknown name, a negative or endless duration, or an unknown moment of recording.
    """
    if latency.name not in names():
        raise UsageError(f"there is no latency {latency.name!r}; there are {', '.join(names())}")
    if not timedelta(0) <= latency.duration <= LONGEST:
        raise UsageError(f"a latency is from 0 to {LONGEST.days} days")
    if latency.record_at not in (RECORD_AT_START, RECORD_AT_END):
        raise UsageError(f"a call is recorded at its {RECORD_AT_START} or its {RECORD_AT_END}")
    kept = latency if latency.name in CALLS else replace(latency, record_at=RECORD_AT_START)
    write_setting(connection, f"latency.{kept.name}", str(duration_us(kept.duration)))
    write_setting(connection, f"latency.{kept.name}.record_at", kept.record_at)
    return kept
