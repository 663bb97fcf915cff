"""Scores of constants that never saw a source: nothing of it may reach them, and the tables say what is so."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks import fit_diffusion, fit_training, left_out
from benchmarks.fit_serving import STARTS, ServingFitter, samples_of
from benchmarks.fit_speeds import rounded
from benchmarks.rows import Models, Row, read_rows
from benchmarks.scoring import percentile
from benchmarks.speed_report import report
from benchmarks.speed_targets import FAMILIES, family_of_row, rank_agreement
from provisioner.sizing.speed_profile import SpeedProfile, read_link, speed_document

TRUTH = Path("tests") / "data" / "truth" / "throughput.jsonl"


@pytest.fixture(scope="module")
def rows() -> list[Row]:
    return list(read_rows(TRUTH))


@pytest.fixture(scope="module")
def images(rows) -> list[left_out.Outcome]:
    """All rows of images: their fits take a second."""
    return left_out.image_outcomes(rows)


def test_values_of_the_left_out_source_do_not_reach_its_prediction(rows, images):
    """Doubling what one source measured must not move its own left-out predictions."""
    source = images[0].source
    changed = [
        replace(row, raw={**row.raw, "value": 2 * row.raw["value"]}) if row.raw["source"] == source else row
        for row in rows
        if row.family == "diffusion"
    ]
    before = {each.row.id: each.predicted for each in images if each.source == source}
    after = {each.row.id: each.predicted for each in left_out.image_outcomes(changed) if each.source == source}
    assert after == before


def test_left_out_images_keep_their_target(images):
    assert percentile([each.error for each in images], 0.5) <= 0.30


def test_bands_come_from_other_sources(images):
    source = images[0].source
    others = [each for each in images if each.source != source]
    bands = left_out.band_factors(images, source)
    assert bands["diffusion"] == 1 + percentile([each.error for each in others], left_out.COVERED)
    assert set(bands) == set(left_out.KINDS)


def test_training_left_out_keeps_near_its_targets(rows):
    """The two largest sources of trainings are left out one after the other; the whole table is in docs/proofs."""
    samples = fit_training.samples_of(rows, Models(None))
    links = speed_document()["collectives"]
    for name, limit in (("llm-foundry", 0.15), ("llama3_h100", 0.25)):
        table = fit_training.fit_training([each for each in samples if name not in each.source], links)
        profile = SpeedProfile({}, {key: read_link(row) for key, row in links.items()}, table, {}, {}, {})
        held = [each for each in samples if name in each.source and not each.work.model.is_moe]
        ratios = [fit_training.predicted(each, profile) / each.measured for each in held]
        assert percentile([max(ratio, 1 / ratio) - 1 for ratio in ratios], 0.5) <= limit


def test_an_engine_without_rows_keeps_what_servers_share(rows):
    few = [row for row in rows if "AutoAWQ" in str(row.raw["source"])]
    engines = ServingFitter().fit(samples_of(few, Models(None)))["engines"]
    assert engines["sglang"] == engines["tensorrt-llm"] != engines["vllm"]
    assert engines["llama.cpp"] == STARTS["llama.cpp"]


def test_the_data_file_is_what_the_rows_give(rows):
    """Images alone, which are quick: the bundled constants are the fit's, to the digit."""
    assert rounded(fit_diffusion.fit_diffusion(fit_diffusion.samples_of(rows))) == speed_document()["diffusion"]


def test_the_report_names_targets_baselines_and_order(rows, images):
    lines = left_out.lines_of(images)
    text = report([row for row in rows if row.family == "diffusion"], Models(None), lines)
    assert "images and video" in text
    assert "one share of the matrix rate" in text
    assert "in the right order (target 90%)" in text
    assert "30%: kept" in text


def test_order_counts_pairs_that_differ_in_their_gpu_alone():
    def row(name, gpu, value, batch=1):
        conditions = {"gpu": gpu, "batch": batch}
        raw = {"metric": "tpot_ms", "source": "s", "value": value, "id": name}
        return Row(name, "serving", "m", None, conditions, {}, raw)

    rows = [row("a", "L4", 30), row("b", "H100", 10), row("c", "A100", 11), row("d", "T4", 90, batch=2)]
    right = rank_agreement(rows, {"a": 5.0, "b": 1.0, "c": 2.0, "d": 9.0})["tpot_ms"]
    assert (right.pairs, right.right) == (2, 2)  # b and c lie within 15 %, d has another batch
    wrong = rank_agreement(rows, {"a": 1.0, "b": 5.0, "c": 0.5, "d": 9.0})["tpot_ms"]
    assert (wrong.pairs, wrong.right) == (2, 1)


def test_every_scored_row_has_a_family(rows):
    found = {family.name for row in rows[::40] if (family := family_of_row(row, Models(None)))}
    assert found <= {family.name for family in FAMILIES}
    assert len(found) >= 5


def test_left_out_lines_are_written(tmp_path, monkeypatch, rows):
    some = tmp_path / "rows.jsonl"
    lines = [line for line in TRUTH.read_text(encoding="utf-8").splitlines() if '"diffusion"' in line]
    some.write_text("\n".join(lines) + "\n", encoding="utf-8")
    out = tmp_path / "left.jsonl"
    monkeypatch.setattr("sys.argv", ["x", "--rows", str(some), "--models", str(tmp_path), "--out", str(out)])
    left_out.main()
    written = [json.loads(line) for line in out.read_text(encoding="utf-8").splitlines()]
    assert len(written) >= 100
    assert all(line["low"] < line["value"] < line["high"] for line in written)
