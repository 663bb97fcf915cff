"""GitHub Actions: annotations on standard output, and a step summary, since annotations are cut after ten a step.

Source: GitHub, "Workflow commands for GitHub Actions" (message and property escaping, ``GITHUB_STEP_SUMMARY``), read 2026-11.
"""

from __future__ import annotations

from policies.finding import Finding
from policies.formats.report import Report, counts_line, message_of, remedy_of, state_of

SUMMARY_BYTES_MAX = 1_000_000
"""GitHub refuses a step summary of more than 1 MiB."""


def render(report: Report) -> str:
    """One workflow command a finding."""
    return "".join(
        f"{_command(report, finding)}\n"
        for finding in report.findings
        if finding.waiver is None and not finding.in_baseline
    )


def _command(report: Report, finding: Finding) -> str:
    word = "error" if finding.is_violation else "notice"
    place = {
        "file": report.path(finding),
        "line": str(finding.position.line),
        "col": str(finding.position.column),
        "title": f"{finding.rule.id}: {finding.rule.title}",
    }
    properties = ",".join(f"{name}={escape_property(value)}" for name, value in place.items())
    remedy = remedy_of(finding)
    return f"::{word} {properties}::{escape(message_of(finding) + (f' Fix: {remedy}' if remedy else ''))}"


def escape(text: str) -> str:
    """A message as workflow commands want it."""
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def escape_property(text: str) -> str:
    """A property as workflow commands want it."""
    return escape(text).replace(":", "%3A").replace(",", "%2C")


def summary(report: Report) -> str:
    """The step summary in Markdown: all findings, whatever their number."""
    lines = ["## gpuprov check", "", counts_line(report), ""]
    if report.findings:
        lines += ["| | rule | where | what | fix |", "|---|---|---|---|---|"]
        lines += [_row(report, finding) for finding in report.findings]
    text = "\n".join(lines) + "\n"
    content = text.encode("utf-8")
    if len(content) <= SUMMARY_BYTES_MAX:
        return text
    kept = content[:SUMMARY_BYTES_MAX].decode("utf-8", errors="ignore").rpartition("\n")[0]
    return f"{kept}\n\nThe rest is cut: GitHub takes 1 MiB.\n"


def _row(report: Report, finding: Finding) -> str:
    where = f"{report.path(finding)}:{finding.position.line}"
    cells = (state_of(finding), finding.rule.id, where, message_of(finding), remedy_of(finding) or "")
    return "| " + " | ".join(_cell(cell) for cell in cells) + " |"


def _cell(text: str) -> str:
    return text.replace("\\", "\\\\").replace("|", "\\|").replace("<", "&lt;").replace("`", "\\`")
