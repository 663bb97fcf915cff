"""An organisation's own rules: found by entry point, as strict and as isolated as ours."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import date
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

import pytest

from policies import own_rules
from policies.config import load_policy, load_waivers
from policies.engine import EngineGate
from policies.facts import SpecFacts
from policies.gate import RuleCrashed, judge
from policies.parameters import Parameter
from policies.placement import Placer
from policies.policy_keys import PolicyFileError
from policies.rule import Outcome, Rule, Setting, Severity, failed, passed
from provisioner.workload.kinds import Whole
from tests.policies.builders import catalog, spec
from tests.policies.test_pulumi import OWN, OWN_TYPE

TODAY = date(2026, 11, 30)


def short_name(facts: SpecFacts, setting: Setting) -> Iterator[Outcome]:
    """A workload's name is short."""
    if len(facts.name) <= setting.parameters["longest"]:
        yield passed("name")
    else:
        yield failed("name", f"{facts.name} is a long name", "shorten it")


def rule(**facts: Any) -> Rule:
    given = {
        "id": "acme-name",
        "family": "acme",
        "title": "Names are short",
        "rationale": "They are tags.",
        "severity": Severity.LOW,
        "applies_to": (SpecFacts,),
        "judge": short_name,
        "parameters": (Parameter("longest", Whole(1, 41), 3, "characters"),),
        **facts,
    }
    return Rule(**given)


ACME: list[Any] = [rule()]
CLASHING = [rule(id="open-cidr")]
CRASHING = [rule(judge=lambda *_: 1 / 0)]
NAMELESS = [rule(id="Not Kebab")]
KINDLESS = [rule(applies_to=())]
EMPTY: list[Any] = []
STRANGE = ["x"]


@pytest.fixture(autouse=True)
def installed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Packages that give rules, as if they were installed."""
    names = ("ACME", "CLASHING", "CRASHING", "NAMELESS", "KINDLESS", "EMPTY", "STRANGE", "MISSING")
    points = [EntryPoint(name.lower(), f"{__name__}:{name}", own_rules.GROUP) for name in names]
    monkeypatch.setattr(own_rules, "entry_points", lambda group: points if group == own_rules.GROUP else [])


def policy(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "gpuprov-policy.yaml"
    path.write_text(text)
    return path


def test_own_rules_run_beside_ours_with_parameters_and_waivers(tmp_path: Path) -> None:
    chosen = load_policy(policy(tmp_path, "version: 1\npolicy: {own_rules: [acme]}\n"), today=TODAY)
    verdict = judge([spec()], chosen, TODAY)
    assert [finding.rule.id for finding in verdict.violations] == ["acme-name"]
    longer = "version: 1\npolicy: {own_rules: [acme], rules: {acme-name: {longest: 10}}}\n"
    assert not judge([spec()], load_policy(policy(tmp_path, longer), today=TODAY), TODAY).violations
    entry = {"rule": "acme-name", "scope": "*", "reason": "renamed next month", "owner": "ana", "expires": "2026-12-30"}
    (tmp_path / "w.yaml").write_text(json.dumps({"version": 1, "waivers": [entry]}))
    with pytest.raises(PolicyFileError, match="no rule"):
        load_waivers(tmp_path / "w.yaml", today=TODAY)
    assert load_waivers(tmp_path / "w.yaml", today=TODAY, rules=chosen.rules)


def test_own_rules_of_a_base_file_stay(tmp_path: Path) -> None:
    (tmp_path / "org.yaml").write_text("version: 1\npolicy: {own_rules: [acme]}\n")
    chosen = load_policy(
        policy(tmp_path, "version: 1\nextends: org.yaml\npolicy: {rules: {acme-name: advisory}}\n"), today=TODAY
    )
    assert not judge([spec()], chosen, TODAY).violations
    assert "acme-name" in {finding.rule.id for finding in judge([spec()], chosen, TODAY).findings}


def test_own_rules_run_in_the_engine(tmp_path: Path) -> None:
    policy(tmp_path, "version: 1\npolicy: {own_rules: [acme]}\n")
    gate = EngineGate.of_project(tmp_path)
    gate._placer = Placer(catalog())
    assert "acme-name" in gate.policy.levels()
    assert {found.rule.id for found in gate.analyze(OWN_TYPE, "m", OWN) if found.mandatory} == {"acme-name"}
    gate.configure({"acme-name": ("disabled", {})})
    assert not [found for found in gate.analyze(OWN_TYPE, "m", OWN) if found.mandatory]


def test_a_crash_names_the_rule(tmp_path: Path) -> None:
    chosen = load_policy(policy(tmp_path, "version: 1\npolicy: {own_rules: [crashing]}\n"), today=TODAY)
    with pytest.raises(RuleCrashed, match="acme-name"):
        judge([spec()], chosen, TODAY)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("acmee", "no installed package"),
        ("clashing", "two rules have the id open-cidr"),
        ("nameless", "no rule"),
        ("kindless", "no kind of facts"),
        ("empty", "empty list"),
        ("strange", "no rule"),
        ("missing", "cannot be loaded"),
    ],
)
def test_unusable_rules_are_refused_with_their_place(tmp_path: Path, name: str, words: str) -> None:
    with pytest.raises(PolicyFileError, match=words) as found:
        load_policy(policy(tmp_path, f"version: 1\npolicy:\n  own_rules: [{name}]\n"), today=TODAY)
    assert "gpuprov-policy.yaml:3:" in str(found.value.where)
    assert found.value.exit_code == 2
