"""Quantities of a spec: sizes, durations, money, counts, and the small texts that hold two facts at once."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import timedelta
from decimal import Decimal
from typing import Any

from provisioner.records import record
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
from provisioner.workload.kinds import Kind, Misfit, Whole, as_scalar, suggest, surprise
from provisioner.workload.tree import Node, Scalar, show

SIZE_BYTES_MAX = 2**53
"""8 PiB: beyond any disk on offer, and the largest size that every JSON reader keeps exact."""
DURATION_MAX = timedelta(days=3660)
"""Ten years: beyond any commitment on offer."""
AMOUNT_USD_MAX = 10**9
COUNT_MAX = 10**15
"""Tokens of a run: some tens of times the largest training published (tens of trillions)."""
TEXT_CHARACTERS_MAX = 40
"""Longest text of a quantity that is looked at; a longer one has more digits than any unit is exact to."""
REPLICAS_MAX = 1000
WORK_UNITS = ("tokens", "images", "clips", "audio hours")


@record(frozen=True, slots=True)
class EngineChoice:
    """An inference engine and, optionally, its version: ``vllm@0.19``."""

    name: Engine
    version: str | None = None

    def __str__(self) -> str:
        return f"{self.name}@{self.version}" if self.version else str(self.name)


@record(frozen=True, slots=True)
class ReplicaRange:
    """The fewest and the most serving copies: ``1..4``."""

    minimum: int
    maximum: int

    def __str__(self) -> str:
        return f"{self.minimum}..{self.maximum}"


@record(frozen=True, slots=True)
class WorkTotal:
    """The work of a batch. ``unit`` is tokens, images, clips or audio hours; only the last may be fractional."""

    amount: Decimal
    unit: str

    def __str__(self) -> str:
        return f"{decimal_string(self.amount)} {self.unit}"


def _quantity_text(node: Node, what: str, remedy: str) -> str:
    """The text of a quantity that has a unit.

    Raises:
        Misfit: no scalar, a bare number, or nothing that could be a quantity.
    """
    scalar = as_scalar(node, what, remedy)
    is_number = isinstance(scalar.value, (int, float)) and not isinstance(scalar.value, bool)
    if is_number or re.fullmatch(r"\d+(?:\.\d+)?", scalar.text):
        raise Misfit(f"{show(scalar)} has no unit", remedy)
    if not isinstance(scalar.value, str) or len(scalar.value) > TEXT_CHARACTERS_MAX or not scalar.value.isascii():
        raise Misfit(f"{show(scalar)} is not {what}", remedy)
    return scalar.value


def _out_of_range(node: Node, remedy: str) -> Misfit:
    return Misfit(f"{show(node)} is out of range", remedy)


class Quantity(Kind):
    """A number with a unit, read and written by a pair of functions from ``provisioner.units``."""

    __slots__ = ("examples", "form", "least", "most", "parse", "pattern", "what")

    def __init__(
        self,
        what: str,
        examples: tuple[str, ...],
        pattern: str,
        functions: tuple[Callable[[str], Any], Callable[[Any], Any]],
        bounds: tuple[Any, Any],
    ) -> None:
        self.what = what
        self.examples = examples
        self.pattern = pattern
        self.parse, self.form = functions
        self.least, self.most = bounds

    def read(self, node: Node) -> Any:
        """The quantity."""
        remedy = f"write {self.what} such as {', '.join(self.examples[:-1])} or {self.examples[-1]}"
        text = _quantity_text(node, self.what, remedy)
        try:
            quantity = self.parse(text)
        except ValueError:
            hint = surprise(node) if isinstance(node, Scalar) else ""
            raise Misfit(f"{show(node)} is not {self.what}{hint}", remedy) from None
        if not self.least <= quantity <= self.most:
            raise _out_of_range(node, f"write {self.what} from {self.form(self.least)} to {self.form(self.most)}")
        return quantity

    def write(self, value: Any) -> Any:
        """The shortest exact text."""
        return self.form(value)

    def schema(self) -> dict[str, Any]:
        """A string with the unit's pattern."""
        return {"type": "string", "pattern": rf"^\d+(?:\.\d+)?\s*(?:{self.pattern})$", "examples": list(self.examples)}


def parse_monthly_bytes(text: str) -> int:
    """Bytes a month of a text such as ``200GB/month``.

    Raises:
        ValueError: no size, or not per month.
    """
    size, slash, period = text.partition("/")
    if not slash or period.strip() != "month":
        raise ValueError(f"{text!r} is not a size per month")
    return parse_bytes(size)


def format_monthly_bytes(size_bytes: int) -> str:
    """The text that ``parse_monthly_bytes`` reads back."""
    return f"{format_bytes(size_bytes)}/month"


def parse_whole_milliseconds(text: str) -> timedelta:
    """Duration of a text, to the millisecond: finer than that nothing here can tell apart.

    Raises:
        ValueError: no duration.
    """
    return timedelta(milliseconds=round(parse_duration(text) / timedelta(milliseconds=1)))


_BYTE_UNITS = "[KMGT]i?B|B"
SIZE = Quantity("a size", ("500GiB", "64MiB", "200GB"), _BYTE_UNITS, (parse_bytes, format_bytes), (1, SIZE_BYTES_MAX))
MONTHLY_SIZE = Quantity(
    "a size per month",
    ("200GB/month", "64GiB/month"),
    rf"(?:{_BYTE_UNITS})\s*/\s*month",
    (parse_monthly_bytes, format_monthly_bytes),
    (0, SIZE_BYTES_MAX),
)
DURATION = Quantity(
    "a duration",
    ("90s", "15m", "2h", "7d"),
    "ms|s|m|h|d",
    (parse_whole_milliseconds, format_duration),
    (timedelta(milliseconds=1), DURATION_MAX),
)


class MoneyPer(Kind):
    """An amount of US dollars per one of certain periods (``None`` = a plain amount)."""

    __slots__ = ("examples", "periods")

    def __init__(self, *examples: str) -> None:
        self.examples = examples
        self.periods = tuple(parse_money(example).per for example in examples)

    def read(self, node: Node) -> Money:
        """The amount, above 0."""
        remedy = f"write an amount of money such as {' or '.join(self.examples)}"
        text = _quantity_text(node, "an amount of money in USD", remedy)
        try:
            money = parse_money(text)
        except ValueError:
            hint = surprise(node) if isinstance(node, Scalar) else ""
            raise Misfit(f"{show(node)} is not an amount of money in USD{hint}", remedy) from None
        if money.per not in self.periods:
            has = f"is per {money.per}" if money.per else "does not say per what"
            raise Misfit(f"{show(node)} {has}", remedy)
        if not 0 < money.amount_usd <= AMOUNT_USD_MAX:
            raise _out_of_range(node, f"write an amount above 0 and up to {AMOUNT_USD_MAX} USD")
        return money

    def write(self, value: Money) -> str:
        """The amount without needless zeros."""
        return f"{decimal_string(value.amount_usd)} USD" + (f"/{value.per}" if value.per else "")

    def schema(self) -> dict[str, Any]:
        """A string with the periods."""
        ends = "|".join(rf"\s*/\s*{period}" if period else "" for period in self.periods)
        return {
            "type": "string",
            "pattern": rf"^\d+(?:\.\d+)?\s*[Uu][Ss][Dd](?:{ends})$",
            "examples": list(self.examples),
        }


class Count(Kind):
    """A whole count, with or without one of the suffixes k, M, B, T."""

    __slots__ = ()

    def read(self, node: Node) -> int:
        """The count, at least 1."""
        remedy = "write a count such as 2B, 500M or 1200"
        scalar = as_scalar(node, "a count", remedy)
        if isinstance(scalar.value, int) and not isinstance(scalar.value, bool):
            return Whole(1, COUNT_MAX).read(scalar)
        match = (
            re.fullmatch(r"(\d{1,18}(?:\.\d{1,12})?)\s*([kKMBT])", scalar.text)
            if isinstance(scalar.value, str)
            else None
        )
        if match is None:
            raise Misfit(f"{show(scalar)} is not a count{surprise(scalar)}", remedy)
        count = Decimal(match[1]) * parse_count(f"1{match[2]}")
        if not 1 <= count <= COUNT_MAX or count != count.to_integral_value():
            raise _out_of_range(scalar, f"write a whole count from 1 to {COUNT_MAX}")
        return int(count)

    def schema(self) -> dict[str, Any]:
        """A number, or a string with a suffix."""
        return {"anyOf": [Whole(1, COUNT_MAX).schema(), {"type": "string", "pattern": r"^\d+(?:\.\d+)?\s*[kKMBT]$"}]}


class EngineName(Kind):
    """An engine with an optional version."""

    __slots__ = ()

    def read(self, node: Node) -> EngineChoice:
        """The engine."""
        remedy = f"write one of {', '.join(Engine)}, or one with its version such as vllm@0.19"
        scalar = as_scalar(node, "an engine", remedy)
        name, at, version = scalar.text.partition("@")
        if not isinstance(scalar.value, str) or name not in tuple(Engine):
            raise Misfit(f"{show(scalar)} is not an engine{surprise(scalar)}", suggest(name, tuple(Engine), remedy))
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
        return {
            "type": "string",
            "pattern": rf"^(?:{names})(?:@\d[0-9A-Za-z.+-]*)?$",
            "examples": [*Engine, "vllm@0.19"],
        }


class Replicas(Kind):
    """``auto``, a number, or a range."""

    __slots__ = ()

    def read(self, node: Node) -> str | int | ReplicaRange:
        """The number or the range; a range of one number is that number."""
        remedy = f"write auto, a whole number from 1 to {REPLICAS_MAX}, or a range such as 1..4"
        scalar = as_scalar(node, "a number of replicas", remedy)
        if scalar.value == "auto":
            return "auto"
        if isinstance(scalar.value, str) and (match := re.fullmatch(r"(\d{1,9})\.\.(\d{1,9})", scalar.value)):
            least, most = int(match[1]), int(match[2])
            if not 1 <= least <= most <= REPLICAS_MAX:
                raise _out_of_range(scalar, f"write the smaller number first, from 1 to {REPLICAS_MAX}")
            return least if least == most else ReplicaRange(least, most)
        try:
            return Whole(1, REPLICAS_MAX).read(scalar)
        except Misfit as misfit:
            raise Misfit(misfit.message, suggest(scalar.text, ("auto",), remedy)) from None

    def write(self, value: str | int | ReplicaRange) -> str | int:
        """``auto``, the number, or ``1..4``."""
        return str(value) if isinstance(value, ReplicaRange) else value

    def schema(self) -> dict[str, Any]:
        """Three forms."""
        number = Whole(1, REPLICAS_MAX).schema()
        return {"anyOf": [{"const": "auto"}, number, {"type": "string", "pattern": r"^\d+\.\.\d+$"}]}


class Work(Kind):
    """An amount of work with what it counts: ``5M tokens``, ``200 audio hours``."""

    __slots__ = ()

    def read(self, node: Node) -> WorkTotal:
        """The work, above 0; whole except for audio hours."""
        units = ", ".join(WORK_UNITS)
        remedy = f"write a count and its unit ({units}), such as 5M tokens or 200 audio hours"
        text = _quantity_text(node, "an amount of work", remedy)
        match = re.fullmatch(r"(\d{1,18}(?:\.\d{1,12})?)\s*([kKMBT]?)(?:\s+([a-z]+(?: hours?)?))?", text)
        if match is None:
            hint = surprise(node) if isinstance(node, Scalar) else ""
            raise Misfit(f"{show(node)} is not an amount of work{hint}", remedy)
        number, suffix, unit = match.groups()
        if unit is None:
            raise Misfit(f"{show(node)} has no unit", remedy)
        if unit not in WORK_UNITS:
            raise Misfit(f"{show(node)} counts {unit}", suggest(unit, WORK_UNITS, remedy))
        amount = Decimal(number) * parse_count(f"1{suffix}")
        if not 0 < amount <= COUNT_MAX or (unit != "audio hours" and amount != amount.to_integral_value()):
            raise _out_of_range(node, f"write a whole count from 1 to {COUNT_MAX}")
        return WorkTotal(amount, unit)

    def write(self, value: WorkTotal) -> str:
        """Plain digits and the unit."""
        return str(value)

    def schema(self) -> dict[str, Any]:
        """A string with the units."""
        units = "|".join(WORK_UNITS)
        return {"type": "string", "pattern": rf"^\d+(?:\.\d+)?\s*[kKMBT]?\s+(?:{units})$", "examples": ["5M tokens"]}
