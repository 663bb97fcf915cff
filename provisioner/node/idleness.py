"""Is a machine idle? One reading after another in, one decision each out; no clock, file or network.

A reading maps a source's name to its value. A source that is not in it does not exist on this machine; one whose value is
``None`` exists and cannot be read: that is unknown, and unknown counts as busy. Idle needs every source of every reading of a
whole window. Used on the machine (Python 3.9 and its standard library only) and by the reaper, over the cloud's metrics.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import isfinite
from statistics import median
from typing import Any

BUSY, IDLE, UNKNOWN, QUIET = "busy", "idle", "unknown", "quiet"
Verdict = tuple[str, str]
"""A word and what was seen."""

GPU_BUSY_PERCENT = 2.0
"""Reading the counters themselves shows as 1 % on an idle GPU now and then."""
TRAFFIC_BUSY_PERCENT = 1.0
CPU_BUSY_CORES = 0.10
"""Of the workload's and the logins' own control groups: an idle notebook server takes a tenth of this."""
CPU_BUSY_PERCENT = 3.0
DISK_BUSY_BYTES_PER_S = 512 * 1024
NETWORK_BUSY_BYTES_PER_S = 64 * 1024
"""Monitoring, name service and logs of an idle machine stay below 10 kB/s."""
POWER_FACTOR, POWER_EXTRA_WATTS = 1.5, 20.0
"""Above the learned floor by this much, a GPU works, whatever its utilisation says."""
POWER_SHARE_OF_LIMIT = 0.5
STALL_PERCENT = 99.0
STALL_AFTER_S = 2 * 3600.0
"""A wait that spins this long is worth telling; only the maximum lifetime ends it."""
NOISE_READINGS, NOISE_LEARNED = 20, 5
NOISE_CORES_PER_GPU = 1.1
"""Serving workers that wait for work spin on up to one core a GPU."""
HEARTBEAT_S = 300.0
"""An unchanged decision is repeated on the console this often: silence for longer means that the watcher is dead."""
IDLE_TAG = "gpuprov:idle-after"
IDLE_MIN_S, IDLE_MAX_S = 300.0, 3600.0
"""Bounds of a measured wait, as of a predicted one."""
GAP_PERIODS = 2.5
"""A longer pause between two readings (a suspended machine, a watcher that hung) starts the window anew."""


@dataclass(frozen=True)
class Rules:
    """What a machine is judged by."""

    window_s: float
    period_s: float = 30.0
    gpu_only: bool = False
    """Look at the GPU, its engine and leases alone."""


@dataclass(frozen=True)
class Memory:
    """What was learned from the readings so far."""

    at_s: float | None = None
    quiet_since_s: float | None = None
    gpus_seen: int = 0
    floors: tuple[tuple[int, bool, float], ...] = ()
    """GPU, whether a process held it, least power in watts while nothing ran on it."""
    counters: tuple[tuple[str, float, float], ...] = ()
    """Engine, its sum of tokens, its sum of requests, at the last reading."""
    noise: tuple[float, ...] = ()
    """CPU of the workload, in cores, in the first readings at which its engine said that it had nothing to do."""
    stall_since_s: float | None = None
    unused_since_s: float | None = None
    """Since when something else works and the GPU does not."""


@dataclass(frozen=True)
class Decision:
    """One reading, judged."""

    state: str
    """``busy``, ``unknown``, ``quiet`` (idle, not for the whole window yet) or ``idle``."""
    reason: str
    quiet_s: float
    sources: Mapping[str, Verdict]
    tokens_per_s: float | None = None
    running: float | None = None
    waiting: float | None = None
    findings: tuple[str, ...] = ()

    @property
    def is_due(self) -> bool:
        """Whether the machine has been idle for the whole window."""
        return self.state == IDLE


def decide(memory: Memory, at_s: float, reading: Mapping[str, Any], rules: Rules) -> tuple[Memory, Decision]:
    """Judge one reading.

    Args:
        memory: from the reading before; ``Memory()`` at first.
        at_s: monotonic time of the reading.
        reading: source -> value; see the module's head and ``_JUDGES``.
        rules: the window and what counts.

    Returns:
        The memory for the next reading, and the decision.
    """
    elapsed_s = None if memory.at_s is None else at_s - memory.at_s
    sources: dict[str, Verdict] = {}
    memory, sources["gpu"], is_stalled = (
        _judge_gpus(memory, reading) if "gpus" in reading else (memory, ("", ""), False)
    )
    if "gpus" not in reading:
        del sources["gpu"]
    memory, engine, tokens_per_s, load = _judge_engines(memory, reading, elapsed_s)
    if engine is not None:
        sources["engine"] = engine
    memory = _learn_noise(memory, reading, engine)
    for name, judge in _JUDGES.items():
        if name in reading:
            value = reading[name]
            sources[name] = (UNKNOWN, "cannot be read") if not _is_number(value) else judge(float(value), memory)
    for name in ("workload", "boot"):
        if name in reading:
            sources[name] = _judge_state(reading[name])
    counted = {k: v for k, v in sources.items() if not rules.gpu_only or k in _GPU_ONLY}
    memory, state, reason, quiet_s = _window(memory, at_s, elapsed_s, counted, rules)
    memory = replace(
        memory,
        at_s=at_s,
        stall_since_s=(at_s if memory.stall_since_s is None else memory.stall_since_s) if is_stalled else None,
        unused_since_s=_unused_since(memory, at_s, sources),
    )
    if state == IDLE and reading.get("held"):
        reason = "stuck, not finished: a process holds the GPU and nothing moves; " + reason
    findings = _findings(memory, at_s)
    return memory, Decision(state, reason, quiet_s, sources, tokens_per_s, load[0], load[1], findings)


def evidence(decision: Decision) -> dict[str, Any]:
    """What was seen, as the watcher's line tells it."""
    rate = decision.tokens_per_s
    return {
        "quiet_s": round(decision.quiet_s),
        "sources": {name: f"{word}: {text}" for name, (word, text) in decision.sources.items()},
        "tokens_per_s": None if rate is None else round(rate, 1),
        "running": decision.running,
        "waiting": decision.waiting,
        "findings": list(decision.findings),
    }


def asked_s(tag: str, auto_s: float) -> float | None:
    """Quiet seconds after which ``gpuprov:idle-after`` ends a machine; ``None`` is never.

    Args:
        tag: ``none``, ``auto``, or ``90s``, ``15m``, ``2h`` or ``7d``.
        auto_s: what ``auto`` is on this machine.

    Raises:
        ValueError: the tag says none of these.
    """
    if tag in ("none", "auto"):
        return auto_s if tag == "auto" else None
    unit_s = {"s": 1, "m": 60, "h": 3600, "d": 86400}.get(tag[-1:])
    if unit_s is None:
        raise ValueError(tag)
    return float(tag[:-1]) * unit_s


def within_bounds(start_s: float) -> float:
    """The wait of ``idle.after: auto`` on a machine whose start has taken so long."""
    return min(IDLE_MAX_S, max(IDLE_MIN_S, start_s))


def _window(
    memory: Memory, at_s: float, elapsed_s: float | None, counted: Mapping[str, Verdict], rules: Rules
) -> tuple[Memory, str, str, float]:
    """Whether the window is full: the memory, the state, the reason and how long everything has been quiet."""
    if not counted:
        return replace(memory, quiet_since_s=None), UNKNOWN, "no source can be read", 0.0
    words = {verdict for verdict, _ in counted.values()}
    for word in (BUSY, UNKNOWN):
        if word in words:
            seen = [f"{name}: {text}" for name, (verdict, text) in counted.items() if verdict == word]
            return replace(memory, quiet_since_s=None), word, "; ".join(seen), 0.0
    has_gap = elapsed_s is not None and not 0 <= elapsed_s <= GAP_PERIODS * rules.period_s
    since_s = at_s if memory.quiet_since_s is None or has_gap else memory.quiet_since_s
    quiet_s = at_s - since_s
    if since_s != memory.quiet_since_s:
        memory = replace(memory, quiet_since_s=since_s)
    seen = [f"{name}: {text}" for name, (_, text) in counted.items()]
    state = IDLE if quiet_s >= rules.window_s else QUIET
    return memory, state, f"quiet for {quiet_s / 60:.0f} min ({'; '.join(seen)})", quiet_s


def _judge_gpus(memory: Memory, reading: Mapping[str, Any]) -> tuple[Memory, Verdict, bool]:
    """The GPUs together: one that works makes the machine busy, one that cannot be read makes it unknown."""
    gpus = reading["gpus"]
    if not isinstance(gpus, (list, tuple)) or not gpus:
        return memory, (UNKNOWN, "no GPU can be read"), False
    expected = max(memory.gpus_seen, int(reading.get("gpus_expected") or 0))
    if len(gpus) > memory.gpus_seen:
        memory = replace(memory, gpus_seen=len(gpus))
    memory = _learn_floors(memory, gpus)
    verdicts = [_judge_gpu(memory, index, gpu) for index, gpu in enumerate(gpus)]
    if len(gpus) < expected:
        verdicts.append((UNKNOWN, f"{len(gpus)} of {expected} GPUs show"))
    is_stalled = any("stall" in text for _, text in verdicts)
    for word in (BUSY, UNKNOWN):
        for verdict in verdicts:
            if verdict[0] == word:
                return memory, verdict, is_stalled
    used = max(float(gpu["utilization"]) for gpu in gpus)
    return memory, (IDLE, f"at most {used:.0f} % on {len(gpus)}"), False


def _judge_gpu(memory: Memory, index: int, gpu: Mapping[str, Any]) -> Verdict:
    used: Any = gpu.get("utilization")
    traffic: Any = gpu.get("traffic")
    watts: Any = gpu.get("watts")
    if used == 0 and not traffic and watts is None and not gpu.get("mig"):
        return IDLE, "0 %"
    # MIG: NVML says "not supported", and some tools make 0 of it (dask/distributed#8739, NVIDIA/dcgm-exporter#216).
    if gpu.get("mig") or not _is_percent(used):
        return UNKNOWN, f"utilisation of GPU {index} is {'of a MIG device' if gpu.get('mig') else 'not available'}"
    if traffic is not None and not _is_percent(traffic):
        return UNKNOWN, f"memory traffic of GPU {index} reads {traffic}"
    floor = _floor(memory, index, gpu)
    is_cool = _is_number(watts) and floor is not None and watts <= 1.3 * floor + 10
    if used >= STALL_PERCENT and traffic == 0 and is_cool:
        # A collective that waits for a peer spins at 100 % and moves nothing.
        return UNKNOWN, f"suspected stall: GPU {index} shows {used:.0f} %, no memory traffic and {watts:.0f} W"
    if used >= GPU_BUSY_PERCENT:
        return BUSY, f"GPU {index} at {used:.0f} %"
    if traffic is not None and traffic >= TRAFFIC_BUSY_PERCENT:
        return BUSY, f"memory of GPU {index} at {traffic:.0f} %"
    if _is_number(watts):
        limit: Any = gpu.get("limit_watts")
        if _is_number(limit) and watts > POWER_SHARE_OF_LIMIT * limit > 0:
            return BUSY, f"GPU {index} takes {watts:.0f} W of {limit:.0f}"
        if floor is not None and watts > POWER_FACTOR * floor + POWER_EXTRA_WATTS:
            return BUSY, f"GPU {index} takes {watts:.0f} W, idle it took {floor:.0f}"
    return IDLE, f"GPU {index} at {used:.0f} %"


def _learn_floors(memory: Memory, gpus: Any) -> Memory:
    """Least power of each GPU while nothing ran on it, with and without a process: a context alone costs power."""
    if all(gpu.get("watts") is None for gpu in gpus):
        return memory
    floors = {(index, held): watts for index, held, watts in memory.floors}
    for index, gpu in enumerate(gpus):
        watts, processes = gpu.get("watts"), gpu.get("processes")
        if gpu.get("utilization") != 0 or gpu.get("traffic") not in (0, None) or not _is_number(watts) or watts <= 0:
            continue
        if processes is None:
            continue
        key = (index, bool(processes))
        floors[key] = min(float(watts), floors.get(key, float(watts)))
    learned = tuple((index, held, watts) for (index, held), watts in sorted(floors.items()))
    return memory if learned == memory.floors else replace(memory, floors=learned)


def _floor(memory: Memory, index: int, gpu: Mapping[str, Any]) -> float | None:
    floors = {held: watts for number, held, watts in memory.floors if number == index}
    held = bool(gpu.get("processes"))
    if held and False in floors:
        return min(floors.get(True, floors[False]), 4 * floors[False] + 40)
    return floors.get(held)


def _judge_engines(
    memory: Memory, reading: Mapping[str, Any], elapsed_s: float | None
) -> tuple[Memory, Verdict | None, float | None, tuple[float | None, float | None]]:
    """Serving engines by their own counters: the memory, a verdict, tokens per second, running and waiting requests."""
    engines = reading.get("engines")
    if not engines:
        return memory, None, None, (None, None)
    before = {name: (tokens, requests) for name, tokens, requests in memory.counters}
    counters, verdict = dict(before), (IDLE, "no request runs or waits")
    totals, gained, is_counted = [0.0, 0.0], 0.0, elapsed_s is not None and elapsed_s > 0
    for name, engine in sorted(engines.items()):
        values: list[Any] = (
            [None] * 4 if engine is None else [engine.get(k) for k in ("running", "waiting", "tokens", "requests")]
        )
        if any(value is not None and (not _is_number(value) or value < 0) for value in values) or values[0] is None:
            verdict = verdict if verdict[0] == BUSY else (UNKNOWN, f"counters of {name} cannot be read")
            continue
        running, waiting = float(values[0]), float(values[1] or 0)
        tokens, requests = float(values[2] or 0), float(values[3] or 0)
        totals = [totals[0] + running, totals[1] + waiting]
        counters[name] = (tokens, requests)
        if running > 0 or waiting > 0:
            verdict = (BUSY, f"{name}: {running:.0f} requests run, {waiting:.0f} wait")
        elif name in before and before[name] != (tokens, requests):
            verdict = (BUSY, f"{name} has answered since the last reading")
        if name in before and tokens >= before[name][0]:
            gained += tokens - before[name][0]
    kept = tuple((name, tokens, requests) for name, (tokens, requests) in sorted(counters.items()))
    is_known = verdict[0] != UNKNOWN
    rate = gained / elapsed_s if is_counted and elapsed_s and is_known and before else None
    return replace(memory, counters=kept), verdict, rate, (totals[0], totals[1]) if is_known else (None, None)


def _learn_noise(memory: Memory, reading: Mapping[str, Any], engine: Verdict | None) -> Memory:
    """CPU that an engine takes while it waits: only its first idle readings teach, so that later work never becomes noise."""
    cores: Any = reading.get("cpu_cores")
    if engine is None or engine[0] != IDLE or not _is_number(cores) or len(memory.noise) >= NOISE_READINGS:
        return memory
    return replace(memory, noise=(*memory.noise, float(cores)))


def _judge_cpu(cores: float, memory: Memory) -> Verdict:
    limit = CPU_BUSY_CORES
    if len(memory.noise) >= NOISE_LEARNED:
        learned = min(median(memory.noise), NOISE_CORES_PER_GPU * max(memory.gpus_seen, 1))
        limit = max(limit, 1.5 * learned + 0.05)
    return (BUSY if cores > limit else IDLE), f"{cores:.2f} cores"


def _judge_percent(percent: float, memory: Memory) -> Verdict:
    """Of the whole machine, as clouds tell it: the system's own daemons are in it."""
    del memory
    return (BUSY if percent > CPU_BUSY_PERCENT else IDLE), f"{percent:.0f} %"


def _judge_rate(limit: float) -> Any:
    return lambda value, _: ((BUSY if value > limit else IDLE), f"{value / 1024:.0f} KiB/s")


def _judge_count(noun: str) -> Any:
    return lambda value, _: ((BUSY if value > 0 else IDLE), f"{value:.0f} {noun}")


def _judge_lease(left_s: float, memory: Memory) -> Verdict:
    del memory
    return (BUSY, f"kept for {left_s / 60:.0f} min more") if left_s > 0 else (IDLE, "none")


_JUDGES: Mapping[str, Any] = {
    "cpu_cores": _judge_cpu,
    "cpu_percent": _judge_percent,
    "disk_bytes_per_s": _judge_rate(DISK_BUSY_BYTES_PER_S),
    "network_bytes_per_s": _judge_rate(NETWORK_BUSY_BYTES_PER_S),
    "connections": _judge_count("connections"),
    "logins": _judge_count("logins"),
    "lease_s": _judge_lease,
}
"""Sources with one number, and who judges it."""
_GPU_ONLY = ("gpu", "engine", "lease_s", "workload", "boot")
FAILED = (IDLE, "it has failed")
_WORDS = {
    "starting": (BUSY, "it starts"),
    "restarting": (BUSY, "it restarts"),
    "active": (IDLE, "its process runs"),
    "failed": FAILED,
    "finished": (IDLE, "it is done"),
    "done": (IDLE, "done"),
    "none": (IDLE, "none"),
}


def _judge_state(word: Any) -> Verdict:
    return _WORDS.get(str(word), (UNKNOWN, "cannot be read"))


def _unused_since(memory: Memory, at_s: float, sources: Mapping[str, Verdict]) -> float | None:
    """Since when a CPU works beside a GPU that does not."""
    if sources.get("gpu", ("", ""))[0] != IDLE or sources.get("cpu_cores", ("", ""))[0] != BUSY:
        return None
    return at_s if memory.unused_since_s is None else memory.unused_since_s


def _findings(memory: Memory, at_s: float) -> tuple[str, ...]:
    found = []
    if memory.stall_since_s is not None:
        stalled_s = at_s - memory.stall_since_s
        found.append("suspected stall" + (f" for {stalled_s / 3600:.1f} h" if stalled_s >= STALL_AFTER_S else ""))
    if memory.unused_since_s is not None and at_s - memory.unused_since_s >= 3600:
        found.append(f"GPU unused for {(at_s - memory.unused_since_s) / 3600:.1f} h while the CPU works")
    return tuple(found)


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and isfinite(value) and value >= 0


def _is_percent(value: Any) -> bool:
    return _is_number(value) and value <= 100
