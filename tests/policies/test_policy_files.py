"""Policy, waiver and baseline files: strict, positioned, and never silently ignored."""

from __future__ import annotations

import json
import random
from datetime import UTC, date, datetime, timedelta, timezone
from pathlib import Path

import pytest

from policies.baseline import load_baseline, write_baseline
from policies.config import load_policy, load_waivers
from policies.files import find_policy, find_root
from policies.gate import judge
from policies.policy_keys import PolicyFileError
from policies.registry import BY_ID, RULES
from policies.rule import Level
from policies.selection import Policy
from policies.waivers import Waiver
from tests.policies.builders import spec

TODAY = date(2026, 11, 30)
OPEN = spec({"access": {"cidrs": ["0.0.0.0/0"]}})


def write(path: Path, text: str) -> Path:
    path.write_text(text, encoding="utf-8")
    return path


def waiver_text(**changes: object) -> str:
    fields = {
        "rule": "open-cidr",
        "scope": "chat",
        "reason": "load test until Friday",
        "owner": "ana@example.com",
        "expires": (TODAY + timedelta(days=30)).isoformat(),
        **changes,
    }
    kept = {key: value for key, value in fields.items() if value is not None}
    return json.dumps({"version": 1, "waivers": [kept]}, indent=1)


def test_levels_parameters_and_unknown_are_read(tmp_path: Path) -> None:
    path = write(
        tmp_path / "gpuprov-policy.yaml",
        """\
version: 1
policy:
  unknown: advisory
  rules:
    owner-tag: mandatory
    keep-failed: disabled
    open-cidr: {level: advisory, widest_ipv4_prefix: 24}
    idle-rule: {max_idle: 60m, unknown: fail}
    price-ceiling: {max_price: 12.50 USD/h}
    required-tags: {keys: [team, cost-center]}
  scopes:
    - match: {paths: ["prod/**"], environments: [prod], tags: {team: search}, workloads: ["chat*"]}
      rules: {price-limit: mandatory}
""",
    )
    policy = load_policy(path, today=TODAY)
    assert policy.unknown_passes
    assert policy.overrides["owner-tag"].level is Level.MANDATORY
    assert policy.overrides["open-cidr"].parameters == {"widest_ipv4_prefix": 24}
    assert policy.overrides["idle-rule"].parameters == {"max_idle": timedelta(hours=1)}
    assert policy.overrides["idle-rule"].unknown_passes is False
    assert policy.overrides["required-tags"].parameters == {"keys": ("team", "cost-center")}
    assert policy.scopes[0].environments == ("prod",)
    assert BY_ID["keep-failed"] not in policy.selected()


def test_presets_raise_and_lower_levels(tmp_path: Path) -> None:
    strict = load_policy(
        write(tmp_path / "a.yaml", "version: 1\npolicy: {preset: strict, rules: {owner-tag: advisory}}"), today=TODAY
    )
    assert strict.choice(BY_ID["price-limit"], OPEN).level is Level.MANDATORY
    assert strict.choice(BY_ID["owner-tag"], OPEN).level is Level.ADVISORY
    assert strict.choice(BY_ID["customer-key"], OPEN).level is Level.DISABLED
    soft = load_policy(write(tmp_path / "b.yaml", "version: 1\npolicy: {preset: advisory}"), today=TODAY)
    assert not judge([OPEN], soft, TODAY).violations


def test_files_build_on_one_another(tmp_path: Path) -> None:
    write(
        tmp_path / "org.yaml",
        "version: 1\npolicy: {unknown: advisory, rules: {owner-tag: mandatory, open-cidr: {widest_ipv4_prefix: 24}}}",
    )
    team = write(tmp_path / "team.yaml", "version: 1\nextends: org.yaml\npolicy: {rules: {open-cidr: advisory}}")
    policy = load_policy(team, today=TODAY)
    assert policy.unknown_passes
    assert policy.overrides["owner-tag"].level is Level.MANDATORY
    assert policy.overrides["open-cidr"].level is Level.ADVISORY
    assert policy.overrides["open-cidr"].parameters == {"widest_ipv4_prefix": 24}


def test_a_circle_of_files_is_refused(tmp_path: Path) -> None:
    write(tmp_path / "a.yaml", "version: 1\nextends: b.yaml")
    first = write(tmp_path / "b.yaml", "version: 1\nextends: a.yaml")
    with pytest.raises(PolicyFileError, match="again"):
        load_policy(first, today=TODAY)


@pytest.mark.parametrize(
    ("text", "place", "words"),
    [
        ("version: 1\npolicy:\n  rules:\n    open-cidrs: advisory\n", ":4:5", "open-cidr"),
        ("version: 1\npolicy:\n  rules:\n    open-cidr: mandatry\n", ":4:16", "mandatory"),
        ("version: 1\npolicy:\n  rules:\n    open-cidr: {widest: 8}\n", ":4:17", "widest_ipv4_prefix"),
        ("version: 1\npolicy:\n  rules:\n    open-cidr: {widest_ipv4_prefix: 99}\n", ":4:37", "from 1 to 32"),
        ("version: 1\npolicy:\n  rules:\n    idle-rule: {max_idle: 60}\n", ":4:27", "unit"),
        ("version: 1\npolicy: {preset: stict}\n", ":2:18", "strict"),
        ("version: 1\npolcy: {}\n", ":2:1", "policy"),
        ("version: 2\n", ":1:10", "1"),
        ("version: 1\npolicy: {rules: [a]}\n", ":2:10", "mapping"),
        ("version: 1\npolicy:\n  scopes:\n    - match: {}\n      rules: {}\n", ":4:7", "without a condition"),
        ("version: 1\npolicy:\n  scopes:\n    - match: {path: [a]}\n      rules: {}\n", ":4:15", "paths"),
        ("version: 1\nversion: 1\n", ":2:1", "duplicate"),
        ("version: 1\npolicy: {rules: {open-cidr: advisory}", ":", "YAML"),
        ("", ":1:1", "empty"),
        ("- a\n", ":1:1", "mapping"),
        ("a: &a [*a]", ":", "alias"),
    ],
)
def test_wrong_policy_files_are_refused_with_place_and_nearest_word(
    tmp_path: Path, text: str, place: str, words: str
) -> None:
    path = write(tmp_path / "gpuprov-policy.yaml", text)
    with pytest.raises(PolicyFileError) as found:
        load_policy(path, today=TODAY)
    assert place in str(found.value.where)
    assert words in f"{found.value.message} {found.value.remedy}"
    assert found.value.exit_code == 2


def test_two_hundred_misspelt_rule_ids_are_never_ignored(tmp_path: Path) -> None:
    dice = random.Random(11)
    path = tmp_path / "p.yaml"
    for _ in range(200):
        name = list(dice.choice(RULES).id)
        at = dice.randrange(len(name))
        change = dice.choice(["drop", "double", "swap"])
        if change == "drop":
            del name[at]
        elif change == "double":
            name.insert(at, dice.choice("abcdefghijklmnopqrstuvwxyz"))
        else:
            name[at] = dice.choice("0123456789")
        misspelt = "".join(name)
        if misspelt in BY_ID:
            continue
        write(path, f'version: 1\npolicy: {{rules: {{"{misspelt}": disabled}}}}\n')
        with pytest.raises(PolicyFileError, match="no rule"):
            load_policy(path, today=TODAY)


def test_the_policy_file_is_found_beside_and_above_but_not_outside_the_repository(tmp_path: Path) -> None:
    outside = write(tmp_path / "gpuprov-policy.yaml", "version: 1\n")
    repository = tmp_path / "repository"
    deep = repository / "a" / "b"
    deep.mkdir(parents=True)
    spec_file = write(deep / "workload.yaml", "x")
    assert find_policy([spec_file]) == outside
    (repository / ".git").mkdir()
    assert find_policy([spec_file]) is None
    inside = write(repository / "gpuprov-policy.yaml", "version: 1\n")
    assert find_policy([spec_file]) == inside
    assert find_policy([deep]) == inside
    assert find_root([deep]) == repository


def test_a_waiver_lets_one_rule_pass_in_its_scope(tmp_path: Path) -> None:
    waivers = load_waivers(write(tmp_path / "w.yaml", waiver_text(ticket="OPS-1")), today=TODAY)
    verdict = judge([OPEN], Policy(waivers=waivers), TODAY)
    assert not verdict.violations
    assert verdict.counts()["waived"] == 1
    assert verdict.findings[0].waiver == waivers[0]
    assert waivers[0].ticket == "OPS-1"


@pytest.mark.parametrize(
    ("scope", "covers"),
    [
        ("chat", True),
        ("*", True),
        ("workload.yaml", True),
        ("*.yaml", True),
        ("**/workload.yaml", True),
        ("other", False),
        ("prod/*", False),
        ("cha", False),
    ],
)
def test_scopes_of_waivers(scope: str, covers: bool) -> None:
    waiver = Waiver("open-cidr", scope, "load test until Friday", "ana", TODAY)
    assert bool(judge([OPEN], Policy(waivers=(waiver,)), TODAY).violations) is not covers


def test_a_scope_may_name_the_file_from_the_root_of_the_project(tmp_path: Path) -> None:
    subject = spec({"access": {"cidrs": ["0.0.0.0/0"]}}, path=str(tmp_path / "deploy" / "workload.yaml"))
    waiver = Waiver("open-cidr", "deploy/*", "load test until Friday", "ana", TODAY)
    assert not judge([subject], Policy(waivers=(waiver,), root=tmp_path), TODAY).violations
    for elsewhere in ("prod/*", "workload.yaml", "*/deploy/*", str(tmp_path)):
        other = Waiver("open-cidr", elsewhere, "load test until Friday", "ana", TODAY)
        assert judge([subject], Policy(waivers=(other,), root=tmp_path), TODAY).violations, elsewhere
    for here in ("**/workload.yaml", "deploy/workload.yaml", "**/deploy/*"):
        other = Waiver("open-cidr", here, "load test until Friday", "ana", TODAY)
        assert not judge([subject], Policy(waivers=(other,), root=tmp_path), TODAY).violations, here


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"reason": "short"}, "10 characters"),
        ({"reason": "a         b"}, "10 characters"),
        ({"reason": None}, "reason"),
        ({"owner": None}, "owner"),
        ({"scope": None}, "scope"),
        ({"expires": None}, "expires"),
        ({"expires": "2027-13-01"}, "calendar"),
        ({"expires": "soon"}, "date"),
        ({"expires": 20270101}, "date"),
        ({"expires": (TODAY + timedelta(days=91)).isoformat()}, "90"),
        ({"rule": "open-cidrs"}, "open-cidr"),
        ({"rule": "under-sized"}, "cannot be waived"),
        ({"rule": "secret-in-env"}, "cannot be waived"),
        ({"until": "2027-01-01"}, "unknown key"),
    ],
)
def test_wrong_waivers_are_refused(tmp_path: Path, changes: dict[str, object], words: str) -> None:
    with pytest.raises(PolicyFileError) as found:
        load_waivers(write(tmp_path / "w.yaml", waiver_text(**changes)), today=TODAY)
    assert words in f"{found.value.message} {found.value.remedy}"
    assert found.value.exit_code == 2
    assert "w.yaml:" in str(found.value.where)


def test_ninety_days_are_allowed(tmp_path: Path) -> None:
    text = waiver_text(expires=(TODAY + timedelta(days=90)).isoformat())
    assert load_waivers(write(tmp_path / "w.yaml", text), today=TODAY)


@pytest.mark.parametrize(("days", "passes"), [(-1, False), (0, True), (1, True)])
@pytest.mark.parametrize("offset_hours", [-11, 0, 13])
def test_a_waiver_holds_through_its_last_day_in_utc(days: int, passes: bool, offset_hours: int) -> None:
    local = datetime(2026, 11, 30, 12, tzinfo=UTC).astimezone(timezone(timedelta(hours=offset_hours)))
    today = local.astimezone(UTC).date()
    waiver = Waiver("open-cidr", "chat", "load test until Friday", "ana", TODAY + timedelta(days=days))
    verdict = judge([OPEN], Policy(waivers=(waiver,)), today)
    assert (not verdict.violations) is passes
    assert ("waiver-expired" in {finding.rule.id for finding in verdict.findings}) is not passes


def test_a_dead_waiver_is_an_advisory_finding_unless_raised() -> None:
    dead = Waiver("open-cidr", "other", "load test until Friday", "ana", TODAY)
    verdict = judge([spec()], Policy(waivers=(dead,)), TODAY)
    assert [finding.rule.id for finding in verdict.findings] == ["waiver-dead"]
    assert not verdict.violations
    from policies.selection import Override

    raised = Policy(waivers=(dead,), overrides={"waiver-dead": Override(Level.MANDATORY)})
    assert judge([spec()], raised, TODAY).violations


def test_waivers_of_the_policy_file_count(tmp_path: Path) -> None:
    entry = json.loads(waiver_text())["waivers"]
    path = write(tmp_path / "p.yaml", json.dumps({"version": 1, "policy": {"waivers": entry}}))
    assert not judge([OPEN], load_policy(path, today=TODAY), TODAY).violations


def test_a_baseline_lets_only_old_findings_pass(tmp_path: Path) -> None:
    path = tmp_path / "baseline.json"
    write_baseline(path, judge([OPEN], Policy(), TODAY))
    known = Policy(baseline=load_baseline(path))
    verdict = judge([OPEN], known, TODAY)
    assert not verdict.violations
    assert verdict.counts()["baseline"] == 1
    more = spec({"access": {"cidrs": ["0.0.0.0/0", "::/0"]}})
    assert len(judge([more], known, TODAY).violations) == 1


def test_a_baseline_survives_moved_lines(tmp_path: Path) -> None:
    from provisioner.errors import Position

    path = tmp_path / "baseline.json"
    write_baseline(path, judge([OPEN], Policy(), TODAY))
    moved = spec({"access": {"cidrs": ["0.0.0.0/0"]}}, locate=lambda _: Position("workload.yaml", 400, 3))
    here = spec({"access": {"cidrs": ["0.0.0.0/0"]}}, locate=lambda _: Position("workload.yaml", 4, 3))
    write_baseline(path, judge([here], Policy(), TODAY))
    assert not judge([moved], Policy(baseline=load_baseline(path)), TODAY).violations


def test_what_cannot_be_waived_cannot_be_hidden_in_a_baseline(tmp_path: Path) -> None:
    leaking = spec({"run": {"image": "x@sha256:" + "a" * 64, "env": {"HF_TOKEN": "hf_" + "a" * 30}}})
    path = tmp_path / "baseline.json"
    write_baseline(path, judge([leaking], Policy(), TODAY))
    assert judge([leaking], Policy(baseline=load_baseline(path)), TODAY).violations


@pytest.mark.parametrize(
    "text",
    ["", "{}", "[]x", '{"schema": "gpuprov.baseline/1"}', '{"schema": "gpuprov.plan/1"}', '[{"a": 1}]', "null", '"x"'],
)
def test_wrong_baselines_are_refused(tmp_path: Path, text: str) -> None:
    with pytest.raises(PolicyFileError):
        load_baseline(write(tmp_path / "b.json", text))


def test_missing_files_are_named(tmp_path: Path) -> None:
    for read in (
        lambda path: load_policy(path, today=TODAY),
        lambda path: load_waivers(path, today=TODAY),
        load_baseline,
    ):
        with pytest.raises(PolicyFileError, match="cannot read"):
            read(tmp_path / "none")
