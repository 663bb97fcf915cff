"""The gate itself: three values, levels, crashes, empty selections, order and fingerprints."""

from __future__ import annotations

import random
from collections.abc import Iterator
from datetime import date
from typing import Any

import pytest

from policies.facts import UNKNOWN, SpecFacts
from policies.gate import RuleCrashed, judge
from policies.placement import Placer
from policies.plan_gate import judge_plan
from policies.registry import RULES
from policies.rule import Level, Outcome, Result, Rule, Setting, Severity, failed, passed, unknown
from policies.selection import Override, Policy, Scope
from provisioner.errors import PolicyViolation, UsageError
from tests.policies.builders import BASE, catalog, document, firewall, spec, workload

TODAY = date(2026, 11, 30)


def rule(outcome: Outcome | Exception, **facts: Any) -> Rule:
    def function(subject: SpecFacts, setting: Setting) -> Iterator[Outcome]:
        del subject, setting
        if isinstance(outcome, Exception):
            raise outcome
        yield outcome

    given = {"id": "a-rule", "family": "test", "title": "t", "rationale": "r", "severity": Severity.LOW, **facts}
    return Rule(applies_to=(SpecFacts,), judge=function, **given)


@pytest.mark.parametrize(
    ("outcome", "level", "violates"),
    [
        (passed("name"), Level.MANDATORY, False),
        (failed("name", "m", "r"), Level.MANDATORY, True),
        (unknown("name", "m", "r"), Level.MANDATORY, True),
        (failed("name", "m", "r"), Level.ADVISORY, False),
        (unknown("name", "m", "r"), Level.ADVISORY, False),
    ],
)
def test_unknown_fails_a_mandatory_rule_and_advice_fails_nothing(
    outcome: Outcome, level: Level, violates: bool
) -> None:
    verdict = judge([spec()], Policy(rules=(rule(outcome, level=level),)), TODAY)
    assert bool(verdict.violations) is violates
    error = verdict.error()
    assert (error is not None) is violates
    if error is not None:
        assert isinstance(error, PolicyViolation)
        assert error.exit_code == 5


def test_unknowns_pass_only_where_the_policy_says_so() -> None:
    chosen = rule(unknown("name", "m", "r"))
    assert not judge([spec()], Policy(rules=(chosen,), unknown_passes=True), TODAY).violations
    override = {"a-rule": Override(unknown_passes=True)}
    assert not judge([spec()], Policy(rules=(chosen,), overrides=override), TODAY).violations
    strict = Policy(rules=(rule(failed("name", "m", "r")),), unknown_passes=True)
    assert judge([spec()], strict, TODAY).violations


@pytest.mark.parametrize("number", range(20))
def test_a_rule_that_crashes_is_named_and_never_passes(number: int) -> None:
    crash = [ValueError("x"), KeyError("y"), RecursionError(), AttributeError("z"), ZeroDivisionError()][number % 5]
    crashing = rule(crash, id=f"crashing-{number}", level=[Level.MANDATORY, Level.ADVISORY][number % 2])
    with pytest.raises(RuleCrashed, match=f"crashing-{number}") as found:
        judge([spec()], Policy(rules=(*RULES, crashing)), TODAY)
    assert found.value.exit_code == 2


def test_the_text_of_a_crash_stays_out_of_the_message() -> None:
    with pytest.raises(RuleCrashed) as found:
        judge([spec()], Policy(rules=(rule(ValueError("hf_" + "a" * 30)),)), TODAY)
    assert "hf_a" not in str(found.value)


def test_no_rule_at_all_is_an_error() -> None:
    everything_off = {entry.id: Override(level=Level.DISABLED) for entry in RULES}
    for policy in (Policy(rules=()), Policy(overrides=everything_off)):
        with pytest.raises(UsageError, match="selects no rule") as found:
            judge([spec()], policy, TODAY)
        assert found.value.exit_code == 2


def test_a_disabled_rule_does_not_run() -> None:
    off = Policy(
        rules=(rule(ValueError("never")), rule(passed("name"), id="other")),
        overrides={"a-rule": Override(Level.DISABLED)},
    )
    assert [finding.rule.id for finding in judge([spec()], off, TODAY).results] == ["other"]


def test_rules_see_only_their_kind_of_facts() -> None:
    verdict = judge([firewall(("10.0.0.0/8", None))], Policy(rules=(rule(ValueError("never")), *RULES)), TODAY)
    assert {finding.rule.id for finding in verdict.results} == {"open-cidr", "open-admin-port"}


def test_scopes_choose_by_path_name_environment_and_tag() -> None:
    off = {"a-rule": Override(level=Level.ADVISORY)}
    chosen = rule(failed("name", "m", "r"))
    subject = spec(path="teams/search/workload.yaml", tags={"environment": "dev", "team": "search"})
    for scope in (
        Scope(off, paths=("teams/search/*",)),
        Scope(off, names=("ch*",)),
        Scope(off, environments=("dev", "test")),
        Scope(off, tags={"team": "sea*"}),
        Scope(off, paths=("*.yaml",), environments=("dev",), tags={"team": "search"}),
    ):
        assert not judge([subject], Policy(rules=(chosen,), scopes=(scope,)), TODAY).violations
    for scope in (
        Scope(off, paths=("teams/ads/*",)),
        Scope(off, names=("other",)),
        Scope(off, environments=("prod",)),
        Scope(off, tags={"team": "ads"}),
        Scope(off, paths=("*.yaml",), environments=("prod",)),
    ):
        assert judge([subject], Policy(rules=(chosen,), scopes=(scope,)), TODAY).violations


def test_a_scope_whose_tags_are_unknown_only_makes_stricter() -> None:
    subject = spec(tags=UNKNOWN)
    softer = Scope({"a-rule": Override(Level.ADVISORY)}, environments=("dev",))
    stricter = Scope({"a-rule": Override(Level.MANDATORY)}, environments=("prod",))
    mandatory, advisory = rule(failed("name", "m", "r")), rule(failed("name", "m", "r"), level=Level.ADVISORY)
    assert judge([subject], Policy(rules=(mandatory,), scopes=(softer,)), TODAY).violations
    assert judge([subject], Policy(rules=(advisory,), scopes=(stricter,)), TODAY).violations


def test_fingerprints_are_unique_and_do_not_depend_on_order() -> None:
    cidrs = ["0.0.0.0/0", "::/0", "0.0.0.0/1", "128.0.0.0/1"]
    dice = random.Random(3)
    marks = set()
    for _ in range(25):
        dice.shuffle(cidrs)
        subjects = [spec({"access": {"cidrs": list(cidrs)}}), spec({"access": {"cidrs": list(cidrs)}}, path="b.yaml")]
        dice.shuffle(subjects)
        verdict = judge(subjects, Policy(), TODAY)
        found = [finding.fingerprint for finding in verdict.results]
        assert len(found) == len(set(found))
        marks.add(frozenset(finding.fingerprint for finding in verdict.violations))
    assert len(marks) == 1
    assert len(next(iter(marks))) == 8


def test_equal_findings_are_numbered() -> None:
    twice = firewall(("0.0.0.0/0", (1, 2)), ("0.0.0.0/0", (3, 4)))
    verdict = judge([twice], Policy(), TODAY)
    marks = [finding.fingerprint for finding in verdict.violations]
    assert len(marks) == 2
    assert marks[1] == f"{marks[0]}-2"


def test_counts_add_up() -> None:
    verdict = judge([spec({"access": {"cidrs": ["0.0.0.0/0"]}})], Policy(), TODAY)
    counts = verdict.counts()
    assert counts["violations"] == counts["fail"] == 1
    assert counts["pass"] + counts["fail"] + counts["unknown"] == len(verdict.results)
    assert counts["subjects"] == 1


def test_a_plan_is_judged_before_it_is_carried_out() -> None:
    wanted = workload()
    plan = Placer(catalog()).plan(wanted)
    assert not judge_plan(wanted, plan, catalog()).violations
    large = workload({"model.id": "meta-llama/Llama-3.1-70B-Instruct"})
    verdict = judge_plan(large, plan, catalog())
    assert {"under-sized", "plan-intact"} <= {finding.rule.id for finding in verdict.violations}
    error = verdict.error()
    assert error is not None
    assert "GiB" in error.message


def test_the_policy_file_beside_the_spec_applies_before_up(tmp_path: Any) -> None:
    import json

    path = tmp_path / "workload.yaml"
    path.write_text(json.dumps(document({"access": {"cidrs": ["0.0.0.0/0"]}})))
    wanted = workload({"access": {"cidrs": ["0.0.0.0/0"]}})
    plan = Placer(catalog()).plan(wanted)
    found = judge_plan(wanted, plan, catalog(), spec=path).violations
    assert [finding.rule.id for finding in found] == ["open-cidr"]
    assert found[0].position.file == str(path)
    (tmp_path / "gpuprov-policy.yaml").write_text("version: 1\npolicy: {rules: {open-cidr: advisory}}\n")
    assert not judge_plan(wanted, plan, catalog(), spec=path).violations


def test_the_base_spec_of_these_tests_passes() -> None:
    assert BASE["name"] == "chat"
    results = {finding.result for finding in judge([spec()], Policy(), TODAY).results}
    assert results == {Result.PASS}


@pytest.mark.parametrize(
    ("command", "rules"),
    [
        (["vllm", "serve", "m", "--max-model-len", "8192", "-tp", "1"], set()),
        (["vllm", "serve", "m", "--max-model-len", "65536"], {"command-over-plan"}),
        (["sh", "-c", "vllm serve m --max-model-len=65536 && sleep 1"], {"command-over-plan"}),
        (["vllm", "serve", "m", "--gpu-memory-utilization", "0.3"], {"command-over-plan"}),
        (["vllm", "serve", "m", "-tp", "2"], {"command-over-plan"}),
        (["vllm", "serve", "m", "--max-model-len", "4096"], {"command-differs"}),
        (["python", "serve.py", "--max-model-len-of-mine", "99999"], set()),
    ],
)
def test_a_command_is_held_against_the_plan_wherever_it_is_judged(
    tmp_path: Any, command: list[str], rules: set[str]
) -> None:
    import json

    from policies.sources import read_file
    from provisioner.planner.documents import plan_document

    wanted = document({"run": {"image": "x:1", "command": command}, "placement.instance_types": ["g6.xlarge"]})
    plan = Placer(catalog()).plan(workload({"run": wanted["run"], "placement.instance_types": ["g6.xlarge"]}))
    (tmp_path / "workload.json").write_text(json.dumps(wanted))
    (tmp_path / "plan.json").write_text(json.dumps(plan_document(plan)))
    for name in ("workload.json", "plan.json"):
        found = judge(read_file(tmp_path / name, Placer(catalog()))[0], Policy(), TODAY).findings
        assert {each.rule.id for each in found if each.rule.id.startswith("command")} == rules, name
