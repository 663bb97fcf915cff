"""Write the data file of measured speeds from published rows.

Usage: ``python -m benchmarks.fit_speeds --rows ROWS.jsonl --models DIR [--left-out LEFT_OUT.jsonl] --out speeds.json``. The same
rows give the same file. Bands are those of left-out predictions (``benchmarks.left_out``); without them they stay as they are.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from benchmarks import fit_diffusion, fit_serving, fit_training
from benchmarks.left_out import Outcome, band_factors
from benchmarks.rows import Models, Row, read_rows
from provisioner.sizing.speed_profile import speed_document

NOTE = (
    "Efficiencies behind predicted speed, fitted by benchmarks/fit_speeds.py to the rows of tests/data/truth/throughput.jsonl. "
    "Engines: share of peak bandwidth at which 16-bit weights stream by memory class, factors on it by precision kernel, share for "
    "the cache, microseconds per layer, per layer with routed experts, per pass and per sequence, share of the dense matrix rate "
    "by GPU family with factors by precision kernel and for experts, share of other prompts that falls between two tokens, tokens "
    "of a pass, bytes per attention score. Collectives: microseconds of an all-reduce over two ranks and per further rank, share "
    "of one-way bandwidth, whether ranks share the link. Bands: factor up and down that holds 90 % of left-out rows."
)
DIGITS = 3


def rounded(value: Any) -> Any:
    """Numbers to three digits: fits are no better, and the file stays readable."""
    if isinstance(value, bool) or not isinstance(value, (float, dict, list)):
        return value
    if isinstance(value, float):
        return float(f"{value:.{DIGITS}g}")
    if isinstance(value, list):
        return [rounded(item) for item in value]
    return {key: rounded(item) for key, item in value.items()}


def fitted(rows: list[Row], models: Models) -> dict[str, Any]:
    """``engines``, ``collectives``, ``training`` and ``diffusion`` from all rows."""
    serving = fit_serving.ServingFitter().fit(fit_serving.samples_of(rows, models))
    training = fit_training.fit_training(fit_training.samples_of(rows, models), serving["collectives"])
    return {**serving, "training": training, "diffusion": fit_diffusion.fit_diffusion(fit_diffusion.samples_of(rows))}


def bands_of(rows: list[Row], lines: list[Mapping[str, Any]]) -> dict[str, float]:
    """Bands of left-out predictions read back from their file."""
    by_id = {row.id: row for row in rows}
    outcomes = [
        Outcome(row, line["kind"], str(row.raw.get("source")), float(row.raw["value"]), line["value"])
        for line in lines
        if (row := by_id.get(line["id"])) is not None
    ]
    return band_factors(outcomes)


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rows", type=Path, required=True)
    parser.add_argument("--models", type=Path, required=True)
    parser.add_argument("--left-out", type=Path)
    parser.add_argument("--as-of", required=True, help="date of the data file, YYYY-MM-DD")
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    rows = list(read_rows(options.rows))
    document = dict(speed_document()) | {"as_of": options.as_of, "note": NOTE} | fitted(rows, Models(options.models))
    document["sources"] = sorted({str(row.raw.get("source")) for row in rows})
    if options.left_out is not None:
        lines = [json.loads(line) for line in options.left_out.read_text(encoding="utf-8").splitlines()]
        document["bands"] = {**document["bands"], **bands_of(rows, lines)}
    options.out.write_text(json.dumps(rounded(document), indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
