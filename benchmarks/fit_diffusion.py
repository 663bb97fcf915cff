"""Constants of image and video generation from measured rows, each drawn to a round figure where rows say little."""

from __future__ import annotations

import copy
import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from benchmarks.compute_rows import ImageCase, image_case
from benchmarks.least_squares import Parameter, fit
from benchmarks.rows import Row
from provisioner.errors import UsageError
from provisioner.sizing.speed_profile import FAMILIES, OTHER, SpeedProfile

HARDWARE = tuple(dict.fromkeys([*FAMILIES.values(), OTHER]))
METRICS = ("it_s", "s_per_it", "e2e_s")
STARTS: Mapping[str, Any] = {
    "unet": dict.fromkeys(HARDWARE, 0.35),
    "transformer": dict.fromkeys(HARDWARE, 0.42),
    "compiled": 1.25,
    "compiled_host": 0.5,
    "control": 0.4,
    "host_ms": 12.0,
}
"""Convolutions reach a third of the matrix rate, large attention and products somewhat more; Python launches take 12 ms a step."""
BOUNDS = {"host_ms": (1.0, 60.0), "compiled": (1.0, 2.5), "compiled_host": (0.1, 1.0), "control": (0.2, 0.7)}


@dataclass(frozen=True, slots=True)
class Sample:
    """An image row with its measured value."""

    case: ImageCase
    measured: float
    source: str
    group: str
    row: Row


def samples_of(rows: Iterable[Row]) -> list[Sample]:
    """Measured rows of images and clips that are modelled; rows of low confidence are left out."""
    found = []
    for row in rows:
        metric, value = str(row.raw.get("metric")), row.raw.get("value")
        if metric not in METRICS or row.raw.get("confidence") == "low" or not value:
            continue
        try:
            case = image_case(row, metric)
        except UsageError:
            continue
        source = str(row.raw.get("source"))
        found.append(Sample(case, float(value), source, f"{source}|{row.text('model')}|{row.text('gpu')}", row))
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


def fit_diffusion(samples: Sequence[Sample]) -> dict[str, Any]:
    """``diffusion`` of the data file from these samples alone."""
    parameters = [
        Parameter(f"{key}.{name}".rstrip("."), start, 0.35, *BOUNDS.get(key, (0.05, 0.95)))
        for key, value in STARTS.items()
        for name, start in (value.items() if isinstance(value, Mapping) else [("", value)])
    ]
    counts = Counter(sample.group for sample in samples)

    def residuals(values: Sequence[float], rows: Sequence[int]) -> list[float]:
        profile = SpeedProfile({}, {}, {}, _table(parameters, values), {}, {})
        return [math.log(samples[row].case.value(profile) / samples[row].measured) for row in rows]

    weights = [1 / math.sqrt(counts[sample.group]) for sample in samples]
    return _table(parameters, fit(parameters, residuals, weights))
