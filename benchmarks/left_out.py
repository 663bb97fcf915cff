"""Predictions of rows by constants that never saw their source: every fit is made once more without it.

Usage: ``python -m benchmarks.left_out --rows ROWS.jsonl --models DIR --out LEFT_OUT.jsonl``. A source is the page that a figure
was published on. Bands too come from the other sources: the factor that holds ``COVERED`` of their left-out rows of the kind.
"""

from __future__ import annotations

import argparse
import json
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks import fit_diffusion, fit_serving, fit_training
from benchmarks.compute_rows import band_of_work
from benchmarks.rows import Models, Row, read_rows
from benchmarks.scoring import percentile
from benchmarks.speed_rows import band_of
from provisioner.sizing.speed_profile import speed_document

COVERED = 0.90
"""Share of rows that a band is made to hold, some above the promised 85 % because other sources differ."""
KINDS = ("single", "prompt", "batched", "batched-experts", "training", "training-experts", "diffusion")
FEWEST = 12
"""Rows below which a kind's own quantile says nothing; it takes the widest band of the others."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """A row's left-out prediction beside its measured value."""

    row: Row
    kind: str
    source: str
    measured: float
    predicted: float

    @property
    def error(self) -> float:
        """max(predicted / measured, measured / predicted) - 1."""
        return max(self.predicted / self.measured, self.measured / self.predicted) - 1


def serving_outcomes(rows: Sequence[Row], models: Models) -> list[Outcome]:
    """Serving rows, each source predicted by fits without it."""
    samples = fit_serving.samples_of(rows, models)
    fitter = fit_serving.ServingFitter()
    found = []
    for source in sorted({sample.source for sample in samples}):
        constants = fitter.fit([sample for sample in samples if sample.source != source])
        profile = fit_serving.profile_of(constants, speed_document())
        found += [
            Outcome(sample.row, band_of(sample.case), source, sample.measured, sample.case.value(profile))
            for sample in samples
            if sample.source == source
        ]
    return found


def training_outcomes(rows: Sequence[Row], models: Models) -> list[Outcome]:
    """Training rows, each source predicted by fits without it; links are those of the data file."""
    samples = fit_training.samples_of(rows, models)
    links = speed_document()["collectives"]
    found = []
    for source in sorted({sample.source for sample in samples}):
        table = fit_training.fit_training([sample for sample in samples if sample.source != source], links)
        profile = fit_serving.profile_of({"training": table}, speed_document())
        found += [
            Outcome(
                sample.row,
                band_of_work(sample.work),
                source,
                sample.measured,
                fit_training.predicted(sample, profile),
            )
            for sample in samples
            if sample.source == source
        ]
    return found


def image_outcomes(rows: Sequence[Row]) -> list[Outcome]:
    """Rows of images and clips, each source predicted by fits without it."""
    samples = fit_diffusion.samples_of(rows)
    found = []
    for source in sorted({sample.source for sample in samples}):
        table = fit_diffusion.fit_diffusion([sample for sample in samples if sample.source != source])
        profile = fit_serving.profile_of({"diffusion": table}, speed_document())
        found += [
            Outcome(sample.row, "diffusion", source, sample.measured, sample.case.value(profile))
            for sample in samples
            if sample.source == source
        ]
    return found


def band_factors(outcomes: Iterable[Outcome], without: str | None = None) -> dict[str, float]:
    """Factor up and down by kind that holds ``COVERED`` of the rows, those of one source left aside."""
    errors: dict[str, list[float]] = defaultdict(list)
    for outcome in outcomes:
        if outcome.source != without:
            errors[outcome.kind].append(outcome.error)
    known = {kind: 1 + percentile(values, COVERED) for kind, values in errors.items() if len(values) >= FEWEST}
    widest = max(known.values(), default=2.0)
    return {kind: known.get(kind, widest) for kind in KINDS}


def all_outcomes(rows: Sequence[Row], models: Models) -> list[Outcome]:
    """Every modelled row with its left-out prediction."""
    parts: Sequence[Callable[[], list[Outcome]]] = (
        lambda: serving_outcomes(rows, models),
        lambda: training_outcomes(rows, models),
        lambda: image_outcomes(rows),
    )
    return [outcome for part in parts for outcome in part()]


def lines_of(outcomes: Sequence[Outcome]) -> list[Mapping[str, Any]]:
    """One line a row in the form of the scoring command, with the row's kind."""
    bands = {source: band_factors(outcomes, source) for source in {outcome.source for outcome in outcomes}}
    lines: list[Mapping[str, Any]] = []
    for outcome in outcomes:
        band = bands[outcome.source][outcome.kind]
        low, high = outcome.predicted / band, outcome.predicted * band
        lines.append({"id": outcome.row.id, "kind": outcome.kind, "value": outcome.predicted, "low": low, "high": high})
    return lines


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rows", type=Path, required=True)
    parser.add_argument("--models", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    rows = list(read_rows(options.rows))
    with options.out.open("w", encoding="utf-8") as out:
        for line in lines_of(all_outcomes(rows, Models(options.models))):
            print(json.dumps(line), file=out)


if __name__ == "__main__":
    main()
