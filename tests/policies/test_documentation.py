"""The documentation describes every rule as it is."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from policies.registry import RULES
from policies.rule import Rule

TEXT = (Path(__file__).parents[2] / "docs" / "policy.md").read_text(encoding="utf-8")
SECTIONS = dict(re.findall(r"^### ([a-z0-9-]+)\n(.*?)(?=^##|\Z)", TEXT, re.MULTILINE | re.DOTALL))


@pytest.mark.parametrize("rule", RULES, ids=[rule.id for rule in RULES])
def test_each_rule_is_documented_with_level_why_fix_and_parameters(rule: Rule) -> None:
    section = SECTIONS[rule.id]
    hard = "" if rule.waivable else ", cannot be waived"
    assert f"{rule.title}. *{rule.level}, {rule.severity}{hard}.*" in section
    assert f"Why: {rule.rationale}" in section
    assert "\nFix: " in section
    for parameter in rule.parameters:
        assert f"- `{parameter.name}` (default " in section
        assert parameter.about in section


def test_nothing_is_documented_that_does_not_exist() -> None:
    assert set(SECTIONS) == {rule.id for rule in RULES}


def test_findings_link_to_their_section() -> None:
    assert all(rule.docs == f"docs/policy.md#{rule.id}" for rule in RULES)
