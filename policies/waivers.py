"""Waivers: a named person lets one rule pass in one place, for a reason and until a day."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import date
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING

from policies.rule import Level, Outcome, Result
from policies.rules.waived import WAIVER_DEAD, WAIVER_EXPIRED
from provisioner.errors import Position
from provisioner.records import record

if TYPE_CHECKING:
    from policies.gate import Finding

DAYS_MAX = 90
"""Longest time until a waiver ends (CONTRACTS section 4)."""
REASON_CHARACTERS_MIN = 10
NOWHERE = Position("-")


@record(frozen=True, slots=True)
class Waiver:
    """One waiver. ``scope`` is a workload's name, a glob over paths, or ``*``; it holds through the whole day ``expires``, UTC."""

    rule: str
    scope: str
    reason: str
    owner: str
    expires: date
    ticket: str | None = None
    position: Position = NOWHERE

    def has_expired(self, today: date) -> bool:
        """Whether its last day is over."""
        return today > self.expires

    def covers(self, rule: str, subject: str, *files: str) -> bool:
        """Whether it is for this rule, and this subject or one of the spellings of its file."""
        if rule != self.rule:
            return False
        globs = (self.scope, f"*/{self.scope}")
        return self.scope in ("*", subject) or any(fnmatchcase(file, glob) for file in files for glob in globs)


def findings_of(
    waivers: Sequence[Waiver], found: Sequence[Finding], levels: Mapping[str, Level], today: date, root: Path | None
) -> Iterator[Finding]:
    """Findings on waivers: expired ones, and those that cover nothing of what was found."""
    from policies.gate import Finding, is_covered

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
