"""Kinds of values in a spec: each reads what was written, writes it back in one normal form, and describes itself to editors.

A kind sits in a field's annotation (``Annotated[int, Whole(1, 8)]``). Its complaint is a ``Misfit``: what is wrong with the
value, and what to write instead; the key and its place are added by whoever knows them. They are plain classes because
generating some twenty dataclasses would cost every ``plan`` a fiftieth of a second.
"""

from __future__ import annotations

import math
import re
from enum import StrEnum
from typing import Any

from pydantic import GetCoreSchemaHandler
from pydantic_core import PydanticCustomError, core_schema

from provisioner.workload.nearest import nearest
from provisioner.workload.tree import Branch, Items, Node, Path, Scalar, from_python, show

OR_REMOVE = ", or remove the key"
"""End of the remedy for a key without a value; it holds for optional keys."""

_NEGATIONS = frozenset({"no", "false", "never", "none", "null", "~"})
_YAML11_BOOLEANS = frozenset({"y", "n", "yes", "no", "on", "off"})
_YAML11_NUMBER = r"[-+]?(?:0[0-7_]+|0b[01_]+|\d[\d_]*(?::[0-5]?\d)+(?:\.\d*)?|\d+_[\d_]*)"


class Misfit(Exception):
    """A value that its key cannot take.

    ``path`` leads from the key to the part that is wrong; ``at_key`` says that a key there is what is wrong.
    """

    def __init__(self, message: str, remedy: str, path: Path = (), *, at_key: bool = False) -> None:
        super().__init__(message)
        self.message = message
        self.remedy = remedy
        self.path = path
        self.at_key = at_key

    def below(self, step: str | int) -> Misfit:
        """The same complaint, seen from one step further up."""
        return Misfit(self.message, self.remedy, (step, *self.path), at_key=self.at_key)


def surprise(scalar: Scalar) -> str:
    """What YAML 1.1 would have made of a plain text, as the end of a sentence; empty where nothing surprises."""
    if not scalar.plain:
        return ""
    if scalar.text.lower() in _YAML11_BOOLEANS:
        return " (true or false in YAML 1.1; this file is YAML 1.2, where it is a word)"
    if re.fullmatch(_YAML11_NUMBER, scalar.text):
        return " (a number in YAML 1.1; this file is YAML 1.2)"
    return ""


def as_scalar(node: Node, wanted: str, remedy: str) -> Scalar:
    """The scalar that stands here.

    Raises:
        Misfit: a list, a mapping or nothing.
    """
    if not isinstance(node, Scalar):
        raise Misfit(f"{wanted} is wanted here, not {show(node)}", remedy)
    if node.value is None:
        raise Misfit(f"no value; {wanted} is wanted", f"{remedy}{OR_REMOVE}")
    return node


def suggest(word: str, known: tuple[str, ...], remedy: str) -> str:
    """A remedy that begins with the nearest known word, where one is near."""
    near = nearest(word, known)
    return f"did you mean {near}? Otherwise {remedy}" if near else remedy


class Kind:
    """Base of all kinds."""

    __slots__ = ()

    def read(self, node: Node) -> Any:
        """The value that was written, in the type of its field.

        Raises:
            Misfit: it is not of this kind.
        """
        raise TypeError(f"{type(self).__name__} reads nothing: {node!r}")

    def write(self, value: Any) -> Any:
        """The JSON value that ``read`` reads back."""
        return value

    def schema(self) -> dict[str, Any]:
        """JSON Schema of what may be written."""
        return {}

    def validate(self, value: object) -> Any:
        """``read`` for pydantic, so that models built in Python are as strict as files."""
        try:
            return self.read(from_python(value))
        except Misfit as misfit:
            facts = {"message": f"{misfit.message}; {misfit.remedy}"}
            raise PydanticCustomError("misfit", "{message}", facts) from None

    def __get_pydantic_core_schema__(self, source: object, handler: GetCoreSchemaHandler) -> core_schema.CoreSchema:
        del source, handler
        return core_schema.no_info_plain_validator_function(self.validate)


class Text(Kind):
    """A text that matches a pattern. ``what`` names it, ``example`` shows one, ``rule`` says what the pattern says.

    ``portable`` says that the pattern means the same in the regular expressions of editors (ECMA 262).
    """

    __slots__ = ("example", "length_max", "pattern", "portable", "rule", "what")

    def __init__(
        self, what: str, example: str, pattern: str, length_max: int = 256, *, rule: str = "", portable: bool = True
    ) -> None:
        self.what = what
        self.example = example
        self.pattern = pattern
        self.length_max = length_max
        self.rule = rule
        self.portable = portable

    def read(self, node: Node) -> str:
        """The text."""
        remedy = f"write {self.what} such as {self.example}"
        scalar = as_scalar(node, self.what, remedy)
        if not isinstance(scalar.value, str):
            raise Misfit(f"{show(scalar)} is no text", f'put it in quotes: "{show(scalar)}"')
        if len(scalar.value) > self.length_max:
            raise Misfit(f"{show(scalar)} has {len(scalar.value)} characters", f"use at most {self.length_max}")
        if not re.fullmatch(self.pattern, scalar.value):
            rule = f": {self.rule}" if self.rule else ""
            raise Misfit(f"{show(scalar)} is not {self.what}{rule}{surprise(scalar)}", remedy)
        return scalar.value

    def schema(self) -> dict[str, Any]:
        """A string with the pattern."""
        pattern = {"pattern": f"^(?:{self.pattern})$"} if self.portable else {}
        return {"type": "string", **pattern, "maxLength": self.length_max, "examples": [self.example]}


class Words(Kind):
    """One word of a closed list, as a member of an enum where there is one."""

    __slots__ = ("enum", "words")

    def __init__(self, words: tuple[str, ...], enum: type[StrEnum] | None = None) -> None:
        self.words = words
        self.enum = enum

    @classmethod
    def of(cls, enum: type[StrEnum]) -> Words:
        """All words of an enum."""
        return cls(tuple(str(word) for word in enum), enum)

    def read(self, node: Node) -> Any:
        """The word."""
        choices = ", ".join(self.words)
        scalar = as_scalar(node, f"one of {choices}", f"write one of {choices}")
        if isinstance(scalar.value, str) and scalar.value in self.words:
            return self.enum(scalar.value) if self.enum else scalar.value
        raise Misfit(
            f"{show(scalar)} is none of {choices}{surprise(scalar)}",
            suggest(scalar.text, self.words, "write one of these words"),
        )

    def write(self, value: Any) -> str:
        """The word itself."""
        return str(value)

    def schema(self) -> dict[str, Any]:
        """An enum."""
        return {"type": "string", "enum": list(self.words)}


class Whole(Kind):
    """A whole number in a range, both ends allowed."""

    __slots__ = ("maximum", "minimum")

    def __init__(self, minimum: int, maximum: int) -> None:
        self.minimum = minimum
        self.maximum = maximum

    def read(self, node: Node) -> int:
        """The number."""
        remedy = f"write a whole number from {self.minimum} to {self.maximum}"
        scalar = as_scalar(node, "a whole number", remedy)
        number = scalar.value
        if isinstance(number, bool) or not isinstance(number, int):
            is_quoted = not scalar.plain and re.fullmatch(r"[0-9]+", scalar.text)
            hint = f"write {scalar.text} without quotes" if is_quoted else remedy
            raise Misfit(f"{show(scalar)} is no whole number{surprise(scalar)}", hint)
        if re.fullmatch(r"[-+]?0\d+", scalar.text):
            raise Misfit(
                f"{show(scalar)} starts with 0, which YAML 1.1 reads as octal and YAML 1.2 does not", f"write {number}"
            )
        if not self.minimum <= number <= self.maximum:
            raise Misfit(f"{show(scalar)} is out of range", remedy)
        return number

    def schema(self) -> dict[str, Any]:
        """An integer with its range."""
        return {"type": "integer", "minimum": self.minimum, "maximum": self.maximum}


class Number(Kind):
    """A finite number above 0 and up to a maximum."""

    __slots__ = ("example", "maximum")

    def __init__(self, maximum: float, example: str) -> None:
        self.maximum = maximum
        self.example = example

    def read(self, node: Node) -> float:
        """The number."""
        remedy = f"write a number above 0 and up to {self.maximum:g}, such as {self.example}"
        scalar = as_scalar(node, "a number", remedy)
        number = scalar.value
        if isinstance(number, bool) or not isinstance(number, (int, float)):
            raise Misfit(f"{show(scalar)} is no number{surprise(scalar)}", remedy)
        if not math.isfinite(number) or not 0 < number <= self.maximum:
            raise Misfit(f"{show(scalar)} is out of range", remedy)
        if re.fullmatch(r"[-+]?0\d+", scalar.text):
            raise Misfit(
                f"{show(scalar)} starts with 0, which YAML 1.1 reads as octal and YAML 1.2 does not", f"write {number}"
            )
        return float(number)

    def write(self, value: float) -> float | int:
        """The shortest JSON number."""
        return int(value) if value.is_integer() else value

    def schema(self) -> dict[str, Any]:
        """A number with its range."""
        return {"type": "number", "exclusiveMinimum": 0, "maximum": self.maximum}


class Flag(Kind):
    """``true`` or ``false``."""

    __slots__ = ()

    def read(self, node: Node) -> bool:
        """The flag."""
        scalar = as_scalar(node, "true or false", "write true or false")
        if not isinstance(scalar.value, bool):
            raise Misfit(f"{show(scalar)} is neither true nor false{surprise(scalar)}", "write true or false")
        return scalar.value

    def schema(self) -> dict[str, Any]:
        """A boolean."""
        return {"type": "boolean"}


class WordOr(Kind):
    """Certain words (``auto``, ``off``), or a value of another kind."""

    __slots__ = ("other", "words")

    def __init__(self, words: tuple[str, ...], other: Kind) -> None:
        self.words = words
        self.other = other

    def read(self, node: Node) -> Any:
        """The word, or the other kind's value."""
        if isinstance(node, Scalar) and isinstance(node.value, str) and node.value in self.words:
            return node.value
        try:
            return self.other.read(node)
        except Misfit as misfit:
            near = self._meant(node) if isinstance(node, Scalar) else None
            ahead = f"did you mean {near}? Otherwise " if near else ""
            remedy = f"{ahead}{misfit.remedy}, or write {' or '.join(self.words)}"
            raise Misfit(misfit.message, remedy, misfit.path, at_key=misfit.at_key) from None

    def _meant(self, scalar: Scalar) -> str | None:
        """The word that was probably meant; a no of any spelling is ``off`` where that is a word."""
        if "off" in self.words and scalar.text.lower() in _NEGATIONS:
            return "off"
        return nearest(scalar.text, self.words)

    def write(self, value: Any) -> Any:
        """The word itself, or what the other kind writes."""
        return value if isinstance(value, str) and value in self.words else self.other.write(value)

    def schema(self) -> dict[str, Any]:
        """Either."""
        return {"anyOf": [{"enum": list(self.words)}, self.other.schema()]}


class WordOrPart(Kind):
    """Certain words, or a part of the spec with keys of its own."""

    __slots__ = ("part", "words")

    def __init__(self, words: tuple[str, ...], part: type[Any]) -> None:
        self.words = words
        self.part = part

    def __get_pydantic_core_schema__(self, source: object, handler: GetCoreSchemaHandler) -> core_schema.CoreSchema:
        del source
        return core_schema.union_schema(
            [core_schema.literal_schema(list(self.words)), handler.generate_schema(self.part)]
        )


class Listing(Kind):
    """A list of at least one value of one kind, each at most once where ``unique``."""

    __slots__ = ("item", "length_max", "unique")

    def __init__(self, item: Kind, *, unique: bool = True, length_max: int = 256) -> None:
        self.item = item
        self.unique = unique
        self.length_max = length_max

    def read(self, node: Node) -> tuple[Any, ...]:
        """The values in the order written."""
        if not isinstance(node, Items):
            raise Misfit(f"a list is wanted here, not {show(node) or 'nothing'}", self._as_list(node))
        if not node.items:
            raise Misfit("the list is empty", "put a value in it, or remove the key")
        if len(node.items) > self.length_max:
            raise Misfit(f"the list has {len(node.items)} entries", f"use at most {self.length_max}")
        found: list[Any] = []
        for index, item in enumerate(node.items):
            try:
                one = self.item.read(item)
            except Misfit as misfit:
                raise misfit.below(index) from None
            if self.unique and one in found:
                raise Misfit(f"{show(item)} is listed twice", "remove one of them", (index,))
            found.append(one)
        return tuple(found)

    def _as_list(self, node: Node) -> str:
        """How a value without brackets is written as a list; a command's words are entries of their own."""
        if not isinstance(node, Scalar) or node.value is None:
            return "write a list such as [a, b]"
        words = node.text.split()
        is_command = not self.unique and len(words) > 1
        if not is_command:
            return f"write [{show(node)}]"
        is_plain = re.fullmatch(r"[\w./:=@+ -]+", node.text) is not None
        return f"write [{', '.join(words)}]" if is_plain and show(node.text) == node.text else "write one entry a word"

    def write(self, value: tuple[Any, ...]) -> list[Any]:
        """A list of what the item kind writes."""
        return [self.item.write(item) for item in value]

    def schema(self) -> dict[str, Any]:
        """An array."""
        return {
            "type": "array",
            "items": self.item.schema(),
            "minItems": 1,
            "maxItems": self.length_max,
            "uniqueItems": self.unique,
        }


class Table(Kind):
    """A mapping whose keys are the user's own."""

    __slots__ = ("key", "length_max", "value")

    def __init__(self, key: Text, value: Kind, length_max: int = 256) -> None:
        self.key = key
        self.value = value
        self.length_max = length_max

    def read(self, node: Node) -> dict[str, Any]:
        """Keys and values, sorted by key: their order means nothing."""
        if not isinstance(node, Branch):
            raise Misfit(
                f"a mapping is wanted here, not {show(node) or 'nothing'}", f"write it as {{{self.key.example}: ...}}"
            )
        if len(node.values) > self.length_max:
            raise Misfit(f"the mapping has {len(node.values)} keys", f"use at most {self.length_max}")
        found: dict[str, Any] = {}
        for key, item in node.values.items():
            try:
                self.key.read(node.keys[key])
            except Misfit as misfit:
                raise Misfit(misfit.message, misfit.remedy, (key,), at_key=True) from None
            try:
                found[key] = self.value.read(item)
            except Misfit as misfit:
                raise misfit.below(key) from None
        return dict(sorted(found.items()))

    def write(self, value: dict[str, Any]) -> dict[str, Any]:
        """A mapping of what the value kind writes."""
        return {key: self.value.write(item) for key, item in value.items()}

    def schema(self) -> dict[str, Any]:
        """An object with free keys."""
        return {
            "type": "object",
            "propertyNames": self.key.schema(),
            "additionalProperties": self.value.schema(),
            "maxProperties": self.length_max,
        }
