"""What `doctor` says of a machine that is ready, and of one that is not."""

from __future__ import annotations

import json
import os
from datetime import date, timedelta
from pathlib import Path

import pytest
from click.testing import CliRunner

from provisioner.catalog.snapshot import load_catalog
from provisioner.cli.main import group
from stacks import doctor
from stacks.engine.releases import ENGINE

SPEC = Path(__file__).parents[2] / "examples" / "llama-3.1-8b-chat" / "workload.yaml"


def found(findings: list[doctor.Finding], check: str) -> doctor.Finding:
    (finding,) = [f for f in findings if f.check.startswith(check)]
    return finding


@pytest.fixture
def engine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "pulumi"
    path.write_text(f"#!/bin/sh\necho v{ENGINE.version}\n")
    path.chmod(0o755)
    monkeypatch.setenv("GPUPROV_PULUMI", str(path))
    return path


def test_a_ready_machine_is_ok_throughout(home: Path, engine: Path) -> None:
    today = date.fromisoformat(load_catalog().as_of[:10]) + timedelta(days=1)
    findings = doctor.examine(home, "sandbox", SPEC, today)
    assert {f.state for f in findings} == {"ok"}
    assert str(engine) in found(findings, "engine").found
    assert "Llama-3.1-8B" in found(findings, "spec").found
    assert not list(home.iterdir()), "looking changes nothing"


def test_each_trouble_has_its_fix(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GPUPROV_PULUMI", str(tmp_path / "nothing"))
    monkeypatch.setenv("GPUPROV_CATALOG", str(tmp_path / "no-catalog"))
    monkeypatch.setenv("GPUPROV_BACKEND", "s3://team-state")
    spec = tmp_path / "workload.yaml"
    spec.write_text("version: 1\n")
    findings = doctor.examine(tmp_path / "home", "sandbox", spec)
    for check in ("engine", "catalog", "state", "spec"):
        assert found(findings, check).state == "broken", check
    assert all(f.fix for f in findings if f.state != "ok")


def test_a_home_that_cannot_be_written_is_broken(tmp_path: Path, engine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "access", lambda path, mode: Path(path) != tmp_path)
    assert found(doctor.examine(tmp_path / "other", "sandbox"), "home").state == "broken"


def test_a_home_below_a_file_is_broken(tmp_path: Path, engine: Path) -> None:
    (tmp_path / "file").touch()
    assert found(doctor.examine(tmp_path / "file" / "home", "sandbox"), "home").state == "broken"


def test_a_passphrase_that_others_can_read_is_a_warning(home: Path, engine: Path) -> None:
    file = home / "state" / "passphrase"
    file.parent.mkdir()
    file.write_text("secret")
    file.chmod(0o644)
    finding = found(doctor.examine(home, "sandbox"), "state")
    assert finding.state == "warning"
    assert finding.fix == f"chmod 600 {file}"


def test_old_prices_are_a_warning(home: Path, engine: Path) -> None:
    today = date.fromisoformat(load_catalog().as_of[:10]) + timedelta(days=doctor.PRICE_AGE_WARNING_DAYS + 1)
    assert found(doctor.examine(home, "sandbox", None, today), "catalog").state == "warning"


def test_the_command_prints_findings_and_json(home: Path, engine: Path) -> None:
    table = CliRunner().invoke(group, ["doctor", "--cloud", "sandbox"])
    assert table.exit_code == 0
    assert "ok       engine: pulumi" in table.stdout
    document = json.loads(CliRunner().invoke(group, ["doctor", "--format", "json"]).stdout)
    assert document["schema"] == "gpuprov.doctor/1"
    assert {check["check"] for check in document["checks"]} >= {"engine", "home", "state", "catalog", "cloud sandbox"}
