"""Every rule on facts that pass, fail, stand at the limit, or cannot be told; and that no rule lacks such facts."""

from __future__ import annotations

from datetime import date, timedelta

import pytest

from policies.facts import Subject
from policies.gate import judge
from policies.registry import BY_ID, RULES
from policies.rule import Level, Result, Rule, Setting
from policies.selection import Override, Policy
from policies.waivers import Waiver
from tests.policies.builders import spec
from tests.policies.rule_cases import ALL_CASES, CASES, Cases
from tests.policies.verdicts import mistakes

TODAY = date(2026, 11, 30)
NEVER_UNKNOWN = {"no-offer"}
"""Rules on a plan that the gate made itself: it is there or it is not."""


def results(rule: Rule, subject: Subject, cases: Cases) -> set[Result]:
    setting = Setting({**rule.defaults(), **cases.parameters}, TODAY)
    assert isinstance(subject, rule.applies_to)
    return {outcome.result for outcome in rule.judge(subject, setting)}


def listed(kind: str) -> list[object]:
    return [
        pytest.param(BY_ID[rule_id], subject, cases, id=f"{rule_id}-{index}")
        for rule_id, cases in CASES.items()
        for index, subject in enumerate(getattr(cases, kind))
    ]


@pytest.mark.parametrize(
    ("rule_id", "cases"), ALL_CASES, ids=[f"{rule_id}-{n}" for n, (rule_id, _) in enumerate(ALL_CASES)]
)
def test_no_case_is_judged_wrongly(rule_id: str, cases: Cases) -> None:
    """What the hunt for mutants asks too: verdicts, words, and silence where a rule does not apply."""
    rule = BY_ID[rule_id]
    assert list(mistakes(rule, cases, Setting({**rule.defaults(), **cases.parameters}, TODAY))) == []


@pytest.mark.parametrize(("rule", "subject", "cases"), listed("passes"))
def test_passes(rule: Rule, subject: Subject, cases: Cases) -> None:
    assert results(rule, subject, cases) == {Result.PASS}


@pytest.mark.parametrize(("rule", "subject", "cases"), listed("fails"))
def test_fails(rule: Rule, subject: Subject, cases: Cases) -> None:
    assert Result.FAIL in results(rule, subject, cases)


@pytest.mark.parametrize(("rule", "subject", "cases"), listed("unknowns"))
def test_unknown(rule: Rule, subject: Subject, cases: Cases) -> None:
    found = results(rule, subject, cases)
    assert Result.UNKNOWN in found
    assert Result.FAIL not in found


@pytest.mark.parametrize("rule_id", list(CASES))
def test_boundary(rule_id: str) -> None:
    last, first = CASES[rule_id].boundary
    assert results(BY_ID[rule_id], last, CASES[rule_id]) == {Result.PASS}
    assert Result.FAIL in results(BY_ID[rule_id], first, CASES[rule_id])


@pytest.mark.parametrize("rule_id", list(CASES))
def test_each_failure_says_what_and_the_change_that_passes(rule_id: str) -> None:
    rule, cases = BY_ID[rule_id], CASES[rule_id]
    setting = Setting({**rule.defaults(), **cases.parameters}, TODAY)
    for subject in (*cases.fails, *cases.unknowns):
        for outcome in rule.judge(subject, setting):
            if outcome.result is not Result.PASS:
                assert outcome.message
                assert outcome.remedy
                assert "UNKNOWN" not in outcome.message + outcome.remedy
                assert "None" not in outcome.message


def policy_of(rule: Rule, cases: Cases, *waivers: Waiver) -> Policy:
    override = Override(level=Level.MANDATORY, parameters=cases.parameters)
    return Policy(overrides={rule.id: override}, rules=(rule,), waivers=waivers)


@pytest.mark.parametrize("rule_id", [rule.id for rule in RULES if rule.waivable and rule.applies_to])
def test_waived(rule_id: str) -> None:
    rule, cases = BY_ID[rule_id], CASES[rule_id]
    subject = cases.fails[0]
    open_verdict = judge([subject], policy_of(rule, cases), TODAY)
    assert open_verdict.violations
    waiver = Waiver(rule_id, subject.name, "agreed with the team", "ana@example.com", TODAY + timedelta(days=1))
    verdict = judge([subject], policy_of(rule, cases, waiver), TODAY)
    assert not verdict.violations
    assert all(finding.waiver == waiver for finding in verdict.findings if finding.rule.id == rule_id)


def test_no_rule_lacks_cases() -> None:
    judged = {rule.id for rule in RULES if rule.applies_to}
    assert set(CASES) == judged
    for rule_id, cases in CASES.items():
        assert len(cases.passes) >= 3, rule_id
        assert len(cases.fails) >= 3, rule_id
        assert cases.unknowns or rule_id in NEVER_UNKNOWN, rule_id


def test_there_are_more_than_forty_rules_with_unique_kebab_ids() -> None:
    ids = [rule.id for rule in RULES]
    assert len(ids) == len(set(ids)) >= 40
    assert all(rule_id == rule_id.lower() and " " not in rule_id and "_" not in rule_id for rule_id in ids)
    assert all(rule.title and rule.rationale and rule.family for rule in RULES)


def test_parameters_have_a_schema_and_their_default_is_valid() -> None:
    for rule in RULES:
        for parameter in rule.parameters:
            schema = parameter.schema()
            assert schema["description"]
            if parameter.default is not None and parameter.default != ():
                from provisioner.workload.tree import from_python

                assert parameter.kind.read(from_python(parameter.kind.write(parameter.default))) == parameter.default


def test_every_filter_of_the_planner_is_known_to_the_sizing_rules() -> None:
    """A new filter must be sorted: does it say that nothing holds the workload, or that something held it?"""
    import re
    from pathlib import Path

    import provisioner.planner
    from policies.rules.sizing import HELD_FILTERS, SIZE_FILTERS

    narrowing = {"cloud", "instance-type", "gpu", "excluded-gpu", "status", "capacity"}
    folder = Path(provisioner.planner.__file__).parent
    used = {name for path in folder.glob("*.py") for name in re.findall(r'Refusal\(\s*"([a-z-]+)"', path.read_text())}
    assert used - narrowing - HELD_FILTERS - set(SIZE_FILTERS) == set()
    assert not HELD_FILTERS & set(SIZE_FILTERS)


OFF = {"lifecycle.pattern": "bursty", "lifecycle.idle.after": "off", "lifecycle.max_lifetime": "off"}
BOTH = ("idle-rule", "lifetime-limit")


@pytest.mark.parametrize(
    ("changes", "masked", "result"),
    [
        (OFF, (), Result.FAIL),
        ({**OFF, "lifecycle.max_spend": "200 USD"}, (), Result.PASS),
        ({**OFF, "lifecycle.lease": "2h"}, (), Result.PASS),
        (OFF, ("lifecycle.lease",), Result.UNKNOWN),
        ({**OFF, "lifecycle.max_spend": "200 USD"}, ("lifecycle.lease",), Result.PASS),
    ],
)
@pytest.mark.parametrize("rule_id", BOTH)
def test_an_end_that_is_off_needs_another_one(
    rule_id: str, changes: dict[str, object], masked: tuple[str, ...], result: Result
) -> None:
    """The contract allows ``off``; without a limit of the organisation only a bursty machine that nothing ends is a fault."""
    assert results(BY_ID[rule_id], spec(changes, unknown=masked), Cases((), (), (spec(), spec()), ())) == {result}


@pytest.mark.parametrize(("rule_id", "other"), [(BOTH[0], "lifecycle.max_lifetime"), (BOTH[1], "lifecycle.idle.after")])
def test_idle_rule_and_lifetime_stand_in_for_each_other(rule_id: str, other: str) -> None:
    cases = Cases((), (), (spec(), spec()), ())
    assert results(BY_ID[rule_id], spec({**OFF, other: "12h"}), cases) == {Result.PASS}
    assert results(BY_ID[rule_id], spec({**OFF, other: ...}), cases) == {Result.PASS}
    assert results(BY_ID[rule_id], spec({**OFF, other: "12h"}, unknown=(other,)), cases) == {Result.UNKNOWN}
    limited = Cases((), (), (spec(), spec()), (), {"max_idle": timedelta(hours=20), "max_lifetime": timedelta(days=1)})
    assert results(BY_ID[rule_id], spec({**OFF, other: "12h"}), limited) == {Result.FAIL}
