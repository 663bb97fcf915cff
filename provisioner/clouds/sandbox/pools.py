"""Patterns of placements, written like an offer's key: ``aws/us-east-1/*/g6.*/spot``."""

from __future__ import annotations

from fnmatch import fnmatchcase

from provisioner.errors import UsageError

_PARTS = ("cloud", "region", "zone", "instance type", "capacity type")
_WILD = frozenset("*?[")

ANYWHERE = "*/*/*/*/*"


def parse(text: str) -> str:
    """A pattern in its full form.

    Raises:
        UsageError: not five parts, or an empty one.
    """
    parts = [part.strip() for part in text.split("/")]
    if len(parts) != len(_PARTS) or not all(parts):
        raise UsageError(
            f"{text!r} is no pool: write {'/'.join(part.upper().replace(' ', '_') for part in _PARTS)} with * for any,"
            " such as aws/us-east-1/*/g6.xlarge/spot"
        )
    return "/".join(parts)


def matches(pool: str, key: str) -> bool:
    """Whether a placement's key falls under a pattern."""
    return all(fnmatchcase(part, pattern) for part, pattern in zip(key.split("/"), pool.split("/"), strict=True))


def specificity(pool: str) -> tuple[int, int]:
    """Orders patterns: more parts without a wildcard first, then more plain characters."""
    parts = pool.split("/")
    return sum(not _WILD & set(part) for part in parts), sum(len(part.replace("*", "")) for part in parts)
