"""The table of defaults of the contract (CONTRACTS section 4), row by row, as the commands show them."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from provisioner.cli.main import run

GIB = 2**30
LLAMA = "meta-llama/Llama-3.1-8B-Instruct"
SERVE = f"task: serve\nmodel: {{id: {LLAMA}}}\ninference: {{}}\n"
BURSTY = SERVE + "lifecycle: {pattern: bursty}\n"
BATCH = SERVE.replace("serve", "batch")
LORA = f"task: finetune\nmodel: {{id: {LLAMA}}}\ntraining: {{method: lora, sequence_tokens: 2048}}\n"
QLORA = LORA.replace("lora", "qlora")
FULL = LORA.replace("lora", "full")
SHORT = LORA.replace("2048", "2048, tokens: 20M")
WHISPER = SERVE.replace(LLAMA, "openai/whisper-large-v3")
IMAGES = SERVE.replace(LLAMA, "black-forest-labs/FLUX.1-dev")
IMAGE_LORA = "task: finetune\nmodel: {id: stabilityai/stable-diffusion-xl-base-1.0}\ntraining: {method: lora}\n"
PUBLISHED_IN_FP8 = SERVE.replace(LLAMA, "deepseek-ai/DeepSeek-V3")
SMALL_WINDOW = SERVE.replace(LLAMA, "TinyLlama/TinyLlama-1.1B-Chat-v1.0")
RATE = SERVE.replace("{}", "{targets: {requests_per_second: 0.3}}")


def planned(tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str) -> dict[str, Any]:
    spec = tmp_path / "workload.yaml"
    spec.write_text("version: 1\nname: case\n" + text)
    code = run(["plan", str(spec), "--format", "json"])
    out = capsys.readouterr().out
    assert code == 0, out
    document: dict[str, Any] = json.loads(out)
    return document


def at(document: Any, path: str) -> Any:
    """The value at a dotted path; ``None`` where it leads nowhere."""
    for key in path.split("."):
        document = document.get(key) if isinstance(document, dict) else None
    return document


ROWS = [
    ("weights: as published", SERVE, {"workload.spec.model.weights": "auto"}),
    ("weights: qlora is nf4", QLORA, {"workload.spec.model.weights": "nf4"}),
    ("concurrency", SERVE, {"workload.spec.inference.concurrency": 1}),
    ("replicas", SERVE, {"choice.layout.replicas": 1, "workload.spec.inference.replicas": 1}),
    ("replicas: with a rate", RATE, {"workload.spec.inference.replicas": "auto"}),
    ("micro batch", LORA, {"workload.spec.training.micro_batch": 1}),
    ("gradient checkpointing", LORA, {"workload.spec.training.gradient_checkpointing": True}),
    ("precision", LORA, {"workload.spec.training.precision": "bf16"}),
    ("precision: full", FULL, {"workload.spec.training.precision": "bf16-mixed"}),
    ("precision: pretrain", FULL.replace("finetune", "pretrain"), {"workload.spec.training.precision": "bf16-mixed"}),
    ("optimizer, sharding", LORA, {"workload.spec.training.optimizer": "adamw", "workload.spec.training.sharding": "auto"}),
    ("lora", LORA, {"workload.spec.training.lora": {"rank": 16, "targets": "all-linear"}}),
    ("clouds", SERVE, {"workload.spec.placement.clouds": ["aws", "gcp"], "workload.spec.placement.regions": None}),
    ("limits", SERVE, {"workload.spec.placement.max_gpus": None, "workload.spec.placement.max_price": None}),
    ("capacity, optimize", SERVE, {"workload.spec.placement.capacity": "auto", "workload.spec.optimize": "cost"}),
    ("pattern: serve", SERVE, {"workload.spec.lifecycle.pattern": "steady"}),
    ("pattern: others", BATCH, {"workload.spec.lifecycle.pattern": "bursty"}),
    ("hours: steady", SERVE, {"cost.hours_per_month": 730}),
    ("hours: bursty", BURSTY, {"cost.hours_per_month": 120}),
    ("hours: bursty training", LORA, {"cost.hours_per_month": 120}),
    ("idle: steady", SERVE, {"workload.spec.lifecycle.idle.after": "off"}),
    ("idle: bursty", BURSTY, {"workload.spec.lifecycle.idle.after": "auto"}),
    ("stopped", SERVE, {"workload.spec.lifecycle.stopped.terminate_after": "7d"}),
    ("lifetime: steady", SERVE, {"workload.spec.lifecycle.max_lifetime": "off"}),
    ("lifetime: bursty", BURSTY, {"workload.spec.lifecycle.max_lifetime": "1d"}),
    ("no data, no checkpoints", SERVE, {"workload.spec.storage": {"shared": "auto", "egress": "0B/month"}}),
    ("egress", SERVE, {"cost.egress_usd_per_month": "0"}),
    ("no run", SERVE, {"workload.spec.run": None}),
    ("batch without its work", BATCH, {"cost.run_usd": None, "cost.run_hours": None}),
]  # fmt: skip


@pytest.mark.parametrize(("text", "expected"), [row[1:] for row in ROWS], ids=[row[0] for row in ROWS])
def test_default(text: str, expected: dict[str, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    document = planned(tmp_path, capsys, text)
    assert {path: at(document, path) for path in expected} == expected


@pytest.mark.parametrize(
    ("text", "word"),
    [(SERVE, "vllm"), (IMAGES, "diffusers"), (WHISPER, "whisper")],
    ids=["language", "images", "whisper"],
)
def test_an_engine_by_default_is_the_same_as_one_that_is_named(
    text: str, word: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The digest tells the two specs apart; what is planned is the same."""
    by_default = planned(tmp_path, capsys, text)
    named = planned(tmp_path, capsys, text.replace("inference: {}", f"inference: {{engine: {word}}}"))
    for part in ("choice", "footprint", "throughput", "cost", "launch", "warnings"):
        assert by_default[part] == named[part]


def test_context_is_the_limit_of_the_model_or_8192(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Llama 3.1 has 128 Ki and 32 layers of 8 heads of 128; TinyLlama 2048 and 22 layers of 4 heads of 64: 16 bit, K and V."""
    cases = ((SERVE, 8192 * 32 * 8 * 128 * 4), (SMALL_WINDOW, 2048 * 22 * 4 * 64 * 4))
    for text, kv_bytes in cases:
        found = planned(tmp_path, capsys, text)["footprint"]["per_gpu"]["kv_cache_bytes"]
        assert kv_bytes <= found <= 1.02 * kv_bytes


def test_a_request_is_three_quarters_and_a_quarter_of_the_context_up_to_a_limit(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for context, read, written in ((8192, 1024, 256), (400, 300, 100)):
        silent = SERVE.replace("{}", f"{{context_tokens: {context}}}")
        stated = SERVE.replace("{}", f"{{context_tokens: {context}, input_tokens: {read}, output_tokens: {written}}}")
        other = SERVE.replace(
            "{}", f"{{context_tokens: {context}, input_tokens: {read // 2}, output_tokens: {written}}}"
        )
        by_default, as_stated = planned(tmp_path, capsys, silent), planned(tmp_path, capsys, stated)
        assert by_default["throughput"] == as_stated["throughput"]
        assert by_default["throughput"] != planned(tmp_path, capsys, other)["throughput"]


def test_weights_are_taken_as_published(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    plan = planned(tmp_path, capsys, PUBLISHED_IN_FP8)
    layout = plan["choice"]["layout"]
    gpus = layout["tensor_parallel"] * layout["pipeline_parallel"]
    assert 600 * GIB <= plan["footprint"]["per_gpu"]["weights_bytes"] * gpus <= 760 * GIB


def test_a_training_of_predicted_length_has_its_own_hours_and_twice_of_them_to_live(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    cost = planned(tmp_path, capsys, SHORT)["cost"]
    assert cost["hours_per_month"] == cost["run_hours"] is not None
    assert run(["plan", str(tmp_path / "workload.yaml")]) == 0
    words = " ".join(capsys.readouterr().out.split())
    shown = re.search(r"and (\d+)m after its start at the latest", words)
    assert shown is not None
    assert int(shown[1]) == pytest.approx(120 * cost["run_hours"], abs=1)


def test_checkpoints_are_sized_for_two_where_a_training_asks_for_them(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    asks = LORA.replace("2048", "2048, checkpoint: {every: 30m}")
    assert [item["kind"] for item in planned(tmp_path, capsys, LORA)["storage"] if item["kind"] == "checkpoints"] == []
    (sized,) = [item for item in planned(tmp_path, capsys, asks)["storage"] if item["kind"] == "checkpoints"]
    assert sized["size_bytes"] > 0


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (SERVE, "no idle limit and no lifetime: $"),
        (BURSTY, "after 60 min idle, and 1d after its start at the latest"),
        (BURSTY + "run: auto\n", "min idle, and 1d after its start at the latest"),
        (LORA, "after 60 min idle, and 1d after its start at the latest"),
    ],
    ids=["steady", "bursty, bare", "bursty, with run", "training without its work"],
)
def test_the_bill_says_when_the_machine_ends(
    text: str, words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    spec = tmp_path / "workload.yaml"
    spec.write_text("version: 1\nname: case\n" + text)
    assert run(["plan", str(spec)]) == 0
    assert words in " ".join(capsys.readouterr().out.split())


def test_a_batch_without_its_work_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    warnings = planned(tmp_path, capsys, BATCH)["warnings"]
    assert any("inference.total" in line and "no cost of its own" in line for line in warnings)


@pytest.mark.parametrize("missing", ["version", "name", "task", "model", "training"])
def test_a_required_key_that_is_missing_is_named(
    missing: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = ("version: 1\nname: case\n" + LORA).splitlines()
    spec = tmp_path / "workload.yaml"
    spec.write_text("\n".join(line for line in lines if not line.startswith(missing)) + "\n")
    assert run(["plan", str(spec)]) == 2
    err = capsys.readouterr().err
    assert err.startswith("error: ")
    assert f"{spec}:1:1" in err
    assert missing in err


@pytest.mark.parametrize("key", ["method", "sequence_tokens"])
def test_a_key_that_a_training_of_a_language_model_needs_is_named(
    key: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    kept = {"method": "method: lora", "sequence_tokens": "sequence_tokens: 2048"}
    del kept[key]
    spec = tmp_path / "workload.yaml"
    head = LORA.split("training", maxsplit=1)[0]
    spec.write_text(f"version: 1\nname: case\n{head}training: {{{', '.join(kept.values())}}}\n")
    assert run(["plan", str(spec)]) == 2
    assert key in capsys.readouterr().err


def test_an_image_model_trains_at_its_own_size(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    stated = IMAGE_LORA.replace("lora}", "lora, image: {width: 1024, height: 1024}}")
    by_default = planned(tmp_path, capsys, IMAGE_LORA)["footprint"]["per_gpu"]
    assert by_default == planned(tmp_path, capsys, stated)["footprint"]["per_gpu"]
