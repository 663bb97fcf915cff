"""What `doctor` says of a machine that is ready, and of one that is not."""

from __future__ import annotations

import json
import os
from datetime import date, timedelta
from pathlib import Path

import pytest
from click.testing import CliRunner

from provisioner.catalog.freshness import OLD_PRICE_DAYS
from provisioner.catalog.snapshot import load_catalog
from provisioner.cli.main import group, run
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
    today = date.fromisoformat(load_catalog().as_of[:10]) + timedelta(days=OLD_PRICE_DAYS + 1)
    assert found(doctor.examine(home, "sandbox", None, today), "catalog").state == "warning"


def test_the_command_prints_findings_and_json(home: Path, engine: Path) -> None:
    table = CliRunner().invoke(group, ["doctor", "--cloud", "sandbox"])
    assert table.exit_code == 0
    assert "ok       engine: pulumi" in table.stdout
    document = json.loads(CliRunner().invoke(group, ["doctor", "--format", "json"]).stdout)
    assert document["schema"] == "gpuprov.doctor/1"
    assert {check["check"] for check in document["checks"]} >= {"engine", "home", "state", "catalog", "cloud sandbox"}


@pytest.mark.usefixtures("engine")
@pytest.mark.parametrize(("task", "place", "said"), [("sevre", "4:7", "sevre"), ("serve", "3:13", "no/such")])
def test_a_wrong_spec_is_shown_at_its_place(home: Path, tmp_path: Path, task: str, place: str, said: str) -> None:
    spec = tmp_path / "workload.yaml"
    spec.write_text(f"version: 1\nname: case\nmodel: {{id: no/such}}\ntask: {task}\n")
    finding = found(doctor.examine(home, "sandbox", spec), "spec")
    assert finding.state == "broken"
    assert finding.found.startswith(f"{spec}:{place}: ")
    assert said in finding.found


@pytest.mark.usefixtures("engine")
@pytest.mark.parametrize(
    ("backend", "provider", "state", "said"),
    [
        ("s3://team-state", None, "broken", "needs a secrets provider"),
        ("s3://team-state", "awskms://alias/team", "ok", "s3://team-state, secrets by awskms://alias/team"),
        ("s3://team-state", "rot13", "broken", "rot13"),
        ("ftp://team-state", "passphrase", "broken", "none that gpuprov knows"),
    ],
)
def test_a_remote_backend_is_judged_without_touching_it(
    backend: str, provider: str | None, state: str, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = Path(os.environ["GPUPROV_HOME"])
    monkeypatch.setenv("GPUPROV_BACKEND", backend)
    if provider:
        monkeypatch.setenv("GPUPROV_SECRETS_PROVIDER", provider)
    finding = found(doctor.examine(home, "sandbox"), "state")
    assert finding.state == state
    assert said in finding.found
    assert (finding.fix is None) == (state == "ok")


def test_stacks_without_their_passphrase_are_broken(home: Path, engine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stack = home / "state" / ".pulumi" / "stacks" / "gpuprov" / "chat.json"
    stack.parent.mkdir(parents=True)
    stack.write_text("{}")
    assert found(doctor.examine(home, "sandbox"), "state").state == "broken"
    monkeypatch.setenv("GPUPROV_SECRETS_PROVIDER", "awskms://alias/team")
    assert found(doctor.examine(home, "sandbox"), "state").state == "ok"


def test_a_home_in_a_folder_that_may_not_be_entered_is_broken(
    tmp_path: Path, engine: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = Path.exists

    def exists(path: Path, **options: bool) -> bool:
        del options
        if path.is_relative_to(tmp_path / "closed"):
            raise PermissionError(13, "Permission denied", str(path))
        return real(path)

    monkeypatch.setattr(Path, "exists", exists)
    monkeypatch.setattr(os, "access", lambda path, mode: Path(path) != tmp_path)
    assert found(doctor.examine(tmp_path / "closed" / "home", "sandbox"), "home").state == "broken"


def test_something_broken_is_one_error_line_with_its_code(
    home: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("GPUPROV_PULUMI", str(tmp_path / "nothing"))
    for form in ("json", "table"):
        assert run(["doctor", "--format", form]) == 2, "no engine and no way to get it"
        out, err = capsys.readouterr()
        assert err == "error: broken: engine; mend each as its fix says\n"
        if form == "json":
            error = json.loads(out)["error"]
            assert (error["schema"], error["code"]) == ("gpuprov.error/1", 2)
            states = {check["check"]: check["state"] for check in json.loads(out)["checks"]}
            assert states["engine"] == "broken"
    assert "--get-engine" not in out, "what a variable names cannot be fetched"


def test_the_specs_own_profile_is_asked(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "none"))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "none"))
    spec = tmp_path / "workload.yaml"
    spec.write_text(f"{SPEC.read_text()}\naws: {{profile: of-the-team}}\n")
    seen = found(doctor.examine(home, "aws", spec), "cloud aws")
    assert seen.state == "broken"
    assert "of-the-team" in seen.found


def test_missing_credentials_alone_are_exit_3(
    home: Path, engine: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "none"))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "none"))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    assert run(["doctor", "--cloud", "aws"]) == 3
    assert "error: broken: cloud aws" in capsys.readouterr().err
    monkeypatch.setenv("GPUPROV_PULUMI", str(tmp_path / "nothing"))
    assert run(["doctor", "--cloud", "aws"]) == 2, "a wrong set-up comes before credentials"


def test_a_spec_that_cannot_be_read_is_exit_2_also_without_credentials(
    home: Path, engine: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "none"))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "none"))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    for cloud, named in (("sandbox", "broken: spec"), ("aws", "broken: cloud aws, spec")):
        assert run(["doctor", str(tmp_path / "no.yaml"), "--cloud", cloud]) == 2
        assert named in capsys.readouterr().err
