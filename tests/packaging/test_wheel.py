"""The wheel holds the three packages and nothing else, and its commands work from an empty environment."""

from __future__ import annotations

import os
import subprocess
import sys
import venv
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SPEC = ROOT / "examples" / "llama-3.1-8b-chat" / "workload.yaml"


def run(*command: str | Path, cwd: Path, **environment: str) -> str:
    done = subprocess.run(
        [str(part) for part in command],
        cwd=cwd,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
        stdin=subprocess.DEVNULL,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("dist")
    run(sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", folder, ROOT, cwd=folder)
    (built,) = folder.glob("*.whl")
    return built


def test_only_the_three_packages_are_shipped(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    tops = {name.split("/")[0] for name in names if ".dist-info/" not in name}
    assert tops == {"provisioner", "stacks", "policies"}
    for needed in (
        "provisioner/catalog/data/prices.csv",
        "stacks/provider/schema.json",
        "stacks/engine/modules/pulumi/go.sum",
        "provisioner/py.typed",
    ):
        assert needed in names
    assert not [name for name in names if "test" in name.rsplit("/", 1)[-1].split(".")[0].split("_")]


@pytest.mark.slow
def test_the_commands_work_from_an_empty_environment(wheel: Path, tmp_path: Path) -> None:
    environment = tmp_path / "venv"
    venv.create(environment, with_pip=True)
    scripts = environment / "bin"
    pip = (scripts / "python", "-m", "pip", "install", "--quiet", "--disable-pip-version-check")
    run(*pip, "--constraint", ROOT / "constraints.txt", wheel, cwd=tmp_path)
    for name in ("gpuprov", "pulumi-resource-gpuprov", "gpuprov-policy"):
        assert (scripts / name).is_file()
    assert "gpuprov" in run(scripts / "gpuprov", "--version", cwd=tmp_path)
    assert '"verdict": "fits"' in run(scripts / "gpuprov", "plan", SPEC, "--format", "json", cwd=tmp_path)
    run(scripts / "gpuprov", "check", SPEC, cwd=tmp_path)
    found = run(scripts / "gpuprov", "doctor", cwd=tmp_path, PATH=f"{scripts}:{os.environ['PATH']}")
    assert str(scripts / "pulumi-resource-gpuprov") in found
