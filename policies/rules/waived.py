"""Rules about waivers themselves. The gate judges them where it applies waivers, so that their functions see no facts."""

from __future__ import annotations

from collections.abc import Iterator

from policies.facts import Subject
from policies.rule import Level, Outcome, Rule, Setting, Severity


def _nothing(facts: Subject, setting: Setting) -> Iterator[Outcome]:
    del facts, setting
    return iter(())


WAIVER_EXPIRED = Rule(
    "waiver-expired",
    "waivers",
    "Waivers are renewed or removed in time",
    "An expired waiver no longer lets anything pass; its rule counts again.",
    Severity.MEDIUM,
    (),
    _nothing,
    level=Level.ADVISORY,
    waivable=False,
)
WAIVER_DEAD = Rule(
    "waiver-dead",
    "waivers",
    "Waivers cover something",
    "A waiver that covers nothing waits to hide the next fault.",
    Severity.LOW,
    (),
    _nothing,
    level=Level.ADVISORY,
    waivable=False,
)
RULES = (WAIVER_EXPIRED, WAIVER_DEAD)
