"""Masking: hiding facts from a rule never turns a failure into a pass (a seeded sample; COUNT raises it)."""

from __future__ import annotations

import os
import random
from dataclasses import fields, is_dataclass, replace
from datetime import date
from typing import Any

import pytest

from policies.facts import UNKNOWN, Candidate, Disk, Figure, Opening, SpecFacts, Subject
from policies.registry import BY_ID
from policies.rule import Result, Setting
from tests.policies.rule_cases import CASES

TODAY = date(2026, 11, 30)
MASKINGS_PER_FAILURE = int(os.environ.get("GPUPROV_MASKINGS", "20"))
SHOWN = {
    "name",
    "path",
    "source",
    "locate",
    "suggest",
    "key",
    "role",
    "cloud",
    "layout",
    "plan",
    "pinned",
    "digest_stated",
}
"""Fields that are never unknown: what the subject is, and what the gate computed itself."""
SPEC_KEYS = (
    "access.cidrs",
    "lifecycle.idle.after",
    "lifecycle.idle.then",
    "lifecycle.keep_failed",
    "lifecycle.max_lifetime",
    "lifecycle.pattern",
    "lifecycle.stopped.terminate_after",
    "model.source",
    "placement.budget",
    "placement.capacity",
    "placement.max_price",
    "run",
    "run.command",
    "run.env",
    "run.env.API_KEY",
    "run.env.HF_TOKEN",
    "run.image",
    "tags",
    "task",
    "training",
    "training.checkpoint",
    "training.checkpoint.every",
    "training.checkpoint.resumable",
)
NARROWED = {("sensitive_texts",), ("degrees_possible",), ("regions_offered",), ("zones_offered",)}


def maskable(subject: object) -> list[str]:
    if not is_dataclass(subject):
        return []
    return [field.name for field in fields(subject) if "Known" in str(field.type) and field.name not in SHOWN]


def masked(value: Any, dice: random.Random) -> Any:
    """A copy with some of its unknowable fields hidden, parts of tuples and mappings among them."""
    if isinstance(value, tuple) and value and isinstance(value[0], (Candidate, Disk, Figure, Opening)):
        return tuple(masked(item, dice) for item in value)
    if isinstance(value, dict) and value and dice.random() < 0.5:
        return {key: UNKNOWN if dice.random() < 0.5 else item for key, item in value.items()}
    if not is_dataclass(value) or isinstance(value, type):
        return value
    changes: dict[str, Any] = {}
    for name in maskable(value):
        if dice.random() < 0.3:
            changes[name] = UNKNOWN
        elif dice.random() < 0.5:
            changes[name] = masked(getattr(value, name), dice)
    if isinstance(value, SpecFacts):
        keys = [key for key in SPEC_KEYS if dice.random() < 0.15]
        changes["unknown_keys"] = value.unknown_keys | frozenset(keys)
    return replace(value, **changes)


FAILURES = [
    pytest.param(rule_id, subject, id=f"{rule_id}-{index}")
    for rule_id, cases in CASES.items()
    for index, subject in enumerate((*cases.fails, cases.boundary[1]))
]


@pytest.mark.parametrize(("rule_id", "subject"), FAILURES)
def test_masking_never_turns_a_failure_into_a_pass(rule_id: str, subject: Subject) -> None:
    rule, cases = BY_ID[rule_id], CASES[rule_id]
    setting = Setting({**rule.defaults(), **cases.parameters}, TODAY)
    dice = random.Random(f"{rule_id}/{subject.name}")
    for _ in range(MASKINGS_PER_FAILURE):
        hidden = masked(subject, dice)
        results = {outcome.result for outcome in rule.judge(hidden, setting)}
        assert results & {Result.FAIL, Result.UNKNOWN}, hidden


def test_the_masker_hides_something_of_every_kind_of_fact() -> None:
    dice = random.Random(7)
    kinds = {type(subject) for cases in CASES.values() for subject in cases.fails}
    for kind in kinds:
        subject = next(s for cases in CASES.values() for s in cases.fails if type(s) is kind)
        assert any(masked(subject, dice) != subject for _ in range(20)), kind
