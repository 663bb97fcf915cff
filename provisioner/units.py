"""Sizes, durations and money: the only place where unit words are read or written.

Memory is integer bytes, time is ``timedelta``, money is ``Decimal``; a bare number is never a quantity.
"""

from __future__ import annotations

import re
from datetime import timedelta
from decimal import Decimal, InvalidOperation
from typing import NamedTuple

from provisioner.records import record

KIB = 2**10
MIB = 2**20
GIB = 2**30
TIB = 2**40
GB = 10**9

HOURS_PER_MONTH = 730
"""Hours that a steady month is billed for (365 days x 24 h / 12), the same on AWS and GCP price pages."""


class DiskSpeed(NamedTuple):
    """What a disk is made to do."""

    iops: int
    mib_per_s: int


_SIZE_UNITS = {
    "B": 1,
    "KiB": KIB,
    "MiB": MIB,
    "GiB": GIB,
    "TiB": TIB,
    "KB": 10**3,
    "MB": 10**6,
    "GB": GB,
    "TB": 10**12,
}
_DURATION_UNITS = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0, "ms": 0.001}
_SIZE = re.compile(r"(?P<number>\d+(?:\.\d+)?)\s*(?P<unit>B|[KMGT]i?B)")
_DURATION = re.compile(r"(?P<number>\d+(?:\.\d+)?)\s*(?P<unit>ms|s|m|h|d)")
_MONEY = re.compile(r"(?P<amount>\d+(?:\.\d+)?)\s*(?P<currency>[A-Za-z]{3})(?:\s*/\s*(?P<per>h|month|run))?")
_COUNT = re.compile(r"(?P<number>\d+(?:\.\d+)?)\s*(?P<unit>[kKMBT]?)")
_COUNT_UNITS = {"": 1, "k": 10**3, "K": 10**3, "M": 10**6, "B": 10**9, "T": 10**12}


@record(frozen=True, slots=True)
class Money:
    """An amount of US dollars, for a period (``"h"``, ``"month"``, ``"run"``) or for nothing in particular (``None``)."""

    amount_usd: Decimal
    per: str | None = None

    def __str__(self) -> str:
        return f"{self.amount_usd} USD" + (f"/{self.per}" if self.per else "")


def parse_bytes(text: str) -> int:
    """Bytes of a size such as ``500GiB`` (binary) or ``200GB`` (decimal).

    Raises:
        ValueError: no unit, an unknown unit, or no number.
    """
    match = _SIZE.fullmatch(text.strip())
    if match is None:
        raise ValueError(f"{text!r} is not a size: write a number with a unit, such as 500GiB, 64MiB or 200GB")
    return int(Decimal(match["number"]) * _SIZE_UNITS[match["unit"]])


def parse_duration(text: str) -> timedelta:
    """Duration of a text such as ``90s``, ``15m``, ``2h``, ``7d`` or ``500ms``.

    Raises:
        ValueError: no unit, an unknown unit, or no number.
    """
    match = _DURATION.fullmatch(text.strip())
    if match is None:
        raise ValueError(f"{text!r} is not a duration: write a number with a unit, such as 90s, 15m, 2h or 7d")
    try:
        return timedelta(seconds=float(match["number"]) * _DURATION_UNITS[match["unit"]])
    except OverflowError:
        raise ValueError(f"{text!r} is too long a duration") from None


def parse_money(text: str) -> Money:
    """Money of a text such as ``12.50 USD/h``, ``3000 USD/month``, ``400 USD/run`` or ``200 USD``.

    Raises:
        ValueError: no currency, another currency than USD, or no number.
    """
    match = _MONEY.fullmatch(text.strip())
    if match is None:
        raise ValueError(f"{text!r} is not an amount of money: write it as 12.50 USD/h, 3000 USD/month or 200 USD")
    if match["currency"].upper() != "USD":
        raise ValueError(f"{text!r}: prices are in USD only")
    try:
        return Money(Decimal(match["amount"]), match["per"])
    except InvalidOperation:
        raise ValueError(f"{text!r} is not an amount of money") from None


def parse_count(text: str) -> int:
    """Whole count of a text such as ``2B``, ``5M``, ``800k`` or ``1200`` (decimal multiples).

    Raises:
        ValueError: not a number with one of the suffixes k, M, B, T.
    """
    match = _COUNT.fullmatch(text.strip())
    if match is None:
        raise ValueError(f"{text!r} is not a count: write a number such as 1200, 800k, 5M or 2B")
    return int(Decimal(match["number"]) * _COUNT_UNITS[match["unit"]])


def format_gib(size_bytes: int) -> str:
    """A size in GiB with one decimal, for people: ``15.0 GiB``."""
    return f"{size_bytes / GIB:.1f} GiB"


def format_bytes(size_bytes: int) -> str:
    """The shortest exact text of a size that ``parse_bytes`` reads back, binary units first."""
    for unit in ("TiB", "GiB", "MiB", "KiB", "TB", "GB", "MB", "KB"):
        if size_bytes and size_bytes % _SIZE_UNITS[unit] == 0:
            return f"{size_bytes // _SIZE_UNITS[unit]}{unit}"
    return f"{size_bytes}B"


def format_duration(duration: timedelta) -> str:
    """The shortest exact text of a duration that ``parse_duration`` reads back, whole units only."""
    milliseconds = round(duration.total_seconds() * 1000)
    for unit, size in (("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1000)):
        if milliseconds and milliseconds % size == 0:
            return f"{milliseconds // size}{unit}"
    return f"{milliseconds}ms" if milliseconds else "0s"


def format_usd(amount: Decimal, places: int = 2) -> str:
    """An amount rounded for people: ``$1,234.50``, ``-$431.66``."""
    text = f"${abs(amount):,.{places}f}"
    return f"-{text}" if round(amount, places) < 0 else text


def decimal_string(amount: Decimal) -> str:
    """An amount as plain decimal digits without exponent or trailing zeros, for JSON."""
    text = format(amount, "f")
    return text.rstrip("0").rstrip(".") if "." in text else text
