"""Score predictions of speed on measured rows (CONTRACTS section 6).

Usage: ``python -m benchmarks.throughput_accuracy --rows ROWS.jsonl [--models DIR] --out PRED.jsonl``.

A prediction sees the metric's name, the model and the conditions; the value, ``id``, ``source``, ``notes``, ``also`` and
``confidence`` are read for the score alone. Errors count both ways alike: ``max(predicted / measured, measured / predicted) - 1``.
"""

from __future__ import annotations

import argparse
import json
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.compute_rows import predict_collective, predict_image_speed, predict_training_speed
from benchmarks.rows import Models, Row, read_rows
from benchmarks.scoring import summary
from benchmarks.speed_rows import SpeedPrediction, predict_serving_speed
from provisioner.errors import UsageError

TRAINING = ("tok_s_per_gpu",)
IMAGES = ("it_s", "s_per_it", "e2e_s")
COLLECTIVES = ("allreduce_busbw_gb_s", "allreduce_latency_ms")
SERVING = (
    "decode_tok_s_per_seq",
    "tpot_ms",
    "ttft_ms",
    "output_tok_s_total",
    "output_tok_s_per_gpu",
    "total_tok_s",
    "prefill_tok_s",
    "prompt_plus_gen_tok_s",
)


def predict(row: Row, models: Models) -> SpeedPrediction:
    """The answer to one row; a row that is not modelled says why."""
    metric = str(row.raw.get("metric"))
    try:
        if metric in SERVING:
            return predict_serving_speed(row, metric, models)
        if metric in TRAINING:
            return predict_training_speed(row, models)
        if metric in IMAGES:
            return predict_image_speed(row, metric)
        if metric in COLLECTIVES:
            return predict_collective(row, metric)
    except UsageError as error:
        return SpeedPrediction("unsupported", reason=str(error))
    return SpeedPrediction("unsupported", reason=f"metric {metric!r} is not modelled")


def answer(row: Row, prediction: SpeedPrediction) -> dict[str, Any]:
    """The contracted line of a row."""

    def rounded(value: float | None) -> float | None:
        return None if value is None else float(f"{value:.5g}")

    return {
        "id": row.id,
        "status": prediction.status,
        "value": rounded(prediction.value),
        "low": rounded(prediction.low),
        "high": rounded(prediction.high),
        "bound_by": prediction.bound_by,
        "reason": prediction.reason,
    }


@dataclass(slots=True)
class Tally:
    """Scores of one kind of row."""

    rows: int = 0
    predicted: int = 0
    inside: int = 0
    errors: list[float] = field(default_factory=list)

    def add(self, row: Row, prediction: SpeedPrediction) -> None:
        """Count one row; its value is read here and nowhere else."""
        self.rows += 1
        measured = row.raw.get("value")
        if prediction.value is None:
            return
        self.predicted += 1
        if not isinstance(measured, (int, float)) or measured <= 0:
            return
        self.errors.append(max(prediction.value / measured, measured / prediction.value) - 1)
        self.inside += (prediction.low or 0) <= measured <= (prediction.high or 0)


def table(tallies: Mapping[tuple[str, str], Tally]) -> str:
    """One line per kind and metric (or source)."""
    width = max((len(name) for _, name in tallies), default=8) + 2
    lines = [f"{'kind':<14}{'':<{width}}   n  coverage  scored  median     p90  in band"]
    for (kind, name), tally in sorted(tallies.items()):
        score = summary(tally.errors)
        inside = f"{tally.inside / len(tally.errors):>7.0%}" if tally.errors else "      -"
        lines.append(
            f"{kind:<14}{name:<{width}}{tally.rows:>4}  {tally.predicted / tally.rows:>7.0%}  {len(tally.errors):>6}"
            f"  {score['median']:>6.1%}  {score['p90']:>6.0%}  {inside}"
        )
    return "\n".join(lines)


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rows", type=Path, required=True)
    parser.add_argument("--models", type=Path, help="folder of config.json files for models that are not bundled")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--sources", action="store_true", help="also a table by source")
    options = parser.parse_args()
    by_metric: dict[tuple[str, str], Tally] = defaultdict(Tally)
    by_source: dict[tuple[str, str], Tally] = defaultdict(Tally)
    models = Models(options.models)
    with options.out.open("w", encoding="utf-8") as out:
        for row in read_rows(options.rows):
            prediction = predict(row, models)
            print(json.dumps(answer(row, prediction), ensure_ascii=False), file=out)
            if row.raw.get("confidence") == "low":
                continue
            by_metric[row.family, str(row.raw.get("metric"))].add(row, prediction)
            by_source[row.family, str(row.raw.get("source"))[:56]].add(row, prediction)
    print(table(by_metric))
    if options.sources:
        print()
        print(table(by_source))


if __name__ == "__main__":
    main()
