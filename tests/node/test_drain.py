"""A request against a teardown: whatever the interleaving, a request that was taken is answered."""

from __future__ import annotations

from random import Random

from provisioner.node.drain import Gate, drain


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
