"""Constants of training speed from measured rows, each drawn to a round figure where rows say little."""

from __future__ import annotations

import copy
import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from benchmarks.compute_rows import training_work
from benchmarks.least_squares import Parameter, fit
from benchmarks.rows import Models, Row
from provisioner.errors import UsageError
from provisioner.sizing.accelerator import Accelerator
from provisioner.sizing.speed_profile import FAMILIES, OTHER, SpeedProfile, read_link
from provisioner.sizing.training_speed import Work, token_seconds

HARDWARE = tuple(dict.fromkeys([*FAMILIES.values(), OTHER]))
LARGEST_PRODUCT: Mapping[str, float] = {
    "ampere": 0.87,
    "hopper": 0.80,
    "blackwell": 0.775,
    "blackwell-ultra": 0.786,
}
"""Share of the data-sheet rate that the best matrix product reaches. Source: stas00/ml-engineering, maximum achievable matmul."""
USUAL_PRODUCT = 0.8
OF_LARGEST = 0.7
"""Part of it that the layers of a whole training step reach: their products are smaller, and norms and optimizer lie between."""
STARTS: Mapping[str, Any] = {
    "dense": {name: OF_LARGEST * LARGEST_PRODUCT.get(name, USUAL_PRODUCT) for name in HARDWARE},
    "attention": dict.fromkeys(HARDWARE, 0.25),
    "experts": 0.6,
    "expert_width": 500.0,
    "width": 300.0,
    "fp8": {"general": 1.3, "tuned": 1.5},
    "fp4": 1.3,
    "recompute": 0.6,
    "quantised_base": 0.8,
    "tuned": 1.25,
    "tensor_exposed": 0.6,
    "expert_exposed": 0.5,
    "recurrent": 2.0,
    "interleaved": 4.0,
}
"""Where fitting starts, and what a constant stays near that few rows speak of."""
BOUNDS = {
    "dense": (0.1, 0.9),
    "attention": (0.03, 0.9),
    "experts": (0.1, 1.5),
    "expert_width": (20.0, 5000.0),
    "width": (20.0, 3000.0),
    "interleaved": (1.0, 16.0),
    "recurrent": (1.0, 8.0),
}
SPREADS = {
    "dense": 0.15,
    "tuned": 0.12,
    "fp8": 0.12,
    "experts": 0.6,
    "attention": 0.4,
    "expert_width": 0.7,
    "width": 0.7,
}


@dataclass(frozen=True, slots=True)
class Sample:
    """A training row as work, with its measured tokens per second and GPU."""

    work: Work
    accelerator: Accelerator
    measured: float
    source: str
    group: str
    row: Row


def samples_of(rows: Iterable[Row], models: Models) -> list[Sample]:
    """Measured training rows that are modelled; rows of low confidence are left out."""
    found = []
    for row in rows:
        value = row.raw.get("value")
        if row.raw.get("metric") != "tok_s_per_gpu" or row.raw.get("confidence") == "low" or not value:
            continue
        try:
            work, accelerator = training_work(row, models)
        except UsageError:
            continue
        source = str(row.raw.get("source"))
        found.append(Sample(work, accelerator, float(value), source, f"{source}|{row.model}|{row.text('gpu')}", row))
    return found


def _parameters() -> list[Parameter]:
    found = []
    for key, value in STARTS.items():
        low, high = BOUNDS.get(key, (0.05, 3.0))
        for name, start in value.items() if isinstance(value, Mapping) else [("", value)]:
            found.append(Parameter(f"{key}.{name}".rstrip("."), start, SPREADS.get(key, 0.3), low, high))
    return found


def _table(parameters: Sequence[Parameter], values: Sequence[float]) -> dict[str, Any]:
    table = copy.deepcopy(dict(STARTS))
    for parameter, value in zip(parameters, values, strict=True):
        key, _, name = parameter.name.partition(".")
        if name:
            table[key][name] = value
        else:
            table[key] = value
    return table


def predicted(sample: Sample, profile: SpeedProfile) -> float:
    """Tokens per second and GPU of a sample under some constants.

    Raises:
        UsageError: the GPU's rate is unknown.
    """
    seconds = token_seconds(sample.work, sample.accelerator, profile=profile)
    if seconds is None:
        raise UsageError(f"a rate of {sample.accelerator.gpu} is not known")
    return 1 / seconds


def fit_training(samples: Sequence[Sample], collectives: Mapping[str, Any]) -> dict[str, Any]:
    """``training`` of the data file from these samples alone, under given constants of links."""
    parameters = _parameters()
    links = {name: read_link(row) for name, row in collectives.items()}
    counts = Counter(sample.group for sample in samples)

    def residuals(values: Sequence[float], rows: Sequence[int]) -> list[float]:
        profile = SpeedProfile({}, links, _table(parameters, values), {}, {}, {})
        return [math.log(predicted(samples[row], profile) / samples[row].measured) for row in rows]

    weights = [1 / math.sqrt(counts[sample.group]) for sample in samples]
    return _table(parameters, fit(parameters, residuals, weights))
