"""Time two commands in turn, A B A B …, so that a drifting machine disturbs both alike."""

from __future__ import annotations

import os
import statistics
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Pairs:
    """Wall seconds of each run, in the order of the runs."""

    subject_s: tuple[float, ...]
    floor_s: tuple[float, ...]

    @property
    def ratio(self) -> float:
        """Median of the ratios pair by pair."""
        return statistics.median(a / b for a, b in zip(self.subject_s, self.floor_s, strict=True))

    def line(self, name: str) -> str:
        """One line for people: medians and the ratio."""
        subject, floor = statistics.median(self.subject_s), statistics.median(self.floor_s)
        return f"{name}: {subject:.3f} s against {floor:.3f} s, ratio {self.ratio:.2f} ({len(self.subject_s)} pairs)"


def environment() -> dict[str, str]:
    """The caller's environment, in which Python may keep its bytecode, as it does for users."""
    return {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}


def timed(command: Sequence[str], variables: Mapping[str, str], *, cwd: str | None = None) -> float:
    """Wall seconds of a whole process that must succeed.

    Raises:
        RuntimeError: the command failed; a failed run is no measurement.
    """
    began = time.perf_counter()
    done = subprocess.run(command, env=dict(variables), capture_output=True, text=True, check=False, cwd=cwd)
    took = time.perf_counter() - began
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)} ended with {done.returncode}: {done.stderr[-2000:]}")
    return took


def measure(subject: Callable[[], float], floor: Callable[[], float], pairs: int, warm_up: int = 1) -> Pairs:
    """Run both in turn; the first ``warm_up`` pairs are not counted."""
    runs = [(subject(), floor()) for _ in range(warm_up + pairs)][warm_up:]
    return Pairs(tuple(a for a, _ in runs), tuple(b for _, b in runs))
