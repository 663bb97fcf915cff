"""What a rule is: an identity, a level, parameters, and a pure function from facts to outcomes with three values."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import field
from datetime import date
from enum import StrEnum
from typing import Any

from policies.facts import Subject
from policies.parameters import Parameter
from provisioner.records import record

DOCS = "docs/policy.md"


class Result(StrEnum):
    """The three values of a judgement."""

    PASS = "pass"  # noqa: S105 - a verdict, no password
    FAIL = "fail"
    UNKNOWN = "unknown"


class Level(StrEnum):
    """What a failure does: ``mandatory`` ends with exit code 5, ``advisory`` is only shown."""

    MANDATORY = "mandatory"
    ADVISORY = "advisory"
    DISABLED = "disabled"


class Severity(StrEnum):
    """How bad a failure is, whatever its level."""

    LOW = "low"
    MEDIUM = "medium"
    HIGH = "high"
    CRITICAL = "critical"

    @property
    def rank(self) -> int:
        """Order: the worse, the higher."""
        return list(Severity).index(self)


@record(frozen=True, slots=True)
class Outcome:
    """One judgement on one fact.

    ``key`` leads to the fact in its document. ``identity`` tells outcomes of one rule on one subject apart without line
    numbers and without secret values; the key where it is empty.
    """

    result: Result
    key: str
    message: str = ""
    remedy: str | None = None
    identity: str = ""
    stays: bool = False
    """An unknown that no later step of the program resolves: the file leaves the fact to others (an account's default)."""
    hidden: tuple[str, ...] = field(default=(), repr=False)
    """Values in the file that no report may show."""


@record(frozen=True, slots=True)
class Setting:
    """What a rule knows beside the facts: its parameters and the day."""

    parameters: Mapping[str, Any]
    today: date


Judge = Callable[[Any, Setting], Iterable[Outcome]]
"""A rule's function; it yields nothing where the rule does not apply to the subject."""


@record(frozen=True, slots=True)
class Rule:
    """One rule. ``applies_to`` names the kinds of facts that it judges; ``judge`` gets subjects of these kinds alone."""

    id: str
    family: str
    title: str
    rationale: str
    severity: Severity
    applies_to: tuple[type[Subject], ...]
    judge: Judge = field(repr=False)
    level: Level = Level.MANDATORY
    waivable: bool = True
    parameters: tuple[Parameter, ...] = ()
    described_at: str = ""
    """Where an organisation's own rule is described; ours are in one document."""

    @property
    def docs(self) -> str:
        """Where the rule is described; ours relative to the repository."""
        return self.described_at or f"{DOCS}#{self.id}"

    def defaults(self) -> dict[str, Any]:
        """Default values of the parameters."""
        return {parameter.name: parameter.default for parameter in self.parameters}


def passed(key: str) -> Outcome:
    """The fact is as the rule wants it."""
    return Outcome(Result.PASS, key)


def failed(key: str, message: str, remedy: str, *, identity: str = "", hidden: tuple[str, ...] = ()) -> Outcome:
    """The fact breaks the rule; ``remedy`` is the smallest change that passes, ``hidden`` what no report may show."""
    return Outcome(Result.FAIL, key, message, remedy, identity, hidden=hidden)


def unknown(key: str, message: str, remedy: str, *, identity: str = "", stays: bool = False) -> Outcome:
    """The fact cannot be told from what is judged; ``stays`` where it will not be told later either."""
    return Outcome(Result.UNKNOWN, key, message, remedy, identity, stays)
