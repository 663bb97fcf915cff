"""``gpuprov plan`` from outside: forms, files, exit codes, positions, and what it never imports."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from datetime import date
from pathlib import Path

import pytest

from provisioner.cli.main import run
from provisioner.cli.plan import _warn_of_age
from provisioner.planner.documents import plan_from_document

SPEC = """\
version: 1
name: chat
task: serve
model:
  id: meta-llama/Llama-3.1-8B-Instruct
  weights: bf16
inference:
  context_tokens: 8192
  concurrency: 4
"""
HEAVY = ("boto3", "botocore", "google", "pulumi", "pulumi_policy", "grpc")


@pytest.fixture
def spec(tmp_path: Path) -> Path:
    path = tmp_path / "workload.yaml"
    path.write_text(SPEC)
    return path


@pytest.fixture
def plan(spec, capsys):
    """Runs the command on the spec with extra lines; gives code, standard output, standard error."""

    def call(*arguments: str, extra: str = "") -> tuple[int, str, str]:
        spec.write_text(SPEC + extra)
        code = run(["plan", str(spec), *arguments])
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return call


def test_json_is_one_document(plan):
    code, out, _ = plan("--format", "json")
    assert code == 0
    document = json.loads(out)
    assert document["schema"] == "gpuprov.plan/1"
    assert plan_from_document(document).choice is not None


def test_table_is_the_default(plan):
    code, out, _ = plan()
    assert code == 0
    assert "Memory per GPU" in out
    assert "Tried in this order" in out


def test_explain_adds_assumptions(plan):
    assert "Assumptions" in plan("--explain")[1]
    assert "Assumptions" not in plan()[1]


@pytest.mark.parametrize(
    ("name", "start"),
    [("plan.json", "{"), ("plan.md", "## chat"), ("plan.html", "<!doctype html>"), ("plan.txt", "chat (serve)")],
)
def test_output_file_takes_the_form_of_its_suffix(plan, tmp_path, name, start):
    code, out, _ = plan("-o", str(tmp_path / name))
    assert (code, out) == (0, "")
    assert (tmp_path / name).read_text().startswith(start)


def test_format_wins_over_the_suffix(plan, tmp_path):
    plan("-o", str(tmp_path / "plan.txt"), "--format", "json")
    assert json.loads((tmp_path / "plan.txt").read_text())["verdict"] == "fits"


def test_same_bytes_twice(plan):
    assert plan("--format", "json")[1] == plan("--format", "json")[1]


def test_nothing_fits_is_exit_6_with_the_plan_and_the_error(plan):
    code, out, err = plan("--format", "json", extra="placement: {gpus: [T4], max_gpus: 1}\n")
    assert code == 6
    document = json.loads(out)
    assert document["verdict"] == "nothing-fits"
    assert document["choice"] is None
    assert document["error"]["schema"] == "gpuprov.error/1"
    assert document["error"]["code"] == 6
    assert document["error"]["remedy"] == document["closest"][0]
    lines = [line for line in err.splitlines() if line.startswith("error:")]
    assert len(lines) == 1
    assert document["closest"][0] in lines[0]


def test_nothing_fits_as_a_table(plan):
    code, out, err = plan(extra="placement: {gpus: [T4], max_gpus: 1}\n")
    assert code == 6
    assert "What would fit" in out
    assert err.count("error:") == 1


@pytest.mark.parametrize(
    ("extra", "place", "near"),
    [
        ("placement:\n  regions: [us-east-1, us-esat-1]\n", "10:9", "us-east-1"),
        ("placement:\n  gpus:\n    - L4\n    - H1000\n", "13:7", "H100"),
        ("placement:\n  instance_types: [g6.xlrge]\n", "11:20", "g6.xlarge"),
    ],
)
def test_unknown_name_is_exit_2_at_its_place(plan, extra, place, near):
    code, out, err = plan("--format", "json", extra=extra)
    assert code == 2
    error = json.loads(out)
    assert error["schema"] == "gpuprov.error/1"
    line = place.split(":", maxsplit=1)[0]
    assert f"workload.yaml:{line}:" in err or f"workload.yaml:{int(line) + 1}:" in err
    assert near in err


def test_unknown_model_is_exit_2_at_its_place(spec, capsys):
    spec.write_text(SPEC.replace("Llama-3.1-8B-Instruct", "Llama-9-8B"))
    assert run(["plan", str(spec)]) == 2
    assert "workload.yaml:5:7" in capsys.readouterr().err


def test_cloud_narrows(plan):
    assert json.loads(plan("--cloud", "gcp", "--format", "json")[1])["choice"]["cloud"] == "gcp"
    code, _, err = plan("--cloud", "gcp", extra="placement: {clouds: [aws]}\n")
    assert code == 2
    assert "workload.yaml:10:" in err


def test_cloud_of_the_environment(plan, monkeypatch):
    monkeypatch.setenv("GPUPROV_CLOUD", "aws")
    assert json.loads(plan("--format", "json")[1])["choice"]["cloud"] == "aws"


def test_unknown_stack(plan):
    code, _, err = plan("--stack", "nosuch")
    assert code == 2
    assert "nosuch" in err


def test_missing_catalog(plan, tmp_path):
    code, _, err = plan("--catalog", str(tmp_path))
    assert code == 2
    assert "error:" in err


def test_missing_spec(tmp_path, capsys):
    assert run(["plan", str(tmp_path / "none.yaml")]) == 2
    assert "none.yaml" in capsys.readouterr().err


def test_keys_of_later_steps_are_warned_of_on_standard_error(plan):
    code, out, err = plan("--format", "json", extra="gcp: {project: mine}\n")
    assert code == 0
    assert "gcp.project" in err
    assert "has no effect yet" not in out


@pytest.mark.parametrize(("today", "said"), [(date(2026, 9, 2), False), (date(2026, 9, 3), True)])
def test_p6_old_prices_are_said_on_standard_error_only(plan, capsys, today, said):
    document = json.loads(plan("--format", "json", "--cloud", "gcp")[1])
    loaded = plan_from_document(document)
    assert loaded.choice.price_as_of == "2026-08-03"
    _warn_of_age(loaded, today)
    assert ("days old" in capsys.readouterr().err) is said
    assert "days old" not in json.dumps(document)


def imported(*arguments: str) -> set[str]:
    """Top-level modules that a whole invocation imports."""
    code = f"import sys; from provisioner.cli.main import run; code = run({list(arguments)!r}); print('\\n'.join(sys.modules), file=sys.stderr); sys.exit(code)"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env=dict(os.environ), check=False, timeout=60
    )
    assert done.returncode in (0, 5, 6), done.stderr[-2000:]
    return {name.partition(".")[0] for name in done.stderr.split()}


def test_plan_imports_no_sdk_and_no_engine(spec):
    modules = imported("plan", str(spec), "--format", "json")
    assert not set(HEAVY) & modules
    assert "rich" not in modules
    assert "provisioner" in modules


def test_a_refusal_imports_no_more(spec):
    spec.write_text(SPEC + "placement: {gpus: [T4], max_gpus: 1}\n")
    assert not set(HEAVY) & imported("plan", str(spec), "--format", "json")


def test_check_imports_no_sdk_and_no_engine(spec):
    assert not set(HEAVY) & imported("check", str(spec), "--format", "json")


def test_what_if_changes_count_as_written(plan):
    code, out, _ = plan(
        "--format", "json", "--set", "inference.context_tokens=16384", "--set", "inference.concurrency=8"
    )
    assert code == 0
    inference = json.loads(out)["workload"]["spec"]["inference"]
    assert (inference["context_tokens"], inference["concurrency"]) == (16384, 8)


def test_a_what_if_of_an_unknown_gpu_names_the_flag(plan):
    code, out, err = plan("--format", "json", "--set", "placement.gpus=[H1000]")
    assert code == 2
    assert json.loads(out)["where"] == "--set placement.gpus=[H1000]"
    assert "--set placement.gpus=[H1000]" in err
