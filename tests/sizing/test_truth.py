"""Predictions against published measurements, with bounds that a worse estimator misses."""

from __future__ import annotations

import json
from collections import defaultdict
from pathlib import Path
from statistics import mean, median
from typing import Any

import pytest

from benchmarks import sizing_accuracy, throughput_accuracy
from benchmarks.rows import Models, Row, read_rows
from benchmarks.scoring import percentile, relative_error, within_band

TRUTH = Path(__file__).parents[1] / "data" / "truth"


@pytest.fixture(scope="module")
def memory() -> dict[str, list[tuple[Row, Any]]]:
    """Rows of memory by family with their predictions."""
    models = Models(None)
    found = defaultdict(list)
    for row in read_rows(TRUTH / "measured.jsonl"):
        found[row.family].append((row, sizing_accuracy.predict(row, models)))
    return dict(found)


@pytest.fixture(scope="module")
def rates() -> list[tuple[Row, Any]]:
    """Rows of speed with their predictions."""
    models = Models(None)
    return [(row, throughput_accuracy.predict(row, models)) for row in read_rows(TRUTH / "throughput.jsonl")]


def errors(scored) -> list[float]:
    found = (
        relative_error(prediction.gib, row.raw["norm"]) for row, prediction in scored if prediction.gib is not None
    )
    return [abs(error) for error in found if error is not None]


@pytest.mark.parametrize(
    ("family", "coverage", "middle", "ninth"),
    [
        ("serve", 0.97, 0.02, 0.09),
        ("finetune", 0.93, 0.05, 0.17),
        ("pretrain", 0.93, 0.055, 0.22),
        ("diffusion", 0.92, 0.06, 0.32),
    ],
)
def test_memory_errors(memory, family, coverage, middle, ninth):
    scored = memory[family]
    assert sum(p.status == "predicted" for _, p in scored) >= coverage * len(scored)
    found = errors(scored)
    assert median(found) <= middle
    assert percentile(found, 0.9) <= ninth


@pytest.mark.parametrize(
    ("family", "share"), [("serve", 0.9), ("finetune", 0.88), ("pretrain", 0.88), ("diffusion", 0.72)]
)
def test_bands_hold_the_figures_of_complete_rows(memory, family, share):
    complete = [(row, p) for row, p in memory[family] if row.norm.get("complete")]
    assert sum(p.status == "predicted" for _, p in complete) >= 0.99 * len(complete)
    met = [
        within_band(p.low_gib, p.high_gib, row.raw["norm"])
        for row, p in complete
        if p.low_gib is not None and p.high_gib
    ]
    held = [found for found in met if found is not None]
    assert len(held) >= 40
    assert mean(held) >= share


def test_no_framework_is_far_off(memory):
    by_framework = defaultdict(list)
    for row, prediction in memory["finetune"]:
        error = relative_error(prediction.gib, row.raw["norm"]) if prediction.gib is not None else None
        if error is not None:
            by_framework[row.text("framework").split(" ")[0]].append(abs(error))
    large = {name: median(found) for name, found in by_framework.items() if len(found) >= 10}
    assert len(large) >= 5
    assert max(large.values()) <= 0.20, large


def test_wrong_fits_are_rare(memory):
    ran_out = [(row, p) for rows in memory.values() for row, p in rows if row.raw["kind"] == "oom"]
    judged = [p for _, p in ran_out if p.status == "predicted"]
    assert len(judged) >= 40
    assert sum(p.fits is True for p in judged) <= 0.03 * len(judged)


def test_wrong_refusals_are_rarer(memory):
    ran = [p for rows in memory.values() for row, p in rows if row.raw["kind"] == "fit" and p.status == "predicted"]
    assert len(ran) >= 120
    assert sum(p.fits is False for p in ran) <= 0.02 * len(ran)


def test_the_cache_pool_beats_the_constant_control(memory):
    """The control gives an engine 2.0 GiB beside weights; no published formula beats it by more than noise."""
    pools = sizing_accuracy.Pools()
    for row, prediction in memory["serve"]:
        pools.add(row, prediction)
    assert len(pools.ours) >= 20
    ours, control = (mean(map(abs, found)) for found in (pools.ours, pools.control))
    assert ours < 0.25
    assert control > 1.0
    # Too much promised is the dangerous side.
    assert max(pools.ours) < 1.0


def test_answers_do_not_depend_on_what_a_predictor_must_not_see(memory):
    models = Models(None)
    kept = ("family", "model", "model_config", "inputs")
    for rows in memory.values():
        for row, prediction in rows[::7]:
            raw = {key: row.raw[key] for key in kept if key in row.raw}
            raw |= {"id": "x", "kind": "measured", "norm": dict(row.norm)}
            bare = Row("x", row.family, row.model, row.model_config, row.inputs, row.norm, raw)
            assert sizing_accuracy.predict(bare, models) == prediction, row.id


@pytest.mark.parametrize(
    ("metric", "middle", "inside"),
    [
        ("decode_tok_s_per_seq", 0.08, 0.92),
        ("tpot_ms", 0.17, 0.88),
        ("output_tok_s_total", 0.18, 0.85),
        ("output_tok_s_per_gpu", 0.18, 0.85),
        ("ttft_ms", 0.25, 0.9),
        ("prefill_tok_s", 0.2, 0.88),
        ("tok_s_per_gpu", 0.11, 0.88),
        ("it_s", 0.1, 0.95),
    ],
)
def test_speed_errors(rates, metric, middle, inside):
    found, bands = [], []
    for row, prediction in rates:
        if row.raw["metric"] == metric and prediction.value is not None:
            value = row.raw["value"]
            found.append(max(prediction.value / value, value / prediction.value) - 1)
            bands.append(prediction.low <= value <= prediction.high)
    assert len(found) >= 15
    assert median(found) <= middle
    assert mean(bands) >= inside


def test_the_scoring_command_writes_one_line_a_row(tmp_path, monkeypatch, capsys):
    rows = tmp_path / "rows.jsonl"
    lines = (TRUTH / "measured.jsonl").read_text(encoding="utf-8").splitlines()[:40]
    lines.append(json.dumps({"id": "odd", "family": "kitchen", "model": "x", "inputs": {}, "norm": {}}))
    rows.write_text("\n".join(lines) + "\n", encoding="utf-8")
    out = tmp_path / "predictions.jsonl"
    arguments = ["x", "--rows", str(rows), "--models", str(tmp_path), "--out", str(out), "--sources"]
    monkeypatch.setattr("sys.argv", arguments)
    sizing_accuracy.main()
    answers = [json.loads(line) for line in out.read_text(encoding="utf-8").splitlines()]
    assert [answer["id"] for answer in answers] == [json.loads(line)["id"] for line in lines]
    keys = {"id", "status", "gib", "low_gib", "high_gib", "fits", "reason", "components"}
    assert all(set(answer) == keys for answer in answers)
    assert answers[-1]["status"] == "unsupported"
    assert "kitchen" in answers[-1]["reason"]
    printed = capsys.readouterr().out
    assert "wrong refusal" in printed
    assert "control" in printed


def test_start_up_rows_get_components(memory):
    found = [p.components for row, p in memory["serve"] if row.norm.get("meter") == "components" and p.components]
    assert len(found) >= 40
    names = {"weights", "activation_peak", "non_torch", "cuda_graph", "kv_available", "kv_tokens"}
    assert all(names <= set(components) for components in found)


def test_the_speed_command_writes_one_line_a_row(tmp_path, monkeypatch, capsys):
    rows = tmp_path / "rows.jsonl"
    lines = (TRUTH / "throughput.jsonl").read_text(encoding="utf-8").splitlines()[::50]
    lines.append(json.dumps({"id": "odd", "kind": "serving", "conditions": {}, "metric": "smiles_per_s"}))
    rows.write_text("\n".join(lines) + "\n", encoding="utf-8")
    out = tmp_path / "predictions.jsonl"
    arguments = ["x", "--rows", str(rows), "--models", str(tmp_path), "--out", str(out), "--sources"]
    monkeypatch.setattr("sys.argv", arguments)
    throughput_accuracy.main()
    answers = [json.loads(line) for line in out.read_text(encoding="utf-8").splitlines()]
    assert len(answers) == len(lines)
    assert all({"id", "status", "value", "low", "high", "bound_by"} <= set(answer) for answer in answers)
    assert answers[-1]["status"] == "unsupported"
    assert "in band" in capsys.readouterr().out
