"""What every report starts from: the verdict, redaction, and the project's root for paths."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cached_property
from pathlib import Path

from policies.files import report_path
from policies.finding import Finding, Verdict
from policies.rule import Severity
from policies.secrets import redact_shapes
from provisioner.records import record


@record(frozen=True)
class Report:
    """One run's verdict, ready to be written.

    ``root`` is what paths of machine-read reports are relative to; ``skipped`` counts files of folders that are not ours,
    ``left_out`` names the folders that were not looked into.
    """

    verdict: Verdict
    root: Path | None = None
    files: tuple[str, ...] = ()
    skipped: int = 0
    left_out: tuple[str, ...] = ()

    @cached_property
    def findings(self) -> tuple[Finding, ...]:
        """What is not a pass, violations first, then by place."""
        return tuple(sorted(self.verdict.findings, key=_order))

    @cached_property
    def hidden(self) -> tuple[str, ...]:
        """Values in the judged files that no report may show."""
        return tuple({value for finding in self.verdict.results for value in finding.outcome.hidden})

    def path(self, finding: Finding) -> str:
        """Path of a finding for machine-read reports: relative, with forward slashes."""
        path = report_path(finding.path, self.root).replace("\\", "/").removeprefix("./")
        while path.startswith("../"):  # outside the project: GitHub and GitLab take no way upwards
            path = path.removeprefix("../")
        return path.lstrip("/") or "workload.yaml"


def _order(finding: Finding) -> tuple[bool, str, int, int, str]:
    place = finding.position
    return (not finding.is_violation, place.file, place.line, place.column, finding.rule.id)


def message_of(finding: Finding) -> str:
    """The finding in one line, without secrets."""
    return one_line(finding.outcome.message)


def remedy_of(finding: Finding) -> str | None:
    """The smallest change that passes, without secrets."""
    return one_line(finding.outcome.remedy) if finding.outcome.remedy else None


def one_line(text: str) -> str:
    """A text of ours on one line, without secrets and control characters."""
    flat = " ".join(redact_shapes(text).split())
    return "".join(character if character.isprintable() else "?" for character in flat)


def state_of(finding: Finding) -> str:
    """What became of a finding: violation, advisory, waived, or in the baseline."""
    if finding.waiver is not None:
        return "waived"
    if finding.in_baseline:
        return "baseline"
    return "violation" if finding.is_violation else "advisory"


def counts_line(report: Report) -> str:
    """The run in one line."""
    counts = report.verdict.counts()
    parts = [
        f"{counts['violations']} {_plural('violation', counts['violations'])}",
        f"{counts['advisory']} advisory",
        *(
            f"{counts[name]} {word}"
            for name, word in (("waived", "waived"), ("baseline", "in the baseline"))
            if counts[name]
        ),
    ]
    subjects, rules = counts["subjects"], counts["rules"]
    return f"{', '.join(parts)}; {subjects} {_plural('subject', subjects)} judged by {rules} rules"


def _plural(word: str, count: int) -> str:
    return word if count == 1 else f"{word}s"


GITLAB_SEVERITY = {
    Severity.LOW: "minor",
    Severity.MEDIUM: "major",
    Severity.HIGH: "critical",
    Severity.CRITICAL: "blocker",
}
SECURITY_SEVERITY = {Severity.LOW: "3.0", Severity.MEDIUM: "5.5", Severity.HIGH: "8.0", Severity.CRITICAL: "9.5"}
"""Scores that GitHub maps to the same four words (low below 4.0, medium below 7.0, high below 9.0)."""


def open_findings(report: Report) -> Iterable[Finding]:
    """Findings that are neither waived nor in the baseline."""
    return (finding for finding in report.findings if finding.waiver is None and not finding.in_baseline)
