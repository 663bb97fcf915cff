"""Scoring predictions against measured figures: errors inside and outside of ranges, per family and source."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import mean, median
from typing import Any


def relative_error(predicted: float, norm: Mapping[str, Any]) -> float | None:
    """Prediction over measured value - 1; inside a range 0, outside it the distance to the nearer end."""
    value = norm.get("value_gib")
    if value is not None:
        return float(predicted / value - 1) if value else None
    low, high = norm.get("value_gib_min"), norm.get("value_gib_max")
    if low is None or high is None:
        return None
    if predicted < low:
        return float(predicted / low - 1)
    return float(predicted / high - 1) if predicted > high else 0.0


def within_band(low: float, high: float, norm: Mapping[str, Any]) -> bool | None:
    """Whether a band meets the measured value or range; ``None`` where the row has neither."""
    value = norm.get("value_gib")
    least = norm.get("value_gib_min") if value is None else value
    most = norm.get("value_gib_max") if value is None else value
    return None if least is None or most is None else low <= most and high >= least


def percentile(values: Sequence[float], share: float) -> float:
    """Value below which a share of the values lies (linear between ranks)."""
    ordered = sorted(values)
    if not ordered:
        return float("nan")
    position = share * (len(ordered) - 1)
    lower = int(position)
    upper = min(lower + 1, len(ordered) - 1)
    return ordered[lower] + (ordered[upper] - ordered[lower]) * (position - lower)


def summary(errors: Sequence[float]) -> dict[str, float]:
    """Median, mean and 90th percentile of absolute errors, worst over and under."""
    absolute = [abs(error) for error in errors]
    return {
        "n": len(errors),
        "median": median(absolute) if absolute else float("nan"),
        "mean": mean(absolute) if absolute else float("nan"),
        "p90": percentile(absolute, 0.9),
        "over": max(errors, default=float("nan")),
        "under": min(errors, default=float("nan")),
    }
