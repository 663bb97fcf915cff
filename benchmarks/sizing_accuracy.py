"""Score memory predictions on measured rows (CONTRACTS section 6).

Usage: ``python -m benchmarks.sizing_accuracy --rows ROWS.jsonl [--models DIR] --out PRED.jsonl``; without a folder only bundled
models are known. "In band" and "width" are of complete rows.

A prediction sees ``family``, ``model``, ``model_config``, ``inputs`` and ``norm`` without its values; ``id``, ``kind``,
``source``, ``notes`` and ``measured`` are read for the score alone.
"""

from __future__ import annotations

import argparse
import json
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import mean, median
from typing import Any

from benchmarks.audio_rows import predict_audio
from benchmarks.diffusion_rows import predict_diffusion
from benchmarks.rows import Models, Row, read_rows
from benchmarks.scoring import relative_error, summary, within_band
from benchmarks.serving_rows import Prediction, predict_serving
from benchmarks.training_rows import predict_training
from provisioner.errors import UsageError
from provisioner.sizing.pipelines import IMAGE, VIDEO, PipelineShape

CONTROL_OVERHEAD_GIB = 2.0
"""The control of sizing.md section 6: usable memory x fraction - weights - 2.0 GiB."""
CONTROL_USABLE_GIB = 79.18
MIB_UNITS = ("mib",)
TRUTH = Path("tests") / "data" / "truth" / "measured.jsonl"


def predict(row: Row, models: Models) -> Prediction:
    """The answer to one row; a row that is not modelled says why."""
    try:
        kind = _kind_of(row, models)
        if kind == "serve":
            return predict_serving(row, models)
        if kind in ("finetune", "pretrain"):
            return predict_training(row, models)
        if kind == "diffusion":
            return predict_diffusion(row)
        if kind == "audio":
            return predict_audio(row)
    except UsageError as error:
        return Prediction("unsupported", reason=str(error))
    return Prediction("unsupported", reason=f"rows of family {row.family!r} are not modelled")


def _kind_of(row: Row, models: Models) -> str:
    """Family of a row, but for pipelines that are served or trained under another one."""
    if "whisper" in f"{row.model} {row.text('engine')}".lower():
        return "audio"
    if row.family not in ("serve", "finetune", "pretrain", "diffusion"):
        return row.family
    try:
        shape = models.find(row)
    except UsageError:
        return row.family
    if not isinstance(shape, PipelineShape):
        return row.family
    return "diffusion" if shape.modality in (IMAGE, VIDEO) else "audio"


def answer(row: Row, prediction: Prediction) -> dict[str, Any]:
    """The contracted line of a row."""

    def rounded(value: float | None) -> float | None:
        return None if value is None else round(value, 4)

    components = prediction.components if row.norm.get("meter") == "components" else None
    return {
        "id": row.id,
        "status": prediction.status,
        "gib": rounded(prediction.gib),
        "low_gib": rounded(prediction.low_gib),
        "high_gib": rounded(prediction.high_gib),
        "fits": prediction.fits,
        "reason": prediction.reason,
        "components": None if components is None else {key: rounded(value) for key, value in components.items()},
    }


@dataclass(slots=True)
class Tally:
    """Scores of one family."""

    rows: int = 0
    predicted: int = 0
    errors: list[float] = field(default_factory=list)
    by_source: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    in_band: list[bool] = field(default_factory=list)
    """Of complete rows: whether the band meets the figure."""
    widths: list[float] = field(default_factory=list)
    """Of the same rows: the band's width over the prediction."""
    ran_out: int = 0
    ran: int = 0
    wrong_fit: int = 0
    wrong_refusal: int = 0
    borderline: int = 0

    def add(self, row: Row, prediction: Prediction) -> None:
        """Count one row."""
        self.rows += 1
        if prediction.status != "predicted" or prediction.gib is None:
            return
        self.predicted += 1
        error = relative_error(prediction.gib, row.raw.get("norm") or {})
        if error is not None:
            self.errors.append(error)
            self.by_source[str(row.raw.get("source") or "unknown")[:48]].append(error)
        self._add_band(row, prediction)
        kind = row.raw.get("kind")
        if kind in ("oom", "fit"):
            self.ran_out += kind == "oom"
            self.ran += kind == "fit"
            self.wrong_fit += kind == "oom" and prediction.fits is True
            self.wrong_refusal += kind == "fit" and prediction.fits is False
            self.borderline += prediction.fits is None

    def _add_band(self, row: Row, prediction: Prediction) -> None:
        if prediction.low_gib is None or prediction.high_gib is None or not row.norm.get("complete"):
            return
        found = within_band(prediction.low_gib, prediction.high_gib, row.raw.get("norm") or {})
        if found is not None and prediction.gib:
            self.in_band.append(found)
            self.widths.append((prediction.high_gib - prediction.low_gib) / prediction.gib)


@dataclass(slots=True)
class Pools:
    """Errors of cache pools in GiB, ours and the control's, on the same rows."""

    ours: list[float] = field(default_factory=list)
    control: list[float] = field(default_factory=list)
    pools: list[float] = field(default_factory=list)
    """The published pools, in GiB."""

    def add(self, row: Row, prediction: Prediction) -> None:
        """Count a start-up row that states weights and pool."""
        measured = row.raw.get("measured") or {}
        weights, pool = measured.get("weights"), measured.get("kv_available")
        fraction = row.number("gpu_memory_utilization")
        if not isinstance(weights, (int, float)) or not isinstance(pool, (int, float)) or fraction is None:
            return
        if prediction.components is None or not row.text("engine").startswith("vLLM"):
            return
        if any(unit in str(measured.get("unit", "")).lower() for unit in MIB_UNITS):
            return
        usable = row.number("gpu_total_gib") or CONTROL_USABLE_GIB
        if row.number("gpu_total_gib") is None and "80" not in str(row.norm.get("gpu_mem_gb")):
            return
        # The control is given the true weights, so ours is corrected by the same knowledge.
        corrected = prediction.components["kv_available"] + prediction.components["weights"] - weights
        self.pools.append(pool)
        self.ours.append(corrected - pool)
        self.control.append(usable * fraction - weights - CONTROL_OVERHEAD_GIB - pool)


def run(
    rows: Iterable[Row], models: Models, emit: Callable[[Mapping[str, Any]], None]
) -> tuple[dict[str, Tally], Pools]:
    """Predict and score all rows."""
    tallies: dict[str, Tally] = defaultdict(Tally)
    pools = Pools()
    for row in rows:
        prediction = predict(row, models)
        emit(answer(row, prediction))
        tallies[row.family].add(row, prediction)
        pools.add(row, prediction)
    return tallies, pools


def table(tallies: Mapping[str, Tally]) -> str:
    """The contracted table, one line a family."""
    lines = ["family      n  coverage  scored  median    p90   in band  width   wrong fit  wrong refusal  borderline"]
    for family in sorted(tallies):
        tally = tallies[family]
        score = summary(tally.errors)
        lines.append(
            f"{family:<10}{tally.rows:>4}  {tally.predicted / tally.rows:>7.0%}  {len(tally.errors):>6}"
            f"  {score['median']:>6.1%} {score['p90']:>6.1%}   {_share(tally.in_band):>6}  {_middle(tally.widths):>5}"
            f"{tally.wrong_fit:>5} of {tally.ran_out:<4}{tally.wrong_refusal:>6} of {tally.ran:<5}{tally.borderline:>6}"
        )
    return "\n".join(lines)


def _share(found: Sequence[bool]) -> str:
    return f"{mean(found):.0%}" if found else "-"


def _middle(widths: Sequence[float]) -> str:
    return f"{median(widths):.0%}" if widths else "-"


def source_table(tallies: Mapping[str, Tally]) -> str:
    """Errors by family and source."""
    lines = ["family      source                                             n   median    p90"]
    for family in sorted(tallies):
        for source, errors in sorted(tallies[family].by_source.items()):
            score = summary(errors)
            lines.append(f"{family:<10}  {source:<48}{len(errors):>4}  {score['median']:>6.1%}  {score['p90']:>6.1%}")
    return "\n".join(lines)


def pool_text(pools: Pools) -> str:
    """Our pool error beside the control's."""
    if not pools.ours:
        return "no rows with a cache pool"

    def text(errors: Sequence[float]) -> str:
        worst = f"worst over {max(errors):+.2f}, under {min(errors):+.2f}"
        return f"mean absolute error {mean(map(abs, errors)):.2f} GiB, {worst}"

    return (
        f"vLLM cache pool given the weights, {len(pools.ours)} rows\n"
        f"  ours:    {text(pools.ours)}\n"
        f"  control: {text(pools.control)} (usable x fraction - weights - {CONTROL_OVERHEAD_GIB:g} GiB)"
    )


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rows", type=Path, required=True)
    parser.add_argument("--models", type=Path, help="folder of config.json files for models that are not bundled")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--sources", action="store_true", help="also a table by source")
    options = parser.parse_args()
    with options.out.open("w", encoding="utf-8") as out:
        tallies, pools = run(
            read_rows(options.rows),
            Models(options.models),
            lambda line: print(json.dumps(line, ensure_ascii=False), file=out),
        )
    print(table(tallies))
    print()
    print(pool_text(pools))
    if options.sources:
        print()
        print(source_table(tallies))


if __name__ == "__main__":
    main()
