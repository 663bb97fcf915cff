"""Fit the constants of memory sizing again with one published source left out, and score that source.

Usage: ``python -m benchmarks.refit [--rows ROWS.jsonl] [--all]``. ``--all`` prints the values that all sources together give,
which ``provisioner/sizing/constants.py`` ships; otherwise two tables say how far each source, and each family, is predicted with
the shipped constants and with those of the others. Profiles of engine versions that were read from a source are left out with
it: its rows are then predicted by the nearest version that another source taught.

The search is coordinate by coordinate over fixed grids, from values that hold without any measurement: no chance, no numpy.
"""

from __future__ import annotations

import argparse
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from math import log, sqrt
from pathlib import Path
from statistics import mean

from benchmarks.rows import Models, Row, read_rows
from benchmarks.scoring import relative_error, summary, within_band
from benchmarks.serving_rows import Prediction
from benchmarks.sizing_accuracy import TRUTH, Pools, predict
from provisioner.sizing.constants import Constants, replaced
from provisioner.sizing.engines import profiles_without


@dataclass(frozen=True, slots=True)
class Search:
    """Where a constant starts without measurements, and the values it may take."""

    prior: float
    low: float
    high: float

    @property
    def grid(self) -> tuple[float, ...]:
        """Evenly spaced values, ends included."""
        return tuple(self.low + (self.high - self.low) * step / (GRID - 1) for step in range(GRID))


GRID = 21
PASSES = 3
CAP = 0.5
"""Errors count up to this: one odd row does not pull a constant."""
GAIN = 0.0005
"""Least gain of the mean error for which a constant leaves its prior."""
SEARCHES: Mapping[str, Search] = {
    "backward_working": Search(1.25, 1.0, 1.6),
    "selective_share": Search(0.27, 0.15, 0.55),
    "compiled_loss_bytes": Search(10.0, 6.0, 16.0),
    "metric_loss_bytes": Search(8.0, 0.0, 30.0),
    "eager_working_bytes": Search(12.0, 6.0, 20.0),
    "adapter_stored_share": Search(1.0, 0.5, 1.5),
    "gathered_layers": Search(2.0, 1.0, 3.0),
    "reserved_states_share": Search(0.02, 0.0, 0.10),
    "reserved_activations_share": Search(0.10, 0.0, 0.60),
    "unet_latent_bytes": Search(60_000.0, 20_000.0, 120_000.0),
    "unet_stored_factor": Search(6.0, 2.0, 12.0),
    "unet_checkpointed_factor": Search(3.0, 1.0, 6.0),
    "block_elements": Search(34.0, 20.0, 60.0),
    "decode_pixel_bytes": Search(2_048.0, 800.0, 4_000.0),
    "conversion_gib": Search(0.3, 0.0, 1.0),
}
"""Priors are counts: a recomputed layer with a quarter of its gradients, two prefetched layers, eight tensors of 128 channels in
a decoder, logits in 16 bit with an fp32 copy and its gradient, and so on."""


@dataclass(slots=True)
class Table:
    """Scored rows with their models, and which rows each constant moves."""

    rows: Sequence[Row]
    models: Models
    touched: dict[str, tuple[int, ...]] = field(default_factory=dict)

    def error(self, index: int) -> float | None:
        """Signed error of a row under the constants in use."""
        return error_of(self.rows[index], predict(self.rows[index], self.models))

    def in_band(self, index: int) -> bool:
        """Whether the band of a row meets its figure under the constants in use."""
        row = self.rows[index]
        found = predict(row, self.models)
        if found.low_gib is None or found.high_gib is None:
            return False
        return bool(within_band(found.low_gib, found.high_gib, row.raw.get("norm") or {}))


def error_of(row: Row, prediction: Prediction) -> float | None:
    """Signed error of a prediction, ``None`` where the row has no figure."""
    if prediction.gib is None:
        return None
    return relative_error(prediction.gib, row.raw.get("norm") or {})


def source_of(row: Row) -> str:
    """Who published a row: a repository (with the issue, where it is one), a package and version, or a page."""
    words = str(row.raw.get("source") or "unknown").split()
    if "/" in words[0]:
        return words[0]
    return " ".join(words[: 2 if any(letter.isdigit() for letter in words[min(1, len(words) - 1)]) else 4])


def scored_table(rows: Iterable[Row], models: Models) -> Table:
    """Rows with a figure that are predicted, and the rows that each constant moves."""
    table = Table([row for row in rows if error_of(row, predict(row, models)) is not None], models)
    for name, search in SEARCHES.items():
        with replaced(**{name: search.low}):
            low = [table.error(index) for index in range(len(table.rows))]
        with replaced(**{name: search.high}):
            table.touched[name] = tuple(i for i, before in enumerate(low) if table.error(i) != before)
    return table


def fit(table: Table, left_out: str | None = None, names: Collection[str] = tuple(SEARCHES)) -> dict[str, float]:
    """Values of constants that predict the rows best, each source weighing as the root of its size; others stay as shipped."""
    sizes: dict[str, int] = defaultdict(int)
    for row in table.rows:
        sizes[source_of(row)] += 1
    values = {name: SEARCHES[name].prior for name in names}
    indices = {name: tuple(i for i in table.touched[name] if source_of(table.rows[i]) != left_out) for name in values}
    with ExitStack() as stack:
        stack.enter_context(replaced(**values))
        for _ in range(PASSES):
            for name, touched in indices.items():
                if touched:
                    values[name] = _best(table, name, touched, sizes)
                    setattr(Constants, name, values[name])
    return values


def _best(table: Table, name: str, touched: Sequence[int], sizes: Mapping[str, int]) -> float:
    """The value of one constant, the others as they are."""

    def cost(value: float) -> float:
        setattr(Constants, name, value)
        total = weight = 0.0
        for index in touched:
            share = 1 / sqrt(sizes[source_of(table.rows[index])])
            total += share * min(CAP, abs(log(1 + (table.error(index) or 0.0))))
            weight += share
        return total / weight

    prior = SEARCHES[name].prior
    costs = {value: cost(value) for value in (*SEARCHES[name].grid, prior)}
    best = min(costs, key=lambda value: (costs[value], abs(value - prior)))
    return best if costs[best] < costs[prior] - GAIN else prior


@dataclass(slots=True)
class Scores:
    """Errors with the shipped constants, and with those fitted without the source."""

    shipped: list[float] = field(default_factory=list)
    left_out: list[float] = field(default_factory=list)
    in_band: list[bool] = field(default_factory=list)
    """Of complete rows, with the constants of the others."""


def leave_out(table: Table) -> dict[tuple[str, str], Scores]:
    """Scores by family and source, each source predicted by what the others teach."""
    scores: dict[tuple[str, str], Scores] = defaultdict(Scores)
    groups: dict[str, list[int]] = defaultdict(list)
    for index, row in enumerate(table.rows):
        groups[source_of(row)].append(index)
    for source, indices in sorted(groups.items()):
        moved = [name for name in SEARCHES if not set(table.touched[name]).isdisjoint(indices)]
        with replaced(**fit(table, source, moved)), profiles_without(source):
            after = [(table.error(index), table.in_band(index)) for index in indices]
        for index, (error, in_band) in zip(indices, after, strict=True):
            key = (table.rows[index].family, source)
            scores[key].shipped.append(table.error(index) or 0.0)
            # A row that no remaining profile can serve counts as wrong by the cap.
            scores[key].left_out.append(CAP if error is None else error)
            if table.rows[index].norm.get("complete"):
                scores[key].in_band.append(in_band)
    return dict(scores)


@dataclass(slots=True)
class PoolScores:
    """Errors of cache pools with all profiles, and without those that the row's own source taught."""

    shipped: Pools = field(default_factory=Pools)
    left_out: Pools = field(default_factory=Pools)


def leave_out_pools(rows: Iterable[Row], models: Models) -> PoolScores:
    """Errors of vLLM's cache pool, each row predicted by profiles that others taught."""
    scores = PoolScores()
    for row in rows:
        if row.family == "serve" and row.norm.get("meter") == "components":
            scores.shipped.add(row, predict(row, models))
            with profiles_without(source_of(row)):
                scores.left_out.add(row, predict(row, models))
    return scores


def pool_table(scores: PoolScores) -> str:
    """Errors of cache pools beside those of the control, which knows nothing of versions."""
    lines = ["vLLM cache pool given the weights      rows   mean GiB   median    p90"]
    shipped, left = scores.shipped, scores.left_out
    for title, errors, pools in (
        ("shipped profiles", shipped.ours, shipped.pools),
        ("without the row's own source", left.ours, left.pools),
        ("control: usable x fraction - weights - 2", shipped.control, shipped.pools),
    ):
        share = summary([error / pool for error, pool in zip(errors, pools, strict=True)])
        mean = sum(map(abs, errors)) / max(1, len(errors))
        lines.append(f"{title:<40}{len(errors):>3}{mean:>11.2f}{share['median']:>9.1%}{share['p90']:>7.1%}")
    return "\n".join(lines)


def family_table(scores: Mapping[tuple[str, str], Scores]) -> str:
    """Both errors by family."""
    lines = ["family     sources  rows   shipped: median    p90   left out: median    p90  in band"]
    families: dict[str, list[Scores]] = defaultdict(list)
    for (family, _), score in sorted(scores.items()):
        families[family].append(score)
    for family, parts in families.items():
        shipped = summary([error for part in parts for error in part.shipped])
        left = summary([error for part in parts for error in part.left_out])
        held = [found for part in parts for found in part.in_band]
        lines.append(
            f"{family:<11}{len(parts):>7}{shipped['n']:>6}   {shipped['median']:>15.1%}{shipped['p90']:>7.1%}"
            f"   {left['median']:>16.1%}{left['p90']:>7.1%}{mean(held):>9.0%}"
        )
    return "\n".join(lines)


def source_table(scores: Mapping[tuple[str, str], Scores]) -> str:
    """Both errors by source."""
    lines = ["family     source                                                     rows   shipped      left out"]
    for (family, source), score in sorted(scores.items()):
        shipped, left = summary(score.shipped), summary(score.left_out)
        lines.append(
            f"{family:<11}{source[:58]:<58}{shipped['n']:>5}{shipped['median']:>7.1%}{shipped['p90']:>7.1%}"
            f"{left['median']:>7.1%}{left['p90']:>7.1%}"
        )
    return "\n".join(lines)


def constants_table(table: Table, values: Mapping[str, float]) -> str:
    """Shipped, fitted and prior value of each constant, and the rows and sources that move it."""
    lines = ["constant                     shipped    fitted     prior  rows  sources"]
    for name, value in values.items():
        sources = sorted({source_of(table.rows[index]) for index in table.touched[name]})
        figures = f"{getattr(Constants, name):>10g}{value:>10g}{SEARCHES[name].prior:>10g}{len(table.touched[name]):>6}"
        lines.append(f"{name:<26}{figures}  {', '.join(text.split('/')[-1] for text in sources)}")
    return "\n".join(lines)


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rows", type=Path, default=TRUTH)
    parser.add_argument("--all", action="store_true", help="fit on every source and print the values")
    options = parser.parse_args()
    table = scored_table(read_rows(options.rows), Models(None))
    if options.all:
        print(constants_table(table, fit(table)))
        return
    scores = leave_out(table)
    print(family_table(scores))
    print()
    print(pool_table(leave_out_pools(read_rows(options.rows), table.models)))
    print()
    print(source_table(scores))


if __name__ == "__main__":
    main()
