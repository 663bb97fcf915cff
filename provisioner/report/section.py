"""The smallest part of a report: a titled table of short texts."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal

from provisioner.units import format_usd

UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Section:
    """A titled table. ``header`` may be empty; ``right`` are the columns of numbers."""

    title: str
    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    right: frozenset[int] = frozenset()
    note: str | None = None
    whole: frozenset[int] = frozenset()
    """Columns whose cells stay on one line, beside those of numbers: names."""


def usd(amount: Decimal | None, places: int = 2) -> str:
    """An amount rounded for people, or that it is unknown."""
    return UNKNOWN if amount is None else format_usd(amount, places)
