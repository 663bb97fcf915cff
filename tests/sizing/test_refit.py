"""Fitting the constants again: bounded, without sight of what is left out, and in agreement with what is shipped."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks import refit
from benchmarks.rows import Models, Row, read_rows
from provisioner.errors import UsageError
from provisioner.sizing.constants import Constants, replaced
from provisioner.sizing.engines import find_profile, profiles, profiles_without
from tests.proofs import sizing as proof

TRUTH = Path(__file__).parents[1] / "data" / "truth" / "measured.jsonl"
PICTURES = "huggingface blog simple_sdxl_optimizations"


@pytest.fixture(scope="module")
def pictures() -> refit.Table:
    """Image and video rows, the quickest to fit."""
    return refit.scored_table((row for row in read_rows(TRUTH) if row.family == "diffusion"), Models(None))


def test_every_constant_is_searched_between_its_bounds():
    shipped = {name for name in vars(Constants) if not name.startswith("_")}
    assert shipped == set(refit.SEARCHES)
    for name, search in refit.SEARCHES.items():
        assert search.low <= search.prior <= search.high, name
        assert search.low <= getattr(Constants, name) <= search.high, name


def test_shipped_values_are_those_that_all_sources_give(pictures):
    names = [name for name in refit.SEARCHES if pictures.touched[name]]
    assert "decode_pixel_bytes" in names
    fitted = refit.fit(pictures, names=names)
    for name in ("unet_latent_bytes", "unet_stored_factor", "block_elements", "decode_pixel_bytes"):
        assert fitted[name] == pytest.approx(getattr(Constants, name), rel=0.01), name


def test_a_left_out_source_is_not_seen(pictures):
    """Ten times the source's figures change what all rows give, and nothing of what the others give."""

    def spoiled(row: Row) -> Row:
        if refit.source_of(row) != PICTURES:
            return row
        norm = {key: value * 10 if key.startswith("value") else value for key, value in row.raw["norm"].items()}
        return replace(row, raw={**row.raw, "norm": norm})

    names = ("unet_latent_bytes", "decode_pixel_bytes")
    other = refit.Table([spoiled(row) for row in pictures.rows], pictures.models, pictures.touched)
    assert refit.fit(pictures, PICTURES, names) == refit.fit(other, PICTURES, names)
    assert refit.fit(pictures, None, names) != refit.fit(other, None, names)


def test_a_constant_that_no_row_moves_keeps_its_prior(pictures):
    assert refit.fit(pictures, names=["metric_loss_bytes"]) == {
        "metric_loss_bytes": refit.SEARCHES["metric_loss_bytes"].prior
    }


def test_constants_come_back_after_a_fit_and_after_an_error(pictures):
    before = {name: getattr(Constants, name) for name in refit.SEARCHES}
    refit.fit(pictures, names=["decode_pixel_bytes"])
    with pytest.raises(ZeroDivisionError), replaced(decode_pixel_bytes=1.0):
        raise ZeroDivisionError
    assert {name: getattr(Constants, name) for name in refit.SEARCHES} == before


def test_profiles_of_a_left_out_source_do_not_exist():
    all_versions = [profile.version for profile in profiles() if profile.engine == "vllm"]
    with profiles_without("llm-d-planner 0.3.3"):
        assert "0.19" not in [profile.version for profile in profiles() if profile.engine == "vllm"]
        assert find_profile("vllm", "0.19")[0].version == "0.11"
    assert [profile.version for profile in profiles() if profile.engine == "vllm"] == all_versions
    assert find_profile("vllm", "0.19")[0].version == "0.19"
    with profiles_without("public GitHub text file"), pytest.raises(UsageError, match="serves no language models"):
        find_profile("sglang", None)


@pytest.mark.parametrize(
    ("source", "name"),
    [
        ("pytorch/ao docs/source/workflows/training.md @3602", "pytorch/ao"),
        ("vllm-project/vllm#10511", "vllm-project/vllm#10511"),
        ("llm-d-planner 0.3.3 sdist docs/accuracy/report.md", "llm-d-planner 0.3.3"),
        ("public GitHub text file", "public GitHub text file"),
        ("huggingface blog quanto-diffusers", "huggingface blog quanto-diffusers"),
    ],
)
def test_who_published_a_row(source, name):
    row = next(read_rows(TRUTH))
    assert refit.source_of(replace(row, raw={"source": source})) == name


def test_tables_of_the_proof(pictures, monkeypatch):
    scores = refit.leave_out(pictures)
    family = refit.family_table(scores).splitlines()[1]
    assert family.startswith("diffusion")
    errors = [error for score in scores.values() for error in score.left_out]
    assert len(errors) == len(pictures.rows) >= 60
    assert PICTURES in refit.source_table(scores)
    assert "decode_pixel_bytes" in refit.constants_table(pictures, {"decode_pixel_bytes": 1600.0})


def test_the_short_table_is_renewed_between_its_marks():
    text = "before\n<!-- made by make proof-sizing -->\nold\n<!-- end -->\nafter\n"
    renewed = proof.renewed(text, "new\n")
    assert renewed == text.replace("old", "new")
    with pytest.raises(ValueError, match="no marks"):
        proof.renewed("nothing here", "new\n")
    for path in proof.PAGES:
        assert proof.MARKS.search(path.read_text(encoding="utf-8")), path


def test_the_command_fits_all(tmp_path, monkeypatch, capsys):
    rows = tmp_path / "rows.jsonl"
    kept = [
        line for line in TRUTH.read_text(encoding="utf-8").splitlines() if json.loads(line)["family"] == "diffusion"
    ]
    rows.write_text("\n".join(kept[10:40]) + "\n", encoding="utf-8")
    monkeypatch.setattr("sys.argv", ["x", "--rows", str(rows), "--all"])
    refit.main()
    printed = capsys.readouterr().out
    assert len(printed.splitlines()) == 1 + len(refit.SEARCHES)
