"""Layouts that a model can take, and the reasons against the others."""

from __future__ import annotations

from dataclasses import replace

import pytest

from provisioner.sizing.demand import DiffusionDemand
from provisioner.sizing.layout import Layout
from provisioner.sizing.layouts import feasible_layouts, layout_objections
from provisioner.sizing.models import find_model, shape_from_dimensions
from provisioner.sizing.pipelines import PipelineShape
from provisioner.vocabulary import Engine, Sharding, TrainingMethod


def degrees(layouts):
    return {layout.tensor_parallel for layout in layouts if layout.pipeline_parallel == 1}


@pytest.mark.parametrize(
    ("model", "allowed"),
    [
        ("meta-llama/Meta-Llama-3-70B-Instruct", {1, 2, 4, 8}),
        ("Qwen/Qwen2.5-7B-Instruct", {1, 2, 4}),
        ("Qwen/Qwen3-8B", {1, 2, 4, 8}),
        ("Qwen/Qwen2.5-0.5B-Instruct", {1, 2}),
    ],
)
def test_heads_divide_by_the_tensor_degree(serving, model, allowed):
    assert degrees(feasible_layouts(serving(model), 8)) == allowed


def test_reasons_name_what_does_not_divide(serving):
    assert layout_objections(serving("meta-llama/Meta-Llama-3-70B-Instruct"), Layout(6))[0] == (
        "64 attention heads do not divide by tensor_parallel 6"
    )
    reasons = layout_objections(serving("Qwen/Qwen2.5-7B-Instruct"), Layout(8))
    assert any("28 attention heads" in reason for reason in reasons)


def test_key_value_heads_may_be_repeated_but_not_cut(serving):
    demand = serving("Qwen/Qwen3-235B-A22B")
    assert layout_objections(demand, Layout(8)) == ()
    medium = shape_from_dimensions(
        {
            "layers": 40,
            "hidden_size": 5120,
            "heads": 40,
            "kv_heads": 10,
            "intermediate_size": 17920,
            "vocab_size": 32064,
        }
    )
    reasons = layout_objections(serving(medium), Layout(4))
    assert reasons == ("10 key-value heads neither divide by tensor_parallel 4 nor into it",)


def test_quantisation_blocks_stay_whole(serving):
    """Published failures: 1536 / 8 = 192 for Qwen3-235B and MiniMax-M2.7, 768 / 4 = 192 for Qwen3-30B."""
    for model, tensor in (
        ("Qwen/Qwen3-235B-A22B-FP8", 8),
        ("MiniMaxAI/MiniMax-M2.7", 8),
        ("Qwen/Qwen3-30B-A3B-FP8", 4),
    ):
        reasons = layout_objections(serving(model), Layout(tensor))
        assert any("no multiple of the fp8-block block of 128" in reason for reason in reasons), model
        assert layout_objections(serving(model), Layout(tensor // 2)) == ()
    assert layout_objections(serving("Qwen/Qwen3-235B-A22B"), Layout(8)) == ()
    assert layout_objections(serving("Qwen/Qwen3-30B-A3B", weights="fp8"), Layout(4)) == ()
    assert layout_objections(serving("Qwen/Qwen3-30B-A3B", weights="int4-gptq"), Layout(4)) != ()
    assert layout_objections(serving("deepseek-ai/DeepSeek-V3"), Layout(8)) == ()


def test_a_degree_of_the_spec_is_the_only_one(serving):
    layouts = feasible_layouts(serving("Qwen/Qwen3-8B", tensor_parallel=2, pipeline_parallel=1), 8)
    assert layouts == (Layout(2),)
    assert "the spec asks for tensor_parallel 2" in layout_objections(
        serving("Qwen/Qwen3-8B", tensor_parallel=2), Layout(4)
    )
    assert "the spec asks for pipeline_parallel 2" in layout_objections(
        serving("Qwen/Qwen3-8B", pipeline_parallel=2), Layout(4)
    )


def test_more_stages_than_layers_are_refused(serving):
    assert "64 pipeline stages for 36 layers" in layout_objections(serving("Qwen/Qwen3-8B"), Layout(1, 64))


def test_engines_of_one_process_split_layers(serving):
    demand = serving("Qwen/Qwen3-8B", engine=Engine.LLAMA_CPP, engine_version=None)
    assert {layout.tensor_parallel for layout in feasible_layouts(demand, 8)} == {1}
    assert max(layout.pipeline_parallel for layout in feasible_layouts(demand, 8)) == 8
    assert "splits layers" in layout_objections(demand, Layout(2))[0]


def test_tensor_parallel_comes_before_pipeline_stages(serving):
    layouts = feasible_layouts(serving("meta-llama/Meta-Llama-3-70B-Instruct"), 4)
    assert layouts == (Layout(1), Layout(2), Layout(1, 2), Layout(1, 3), Layout(4), Layout(2, 2), Layout(1, 4))


def test_pipelines_run_on_one_gpu_a_copy():
    model = find_model("black-forest-labs/FLUX.1-dev")
    assert isinstance(model, PipelineShape)
    demand = DiffusionDemand(model, "auto", 1024, 1024)
    assert feasible_layouts(demand, 8) == (Layout(),)
    assert "one GPU" in layout_objections(demand, Layout(2))[0]


def test_trainings_spread_as_the_spec_says(training):
    auto = feasible_layouts(training("Qwen/Qwen3-8B"), 4)
    assert auto == (
        Layout(),
        Layout(data_parallel=2, sharding=Sharding.DDP),
        Layout(data_parallel=2, sharding=Sharding.FSDP),
        Layout(data_parallel=4, sharding=Sharding.DDP),
        Layout(data_parallel=4, sharding=Sharding.FSDP),
    )
    fsdp = feasible_layouts(training("Qwen/Qwen3-8B", sharding=Sharding.FSDP), 8)
    assert {layout.sharding for layout in fsdp if layout.data_parallel > 1} == {Sharding.FSDP}
    assert feasible_layouts(training("Qwen/Qwen3-8B", sharding=Sharding.NONE), 8) == (Layout(),)


def test_stages_of_a_training_are_equal(training):
    demand = training("Qwen/Qwen3-8B", sharding=Sharding.PP)
    found = {layout.pipeline_parallel for layout in feasible_layouts(demand, 8)}
    assert found == {1, 2, 4}
    assert "36 layers do not divide by pipeline_parallel 8" in layout_objections(
        demand, Layout(pipeline_parallel=8, sharding=Sharding.PP)
    )


def test_quantised_bases_are_not_cut_by_tensor(training):
    demand = training("Qwen/Qwen3-8B", method=TrainingMethod.QLORA, sharding=Sharding.TP)
    reasons = layout_objections(demand, Layout(tensor_parallel=2, sharding=Sharding.TP))
    assert "QLoRA has no tensor parallelism" in reasons
    full = replace(demand, method=TrainingMethod.FULL)
    assert layout_objections(full, Layout(tensor_parallel=2, sharding=Sharding.TP)) == ()
