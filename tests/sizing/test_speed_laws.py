"""Laws of predicted speed: better hardware is never slower, more requests never finish fewer, a faster target never takes more."""

from __future__ import annotations

import itertools
from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.rows import accelerator_of
from provisioner.sizing.demand import ServingDemand, TrainingDemand
from provisioner.sizing.estimate import estimate_throughput
from provisioner.sizing.layout import Layout
from provisioner.sizing.models import find_model
from provisioner.sizing.speed import ServingSpeed
from provisioner.sizing.steady_state import SteadyState
from provisioner.sizing.step_work import touched_weight_bytes
from provisioner.sizing.throughput import Targets, main_rate
from provisioner.vocabulary import Engine, Interconnect, Optimizer, Sharding, TrainingMethod, TrainingPrecision

SLACK = 1 + 1e-9
CARDS = st.sampled_from(
    [card for name in ("T4", "L4", "A10G", "L40S", "A100-80GB", "H100", "B200") if (card := accelerator_of(name, None))]
)
MODELS = st.sampled_from(
    [
        "meta-llama/Llama-3.1-8B-Instruct",
        "google/gemma-2-9b-it",
        "mistralai/Mixtral-8x7B-Instruct-v0.1",
        "deepseek-ai/DeepSeek-V3",
        "openai/gpt-oss-20b",
        "Qwen/Qwen3-Next-80B-A3B-Instruct",
    ]
).map(find_model)
ENGINES = st.sampled_from([Engine.VLLM, Engine.SGLANG, Engine.TENSORRT_LLM, Engine.TRANSFORMERS, Engine.LLAMA_CPP])
FORMATS = st.sampled_from(["bf16", "fp8", "int8", "int4-awq", "nvfp4", "gguf-q4_k_m"])
FEW = settings(max_examples=60)


@st.composite
def demands(draw: st.DrawFn) -> ServingDemand:
    return ServingDemand(
        model=draw(MODELS),
        weights=draw(FORMATS),
        engine=draw(ENGINES),
        engine_version=None,
        context_tokens=8192,
        concurrency=draw(st.integers(1, 300)),
        input_tokens=draw(st.integers(1, 8000)),
        output_tokens=draw(st.integers(1, 1000)),
    )


def rate(demand, card, layout=None, link=Interconnect.NVLINK) -> float:
    found = main_rate(estimate_throughput(demand, layout or Layout(), card, link))
    assert found is not None
    return found


@FEW
@given(demands(), CARDS, st.floats(1, 4), st.sampled_from([1, 2, 4, 8]))
def test_better_hardware_is_never_slower(demand, card, factor, tensor):
    layout = Layout(tensor)
    base = rate(demand, card, layout)
    faster = replace(card, memory_bandwidth_bytes_per_s=card.memory_bandwidth_bytes_per_s * factor)
    assert rate(demand, faster, layout) * SLACK >= base
    stronger = replace(card, flop_per_s={word: value * factor for word, value in card.flop_per_s.items()})
    assert rate(demand, stronger, layout) * SLACK >= base
    linked = replace(card, nvlink_bytes_per_s=1e11)
    wider = replace(card, nvlink_bytes_per_s=1e11 * factor)
    assert rate(demand, wider, layout) * SLACK >= rate(demand, linked, layout)


@FEW
@given(demands(), CARDS)
def test_nothing_is_read_faster_than_memory_allows(demand, card):
    """One token for each request takes at least one pass over the weights that a single request touches."""
    speed = estimate_throughput(demand, Layout(), card, Interconnect.NONE)
    least = touched_weight_bytes(demand.model, demand.weights, 1, 1) / card.memory_bandwidth_bytes_per_s
    assert (speed.tokens_per_s_per_request or 0) <= 1.2 / least  # shares of narrow kernels are relative to 16 bit


@FEW
@given(demands(), CARDS)
def test_more_requests_finish_no_fewer_and_each_no_sooner(demand, card):
    speed = ServingSpeed(demand, Layout(), card, Interconnect.NONE)
    paces = [speed.pace(count) for count in (1, 2, 8, 64, 256)]
    finished = [pace.requests / pace.round_s for pace in paces]
    assert all(after >= 0.97 * before for before, after in itertools.pairwise(finished))
    assert all(a.token_s <= b.token_s * SLACK for a, b in itertools.pairwise(paces))


@FEW
@given(demands(), CARDS, st.lists(st.floats(0.001, 0.999), min_size=2, max_size=4))
def test_waiting_grows_with_the_rate(demand, card, shares):
    state = SteadyState(ServingSpeed(demand, Layout(), card, Interconnect.NONE), demand.concurrency)
    seen = [state.waiting(share * state.largest_rate) for share in sorted(shares)]
    assert all(each is not None for each in seen)
    firsts = [each.first_token_s for each in seen]
    assert firsts == sorted(firsts)
    assert firsts[0] >= state.prompt_s
    running = [each.running for each in seen]
    assert all(a <= b * SLACK for a, b in itertools.pairwise(running))
    assert running[-1] <= state.limit * SLACK
    assert state.waiting(state.largest_rate) is None


@FEW
@given(demands(), CARDS, st.floats(0.01, 20), st.floats(1, 200))
def test_the_rate_within_targets_keeps_them_and_tighter_ones_allow_less(demand, card, first, tokens):
    state = SteadyState(ServingSpeed(demand, Layout(), card, Interconnect.NONE), demand.concurrency)
    targets = Targets(first, tokens)
    allowed = state.rate_within(targets)
    assert 0 <= allowed <= state.largest_rate
    if allowed:
        seen = state.waiting(allowed)
        assert seen.first_token_s <= first * 1.001
        assert seen.tokens_per_s >= tokens * 0.999
    assert state.rate_within(Targets(first / 2, tokens)) <= allowed * 1.001
    assert state.rate_within(Targets(first, tokens * 2)) <= allowed * 1.001
    assert state.rate_within(Targets()) * SLACK >= allowed


@st.composite
def trainings(draw: st.DrawFn) -> TrainingDemand:
    return TrainingDemand(
        model=draw(MODELS),
        weights="auto",
        method=draw(st.sampled_from([TrainingMethod.FULL, TrainingMethod.LORA])),
        precision=draw(st.sampled_from([TrainingPrecision.BF16_MIXED, TrainingPrecision.FP8])),
        optimizer=Optimizer.ADAMW,
        sequence_tokens=draw(st.integers(256, 32_768)),
        micro_batch=draw(st.integers(1, 8)),
        gradient_checkpointing=draw(st.sampled_from([True, False, "selective"])),
        attention=None,
    )


@FEW
@given(trainings(), CARDS, st.floats(1, 4), st.sampled_from([1, 2, 8]))
def test_training_laws(demand, card, factor, ranks):
    layout = Layout(data_parallel=ranks, sharding=Sharding.FSDP if ranks > 1 else Sharding.NONE)
    base = rate(demand, card, layout)
    stronger = replace(card, flop_per_s={word: value * factor for word, value in card.flop_per_s.items()})
    assert rate(demand, stronger, layout) * SLACK >= base
    assert rate(replace(demand, gradient_checkpointing=False), card, layout) * SLACK >= base
    assert rate(replace(demand, sequence_tokens=2 * demand.sequence_tokens), card) <= rate(demand, card) * SLACK
    assert base <= ranks * rate(demand, card) * SLACK
