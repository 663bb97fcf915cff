"""GitLab Code Quality: an array of issues, each with a fingerprint of its own.

Source: GitLab, "Code Quality", implement a custom tool (description, check_name, fingerprint, severity, location), read 2026-11.
"""

from __future__ import annotations

import json
from typing import Any

from policies.finding import Finding
from policies.formats.report import GITLAB_SEVERITY, Report, message_of, remedy_of


def render(report: Report) -> str:
    """The array with a final newline; what is waived or in the baseline is left out, advisory findings are ``info``."""
    issues = [
        _issue(report, finding) for finding in report.findings if finding.waiver is None and not finding.in_baseline
    ]
    return json.dumps(issues, indent=2, ensure_ascii=False) + "\n"


def _issue(report: Report, finding: Finding) -> dict[str, Any]:
    remedy = remedy_of(finding)
    return {
        "description": message_of(finding) + (f" Fix: {remedy}" if remedy else ""),
        "check_name": finding.rule.id,
        "fingerprint": finding.fingerprint,
        "severity": GITLAB_SEVERITY[finding.rule.severity] if finding.is_violation else "info",
        "location": {"path": report.path(finding), "lines": {"begin": max(1, finding.position.line)}},
    }
