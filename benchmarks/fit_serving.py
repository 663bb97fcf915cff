"""Constants of serving speed from measured rows: shared by servers first, then engine by engine, each drawn to what is shared.

Nothing is keyed on a row, a source or a model. An engine that no row is left of keeps what servers share, or, where it is of
another kind (``transformers`` runs Python between kernels, ``llama.cpp`` has its own), the round figures of ``STARTS``.
"""

from __future__ import annotations

import copy
import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from benchmarks.least_squares import Parameter, fit
from benchmarks.rows import Models, Row
from benchmarks.speed_rows import Case, case_of
from provisioner.errors import UsageError
from provisioner.sizing.speed_profile import FAMILIES, OTHER, SpeedProfile, read_engine, read_link, read_profile

SERVERS = ("vllm", "sglang", "tensorrt-llm")
HARDWARE = tuple(dict.fromkeys([*FAMILIES.values(), OTHER]))
SHARE, TIME, FACTOR = (0.1, 0.99), (0.5, 5000.0), (0.05, 1.5)


def _start(**changes: Any) -> dict[str, Any]:
    row: dict[str, Any] = {
        "memory": {"hbm": 0.8, "gddr": 0.85},
        "kernels": {"fp8": 0.95, "int8": 0.95, "int4": 0.9, "fp4": 0.9},
        "kv": 0.7,
        "layer_us": 20.0,
        "expert_layer_us": 20.0,
        "launch": dict.fromkeys(HARDWARE, 1.0),
        "step_us": 1000.0,
        "sequence_us": 8.0,
        "compute": dict.fromkeys(HARDWARE, 0.55),
        "compute_kernels": {"fp8": 0.85, "int8": 0.85, "int4": 0.8, "fp4": 0.7},
        "expert_compute": 0.6,
        "unpack_flop": 8.0,
        "interleave": 0.5,
        "chunk_tokens": 8192,
        "score_bytes": 0.0,
        "fast_accumulate": False,
    }
    return {**row, **changes}


STARTS: Mapping[str, dict[str, Any]] = {
    "servers": _start(),
    # Eager PyTorch: some twenty kernels a layer, each launched from Python in 20 to 40 us.
    "transformers": _start(
        compute=dict.fromkeys(HARDWARE, 0.4), layer_us=700.0, expert_layer_us=700.0, step_us=2000.0, sequence_us=1.0
    ),
    # Chunks of 512 tokens (n_ubatch), attention that writes its scores, products that accumulate in 16 bit, some thirty launches
    # a layer outside of graphs; Ampere's matrix instructions, which reach five eighths of a Hopper's rate.
    "llama.cpp": _start(
        compute={**dict.fromkeys(HARDWARE, 0.4), "hopper": 0.25},
        memory={"hbm": 0.75, "gddr": 0.9},
        layer_us=100.0,
        step_us=500.0,
        sequence_us=1.0,
        kv=0.5,
        chunk_tokens=512,
        score_bytes=30.0,
        fast_accumulate=True,
    ),
}
"""Where fitting starts, and what a constant stays at that no row speaks of."""

LINK_SPREADS = (0.08, 0.3)
"""Shares of links are drawn to what collectives alone measure (8 x H100: 360 to 480 GB/s of bus bandwidth, aiconfigurator's NCCL
tables); serving says more about latencies."""
LINK_STARTS: Mapping[str, dict[str, float]] = {
    "nvlink": {"latency_us": 7.0, "latency_per_gpu_us": 1.5, "share": 0.82, "contention": 0},
    "pcie": {"latency_us": 8.0, "latency_per_gpu_us": 4.0, "share": 0.6, "contention": 1},
}


@dataclass(frozen=True, slots=True)
class Sample:
    """A case with its measured value, read here and nowhere in prediction."""

    case: Case
    measured: float
    source: str
    group: str
    row: Row


def samples_of(rows: Iterable[Row], models: Models) -> list[Sample]:
    """Measured serving rows that are modelled; rows of low confidence are left out."""
    found = []
    for row in rows:
        metric, value = str(row.raw.get("metric")), row.raw.get("value")
        if row.family != "serving" or row.raw.get("confidence") == "low" or not value:
            continue
        try:
            case = case_of(row, metric, models)
        except UsageError:
            continue
        source = str(row.raw.get("source"))
        found.append(Sample(case, float(value), source, f"{source}|{row.model}|{row.text('gpu')}", row))
    return found


def weights_of(samples: Sequence[Sample]) -> list[float]:
    """Rows of one source, model and GPU repeat each other: together they count as the root of their number."""
    counts = Counter(sample.group for sample in samples)
    return [1 / math.sqrt(counts[sample.group]) for sample in samples]


BASE = "*"
"""Name of what all GPU families share; a family's own parameter is a factor on it, so that families without rows follow the others."""
COMPUTE_SPREAD = 0.12
FAMILY_SPREAD = 0.15
LAUNCH_SPREAD = 0.35
LIMITS: Mapping[str, tuple[float, float]] = {
    "score_bytes": (1.0, 200.0),
    "unpack_flop": (0.5, 60.0),
    "launch": (0.4, 2.5),
    "kernels": FACTOR,
    "compute_kernels": FACTOR,
    "expert_compute": FACTOR,
}
LOOSE = ("score_bytes", "unpack_flop")


def _leaves(row: Mapping[str, Any], spread_share: float, spread_time: float) -> list[Parameter]:
    found = []
    for key, value in row.items():
        if isinstance(value, bool) or key in ("chunk_tokens", "contention"):
            continue
        is_time = key.endswith("_us")
        if key == "launch":
            found += [Parameter(f"launch.{name}", start, LAUNCH_SPREAD, *LIMITS[key]) for name, start in value.items()]
            continue
        low, high = LIMITS.get(key, TIME if is_time else SHARE)
        spread = spread_time if is_time or key in LOOSE else spread_share
        if key == "compute":
            found.append(Parameter(f"compute.{BASE}", math.exp(_mean_log(value.values())), COMPUTE_SPREAD, low, high))
            base = found[-1].start
            found += [
                Parameter(f"compute.{name}", start / base, min(FAMILY_SPREAD, spread), 0.3, 3.0)
                for name, start in value.items()
            ]
            continue
        for name, start in value.items() if isinstance(value, Mapping) else [("", value)]:
            if start:
                found.append(Parameter(f"{key}.{name}".rstrip("."), float(start), spread, low, high))
    return found


def _mean_log(values: Iterable[float]) -> float:
    logs = [math.log(value) for value in values]
    return sum(logs) / len(logs)


def _with(row: Mapping[str, Any], parameters: Sequence[Parameter], values: Sequence[float]) -> dict[str, Any]:
    changed = copy.deepcopy(dict(row))
    base = 1.0
    for parameter, value in zip(parameters, values, strict=True):
        key, _, name = parameter.name.partition(".")
        if name == BASE:
            base = value
        elif key == "compute":
            changed[key][name] = min(SHARE[1], base * value)
        elif name:
            changed[key][name] = value
        else:
            changed[key] = value
    return changed


def _profile(engines: Mapping[str, Any], links: Mapping[str, Any]) -> SpeedProfile:
    return SpeedProfile(
        {name: read_engine(row) for name, row in engines.items()},
        {name: read_link(row) for name, row in links.items()},
        {},
        {},
        {},
        {},
    )


def _errors(samples: Sequence[Sample], rows: Sequence[int], profile: SpeedProfile) -> list[float]:
    return [math.log(samples[row].case.value(profile) / samples[row].measured) for row in rows]


Fit = tuple[dict[str, Any], dict[str, Any]]


class ServingFitter:
    """Fits that remember which rows they were made from: leaving a source out changes few of them."""

    def __init__(self) -> None:
        self._shared: dict[tuple[str, ...], Fit] = {}
        self._engines: dict[tuple[str, ...], dict[str, Any]] = {}

    def fit(self, samples: Sequence[Sample]) -> dict[str, Any]:
        """``engines`` and ``collectives`` of the data file, from these samples alone."""
        by_engine: dict[str, list[Sample]] = defaultdict(list)
        for sample in samples:
            by_engine[sample.case.load.engine].append(sample)
        # It runs on single GPUs and pipelines: links move nothing, so its fit stands whatever servers are left out.
        local = self._engine("llama.cpp", STARTS["llama.cpp"], by_engine["llama.cpp"], LINK_STARTS)
        # How fast graphics memory streams is the memory's own: the engine with most such rows says where servers start.
        start = copy.deepcopy(STARTS["servers"])
        start["memory"]["gddr"] = local["memory"]["gddr"]
        servers = [sample for name in SERVERS for sample in by_engine[name]]
        key = (f"{start['memory']['gddr']:.6f}", *(sample.row.id for sample in servers))
        if key not in self._shared:
            self._shared[key] = _fit_shared(start, servers)
        shared, links = self._shared[key]
        engines = {name: self._engine(name, shared, by_engine[name], links, servers=key) for name in SERVERS}
        engines["transformers"] = self._engine(
            "transformers", STARTS["transformers"], by_engine["transformers"], LINK_STARTS
        )
        engines["llama.cpp"] = local
        return {"engines": engines, "collectives": links}

    def _engine(
        self,
        name: str,
        start: Mapping[str, Any],
        samples: Sequence[Sample],
        links: Mapping[str, Any],
        *,
        spreads: tuple[float, float] = (0.3, 0.5),
        servers: tuple[str, ...] = (),
    ) -> dict[str, Any]:
        key = (name, *servers, "/", *(sample.row.id for sample in samples))
        if key not in self._engines:
            self._engines[key] = _fit_engine(start, samples, links, *spreads)
        return self._engines[key]


def _fit_shared(start: Mapping[str, Any], samples: Sequence[Sample]) -> Fit:
    parameters = _leaves(start, 0.4, 0.8)
    joined = [*parameters]
    for link, row in LINK_STARTS.items():
        joined += [
            Parameter(f"{link}/{each.name}", each.start, each.spread, each.low, each.high)
            for each in _leaves(row, *LINK_SPREADS)
        ]

    def built(values: Sequence[float]) -> Fit:
        engine = _with(start, parameters, values[: len(parameters)])
        links = copy.deepcopy(dict(LINK_STARTS))
        for parameter, value in zip(joined[len(parameters) :], values[len(parameters) :], strict=True):
            link, _, name = parameter.name.partition("/")
            links[link][name] = value
        return engine, links

    def residuals(values: Sequence[float], rows: Sequence[int]) -> list[float]:
        engine, links = built(values)
        return _errors(samples, rows, _profile(dict.fromkeys(SERVERS, engine), links))

    return built(fit(joined, residuals, weights_of(samples))) if samples else (dict(start), dict(LINK_STARTS))


def _fit_engine(
    start: Mapping[str, Any], samples: Sequence[Sample], links: Mapping[str, Any], share: float, time: float
) -> dict[str, Any]:
    if not samples:
        return copy.deepcopy(dict(start))
    name = samples[0].case.load.engine
    parameters = _leaves(start, share, time)

    def residuals(values: Sequence[float], rows: Sequence[int]) -> list[float]:
        return _errors(samples, rows, _profile({name: _with(start, parameters, values)}, links))

    return _with(start, parameters, fit(parameters, residuals, weights_of(samples)))


def profile_of(constants: Mapping[str, Any], document: Mapping[str, Any]) -> SpeedProfile:
    """A profile with fitted constants in place of the document's."""
    return read_profile({**document, **constants})
