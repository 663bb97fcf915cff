"""How old prices are. Ages depend on the day, so they go to people and never into a plan."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import date

from provisioner.catalog.offers import Offer

OLD_PRICE_DAYS = 30
"""Age from which a price is said to be old: list prices move about once a quarter, spot prices within days."""


def age_days(as_of: str, today: date) -> int:
    """Days from an ISO date to today."""
    return (today - date.fromisoformat(as_of)).days


def describe_age(as_of: str, today: date) -> str:
    """A date with its age, for people: ``2026-08-03 (119 days old)``."""
    days = age_days(as_of, today)
    return f"{as_of} ({days} day{'' if days == 1 else 's'} old)"


def describe_offer_ages(offers: Iterable[Offer], today: date) -> list[str]:
    """One line per cloud and capacity type: the dates of its prices, oldest and newest, with their ages."""
    dates: dict[tuple[str, str], set[str]] = {}
    for offer in offers:
        if offer.price_as_of is not None:
            dates.setdefault((offer.cloud, str(offer.capacity_type)), set()).add(offer.price_as_of)
    lines = []
    for (cloud, capacity), found in sorted(dates.items()):
        oldest, newest = describe_age(min(found), today), describe_age(max(found), today)
        lines.append(f"{cloud} {capacity} prices: {newest if oldest == newest else f'{oldest} to {newest}'}")
    return lines
