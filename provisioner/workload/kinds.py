"""Kinds of values in a spec: each reads what was written, writes it back in one normal form, and describes itself to editors.

A kind sits in a field's annotation (``Annotated[int, Whole(minimum=1)]``). Its complaint is a ``Misfit``: what is wrong with
the value, and what to write instead; the key and its place are added by whoever knows them.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from pydantic import GetCoreSchemaHandler
from pydantic_core import PydanticCustomError, core_schema

from provisioner.workload.nearest import nearest
from provisioner.workload.tree import Branch, Items, Path, Scalar, from_python

SHOWN_CHARACTERS_MAX = 60
_YAML11_BOOLEANS = frozenset({"y", "n", "yes", "no", "on", "off"})
_YAML11_NUMBER = re.compile(r"[-+]?(?:0[0-7_]+|0b[01_]+|\d[\d_]*(?::[0-5]?\d)+(?:\.\d*)?|\d+_[\d_]*)")


class Misfit(Exception):  # noqa: N818 - a complaint about a value, turned into a SpecError where its place is known
    """A value that its key cannot take. ``path`` leads from the key to the part that is wrong."""

    def __init__(self, message: str, remedy: str, path: Path = ()) -> None:
        super().__init__(message)
        self.message = message
        self.remedy = remedy
        self.path = path


def show(value: object) -> str:
    """A value as an error quotes it: short, on one line."""
    if isinstance(value, Scalar):
        text = value.text if value.plain else f'"{value.text}"'
    else:
        text = {list: "a list", dict: "a mapping"}.get(type(value), str(value))
    text = "".join(character if character.isprintable() else repr(character)[1:-1] for character in text)
    return text if len(text) <= SHOWN_CHARACTERS_MAX else f"{text[: SHOWN_CHARACTERS_MAX - 3]}..."


def surprise(scalar: Scalar) -> str:
    """What YAML 1.1 would have made of a plain text, as the end of a sentence; empty where nothing surprises."""
    if not scalar.plain:
        return ""
    if scalar.text.lower() in _YAML11_BOOLEANS:
        return " (a true or false of YAML 1.1; this file is YAML 1.2, where it is a word)"
    if _YAML11_NUMBER.fullmatch(scalar.text):
        return " (a number of YAML 1.1; this file is YAML 1.2)"
    return ""


def as_scalar(value: object, wanted: str, remedy: str) -> Scalar:
    """The scalar that stands here.

    Raises:
        Misfit: a list, a mapping or nothing.
    """
    scalar = value if isinstance(value, (Scalar, Branch, Items, list, dict)) else from_python(value)
    if not isinstance(scalar, Scalar):
        raise Misfit(f"{wanted} is wanted here, not {show(value)}", remedy)
    if scalar.value is None:
        raise Misfit("has no value", f"{remedy}, or remove the key")
    return scalar


@dataclass(frozen=True, slots=True)
class Kind:
    """Base of all kinds: how pydantic calls one."""

    def read(self, value: object) -> Any:
        """The value that was written, in the type of its field.

        Raises:
            Misfit: it is not of this kind.
        """
        raise TypeError(f"{type(self).__name__} reads nothing: {value!r}")

    def write(self, value: Any) -> Any:
        """The JSON value that ``read`` reads back."""
        return value

    def schema(self) -> dict[str, Any]:
        """JSON Schema of what may be written."""
        return {}

    def validate(self, value: object) -> Any:
        """``read`` with its complaint in pydantic's form."""
        try:
            return self.read(value)
        except Misfit as misfit:
            facts = {"message": misfit.message, "remedy": misfit.remedy, "path": misfit.path}
            raise PydanticCustomError("misfit", "{message}", facts) from None

    def __get_pydantic_core_schema__(self, source: object, handler: GetCoreSchemaHandler) -> core_schema.CoreSchema:
        del source, handler
        return core_schema.no_info_plain_validator_function(self.validate)


@dataclass(frozen=True, slots=True)
class Text(Kind):
    """A text that matches a pattern. ``what`` names it, ``example`` shows one."""

    what: str
    example: str
    pattern: str = r"[^\x00-\x1f\x7f]+"
    length_max: int = 256

    def read(self, value: object) -> str:
        """The text."""
        remedy = f"write {self.what} such as {self.example}"
        scalar = as_scalar(value, self.what, remedy)
        if not isinstance(scalar.value, str):
            raise Misfit(f"{show(scalar)} is no text", f'put it in quotes: "{show(scalar)}"')
        if len(scalar.value) > self.length_max:
            raise Misfit(f"{show(scalar)} has {len(scalar.value)} characters", f"use at most {self.length_max}")
        if not re.fullmatch(self.pattern, scalar.value) or scalar.value != scalar.value.strip():
            raise Misfit(f"{show(scalar)} is not {self.what}{surprise(scalar)}", remedy)
        return scalar.value

    def schema(self) -> dict[str, Any]:
        """A string with the pattern."""
        return {"type": "string", "pattern": f"^(?:{self.pattern})$", "maxLength": self.length_max}


@dataclass(frozen=True, slots=True)
class Words(Kind):
    """One word of a closed list, as a member of an enum where there is one."""

    words: tuple[str, ...]
    enum: type[StrEnum] | None = None

    @classmethod
    def of(cls, enum: type[StrEnum]) -> Words:
        """All words of an enum."""
        return cls(tuple(enum), enum)

    def read(self, value: object) -> Any:
        """The word."""
        choices = ", ".join(self.words)
        scalar = as_scalar(value, f"one of {choices}", f"write one of {choices}")
        if isinstance(scalar.value, str) and scalar.value in self.words:
            return self.enum(scalar.value) if self.enum else str(scalar.value)
        near = nearest(scalar.text, self.words)
        remedy = f"did you mean {near}? Write one of {choices}" if near else f"write one of {choices}"
        raise Misfit(f"{show(scalar)} is not one of the words for this key{surprise(scalar)}", remedy)

    def write(self, value: Any) -> str:
        """The word itself."""
        return str(value)

    def schema(self) -> dict[str, Any]:
        """An enum."""
        return {"type": "string", "enum": [str(word) for word in self.words]}


@dataclass(frozen=True, slots=True)
class Whole(Kind):
    """A whole number in a range, both ends allowed."""

    minimum: int = 1
    maximum: int = 10**9

    def read(self, value: object) -> int:
        """The number."""
        remedy = f"write a whole number from {self.minimum} to {self.maximum}"
        scalar = as_scalar(value, "a whole number", remedy)
        number = scalar.value
        if isinstance(number, bool) or not isinstance(number, int):
            hint = ", without quotes" if not scalar.plain else ""
            raise Misfit(f"{show(scalar)} is no whole number{surprise(scalar)}", remedy + hint)
        if re.fullmatch(r"[-+]?0\d+", scalar.text):
            raise Misfit(
                f"{show(scalar)} starts with 0: YAML 1.1 reads it as octal, YAML 1.2 does not", f"write {number}"
            )
        if not self.minimum <= number <= self.maximum:
            raise Misfit(f"{show(scalar)} is out of range", remedy)
        return number

    def schema(self) -> dict[str, Any]:
        """An integer with its range."""
        return {"type": "integer", "minimum": self.minimum, "maximum": self.maximum}


@dataclass(frozen=True, slots=True)
class Number(Kind):
    """A finite number above 0 and up to a maximum."""

    maximum: float = 1e9
    example: str = "0.9"

    def read(self, value: object) -> float:
        """The number."""
        remedy = f"write a number above 0 and up to {self.maximum:g}, such as {self.example}"
        scalar = as_scalar(value, "a number", remedy)
        number = scalar.value
        if isinstance(number, bool) or not isinstance(number, (int, float)):
            raise Misfit(f"{show(scalar)} is no number{surprise(scalar)}", remedy)
        if not math.isfinite(number) or not 0 < number <= self.maximum:
            raise Misfit(f"{show(scalar)} is out of range", remedy)
        return float(number)

    def write(self, value: float) -> float | int:
        """The shortest JSON number."""
        return int(value) if value.is_integer() else value

    def schema(self) -> dict[str, Any]:
        """A number with its range."""
        return {"type": "number", "exclusiveMinimum": 0, "maximum": self.maximum}


@dataclass(frozen=True, slots=True)
class Flag(Kind):
    """``true`` or ``false``."""

    def read(self, value: object) -> bool:
        """The flag."""
        scalar = as_scalar(value, "true or false", "write true or false")
        if not isinstance(scalar.value, bool):
            raise Misfit(f"{show(scalar)} is neither true nor false{surprise(scalar)}", "write true or false")
        return scalar.value

    def schema(self) -> dict[str, Any]:
        """A boolean."""
        return {"type": "boolean"}


@dataclass(frozen=True, slots=True)
class WordOr(Kind):
    """Certain words (``auto``, ``off``), or a value of another kind."""

    words: tuple[str, ...]
    other: Kind

    def read(self, value: object) -> Any:
        """The word, or the other kind's value."""
        if isinstance(value, Scalar) and value.value in self.words and isinstance(value.value, str):
            return str(value.value)
        if isinstance(value, str) and value in self.words:
            return value
        try:
            return self.other.read(value)
        except Misfit as misfit:
            near = nearest(value.text, self.words) if isinstance(value, Scalar) else None
            ahead = f"did you mean {near}? Else " if near else ""
            raise Misfit(misfit.message, f"{ahead}{misfit.remedy}, or {' or '.join(self.words)}", misfit.path) from None

    def write(self, value: Any) -> Any:
        """The word itself, or what the other kind writes."""
        return str(value) if isinstance(value, str) and value in self.words else self.other.write(value)

    def schema(self) -> dict[str, Any]:
        """Either."""
        return {"anyOf": [{"enum": list(self.words)}, self.other.schema()]}


@dataclass(frozen=True, slots=True)
class WordOrPart(Kind):
    """Certain words, or a part of the spec with keys of its own."""

    words: tuple[str, ...]
    part: type[Any]

    def __get_pydantic_core_schema__(self, source: object, handler: GetCoreSchemaHandler) -> core_schema.CoreSchema:
        del source
        return core_schema.no_info_wrap_validator_function(self._word_or_part, handler.generate_schema(self.part))

    def _word_or_part(self, value: object, part: core_schema.ValidatorFunctionWrapHandler) -> Any:
        if value in self.words or (isinstance(value, Scalar) and value.value in self.words):
            return value.text if isinstance(value, Scalar) else value
        return part(value)


@dataclass(frozen=True, slots=True)
class Listing(Kind):
    """A list of at least one value of one kind, each at most once where ``unique``."""

    item: Kind
    unique: bool = True
    length_max: int = 256

    def read(self, value: object) -> tuple[Any, ...]:
        """The values in the order written."""
        if not isinstance(value, (list, tuple)):
            shown = show(value)
            lone = isinstance(value, Scalar) and value.value is not None
            raise Misfit(
                f"a list is wanted here, not {shown}", f"write [{shown}]" if lone else "write a list such as [a, b]"
            )
        if not value:
            raise Misfit("the list is empty", "put a value in it, or remove the key")
        if len(value) > self.length_max:
            raise Misfit(f"the list has {len(value)} entries", f"use at most {self.length_max}")
        found: list[Any] = []
        for index, item in enumerate(value):
            try:
                one = self.item.read(item)
            except Misfit as misfit:
                raise Misfit(misfit.message, misfit.remedy, (index, *misfit.path)) from None
            if self.unique and one in found:
                raise Misfit(f"{show(item)} is listed twice", "remove one of them", (index,))
            found.append(one)
        return tuple(found)

    def write(self, value: tuple[Any, ...]) -> list[Any]:
        """A list of what the item kind writes."""
        return [self.item.write(item) for item in value]

    def schema(self) -> dict[str, Any]:
        """An array."""
        return {"type": "array", "items": self.item.schema(), "minItems": 1, "uniqueItems": self.unique}


@dataclass(frozen=True, slots=True)
class Table(Kind):
    """A mapping whose keys are the user's own."""

    key: Text
    value: Kind
    length_max: int = 256

    def read(self, value: object) -> dict[str, Any]:
        """Keys and values, sorted by key: their order means nothing."""
        if not isinstance(value, Mapping):
            raise Misfit(f"a mapping is wanted here, not {show(value)}", f"write it as {{{self.key.example}: ...}}")
        if len(value) > self.length_max:
            raise Misfit(f"the mapping has {len(value)} keys", f"use at most {self.length_max}")
        found: dict[str, Any] = {}
        for key, item in value.items():
            try:
                found[self.key.read(str(key))] = self.value.read(item)
            except Misfit as misfit:
                raise Misfit(misfit.message, misfit.remedy, (str(key), *misfit.path)) from None
        return dict(sorted(found.items()))

    def write(self, value: dict[str, Any]) -> dict[str, Any]:
        """A mapping of what the value kind writes."""
        return {key: self.value.write(item) for key, item in value.items()}

    def schema(self) -> dict[str, Any]:
        """An object with free keys."""
        return {"type": "object", "propertyNames": self.key.schema(), "additionalProperties": self.value.schema()}
