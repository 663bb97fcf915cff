"""The largest values that fit: they fit, one more does not, and finding them takes few footprints."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.rows import accelerator_of
from provisioner.planner import largest as module
from provisioner.planner.largest import largest, largest_that_fits, limits_of
from provisioner.sizing.demand import AudioDemand, DiffusionDemand, ServingDemand, TrainingDemand
from provisioner.sizing.estimate import estimate_footprint
from provisioner.sizing.layout import Layout
from provisioner.sizing.models import find_model
from provisioner.sizing.pipelines import PipelineShape
from provisioner.vocabulary import Engine, Fit, Optimizer, TrainingMethod, TrainingPrecision

CARD = accelerator_of("L40S-48GB", None) or accelerator_of("L40S", None)
assert CARD is not None


def pipeline(name: str) -> PipelineShape:
    shape = find_model(name)
    assert isinstance(shape, PipelineShape)
    return shape


SERVING = ServingDemand(find_model("meta-llama/Llama-3.1-8B-Instruct"), "auto", Engine.VLLM, "0.19", 8192, 4)
DEMANDS = {
    "grouped": SERVING,
    "windows": replace(SERVING, model=find_model("google/gemma-3-12b-it")),
    "latent": replace(SERVING, model=find_model("deepseek-ai/DeepSeek-V2-Lite"), weights="fp8"),
    "hybrid": replace(SERVING, model=find_model("Qwen/Qwen3.5-9B")),
    "generate": replace(SERVING, engine=Engine.TRANSFORMERS, engine_version=None),
    "free": replace(SERVING, engine=Engine.TENSORRT_LLM, engine_version=None),
    "lora": TrainingDemand(
        find_model("Qwen/Qwen2.5-7B-Instruct"),
        "auto",
        TrainingMethod.LORA,
        TrainingPrecision.BF16,
        Optimizer.ADAMW,
        2048,
        1,
        gradient_checkpointing=True,
        attention=None,
    ),
    "image": DiffusionDemand(pipeline("stabilityai/stable-diffusion-xl-base-1.0"), "fp16", 1024, 1024),
    "video": DiffusionDemand(pipeline("Wan-AI/Wan2.1-T2V-1.3B-Diffusers"), "bf16", 832, 480, frames=81),
    "speech": AudioDemand(pipeline("openai/whisper-large-v3"), "fp16", 30.0),
}


@pytest.mark.parametrize("name", DEMANDS)
def test_the_largest_fits_and_one_more_does_not(name):
    demand = DEMANDS[name]
    found = largest_that_fits(demand, Layout(), CARD)
    assert list(found) == [limit.name for limit in limits_of(demand)]
    for limit in limits_of(demand):
        value = found[limit.name]
        assert value > 0
        assert fit(demand, limit.name, value) is Fit.FITS
        if value < limit.most:
            assert fit(demand, limit.name, value + 1) is not Fit.FITS


def fit(demand, name, value) -> Fit:
    changed = replace(demand, **{name: value})
    if isinstance(changed, ServingDemand):
        changed = replace(changed, output_tokens=min(changed.output_tokens, changed.context_tokens))
    return estimate_footprint(changed, Layout(), CARD).fit


def test_a_model_that_does_not_go_on_the_card_has_none():
    demand = replace(SERVING, model=find_model("meta-llama/Llama-3.1-70B-Instruct"))
    assert largest_that_fits(demand, Layout(), CARD) == {"concurrency": 0, "context_tokens": 0}


def test_the_context_ends_at_the_models_own_limit():
    demand = replace(SERVING, model=find_model("google/gemma-2-2b-it"))
    assert largest_that_fits(demand, Layout(), CARD)["context_tokens"] == demand.model.max_context_tokens


def test_few_footprints_are_needed(monkeypatch):
    count = 0
    real = module.estimate_footprint

    def counted(*args):
        nonlocal count
        count += 1
        return real(*args)

    monkeypatch.setattr(module, "estimate_footprint", counted)
    for demand in DEMANDS.values():
        largest_that_fits(demand, Layout(), CARD)
    assert count < 20 * len(DEMANDS)


@given(
    st.integers(1, 10**9),
    st.lists(st.tuples(st.integers(1, 10**9), st.integers(0, 10**12)), max_size=4),
    st.integers(0, 10**20),
    st.integers(1, 512),
)
def test_any_falling_curve_is_searched_to_its_end(most, bends, budget, step):
    """Room = budget - a sum of ramps that start at different places, in steps: never growing."""
    calls = 0

    def room(value: int) -> int:
        nonlocal calls
        calls += 1
        stepped = -(-value // step) * step
        return budget - sum(slope * max(0, stepped - start) for start, slope in bends)

    found = largest(room, most)
    assert 0 <= found <= most
    assert found == 0 or room(found) >= 0
    assert found == most or room(found + 1) < 0
    assert calls < 90
