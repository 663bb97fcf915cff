"""Strict JSON with places: duplicate keys and non-JSON numbers are refused, any value's line and column can be found again."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import field
from json.decoder import JSONDecoder
from typing import Any

from provisioner.errors import Position, UsageError
from provisioner.records import record

PathStep = str | int
_SPACE = re.compile(r"[ \t\r\n]*")
_DECODER = JSONDecoder()
"""Its ``raw_decode`` skips a value at the speed of C."""
DEPTH_MAX = 200
"""Nesting beyond which a document is refused; Terraform and Pulumi documents stay below 40."""


@record(frozen=True, slots=True)
class JsonSource:
    """A JSON document together with its text."""

    file: str
    text: str = field(repr=False)
    document: Any = field(repr=False)

    def position(self, path: Sequence[PathStep]) -> Position:
        """Place of the value at a path (of its key where it has one), or of the nearest value above it that exists."""
        offset = _find(self.text, path)
        line = self.text.count("\n", 0, offset) + 1
        return Position(self.file, line, offset - self.text.rfind("\n", 0, offset))


def read_json(file: str, text: str) -> JsonSource:
    """The document in ``text``; a leading byte order mark is no part of it.

    Raises:
        UsageError: not JSON, a key twice in one object, NaN or Infinity, or nested too deeply; with the place.
    """
    text = text.removeprefix("\ufeff")
    if _depth(text) > DEPTH_MAX:
        raise UsageError(
            f"the JSON document is nested deeper than {DEPTH_MAX} levels", where=Position(file), remedy="check the file"
        )
    try:
        document = json.loads(text, object_pairs_hook=_unique, parse_constant=_refuse_constant)
    except json.JSONDecodeError as error:
        where = Position(file, error.lineno, error.colno)
        raise UsageError(
            f"this is no JSON: {error.msg}", where=where, remedy="write the file again with the tool that made it"
        ) from None
    except ValueError as error:
        where = Position(file)
        # Python's own limit on the digits of a number speaks of its settings, which help nobody here.
        reason = "a number has thousands of digits" if "digits" in str(error) else str(error)
        raise UsageError(
            f"this is no usable JSON: {reason}", where=where, remedy="write the file again with the tool that made it"
        ) from None
    return JsonSource(file, text, document)


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        seen: set[str] = set()
        twice = next(key for key, _ in pairs if key in seen or seen.add(key))  # type: ignore[func-returns-value]
        raise ValueError(f"the key {twice[:60]!r} stands twice in one object")
    return found


def _refuse_constant(word: str) -> Any:
    raise ValueError(f"{word} is no JSON number")


def _depth(text: str) -> int:
    """Deepest nesting of brackets outside strings; counted before parsing, since the parser recurses."""
    depth = deepest = 0
    for match in _BRACKET.finditer(text):
        mark = match[0]
        if mark in "[{":
            depth += 1
            deepest = max(deepest, depth)
        elif mark in "]}":
            depth -= 1
    return deepest


_BRACKET = re.compile(r'"(?:[^"\\]|\\.)*"|[\[\]{}]', re.DOTALL)


def _find(text: str, path: Sequence[PathStep]) -> int:
    """Offset of the value at a path, or of the deepest value on the way that exists."""
    start = _skip_space(text, 0)
    offset = place = start
    for step in path:
        found = _member(text, offset, step) if isinstance(step, str) else _item(text, offset, step)
        if found is None:
            break
        place, offset = found
    return place


def _skip_space(text: str, offset: int) -> int:
    match = _SPACE.match(text, offset)
    return match.end() if match else offset


def _member(text: str, offset: int, key: str) -> tuple[int, int] | None:
    """Offsets of a key and of its value in the object that begins at ``offset``."""
    if text[offset] != "{":
        return None
    at = _skip_space(text, offset + 1)
    while text[at] == '"':
        name, end = _DECODER.raw_decode(text, at)
        value = _skip_space(text, _skip_space(text, end) + 1)
        if name == key:
            return at, value
        at = _next_member(text, value)
    return None


def _item(text: str, offset: int, index: int) -> tuple[int, int] | None:
    """Offset, twice, of an item in the array that begins at ``offset``."""
    if text[offset] != "[":
        return None
    at = _skip_space(text, offset + 1)
    for _ in range(index):
        if text[at] == "]":
            return None
        at = _next_member(text, at)
    return None if text[at] == "]" else (at, at)


def _next_member(text: str, value: int) -> int:
    """Offset of what follows a value and its comma; of the closing bracket where it was the last one."""
    _, end = _DECODER.raw_decode(text, value)
    at = _skip_space(text, end)
    return _skip_space(text, at + 1) if text[at] == "," else at
