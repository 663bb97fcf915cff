"""Offers of EC2 Capacity Blocks as quotes: what a day of one machine costs an hour, where, and from when.

Only an account's own offers have a price: the public Price List shows blocks at 0. A block ends at 11:30 UTC, so that an offer of
"24 hours" is somewhat shorter or longer; its fee is divided by the hours that it really has.

Source: EC2 API, DescribeCapacityBlockOfferings; EC2 user guide, "Find and purchase Capacity Blocks".
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime
from decimal import Decimal, InvalidOperation
from typing import Any

from provisioner.catalog.blocks import block_note
from provisioner.catalog.fetched import PriceQuote
from provisioner.catalog.instances import InstanceType
from provisioner.errors import CloudError

DAY_HOURS = 24
"""Length that is asked for: the shortest block, so that the most offers answer."""
_SECONDS_PER_HOUR = 3600
_PLACES = Decimal("0.000001")


def block_types(types: Mapping[str, InstanceType], offered: Iterable[str]) -> tuple[str, ...]:
    """Types with GPUs that are sold in blocks and that a region offers, sorted."""
    here = set(offered)
    return tuple(
        sorted(
            name
            for name, one in types.items()
            if one.kind == "gpu" and one.capacity_block_available == "yes" and name in here
        )
    )


def read_offerings(
    entries: Iterable[Mapping[str, Any]], zone_id: Callable[[str], str | None]
) -> dict[tuple[str, str], PriceQuote]:
    """The cheapest offer of each type and zone; the earlier of two that cost the same.

    Raises:
        CloudError: an offer has another form than the documented one.
    """
    best: dict[tuple[str, str], tuple[Decimal, str, PriceQuote]] = {}
    for entry in entries:
        try:
            found = _read(entry, zone_id)
        except (KeyError, TypeError, ValueError, AttributeError, InvalidOperation, ZeroDivisionError) as error:
            raise CloudError(
                f"an offer of a capacity block has another form: {type(error).__name__} {error}",
                remedy="try again later; if it stays, please report it",
            ) from None
        if found is not None:
            key = (found[2].instance_type, found[2].zone)
            best[key] = min(best.get(key, found), found, key=lambda one: one[:2])
    return {key: quote for key, (_, _, quote) in sorted(best.items())}


def _read(entry: Mapping[str, Any], zone_id: Callable[[str], str | None]) -> tuple[Decimal, str, PriceQuote] | None:
    zone = zone_id(str(entry["AvailabilityZone"]))
    if zone is None or entry.get("CurrencyCode", "USD") != "USD":
        return None
    start = _start(entry["StartDate"])
    hours = _hours(entry) * int(entry["InstanceCount"])
    price = (Decimal(str(entry["UpfrontFee"])) / hours).quantize(_PLACES)
    return price, start, PriceQuote(str(entry["InstanceType"]), zone, str(price), notes=block_note(start))


def _hours(entry: Mapping[str, Any]) -> Decimal:
    """Hours from start to end, else those that the offer states."""
    start, end = entry.get("StartDate"), entry.get("EndDate")
    if isinstance(start, datetime) and isinstance(end, datetime) and end > start:
        return Decimal(round((end - start).total_seconds())) / _SECONDS_PER_HOUR
    return Decimal(int(entry["CapacityBlockDurationHours"]))


def _start(moment: Any) -> str:
    if not isinstance(moment, datetime):
        raise TypeError(f"no time: {moment!r}")
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
