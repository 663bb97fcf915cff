"""``python -m tests.proofs.policy --out docs/proofs/policy.md``: what the gate must guarantee, in full counts, as a dated page."""

from __future__ import annotations

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass
from datetime import UTC, date, datetime
from io import StringIO
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

from policies.day import today_utc
from policies.engine import EngineGate
from policies.formats.render import render
from policies.gate import judge
from policies.placement import Placer
from policies.registry import BY_ID, RULES
from policies.rule import Result, Setting
from policies.selection import Policy
from policies.sources import read_file
from tests.policies.builders import catalog
from tests.policies.edits import edited
from tests.policies.rule_cases import CASES
from tests.policies.sarif_rules import ingestion_faults, schema_faults
from tests.policies.test_engine_gate import mandatory, plans
from tests.policies.test_formats import reports
from tests.policies.test_masking import masked
from tests.policies.test_pack import Engine
from tests.policies.test_pulumi import OWN_TYPE, state
from tests.proofs.engine_preview import Stack
from tests.proofs.mutants import MODULES, is_killed, mutants_of

KILLED_LEAST = 0.9


@dataclass(frozen=True)
class Proved:
    """One row of the page; ``bad`` names what was not as it must be."""

    what: str
    count: int
    told: str
    bad: tuple[str, ...] = ()


@contextmanager
def _within(folder: Path) -> Iterator[None]:
    before = Path.cwd()
    os.chdir(folder)
    try:
        yield
    finally:
        os.chdir(before)


def parity(folder: Path, count: int, alone: int) -> Iterator[Proved]:
    """The same plans through the rules, the pack, a state, and the engine give the same verdicts."""
    inputs = [_without_nothing(each) for each in plans(count)]
    gate = EngineGate.of_project(folder)
    wanted = [frozenset(mandatory(gate, each)) for each in inputs]
    passing = sum(not each for each in wanted)
    told = f"{passing} pass, {count - passing} fail, {len(set(wanted))} different sets of rules"
    pack = Engine(folder)
    try:
        pack.boot(preview=False)
        over_grpc = [frozenset(pack.mandatory(each)) for each in inputs]
    finally:
        pack.end()
    yield Proved("plans through the pack over gRPC, the proof as the engine", count, told, _unlike(wanted, over_grpc))
    placer, states = Placer(catalog()), []
    for each in inputs:
        path = folder / "state.json"
        path.write_text(json.dumps(state((OWN_TYPE, each))))
        verdict = judge(read_file(path, placer)[0], Policy(), today_utc())
        states.append(frozenset(finding.rule.id for finding in verdict.violations))
    yield Proved("plans as exported state", count, told, _unlike(wanted, states))
    stack = Stack(folder / "stack")
    yield Proved(
        "plans as machines of one preview of the real engine", count, told, _unlike(wanted, stack.verdicts(inputs))
    )
    single = [stack.verdicts([each])[0] for each in inputs[:alone]]
    yield Proved("of them alone, a preview each", alone, "the same verdicts", _unlike(wanted[:alone], single))


def _without_nothing(inputs: dict[str, Any]) -> dict[str, Any]:
    """Inputs as a program writes them: what is absent is left out."""
    offers = [{key: value for key, value in offer.items() if value is not None} for offer in inputs["offers"]]
    return inputs | {"offers": offers}


def _unlike(wanted: list[frozenset[str]], found: list[frozenset[str]]) -> tuple[str, ...]:
    pairs = enumerate(zip(wanted, found, strict=True))
    return tuple(f"plan {n}: {sorted(a)} and {sorted(b)}" for n, (a, b) in pairs if a != b)


def written_reports(count: int) -> Iterator[Proved]:
    """Reports of random results hold what the platforms want, and read back as what they were made from."""
    made = reports(count)
    faults: dict[str, list[str]] = {"SARIF": [], "JUnit": [], "GitLab": []}
    findings = 0
    for report in made:
        document = json.loads(render(report, "sarif"))
        faults["SARIF"] += [*schema_faults(document), *ingestion_faults(document)]
        findings += len(document["runs"][0]["results"])
        open_ones = [each for each in report.verdict.findings if each.waiver is None and not each.in_baseline]
        issues = json.loads(render(report, "gitlab"))
        same = sorted((each["check_name"], each["fingerprint"]) for each in issues) == sorted(
            (each.rule.id, each.fingerprint) for each in open_ones
        )
        faults["GitLab"] += [] if same else ["not the findings it was made from"]
        faults["JUnit"] += (
            [] if _junit(render(report, "junit")) == _cases(report) else ["not the cases it was made from"]
        )
    told = f"{findings} results: valid by the standard, and by GitHub's rules of ingestion"
    yield Proved("SARIF logs of random result sets", count, told, tuple(faults["SARIF"][:5]))
    yield Proved("JUnit reports read back", count, "cases, failures and skips as they were", tuple(faults["JUnit"][:5]))
    yield Proved(
        "GitLab reports read back", count, "each open finding once, by its fingerprint", tuple(faults["GitLab"][:5])
    )


def _junit(text: str) -> set[tuple[str, str, bool]]:
    root = ET.fromstring(text)  # noqa: S314 - our own report
    return {
        (str(case.get("classname")), str(case.get("file")), case.find("failure") is not None)
        for case in root.iter("testcase")
    }


def _cases(report: Any) -> set[tuple[str, str, bool]]:
    from policies.formats.junit import clean

    violated = {(f.rule.id, report.path(f), f.subject) for f in report.verdict.violations}
    return {
        (f.rule.id, clean(report.path(f)), (f.rule.id, report.path(f), f.subject) in violated)
        for f in report.verdict.results
    }


def fingerprints(folder: Path, count: int) -> Proved:
    """Edits that change no finding change no fingerprint."""
    placer, path = Placer(catalog()), folder / "workload.yaml"
    wanted: frozenset[tuple[str, str]] | None = None
    bad = []
    for seed in range(count):
        path.write_bytes(edited(seed).encode())
        verdict = judge(read_file(path, placer)[0], Policy(root=folder), date(2026, 11, 30))
        found = frozenset((each.rule.id, each.fingerprint) for each in verdict.findings)
        wanted = wanted or found
        if found != wanted:
            bad.append(f"edit {seed}: {sorted(found ^ wanted)}")
    return Proved("edits of a faulty spec", count, f"its {len(wanted or ())} fingerprints stay", tuple(bad))


def exit_codes(folder: Path, misspelt: int, unparsable: int, crashing: int) -> Iterator[Proved]:
    """What the gate cannot judge ends with exit code 2, never with 0 or 5."""
    dice = random.Random(3)
    with _within(folder):
        Path("workload.yaml").write_text(edited(0))
        bad = []
        for number in range(misspelt):
            name = _typo(dice.choice(RULES).id, dice)
            text = [
                f"version: 1\npolicy: {{rules: {{{name}: advisory}}}}\n",
                f"version: 1\npolicy: {{scopes: [{{match: {{paths: [a]}}, rules: {{{name}: disabled}}}}]}}\n",
                f"version: 1\nwaivers: [{{rule: {name}, scope: chat, reason: for the proof of it, owner: a, expires: 2026-12-01}}]\n",
            ][number % 3]
            Path("p.yaml").write_text(text)
            flag = "--waivers" if number % 3 == 2 else "--policy"
            bad += _unless_two(f"{name} in {flag}", "workload.yaml", flag, "p.yaml")
        yield Proved("misspelt rule ids, in rules, scopes and waivers", misspelt, "exit code 2", tuple(bad))
        bad = []
        for number in range(unparsable):
            name, content = _broken(number, dice)
            Path(name).write_bytes(content)
            bad += _unless_two(f"file {number}", name)
            Path(name).unlink()
        yield Proved("unparsable files", unparsable, "exit code 2", tuple(bad))
        bad = []
        for number in range(crashing):
            with _crashing(number):
                bad += _unless_two(f"rule {number}", "workload.yaml")
        yield Proved("crashing rules", crashing, "exit code 2, the rule named", tuple(bad))


def _unless_two(what: str, *arguments: str) -> list[str]:
    from provisioner.cli.main import run

    with redirect_stdout(StringIO()), redirect_stderr(StringIO()) as said:
        code = run(["check", *arguments])
    return [] if code == 2 and "error:" in said.getvalue() else [f"{what}: exit code {code}"]


def _typo(word: str, dice: random.Random) -> str:
    at = dice.randrange(len(word))
    changed = [
        word[:at] + word[at + 1 :],
        word[:at] + "x" + word[at:],
        word[:at] + "q" + word[at + 1 :],
        word + "s",
        word.upper(),
    ]
    return next((each for each in dice.sample(changed, len(changed)) if each not in BY_ID and each), f"{word}-x")


def _broken(number: int, dice: random.Random) -> tuple[str, bytes]:
    whole = edited(number).encode()
    cut = dice.randrange(10, len(whole) - 10)
    forms: list[tuple[str, bytes]] = [
        ("b.yaml", whole + b"\n\t- x: [\n"),
        ("b.yaml", b"{" + whole),
        ("b.yaml", whole + b"\n---\nversion: 1\n"),
        ("b.yaml", b"version: 1\n" + whole if not whole.startswith(b"{") else b"[" + whole),
        ("b.yaml", whole[:cut] + b"\xff\xfe\x00" + whole[cut:]),
        ("b.json", b'{"schema": "gpuprov.plan/1", ' + whole[:cut]),
        ("b.json", b'{"steps": [' * 300),
        ("b.json", b'{"resource_changes": NaN}'),
        ("b.json", b'{"resource_changes": [], "resource_changes": []}'),
        ("b.tfplan", os.urandom(0) + bytes(dice.randrange(256) for _ in range(300))),
    ]
    return forms[number % len(forms)]


@contextmanager
def _crashing(number: int) -> Iterator[None]:
    """One of the rules that the spec concerns raises."""
    from dataclasses import replace

    from policies import selection

    errors = (ValueError("x"), KeyError("x"), ZeroDivisionError(), RecursionError(), AssertionError(), MemoryError())

    def crash(facts: Any, setting: Setting) -> Any:
        del facts, setting
        raise errors[number % len(errors)]

    concerned = [
        rule
        for rule in RULES
        if rule.applies_to and rule.applies_to[0].__name__ in {"SpecFacts", "PlacementFacts", "OfferedFacts"}
    ]
    chosen = concerned[number % len(concerned)]
    changed = tuple(replace(rule, judge=crash) if rule is chosen else rule for rule in RULES)
    sound = selection.Policy.__init__

    def init(self: Any, *arguments: Any, **named: Any) -> None:
        sound(self, *arguments, **({"rules": changed} | named))

    selection.Policy.__init__ = init  # type: ignore[method-assign]
    try:
        yield
    finally:
        selection.Policy.__init__ = sound  # type: ignore[method-assign]


def maskings(count: int) -> Proved:
    """Hiding facts from a rule never turns a failure into a pass."""
    dice = random.Random(11)
    failing = [(rule_id, subject) for rule_id, cases in CASES.items() for subject in (*cases.fails, cases.boundary[1])]
    bad = []
    for number in range(count):
        rule_id, subject = failing[number % len(failing)]
        rule, cases = BY_ID[rule_id], CASES[rule_id]
        hidden = masked(subject, dice)
        setting = Setting({**rule.defaults(), **cases.parameters}, date(2026, 11, 30))
        if not {outcome.result for outcome in rule.judge(hidden, setting)} & {Result.FAIL, Result.UNKNOWN}:
            bad.append(f"{rule_id}: {hidden}")
    return Proved(
        "maskings of facts that fail", count, f"{len(failing)} facts of {len(CASES)} rules: none passes", tuple(bad)
    )


def mutants() -> tuple[Proved, str]:
    """Faults in the rules' code are noticed by the rules' own cases."""
    rows, survivors, total, killed = [], [], 0, 0
    for module in MODULES:
        found = list(mutants_of(module))
        living = [mutant for mutant in found if not is_killed(mutant)]
        total += len(found)
        killed += len(found) - len(living)
        survivors += [f"- {mutant.name}" for mutant in living]
        rows.append(f"| {module.removeprefix('policies.')} | {len(found)} | {len(found) - len(living)} |")
    share = killed / total
    table = "\n".join(["| module | mutants | killed |", "|---|---|---|", *rows])
    bad = () if share >= KILLED_LEAST else (f"only {share:.1%} are killed",)
    page = f"{table}\n\nThose that live:\n\n{chr(10).join(survivors)}"
    return Proved(
        "mutants of the rules", total, f"{killed} killed, {share:.1%} (at least {KILLED_LEAST:.0%} wanted)", bad
    ), page


def main(arguments: list[str] | None = None) -> int:
    """Prove everything, write the page, and give 1 where something is not as it must be."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("docs/proofs/policy.md"))
    options = parser.parse_args(arguments)
    rows: list[Proved] = []
    with tempfile.TemporaryDirectory(prefix="gpuprov-policy-") as name:
        folder = Path(name).resolve()
        steps: tuple[Callable[[], Iterator[Proved]], ...] = (
            lambda: parity(folder, 300, 10),
            lambda: written_reports(500),
            lambda: iter([fingerprints(folder, 1000)]),
            lambda: exit_codes(folder, 200, 50, 20),
            lambda: iter([maskings(10_000)]),
        )
        for step in steps:
            for row in step():
                rows.append(row)
                print(_line(row), flush=True)
    row, table = mutants()
    rows.append(row)
    print(_line(row), flush=True)
    options.out.parent.mkdir(parents=True, exist_ok=True)
    options.out.write_text(page(rows, table), encoding="utf-8")
    return 1 if any(row.bad for row in rows) else 0


def _line(row: Proved) -> str:
    verdict = "NOT PROVED: " + "; ".join(row.bad[:3]) if row.bad else "proved"
    return f"{row.count} {row.what}: {row.told}: {verdict}"


def page(rows: list[Proved], mutants_table: str) -> str:
    """The result for people, dated, with the commit that it was made from."""
    lines = "\n".join(f"| {row.what} | {row.count:,} | {row.told} | {'**no**' if row.bad else 'yes'} |" for row in rows)
    wrong = "\n".join(f"- {row.what}: {text}" for row in rows for text in row.bad) or "Nothing."
    commit = subprocess.run(
        ["git", "rev-parse", "--short=12", "HEAD"], capture_output=True, text=True, check=True
    ).stdout
    return f"""\
# The policy gate, proved

{datetime.now(UTC):%Y-%m-%d} · commit {commit.strip()} · {len(RULES)} rules · `make proof-policy`

| what | count | | proved |
|---|---|---|---|
{lines}

## Not as it must be

{wrong}

## Mutants

A mutant is one small fault in the code of the rules: a comparison turned or shifted, `and` for `or`, a condition negated, a number one
off, a sign, a value not returned, an outcome not given. It is killed when the rules' own cases (`tests/policies/cases`) notice it.

{mutants_table}
"""


if __name__ == "__main__":
    began = time.monotonic()
    code = main()
    print(f"{time.monotonic() - began:.0f} s")
    sys.exit(code)
