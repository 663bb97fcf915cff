"""Rows of unknown form: any key may be missing or odd, and the answer is a number with its band or a reason."""

from __future__ import annotations

import json
import random
from math import isfinite
from pathlib import Path
from typing import Any

import pytest

from benchmarks.rows import Models, Row, read_rows
from benchmarks.sizing_accuracy import predict

TRUTH = Path(__file__).parents[1] / "data" / "truth" / "measured.jsonl"
ODD = (None, "", "auto", 0, -1, 1, 1e15, True, [], {}, ["a", 3], "2x", "8 GPUs", 3.5, "1024x1024", "nan", float("nan"))
MODELS = Models(None)


def spoil(raw: dict[str, Any], rng: random.Random) -> None:
    for _ in range(rng.randint(1, 4)):
        part = raw[rng.choice(["inputs", "norm"])]
        key = rng.choice(sorted(part) or ["seq_len"])
        if rng.random() < 0.4:
            part.pop(key, None)
        else:
            part[key] = rng.choice(ODD)
    if rng.random() < 0.2:
        raw["family"] = rng.choice(["serve", "finetune", "pretrain", "diffusion", "audio"])


def test_no_row_crashes_and_every_band_holds_its_point(tmp_path):
    rng = random.Random(1130)
    raws = [json.loads(line) for line in TRUTH.read_text(encoding="utf-8").splitlines()]
    chosen = [json.loads(json.dumps(raw)) for raw in rng.choices(raws, k=500)]
    for raw in chosen:
        spoil(raw, rng)
    path = tmp_path / "rows.jsonl"
    path.write_text("\n".join(json.dumps(raw) for raw in chosen) + "\n", encoding="utf-8")
    answers = [predict(row, MODELS) for row in read_rows(path)]
    assert len(answers) == len(chosen)
    predicted = [answer for answer in answers if answer.status == "predicted"]
    assert len(predicted) > 250
    for answer in predicted:
        assert answer.gib is not None
        assert answer.low_gib is not None
        assert answer.high_gib is not None
        assert isfinite(answer.gib)
        assert 0 <= answer.low_gib <= answer.gib * 1.001 <= answer.high_gib * 1.002
    assert all(answer.reason for answer in answers if answer.status == "unsupported")


def row(family: str, model: str, **inputs: object) -> Row:
    return Row("x", family, model, None, inputs, {}, {})


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        (row("serve", "Qwen/Qwen3-8B", engine="LMDeploy"), "engine 'lmdeploy' is not modelled"),
        (row("serve", "Qwen/Qwen3-8B", engine="vLLM", gpu="L4", gpu_memory_utilization=7), "none between 0 and 1"),
        (row("serve", "nobody/knows-this"), "is not known"),
        (row("finetune", "Qwen/Qwen3-8B", method="LOMO"), "is not modelled"),
        (
            row("finetune", "Qwen/Qwen3-8B", method="full", seq_len=512, optimizer="Shampoo"),
            "'shampoo' is not modelled",
        ),
        (row("finetune", "Qwen/Qwen3-8B", method="LoRA"), "no sequence length"),
        (row("audio", "openai/whisper-large-v3", task="training"), "training of audio models"),
        (row("kitchen", "Qwen/Qwen3-8B"), "kitchen"),
    ],
)
def test_what_is_not_modelled_says_why(given, reason):
    answer = predict(given, MODELS)
    assert answer.status == "unsupported"
    assert reason in answer.reason


@pytest.mark.parametrize(
    ("given", "least", "most"),
    [
        (row("audio", "openai/whisper-large-v3", batch=1, dtype="fp16"), 3.0, 5.5),
        (row("serve", "faster-whisper large-v3", engine="faster-whisper", compute_type="int8"), 1.5, 4.5),
        (row("serve", "someone/Llama-3-70B-Instruct-AWQ", engine="vLLM", quant="awq", gpu="A100 80GB"), 35, 50),
        (row("finetune", "black-forest-labs/FLUX.1-dev", method="LoRA", resolution=512, batch_size=1), 40, 80),
        (row("serve", "Qwen/Qwen3-8B", engine="ollama 0.30", quant="q4_k_m", n_ctx=8192), 4.5, 8),
    ],
)
def test_rows_of_other_forms_are_predicted(given, least, most):
    answer = predict(given, MODELS)
    assert answer.gib is not None, answer.reason
    assert least <= answer.gib <= most
