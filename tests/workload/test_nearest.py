"""Suggestions for words that are not valid."""

from __future__ import annotations

import pytest

from provisioner.workload.nearest import nearest

KEYS = ("context_tokens", "concurrency", "kv_cache", "input_tokens", "max_price", "max_gpus")


@pytest.mark.parametrize(
    ("word", "key"),
    [
        ("context_token", "context_tokens"),
        ("contextTokens", "context_tokens"),
        ("context-tokens", "context_tokens"),
        ("CONCURRENCY", "concurrency"),
        ("concurency", "concurrency"),
        ("kvcache", "kv_cache"),
        ("max_prices", "max_price"),
        ("zzz", None),
        ("", None),
    ],
)
def test_the_nearest(word: str, key: str | None) -> None:
    assert nearest(word, KEYS) == key


def test_nothing_is_near_to_nothing() -> None:
    assert nearest("a", ()) is None
