"""A request against a teardown: whatever the interleaving, a request that was taken is answered."""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import Any

import pytest

from provisioner.node.drain import DRAIN_TAG, Gate, Listener, drain


class Server:
    """A server and its door, with requests that arrive between any two steps of the drain."""

    ports = (8000,)

    def __init__(self, random: Random) -> None:
        self.random = random
        self.is_open = True
        self.running: list[float] = []
        self.taken = self.refused = 0
        self.served = 0
        self.now = 0.0
        self.arrivals = sorted(random.uniform(0, 8) for _ in range(random.randrange(1, 4)))

    def move(self) -> None:
        """Time goes on: requests arrive and end."""
        self.now += self.random.uniform(0.01, 2)
        while self.arrivals and self.arrivals[0] <= self.now:
            arrived = self.arrivals.pop(0)
            if self.is_open:
                self.taken += 1
                self.running.append(arrived + self.random.uniform(0.01, 4))
            else:
                self.refused += 1
        ended = [at for at in self.running if at <= self.now]
        self.served += len(ended)
        self.running = [at for at in self.running if at > self.now]

    def unready(self) -> None:
        self.move()

    def close(self) -> bool:
        self.move()
        self.is_open = False
        return self.random.random() > 0.05

    def open(self) -> None:
        self.move()
        self.is_open = True

    def is_quiet(self) -> bool:
        """A look at the counters, which also tell of requests that have ended since the last one."""
        self.move()
        quiet = not self.running and self.served == self.seen
        self.seen = self.served
        return quiet

    seen = 0


def lost_requests(count: int) -> tuple[int, int]:
    """Requests lost and taken over so many interleavings."""
    lost = taken = 0
    for seed in range(count):
        server = Server(Random(seed))
        if drain(server, server.is_quiet, server.move):
            lost += len(server.running)
            assert not server.is_open
        else:
            assert server.is_open
        taken += server.taken
    return lost, taken


def test_e26_no_interleaving_loses_a_request():
    lost, taken = lost_requests(300)
    assert lost == 0
    assert taken > 200


def test_the_gate_refuses_new_connections_and_takes_them_again(tmp_path):
    calls: list[list[str]] = []
    gate = Gate((8000, 8001), tmp_path / "state" / "draining", lambda words: calls.append(words) or "")
    gate.unready()
    assert gate.flag.exists()
    assert gate.close()
    gate.open()
    assert not gate.flag.exists()
    assert [(words[1], words[words.index("--dport") + 1]) for words in calls] == [
        ("-I", "8000"), ("-I", "8001"), ("-D", "8000"), ("-D", "8001"),
    ]  # fmt: skip


def test_a_door_that_does_not_close_ends_nothing(tmp_path):
    gate = Gate((8000,), tmp_path / "draining", lambda words: None)
    assert not drain(gate, lambda: True, lambda: None)


def test_without_ports_one_more_look_decides(tmp_path):
    gate = Gate((), tmp_path / "draining", lambda words: None)
    assert drain(gate, lambda: True, lambda: None)
    assert not drain(gate, lambda: False, lambda: None)


class Wall:
    """The kernel's rules: each insertion adds one, each deletion takes one away or fails."""

    def __init__(self) -> None:
        self.rules: list[str] = []

    def run(self, words: list[str]) -> str | None:
        port = words[words.index("--dport") + 1]
        if words[1] == "-I":
            self.rules.append(port)
        elif port in self.rules:
            self.rules.remove(port)
        else:
            return None
        return ""


def listener(gate: Gate, said: list[dict[str, Any]], *, is_calm: bool = True) -> Listener:
    return Listener(gate, lambda: is_calm, lambda: None, lambda _: None, lambda **facts: said.append(facts))


def test_a_second_request_while_the_door_is_shut_leaves_no_rule_behind_when_both_are_taken_back(tmp_path: Path) -> None:
    """Found by reading: the second request put up a second rule, and the door stayed shut for good behind the first."""
    wall, said = Wall(), []
    one = listener(Gate((8000, 8001), tmp_path / "draining", wall.run), said)
    for second in (0, 30):
        one.hear({DRAIN_TAG: f"2026-12-01T00:00:{second:02}Z"}, float(second), 1796083200.0 + second)
    assert [fact["state"] for fact in said] == ["drained", "drained"]
    assert sorted(wall.rules) == ["8000", "8001"]
    one.hear({}, 60.0, 1796083260.0)
    assert wall.rules == []
    assert not (tmp_path / "draining").exists()


@pytest.mark.parametrize("is_kept", [True, False])
def test_a_door_opens_though_its_flag_cannot_be_written_or_taken_away(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, is_kept: bool
) -> None:
    wall = Wall()
    gate = Gate((8000,), tmp_path / "draining", wall.run)
    if is_kept:
        gate.unready()

    def readonly(*_: object, **__: object) -> None:
        raise OSError(30, "Read-only file system")

    monkeypatch.setattr(Path, "unlink", readonly)
    monkeypatch.setattr(Path, "write_text", readonly)
    gate.unready()
    assert gate.close()
    gate.open()
    assert wall.rules == []
