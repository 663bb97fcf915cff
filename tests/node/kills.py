"""Kills of the controller and of the watcher, in injected time: does the machine still end within its lease and a minute?"""

from __future__ import annotations

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
STEPS_S = (0.0, 3600.0, -3600.0, 10 * 365 * 86400.0, -10 * 365 * 86400.0)


@dataclass(frozen=True)
class DeadMan:
    """One run: what was killed, and how long after the end of the lease the machine was off."""

    mode: str
    seed: int
    late_s: float
    was_early: bool

    @property
    def is_in_time(self) -> bool:
        return not self.was_early and self.late_s <= ALLOWED_S


def kill_runs(folder: Path, count: int) -> list[DeadMan]:
    """``count`` runs of each mode."""
    return [run(folder / f"{mode}-{seed}", mode, seed) for mode in MODES for seed in range(count)]


def run(folder: Path, mode: str, seed: int) -> DeadMan:
    """A machine whose lease a controller renews until one of them is killed; systemd's timer, which this plays, goes on."""
    random = Random(f"{mode}/{seed}")
    with closing(Metadata()) as metadata:
        rig = Rig(folder, metadata, lease_s=LEASE_S, lifetime_s=None)
        killed_at_s = random.uniform(30, 420)
        reboot_at_s = random.uniform(30, 420) if random.random() < 1 / 3 else None
        step_s, lease_end_s, passed_s = random.choice(STEPS_S), LEASE_S, 0.0
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
                return DeadMan(mode, seed, passed_s - lease_end_s, was_early=passed_s < lease_end_s - 2)
            if passed_s > 6000:
                return DeadMan(mode, seed, passed_s - lease_end_s, was_early=False)
            passed_s += PERIOD_S
            rig.pass_time(PERIOD_S, step_s=step_s if abs(passed_s - killed_at_s) < PERIOD_S / 2 else 0.0)
            if reboot_at_s is not None and passed_s >= reboot_at_s:
                reboot_at_s = None
                rig.boot("boot-2")
                rig.now_s = 0.0


def _kill(rig: Rig, word: str, after_s: float) -> None:
    """Start a process of the watcher and kill it in the middle of whatever it does then."""
    process = rig.start(word)
    try:
        process.wait(timeout=after_s)
    except TimeoutExpired:
        process.kill()
        process.wait()
