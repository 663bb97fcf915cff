"""Kills of the controller and of the watcher: does the machine still end within its lease and a minute?

Most runs have injected time; a few are played by the real clocks, with a lease of seconds.
"""

from __future__ import annotations

import os
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from random import Random
from subprocess import TimeoutExpired

from tests.node.rig import Metadata, Rig

LEASE_S = 240.0
PERIOD_S = 30.0
ALLOWED_S = 60.0
MODES = ("controller", "watcher", "both")
REAL_LEASE_S, REAL_PERIOD_S = 4.0, 1.0
STEPS_S = (0.0, 3600.0, -3600.0, 10 * 365 * 86400.0, -10 * 365 * 86400.0)


@dataclass(frozen=True)
class DeadMan:
    """One run: what was killed, and how long after the end of the lease the machine was off."""

    mode: str
    seed: int
    late_s: float
    was_early: bool
    step_s: float = 0.0
    """By which the guest's wall clock jumped at the kill."""
    was_rebooted: bool = False

    @property
    def is_in_time(self) -> bool:
        return not self.was_early and self.late_s <= ALLOWED_S


def kill_runs(folder: Path, count: int) -> list[DeadMan]:
    """``count`` runs of each mode, one on each core at a time; their time is injected."""
    cases = [(mode, seed) for mode in MODES for seed in range(count)]
    with ThreadPoolExecutor(os.cpu_count() or 1) as pool:
        return list(pool.map(lambda case: run(folder / f"{case[0]}-{case[1]}", *case), cases))


def run(folder: Path, mode: str, seed: int) -> DeadMan:
    """A machine whose lease a controller renews until one of them is killed; systemd's timer, which this plays, goes on."""
    random = Random(f"{mode}/{seed}")
    with closing(Metadata()) as metadata:
        rig = Rig(folder, metadata, lease_s=LEASE_S, lifetime_s=None)
        killed_at_s = random.uniform(30, 420)
        reboot_at_s = random.uniform(30, 420) if random.random() < 1 / 3 else None
        step_s, lease_end_s, passed_s = random.choice(STEPS_S), LEASE_S, 0.0
        was_rebooted = False
        is_renewed, was_killed = True, False
        while True:
            if passed_s >= killed_at_s and not was_killed:
                was_killed = True
                is_renewed = mode == "watcher"
                if mode != "controller":
                    _kill(rig, "watch", random.uniform(0, 0.4))
            if is_renewed and passed_s % 120 < PERIOD_S:
                # The controller renews by the cloud's clock; the tag has whole seconds.
                until_s = int(metadata.now_s + LEASE_S)
                metadata.tags["gpuprov-lease-until"] = datetime.fromtimestamp(until_s, UTC).isoformat()
                lease_end_s = passed_s + LEASE_S
            if mode == "watcher" and was_killed and is_renewed and passed_s > killed_at_s + 200:
                is_renewed = False
            if mode != "controller" and random.random() < 0.15:
                # A look that is killed half-way; the timer starts the next one.
                _kill(rig, "tick", random.uniform(0, 0.2))
            if rig.tick():
                was_early = passed_s < lease_end_s - 2
                return DeadMan(mode, seed, passed_s - lease_end_s, was_early, step_s, was_rebooted)
            if passed_s > 6000:
                return DeadMan(mode, seed, passed_s - lease_end_s, False, step_s, was_rebooted)
            passed_s += PERIOD_S
            rig.pass_time(PERIOD_S, step_s=step_s if abs(passed_s - killed_at_s) < PERIOD_S / 2 else 0.0)
            if reboot_at_s is not None and passed_s >= reboot_at_s:
                reboot_at_s, was_rebooted = None, True
                rig.boot("boot-2")
                rig.now_s = 0.0


def real_runs(folder: Path, count: int) -> list[DeadMan]:
    """``count`` runs of each mode by the real clocks, side by side, since they mostly wait."""
    cases = [(mode, seed) for mode in MODES for seed in range(count)]
    with ThreadPoolExecutor(len(cases)) as pool:
        return list(pool.map(lambda case: run_in_real_time(folder / f"real-{case[0]}-{case[1]}", *case), cases))


def run_in_real_time(folder: Path, mode: str, seed: int) -> DeadMan:
    """As ``run``, with a living watcher, a lease of seconds, and no clock but the machine's."""
    random = Random(f"real/{mode}/{seed}")
    with closing(Metadata()) as metadata:
        config = {"lease_s": REAL_LEASE_S, "lifetime_s": None, "period_s": REAL_PERIOD_S}
        rig = Rig(folder, metadata, real_time=True, **config)
        begin = time.time()
        killed_at, stops_at = begin + random.uniform(0.5, 3), begin + 6
        lease_end = _renew(metadata)
        watcher = rig.start("watch")
        try:
            while not rig.tick() and time.time() < lease_end + 2 * ALLOWED_S:
                time.sleep(REAL_PERIOD_S)
                metadata.now_s = time.time()
                if metadata.now_s >= killed_at and mode != "controller":
                    watcher.kill()
                if metadata.now_s < (stops_at if mode == "watcher" else killed_at):
                    lease_end = _renew(metadata)
            ended = time.time()
        finally:
            watcher.kill()
            watcher.wait()
    return DeadMan(mode, seed, ended - lease_end, was_early=ended < lease_end - 2)


def _renew(metadata: Metadata) -> float:
    """What ``keepalive`` does, by the real clock; the end of the lease. The tag has whole seconds."""
    metadata.now_s = time.time()
    until_s = int(metadata.now_s + REAL_LEASE_S)
    metadata.tags["gpuprov-lease-until"] = datetime.fromtimestamp(until_s, UTC).isoformat()
    return float(until_s)


def _kill(rig: Rig, word: str, after_s: float) -> None:
    """Start a process of the watcher and kill it in the middle of whatever it does then."""
    process = rig.start(word)
    try:
        process.wait(timeout=after_s)
    except TimeoutExpired:
        process.kill()
        process.wait()
