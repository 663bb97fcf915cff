"""What other tools run: the pre-commit hook, the GitHub action and the GitLab template, their files and their scripts."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.policies.builders import document

ROOT = Path(__file__).parents[2]
BIN = Path(sys.executable).parent
CLEAN = json.dumps(document(), indent=1)
OPEN = json.dumps(document({"access": {"cidrs": ["0.0.0.0/0"]}}), indent=1)


def load(name: str) -> Any:
    return yaml.safe_load((ROOT / name).read_text(encoding="utf-8"))


def shell(script: str, folder: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PATH": f"{BIN}:{os.environ['PATH']}", **variables}
    return subprocess.run(
        ["bash", "-e", "-o", "pipefail", "-c", script],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )


def test_the_pre_commit_hook_takes_specs_and_nothing_else() -> None:
    (hook,) = load(".pre-commit-hooks.yaml")
    assert {"id", "name", "entry", "language", "files"} <= hook.keys()
    takes = re.compile(hook["files"])
    assert all(takes.search(name) for name in ("workload.yaml", "a/b/chat.workload.yml", "workload.yml"))
    assert not any(takes.search(name) for name in ("my-workload.yaml", "workload.json", "a/k8s.yaml"))


@pytest.mark.parametrize(("text", "code"), [(CLEAN, 0), (OPEN, 5), ("version: [", 2)])
def test_the_pre_commit_hook_runs(tmp_path: Path, text: str, code: int) -> None:
    (hook,) = load(".pre-commit-hooks.yaml")
    (tmp_path / "workload.yaml").write_text(text)
    assert shell(f"{hook['entry']} workload.yaml", tmp_path).returncode == code


def test_the_action_is_a_composite_action_whose_inputs_exist() -> None:
    action = load("action.yml")
    assert {"name", "description", "inputs", "runs"} <= action.keys()
    assert action["runs"]["using"] == "composite"
    assert all(step["shell"] == "bash" and step["run"] for step in action["runs"]["steps"])
    used = set(re.findall(r"inputs\.(\w+)", (ROOT / "action.yml").read_text()))
    assert used == set(action["inputs"])
    assert all(entry["description"] for entry in action["inputs"].values())


@pytest.mark.parametrize(("text", "code"), [(CLEAN, 0), (OPEN, 5), ("version: [", 2)])
@pytest.mark.parametrize("sarif", ["", "out.sarif"])
def test_the_action_runs(tmp_path: Path, text: str, code: int, sarif: str) -> None:
    script = load("action.yml")["runs"]["steps"][1]["run"]
    (tmp_path / "workload.yaml").write_text(text)
    done = shell(
        script, tmp_path, PATHS="workload.yaml", ARGUMENTS="", SARIF=sarif, GITHUB_STEP_SUMMARY=str(tmp_path / "s.md")
    )
    assert done.returncode == code, done.stderr
    if code == 5:
        assert "::error file=workload.yaml" in done.stdout
        assert "open-cidr" in (tmp_path / "s.md").read_text()
    if sarif and code != 2:
        assert json.loads((tmp_path / sarif).read_text())["version"] == "2.1.0"


@pytest.mark.parametrize(("text", "code"), [(CLEAN, 0), (OPEN, 5), ("version: [", 2)])
def test_the_gitlab_job_runs(tmp_path: Path, text: str, code: int) -> None:
    job = load("integrations/gitlab-ci.yml")["gpuprov-check"]
    (tmp_path / "workload.yaml").write_text(text)
    done = shell("\n".join(job["script"]), tmp_path, **(job["variables"] | {"GPUPROV_PATHS": "workload.yaml"}))
    assert done.returncode == code, done.stderr
    if code != 2:
        reports = job["artifacts"]["reports"]
        assert len(json.loads((tmp_path / reports["codequality"]).read_text())) == (1 if code else 0)
        assert (tmp_path / reports["junit"]).read_text().startswith("<?xml")
