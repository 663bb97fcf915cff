"""SIGKILL at a seeded moment of `up`, then `up` and `down`: never two machines, nothing left that bills.

Three ways to die: the caller alone, its whole process group, and everything that it started (caller, engine and plugin). The
sandbox's create call is slowed, and takes effect before or after its wait, so that kills land inside it as well.
"""

from __future__ import annotations

import os
import random
import signal
import time
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

from provisioner.clouds.sandbox.latencies import Latency
from provisioner.errors import GpuprovError
from stacks.locks import lock_path, read_holder
from stacks.state import read_file_state
from tests.e2e.bench import Bench

MODES = ("caller", "group", "everything")
CREATE_S = 1.0
"""How long the sandbox's create call takes: a good part of an `up`, so that a random moment often falls into it."""
_POLL_S = 0.02
CHANGING_FROM = 0.6
"""Share of an `up` that is planning and preview."""


_NO_STACK, _EMPTY_STACK = "before the stack", "stack without resources"


@dataclass(frozen=True, slots=True)
class Blow:
    """One kill: how, and when."""

    number: int
    mode: str
    in_changes: bool
    """Counted from the first change that the engine writes down, not from the start: a loaded host only shifts the latter."""
    share: float
    """Of an undisturbed `up`, or of the part of it that changes things."""
    record_at: str
    """Whether the slow create takes effect at the start or at the end of its wait."""


@dataclass(frozen=True, slots=True)
class Wound:
    """What became of one kill."""

    blow: Blow
    at_s: float
    phase: str
    """What the state held when the process was dead: how far the `up` had come."""
    up_code: int
    down_code: int
    machines_at_once: int
    machines_after_up: int
    bills_after_down: tuple[str, ...]
    state_after_down: bool
    messages: str = ""

    @property
    def is_in_changes(self) -> bool:
        """Whether the engine had written down a change when it was killed."""
        return self.phase not in (_NO_STACK, _EMPTY_STACK)

    @property
    def is_healed(self) -> bool:
        """Never two machines, one after `up`, nothing after `down`."""
        return (
            (self.up_code, self.down_code) == (0, 0)
            and self.machines_at_once <= 1
            and self.machines_after_up == 1
            and not self.bills_after_down
            and not self.state_after_down
        )


def blows(count: int, seed: int) -> Iterator[Blow]:
    """Seeded kills, all modes in turn: half of them over the whole `up` and a little beyond, half where it changes things."""
    draw = random.Random(seed)
    for number in range(count):
        in_changes = number // len(MODES) % 2 == 0
        yield Blow(
            number, MODES[number % len(MODES)], in_changes, draw.uniform(0.0, 1.05), draw.choice(("start", "end"))
        )


def undisturbed_s(home: Path, runs: int = 2) -> float:
    """How long an `up` takes when nobody kills it, the quickest of some; the moments of the kills are shares of it."""
    return min(_one_undisturbed_s(home / str(number)) for number in range(runs))


def _one_undisturbed_s(home: Path) -> float:
    bench = prepared(home, "end")
    begin = time.monotonic()
    answer = bench.up()
    took_s = time.monotonic() - begin
    assert answer.code == 0, answer.err
    ended = bench.down()
    assert ended.code == 0, ended.err
    return took_s


def prepared(home: Path, record_at: str) -> Bench:
    """A home whose sandbox is slow to create."""
    bench = Bench(home, extra="storage: {data: 50GiB}")
    bench.controls.set_latency(Latency("create", timedelta(seconds=CREATE_S), record_at))
    return bench


def strike(home: Path, blow: Blow, whole_s: float) -> Wound:
    """Kill one `up`, run `up` again and then `down`, and look at what the sandbox's books say."""
    bench = prepared(home, blow.record_at)
    begin = time.monotonic()
    process = bench.start("up", str(bench.spec), "--yes")
    if blow.in_changes:
        while process.poll() is None and not _has_changed(bench):
            time.sleep(_POLL_S)
    time.sleep(blow.share * whole_s * ((1 - CHANGING_FROM) if blow.in_changes else 1))
    at_s = time.monotonic() - begin
    _kill(process.pid, bench, blow.mode)
    process.communicate()
    phase = _phase(bench)
    again = bench.up()
    machines = len(bench.machines())
    ended = bench.down()
    return Wound(
        blow,
        at_s,
        phase,
        again.code,
        ended.code,
        bench.most_machines_at_once(),
        machines,
        tuple(bench.running_bill()),
        read_file_state(bench.home / "state", bench.name) is not None,
        again.err + ended.err,
    )


def _has_changed(bench: Bench) -> bool:
    """Whether the engine has written down a resource, or that it is about to make one."""
    try:
        state = read_file_state(bench.home / "state", bench.name)
    except GpuprovError:
        return False  # read in the middle of a write
    return state is not None and bool(state.own or state.pending)


def _kill(pid: int, bench: Bench, mode: str) -> None:
    """SIGKILL; a process that has ended in the meantime is none."""
    engines = _engines(bench) if mode == "everything" else ()
    if mode == "caller":
        _send(os.kill, pid)
    else:
        _send(os.killpg, pid)
    for engine in engines:
        for plugin in _children(engine):
            _send(os.kill, plugin)
        _send(os.killpg, engine)


def _send(how: object, pid: int) -> None:
    try:
        how(pid, signal.SIGKILL)  # type: ignore[operator]
    except ProcessLookupError:
        return


def _engines(bench: Bench) -> tuple[int, ...]:
    holder = read_holder(lock_path(bench.home, "local", bench.name))
    return holder.engine_pids[-1:] if holder is not None else ()


def _children(pid: int) -> list[int]:
    """Children of the engine: its plugins, each in a group of its own. Half of them die as well, by the parity of their pid."""
    try:
        text = Path(f"/proc/{pid}/task/{pid}/children").read_text()
    except OSError:
        return []
    return [int(child) for child in text.split() if int(child) % 2]


def _phase(bench: Bench) -> str:
    state = read_file_state(bench.home / "state", bench.name)
    if state is None:
        return _NO_STACK
    if state.pending:
        return "; ".join(f"{entry.kind} {entry.resource.name}" for entry in state.pending)
    names = [resource.name for resource in state.own]
    return f"has {', '.join(names)}" if names else _EMPTY_STACK
