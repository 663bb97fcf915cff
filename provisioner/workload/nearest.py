"""The nearest valid word to one that is not."""

from __future__ import annotations

from collections.abc import Iterable

CUTOFF = 0.6
"""difflib's similarity below which a suggestion would puzzle more than help (its own default)."""


def nearest(word: str, known: Iterable[str]) -> str | None:
    """The most similar of the known words, regardless of case and of ``-`` for ``_``; ``None`` where nothing is near."""
    from difflib import get_close_matches  # only a wrong word pays for it

    by_plain = {_plain(candidate): candidate for candidate in known}
    found = get_close_matches(_plain(word[:100]), list(by_plain), n=1, cutoff=CUTOFF)
    return by_plain[found[0]] if found else None


def _plain(word: str) -> str:
    return word.lower().replace("-", "_")
