"""The examples are valid specs without a warning, each with a text that says what it is."""

from __future__ import annotations

from pathlib import Path

import pytest

from provisioner.workload.load import load

EXAMPLES = Path(__file__).parents[2] / "examples"
NAMES = sorted(path.parent.name for path in EXAMPLES.glob("*/workload.yaml"))


def test_the_demo_and_all_tasks_are_there() -> None:
    assert "llama-3.1-8b-chat" in NAMES
    assert {load(EXAMPLES / name / "workload.yaml").workload.task for name in NAMES} == {
        "serve",
        "batch",
        "finetune",
        "pretrain",
    }


@pytest.mark.parametrize("name", NAMES)
def test_an_example(name: str) -> None:
    assert load(EXAMPLES / name / "workload.yaml").warnings == ()
    text = (EXAMPLES / name / "README.md").read_text()
    assert text.startswith("# ")
    assert f"gpuprov plan examples/{name}/workload.yaml" in text
