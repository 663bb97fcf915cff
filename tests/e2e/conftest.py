"""A fresh home with the installed commands for each end-to-end test."""

from __future__ import annotations

import pytest

from tests.e2e.bench import Bench
from tests.fakes.aws import FakeAws


@pytest.fixture
def bench(tmp_path):
    """A home of its own, with a data disk in its spec."""
    return Bench(tmp_path / "bench", extra="storage: {data: 50GiB}")


@pytest.fixture
def make_bench(tmp_path):
    """Further homes."""
    return lambda name="other", **options: Bench(tmp_path / f"bench-{name}", **options)


@pytest.fixture(scope="module")
def aws_server():
    """One emulated account a module; ``fake`` empties it."""
    made = FakeAws().start()
    yield made
    made.stop()


@pytest.fixture
def fake(aws_server, monkeypatch):
    """An empty emulated account that the commands reach."""
    aws_server.reset()
    for name, value in aws_server.environment.items():
        monkeypatch.setenv(name, value)
    return aws_server
