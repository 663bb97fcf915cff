"""Homes in memory: the matrix syncs and removes thousands of small files, and none of them outlives its test."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.proofs.spread import scratch


@pytest.fixture
def home(home: Path) -> Iterator[Path]:
    """The home that every test has, in memory where there is room."""
    del home
    with scratch("gpuprov-faults-") as folder:
        yield folder
