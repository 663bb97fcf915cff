"""The sandbox's clock: the host's clock plus an offset that `sandbox clock advance` moves.

Times in the file are whole microseconds since 1970 (UTC), so that intervals and bills are exact integers.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from sqlite3 import Connection

from provisioner.clouds.sandbox.store import read_setting, write_setting
from provisioner.errors import UsageError

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
_OFFSET = "clock.offset_us"

FURTHEST = timedelta(days=366 * 50)
"""How far the clock may be moved: beyond some thousand years a date no longer exists."""


def utc_now() -> datetime:
    """The host's time, aware, in UTC."""
    return datetime.now(UTC)


@dataclass(frozen=True, slots=True)
class Host:
    """What the sandbox takes from the machine it runs on; tests put their own in."""

    now: Callable[[], datetime] = utc_now
    sleep: Callable[[float], None] = time.sleep
    """Blocks the caller for some seconds: the latency of a call."""


def to_us(moment: datetime) -> int:
    """Microseconds since 1970 of an aware moment."""
    return (moment - _EPOCH) // _MICROSECOND


def from_us(moment_us: int) -> datetime:
    """The aware moment, in UTC, of microseconds since 1970."""
    return _EPOCH + timedelta(microseconds=moment_us)


def duration_us(duration: timedelta) -> int:
    """Whole microseconds of a duration."""
    return duration // _MICROSECOND


def now_us(connection: Connection, host: Host) -> int:
    """The sandbox's time in microseconds since 1970."""
    return to_us(host.now()) + offset_us(connection)


def offset_us(connection: Connection) -> int:
    """How far the sandbox's clock is ahead of the host's, in microseconds."""
    return int(read_setting(connection, _OFFSET, "0"))


def advance(connection: Connection, duration: timedelta) -> None:
    """Move the clock forward.

    Raises:
        UsageError: a negative duration, or a clock moved too far.
    """
    if duration < timedelta(0):
        raise UsageError("the clock goes forward only")
    moved_us = offset_us(connection) + duration_us(duration)
    if moved_us > duration_us(FURTHEST):
        raise UsageError(f"the clock would be more than {FURTHEST.days // 366} years ahead of the host's")
    write_setting(connection, _OFFSET, str(moved_us))
