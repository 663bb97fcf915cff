"""Predictions for measured rows of serving speed: decoding, prompts, batched load."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from benchmarks.rows import Models, Row, accelerator_of, weight_word
from provisioner.errors import UsageError
from provisioner.sizing.accelerator import Accelerator
from provisioner.sizing.demand import ServingDemand
from provisioner.sizing.layout import Layout
from provisioner.sizing.serving import cache_pool
from provisioner.sizing.shapes import ModelShape
from provisioner.sizing.speed import BAND, token_time
from provisioner.sizing.speed_profile import SpeedProfile, speed_profile
from provisioner.sizing.step_time import Machine, decode_step, prefill_time
from provisioner.sizing.weights import total_weight_bytes
from provisioner.vocabulary import Engine, Interconnect, KvDtype

ENGINES = {
    "autoawq": "vllm",
    "gpt-fast": "tensorrt-llm",
    "qserve": "tensorrt-llm",
    "quarot": "tensorrt-llm",
    "atom": "tensorrt-llm",
}
"""Engines without a profile of their own -> the one they are most like."""
MOST_SEQUENCES = 2048
MOST_TENSOR = 8
"""A copy that states no layout and does not fit one GPU is split within one machine."""


@dataclass(frozen=True, slots=True)
class SpeedPrediction:
    """Answer to one row, in the row's metric."""

    status: str
    value: float | None = None
    low: float | None = None
    high: float | None = None
    bound_by: str | None = None
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Load:
    """A serving row's setting."""

    model: ModelShape
    word: str
    machine: Machine
    accelerator: Accelerator
    layout: Layout
    kv_width: float
    prompt: int
    output: int
    batch: int | None
    """``None``: as many as memory admits."""
    gpus: int


def load_of(row: Row, models: Models, profile: SpeedProfile) -> Load:
    """The setting of a serving row.

    Raises:
        UsageError: something needed is not stated.
    """
    model = models.find(row)
    gpu = row.text("gpu")
    accelerator = accelerator_of(gpu, None)
    if accelerator is None or accelerator.memory_bandwidth_bytes_per_s is None:
        raise UsageError(f"GPU {gpu!r} is not known")
    gpus = int(row.number("gpu_count") or 1)
    engine = row.text("engine").lower()
    word = _word(row, model, engine)
    tensor = int(row.number("tp") or 1)
    if row.number("tp") is None and total_weight_bytes(model, word) > accelerator.memory_usable_bytes:
        tensor = min(gpus, MOST_TENSOR)
    stages = int(row.number("pp") or 1)
    link = row.text("interconnect").lower()
    interconnect = Interconnect.NVLINK if "nvlink" in link or "xgmi" in link else Interconnect.PCIE
    if tensor == 1:
        interconnect = Interconnect.NONE
    shared = int(row.number("dp") or 1) if model.is_moe and tensor == 1 else 1
    if shared > 1:
        interconnect = Interconnect.NVLINK if "nvlink" in link else Interconnect.PCIE
    batch = row.number("concurrency", "batch")
    return Load(
        model=model,
        word=word,
        machine=Machine(
            accelerator, profile, ENGINES.get(engine, engine), tensor, stages, interconnect, expert_ranks=shared
        ),
        accelerator=accelerator,
        layout=Layout(tensor, stages, shared),
        kv_width=_kv_width(row, engine),
        prompt=int(row.number("input_tokens") or 0),
        output=int(row.number("output_tokens") or 128),
        batch=None if batch is None or row.text("concurrency") == "max" else max(1, round(batch)),
        gpus=gpus,
    )


def _kv_width(row: Row, engine: str) -> float:
    """Bytes of a cached element; NVIDIA's FP8 and FP4 checkpoints ask TensorRT-LLM for an FP8 cache."""
    stated = row.text("kv_dtype").lower()
    if stated:
        return 1.0 if "8" in stated else 0.5 if "4" in stated else 2.0
    return 1.0 if engine == "tensorrt-llm" and row.text("weights_dtype").lower() in ("fp8", "fp4") else 2.0


def _word(row: Row, model: ModelShape, engine: str) -> str:
    text = row.text("weights_dtype").lower()
    if engine == "llama.cpp":
        return f"gguf-{text}" if text else "gguf-f16"
    if re.search(r"w4a8|w4a4|w4", text):
        return "int4-awq"
    if text == "fp4":
        return "auto" if model.quantisation and any("fp4" in f for _, f in model.quantisation.formats) else "nvfp4"
    word = weight_word(text) or "auto"
    if word == "auto" or (
        model.quantisation and any(name.startswith(word[:3]) for _, name in model.quantisation.formats)
    ):
        return "auto"
    return word


def predict_serving_speed(
    row: Row, metric: str, models: Models, profile: SpeedProfile | None = None
) -> SpeedPrediction:
    """Prediction for a row of serving in its own metric.

    Raises:
        UsageError: the row's model, GPU or metric is not modelled.
    """
    if row.inputs.get("speculative"):
        raise UsageError("speculative decoding is not modelled")
    load = load_of(row, models, profile or speed_profile())
    batch = load.batch if load.batch is not None else _most_requests(load)
    context = load.prompt + load.output // 2
    step = decode_step(
        load.model, load.word, load.machine, batch=batch, context=max(1, context), kv_width=load.kv_width
    )
    prompt_tokens = max(1, load.prompt)
    prompt = prefill_time(load.model, load.word, load.machine, tokens=prompt_tokens, prompt=prompt_tokens)
    if step is None or prompt is None:
        raise UsageError(f"a rate of {load.accelerator.gpu} is not known")
    stages = load.layout.pipeline_parallel
    between = token_time(step, prompt, batch, load.output)
    first = prompt.total_s
    rate = batch * load.output / (first + load.output * between) if load.output else 0.0
    copies = max(1, load.gpus // (load.layout.tensor_parallel * stages))
    if load.batch is not None and copies > 1:
        # The stated concurrency is of the whole job; each copy has its share.
        copies = 1
    values: Mapping[str, float] = {
        "decode_tok_s_per_seq": 1 / step.total_s,
        "tpot_ms": between * 1e3,
        "ttft_ms": (first + 0.5 * step.total_s) * 1e3,
        "output_tok_s_total": rate * copies,
        "output_tok_s_per_gpu": rate * copies / load.gpus,
        "total_tok_s": rate * copies * (load.prompt + load.output) / max(1, load.output),
        "prefill_tok_s": prompt_tokens / prompt.total_s,
        "prompt_plus_gen_tok_s": (load.prompt + load.output) / (first + load.output * step.total_s),
    }
    if metric not in values:
        raise UsageError(f"metric {metric} is not modelled")
    value = values[metric]
    return SpeedPrediction("predicted", value, value / BAND, value * BAND, step.bound_by)


def _most_requests(load: Load) -> int:
    demand = ServingDemand(
        model=load.model,
        weights=load.word,
        engine=Engine.TENSORRT_LLM,
        engine_version=None,
        context_tokens=load.prompt + load.output,
        concurrency=1,
        kv_dtype=KvDtype.FP8 if load.kv_width == 1.0 else KvDtype.BF16,
    )
    pool = cache_pool(demand, load.layout, load.accelerator)
    return max(1, min(MOST_SEQUENCES, int(pool.requests)))
