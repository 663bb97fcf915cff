"""A made-up machine whose watcher runs in the test's own process, and one whose watcher is a process of its own."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from provisioner.node.idleness import Decision, Rules
from provisioner.node.watcher import Node, Watch
from tests.node.rig import Metadata, Rig


class Bench:
    """A rig and the watcher's loop over it, one look at a time."""

    def __init__(self, rig: Rig) -> None:
        self.rig = rig
        rig.environment()
        self.node = Node(rig.config, rig.folder, f"http://127.0.0.1:{rig.metadata.port}", rig.folder / "clock")
        self.node.machine.nvml = ""
        after_s = float(rig.config.get("idle_after_s") or 3600)
        self.watch = Watch(self.node, Rules(after_s, self.node.period_s, bool(rig.config.get("gpu_only"))))

    def look(self, seconds: float = 30.0) -> Decision | None:
        """One look after some time."""
        self.rig.pass_time(seconds)
        self.rig.environment()
        return self.watch.look()

    def looks(self, count: int) -> list[str]:
        """States of several looks; ``off`` once the machine was told to end."""
        return ["off" if (decision := self.look()) is None else decision.state for _ in range(count)]


@pytest.fixture
def metadata() -> Iterator[Metadata]:
    """A metadata service on loopback."""
    service = Metadata()
    yield service
    service.close()


@pytest.fixture
def make_rig(tmp_path: Path, metadata: Metadata) -> Callable[..., Rig]:
    """A machine with its configuration."""
    return lambda **config: Rig(tmp_path / "machine", metadata, **config)


@pytest.fixture
def make_bench(make_rig: Callable[..., Rig], monkeypatch: pytest.MonkeyPatch) -> Callable[..., Bench]:
    """A machine whose tools are the fakes of its rig; idle after 2 min unless told otherwise."""

    def make(**config: Any) -> Bench:
        rig = make_rig(**{"idle_after_s": 120, **config})
        monkeypatch.setenv("PATH", f"{rig.tools}:/usr/bin:/bin")
        monkeypatch.setenv("RIG", str(rig.folder))
        return Bench(rig)

    return make
