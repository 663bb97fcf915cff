"""Each example plans to its expected-plan.json, byte for byte; ``make golden`` renews them after a meant change."""

from __future__ import annotations

import difflib
import json
import os
from pathlib import Path

import pytest

from provisioner.catalog.snapshot import load_catalog
from provisioner.planner.decide import make_plan
from provisioner.planner.documents import plan_from_document, plan_json
from provisioner.workload.load import load
from provisioner.workload.spec import Workload

EXAMPLES = Path(__file__).parents[2] / "examples"
NAMES = sorted(path.parent.name for path in EXAMPLES.glob("*/workload.yaml"))
UPDATE = os.environ.get("GPUPROV_UPDATE_GOLDEN") == "1"
"""Read at import: tests run without the caller's GPUPROV variables."""
LINES_SHOWN = 40


def planned(name: str) -> str:
    return plan_json(make_plan(load(EXAMPLES / name / "workload.yaml").workload, load_catalog()))


def test_every_example_is_tested():
    assert sorted(path.name for path in EXAMPLES.iterdir() if path.is_dir()) == NAMES


@pytest.mark.parametrize("name", NAMES)
def test_expected_plan(name):
    path = EXAMPLES / name / "expected-plan.json"
    text = planned(name)
    if UPDATE:
        path.write_text(text, encoding="utf-8")
    expected = path.read_text(encoding="utf-8")
    changes = list(
        difflib.unified_diff(expected.splitlines(), text.splitlines(), "expected", "planned", lineterm="", n=1)
    )
    assert text == expected, "\n".join(changes[:LINES_SHOWN]) + "\n`make golden` renews the expected plans"


@pytest.mark.parametrize("name", NAMES)
def test_the_readme_names_what_it_plans_to(name):
    document = json.loads((EXAMPLES / name / "expected-plan.json").read_text(encoding="utf-8"))
    claim = next(
        line for line in (EXAMPLES / name / "README.md").read_text("utf-8").splitlines() if "**Plans to**" in line
    )
    assert f"`{document['choice']['instance_type']}`" in claim
    assert document["choice"]["gpu"] in claim


@pytest.mark.parametrize("name", NAMES)
def test_expected_plan_is_a_plan_that_can_be_applied(name):
    document = json.loads((EXAMPLES / name / "expected-plan.json").read_text(encoding="utf-8"))
    plan = plan_from_document(document)
    assert plan.verdict == "fits"
    spec = load(EXAMPLES / name / "workload.yaml").workload
    assert Workload.from_document(plan.workload_spec) == spec
    assert plan.workload_digest == spec.digest
