"""The gate: runs rules over subjects, applies levels, waivers and the baseline, and never passes because it broke.

A rule that crashes and a selection without rules end with exit code 2; an unknown fact fails a mandatory rule.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import field, replace
from datetime import UTC, date, datetime
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from policies.facts import Subject
from policies.rule import Level, Outcome, Result, Rule, Setting
from policies.secrets import redact_shapes
from policies.selection import Policy, RuleChoice
from policies.waivers import Waiver
from provisioner.errors import PolicyViolation, Position, UsageError
from provisioner.records import record

if TYPE_CHECKING:
    from provisioner.catalog.snapshot import Catalog
    from provisioner.planner.plan import Plan
    from provisioner.workload.spec import Workload


class RuleCrashed(UsageError):
    """A rule raised instead of judging: the gate cannot say pass."""

    kind = "rule-crashed"


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
            message, where=first.position if first.position.file != "-" else None, remedy=first.outcome.remedy
        )


def judge(subjects: Iterable[Subject], policy: Policy, today: date) -> Verdict:
    """Run every selected rule over every subject of its kind.

    Raises:
        UsageError: no rule is selected.
        RuleCrashed: a rule raised.
    """
    rules = policy.selected()
    if not rules:
        raise UsageError(
            "the policy selects no rule: a gate without rules passes everything",
            where=policy.file,
            remedy="enable a rule in gpuprov-policy.yaml, or remove the file",
        )
    ordered = sorted(subjects, key=lambda subject: (subject.path, subject.name, type(subject).__name__))
    found: list[Finding] = []
    for subject in ordered:
        for rule in rules:
            choice = policy.choice(rule, subject)
            if choice.level is not Level.DISABLED and isinstance(subject, rule.applies_to):
                found.extend(_run(rule, subject, choice, today))
    found = _with_fingerprints(_with_waivers(found, policy, today), policy.root)
    found.extend(_with_fingerprints(list(policy.waiver_findings(found, today)), policy.root))
    found = [replace(finding, in_baseline=_is_old(finding, policy.baseline)) for finding in found]
    return Verdict(tuple(found), subjects=len(ordered), rules=rules)


def _run(rule: Rule, subject: Subject, choice: RuleChoice, today: date) -> list[Finding]:
    try:
        outcomes = tuple(rule.judge(subject, Setting(choice.parameters, today)))
        found = [
            Finding(
                rule,
                choice.level,
                outcome,
                subject.name,
                subject.path,
                subject.locate(outcome.key),
                unknown_passes=choice.unknown_passes,
            )
            for outcome in outcomes
        ]
    except Exception as error:
        raise RuleCrashed(
            f"the rule {rule.id} crashed on {subject.name}: {type(error).__name__}",
            where=Position(subject.path),
            remedy="this is a bug in the rule: please report it; until it is mended, disable the rule in gpuprov-policy.yaml",
        ) from error
    return found


def _is_old(finding: Finding, baseline: frozenset[str]) -> bool:
    """Whether a finding was there before; what cannot be waived cannot be hidden in a baseline either."""
    return finding.rule.waivable and finding.result is not Result.PASS and finding.fingerprint in baseline


def _with_waivers(found: Sequence[Finding], policy: Policy, today: date) -> list[Finding]:
    waivers = [waiver for waiver in policy.waivers if not waiver.has_expired(today)]
    return [replace(finding, waiver=_waiver_of(finding, waivers, policy.root)) for finding in found]


def _waiver_of(finding: Finding, waivers: Sequence[Waiver], root: Path | None) -> Waiver | None:
    if finding.result is Result.PASS:
        return None
    return next((waiver for waiver in waivers if is_covered(finding, waiver, root)), None)


def is_covered(finding: Finding, waiver: Waiver, root: Path | None) -> bool:
    """Whether a waiver is for a finding, its file named as it was given or from the project's root."""
    return waiver.covers(finding.rule.id, finding.subject, finding.path, report_path(finding.path, root))


def _with_fingerprints(found: Sequence[Finding], root: Path | None) -> list[Finding]:
    """Findings with marks that depend on rule, file, subject and fact, never on lines; equal ones are numbered."""
    seen: Counter[str] = Counter()
    marked = []
    for finding in found:
        identity = finding.outcome.identity or finding.outcome.key
        parts = (finding.rule.id, report_path(finding.path, root), finding.subject, identity)
        mark = hashlib.sha256("\0".join(parts).encode("utf-8", "surrogatepass")).hexdigest()[:40]
        seen[mark] += 1
        marked.append(replace(finding, fingerprint=mark if seen[mark] == 1 else f"{mark}-{seen[mark]}"))
    return marked


@cache
def report_path(file: str, root: Path | None) -> str:
    """A file's path as reports name it: relative to the project's root where it lies below, else as it was given."""
    if root is None or file == "-":
        return file
    try:
        return Path(file).absolute().resolve().relative_to(root).as_posix()
    except ValueError:
        return file


def today_utc() -> date:
    """The day that waivers and ages are counted by."""
    return datetime.now(UTC).date()


def judge_plan(workload: Workload, plan: Plan, catalog: Catalog, *, spec: Path | None = None) -> Verdict:
    """What the gate says of a plan that is about to be carried out: ``up`` asks before anything is created.

    Every offer that the plan may use is sized again. ``spec`` is the file that the workload came from: it gives positions, and
    the policy file beside it (or in a folder above it) applies.

    Raises:
        UsageError: the policy file is wrong, or a rule crashed.
    """
    from policies.config import find_policy, load_policy
    from policies.facts_plan import planned_subjects

    policy = load_policy(find_policy([spec])) if spec is not None else load_policy(None)
    return judge(planned_subjects(workload, plan, catalog, spec=spec), policy, today_utc())
