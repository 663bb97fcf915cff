"""Time and memory of one sweep of ``reap`` over many machines, and whether it grows in line with their number.

Usage: ``python -m benchmarks.reaper_scale [--machines 10000]``. The account is in memory: what is measured is our own work on
lists, signals of three hours at a point in five minutes, consoles and decisions; gives 1 beyond 10 s of CPU or 300 MB.
"""

from __future__ import annotations

import argparse
import json
import resource
import time
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from decimal import Decimal

from provisioner import tags
from provisioner.reaper.machines import Machine, Observed, Sample
from provisioner.reaper.sweep import Limits, sweep
from provisioner.vocabulary import CapacityType

NOW = datetime(2026, 11, 30, 12, tzinfo=UTC)
POINTS = 36
CPU_S_MAX, MEMORY_MB_MAX = 10.0, 300.0
LINEAR_MAX = 1.5
"""How much dearer one machine of many may be than one of a tenth as many."""


class Account:
    """Machines that are made as they are asked for; every third works, every seventh tells nothing."""

    def __init__(self, count: int) -> None:
        self.count = count

    def now(self) -> datetime:
        """The clock stands still."""
        return NOW

    def machines(self) -> Sequence[Machine]:
        """All machines."""
        return [_machine(number) for number in range(self.count)]

    def look(self, machine: Machine) -> Machine | None:
        """The same machine."""
        return machine

    def observe(self, machine: Machine, since: datetime) -> Observed:
        """Signals of three hours and a console."""
        del since
        number = int(machine.id.partition("-")[2], base=16)
        if number % 7 == 0:
            return Observed()
        used = 80.0 if number % 3 == 0 else 0.0
        reading = {
            "gpus": [{"utilization": used}] * 8,
            "gpus_expected": 8,
            "cpu_percent": 1.0,
            "network_bytes_per_s": 99.0,
        }
        samples = [Sample(NOW - timedelta(minutes=5 * back), reading) for back in range(POINTS - 1, -1, -1)]
        line = {"gpuprov": 1, "at": tags.format_time(NOW), "state": "quiet", "why": "all quiet", "quiet_s": 7200}
        return Observed(samples, console=["kernel: up"] * 50 + [json.dumps(line)])

    def console(self, machine: Machine) -> Sequence[str]:
        """What it said last."""
        return self.observe(machine, NOW).console

    def write_tags(self, machine: Machine, written: Mapping[str, str]) -> None:
        """Nothing is kept."""

    def stop(self, machine: Machine) -> None:
        """Nothing happens."""

    def terminate(self, machine: Machine) -> None:
        """Nothing happens."""


def _machine(number: int) -> Machine:
    own = {tags.STACK: f"stack-{number}", tags.IDLE_AFTER: "30m", tags.EXPIRES_AT: "none", tags.TERMINATE_AFTER: "7d"}
    return Machine(
        id=f"i-{number:017x}",
        cloud="aws",
        region="us-east-1",
        zone=None,
        instance_type="p5.48xlarge",
        capacity_type=CapacityType.ON_DEMAND,
        state="running",
        tags=own,
        created_at=NOW - timedelta(days=1),
        price_usd_per_hour=Decimal("55.04"),
        stopped_usd_per_hour=Decimal("0.02"),
    )


def cpu_s(count: int) -> float:
    """CPU seconds of one dry sweep over so many machines."""
    begun = time.process_time()
    done = sweep(Account(count), Limits(count=count, share=1.0))
    spent_s = time.process_time() - begun
    if len(done.outcomes) != count:
        raise ValueError(f"{len(done.outcomes)} of {count} machines were judged")
    return spent_s


def main(arguments: list[str] | None = None) -> int:
    """Measure, print, and give 1 beyond the limits."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--machines", type=int, default=10_000)
    count = parser.parse_args(arguments).machines
    cpu_s(100)  # imports and caches
    few_s, many_s = cpu_s(count // 10), cpu_s(count)
    growth = many_s / count / (few_s / (count // 10))
    memory_mb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(
        f"{count} machines: {many_s:.2f} s of CPU, {memory_mb:.0f} MB; a machine of many costs {growth:.2f} of one of few"
    )
    return int(many_s > CPU_S_MAX or memory_mb > MEMORY_MB_MAX or growth > LINEAR_MAX)


if __name__ == "__main__":
    raise SystemExit(main())
