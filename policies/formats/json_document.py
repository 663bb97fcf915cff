"""The contracted JSON document, ``gpuprov.check/1``."""

from __future__ import annotations

import json
from typing import Any

from policies.finding import Finding
from policies.formats.report import Report, message_of, one_line, remedy_of

SCHEMA = "gpuprov.check/1"


def render(report: Report) -> str:
    """The document with a final newline."""
    document = {
        "schema": SCHEMA,
        "findings": [_finding(finding) for finding in report.findings],
        "counts": report.verdict.counts() | {"files": len(report.files), "skipped_files": report.skipped},
    }
    return json.dumps(document, indent=2, ensure_ascii=False) + "\n"


def _finding(finding: Finding) -> dict[str, Any]:
    waiver = finding.waiver
    return {
        "rule": finding.rule.id,
        "result": str(finding.result),
        "severity": str(finding.rule.severity),
        "level": str(finding.level),
        "path": finding.path,
        "line": finding.position.line,
        "column": finding.position.column,
        "subject": finding.subject,
        "message": message_of(finding),
        "remedy": remedy_of(finding),
        "waived": waiver is not None,
        "waiver": None
        if waiver is None
        else {
            "owner": one_line(waiver.owner),
            "reason": one_line(waiver.reason),
            "expires": waiver.expires.isoformat(),
            "ticket": one_line(waiver.ticket) if waiver.ticket is not None else None,
        },
        "baseline": finding.in_baseline,
        "fingerprint": finding.fingerprint,
        "docs": finding.rule.docs,
    }
