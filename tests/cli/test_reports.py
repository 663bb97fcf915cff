"""Published reports of specs, plans and gates that said too little, from outside; ids name scenario rows."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from provisioner.cli.main import run

SPEC = """\
version: 1
name: chat
task: serve
model: {id: meta-llama/Llama-3.1-8B-Instruct}
inference: {context_tokens: 8192, concurrency: 4}
"""
Ask = Callable[..., tuple[int, Any, str]]


@pytest.fixture
def ask(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Ask:
    """Run a command on a spec, answered in JSON: the code, the document, standard error."""
    monkeypatch.chdir(tmp_path)

    def call(command: str, extra: str = "", *more: str, spec: str = SPEC) -> tuple[int, Any, str]:
        (tmp_path / "workload.yaml").write_text(spec + extra)
        code = run([command, "workload.yaml", "--format", "json", *more])
        captured = capsys.readouterr()
        return code, json.loads(captured.out), captured.err

    return call


def test_l7_a_bursty_endpoint_without_any_end_gets_one_and_the_plan_shows_it(ask: Ask, capsys: Any) -> None:
    code, plan, _ = ask("plan", "lifecycle: {pattern: bursty}\n")
    lifecycle = plan["workload"]["spec"]["lifecycle"]
    assert code == 0
    assert (lifecycle["idle"]["after"], lifecycle["max_lifetime"]) == ("auto", "1d")
    shown = {}
    for name, changes in (("defaults", ()), ("off", ("--set", "lifecycle.idle.after=off"))):
        assert run(["plan", "workload.yaml", *changes]) == 0
        shown[name] = " ".join(capsys.readouterr().out.split())
    assert "min idle, and 1d after its start at the latest: a day without work costs $" in shown["defaults"]
    assert "a day until it is stopped, at the latest after 1d" in shown["off"]  # with its price, never silently


@pytest.mark.parametrize(
    ("extra", "more"),
    [
        ("lifecycle: {pattern: bursty, idle: {after: 20m}}\n", ()),
        ("lifecycle: {pattern: bursty}\n", ("--set", "lifecycle.idle.after=20m")),
    ],
)
def test_i9_an_idle_limit_stated_anywhere_is_in_the_resolved_plan(ask: Ask, extra: str, more: tuple[str, ...]) -> None:
    _, plan, _ = ask("plan", extra, *more)
    assert plan["workload"]["spec"]["lifecycle"]["idle"]["after"] == "20m"


def test_i9_an_idle_limit_in_the_wrong_place_is_refused(ask: Ask) -> None:
    code, error, _ = ask("plan", "idle: {after: 20m}\n")
    assert (code, error["where"]) == (2, "workload.yaml:6:1")
    code, error, _ = ask("plan", "lifecycle: {idle_after: 20m}\n")
    assert (code, error["where"]) == (2, "workload.yaml:6:13")


@pytest.mark.parametrize(("after", "code"), [("60m", 0), ("61m", 5), ("off", 5), ("0m", 2)])
def test_i13_a_limit_that_an_edit_takes_away_is_refused_by_the_same_check(
    ask: Ask, tmp_path: Path, after: str, code: int
) -> None:
    rules = {"idle-rule": {"level": "mandatory", "max_idle": "60m"}}
    (tmp_path / "gpuprov.policy.yaml").write_text(json.dumps({"version": 1, "policy": {"rules": rules}}))
    lifecycle = f"lifecycle: {{pattern: bursty, idle: {{after: {after}}}}}\n"
    got, document, _ = ask("check", lifecycle, "--policy", "gpuprov.policy.yaml")
    assert got == code, document
    failing = {entry["rule"] for entry in document.get("findings", ()) if entry["result"] == "fail"}
    assert ("idle-rule" in failing) is (code == 5)


def test_i14_the_plan_names_both_timers_and_what_a_stopped_month_costs(ask: Ask) -> None:
    _, plan, _ = ask("plan", "lifecycle: {pattern: bursty, idle: {after: 1h}, stopped: {terminate_after: 7d}}\n")
    lifecycle = plan["workload"]["spec"]["lifecycle"]
    assert (lifecycle["idle"]["after"], lifecycle["stopped"]["terminate_after"]) == ("1h", "7d")
    assert float(plan["cost"]["stopped_usd_per_month"]) > 0


def test_c11_a_region_that_does_not_sell_the_type_names_those_that_do(ask: Ask) -> None:
    code, plan, err = ask("plan", "placement: {instance_types: [g5.xlarge], regions: [us-west-1]}\n")
    assert code == 6
    assert plan["choice"] is None
    told = json.dumps([plan["rejections"], plan["closest"], plan["error"]])
    assert "us-west-1" in told
    assert "us-west-2" in told
    assert "placement" in err


@pytest.mark.parametrize("command", ["plan", "check"])
def test_p14_an_unknown_key_at_any_depth_has_its_place_and_the_nearest_key(ask: Ask, command: str) -> None:
    for extra, where, nearest in (
        ("num_workers: 2\n", "workload.yaml:6:1", None),
        ("storage: {checkpoint: auto}\n", "workload.yaml:6:11", "checkpoints"),
        ("lifecycle:\n  idle:\n    aftr: 20m\n", "workload.yaml:8:5", "after"),
    ):
        code, error, _ = ask(command, extra)
        assert (code, error["where"]) == (2, where)
        assert "unknown key" in error["message"]
        if nearest:
            assert nearest in f"{error['message']} {error['remedy']}"


@pytest.mark.parametrize("command", ["plan", "check", "size"])
def test_p15_broken_yaml_is_an_error_at_its_line_and_column(ask: Ask, command: str) -> None:
    code, error, err = ask(command, "storage: {data: 5GiB\nplacement: [\n")
    assert code == 2
    assert error["where"].startswith("workload.yaml:")
    assert len(error["where"].split(":")) == 3
    assert len([line for line in err.splitlines() if line.startswith("error: ")]) == 1


def test_x5_a_container_on_a_bridge_is_warned_of_where_metadata_goes_one_hop(ask: Ask) -> None:
    place = "placement: {clouds: [aws]}\n"
    for command, is_told in (
        ("[docker, run, --rm, --gpus, all, 'acme/x:1']", True),
        ("[sh, -c, 'podman run acme/x:1']", True),
        ("[docker, compose, -f, x.yaml, up]", True),
        ("[docker, run, --network, host, 'acme/x:1']", False),
        ("[docker, run, --net=host, 'acme/x:1']", False),
        ("[python, serve.py]", False),
    ):
        _, plan, _ = ask("plan", f"{place}run: {{command: {command}}}\n")
        assert any("bridge network" in warning for warning in plan["warnings"]) is is_told, command
    _, plan, _ = ask("plan", "placement: {clouds: [gcp]}\nrun: {command: [docker, run, x]}\n")
    assert not any("bridge network" in warning for warning in plan["warnings"])


def test_p6_the_policy_may_refuse_an_old_price(ask: Ask, tmp_path: Path) -> None:
    for most, code in (("1d", 5), ("3660d", 0)):
        rules = {"price-age": {"level": "mandatory", "max_age": most}}
        (tmp_path / "p.yaml").write_text(json.dumps({"version": 1, "policy": {"rules": rules}}))
        got, document, _ = ask("check", "lifecycle: {idle: {after: 1h}}\n", "--policy", "p.yaml")
        failing = {entry["rule"] for entry in document["findings"] if entry["result"] == "fail"}
        assert (got, "price-age" in failing) == (code, code == 5)


def _terraform(
    tmp_path: Path, capsys: Any, kind: str, *machines: dict[str, Any], form: str = "json"
) -> tuple[int, Any]:
    changes = [
        {
            "address": f"{kind}.m{number}",
            "mode": "managed",
            "type": kind,
            "name": f"m{number}",
            "change": {"actions": ["create"], "before": None, "after": machine, "after_unknown": {}},
        }
        for number, machine in enumerate(machines)
    ]
    plan = {"format_version": "1.2", "terraform_version": "1.9.5", "resource_changes": changes}
    (tmp_path / "tfplan.json").write_text(json.dumps(plan, indent=1))
    code = run(["check", str(tmp_path / "tfplan.json"), "--format", form])
    return code, json.loads(capsys.readouterr().out)


@pytest.mark.parametrize(
    ("machine_type", "scheduling", "is_caught"),
    [
        ("g2-standard-4", [], True),
        ("g2-standard-4", [{"on_host_maintenance": "MIGRATE"}], True),
        ("g2-standard-4", [{"on_host_maintenance": "TERMINATE"}], False),
        ("e2-standard-4", [], False),
        ("e2-standard-4", [{"on_host_maintenance": "TERMINATE"}], True),
        ("e2-standard-4", [{"on_host_maintenance": "TERMINATE", "preemptible": True}], False),
    ],
)
def test_c18_a_gpu_machine_of_google_that_is_not_ended_for_maintenance_is_caught_before_its_apply(
    tmp_path: Path, capsys: Any, machine_type: str, scheduling: list[dict[str, str]], is_caught: bool
) -> None:
    machine = {"machine_type": machine_type, "zone": "us-central1-a", "scheduling": scheduling}
    code, document = _terraform(tmp_path, capsys, "google_compute_instance", machine)
    failing = {entry["rule"] for entry in document.get("findings", ()) if entry["result"] == "fail"}
    assert ("host-maintenance" in failing) is is_caught
    assert code == 5 or not is_caught


def test_x2_two_findings_of_one_rule_in_one_file_have_fingerprints_of_their_own(tmp_path: Path, capsys: Any) -> None:
    machine = {"ami": "ami-1", "instance_type": "g6.xlarge", "metadata_options": [{"http_tokens": "optional"}]}
    code, issues = _terraform(tmp_path, capsys, "aws_instance", machine, machine, form="gitlab")
    found = [issue for issue in issues if issue["check_name"] == "imdsv2"]
    assert code == 5
    assert len(found) == len({issue["fingerprint"] for issue in found}) == 2
