"""A fresh home with the installed commands for each end-to-end test."""

from __future__ import annotations

import pytest

from tests.e2e.bench import Bench


@pytest.fixture
def bench(tmp_path):
    """A home of its own, with a data disk in its spec."""
    return Bench(tmp_path / "bench", extra="storage: {data: 50GiB}")


@pytest.fixture
def make_bench(tmp_path):
    """Further homes."""
    return lambda name="other", **options: Bench(tmp_path / f"bench-{name}", **options)
