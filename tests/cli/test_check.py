"""``gpuprov check`` from outside: exit codes, the two streams, formats, waivers, baseline, policy files."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import pytest

from provisioner.cli.main import run
from tests.policies.builders import document

CLEAN = json.dumps(document(), indent=1)
OPEN = json.dumps(document({"access": {"cidrs": ["0.0.0.0/0"]}}), indent=1)
LARGE = json.dumps(
    document({"model.id": "meta-llama/Llama-3.1-70B-Instruct", "placement.instance_types": ["g6.xlarge"]}), indent=1
)
FORMATS = ("text", "json", "sarif", "junit", "github", "gitlab")


@dataclass(frozen=True)
class Answer:
    code: int
    out: str
    err: str

    @property
    def document(self) -> Any:
        return json.loads(self.out)


Check = Callable[..., Answer]


@pytest.fixture
def check(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Check:
    """Run ``check`` in an empty folder with some files in it."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("GITHUB_STEP_SUMMARY", raising=False)

    def checker(*arguments: str, **files: str) -> Answer:
        for name, text in files.items():
            path = tmp_path / name.replace("__", "/").replace("_yaml", ".yaml").replace("_json", ".json")
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        code = run(["check", *arguments])
        captured = capsys.readouterr()
        assert "Traceback" not in captured.out + captured.err
        return Answer(code, captured.out, captured.err)

    return checker


def waiver(**changes: object) -> str:
    day = (datetime.now(UTC) + timedelta(days=30)).date().isoformat()
    entry = {
        "rule": "open-cidr",
        "scope": "chat",
        "reason": "load test until Friday",
        "owner": "ana",
        "expires": day,
        **changes,
    }
    return json.dumps({"version": 1, "waivers": [entry]})


@pytest.mark.parametrize("form", FORMATS)
def test_a_clean_spec_passes_in_every_format(check: Check, form: str) -> None:
    answer = check("workload.yaml", "--format", form, workload_yaml=CLEAN)
    assert answer.code == 0
    assert "error:" not in answer.err
    if form in {"json", "sarif", "gitlab"}:
        json.loads(answer.out)
    if form == "junit":
        assert ET.fromstring(answer.out).get("failures") == "0"  # noqa: S314 - our own report


@pytest.mark.parametrize("form", FORMATS)
def test_a_violation_is_five_with_the_report_alone_on_standard_output(check: Check, form: str) -> None:
    answer = check("workload.yaml", "--format", form, workload_yaml=OPEN)
    assert answer.code == 5
    assert answer.err.count("error: workload.yaml:") == 1
    assert "open-cidr" in answer.out
    if form == "json":
        assert answer.document["schema"] == "gpuprov.check/1"
        (finding,) = answer.document["findings"]
        assert (finding["rule"], finding["result"], finding["waived"]) == ("open-cidr", "fail", False)
        assert OPEN.splitlines()[finding["line"] - 1].strip() == '"0.0.0.0/0"'


def test_an_under_sized_spec_is_five_with_the_shortfall_and_the_change(check: Check) -> None:
    answer = check("workload.yaml", workload_yaml=LARGE)
    assert answer.code == 5
    assert "under-sized" in answer.out
    assert "GiB missing" in answer.out
    assert "fix: smallest change: " in answer.out


def test_a_borderline_spec_passes_with_advice(check: Check, monkeypatch: pytest.MonkeyPatch) -> None:
    changes = {"placement": {"instance_types": ["g6.xlarge"], "capacity": "on-demand", "max_price": "5 USD/h"}}
    for concurrency in range(1, 60):
        text = json.dumps(document({**changes, "inference.concurrency": concurrency}))
        answer = check("workload.yaml", "--format", "json", workload_yaml=text)
        rules = {finding["rule"] for finding in answer.document["findings"]}
        if "borderline" in rules:
            assert answer.code == 0
            return
        assert answer.code == 0, "does not fit before it is borderline"
    pytest.fail("never borderline")


@pytest.mark.parametrize(
    "arguments",
    [
        (),
        ("nothing.yaml",),
        ("--write-baseline", "workload.yaml"),
        ("workload.yaml", "--format", "xml"),
        ("workload.yaml", "--waivers", "none.yaml"),
        ("workload.yaml", "--policy", "none.yaml"),
        ("workload.yaml", "--baseline", "none.json"),
        ("workload.yaml", "--stack", "nothing-of-this-name"),
    ],
)
def test_a_bad_invocation_is_two(check: Check, arguments: tuple[str, ...]) -> None:
    answer = check(*arguments, workload_yaml=OPEN)
    assert answer.code == 2
    assert answer.err.count("error: ") == 1


@pytest.mark.parametrize(
    "text",
    [
        "version: 1\ntask: serve\nbad: [",
        "version: 1\nname: x\ntask: serve\nmodel: {id: nobody/none}\n",
        "kind: Pod\n",
        "",
    ],
)
def test_e30_a_file_that_cannot_be_judged_is_two_before_five(check: Check, text: str) -> None:
    answer = check("a.yaml", "workload.yaml", "--format", "json", workload_yaml=OPEN, a_yaml=text)
    assert answer.code == 2
    assert answer.document["schema"] == "gpuprov.error/1"
    assert "a.yaml:" in answer.document["where"]


def test_several_broken_files_are_all_named(check: Check) -> None:
    answer = check("a.yaml", "b.yaml", a_yaml="a: [", b_yaml="b: [")
    assert answer.code == 2
    assert "a.yaml:" in answer.err
    assert "b.yaml:" in answer.err


def test_a_folder_counts_what_it_skips(check: Check) -> None:
    ours = {"in__workload_yaml": CLEAN, "in__other_yaml": "kind: Pod\n", "in__deep__more_json": "{}"}
    answer = check("in", **ours, in__node_modules__x_json="{}")
    assert answer.code == 0
    assert "2 other files skipped" in answer.err
    assert "not looked into: in/node_modules" in answer.err
    empty = check("empty", empty__x_json="{}")
    assert empty.code == 2
    assert "nothing to judge" in empty.err


def test_a_waiver_passes_and_an_expired_one_does_not(check: Check) -> None:
    answer = check("workload.yaml", "--waivers", "w.yaml", "--format", "json", workload_yaml=OPEN, w_yaml=waiver())
    assert answer.code == 0
    assert answer.document["findings"][0]["waived"] is True
    assert answer.document["findings"][0]["waiver"]["owner"] == "ana"
    expired = check("workload.yaml", "--waivers", "w.yaml", "--format", "json", w_yaml=waiver(expires="2026-01-01"))
    assert expired.code == 5
    assert {finding["rule"] for finding in expired.document["findings"]} == {"open-cidr", "waiver-expired"}


@pytest.mark.parametrize(
    "changes", [{"reason": "short"}, {"rule": "open-cidrs"}, {"expires": "2099-01-01"}, {"rule": "under-sized"}]
)
def test_a_wrong_waiver_is_two(check: Check, changes: dict[str, object]) -> None:
    answer = check("workload.yaml", "--waivers", "w.yaml", workload_yaml=OPEN, w_yaml=waiver(**changes))
    assert answer.code == 2
    assert "w.yaml:1:" in answer.err


def test_a_baseline_lets_old_findings_pass(check: Check, tmp_path: Path) -> None:
    assert check("workload.yaml", "--baseline", "b.json", "--write-baseline", workload_yaml=OPEN).code == 0
    assert check("workload.yaml", "--baseline", "b.json").code == 0
    more = json.dumps(document({"access": {"cidrs": ["0.0.0.0/0", "::/0"]}}))
    answer = check("workload.yaml", "--baseline", "b.json", "--format", "gitlab", workload_yaml=more)
    assert answer.code == 5
    assert len(answer.document) == 1


def test_a_baseline_that_covers_nothing_is_said(check: Check, tmp_path: Path) -> None:
    (tmp_path / "b.json").write_text(
        '{"schema": "gpuprov.baseline/1", "findings": [{"fingerprint": "of another project"}]}'
    )
    answer = check("w.yaml", "--baseline", "b.json", w_yaml=OPEN)
    assert answer.code == 5
    assert "nothing of the baseline b.json is found" in answer.err


@pytest.mark.parametrize("form", ["json", "sarif", "gitlab"])
def test_a_saved_report_is_a_baseline(check: Check, form: str) -> None:
    assert check("workload.yaml", "--format", form, "-o", "old.json", workload_yaml=OPEN).code == 5
    assert check("workload.yaml", "--baseline", "old.json").code == 0


def test_the_policy_file_beside_the_spec_counts(check: Check) -> None:
    policy = "version: 1\npolicy: {rules: {open-cidr: advisory}}\n"
    files = {"a__workload_yaml": OPEN, "a__gpuprov-policy_yaml": policy}
    assert check("a/workload.yaml", **files).code == 0
    other = check("a/workload.yaml", "--policy", "strict.yaml", strict_yaml="version: 1\npolicy: {preset: strict}\n")
    assert other.code == 5


@pytest.mark.parametrize(
    ("policy", "words"),
    [
        ("version: 1\npolicy: {rules: {open-cidrs: advisory}}\n", "did you mean open-cidr"),
        ("version: 1\npolicy: {rules: {open-cidr: {widest: 3}}}\n", "widest_ipv4_prefix"),
        ("version: 1\npolicy: [", "bracket"),
    ],
)
def test_e30_a_wrong_policy_file_is_two_with_its_place(check: Check, policy: str, words: str) -> None:
    answer = check("workload.yaml", "--policy", "p.yaml", workload_yaml=CLEAN, p_yaml=policy)
    assert answer.code == 2
    assert "p.yaml:2:" in answer.err
    assert words in answer.err


def test_a_policy_without_rules_is_two(check: Check) -> None:
    from policies.registry import RULES

    off = {rule.id: "disabled" for rule in RULES}
    answer = check(
        "workload.yaml",
        "--policy",
        "p.yaml",
        workload_yaml=OPEN,
        p_yaml=json.dumps({"version": 1, "policy": {"rules": off}}),
    )
    assert answer.code == 2
    assert "selects no rule" in answer.err


def test_e30_an_unknown_value_under_a_mandatory_rule_is_five(check: Check) -> None:
    machine = {"ami": "ami-0123456789abcdef0", "instance_type": "g6.xlarge", "tags": {"owner": "ana"}}
    change = {"actions": ["create"], "before": None, "after": machine, "after_sensitive": {}}
    change["after_unknown"] = {"metadata_options": True, "root_block_device": True}
    resource = {"address": "aws_instance.gpu", "mode": "managed", "type": "aws_instance", "name": "gpu"}
    plan = {"format_version": "1.2", "terraform_version": "1.9.5", "resource_changes": [{**resource, "change": change}]}
    answer = check("tfplan.json", "--format", "json", tfplan_json=json.dumps(plan))
    assert answer.code == 5
    unknown = {entry["rule"] for entry in answer.document["findings"] if entry["result"] == "unknown"}
    assert {"imdsv2", "root-encryption"} <= unknown


def test_e30_a_crashing_rule_is_two_and_named(check: Check, monkeypatch: pytest.MonkeyPatch) -> None:
    from dataclasses import replace

    from policies import selection
    from policies.registry import BY_ID

    broken = replace(BY_ID["open-cidr"], judge=lambda *_: 1 / 0)
    monkeypatch.setattr(selection.Policy, "selected", lambda _: (broken,))
    answer = check("workload.yaml", workload_yaml=CLEAN)
    assert answer.code == 2
    assert "the rule open-cidr crashed" in answer.err


def test_the_rules_are_listed(check: Check) -> None:
    text = check("--list-rules")
    assert text.code == 0
    assert "under-sized" in text.out
    listed = check("--list-rules", "--format", "json").document
    assert listed["schema"] == "gpuprov.rules/1"
    by_id = {rule["id"]: rule for rule in listed["rules"]}
    assert by_id["open-cidr"]["parameters"]["widest_ipv4_prefix"]["default"] == 16
    assert by_id["under-sized"]["waivable"] is False


@pytest.mark.parametrize(
    ("name", "start"), [("r.sarif", "{"), ("r.xml", "<?xml"), ("r.json", "{"), ("r.txt", "workload.yaml:")]
)
def test_the_suffix_of_the_output_file_chooses_the_format(check: Check, tmp_path: Path, name: str, start: str) -> None:
    answer = check("workload.yaml", "-o", name, workload_yaml=OPEN)
    assert answer.code == 5
    assert answer.out == ""
    assert (tmp_path / name).read_text().startswith(start)


def test_github_gets_annotations_and_a_summary(check: Check, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(tmp_path / "summary.md"))
    answer = check("workload.yaml", "--format", "github", workload_yaml=OPEN)
    assert answer.code == 5
    assert answer.out.startswith("::error file=workload.yaml,line=")
    assert "open-cidr" in (tmp_path / "summary.md").read_text()


def test_the_same_input_gives_the_same_bytes(check: Check) -> None:
    outputs = {check("workload.yaml", "--format", "sarif", workload_yaml=OPEN).out for _ in range(3)}
    assert len(outputs) == 1


def test_warnings_of_a_spec_go_to_standard_error(check: Check) -> None:
    text = json.dumps(document({"lifecycle.lease": "2h"}))
    answer = check("workload.yaml", "--format", "json", workload_yaml=text)
    assert answer.code == 0
    json.loads(answer.out)


def test_check_imports_no_cloud_engine_or_terminal_library(tmp_path: Path) -> None:
    import subprocess
    import sys

    (tmp_path / "workload.yaml").write_text(OPEN)
    script = (
        "import sys\nfrom provisioner.cli.main import run\n"
        "code = run(['check', 'workload.yaml'])\n"
        "heavy = {'boto3', 'botocore', 'google', 'pulumi', 'pulumi_policy', 'grpc', 'rich'} & set(sys.modules)\n"
        "sys.exit(f'imported {heavy}' if heavy else code)"
    )
    done = subprocess.run([sys.executable, "-c", script], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 5, done.stderr
