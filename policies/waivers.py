"""Waivers: a named person lets one rule pass in one place, for a reason and until a day."""

from __future__ import annotations

from datetime import date
from fnmatch import fnmatchcase

from provisioner.errors import Position
from provisioner.records import record

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

    def covers(self, rule: str, subject: str, file: str) -> bool:
        """Whether it is for this rule, and this subject or its file, named from the project's root.

        A path is anchored there: ``workload.yaml`` is not ``prod/workload.yaml``, for which ``**/workload.yaml`` stands.
        """
        if rule != self.rule:
            return False
        globs = (self.scope, self.scope.removeprefix("**/"))
        return self.scope in ("*", subject) or any(fnmatchcase(file, glob) for glob in globs)
