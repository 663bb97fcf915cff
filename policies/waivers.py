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

    def covers(self, rule: str, subject: str, *files: str) -> bool:
        """Whether it is for this rule, and this subject or one of the spellings of its file."""
        if rule != self.rule:
            return False
        globs = (self.scope, f"*/{self.scope}")
        return self.scope in ("*", subject) or any(fnmatchcase(file, glob) for file in files for glob in globs)
