"""Tables of predicted against measured speed: shipped constants and those that never saw the row's source, side by side.

Usage: ``python -m benchmarks.speed_report --rows ROWS.jsonl --models DIR [--left-out LEFT_OUT.jsonl]``. Without the file of
left-out predictions every fit is made here, which takes a few minutes.
"""

from __future__ import annotations

import argparse
import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.left_out import all_outcomes, lines_of
from benchmarks.rows import Models, Row, read_rows
from benchmarks.scoring import percentile
from benchmarks.speed_rows import SpeedPrediction
from benchmarks.speed_targets import BASELINES, FAMILIES, Family, baseline_errors, family_of_row, rank_agreement
from benchmarks.throughput_accuracy import predict

SOURCE_WIDTH = 62
COVERAGE_TARGET, WIDTH_TARGET, ORDER_TARGET = 0.85, 2.5, 0.90


@dataclass(frozen=True, slots=True)
class Scored:
    """A measured row with both predictions."""

    row: Row
    family: Family
    measured: float
    shipped: SpeedPrediction
    left_out: Mapping[str, Any]

    @property
    def shipped_error(self) -> float:
        """Error of the shipped constants."""
        value = self.shipped.value or float("nan")
        return max(value / self.measured, self.measured / value) - 1

    @property
    def left_out_error(self) -> float:
        """Error of constants fitted without the row's source."""
        value = float(self.left_out["value"])
        return max(value / self.measured, self.measured / value) - 1

    @property
    def is_inside(self) -> bool:
        """Whether the left-out band holds the measured value."""
        return bool(self.left_out["low"] <= self.measured <= self.left_out["high"])

    @property
    def width(self) -> float:
        """The left-out band's high end over its low end."""
        return float(self.left_out["high"] / self.left_out["low"])


def scored_rows(rows: Sequence[Row], models: Models, lines: Sequence[Mapping[str, Any]]) -> list[Scored]:
    """Rows that both predict."""
    by_id = {line["id"]: line for line in lines}
    found = []
    for row in rows:
        family = family_of_row(row, models) if row.id in by_id else None
        if family is not None:
            found.append(Scored(row, family, float(row.raw["value"]), predict(row, models), by_id[row.id]))
    return found


def _line(name: str, rows: Sequence[Scored], width: int) -> str:
    shipped, left = [each.shipped_error for each in rows], [each.left_out_error for each in rows]
    inside = sum(each.is_inside for each in rows) / len(rows)
    return (
        f"{name:<{width}}{len(rows):>5}  {percentile(shipped, 0.5):>7.1%}  {percentile(shipped, 0.9):>6.0%}"
        f"  {percentile(left, 0.5):>8.1%}  {percentile(left, 0.9):>6.0%}  {inside:>7.0%}"
        f"  {percentile([each.width for each in rows], 0.5):>5.2f}"
    )


HEAD = "    n  shipped     p90  left out     p90  in band  width"


def family_table(scored: Sequence[Scored]) -> str:
    """One line a family, with its target and whether the left-out errors keep it."""
    lines = [f"{'family':<27}{HEAD}  target"]
    for family in FAMILIES:
        rows = [each for each in scored if each.family is family]
        if rows:
            lines.append(f"{_line(family.name, rows, 27)}  {_target(family, rows)}")
    lines.append(_line("all", scored, 27))
    return "\n".join(lines)


def _target(family: Family, rows: Sequence[Scored]) -> str:
    if family.median is None:
        return "-"
    errors = [each.left_out_error for each in rows]
    kept = percentile(errors, 0.5) <= family.median and (family.p90 is None or percentile(errors, 0.9) <= family.p90)
    high = f", p90 {family.p90:.0%}" if family.p90 is not None else ""
    return f"{family.median:.0%}{high}: {'kept' if kept else 'missed'}"


def source_table(scored: Sequence[Scored]) -> str:
    """One line a source and family."""
    groups: dict[tuple[str, str], list[Scored]] = defaultdict(list)
    for each in scored:
        groups[str(each.row.raw.get("source"))[:SOURCE_WIDTH], each.family.name].append(each)
    lines = [f"{'source':<{SOURCE_WIDTH + 2}}{'family':<27}{HEAD}"]
    for (source, family), rows in sorted(groups.items()):
        lines.append(f"{source:<{SOURCE_WIDTH + 2}}{_line(family, rows, 27)}")
    return "\n".join(lines)


def baseline_table(scored: Sequence[Scored], models: Models) -> str:
    """Simple predictors on the same rows; their constants come from those rows, ours from other sources."""
    lines = [f"{'family':<27}{'baseline':<46}  median    p90  ours left out"]
    for baseline in BASELINES:
        rows = [each for each in scored if each.family is baseline.family]
        if not rows:
            continue
        errors = baseline_errors(baseline, [each.row for each in rows], models)
        ours = percentile([each.left_out_error for each in rows], 0.5)
        lines.append(
            f"{baseline.family.name:<27}{baseline.name:<46}  {percentile(errors, 0.5):>6.1%}"
            f"  {percentile(errors, 0.9):>5.0%}  {ours:>13.1%}"
        )
    return "\n".join(lines)


def order_table(scored: Sequence[Scored]) -> str:
    """Pairs of GPUs in the right order, by metric."""
    left = {each.row.id: float(each.left_out["value"]) for each in scored}
    shipped = {each.row.id: each.shipped.value or 0.0 for each in scored}
    rows = [each.row for each in scored]
    ours, theirs = rank_agreement(rows, left), rank_agreement(rows, shipped)
    lines = [f"{'metric':<24}pairs  shipped  left out"]
    lines += [
        f"{name:<24}{order.pairs:>5}  {theirs[name].right / order.pairs:>7.0%}  {order.right / order.pairs:>8.0%}"
        for name, order in ours.items()
    ]
    pairs = sum(order.pairs for order in ours.values())
    if pairs:
        right, known = (sum(order.right for order in orders.values()) / pairs for orders in (ours, theirs))
        lines.append(f"{'all':<24}{pairs:>5}  {known:>7.0%}  {right:>8.0%}")
    return "\n".join(lines)


def report(rows: Sequence[Row], models: Models, lines: Sequence[Mapping[str, Any]]) -> str:
    """All tables, one under the other."""
    scored = scored_rows(rows, models, lines)
    inside = sum(each.is_inside for each in scored) / len(scored)
    width = percentile([each.width for each in scored], 0.5)
    band = (
        f"{inside:.0%} of measured values lie inside the left-out band (target {COVERAGE_TARGET:.0%}); its ends are a "
        f"factor {width:.2f} apart in the median (target {WIDTH_TARGET:g})"
    )
    return "\n\n".join(
        (
            family_table(scored),
            band,
            baseline_table(scored, models),
            f"GPUs measured alike and over 15 % apart, in the right order (target {ORDER_TARGET:.0%}):",
            order_table(scored),
            source_table(scored),
        )
    )


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rows", type=Path, required=True)
    parser.add_argument("--models", type=Path, required=True)
    parser.add_argument("--left-out", type=Path)
    options = parser.parse_args()
    rows, models = list(read_rows(options.rows)), Models(options.models)
    if options.left_out is None:
        lines: Sequence[Mapping[str, Any]] = lines_of(all_outcomes(rows, models))
    else:
        lines = [json.loads(line) for line in options.left_out.read_text(encoding="utf-8").splitlines()]
    print(report(rows, models, lines))


if __name__ == "__main__":
    main()
