"""Waivers applied: which findings they cover, and what is wrong with the waivers themselves."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import date
from pathlib import Path

from policies.files import report_path
from policies.finding import Finding
from policies.rule import Level, Outcome, Result
from policies.rules.waived import WAIVER_DEAD, WAIVER_EXPIRED
from policies.waivers import Waiver


def with_waivers(found: Sequence[Finding], waivers: Sequence[Waiver], today: date, root: Path | None) -> list[Finding]:
    """Findings, each with the first waiver in force that covers it."""
    in_force = [waiver for waiver in waivers if not waiver.has_expired(today)]
    return [replace(finding, waiver=_waiver_of(finding, in_force, root)) for finding in found]


def _waiver_of(finding: Finding, waivers: Sequence[Waiver], root: Path | None) -> Waiver | None:
    if finding.result is Result.PASS:
        return None
    return next((waiver for waiver in waivers if is_covered(finding, waiver, root)), None)


def is_covered(finding: Finding, waiver: Waiver, root: Path | None) -> bool:
    """Whether a waiver is for a finding."""
    return waiver.covers(finding.rule.id, finding.subject, report_path(finding.path, root).removeprefix("./"))


def findings_of(
    waivers: Sequence[Waiver], found: Sequence[Finding], levels: Mapping[str, Level], today: date, root: Path | None
) -> Iterator[Finding]:
    """Findings on waivers: expired ones, and those that cover nothing of what was found."""
    wrong = [finding for finding in found if finding.result is not Result.PASS]
    for waiver in waivers:
        if waiver.has_expired(today):
            rule, outcome = WAIVER_EXPIRED, _expired(waiver)
        elif not any(is_covered(finding, waiver, root) for finding in wrong):
            rule, outcome = WAIVER_DEAD, _dead(waiver)
        else:
            continue
        level = levels.get(rule.id, rule.level)
        if level is not Level.DISABLED:
            place = waiver.position
            yield Finding(rule, level, outcome, f"waiver of {waiver.rule}", place.file, place)


def _expired(waiver: Waiver) -> Outcome:
    message = f"the waiver of {waiver.rule} for {waiver.scope} expired on {waiver.expires}"
    remedy = f"mend what it covered and remove it, or let {waiver.owner} renew it"
    return Outcome(Result.FAIL, "expires", message, remedy, f"{waiver.rule}\0{waiver.scope}")


def _dead(waiver: Waiver) -> Outcome:
    message = f"dead waiver: nothing that was checked breaks {waiver.rule} in {waiver.scope}"
    return Outcome(Result.FAIL, "rule", message, "remove the waiver", f"{waiver.rule}\0{waiver.scope}")
