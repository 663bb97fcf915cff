"""Labelled traces of machines: what the sensors read, second by second, in phases that work and in shapes that are idle.

Each phase stands for reports (reference issues are named where one is behind it). A trace is seeded; the same seed is the same
trace. ``job`` and ``pty`` say what a job queue and a look for terminals would see: that is all that some rules look at.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from random import Random
from typing import Any

PERIOD_S = 30.0
THRESHOLD_S = 900.0
TICKS = int(THRESHOLD_S / PERIOD_S)

Reading = dict[str, Any]
Phase = Callable[[Random, int], Reading]
"""A reading at a tick; called in order."""


@dataclass(frozen=True)
class Look:
    """One tick of a trace."""

    at_s: float
    reading: Mapping[str, Any]
    job: bool
    pty: bool
    is_busy: bool


def gpu(random: Random, used: float | None = 0.0, **more: Any) -> dict[str, Any]:
    """One GPU; a cool one unless told otherwise."""
    watts = 68 + random.uniform(-2, 2) if not used else 120 + 5.5 * used + random.uniform(-10, 10)
    return {
        "utilization": used,
        "traffic": 0.0,
        "watts": watts,
        "limit_watts": 700.0,
        "mig": False,
        "processes": 0,
    } | more


def machine(random: Random, **more: Any) -> Reading:
    """An untouched machine with one GPU: background noise and nothing else."""
    return {
        "gpus": [gpu(random)],
        "gpus_expected": 1,
        "cpu_cores": abs(random.gauss(0.015, 0.008)),
        "disk_bytes_per_s": abs(random.gauss(25_000, 15_000)),
        "network_bytes_per_s": abs(random.gauss(3_000, 2_000)),
        "logins": 0,
    } | more


def held(random: Random, **more: Any) -> dict[str, Any]:
    """A GPU that a process holds and does not use: its context alone costs power."""
    return gpu(random, 0.0, processes=1, watts=118 + random.uniform(-4, 4)) | more


def engine(running: float = 0, waiting: float = 0, tokens: float = 0, requests: float = 0) -> dict[str, Any]:
    """The counters of one serving engine."""
    return {":8000": {"running": running, "waiting": waiting, "tokens": tokens, "requests": requests}}


def _each(make: Callable[[Random], Reading]) -> Phase:
    return lambda random, tick: make(random)


def _cpu(low: float, high: float, **more: Any) -> Phase:
    return lambda random, tick: machine(random, cpu_cores=random.uniform(low, high), **more)


def _gpu(low: float, high: float, **more: Any) -> Phase:
    return lambda random, tick: machine(random, gpus=[gpu(random, random.uniform(low, high), processes=1)], **more)


def _one_of_eight(random: Random, tick: int) -> Reading:
    used = [gpu(random, random.uniform(20, 95), processes=1)]
    return machine(random, gpus=[held(random) for _ in range(7)] + used, gpus_expected=8)


def _rank_zero(random: Random, tick: int) -> Reading:
    first = gpu(random, random.choice((0.0, 4.0, 40.0)), processes=1)
    return machine(
        random, gpus=[first, *(held(random) for _ in range(7))], gpus_expected=8, cpu_cores=random.uniform(0.8, 3)
    )


def _request_a_minute(random: Random, tick: int) -> Reading:
    # Each request is over between two looks: only the counters tell.
    served = tick // 2
    return machine(random, gpus=[held(random)], engines=engine(tokens=served * 210, requests=served), cpu_cores=0.04)


def _bursts(gap: float) -> Phase:
    every = max(2, int(gap * TICKS))

    def phase(random: Random, tick: int) -> Reading:
        bursts = tick // every + 1
        if tick % every == 0:
            busy = [gpu(random, random.uniform(60, 99), processes=1)]
            return machine(random, gpus=busy, engines=engine(running=6, tokens=bursts * 4000, requests=bursts))
        return machine(random, gpus=[held(random)], engines=engine(tokens=bursts * 4000, requests=bursts))

    return phase


def _spikes(every: int) -> Phase:
    def phase(random: Random, tick: int) -> Reading:
        used = random.uniform(30, 99) if tick % every == 0 else 0.0
        return machine(random, gpus=[gpu(random, used, processes=1)])

    return phase


def _barrier(random: Random, tick: int) -> Reading:
    spin = gpu(random, 100.0, processes=1, watts=75 + random.uniform(-2, 2))
    return machine(random, gpus=[spin] * 4, gpus_expected=4, cpu_cores=4.0)


def _stream(random: Random, tick: int) -> Reading:
    return machine(random, gpus=[held(random)], connections=1, network_bytes_per_s=random.uniform(500, 4000))


def _network(low: float, high: float, **more: Any) -> Phase:
    return lambda random, tick: machine(random, network_bytes_per_s=random.uniform(low, high), **more)


def _disk(low: float, high: float, **more: Any) -> Phase:
    return lambda random, tick: machine(random, disk_bytes_per_s=random.uniform(low, high), **more)


MB = 1e6
BUSY: Mapping[str, tuple[Phase, bool, bool]] = {
    # name: (phase, a job queue sees a job, a terminal is open)
    "weights download": (_network(20 * MB, 900 * MB), True, False),
    "slow weights download": (_network(0.3 * MB, 3 * MB), True, False),
    "unpack and convert on the CPU": (_cpu(0.9, 2.0), True, False),
    "package install": (_disk(1 * MB, 200 * MB, cpu_cores=0.05), True, False),
    "docker pull": (_network(5 * MB, 80 * MB, disk_bytes_per_s=90 * MB), True, False),
    "driver install": (lambda r, t: machine(r, gpus=None, boot="starting"), True, False),
    "start before readiness": (lambda r, t: machine(r, workload="starting"), True, False),
    "torch.compile": (_cpu(3, 30), True, False),
    "Triton autotune": (_spikes(3), True, False),
    "CUDA graph capture for hours": (_cpu(0.95, 1.05), True, False),
    "NCCL rendezvous": (_cpu(0.9, 8.0, gpus_expected=1), True, False),
    "tokenisation on the CPU": (_cpu(8, 60), True, False),
    "evaluation on the CPU": (_cpu(0.7, 4), False, False),
    "checkpoint upload": (_network(5 * MB, 300 * MB), True, False),
    "checkpoint write": (_disk(50 * MB, 900 * MB), True, False),
    "weights load from disk": (_disk(200 * MB, 3000 * MB, workload="active"), True, False),
    "barrier wait that spins": (_barrier, True, False),
    "one GPU of eight": (_one_of_eight, True, False),
    "rank 0 evaluates": (_rank_zero, True, False),
    "one request a minute": (_request_a_minute, True, False),
    "server between bursts": (_bursts(0.5), True, False),
    "bursts at 0.9 of the threshold": (_bursts(0.9), True, False),
    "notebook, person thinks": (_each(lambda r: machine(r, gpus=[held(r)], connections=2)), False, False),
    "debugger at a stop": (_each(lambda r: machine(r, gpus=[held(r)], logins=1)), False, True),
    "remote editor without a terminal": (_each(lambda r: machine(r, logins=1)), False, False),
    "streaming answer": (_stream, False, False),
    "silent cell, browser closed": (_cpu(0.95, 1.0), False, False),
    "nohup after logout": (_gpu(10, 60), False, False),
    "decode at a low rate": (_gpu(2.5, 6), True, False),
    "copies that show no utilisation": (_each(lambda r: machine(r, gpus=[held(r, traffic=4.0)])), True, False),
    "utilisation reads 0, power does not": (_each(lambda r: machine(r, gpus=[held(r, watts=430.0)])), True, False),
    "training that waits for its loader": (_spikes(4), True, False),
    "rollouts on the CPU": (_cpu(2, 12), True, False),
    "work on a MIG device": (_each(lambda r: machine(r, gpus=[held(r, utilization=None, mig=True)])), False, False),
    "kept by a lease": (_each(lambda r: machine(r, lease_s=600.0)), False, False),
}
"""Phases in which nothing may end the machine."""

IDLE: Mapping[str, Phase] = {
    "untouched machine": _each(machine),
    "server without requests": _each(lambda r: machine(r, gpus=[held(r)], engines=engine(tokens=9000, requests=40))),
    "server whose workers spin": _each(
        lambda r: machine(r, gpus=[held(r)], engines=engine(tokens=7, requests=1), cpu_cores=r.uniform(0.95, 1.05))
    ),
    "notebook server, nobody there": _each(lambda r: machine(r, gpus=[held(r)], connections=0, cpu_cores=0.01)),
    "training ended, process gone": _each(lambda r: machine(r, workload="finished")),
    "hung training loop": _each(lambda r: machine(r, gpus=[held(r)], workload="active", held=True)),
    "workload failed": _each(lambda r: machine(r, workload="failed")),
    "lease run out": _each(lambda r: machine(r, lease_s=0.0)),
    "monitoring shows 1 %": _each(lambda r: machine(r, gpus=[gpu(r, float(r.random() < 0.3), watts=68.0)])),
    "health checks from elsewhere": _each(
        lambda r: machine(r, gpus=[held(r)], network_bytes_per_s=r.uniform(8e3, 4e4))
    ),
    "eight GPUs, none used": _each(lambda r: machine(r, gpus=[gpu(r) for _ in range(8)], gpus_expected=8)),
    "warm GPU, process holds memory": _each(lambda r: machine(r, gpus=[held(r)])),
    "logs are written": _each(lambda r: machine(r, disk_bytes_per_s=r.uniform(3e4, 2e5))),
}
"""Shapes that must be found."""

FAULTS: Mapping[str, Phase] = {
    "not available": _each(lambda r: machine(r, gpus=[gpu(r, None)])),
    "not a number": _each(lambda r: machine(r, gpus=[gpu(r, float("nan"))])),
    "negative": _each(lambda r: machine(r, gpus=[gpu(r, -1.0)])),
    "over 100 %": _each(lambda r: machine(r, gpus=[gpu(r, 65535.0)])),
    "stuck at 100 %": _barrier,
    "a GPU off the bus": _each(lambda r: machine(r, gpus=[gpu(r)] * 7, gpus_expected=8)),
    "nvidia-smi fails": _each(lambda r: machine(r, gpus=None)),
    "no GPU in the answer": _each(lambda r: machine(r, gpus=[])),
    "0 from a MIG device": _each(lambda r: machine(r, gpus=[gpu(r, 0.0, mig=True)])),
    "dead exporter": _each(lambda r: machine(r, engines={":8000": None})),
    "counters that are no numbers": _each(lambda r: machine(r, engines=engine(running=float("nan")))),
    "control groups gone": _each(lambda r: machine(r, cpu_cores=None)),
    "metadata of logins gone": _each(lambda r: machine(r, logins=None)),
}
"""An idle machine that cannot be seen: unknown, never idle."""


def busy_trace(name: str, seed: int) -> Iterator[Look]:
    """A busy phase, between 1.2 and 4 thresholds long, after a quiet start that is shorter than the threshold."""
    phase, job, pty = BUSY[name]
    random = Random(f"{name}/{seed}")
    quiet = random.randrange(0, TICKS // 2)
    length = random.randrange(int(1.2 * TICKS), 4 * TICKS)
    for tick in range(quiet + length):
        reading = machine(random, **_expected(phase, name)) if tick < quiet else phase(random, tick - quiet)
        yield Look(tick * PERIOD_S, reading, job, pty, is_busy=True)


def idle_trace(name: str, seed: int) -> Iterator[Look]:
    """Work for a while, then an idle shape to the end; work ends at the first look with ``is_busy`` false."""
    random = Random(f"{name}/{seed}")
    work = random.randrange(2, 2 * TICKS)
    for tick in range(work + TICKS + 6):
        shape = IDLE[name](random, tick)
        if tick < work:
            yield Look(tick * PERIOD_S, {**shape, "network_bytes_per_s": 50 * MB}, job=True, pty=False, is_busy=True)
        else:
            job = "engines" in shape or shape.get("workload") == "active" or "connections" in shape
            yield Look(tick * PERIOD_S, shape, job=job, pty=False, is_busy=False)


def fault_trace(name: str, seed: int) -> Iterator[Look]:
    """A sensor fault on a machine without work, for four thresholds."""
    random = Random(f"{name}/{seed}")
    for tick in range(4 * TICKS):
        yield Look(tick * PERIOD_S, FAULTS[name](random, tick), job=False, pty=False, is_busy=False)


def _expected(phase: Phase, name: str) -> dict[str, Any]:
    """As many cool GPUs before the phase as in it."""
    count = len(phase(Random(name), 0).get("gpus") or [0])
    return {"gpus": [gpu(Random(name)) for _ in range(count)], "gpus_expected": count}
