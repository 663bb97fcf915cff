"""The scheduled run that the documents offer: it reads, and the command in it is one that exists."""

from __future__ import annotations

from pathlib import Path

import yaml

from provisioner.cli.reap import command

WORKFLOW = Path(__file__).parents[2] / "integrations" / "reap.yml"


def test_the_scheduled_workflow_calls_reap_with_options_that_exist():
    text = WORKFLOW.read_text(encoding="utf-8")
    document = yaml.safe_load(text)
    steps = document["jobs"]["reap"]["steps"]
    (call,) = [step["run"] for step in steps if "gpuprov reap" in step.get("run", "")]
    options = {name for parameter in command.params for name in parameter.opts}
    used = {word.strip('"{}') for word in call.replace("+", " ").split() if word.startswith("--")}
    assert used >= {"--yes", "--cloud", "--report", "--notify"}
    assert used <= options
    assert document["concurrency"] == "gpuprov-reap"
