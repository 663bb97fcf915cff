"""Commands of trainings against their plans, by the gate over real specs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from provisioner.cli.main import main

SPEC: dict[str, Any] = {
    "version": 1,
    "name": "tune",
    "task": "finetune",
    "model": {"id": "meta-llama/Llama-3.1-8B-Instruct"},
    "training": {"method": "lora", "sequence_tokens": 4096, "micro_batch": 2, "tokens": "10M"},
    "placement": {"clouds": ["aws"], "instance_types": ["g6e.12xlarge"], "capacity": "on-demand"},
}
RULES = ("command-over-plan", "command-differs")


@pytest.mark.parametrize(
    ("command", "found"),
    [
        ("torchrun --standalone --nproc_per_node=4 train.py", []),
        ("torchrun --nproc-per-node gpu train.py --per_device_train_batch_size 2 --max_seq_length 4096", []),
        ("accelerate launch --num_processes 16 train.py", ["command-over-plan"]),
        ("trl sft --per_device_train_batch_size=4 --max_length 2048", RULES),
        ("axolotl train tune.yaml --micro-batch-size 1", ["command-differs"]),
        ("python train.py training.micro_batch=64", []),
    ],
)
def test_flags_of_trainers_that_contradict_the_plan_are_found(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], command: str, found: list[str]
) -> None:
    path = tmp_path / "workload.yaml"
    run = {"image": "x@sha256:" + "a" * 64, "command": command.split()}
    path.write_text(json.dumps(SPEC | {"run": run}))
    with pytest.raises(SystemExit):
        main(["check", str(path), "--format", "json"])
    shown = capsys.readouterr().out
    rules = [entry["rule"] for entry in json.loads(shown)["findings"] if entry["result"] != "pass"]
    assert [rule for rule in rules if rule in RULES] == list(found)
