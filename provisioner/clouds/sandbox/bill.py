"""The bill: every object's intervals added up exactly, and what bills right now. The leak meter of our proofs."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from sqlite3 import Connection
from typing import Any

from provisioner import tags as tag_keys
from provisioner.clouds.sandbox import spans
from provisioner.clouds.sandbox.clock import from_us
from provisioner.clouds.sandbox.prices import usd_text
from provisioner.clouds.sandbox.spans import HOUR_US, Span

SCHEMA = "gpuprov.bill/1"


@dataclass(frozen=True, slots=True)
class Line:
    """One object's bill. Amounts are exact; ``None`` where the catalog has no price."""

    id: str
    kind: str
    owner_id: str
    cloud: str
    region: str
    zone: str
    name: str
    tags: Mapping[str, str]
    started_us: int
    ended_us: int | None
    """When the object ceased to exist; ``None`` while it can bill (a stopped machine bills nothing, but exists)."""
    billed_us: int
    usd: Fraction | None
    usd_per_hour: Fraction | None
    """What it bills now."""
    is_running: bool
    """Whether it bills now."""


@dataclass(frozen=True, slots=True)
class Bill:
    """All lines, oldest object first, and their sums over the objects whose price is known."""

    now_us: int
    lines: tuple[Line, ...]

    @property
    def total_usd(self) -> Fraction:
        """USD so far."""
        return sum((line.usd for line in self.lines if line.usd is not None), Fraction(0))

    @property
    def running_usd_per_hour(self) -> Fraction:
        """USD an hour now."""
        return sum((line.usd_per_hour for line in self.lines if line.usd_per_hour is not None), Fraction(0))

    @property
    def unpriced(self) -> tuple[str, ...]:
        """Objects without a known price: the sums leave them out."""
        return tuple(line.id for line in self.lines if line.usd is None)


def read(connection: Connection, now_us: int, *, running_only: bool = False, stack_id: str | None = None) -> Bill:
    """The bill up to a moment; the world must have been brought up to it.

    Args:
        connection: inside a transaction.
        now_us: the sandbox's time.
        running_only: only objects that bill now.
        stack_id: only objects that carry this ``gpuprov:stack-id``.
    """
    grouped: dict[str, list[Span]] = {}
    for span in spans.read_all(connection):
        grouped.setdefault(span.object_id, []).append(span)
    owners = _owners(connection)
    lines = [_line(parts, owners[parts[0].owner_id], now_us) for parts in grouped.values()]
    return Bill(
        now_us,
        tuple(
            line
            for line in lines
            if (line.is_running or not running_only) and stack_id in (None, line.tags.get(tag_keys.STACK_ID))
        ),
    )


def document(bill: Bill) -> dict[str, Any]:
    """The bill as its JSON document (``gpuprov.bill/1``)."""
    return {
        "schema": SCHEMA,
        "as_of": from_us(bill.now_us).isoformat(),
        "total_usd": usd_text(bill.total_usd),
        "running_usd_per_hour": usd_text(bill.running_usd_per_hour),
        "unpriced": list(bill.unpriced),
        "lines": [_line_document(line) for line in bill.lines],
    }


def hours_text(duration_us: int) -> str:
    """Hours as a decimal string."""
    return usd_text(Fraction(duration_us, HOUR_US)) or "0"


def _line_document(line: Line) -> dict[str, Any]:
    return {
        "id": line.id,
        "kind": line.kind,
        "instance": line.owner_id if line.owner_id != line.id else None,
        "cloud": line.cloud,
        "region": line.region,
        "zone": line.zone,
        "name": line.name,
        "stack": line.tags.get(tag_keys.STACK),
        "stack_id": line.tags.get(tag_keys.STACK_ID),
        "from": from_us(line.started_us).isoformat(),
        "to": None if line.ended_us is None else from_us(line.ended_us).isoformat(),
        "hours": hours_text(line.billed_us),
        "usd": usd_text(line.usd),
        "usd_per_hour": usd_text(line.usd_per_hour),
        "running": line.is_running,
    }


def _owners(connection: Connection) -> dict[str, Mapping[str, Any]]:
    """Place, name, tags and end of every machine and disk that ever was."""
    return {
        row["id"]: {key: row[key] for key in ("cloud", "region", "zone", "name", "tags", "ended_us")}
        for table in ("instances", "volumes")
        for row in connection.execute(f"SELECT id, cloud, region, zone, name, tags, ended_us FROM {table}")  # noqa: S608 - fixed names
    }


def _line(parts: list[Span], owner: Mapping[str, Any], now_us: int) -> Line:
    first, last = parts[0], parts[-1]
    running = last.ended_us is None
    amounts = [span.usd(now_us) for span in parts]
    known = [amount for amount in amounts if amount is not None]
    return Line(
        id=first.object_id,
        kind=first.kind,
        owner_id=first.owner_id,
        cloud=owner["cloud"],
        region=owner["region"],
        zone=owner["zone"],
        name=owner["name"],
        tags=json.loads(owner["tags"]),
        started_us=first.started_us,
        ended_us=None if owner["ended_us"] is None else last.ended_us,
        billed_us=sum(span.billed_us(now_us) for span in parts),
        usd=sum(known, Fraction(0)) if len(known) == len(amounts) else None,
        usd_per_hour=last.rate if running else Fraction(0),
        is_running=running,
    )
