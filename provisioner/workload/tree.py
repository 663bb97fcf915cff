"""A document as nodes that remember how and where each value was written; what every reader of the spec starts from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import Any

from provisioner.records import record

DEPTH_MAX = 64
"""Nesting beyond which a document is refused: the deepest key of a spec is at 5, a model's config.json at about 10."""

Mark = tuple[int, int]
"""Line and column, both counted from 1."""

SHOWN_CHARACTERS_MAX = 60
"""Characters of a value that an error quotes."""

SCALAR_DIGITS_MAX = 30
"""Digits beyond which a number stays text: no key of the spec needs more, and Python refuses to convert thousands."""


@record(frozen=True, slots=True)
class Scalar:
    """One value as written.

    ``value`` is what YAML 1.2 core makes of ``text``; ``plain`` says that it stood without quotes, so that ``"8"`` and ``8``
    can be told apart. ``mark`` is ``None`` in a document that came from no file.
    """

    text: str
    value: bool | int | float | str | None
    plain: bool = True
    mark: Mark | None = None


@record(frozen=True, slots=True)
class Branch:
    """A mapping: ``keys`` holds each key's own scalar, ``values`` what stands behind it, both in the order written."""

    keys: dict[str, Scalar] = field(default_factory=dict)
    values: dict[str, Node] = field(default_factory=dict)
    mark: Mark | None = None


@record(frozen=True, slots=True)
class Items:
    """A list."""

    items: tuple[Node, ...] = ()
    mark: Mark | None = None


Node = Scalar | Branch | Items
Path = tuple[str | int, ...]
"""Keys and list indices from the top of a document."""


def dotted(path: Path) -> str:
    """A path as people write it: ``placement.gpus[0]``."""
    text = ""
    for step in path:
        text += f"[{step}]" if isinstance(step, int) else f".{step}" if text else step
    return text


def show(node: Node | str) -> str:
    """A value or key as an error quotes it: short, on one line."""
    if isinstance(node, Items):
        return "a list"
    if isinstance(node, Branch):
        return "a mapping"
    text = node if isinstance(node, str) else node.text if node.plain else f'"{node.text}"'
    start = text[: SHOWN_CHARACTERS_MAX + 1]
    line = "".join(character if character.isprintable() else repr(character)[1:-1] for character in start)
    return line if len(line) <= SHOWN_CHARACTERS_MAX else f"{line[: SHOWN_CHARACTERS_MAX - 3]}..."


def shown_path(path: Path) -> str:
    """A path as an error names it: a user's own key may be long or hold a line break."""
    return dotted(tuple(step if isinstance(step, int) else show(step) for step in path))


def node_at(root: Node, path: Path) -> Node | None:
    """The node at a path, or ``None`` where the document has none."""
    node: Node | None = root
    for step in path:
        if isinstance(node, Branch) and isinstance(step, str):
            node = node.values.get(step)
        elif isinstance(node, Items) and isinstance(step, int) and 0 <= step < len(node.items):
            node = node.items[step]
        else:
            return None
    return node


def mark_of(root: Node, path: Path) -> Mark | None:
    """Where to look for a path: the value of a scalar or list item, the key of a mapping or list, else the nearest parent."""
    for length in range(len(path), 0, -1):
        node = node_at(root, path[:length])
        if node is None or node.mark is None:
            continue
        last = path[length - 1]
        parent = node_at(root, path[: length - 1])
        wants_key = length < len(path) or not isinstance(node, Scalar)
        return (
            parent.keys[last].mark if wants_key and isinstance(parent, Branch) and isinstance(last, str) else node.mark
        )
    return root.mark


def key_mark(root: Node, path: Path) -> Mark | None:
    """Where the key of a path stands, or what ``mark_of`` says where it has none."""
    parent = node_at(root, path[:-1])
    if path and isinstance(parent, Branch) and path[-1] in parent.keys:
        return parent.keys[str(path[-1])].mark
    return mark_of(root, path)


def from_python(value: Any, depth: int = 0) -> Node:
    """The node of a JSON-able value; whole floats count as integers, since protobuf knows no others.

    Raises:
        TypeError: something that JSON has no word for.
        ValueError: nesting deeper than ``DEPTH_MAX``, or a text that UTF-8 cannot hold.
    """
    if isinstance(value, (Scalar, Branch, Items)):
        return value
    if depth > DEPTH_MAX:
        raise ValueError(f"nested deeper than {DEPTH_MAX} levels")
    if isinstance(value, Mapping):
        values = {_encodable(str(key)): from_python(item, depth + 1) for key, item in value.items()}
        return Branch({key: Scalar(key, key, plain=False) for key in values}, values)
    if isinstance(value, (list, tuple)):
        return Items(tuple(from_python(item, depth + 1) for item in value))
    if value is None or isinstance(value, (bool, int, float, str)):
        return _scalar(value)
    raise TypeError(f"{type(value).__name__} is no JSON value")


def _scalar(value: bool | float | str | None) -> Scalar:
    if isinstance(value, str):
        return Scalar(_encodable(value), value, plain=False)
    if value is None or isinstance(value, bool):
        return Scalar({None: "null", True: "true", False: "false"}[value], value)
    number = whole(value)
    return Scalar(str(number), number)


def _encodable(text: str) -> str:
    """The text, unless it holds half of a surrogate pair (JSON can escape one) and so could not be written or hashed."""
    if has_lone_surrogate(text):
        raise ValueError("a text holds half of a surrogate pair")
    return text


def has_lone_surrogate(text: str) -> bool:
    """Whether UTF-8 cannot hold the text."""
    return not text.isascii() and any("\ud800" <= character <= "\udfff" for character in text)


def whole(number: float) -> float:
    """The number as an integer where it is one and floats of its size are exact."""
    return int(number) if isinstance(number, float) and number.is_integer() and abs(number) <= 2**53 else number
