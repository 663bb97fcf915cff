"""``python -m tests.proofs.sizing --out PAGE``: predictions of memory scored on all published rows and on left-out sources.

The tables are what the scoring commands print; nothing is selected or rounded here. The same run renews the short tables of
README.md and docs/sizing.md between their marks.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from benchmarks import refit, sizing_accuracy
from benchmarks.rows import Models, read_rows
from benchmarks.scoring import summary

ROOT = Path(__file__).parents[2]
PAGES = (ROOT / "README.md", ROOT / "docs" / "sizing.md")
MARKS = re.compile(r"(<!-- made by make proof-sizing -->\n).*?(<!-- end -->)", re.DOTALL)
NAMES = {"serve": "serving", "finetune": "fine-tuning", "pretrain": "pre-training", "diffusion": "image and video"}


@dataclass(frozen=True, slots=True)
class Result:
    """Everything that a run scores."""

    tallies: Mapping[str, sizing_accuracy.Tally]
    pools: sizing_accuracy.Pools
    table: refit.Table
    scores: Mapping[tuple[str, str], refit.Scores]
    left_out_pools: refit.PoolScores


def score() -> Result:
    """Score every row with the shipped constants, and every source with those of the others."""
    rows = list(read_rows(ROOT / sizing_accuracy.TRUTH))
    models = Models(None)
    tallies, pools = sizing_accuracy.run(rows, models, lambda _line: None)
    table = refit.scored_table(rows, models)
    return Result(tallies, pools, table, refit.leave_out(table), refit.leave_out_pools(rows, models))


def short_table(result: Result, today: str) -> str:
    """The figures that matter, for people, with their date."""
    lines = [
        f"Run on {today}. *Left out* predicts each source with constants fitted on the others; a wrong fit ran out of memory.",
        "",
        "| family | rows | covered | median | 90th | left out: median | 90th | in band | wrong fits | wrong refusals |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    for family, name in NAMES.items():
        tally = result.tallies[family]
        shipped = summary(tally.errors)
        parts = [score for (kind, _), score in result.scores.items() if kind == family]
        left = summary([error for part in parts for error in part.left_out])
        held = sum(tally.in_band) / len(tally.in_band)
        lines.append(
            f"| {name} | {tally.rows} | {tally.predicted / tally.rows:.0%} | {shipped['median']:.1%}"
            f" | {shipped['p90']:.1%} | {left['median']:.1%} | {left['p90']:.1%} | {held:.0%}"
            f" | {tally.wrong_fit} of {tally.ran_out} | {tally.wrong_refusal} of {tally.ran} |"
        )
    shipped_pools, left_pools = result.left_out_pools.shipped, result.left_out_pools.left_out
    text = (
        f"vLLM's cache pool, given the weights, {len(shipped_pools.ours)} start-up logs: {_mean(shipped_pools.ours):.2f} GiB"
        f" mean error; {_mean(left_pools.ours):.2f} GiB without the engine profiles that a log's own source taught;"
        f" {_mean(shipped_pools.control):.2f} GiB for the constant that no published formula beats."
    )
    lines += ["", text]
    return "\n".join(lines) + "\n"


def _mean(errors: list[float]) -> float:
    return sum(map(abs, errors)) / max(1, len(errors))


def page(result: Result, today: str) -> str:
    """The result for people, dated, with the commit that it was made from."""
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=True).stdout
    return f"""\
# Memory against published measurements

{today} · commit {commit.strip()} · `make proof-sizing`

Rows are those of `tests/data/truth`; its README says where they come from. [How it is predicted](../sizing.md) says what the
columns mean and why the misses miss.

## All rows, shipped constants

```text
{sizing_accuracy.table(result.tallies)}

{sizing_accuracy.pool_text(result.pools)}
```

## Each source predicted by what the others teach

Constants are fitted again without the source, from values that hold without any measurement; engine profiles that were read
from it do not exist. "In band" is of complete rows.

```text
{refit.family_table(result.scores)}

{refit.pool_table(result.left_out_pools)}
```

Median and 90th percentile of each source, shipped and left out:

```text
{refit.source_table(result.scores)}
```

## The fitted constants

Shipped, as all sources give them, without measurements, and the rows and sources that move each.

```text
{refit.constants_table(result.table, refit.fit(result.table))}
```
"""


def renewed(text: str, table: str) -> str:
    """A document with its short table replaced.

    Raises:
        ValueError: the document has no marks.
    """
    if not MARKS.search(text):
        raise ValueError("the document has no marks for the table")
    return MARKS.sub(lambda found: found[1] + table + found[2], text)


def main(arguments: list[str] | None = None) -> int:
    """Score, write the page and renew the short tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args(arguments)
    result = score()
    today = f"{datetime.now(UTC):%Y-%m-%d}"
    options.out.parent.mkdir(parents=True, exist_ok=True)
    options.out.write_text(page(result, today), encoding="utf-8")
    for path in PAGES:
        path.write_text(renewed(path.read_text(encoding="utf-8"), short_table(result, today)), encoding="utf-8")
    sys.stdout.write(short_table(result, today))
    return 0


if __name__ == "__main__":
    sys.exit(main())
