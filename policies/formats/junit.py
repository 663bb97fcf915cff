"""JUnit XML: one test case per rule and subject, so that a pipeline shows what was judged as well as what failed."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import groupby
from xml.etree import ElementTree as ET

from policies.finding import Finding
from policies.formats.report import Report, message_of, one_line, remedy_of, state_of
from policies.rule import Result

_NOT_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
"""Characters that XML 1.0 cannot hold in any form."""


def render(report: Report) -> str:
    """The report with a final newline. Advisory findings are passes with a note; waived ones are skipped."""
    root = ET.Element("testsuites", name="gpuprov")
    totals = {"tests": 0, "failures": 0, "errors": 0, "skipped": 0}
    results = sorted(
        report.verdict.results, key=lambda finding: (report.path(finding), finding.subject, finding.rule.id)
    )
    for path, group in groupby(results, key=report.path):
        suite = ET.SubElement(root, "testsuite", name=clean(path))
        counts = {"tests": 0, "failures": 0, "errors": 0, "skipped": 0}
        for _, cases in groupby(group, key=lambda finding: (finding.subject, finding.rule.id)):
            _add_case(suite, path, tuple(cases), counts)
        for name, count in counts.items():
            suite.set(name, str(count))
            totals[name] += count
    if not results:
        ET.SubElement(root, "testsuite", {"name": "gpuprov", **dict.fromkeys(totals, "0")})
    for name, count in totals.items():
        root.set(name, str(count))
    ET.indent(root)
    return '<?xml version="1.0" encoding="UTF-8"?>\n' + ET.tostring(root, encoding="unicode") + "\n"


def _add_case(suite: ET.Element, path: str, findings: Sequence[Finding], counts: dict[str, int]) -> None:
    """One rule on one subject; the worst of its judgements decides."""
    first = findings[0]
    attributes = {"classname": first.rule.id, "name": clean(first.subject), "file": clean(path)}
    case = ET.SubElement(suite, "testcase", attributes)
    counts["tests"] += 1
    found = [finding for finding in findings if finding.result is not Result.PASS]
    if violations := [finding for finding in found if finding.is_violation]:
        counts["failures"] += 1
        message = clean(message_of(violations[0]))
        element = ET.SubElement(case, "failure", type=str(first.rule.severity), message=message)
        element.text = "\n".join(_text(finding) for finding in violations)
    elif waived := [finding for finding in found if finding.waiver is not None or finding.in_baseline]:
        counts["skipped"] += 1
        waiver = waived[0].waiver
        reason = (
            one_line(f"waived by {waiver.owner} until {waiver.expires}: {waiver.reason}")
            if waiver
            else "in the baseline"
        )
        ET.SubElement(case, "skipped", message=clean(reason))
    if notes := [finding for finding in found if not finding.is_violation]:
        ET.SubElement(case, "system-out").text = "\n".join(
            f"{state_of(finding)}: {_text(finding)}" for finding in notes
        )


def _text(finding: Finding) -> str:
    remedy = remedy_of(finding)
    return clean(f"{finding.position}: {message_of(finding)}" + (f"; fix: {remedy}" if remedy else ""))


def clean(text: str) -> str:
    """The text without what XML cannot hold."""
    return _NOT_XML.sub("?", text)
