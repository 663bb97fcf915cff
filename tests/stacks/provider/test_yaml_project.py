"""An ordinary Pulumi project without Python (``runtime: yaml``), the stock CLI and our plugin from PATH."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from provisioner import tags
from provisioner.clouds.sandbox.cloud import SandboxCloud
from provisioner.clouds.sandbox.faults import Fault
from stacks.engine.find import find_engine, find_yaml_language

pytestmark = [pytest.mark.engine, pytest.mark.slow]

PROJECT = """\
name: chat
runtime: yaml
variables:
  spec:
    version: 1
    name: chat
    task: serve
    model: {id: meta-llama/Llama-3.1-8B-Instruct}
    lifecycle: {max_lifetime: 12h}
  offers:
    - {cloud: aws, region: us-east-1, zone: use1-az1, instanceType: g6.xlarge, capacityType: on-demand}
    - {cloud: aws, region: us-east-1, zone: use1-az2, instanceType: g6.xlarge, capacityType: on-demand}
resources:
  launch:
    type: gpuprov:index:Launch
    properties: {workload: "${spec}", offers: "${offers}"}
  data:
    type: gpuprov:index:Volume
    properties: {stackId: "${launch.stackId}", size: 50GiB, offers: "${offers}"}
  gpu:
    type: gpuprov:index:GpuInstance
    properties:
      launch:
        stackId: ${launch.stackId}
        generation: ${launch.generation}
        createdAt: ${launch.createdAt}
        expiresAt: ${launch.expiresAt}
        image: ${launch.image}
      workload: ${spec}
      offers: ${offers}
      volumes: [{name: "${data.name}", size: "${data.size}"}]
      tags: {team: search}
outputs:
  id: ${gpu.instanceId}
  volumes: ${gpu.volumeIds}
"""
EXPORTED = """\
version: 1
name: chat
task: serve
model: {id: meta-llama/Llama-3.1-8B-Instruct}
storage: {data: 50GiB}
lifecycle: {max_lifetime: 12h}
run: {image: "registry.example/chat@sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef", command: [sh, -c, "serve ${MODEL}"], env: {MODEL: llama}}
"""


class Project:
    """The project's folder, its state beside it, and the stock CLI."""

    def __init__(self, folder: Path, home: Path) -> None:
        self.folder = folder
        state = folder / "state"
        state.mkdir(parents=True)
        (folder / "Pulumi.yaml").write_text(PROJECT, encoding="utf-8")
        engine = find_engine()
        path = [engine.path.parent, find_yaml_language().path.parent, Path(sys.executable).parent]
        self._engine = engine.path
        self._environment = {
            **os.environ,
            "PATH": os.pathsep.join([*map(str, path), os.environ["PATH"]]),
            "GPUPROV_HOME": str(home),
            "PULUMI_HOME": str(folder / "pulumi"),
            "PULUMI_BACKEND_URL": f"file://{state}",
            "PULUMI_CONFIG_PASSPHRASE": "test",
            "PULUMI_SKIP_UPDATE_CHECK": "true",
        }

    def pulumi(self, *arguments: str, fails: bool = False) -> str:
        """What the CLI says."""
        answer = subprocess.run(
            [self._engine, "--non-interactive", *arguments],
            cwd=self.folder,
            env=self._environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        text = answer.stdout + answer.stderr
        assert (answer.returncode != 0) is fails, text
        assert "Traceback" not in text
        assert "[gpuprov:" not in text
        return text if fails else answer.stdout

    def output(self, name: str) -> Any:
        return json.loads(self.pulumi("stack", "output", name, "--json"))

    def edit(self, old: str, new: str) -> None:
        file = self.folder / "Pulumi.yaml"
        text = file.read_text(encoding="utf-8")
        assert old in text
        file.write_text(text.replace(old, new), encoding="utf-8")


@pytest.fixture
def project(tmp_path: Path, home: Path) -> Project:
    made = Project(tmp_path / "project", home)
    made.pulumi("stack", "init", "dev")
    return made


def living(home: Path) -> dict[str, str]:
    """Machines and their generations."""
    objects = SandboxCloud(home).list_objects()
    return {o.id: o.tags[tags.GENERATION] for o in objects if o.kind == "instance" and o.state == "running"}


def test_the_whole_life_of_a_yaml_project(project: Project, home: Path) -> None:
    preview = project.pulumi("preview")
    assert "4 to create" in preview
    assert SandboxCloud(home).list_objects() == []

    project.pulumi("up", "--yes", "--skip-preview")
    first = project.output("id")
    assert living(home) == {first: "1"}
    (disk,) = project.output("volumes")

    calls = SandboxCloud(home).controls.calls()[-1].id
    assert "4 unchanged" in project.pulumi("up", "--yes")
    made = {call.operation for call in SandboxCloud(home).controls.calls(after=calls)}
    assert made <= {"find_instances", "get_instance", "find_volumes", "inspect", "read_health"}
    assert "4 unchanged" in project.pulumi("refresh", "--yes")

    SandboxCloud(home).controls.vanish(first)
    project.pulumi("up", "--yes", "--skip-preview")  # no refresh asked for: the resources ask for it themselves
    second = project.output("id")
    assert living(home) == {second: "2"}
    assert project.output("volumes") == [disk]

    project.edit("use1-az1", "use1-az6")
    assert "keep an offer in the zone of the disk" in project.pulumi("preview", fails=True)
    project.edit("use1-az6", "use1-az1")
    project.edit("size: 50GiB", "size: 60GiB")
    assert "2 updated" in project.pulumi("up", "--yes", "--skip-preview")

    assert "4 deleted" in project.pulumi("destroy", "--yes", "--skip-preview")
    assert SandboxCloud(home).list_objects() == []


def test_a_half_made_machine_is_kept_and_completed(project: Project, home: Path) -> None:
    SandboxCloud(home).controls.inject(Fault("rejected", "attach_volume"))
    project.pulumi("up", "--yes", "--skip-preview", fails=True)
    (made,) = living(home)
    state = json.loads(project.pulumi("stack", "export"))
    (gpu,) = [r for r in state["deployment"]["resources"] if r["urn"].endswith("::gpu")]
    assert gpu["id"] == made
    assert gpu["initErrors"]
    project.pulumi("up", "--yes", "--skip-preview")
    assert list(living(home)) == [made]
    project.pulumi("destroy", "--yes", "--skip-preview")
    assert SandboxCloud(home).list_objects() == []


def test_secrets_are_sealed_in_the_state(project: Project, home: Path) -> None:
    project.edit("    lifecycle:", "    run: {env: {TOKEN: {'fn::secret': hf_sealed}}}\n    lifecycle:")
    project.pulumi("up", "--yes", "--skip-preview")
    assert "4 unchanged" in project.pulumi("up", "--yes", "--skip-preview")
    assert "hf_sealed" not in project.pulumi("stack", "export")
    SandboxCloud(home).controls.vanish(project.output("id"))
    assert "hf_sealed" not in project.pulumi("up", "--yes", "--skip-preview", "--diff")
    assert "hf_sealed" not in project.pulumi("stack", "export")
    project.pulumi("destroy", "--yes", "--skip-preview")


def test_an_exported_plan_is_such_a_project(project: Project, home: Path) -> None:
    spec = project.folder / "workload.yaml"
    spec.write_text(EXPORTED, encoding="utf-8")
    exported = [sys.executable, "-m", "provisioner.cli.main", "export", str(spec), "--to", "pulumi-yaml"]
    (project.folder / "Pulumi.yaml").write_text(subprocess.check_output(exported, text=True), encoding="utf-8")

    project.pulumi("up", "--yes", "--skip-preview")
    machine = project.output("instanceId")
    assert living(home) == {machine: "1"}
    assert "4 unchanged" in project.pulumi("up", "--yes")
