"""``python -m tests.proofs.idle --out docs/proofs/idle.md``: the whole corpus, our rule beside two others, killed watchers."""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from tests.fakes.peer_rules import RULES
from tests.fakes.traces import BUSY, FAULTS, IDLE, PERIOD_S, THRESHOLD_S, Look, busy_trace, fault_trace, idle_trace
from tests.node.kills import REAL_LEASE_S, STEPS_S, DeadMan, kill_runs, real_runs
from tests.node.test_corpus import ended_at
from tests.node.test_drain import lost_requests
from tests.reaper.test_asking import lost_by_reap

BUSY_TRACES = 3000
IDLE_TRACES = 1000
INTERLEAVINGS = 1000
OURS = "gpuprov"
STEP_WORDS = dict(zip(STEPS_S, ("unmoved", "+1 h", "-1 h", "+10 y", "-10 y"), strict=True))
Rule = Callable[[Iterable[Look]], float | None]


@dataclass(frozen=True)
class Counts:
    """What one rule did."""

    kills: int
    found: int
    early: int
    """Idle traces that were ended while their work still went on, before they were idle."""
    killed_phases: tuple[str, ...]


def rule_counts(rule: Rule, busy: int, idle: int) -> Counts:
    """Kills among busy traces, and idle traces found in time."""
    killed: dict[str, int] = {}
    for number in range(busy):
        name = list(BUSY)[number % len(BUSY)]
        killed[name] = killed.get(name, 0) + (rule(busy_trace(name, number)) is not None)
    found = early = 0
    for number in range(idle):
        looks = list(idle_trace(list(IDLE)[number % len(IDLE)], number))
        since_s = next(look.at_s for look in looks if not look.is_busy)
        at_s = rule(looks)
        found += at_s is not None and since_s + THRESHOLD_S <= at_s <= since_s + THRESHOLD_S + 2 * PERIOD_S
        early += at_s is not None and at_s < since_s + THRESHOLD_S
    return Counts(sum(killed.values()), found, early, tuple(name for name, count in killed.items() if count))


def main(arguments: list[str] | None = None) -> int:
    """Run it all, write the page, and give 1 where a promise is broken."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("docs/proofs/idle.md"))
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--busy", type=int, default=BUSY_TRACES, help="Traces of work.")
    parser.add_argument("--idle", type=int, default=IDLE_TRACES, help="Traces that fall idle.")
    parser.add_argument("--interleavings", type=int, default=INTERLEAVINGS)
    parser.add_argument("--machines", type=int, default=10_000, help="Of the sweep that is measured.")
    parser.add_argument("--real", type=int, default=5, help="Runs of each kind by the real clocks.")
    options = parser.parse_args(arguments)
    begun_s = time.monotonic()
    counts = {OURS: rule_counts(ended_at, options.busy, options.idle)}
    counts |= {name: rule_counts(rule, options.busy, options.idle) for name, rule in RULES.items()}
    blind = sum(ended_at(fault_trace(name, seed)) is not None for name in FAULTS for seed in range(20))
    lost, served = lost_requests(options.interleavings)
    reaped = lost_by_reap(options.interleavings)
    sweep = subprocess.run(
        [sys.executable, "-m", "benchmarks.reaper_scale", "--machines", str(options.machines)],
        capture_output=True,
        text=True,
        check=False,
    )
    with tempfile.TemporaryDirectory(prefix="gpuprov-idle-") as folder:
        runs, real = kill_runs(Path(folder), options.kills), real_runs(Path(folder), options.real)
    took_s = time.monotonic() - begun_s
    text = page(Proof(counts, blind, options, (lost, served), reaped, runs, real, sweep.stdout.strip(), took_s))
    options.out.parent.mkdir(parents=True, exist_ok=True)
    options.out.write_text(text, encoding="utf-8")
    print(text)
    ours = counts[OURS]
    late = [run for run in runs + real if not run.is_in_time]
    for run in late:
        print(run, file=sys.stderr)
    is_broken = ours.kills or ours.early or ours.found < options.idle or blind or lost or reaped[0] or late
    return int(bool(is_broken or sweep.returncode))


def ends_of(runs: list[DeadMan]) -> str:
    """One row for each mode: runs, how many ended in time, and the latest."""
    modes = sorted({run.mode for run in runs})
    return "\n".join(
        f"| {mode} | {sum(r.mode == mode for r in runs)} | {sum(r.mode == mode and r.is_in_time for r in runs)} |"
        f" {max(r.late_s for r in runs if r.mode == mode):.0f} s |"
        for mode in modes
    )


@dataclass(frozen=True)
class Proof:
    """Everything that the page tells."""

    counts: Mapping[str, Counts]
    blind: int
    asked: argparse.Namespace
    requests: tuple[int, int]
    """Lost, and taken."""
    reaped: tuple[int, int, int]
    """Lost, taken, and machines ended, where the end comes from outside."""
    runs: list[DeadMan]
    real: list[DeadMan]
    sweep: str
    took_s: float


def upsets_of(runs: list[DeadMan]) -> str:
    """One row for each step of the clock and for reboots: runs, machines killed before their time, timers disarmed."""
    kinds: dict[str, list[DeadMan]] = {}
    for run in runs:
        kinds.setdefault(f"clock {STEP_WORDS[run.step_s]}", []).append(run)
        if run.was_rebooted:
            kinds.setdefault("reboot", []).append(run)
    return "\n".join(
        f"| {name} | {len(some)} | {sum(r.was_early for r in some)} | {sum(not r.is_in_time and not r.was_early for r in some)} |"
        for name, some in sorted(kinds.items())
    )


def page(proof: Proof) -> str:
    """The result for people, dated, with the commit that it was made from."""
    rows = "\n".join(
        f"| {name} | {c.kills} | {len(c.killed_phases)} | {c.found} | {c.early} |" for name, c in proof.counts.items()
    )
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False).stdout
    asked = proof.asked
    return f"""\
# Idle machines end, working ones never do

{datetime.now(UTC):%Y-%m-%d} · commit {commit.strip() or "unknown"} · `make proof-idle` · {proof.took_s / 60:.0f} min

The same {asked.busy:,} traces of {len(BUSY)} busy phases and {asked.idle:,} traces of {len(IDLE)} idle shapes (threshold {THRESHOLD_S / 60:.0f} min, one
look in {PERIOD_S:.0f} s) through our rule and through models of two rules that others publish. A kill is an end while work goes on;
found is an end within the threshold and two looks.

| rule | busy traces killed | phases with a kill | idle traces found | ended too early |
|---|---|---|---|---|
{rows}

- Sensor faults: {len(FAULTS)} kinds, 20 traces each on a machine without work: {proof.blind} ended by idleness (unknown is busy; the lifetime ends them).
- Teardown against a request: {asked.interleavings:,} interleavings, {proof.requests[1]:,} requests taken, {proof.requests[0]} lost.
- The same with `reap` from outside, which asks the machine first: {asked.interleavings:,} interleavings, {proof.reaped[1]:,} requests
  taken, {proof.reaped[2]:,} machines ended, {proof.reaped[0]} lost.
- One sweep of `reap` over {proof.sweep}
  (at most 10 s of CPU and 300 MB are allowed for 10,000, and 1.5 times the cost of one of a tenth as many).

The real processes, with injected clocks and short leases: the controller (who renews the lease), the watcher, or both are
killed at a random moment, with clock steps of up to 10 years and a reboot in a third of the runs. The machine must end within
its lease and 60 s.

| killed | runs | ended in time | latest after the lease |
|---|---|---|---|
{ends_of(proof.runs)}

The same runs by what else befell them:

| upset | runs | machines ended before their time | timers disarmed |
|---|---|---|---|
{upsets_of(proof.runs)}

The same by the real clocks, side by side, with a living watcher and a lease of {REAL_LEASE_S:.0f} s:

| killed | runs | ended in time | latest after the lease |
|---|---|---|---|
{ends_of(proof.real)}
"""


if __name__ == "__main__":
    raise SystemExit(main())
