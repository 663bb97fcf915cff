"""Samples of what `make proof-policy` proves in full: mutants are noticed, edits keep fingerprints, a wrong SARIF log is seen."""

from __future__ import annotations

import json
import random
from datetime import date
from pathlib import Path
from typing import Any

import pytest

from policies.formats.render import render
from policies.gate import judge
from policies.placement import Placer
from policies.selection import Policy
from policies.sources import read_file
from tests.policies.builders import catalog
from tests.policies.edits import edited
from tests.policies.sarif_rules import ingestion_faults, schema_faults
from tests.policies.test_formats import REPORTS
from tests.proofs.mutants import MODULES, is_killed, mutants_of


def test_faults_in_the_rules_are_noticed() -> None:
    mutants = [
        mutant for module in ("policies.rules.supply", "policies.rules.candidates") for mutant in mutants_of(module)
    ]
    sample = random.Random(5).sample(mutants, 30)
    assert sum(is_killed(mutant) for mutant in sample) >= 27
    assert len({mutant.name for mutant in mutants}) > 60


def test_the_hunt_leaves_the_sound_rules_in_place() -> None:
    import policies.rules.candidates as sound

    before = dict(sound.__dict__)
    assert is_killed(next(mutants_of("policies.rules.candidates")))
    assert sound.__dict__ == before
    assert len(MODULES) >= 12


def test_edits_that_change_no_finding_change_no_fingerprint(tmp_path: Path) -> None:
    found = set()
    for seed in range(12):
        (tmp_path / "workload.yaml").write_bytes(edited(seed).encode())
        subjects = read_file(tmp_path / "workload.yaml", Placer(catalog()))[0]
        verdict = judge(subjects, Policy(root=tmp_path), date(2026, 11, 30))
        found.add(frozenset((each.rule.id, each.fingerprint) for each in verdict.findings))
    assert len(found) == 1
    assert len(found.pop()) > 6


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("locations",), []),
        (("locations", 0, "physicalLocation", "artifactLocation", "uri"), "/etc/passwd"),
        (("locations", 0, "physicalLocation", "artifactLocation", "uri"), "../workload.yaml"),
        (("locations", 0, "physicalLocation", "region", "startLine"), 0),
        (("partialFingerprints",), {}),
        (("message", "text"), ""),
        (("level",), "fatal"),
        (("ruleIndex",), 7),
        (("fixes",), []),
    ],
)
def test_a_wrong_log_is_seen(path: tuple[Any, ...], value: Any) -> None:
    report = max(REPORTS, key=lambda each: len(each.findings))
    document = json.loads(render(report, "sarif"))
    place = document["runs"][0]["results"][0]
    *above, last = path
    for step in above:
        place = place[step]
    place[last] = value
    assert schema_faults(document) + ingestion_faults(document)
