"""The stock Pulumi CLI with an ordinary YAML project and our pack: an under-sized machine is stopped before it is made."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from stacks.engine.find import find_engine, find_yaml_language

pytestmark = [pytest.mark.engine, pytest.mark.slow]
BIN = Path(sys.executable).parent
PROJECT = """\
name: chat
runtime: yaml
variables:
  offers:
    - {{cloud: aws, region: us-east-1, zone: use1-az1, instanceType: g6.xlarge, capacityType: on-demand}}
  workload:
    version: 1
    name: chat
    task: serve
    model: {{id: {model}}}
    inference: {{context_tokens: 8192}}
    access: {{cidrs: {cidrs}}}
resources:
  launch:
    type: gpuprov:index:Launch
    properties: {{workload: "${{workload}}", offers: "${{offers}}"}}
  machine:
    type: gpuprov:index:GpuInstance
    properties:
      launch: {{stackId: "${{launch.stackId}}", generation: "${{launch.generation}}", createdAt: "${{launch.createdAt}}", expiresAt: "${{launch.expiresAt}}", image: "${{launch.image}}", owner: "${{launch.owner}}"}}
      workload: "${{workload}}"
      offers: "${{offers}}"
"""


class Project:
    """A Pulumi project with its own home, backend and sandbox."""

    def __init__(self, folder: Path) -> None:
        engine, language = find_engine(), find_yaml_language()
        for name in ("project", "backend", "pulumi", "home"):
            (folder / name).mkdir(exist_ok=True)
        self.folder = folder / "project"
        self.environment = {
            **os.environ,
            "PATH": f"{engine.path.parent}:{language.path.parent}:{BIN}:{os.environ['PATH']}",
            "PULUMI_HOME": str(folder / "pulumi"),
            "PULUMI_BACKEND_URL": f"file://{folder / 'backend'}",
            "PULUMI_CONFIG_PASSPHRASE": "test",
            "PULUMI_SKIP_UPDATE_CHECK": "true",
            "GPUPROV_HOME": str(folder / "home"),
        }
        self.command = str(engine.path)

    def write(self, model: str, cidrs: str = "[]") -> None:
        text = PROJECT.format(model=model, cidrs=cidrs)
        (self.folder / "Pulumi.yaml").write_text(text.replace("    access: {cidrs: []}\n", ""))

    def run(self, *arguments: str) -> tuple[int, str]:
        done = subprocess.run(
            [self.command, *arguments, "--non-interactive"],
            cwd=self.folder,
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        return done.returncode, done.stdout + done.stderr

    def up(self, *arguments: str) -> tuple[int, str]:
        return self.run("up", "--yes", "--skip-preview", "--policy-pack", str(BIN / "gpuprov-policy"), *arguments)

    def machines(self) -> list[str]:
        from provisioner.clouds.sandbox.cloud import SandboxCloud

        cloud = SandboxCloud(Path(self.environment["GPUPROV_HOME"]))
        return [entry.id for entry in cloud.list_objects() if entry.kind == "instance" and entry.state != "terminated"]


@pytest.fixture
def project(tmp_path: Path) -> Project:
    made = Project(tmp_path)
    made.write("meta-llama/Llama-3.1-8B-Instruct")
    code, text = made.run("stack", "init", "dev")
    assert code == 0, text
    return made


def test_the_stock_cli_is_stopped_by_the_rule_before_anything_bills(project: Project) -> None:
    project.write("meta-llama/Llama-3.1-70B-Instruct")
    code, text = project.up()
    assert code != 0
    assert "under-sized" in text
    assert "cannot hold chat" in text
    assert "Traceback" not in text
    assert project.machines() == []
    code, text = project.run("preview", "--policy-pack", str(BIN / "gpuprov-policy"))
    assert code != 0
    assert "under-sized" in text


def test_a_sound_machine_is_made_and_its_documents_pass(
    project: Project, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from policies.run import Order, run_check
    from tests.policies.builders import catalog
    from tests.policies.test_gate import TODAY

    code, text = project.run("preview", "--json")
    assert code == 0, text
    (tmp_path / "preview.json").write_text(text[text.index("{") : text.rindex("}") + 1])
    code, text = project.up()
    assert code == 0, text
    assert len(project.machines()) == 1
    code, _ = project.run("stack", "export", "--file", str(tmp_path / "state.json"))
    assert code == 0
    monkeypatch.chdir(tmp_path)
    for name in ("preview.json", "state.json"):
        checked = run_check(Order((Path(name),)), catalog(), today=TODAY)
        assert not checked.report.verdict.violations
        assert checked.report.verdict.subjects == 2


def test_the_configuration_of_the_engine_counts(project: Project, tmp_path: Path) -> None:
    config = tmp_path / "config.json"
    config.write_text(json.dumps({"endless-cost": "mandatory"}))
    code, text = project.up("--policy-pack-config", str(config))
    assert code != 0
    assert "[mandatory]" in text
    assert "endless-cost" in text
    assert project.machines() == []
    config.write_text(json.dumps({"endles-cost": "mandatory"}))
    code, text = project.up("--policy-pack-config", str(config))
    assert code != 0
    assert "did you mean endless-cost" in text


@pytest.fixture
def with_language_host(project: Project, tmp_path: Path) -> Project:
    """The project with a language host for Python on PATH, as an official install has it."""
    folder = tmp_path / "host"
    folder.mkdir()
    script = Path(__file__).parents[1] / "fakes" / "python_language_host.py"
    (folder / "pulumi-language-python").write_text(f'#!/bin/sh\nexec "{sys.executable}" "{script}" "$@"\n')
    (folder / "pulumi-language-python").chmod(0o755)
    project.environment["PATH"] = f"{folder}:{project.environment['PATH']}"
    return project


def test_the_pack_as_a_directory_stops_the_engine_too(with_language_host: Project) -> None:
    project = with_language_host
    told = subprocess.run([str(BIN / "gpuprov-policy"), "--directory"], capture_output=True, text=True, check=True)
    pack = told.stdout.strip()
    project.write("meta-llama/Llama-3.1-70B-Instruct")
    for command in (("preview",), ("up", "--yes", "--skip-preview")):
        code, text = project.run(*command, "--policy-pack", pack)
        assert code != 0, text
        assert "under-sized" in text, text
        assert "Traceback" not in text
    assert project.machines() == []
    (project.folder / "gpuprov-policy.yaml").write_text(
        "version: 1\npolicy: {rules: {under-sized: advisory, disk-size: advisory}}\n"
    )
    code, text = project.run("preview", "--policy-pack", pack)
    assert code == 0, text
    assert "[advisory]" in text


def test_a_spec_is_judged_as_it_would_be_applied_to_a_live_stack(tmp_path: Path) -> None:
    from tests.e2e.bench import Bench

    bench = Bench(tmp_path / "bench")
    assert bench.up().code == 0
    answer = bench.run("check", str(bench.spec), "--stack", "demo", "--format", "json")
    assert answer.code == 0, answer.err
    assert answer.document["counts"]["subjects"] == 2
    bench.spec.write_text(bench.spec.read_text() + "access: {cidrs: [0.0.0.0/0]}\n")
    assert bench.run("check", str(bench.spec), "--stack", "demo").code == 5
    assert bench.down().code == 0
