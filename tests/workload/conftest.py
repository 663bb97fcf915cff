"""Reading specs in tests."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from provisioner.errors import SpecError
from provisioner.workload.load import Loaded, load
from provisioner.workload.tree import Branch, Items, Node

SPECS = Path(__file__).parent / "specs"
"""One spec per task; together they hold every key of the contract."""


@pytest.fixture(params=sorted(path.stem for path in SPECS.glob("*.yaml")))
def full_spec(request: pytest.FixtureRequest) -> Path:
    """Each of the specs in turn."""
    return SPECS / f"{request.param}.yaml"


@pytest.fixture
def read(tmp_path: Path) -> Callable[[str | bytes], Loaded]:
    """Reads a text as the file workload.yaml."""

    def _read(text: str | bytes) -> Loaded:
        path = tmp_path / "workload.yaml"
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        return load(path)

    return _read


@pytest.fixture
def refused(read: Callable[[str | bytes], Loaded]) -> Callable[[str | bytes], SpecError]:
    """The error of a text that is no valid spec; every one says where and what to do."""

    def _refused(text: str | bytes) -> SpecError:
        with pytest.raises(SpecError) as caught:
            read(text)
        error = caught.value
        assert error.exit_code == 2
        assert error.remedy
        assert error.where is not None
        assert "\n" not in str(error)
        return error

    return _refused


@pytest.fixture(scope="session")
def plain() -> Callable[[Node], Any]:
    """Turns nodes into JSON-able values (and infinities, where they were written)."""

    def _plain(node: Node) -> Any:
        if isinstance(node, Branch):
            return {key: _plain(value) for key, value in node.values.items()}
        return [_plain(item) for item in node.items] if isinstance(node, Items) else node.value

    return _plain
