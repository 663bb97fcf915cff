"""A JSON value with its path, read without surprises: a value of an unexpected kind is ``UNKNOWN``, never an exception."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from policies.facts import UNKNOWN, Known, Unknown
from policies.json_source import PathStep
from provisioner.records import record

_TRUE = (True, "true", "TRUE", "True", 1, "1")
_FALSE = (False, "false", "FALSE", "False", 0, "0")


@record(frozen=True, slots=True)
class Value:
    """A value of a document: JSON, ``None`` where absent, or ``UNKNOWN``; ``path`` is where it stands or would stand."""

    value: Any
    path: tuple[PathStep, ...] = ()

    @property
    def is_unknown(self) -> bool:
        """Whether the value is computed later."""
        return isinstance(self.value, Unknown)

    @property
    def is_absent(self) -> bool:
        """Whether nothing, or null, stands here."""
        return self.value is None

    def child(self, *names: str) -> Value:
        """The member under the first of several spellings that exists; of something unknown, unknown."""
        if self.is_unknown:
            return Value(UNKNOWN, (*self.path, names[0]))
        if self.value is None:
            return Value(None, (*self.path, names[0]))
        if not isinstance(self.value, Mapping):
            return Value(UNKNOWN, self.path)
        for name in names:
            if self.value.get(name) is not None:
                return Value(self.value[name], (*self.path, name))
        return Value(None, (*self.path, names[0]))

    def items(self) -> Known[tuple[Value, ...]]:
        """The items of a list; a lone object counts as a list of one, absence as an empty list."""
        if self.value is None:
            return ()
        if isinstance(self.value, list):
            return tuple(Value(item, (*self.path, index)) for index, item in enumerate(self.value))
        return (self,) if isinstance(self.value, Mapping) else UNKNOWN

    def first(self) -> Value:
        """The object of a block that stands at most once: itself, or the only item of a list."""
        if isinstance(self.value, list):
            return Value(self.value[0], (*self.path, 0)) if self.value else Value(None, self.path)
        return self

    def text(self) -> Known[str | None]:
        """The text, or ``None`` where absent."""
        if self.value is None or isinstance(self.value, str):
            return self.value
        if isinstance(self.value, (int, float)) and not isinstance(self.value, bool):
            return str(self.value)
        return UNKNOWN

    def flag(self) -> Known[bool | None]:
        """The flag, also where a tool writes it as text."""
        if self.value is None or self.value == "":
            return None
        if isinstance(self.value, (bool, int, str)):
            return True if self.value in _TRUE else False if self.value in _FALSE else UNKNOWN
        return UNKNOWN

    def whole(self) -> Known[int | None]:
        """The whole number, also where a tool writes it as text or as a float."""
        if self.value is None or self.value == "":
            return None
        if isinstance(self.value, bool):
            return UNKNOWN
        try:
            number = float(self.value)
        except (TypeError, ValueError, OverflowError):
            return UNKNOWN
        return int(number) if number.is_integer() and abs(number) < 2**53 else UNKNOWN

    def texts(self) -> Known[tuple[Known[str], ...]]:
        """The texts of a list, each of which may be unknown; absence is an empty list."""
        if self.value is None:
            return ()
        if not isinstance(self.value, list):
            return UNKNOWN
        return tuple(item if isinstance(item, str) else UNKNOWN for item in self.value)

    def table(self) -> Known[Mapping[str, Known[str]]]:
        """A mapping with keys of the user's own; absence is an empty one."""
        if self.value is None:
            return {}
        if not isinstance(self.value, Mapping):
            return UNKNOWN
        table: dict[str, Known[str]] = {}
        for key in self.value:
            text = self.child(str(key)).text() if self.value[key] is not None else ""
            table[str(key)] = "" if text is None else text
        return table
