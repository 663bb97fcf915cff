"""The tree of valid keys, read off the models: what errors, warnings, documents and the JSON Schema all go by."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Any, get_args

from pydantic import BaseModel

from provisioner.workload.kinds import Kind, WordOrPart


@cache
def parts_and_kinds(part: type[BaseModel]) -> dict[str, tuple[type[BaseModel] | None, Kind | None]]:
    """Per key of a part: the part behind it, or the kind of its value."""
    return {key: _behind(info.annotation, info.metadata) for key, info in part.model_fields.items()}


def _behind(annotation: Any, metadata: list[Any]) -> tuple[type[BaseModel] | None, Kind | None]:
    waiting: list[Any] = [*metadata, annotation]
    found_part: type[BaseModel] | None = None
    while waiting:
        one = waiting.pop(0)
        if isinstance(one, WordOrPart):
            return one.part, one
        if isinstance(one, Kind):
            return None, one
        if isinstance(one, type) and issubclass(one, BaseModel):
            found_part = one
        waiting.extend(getattr(one, "__metadata__", ()))
        waiting.extend(get_args(one))
    return found_part, None


def kind_of(part: type[BaseModel], key: str) -> Kind | None:
    """The kind of a key's value; ``None`` where keys stand below it."""
    return parts_and_kinds(part)[key][1]


def part_of(part: type[BaseModel], key: str) -> type[BaseModel] | None:
    """The part behind a key, or ``None``."""
    return parts_and_kinds(part).get(key, (None, None))[0]


def all_keys(part: type[BaseModel], prefix: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """Paths of all keys of a part and below it."""
    for key, (below, _) in parts_and_kinds(part).items():
        yield (*prefix, key)
        if below is not None:
            yield from all_keys(below, (*prefix, key))
