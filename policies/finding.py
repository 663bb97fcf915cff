"""What a run found: each judgement with its place, and the verdict over all of them."""

from __future__ import annotations

from collections import Counter
from dataclasses import field

from policies.files import NO_FILE
from policies.rule import Level, Outcome, Result, Rule
from policies.secrets import redact_shapes
from policies.waivers import Waiver
from provisioner.errors import PolicyViolation, Position
from provisioner.records import record


@record(frozen=True, slots=True)
class Finding:
    """One judgement with its place, its level and what became of it."""

    rule: Rule
    level: Level
    outcome: Outcome
    subject: str
    path: str
    """The subject's file."""
    position: Position
    fingerprint: str = ""
    waiver: Waiver | None = None
    in_baseline: bool = False
    unknown_passes: bool = False
    """The policy file lets this rule's unknowns through (``unknown: advisory``)."""

    @property
    def result(self) -> Result:
        """Pass, fail or unknown."""
        return self.outcome.result

    @property
    def is_violation(self) -> bool:
        """Whether it alone makes the gate say no."""
        if self.level is not Level.MANDATORY or self.waiver is not None or self.in_baseline:
            return False
        return self.result is Result.FAIL or (self.result is Result.UNKNOWN and not self.unknown_passes)


@record(frozen=True, slots=True)
class Verdict:
    """All judgements of one run, passes included, in a stable order."""

    results: tuple[Finding, ...]
    subjects: int
    rules: tuple[Rule, ...] = field(repr=False)

    @property
    def findings(self) -> tuple[Finding, ...]:
        """What is not a pass, waived ones included."""
        return tuple(finding for finding in self.results if finding.result is not Result.PASS)

    @property
    def violations(self) -> tuple[Finding, ...]:
        """What makes the gate say no, the most severe first."""
        found = (finding for finding in self.results if finding.is_violation)
        return tuple(
            sorted(found, key=lambda finding: (-finding.rule.severity.rank, finding.path, finding.position.line))
        )

    def counts(self) -> dict[str, int]:
        """Numbers of the run, for reports."""
        results = Counter(str(finding.result) for finding in self.results)
        return {
            "subjects": self.subjects,
            "rules": len(self.rules),
            "pass": results["pass"],
            "fail": results["fail"],
            "unknown": results["unknown"],
            "violations": len(self.violations),
            "advisory": sum(1 for finding in self.findings if finding.level is Level.ADVISORY),
            "waived": sum(1 for finding in self.findings if finding.waiver is not None),
            "baseline": sum(1 for finding in self.findings if finding.in_baseline),
        }

    def error(self) -> PolicyViolation | None:
        """The error of a run that says no; ``None`` where it passes."""
        if not self.violations:
            return None
        first = self.violations[0]
        more = f" (and {len(self.violations) - 1} more)" if len(self.violations) > 1 else ""
        message = redact_shapes(f"{first.rule.id}: {first.outcome.message}{more}")
        return PolicyViolation(
            message, where=first.position if first.position.file != NO_FILE else None, remedy=first.outcome.remedy
        )
