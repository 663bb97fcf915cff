"""The bundled catalog, read once, and copies of its files to break."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from provisioner.catalog.files import BUNDLED
from provisioner.catalog.snapshot import Catalog, load_catalog


@pytest.fixture(scope="session")
def catalog() -> Catalog:
    return load_catalog()


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """A catalog directory with the same files as the bundled one."""
    target = tmp_path / "catalog"
    shutil.copytree(BUNDLED, target, ignore=shutil.ignore_patterns("README.md", "schema.csv"))
    return target


@pytest.fixture
def edit(directory: Path) -> Callable[[str, str, str], int]:
    """Replace a text that occurs once in a file; gives the line that it stands in."""

    def replace(name: str, old: str, new: str) -> int:
        path = directory / name
        text = path.read_text(encoding="utf-8")
        assert text.count(old) == 1, f"{old!r} occurs {text.count(old)} times in {name}"
        path.write_text(text.replace(old, new), encoding="utf-8")
        return text[: text.index(old)].count("\n") + 1

    return replace
