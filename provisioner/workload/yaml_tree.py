"""YAML 1.2 core as nodes with line and column, read from libyaml's events without recursion.

PyYAML resolves by YAML 1.1 and composes recursively; both are replaced here, so that ``no`` is a word, ``1:30`` is a text, and
neither depth nor aliases can exhaust the machine. Source for the rules of resolution: YAML 1.2.2, section 10.3 (core schema).
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Any

import yaml

from provisioner.records import record
from provisioner.workload.tree import (
    DEPTH_MAX,
    SCALAR_DIGITS_MAX,
    Branch,
    Items,
    Mark,
    Node,
    Scalar,
    has_lone_surrogate,
    show,
)

NODES_MAX = 10_000
"""Values of a file after aliases are expanded; a spec with every key has about 150."""

_NULL = frozenset({"", "~", "null", "Null", "NULL"})
_BOOLEANS = {"true": True, "True": True, "TRUE": True, "false": False, "False": False, "FALSE": False}
_NUMBER = re.compile(
    r"(?P<decimal>[-+]?[0-9]+)|0o(?P<octal>[0-7]+)|0x(?P<hexadecimal>[0-9a-fA-F]+)"
    r"|(?P<float>[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?)"
)
_INFINITE = {f"{sign}.{word}": float(f"{sign}inf") for sign in ("", "+", "-") for word in ("inf", "Inf", "INF")}
_NAN = frozenset({".nan", ".NaN", ".NAN"})


class YamlFault(Exception):
    """The text is not YAML that a spec may be written in."""

    def __init__(self, message: str, remedy: str, mark: Mark | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.remedy = remedy
        self.mark = mark


def resolve(text: str) -> bool | int | float | str | None:
    """What YAML 1.2 core makes of a plain scalar."""
    if text in _NULL:
        return None
    if text in _BOOLEANS:
        return _BOOLEANS[text]
    if text[0] not in "-+.0123456789":
        return text
    if text in _INFINITE:
        return _INFINITE[text]
    if text in _NAN:
        return float("nan")
    match = _NUMBER.fullmatch(text) if len(text) <= SCALAR_DIGITS_MAX else None
    if match is None:
        return text
    if match["decimal"]:
        return int(text)
    if match["octal"]:
        return int(match["octal"], 8)
    return int(match["hexadecimal"], 16) if match["hexadecimal"] else float(text)


@dataclass(slots=True, eq=False, repr=False)
class _Open:
    """A mapping or list whose end has not been read yet."""

    mark: Mark
    anchor: str | None
    is_mapping: bool
    keys: dict[str, Scalar] = field(default_factory=dict)
    values: dict[str, Node] = field(default_factory=dict)
    items: list[Node] = field(default_factory=list)
    key: Scalar | None = None
    size: int = 1
    height: int = 1

    def close(self) -> Node:
        """The finished node."""
        return Branch(self.keys, self.values, self.mark) if self.is_mapping else Items(tuple(self.items), self.mark)


@record(frozen=True, slots=True)
class _Measured:
    """A finished node with its expanded size and height."""

    node: Node
    size: int
    height: int


@dataclass(slots=True, eq=False, repr=False)
class _Builder:
    """Nodes from events, one document, with bounds."""

    stack: list[_Open] = field(default_factory=list)
    anchors: dict[str, _Measured | None] = field(default_factory=dict)
    root: Node | None = None

    def feed(self, event: Any) -> None:
        """Take one event of the document."""
        mark = (event.start_mark.line + 1, event.start_mark.column + 1)
        if isinstance(event, yaml.DocumentStartEvent):
            self._start(event, mark)
        elif isinstance(event, yaml.AliasEvent):
            self._alias(event.anchor or "", mark)
        elif isinstance(event, yaml.ScalarEvent):
            self._scalar(event, mark)
        elif isinstance(event, (yaml.MappingStartEvent, yaml.SequenceStartEvent)):
            self._open(event, mark)
        elif isinstance(event, (yaml.MappingEndEvent, yaml.SequenceEndEvent)):
            frame = self.stack.pop()
            self._add(_Measured(frame.close(), frame.size, frame.height + 1), frame.anchor, frame.mark)

    def _start(self, event: Any, mark: Mark) -> None:
        if self.root is not None:
            raise YamlFault("a second document starts here", "keep one workload per file", mark)
        if event.version is not None and tuple(event.version) != (1, 2):
            version = ".".join(str(part) for part in event.version)
            raise YamlFault(f"the file asks for YAML {version}", "a spec is YAML 1.2: remove the %YAML line", mark)
        if event.tags:
            raise YamlFault("the file declares tags", "a spec has no tags: remove the %TAG line", mark)

    def _tagless(self, event: Any, mark: Mark) -> None:
        if event.tag is not None:
            raise YamlFault(
                f"the tag {show(event.tag.replace('tag:yaml.org,2002:', '!!'))} is not allowed",
                "remove it; put a text that looks like a number in quotes",
                mark,
            )

    def _scalar(self, event: Any, mark: Mark) -> None:
        self._tagless(event, mark)
        plain = event.style is None or event.style == ""
        text = event.value
        if has_lone_surrogate(text):
            raise YamlFault("a text holds half of a surrogate pair", "write the character itself", mark)
        scalar = Scalar(text, resolve(text) if plain else text, plain, mark)
        self._add(_Measured(scalar, 1, 1), event.anchor, mark)

    def _open(self, event: Any, mark: Mark) -> None:
        self._tagless(event, mark)
        if len(self.stack) >= DEPTH_MAX:
            raise YamlFault(f"the file is nested deeper than {DEPTH_MAX} levels", "a spec needs 5: flatten it", mark)
        is_mapping = isinstance(event, yaml.MappingStartEvent)
        if self.stack and self.stack[-1].is_mapping and self.stack[-1].key is None:
            raise YamlFault(
                "a key is a list or a mapping", "a key is a word; put a text that starts with { or [ in quotes", mark
            )
        if event.anchor is not None:
            self.anchors[event.anchor] = None
        self.stack.append(_Open(mark, event.anchor, is_mapping))

    def _alias(self, anchor: str, mark: Mark) -> None:
        if anchor not in self.anchors:
            raise YamlFault(
                f"the alias *{show(anchor)} has no anchor before it",
                f"write &{show(anchor)} at the value that is meant",
                mark,
            )
        measured = self.anchors[anchor]
        if measured is None:
            raise YamlFault(f"the alias *{show(anchor)} stands inside its own anchor", "write the value out", mark)
        if len(self.stack) + measured.height > DEPTH_MAX:
            raise YamlFault(f"aliases nest the file deeper than {DEPTH_MAX} levels", "write the values out", mark)
        self._add(replace(measured, node=replace(measured.node, mark=mark)), None, mark)

    def _add(self, measured: _Measured, anchor: str | None, mark: Mark) -> None:
        """Put a finished node where it belongs: document, list, key or value."""
        if anchor is not None:
            self.anchors[anchor] = measured
        if not self.stack:
            self.root = measured.node
            return
        frame = self.stack[-1]
        frame.size += measured.size
        frame.height = max(frame.height, measured.height)
        if sum(open_frame.size for open_frame in self.stack) > NODES_MAX:
            raise YamlFault(
                f"the file, with its aliases expanded, has more than {NODES_MAX} values",
                "write fewer values, and aliases (*name) sparingly",
                mark,
            )
        if not frame.is_mapping:
            frame.items.append(measured.node)
        elif frame.key is None:
            frame.key = self._as_key(frame, measured.node, mark)
        else:
            frame.keys[frame.key.text] = frame.key
            frame.values[frame.key.text] = measured.node
            frame.key = None

    def _as_key(self, frame: _Open, node: Node, mark: Mark) -> Scalar:
        if not isinstance(node, Scalar):
            raise YamlFault("a key is a list or a mapping", "a key is a word; write it out", mark)
        shown = show(node.text)
        if not isinstance(node.value, str):
            raise YamlFault(f"the key {shown or '(nothing)'} is no text", f'put it in quotes: "{shown}"', mark)
        if node.text in frame.keys:
            line, column = frame.keys[node.text].mark or mark
            message = f"duplicate key {shown}: it is already set at line {line}, column {column}"
            raise YamlFault(message, "keep one of the two", mark)
        return node


def read_yaml(text: str) -> Node:
    """The one document of a text.

    Raises:
        YamlFault: a syntax error, no document or several, a duplicate key, a tag, or a bound that is passed.
    """
    loader = getattr(yaml, "CBaseLoader", yaml.BaseLoader)
    builder = _Builder()
    try:
        events: Iterable[Any] = yaml.parse(text, Loader=loader)
        for event in events:
            builder.feed(event)
    except yaml.MarkedYAMLError as error:
        raise _syntax_fault(error, text) from None
    except yaml.YAMLError as error:
        raise YamlFault(f"YAML syntax error: {' '.join(str(error).split())[:200]}", "correct the file") from None
    root = builder.root
    if root is None or (isinstance(root, Scalar) and root.value is None):
        raise YamlFault("the file is empty", "write a spec, or let `gpuprov init` write one", (1, 1))
    return root


_SYNTAX_REMEDIES = (
    ("nesting depth", "a spec needs 5 levels: flatten it"),
    ("cannot start any token", "indent with spaces, not tabs, and put texts that start with @ or ` in quotes"),
    ("tab", "indent with spaces, not tabs"),
    (
        "mapping values are not allowed",
        'put a text that holds ": " in quotes, and check the indentation of this line and the one before',
    ),
    ("alias", "put a text that starts with * in quotes"),
    ("anchor", "put a text that starts with & in quotes"),
    ("simple key", 'end the key with ": " on its own line'),
    ("quoted scalar", "close the quotes"),
    ("flow", "close the bracket that is open, and put commas between the entries"),
    ("block", "indent this line like the keys it belongs to"),
    ("directive", "remove the line that starts with %"),
)


def _syntax_fault(error: yaml.MarkedYAMLError, text: str) -> YamlFault:
    place = error.problem_mark or error.context_mark
    mark = (place.line + 1, place.column + 1) if place else (1, 1)
    lines = text.splitlines() or [""]
    if mark[0] > len(lines):
        mark = (len(lines), len(lines[-1]) + 1)  # libyaml places what is missing behind the last line
    problem = " ".join(f"{error.context or ''} {error.problem or ''}".split())[:200]
    remedy = next((remedy for sign, remedy in _SYNTAX_REMEDIES if sign in problem), "correct the line")
    return YamlFault(f"YAML syntax error: {problem or 'unknown'}", remedy, mark)
