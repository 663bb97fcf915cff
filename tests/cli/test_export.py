"""``gpuprov export`` as a person runs it."""

from __future__ import annotations

from pathlib import Path

import yaml
from click.testing import CliRunner

from provisioner.cli.export import TARGETS as OFFERED
from provisioner.cli.main import group
from provisioner.export.text import TARGETS

SPEC = "version: 1\nname: chat\ntask: serve\nmodel: {id: meta-llama/Llama-3.1-8B-Instruct}\n"


def test_the_command_offers_every_target() -> None:
    assert set(OFFERED) == set(TARGETS)


def test_the_file_goes_to_standard_output_and_the_notes_beside_it(tmp_path: Path) -> None:
    spec = tmp_path / "workload.yaml"
    spec.write_text(SPEC, encoding="utf-8")
    answer = CliRunner().invoke(group, ["export", str(spec), "--to", "karpenter", "--cloud", "aws"])
    assert answer.exit_code == 0, answer.output
    kinds = [document["kind"] for document in yaml.safe_load_all(answer.stdout)]
    assert kinds == ["EC2NodeClass", "NodePool", "Deployment"]
    assert "note: " in answer.stderr


def test_set_changes_what_is_planned(tmp_path: Path) -> None:
    spec, file = tmp_path / "workload.yaml", tmp_path / "task.yaml"
    spec.write_text(SPEC, encoding="utf-8")
    argv = ["export", str(spec), "--to", "skypilot", "--set", "placement.gpus=[H200]", "-o", str(file)]
    answer = CliRunner().invoke(group, argv)
    assert answer.exit_code == 0, answer.output
    assert answer.stdout == ""
    assert "H200" in file.read_text(encoding="utf-8")


def test_what_the_plan_warns_of_is_said_and_kept_out_of_the_file(tmp_path: Path) -> None:
    spec = tmp_path / "workload.yaml"
    spec.write_text(SPEC, encoding="utf-8")
    argv = ["export", str(spec), "--to", "skypilot", "--set", "placement.instance_types=[g2-standard-4]"]
    answer = CliRunner().invoke(group, argv)
    assert answer.exit_code == 0, answer.output
    assert "warning: host memory of g2-standard-4" in answer.stderr
    assert "host memory" not in answer.stdout
