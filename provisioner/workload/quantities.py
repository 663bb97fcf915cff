"""Quantities of a spec: sizes, durations, money, counts, and the small texts that hold two facts at once."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from decimal import Decimal
from typing import Any

from provisioner.units import (
    Money,
    decimal_string,
    format_bytes,
    format_duration,
    parse_bytes,
    parse_count,
    parse_duration,
    parse_money,
)
from provisioner.vocabulary import Engine
from provisioner.workload.kinds import Kind, Misfit, Whole, Words, as_scalar, show, surprise
from provisioner.workload.nearest import nearest

SIZE_BYTES_MAX = 2**53
"""8 PiB: beyond any disk on offer, and the largest size that every JSON reader keeps exact."""
DURATION_MAX = timedelta(days=3660)
"""Ten years: beyond any commitment on offer."""
AMOUNT_USD_MAX = Decimal(10**9)
COUNT_MAX = 10**18
"""Tokens of a run: thousands of times the largest training published."""
DIGITS_MAX = 40


@dataclass(frozen=True, slots=True)
class EngineChoice:
    """An inference engine and, optionally, its version: ``vllm@0.19``."""

    name: Engine
    version: str | None = None

    def __str__(self) -> str:
        return f"{self.name}@{self.version}" if self.version else str(self.name)


@dataclass(frozen=True, slots=True)
class ReplicaRange:
    """The fewest and the most serving copies: ``1..4``."""

    minimum: int
    maximum: int

    def __str__(self) -> str:
        return f"{self.minimum}..{self.maximum}"


@dataclass(frozen=True, slots=True)
class WorkTotal:
    """The work of a batch. ``unit`` is tokens, images, clips or audio hours."""

    amount: Decimal
    unit: str

    def __str__(self) -> str:
        return f"{decimal_string(self.amount)} {self.unit}"


@dataclass(frozen=True, slots=True)
class Quantity(Kind):
    """A number with a unit, read and written by a pair of functions from ``provisioner.units``."""

    what: str
    examples: str
    parse: Callable[[str], Any]
    form: Callable[[Any], Any]
    pattern: str
    least: Any
    most: Any

    def read(self, value: object) -> Any:
        """The quantity."""
        remedy = f"write a number with a unit, such as {self.examples}"
        scalar = as_scalar(value, self.what, remedy)
        if isinstance(scalar.value, (int, float)) and not isinstance(scalar.value, bool):
            raise Misfit(f"{show(scalar)} has no unit; {self.what} is wanted", remedy)
        if not isinstance(scalar.value, str) or len(scalar.value) > DIGITS_MAX or not scalar.value.isascii():
            raise Misfit(f"{show(scalar)} is not {self.what}", remedy)
        try:
            quantity = self.parse(scalar.value)
        except ValueError:
            if re.fullmatch(r"\d+(?:\.\d+)?", scalar.value):
                raise Misfit(f"{show(scalar)} has no unit; {self.what} is wanted", remedy) from None
            raise Misfit(f"{show(scalar)} is not {self.what}{surprise(scalar)}", remedy) from None
        if not self.least <= quantity <= self.most:
            raise Misfit(f"{show(scalar)} is out of range", f"write {self.what} from {self.bounds()}")
        return quantity

    def bounds(self) -> str:
        """The range in the words of the spec."""
        return f"{self.form(self.least)} to {self.form(self.most)}"

    def write(self, value: Any) -> Any:
        """The shortest exact text."""
        return self.form(value)

    def schema(self) -> dict[str, Any]:
        """A string with the unit's pattern."""
        return {
            "type": "string",
            "pattern": f"^(?:{self.pattern})$",
            "examples": self.examples.replace(" or", ",").split(", "),
        }


@dataclass(frozen=True, slots=True)
class MoneyPer(Kind):
    """An amount of money per one of certain periods (``None`` = a plain amount)."""

    periods: tuple[str | None, ...]
    example: str

    def read(self, value: object) -> Money:
        """The amount, above 0."""
        remedy = f"write an amount with its unit, such as {self.example}"
        scalar = as_scalar(value, "an amount of money", remedy)
        if isinstance(scalar.value, (int, float)) and not isinstance(scalar.value, bool):
            raise Misfit(f"{show(scalar)} has no unit; an amount of money in USD is wanted", remedy)
        if not isinstance(scalar.value, str) or len(scalar.value) > DIGITS_MAX or not scalar.value.isascii():
            raise Misfit(f"{show(scalar)} is not an amount of money", remedy)
        try:
            money = parse_money(scalar.value)
        except ValueError as error:
            text = (
                f"{show(scalar)} is not in USD"
                if "USD only" in str(error)
                else f"{show(scalar)} is not an amount of money"
            )
            raise Misfit(f"{text}{surprise(scalar)}", remedy) from None
        if money.per not in self.periods:
            per = f"is per {money.per}" if money.per else "has no period"
            raise Misfit(f"{show(scalar)} {per}, which this key does not take", remedy)
        if not 0 < money.amount_usd <= AMOUNT_USD_MAX:
            raise Misfit(f"{show(scalar)} is out of range", f"write an amount above 0 and up to {AMOUNT_USD_MAX} USD")
        return money

    def write(self, value: Money) -> str:
        """The amount without needless zeros."""
        return f"{decimal_string(value.amount_usd)} USD" + (f"/{value.per}" if value.per else "")

    def schema(self) -> dict[str, Any]:
        """A string with the periods."""
        ends = "|".join(rf"\s*/\s*{period}" if period else "" for period in self.periods)
        return {
            "type": "string",
            "pattern": rf"^\d+(\.\d+)?\s*USD({ends})$",
            "examples": [self.example.split(" or ")[0]],
        }


@dataclass(frozen=True, slots=True)
class EngineName(Kind):
    """An engine with an optional version."""

    def read(self, value: object) -> EngineChoice:
        """The engine."""
        engines = Words(tuple(Engine))
        choices = ", ".join(Engine)
        scalar = as_scalar(value, "an engine", f"write one of {choices}, or with a version such as vllm@0.19")
        name, at, version = scalar.text.partition("@")
        if not isinstance(scalar.value, str) or name not in engines.words:
            near = nearest(name, engines.words)
            ahead = f"did you mean {near}? " if near else ""
            remedy = f"{ahead}Write one of {choices}, or with a version such as vllm@0.19"
            raise Misfit(f"{show(scalar)} is not an engine{surprise(scalar)}", remedy)
        if at and not re.fullmatch(r"\d{1,6}(?:\.\d{1,6}){0,3}(?:[-.+]?[A-Za-z0-9]{1,20}){0,3}", version):
            raise Misfit(
                f"{show(scalar)} has no version after the @",
                f"write {name}@ and a version such as 0.19, or {name} alone",
            )
        return EngineChoice(Engine(name), version or None)

    def write(self, value: EngineChoice) -> str:
        """Name, and version where there is one."""
        return str(value)

    def schema(self) -> dict[str, Any]:
        """A string with the engines."""
        names = "|".join(re.escape(engine) for engine in Engine)
        return {"type": "string", "pattern": rf"^(?:{names})(@\d[0-9A-Za-z.+-]*)?$", "examples": ["vllm", "vllm@0.19"]}


REPLICAS_MAX = 1000


@dataclass(frozen=True, slots=True)
class Replicas(Kind):
    """``auto``, a number, or a range."""

    def read(self, value: object) -> str | int | ReplicaRange:
        """The number or the range; a range of one number is that number."""
        remedy = f"write auto, a whole number from 1 to {REPLICAS_MAX}, or a range such as 1..4"
        scalar = as_scalar(value, "a number of replicas", remedy)
        if scalar.value == "auto":
            return "auto"
        if isinstance(scalar.value, str) and (match := re.fullmatch(r"(\d{1,9})\.\.(\d{1,9})", scalar.value)):
            least, most = int(match[1]), int(match[2])
            if not 1 <= least <= most <= REPLICAS_MAX:
                raise Misfit(
                    f"{show(scalar)} is out of range", f"write the smaller number first, from 1 to {REPLICAS_MAX}"
                )
            return least if least == most else ReplicaRange(least, most)
        try:
            return Whole(1, REPLICAS_MAX).read(scalar)
        except Misfit as misfit:
            raise Misfit(misfit.message, remedy) from None

    def write(self, value: str | int | ReplicaRange) -> str | int:
        """``auto``, the number, or ``1..4``."""
        return str(value) if isinstance(value, ReplicaRange) else value

    def schema(self) -> dict[str, Any]:
        """Three forms."""
        number = Whole(1, REPLICAS_MAX).schema()
        return {"anyOf": [{"const": "auto"}, number, {"type": "string", "pattern": r"^\d+\.\.\d+$"}]}


WORK_UNITS = ("tokens", "images", "clips", "audio hours")


@dataclass(frozen=True, slots=True)
class Work(Kind):
    """An amount of work with what it counts: ``5M tokens``, ``200 audio hours``."""

    def read(self, value: object) -> WorkTotal:
        """The work, above 0; whole except for audio hours."""
        remedy = f"write a count and what it counts ({', '.join(WORK_UNITS)}), such as 5M tokens or 200 audio hours"
        scalar = as_scalar(value, "an amount of work", remedy)
        if isinstance(scalar.value, (int, float)) and not isinstance(scalar.value, bool):
            raise Misfit(f"{show(scalar)} has no unit; an amount of work is wanted", remedy)
        match = re.fullmatch(
            r"(?P<number>\d{1,18}(?:\.\d{1,9})?)\s*(?P<suffix>[kKMBT]?)\s+(?P<unit>[a-z]+(?: hours)?)", scalar.text
        )
        if match is None or not isinstance(scalar.value, str):
            raise Misfit(f"{show(scalar)} is not an amount of work{surprise(scalar)}", remedy)
        if match["unit"] not in WORK_UNITS:
            near = nearest(match["unit"], WORK_UNITS)
            raise Misfit(f"{show(scalar)} counts {match['unit']}", f"did you mean {near}? {remedy}" if near else remedy)
        factor = parse_count(f"1{match['suffix']}")
        amount = Decimal(match["number"]) * factor
        if not 0 < amount <= COUNT_MAX or (match["unit"] != "audio hours" and amount != amount.to_integral_value()):
            raise Misfit(f"{show(scalar)} is out of range", f"write a whole count from 1 to {COUNT_MAX}")
        return WorkTotal(amount.normalize(), match["unit"])

    def write(self, value: WorkTotal) -> str:
        """Plain digits and the unit."""
        return str(value)

    def schema(self) -> dict[str, Any]:
        """A string with the units."""
        units = "|".join(WORK_UNITS)
        return {"type": "string", "pattern": rf"^\d+(\.\d+)?\s*[kKMBT]?\s+(?:{units})$", "examples": ["5M tokens"]}


def parse_monthly_bytes(text: str) -> int:
    """Bytes a month of a text such as ``200GB/month``.

    Raises:
        ValueError: no size, or not per month.
    """
    size, slash, period = text.partition("/")
    if not slash or period.strip() != "month":
        raise ValueError(f"{text!r} is not a size per month")
    return parse_bytes(size)


def parse_whole_milliseconds(text: str) -> timedelta:
    """Duration of a text, to the millisecond: finer than that nothing here can tell apart.

    Raises:
        ValueError: no duration.
    """
    return timedelta(milliseconds=round(parse_duration(text) / timedelta(milliseconds=1)))


_NUMBER = r"\d+(\.\d+)?\s*"

SIZE = Quantity(
    "a size", "500GiB, 64MiB or 200GB", parse_bytes, format_bytes, _NUMBER + "([KMGT]i?B|B)", 1, SIZE_BYTES_MAX
)
MONTHLY_SIZE = Quantity(
    "a size per month",
    "200GB/month, 64GiB/month or 0GB/month",
    parse_monthly_bytes,
    lambda size_bytes: f"{format_bytes(size_bytes)}/month",
    _NUMBER + r"([KMGT]i?B|B)\s*/\s*month",
    0,
    SIZE_BYTES_MAX,
)
DURATION = Quantity(
    "a duration",
    "90s, 15m, 2h or 7d",
    parse_whole_milliseconds,
    format_duration,
    _NUMBER + "(ms|s|m|h|d)",
    timedelta(milliseconds=1),
    DURATION_MAX,
)


@dataclass(frozen=True, slots=True)
class Count(Kind):
    """A whole count, with or without one of the suffixes k, M, B, T."""

    examples: str = "2B, 500M or 1200"

    def read(self, value: object) -> int:
        """The count, at least 1."""
        remedy = f"write a count such as {self.examples}"
        scalar = as_scalar(value, "a count", remedy)
        if isinstance(scalar.value, int) and not isinstance(scalar.value, bool):
            return Whole(1, COUNT_MAX).read(scalar)
        match = (
            re.fullmatch(r"\d{1,18}(?:\.\d{1,9})?\s*[kKMBT]", scalar.text) if isinstance(scalar.value, str) else None
        )
        if match is None:
            raise Misfit(f"{show(scalar)} is not a count{surprise(scalar)}", remedy)
        count = Decimal(scalar.text[:-1]) * parse_count(f"1{scalar.text[-1]}")
        if not 1 <= count <= COUNT_MAX or count != count.to_integral_value():
            raise Misfit(f"{show(scalar)} is out of range", f"write a whole count from 1 to {COUNT_MAX}")
        return int(count)

    def schema(self) -> dict[str, Any]:
        """A number, or a string with a suffix."""
        return {"anyOf": [Whole(1, COUNT_MAX).schema(), {"type": "string", "pattern": rf"^{_NUMBER}[kKMBT]$"}]}
