"""The examples are valid specs without a warning, each with a text that says what it is and what it plans to."""

from __future__ import annotations

from pathlib import Path

import pytest

from provisioner.catalog.snapshot import load_catalog
from provisioner.planner.decide import make_plan
from provisioner.workload.load import load

EXAMPLES = Path(__file__).parents[2] / "examples"
NAMES = sorted(path.parent.name for path in EXAMPLES.glob("*/workload.yaml"))


def test_the_demo_and_all_tasks_are_there() -> None:
    assert "llama-3.1-8b-chat" in NAMES
    tasks = {load(EXAMPLES / name / "workload.yaml").workload.task for name in NAMES}
    assert tasks == {"serve", "batch", "finetune", "pretrain"}


@pytest.mark.parametrize("name", NAMES)
def test_an_example_is_valid_and_explained(name: str) -> None:
    assert load(EXAMPLES / name / "workload.yaml").warnings == ()
    text = (EXAMPLES / name / "README.md").read_text()
    assert text.startswith("# ")
    assert f"gpuprov plan examples/{name}/workload.yaml" in text


@pytest.mark.parametrize("name", NAMES)
def test_the_text_names_what_is_planned(name: str) -> None:
    choice = make_plan(load(EXAMPLES / name / "workload.yaml").workload, load_catalog()).choice
    assert choice is not None
    text = " ".join((EXAMPLES / name / "README.md").read_text().split())
    planned = text.partition("**Plans to**")[2].partition("**Bill**")[0]
    assert f"`{choice.instance_type}`" in planned
    assert f"{choice.gpu}" in planned
    assert choice.capacity_type in planned
