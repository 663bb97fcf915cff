"""Reports: what each platform refuses, drops or merges, from random results as well as chosen ones."""

from __future__ import annotations

import json
import random
import string
from datetime import date, timedelta
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import pytest

from policies.finding import Finding, Verdict
from policies.formats import github, sarif
from policies.formats.github import summary
from policies.formats.render import MODULES, append_step_summary, render
from policies.formats.report import Report
from policies.gate import judge
from policies.registry import RULES
from policies.rule import Level, Outcome, Result
from policies.selection import Policy
from policies.waivers import Waiver
from provisioner.errors import Position
from tests.policies.builders import spec
from tests.policies.sarif_rules import ingestion_faults, schema_faults

TODAY = date(2026, 11, 30)
WAIVER = Waiver("open-cidr", "*", "load test until Friday", "ana@example.com", TODAY + timedelta(days=9), "OPS-1")
ODD = 'quote " <tag> & | % \r\n\t\x00\x0b ü 日本 \u2028 \ud83d'.encode("utf-8", "replace").decode()


def finding(dice: random.Random, number: int) -> Finding:
    result = dice.choice(list(Result))
    text = "".join(dice.choice(string.printable + ODD) for _ in range(dice.randrange(1, 60))) or "x"
    file = dice.choice(["workload.yaml", "a/b c.yaml", "./x.yaml", "tfplan.json", "-", "/abs/ü.yaml", "..\\w.yaml"])
    return Finding(
        dice.choice(RULES),
        dice.choice([Level.MANDATORY, Level.ADVISORY]),
        Outcome(result, "key", f"m {text}" if result is not Result.PASS else "", text, ""),
        f"subject-{dice.randrange(5)} {text[:3]}",
        file,
        Position(file, dice.choice([1, 1, 7, 400]), dice.choice([1, 3, 200])),
        f"mark-{number}",
        WAIVER if dice.random() < 0.2 and result is not Result.PASS else None,
        in_baseline=dice.random() < 0.1,
    )


def reports(count: int) -> list[Report]:
    dice = random.Random(5)
    made = []
    for _ in range(count):
        results = tuple(finding(dice, number) for number in range(dice.randrange(0, 25)))
        made.append(Report(Verdict(results, len(results), RULES), None, ("workload.yaml",)))
    return made


REPORTS = reports(60)


def check_sarif(document: Any) -> list[Any]:
    """The results of a log that the standard and GitHub accept."""
    assert schema_faults(document) == []
    assert ingestion_faults(document) == []
    return list(document["runs"][0]["results"])


@pytest.mark.parametrize("report", REPORTS)
def test_sarif_holds_every_finding_with_place_and_fingerprint(report: Report) -> None:
    results = check_sarif(json.loads(render(report, "sarif")))
    assert len(results) == len(report.verdict.findings)


@pytest.mark.parametrize("report", REPORTS)
def test_junit_reads_back_with_the_counts_it_states(report: Report) -> None:
    root = ET.fromstring(render(report, "junit"))  # noqa: S314 - our own report
    assert root.tag == "testsuites"
    cases = list(root.iter("testcase"))
    assert int(root.get("tests", "")) == len(cases)
    pairs = {(report.path(f), f.subject, f.rule.id) for f in report.verdict.results}
    assert len(cases) == len(pairs)
    failing = {(report.path(f), f.subject, f.rule.id) for f in report.verdict.violations}
    assert int(root.get("failures", "")) == len(failing) == sum(case.find("failure") is not None for case in cases)
    for suite in root.iter("testsuite"):
        for attribute, tag in (("failures", "failure"), ("skipped", "skipped"), ("errors", "error")):
            assert int(suite.get(attribute, "")) == sum(
                case.find(tag) is not None for case in suite.findall("testcase")
            )
        assert int(suite.get("tests", "")) == len(suite.findall("testcase"))
    assert all(case.get("classname") and case.get("name") for case in cases)


@pytest.mark.parametrize("report", REPORTS)
def test_x2_gitlab_shows_each_open_finding_once(report: Report) -> None:
    issues = json.loads(render(report, "gitlab"))
    shown = [f for f in report.verdict.findings if f.waiver is None and not f.in_baseline]
    assert len(issues) == len(shown)
    assert len({issue["fingerprint"] for issue in issues}) == len(issues)
    for issue in issues:
        assert issue["severity"] in {"info", "minor", "major", "critical", "blocker"}
        assert not issue["location"]["path"].startswith(("/", "./"))
        assert issue["location"]["lines"]["begin"] >= 1
        assert issue["description"]


@pytest.mark.parametrize("report", REPORTS)
def test_github_annotations_are_one_line_each(report: Report) -> None:
    lines = render(report, "github").splitlines()
    shown = [f for f in report.verdict.findings if f.waiver is None and not f.in_baseline]
    assert len(lines) == len(shown)
    assert all(line.startswith(("::error file=", "::notice file=")) for line in lines)
    assert sum(line.startswith("::error") for line in lines) == len(report.verdict.violations)


@pytest.mark.parametrize("report", REPORTS)
def test_json_is_the_contracted_document(report: Report) -> None:
    document = json.loads(render(report, "json"))
    assert document["schema"] == "gpuprov.check/1"
    assert len(document["findings"]) == len(report.verdict.findings)
    for entry in document["findings"]:
        assert {"rule", "result", "severity", "path", "line", "column", "message", "remedy", "waived"} <= entry.keys()
        assert entry["result"] in {"fail", "unknown"}
        assert isinstance(entry["waived"], bool)
    assert document["counts"]["violations"] == len(report.verdict.violations)


@pytest.mark.parametrize("form", list(MODULES))
def test_an_empty_run_is_valid_in_every_format(form: str) -> None:
    text = render(Report(Verdict((), 0, RULES)), form)
    assert text.endswith("\n") or form == "github"
    if form in {"json", "sarif", "gitlab"}:
        json.loads(text)
    if form == "junit":
        assert ET.fromstring(text).get("failures") == "0"  # noqa: S314 - our own report


@pytest.mark.parametrize("form", list(MODULES))
def test_the_same_results_give_the_same_bytes(form: str) -> None:
    for report in REPORTS[:10]:
        assert render(report, form) == render(report, form)


def test_sarif_says_why_a_finding_is_suppressed() -> None:
    verdict = judge([spec({"access": {"cidrs": ["0.0.0.0/0"]}})], Policy(waivers=(WAIVER,)), TODAY)
    (result,) = check_sarif(json.loads(render(Report(verdict), "sarif")))
    (suppression,) = result["suppressions"]  # type: ignore[misc]
    assert "load test until Friday" in suppression["justification"]  # type: ignore[index]
    assert "ana@example.com" in suppression["justification"]  # type: ignore[index]


def test_x1_a_finding_without_a_file_still_has_a_place() -> None:
    verdict = judge([spec({"access": {"cidrs": ["0.0.0.0/0"]}})], Policy(), TODAY)
    (result,) = check_sarif(json.loads(render(Report(verdict), "sarif")))
    assert result["level"] == "error"
    (location,) = result["locations"]  # type: ignore[misc]
    assert location["physicalLocation"]["artifactLocation"]["uri"]  # type: ignore[index]
    assert location["physicalLocation"]["region"]["startLine"] >= 1  # type: ignore[index]


def test_the_text_shows_the_line_with_a_marker_why_and_the_fix(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "workload.yaml").write_text("version: 1\naccess:\n  cidrs: [0.0.0.0/0]\ntags: {}\n")
    subject = spec({"access": {"cidrs": ["0.0.0.0/0"]}}, locate=lambda _: Position("workload.yaml", 3, 11))
    text = render(Report(judge([subject], Policy(), TODAY)), "text")
    assert "workload.yaml:3:11: violation: open-cidr (critical)" in text
    assert "  3 |   cidrs: [0.0.0.0/0]\n    |           ^\n" in text
    assert "  why: " in text
    assert "  fix: name the networks" in text
    assert "1 violation, 0 advisory" in text


def test_the_step_summary_lists_all_and_is_cut_at_the_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    report = max(REPORTS, key=lambda each: len(each.findings))
    text = summary(report)
    assert sum(line.startswith("| ") for line in text.splitlines()) == len(report.findings) + 1
    append_step_summary(report, tmp_path / "summary.md")
    append_step_summary(report, tmp_path / "summary.md")
    assert (tmp_path / "summary.md").read_text(encoding="utf-8") == text * 2
    monkeypatch.setattr(github, "SUMMARY_BYTES_MAX", 900)
    cut = summary(report)
    assert len(cut.encode()) < 1000
    assert cut.endswith("GitHub takes 1 MiB.\n")


def test_sarif_keeps_within_the_limit_of_results(monkeypatch: pytest.MonkeyPatch) -> None:
    assert sarif.RESULTS_MAX == 25_000
    monkeypatch.setattr(sarif, "RESULTS_MAX", 3)
    report = max(REPORTS, key=lambda each: len(each.findings))
    results = check_sarif(json.loads(render(report, "sarif")))
    assert [result["partialFingerprints"]["gpuprov/v1"] for result in results] == [
        finding.fingerprint for finding in report.findings[:3]
    ]


@pytest.mark.parametrize("form", ["sarif", "gitlab", "github", "junit"])
def test_a_file_outside_the_project_has_no_way_upwards_in_its_path(
    form: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    open_ = spec({"access": {"cidrs": ["0.0.0.0/0"]}}, path="../deploy/workload.yaml")
    text = render(Report(judge([open_], Policy(), date(2026, 11, 30))), form)
    assert "deploy/workload.yaml" in text
    assert "../" not in text
