"""Laws that hold for every model and setting: more work never needs less memory, more GPUs never more of each."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from math import inf

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.rows import accelerator_of
from provisioner.sizing.demand import ServingDemand, TrainingDemand
from provisioner.sizing.estimate import estimate_footprint, estimate_throughput
from provisioner.sizing.footprint import Footprint
from provisioner.sizing.layout import Layout
from provisioner.sizing.layouts import feasible_layouts, layout_objections
from provisioner.sizing.models import find_model, shape_from_dimensions
from provisioner.sizing.quantisation import BITS_PER_WEIGHT
from provisioner.sizing.weights import total_weight_bytes
from provisioner.vocabulary import (
    Engine,
    Interconnect,
    KvDtype,
    Optimizer,
    Sharding,
    TrainingMethod,
    TrainingPrecision,
)

CARD = accelerator_of("H100-SXM-80GB", None)
assert CARD is not None
MODELS = st.sampled_from(
    [
        "meta-llama/Llama-3.1-8B-Instruct",
        "Qwen/Qwen2.5-7B-Instruct",
        "google/gemma-2-9b-it",
        "google/gemma-3-27b-it",
        "mistralai/Mixtral-8x7B-Instruct-v0.1",
        "deepseek-ai/DeepSeek-V2-Lite",
        "deepseek-ai/DeepSeek-V3",
        "openai/gpt-oss-20b",
        "Qwen/Qwen3-Next-80B-A3B-Instruct",
        "Qwen/Qwen3-235B-A22B",
        "microsoft/Phi-3.5-mini-instruct",
    ]
).map(find_model)
ENGINES = st.sampled_from(
    [
        (Engine.VLLM, "0.6"),
        (Engine.VLLM, "0.11"),
        (Engine.VLLM, "0.19"),
        (Engine.VLLM, None),
        (Engine.SGLANG, None),
        (Engine.TENSORRT_LLM, None),
        (Engine.TRANSFORMERS, None),
        (Engine.LLAMA_CPP, None),
    ]
)
FORMATS = st.sampled_from(["auto", "bf16", "fp8", "int8", "int4-awq", "nvfp4"])


@st.composite
def serving_demands(draw: st.DrawFn) -> ServingDemand:
    engine, version = draw(ENGINES)
    weights = draw(FORMATS)
    return ServingDemand(
        model=draw(MODELS),
        weights="gguf-q4_k_m" if engine is Engine.LLAMA_CPP else weights,
        engine=engine,
        engine_version=version,
        context_tokens=draw(st.integers(1, 131_072)),
        concurrency=draw(st.integers(1, 512)),
        kv_dtype=draw(st.sampled_from([KvDtype.AUTO, KvDtype.FP8, KvDtype.BF16])),
        output_tokens=64,
    )


@st.composite
def training_demands(draw: st.DrawFn) -> TrainingDemand:
    return TrainingDemand(
        model=draw(MODELS),
        weights="auto",
        method=draw(st.sampled_from(list(TrainingMethod))),
        precision=draw(st.sampled_from([TrainingPrecision.BF16, TrainingPrecision.BF16_MIXED])),
        optimizer=draw(st.sampled_from(list(Optimizer))),
        sequence_tokens=draw(st.integers(1, 32_768)),
        micro_batch=draw(st.integers(1, 32)),
        gradient_checkpointing=draw(st.sampled_from([True, False, "selective"])),
        attention=None,
        lora_rank=draw(st.integers(1, 128)),
    )


def size(demand: ServingDemand | TrainingDemand, layout: Layout | None = None) -> Footprint:
    return estimate_footprint(demand, layout or Layout(), CARD)


def is_sound(footprint: Footprint) -> bool:
    terms = footprint.per_gpu
    named = sum(
        part or 0
        for part in (
            terms.weights_bytes,
            terms.kv_cache_bytes,
            terms.activation_bytes,
            terms.gradient_bytes,
            terms.optimizer_bytes,
            terms.overhead_bytes,
        )
    )
    ordered = 0 < terms.low_bytes <= terms.total_bytes <= terms.high_bytes
    return ordered and 0.98 * terms.total_bytes <= named <= 1.34 * terms.total_bytes


@settings(max_examples=200)
@given(serving_demands())
def test_serving_parts_add_up_and_bands_hold_the_total(demand):
    assert is_sound(size(demand))


@settings(max_examples=200)
@given(training_demands())
def test_training_parts_add_up_and_bands_hold_the_total(demand):
    assert is_sound(size(demand))


@settings(max_examples=150)
@given(serving_demands(), st.integers(1, 10_000), st.integers(1, 64))
def test_longer_contexts_and_more_requests_never_need_less(demand, tokens, requests):
    base = size(demand).per_gpu
    longer = size(replace(demand, context_tokens=demand.context_tokens + tokens)).per_gpu
    busier = size(replace(demand, concurrency=demand.concurrency + requests)).per_gpu
    assert longer.total_bytes >= base.total_bytes
    assert busier.total_bytes >= base.total_bytes
    assert busier.kv_cache_bytes > base.kv_cache_bytes


@settings(max_examples=150)
@given(serving_demands())
def test_narrower_weights_and_caches_never_need_more(demand):
    wide = size(replace(demand, weights="bf16", kv_dtype=KvDtype.BF16)).per_gpu
    for word in ("fp8", "int8", "int4-awq", "nvfp4"):
        assert size(replace(demand, weights=word, kv_dtype=KvDtype.BF16)).per_gpu.weights_bytes <= wide.weights_bytes
    assert size(replace(demand, weights="bf16", kv_dtype=KvDtype.FP8)).per_gpu.kv_cache_bytes <= wide.kv_cache_bytes


@given(MODELS)
def test_formats_order_models_by_their_bits(model):
    # MXFP4 covers the experts alone.
    words = sorted(set(BITS_PER_WEIGHT) - {"mxfp4"}, key=lambda word: BITS_PER_WEIGHT[word])
    sizes = [total_weight_bytes(model, word) for word in words]
    assert all(low <= high * 1.0000001 for low, high in pairwise(sizes))


@settings(max_examples=100)
@given(serving_demands())
def test_more_ranks_never_hold_more_each(demand):
    before = inf
    for tensor in (1, 2, 4, 8):
        if layout_objections(demand, Layout(tensor)):
            continue
        terms = size(demand, Layout(tensor)).per_gpu
        held = terms.weights_bytes + terms.kv_cache_bytes
        assert held <= before * 1.001
        before = held


@settings(max_examples=100)
@given(training_demands(), st.integers(1, 4096), st.integers(1, 16))
def test_longer_sequences_larger_batches_and_ranks_never_need_less(demand, tokens, samples):
    base = size(demand).per_gpu.total_bytes
    assert size(replace(demand, sequence_tokens=demand.sequence_tokens + tokens)).per_gpu.total_bytes >= base
    assert size(replace(demand, micro_batch=demand.micro_batch + samples)).per_gpu.total_bytes >= base
    if demand.method is not TrainingMethod.FULL:
        assert size(replace(demand, lora_rank=2 * demand.lora_rank)).per_gpu.total_bytes > base


@settings(max_examples=100)
@given(training_demands())
def test_checkpointing_and_adapters_never_need_more(demand):
    stored = size(replace(demand, gradient_checkpointing=False)).per_gpu.total_bytes
    assert size(replace(demand, gradient_checkpointing=True)).per_gpu.total_bytes <= stored
    full = size(replace(demand, method=TrainingMethod.FULL)).per_gpu
    lora = size(replace(demand, method=TrainingMethod.LORA, lora_rank=8)).per_gpu
    assert lora.optimizer_bytes <= full.optimizer_bytes


@settings(max_examples=100)
@given(training_demands(), st.sampled_from([2, 4, 8, 16]))
def test_more_sharding_never_needs_more_states(demand, ranks):
    full = replace(demand, method=TrainingMethod.FULL)

    def states(sharding: Sharding) -> int:
        terms = size(full, Layout(data_parallel=ranks, sharding=sharding)).per_gpu
        return terms.weights_bytes + (terms.gradient_bytes or 0) + (terms.optimizer_bytes or 0)

    stages = [states(s) for s in (Sharding.ZERO1, Sharding.ZERO2, Sharding.ZERO3)]
    assert stages[0] >= stages[1] >= stages[2]
    assert states(Sharding.DDP) > states(Sharding.FSDP)


@settings(max_examples=60)
@given(st.integers(2, 40), st.integers(4, 64), st.integers(1, 8))
def test_larger_models_never_need_less(layers, heads, groups):
    def model(depth: int, width: int) -> ServingDemand:
        shape = shape_from_dimensions(
            {
                "layers": depth,
                "hidden_size": 64 * width * groups,
                "heads": width * groups,
                "kv_heads": groups,
                "intermediate_size": 256 * width * groups,
                "vocab_size": 32_000,
            }
        )
        return ServingDemand(shape, "bf16", Engine.VLLM, "0.19", 4096, 4)

    base = size(model(layers, heads)).per_gpu.total_bytes
    assert size(model(layers + 1, heads)).per_gpu.total_bytes > base
    assert size(model(layers, heads + 1)).per_gpu.total_bytes > base


@settings(max_examples=100)
@given(serving_demands())
def test_speed_has_a_band_and_falls_per_request_with_load(demand):
    speed = estimate_throughput(demand, Layout(), CARD, Interconnect.NONE)
    assert speed.low is not None
    assert speed.high is not None
    assert 0 < speed.low <= (speed.decode_tokens_per_s_per_replica or 0) <= speed.high
    busier = estimate_throughput(replace(demand, concurrency=demand.concurrency * 2), Layout(), CARD, Interconnect.NONE)
    assert (busier.tokens_per_s_per_request or inf) <= (speed.tokens_per_s_per_request or 0)
    assert (busier.decode_tokens_per_s_per_replica or 0) >= 0.99 * (speed.decode_tokens_per_s_per_replica or inf)


@given(serving_demands(), st.integers(1, 16))
def test_layouts_come_smallest_first_and_are_possible(demand, most):
    layouts = feasible_layouts(demand, most)
    counts = [layout.gpus_per_replica for layout in layouts]
    assert counts == sorted(counts)
    assert all(count <= most for count in counts)
    assert len(set(layouts)) == len(layouts)
    assert Layout() in layouts
    assert not any(layout_objections(demand, layout) for layout in layouts)


@pytest.mark.parametrize("most", [0])
def test_no_gpus_no_layouts(serving, most):
    assert feasible_layouts(serving("Qwen/Qwen3-8B"), most) == ()
