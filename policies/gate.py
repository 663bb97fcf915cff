"""The gate: runs rules over subjects, applies levels, waivers and the baseline, and never passes because it broke.

A rule that crashes and a selection without rules end with exit code 2; an unknown fact fails a mandatory rule.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import date
from pathlib import Path

from policies.facts import Subject
from policies.files import report_path
from policies.finding import Finding, Verdict
from policies.rule import Level, Result, Rule, Setting
from policies.selection import Policy, RuleChoice
from policies.waiving import findings_of, with_waivers
from provisioner.errors import Position, UsageError


class RuleCrashed(UsageError):
    """A rule raised instead of judging: the gate cannot say pass."""

    kind = "rule-crashed"


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
            if not isinstance(subject, rule.applies_to):
                continue
            choice = policy.choice(rule, subject)
            if choice.level is not Level.DISABLED:
                found.extend(_run(rule, subject, choice, today))
    found = _with_fingerprints(with_waivers(found, policy.waivers, today, policy.root), policy.root)
    on_waivers = findings_of(policy.waivers, found, policy.levels(), today, policy.root)
    found.extend(_with_fingerprints(list(on_waivers), policy.root))
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
