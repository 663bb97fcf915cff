"""Tags as EC2 keeps them: ours, the user's, and the name that the console shows.

An object's name is its tag ``Name``, which readers do not see among the tags. A user who states ``Name`` in the spec gets that
one; the object's own name then lies in ``gpuprov:name``. EC2 takes 50 tags, and this never adds more than one to a request.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

NAME = "Name"
OWN_NAME = "gpuprov:name"
_FOREIGN_PREFIX = "aws:"
"""Written by AWS itself; nobody else can."""
_METADATA_KEY = re.compile(r"[0-9A-Za-z\-_+=,.@:]{1,255}")
"""Keys that the instance metadata service can show. Source: EC2 user guide, "View tags in instance metadata"."""

Written = list[dict[str, str]]


@dataclass(frozen=True, slots=True)
class Shown:
    """What an object's tags say."""

    name: str
    tags: Mapping[str, str]


def write(name: str, tags: Mapping[str, str]) -> Written:
    """Tags for a create call, always in the same order: equal requests are the same bytes."""
    own = {OWN_NAME: name} if NAME in tags else {NAME: name}
    return [{"Key": key, "Value": value} for key, value in sorted({**tags, **own}.items())]


def specifications(kinds: Iterable[str], written: Written) -> list[dict[str, object]]:
    """The same tags for each kind of object that a call makes."""
    return [{"ResourceType": kind, "Tags": written} for kind in kinds]


def read(entries: Iterable[Mapping[str, str]] | None) -> Shown:
    """Name and tags of an object as EC2 lists them."""
    tags = {str(entry["Key"]): str(entry.get("Value", "")) for entry in entries or ()}
    tags = {key: value for key, value in tags.items() if not key.startswith(_FOREIGN_PREFIX)}
    if OWN_NAME in tags:
        return Shown(tags.pop(OWN_NAME), tags)
    return Shown(tags.pop(NAME, ""), tags)


def fit_metadata(tags: Mapping[str, str]) -> bool:
    """Whether the metadata service can show these tags; with others, a create call that asks for it is refused."""
    return all(_METADATA_KEY.fullmatch(key) for key in tags)
