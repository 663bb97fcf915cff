"""Intervals in which an object bills at one rate: the meter behind the bill.

An open interval is something that bills now. Rates are exact fractions of USD an hour; an unknown price stays unknown.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from sqlite3 import Connection, Row

HOUR_US = 3_600_000_000

INSTANCE = "instance"
ROOT_VOLUME = "root-volume"
VOLUME = "volume"
IP = "ip"


@dataclass(frozen=True, slots=True)
class Span:
    """One interval of one object. ``owner_id`` is the object that the interval's object belongs to, or itself."""

    object_id: str
    kind: str
    owner_id: str
    rate: Fraction | None
    started_us: int
    ended_us: int | None

    def billed_us(self, now_us: int) -> int:
        """Microseconds billed up to a moment; never negative, also where the host's clock stepped back."""
        return max(0, (now_us if self.ended_us is None else self.ended_us) - self.started_us)

    def usd(self, now_us: int) -> Fraction | None:
        """USD up to a moment, exactly; ``None`` where the price is unknown."""
        return None if self.rate is None else self.rate * self.billed_us(now_us) / HOUR_US


@dataclass(frozen=True, slots=True)
class Meter:
    """What is about to bill: an object, its owner (itself, or the machine it belongs to) and its rate as the file keeps it."""

    kind: str
    object_id: str
    owner_id: str
    rate: str | None


def start(connection: Connection, meter: Meter, at_us: int) -> None:
    """Let an object bill from a moment on."""
    connection.execute(
        "INSERT INTO spans (object_id, kind, owner_id, rate, started_us) VALUES (?, ?, ?, ?, ?)",
        (meter.object_id, meter.kind, meter.owner_id, meter.rate, at_us),
    )


def last_end_us(connection: Connection, object_id: str) -> int | None:
    """When an object ceased to bill last; ``None`` where it never did."""
    row = connection.execute("SELECT max(ended_us) AS at_us FROM spans WHERE object_id = ?", (object_id,)).fetchone()
    return None if row["at_us"] is None else int(row["at_us"])


def end(connection: Connection, object_id: str, at_us: int) -> None:
    """Stop an object's bill; nothing happens where it does not bill."""
    connection.execute("UPDATE spans SET ended_us = ? WHERE object_id = ? AND ended_us IS NULL", (at_us, object_id))


def read_all(connection: Connection, *, running_only: bool = False) -> Iterator[Span]:
    """All intervals in the order in which they began, or only those that bill now."""
    query = (
        "SELECT * FROM spans WHERE ended_us IS NULL ORDER BY seq"
        if running_only
        else "SELECT * FROM spans ORDER BY seq"
    )
    for row in connection.execute(query):
        yield _from_row(row)


def running_rates(connection: Connection) -> dict[str, Fraction | None]:
    """Rate in USD an hour of each object that bills now."""
    return {span.object_id: span.rate for span in read_all(connection, running_only=True)}


def _from_row(row: Row) -> Span:
    rate = row["rate"]
    return Span(
        object_id=row["object_id"],
        kind=row["kind"],
        owner_id=row["owner_id"],
        rate=None if rate is None else Fraction(rate),
        started_us=row["started_us"],
        ended_us=row["ended_us"],
    )
