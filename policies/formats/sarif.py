"""SARIF 2.1.0 as GitHub code scanning ingests it whole.

Every result has a place with a relative uri and a line, every rule a help text, every result a fingerprint that no other
result has. Source: OASIS SARIF 2.1.0; GitHub, "SARIF support for code scanning" (limits: 25,000 results and rules a run, 20
tags a rule), read 2026-11.
"""

from __future__ import annotations

import json
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version
from typing import Any
from urllib.parse import quote

from policies.finding import Finding
from policies.formats.report import SECURITY_SEVERITY, Report, message_of, one_line, remedy_of
from policies.rule import Level, Rule

RESULTS_MAX = 25_000
SCHEMA_URI = "https://json.schemastore.org/sarif-2.1.0.json"
FINGERPRINT = "gpuprov/v1"


def render(report: Report) -> str:
    """The SARIF log with a final newline; beyond GitHub's limit only the first results, violations first."""
    findings = report.findings[:RESULTS_MAX]
    rules = report.verdict.rules
    index = {rule.id: number for number, rule in enumerate(rules)}
    extra = [rule for rule in {finding.rule.id: finding.rule for finding in findings}.values() if rule.id not in index]
    index |= {rule.id: len(rules) + number for number, rule in enumerate(extra)}
    run = {
        "tool": {"driver": _driver((*rules, *extra))},
        "columnKind": "unicodeCodePoints",
        "results": [_result(report, finding, index[finding.rule.id]) for finding in findings],
    }
    return json.dumps({"$schema": SCHEMA_URI, "version": "2.1.0", "runs": [run]}, indent=2, ensure_ascii=False) + "\n"


def _driver(rules: tuple[Rule, ...]) -> dict[str, Any]:
    driver: dict[str, Any] = {"name": "gpuprov", "rules": [_rule(rule) for rule in rules]}
    with suppress(PackageNotFoundError):  # run from a source tree that was never installed: the version is optional
        driver["semanticVersion"] = version("gpuprov")
    return driver


def _rule(rule: Rule) -> dict[str, Any]:
    properties: dict[str, Any] = {"tags": [rule.family], "precision": "high"}
    if rule.family == "security":
        properties |= {"tags": ["security"], "security-severity": SECURITY_SEVERITY[rule.severity]}
    return {
        "id": rule.id,
        "name": "".join(word.capitalize() for word in rule.id.split("-")),
        "shortDescription": {"text": rule.title},
        "fullDescription": {"text": rule.rationale},
        "help": {"text": f"{rule.rationale} See {rule.docs}."},
        "defaultConfiguration": {"level": "error" if rule.level is Level.MANDATORY else "note"},
        "properties": properties,
    }


def _result(report: Report, finding: Finding, index: int) -> dict[str, Any]:
    remedy = remedy_of(finding)
    text = message_of(finding) + (f" Fix: {remedy}" if remedy else "")
    result: dict[str, Any] = {
        "ruleId": finding.rule.id,
        "ruleIndex": index,
        "level": "error" if finding.level is Level.MANDATORY else "note",
        "kind": "fail",
        "message": {"text": text},
        "locations": [
            {
                "physicalLocation": {
                    "artifactLocation": {"uri": quote(report.path(finding), safe="/")},
                    "region": {
                        "startLine": max(1, finding.position.line),
                        "startColumn": max(1, finding.position.column),
                    },
                },
                "logicalLocations": [{"name": finding.subject, "kind": "resource"}],
            }
        ],
        "partialFingerprints": {FINGERPRINT: finding.fingerprint},
    }
    if finding.waiver is not None:
        reason = one_line(f"{finding.waiver.reason} ({finding.waiver.owner}, until {finding.waiver.expires})")
        result["suppressions"] = [{"kind": "external", "status": "accepted", "justification": reason}]
    elif finding.in_baseline:
        result["suppressions"] = [{"kind": "external", "status": "accepted", "justification": "in the baseline"}]
    return result
