"""What contradicts itself, the hardware or arithmetic: each is an error or a warning with its reason, and nothing hangs."""

from __future__ import annotations

import json

import pytest

from provisioner.cli.main import run
from provisioner.planner.capabilities import capabilities_needed, stored_only
from provisioner.planner.request import demand_for, request_for, shape_for
from provisioner.planner.requirements import KeyedSpecError
from provisioner.sizing.demand import TrainingDemand
from provisioner.vocabulary import WeightFormat

LLAMA = {"id": "meta-llama/Llama-3.1-8B-Instruct", "weights": "fp16"}
SHAPE = {
    "layers": 32,
    "hidden_size": 4096,
    "heads": 32,
    "kv_heads": 8,
    "intermediate_size": 14336,
    "vocab_size": 128256,
}


def floor(workload, catalog):
    return max((needed for needed, _ in capabilities_needed(request_for(workload, catalog, None))), default=None)


@pytest.mark.parametrize(
    ("inference", "model", "expected"),
    [
        ({"kv_cache": "fp8"}, LLAMA, (8, 0)),
        ({"kv_cache": "fp8", "engine": "vllm@0.19"}, LLAMA, (7, 5)),
        ({"kv_cache": "fp8", "engine": "sglang"}, LLAMA, (8, 0)),
        ({"kv_cache": "fp8", "engine": "llama.cpp"}, {**LLAMA, "weights": "gguf-Q8_0"}, None),
        ({"kv_cache": "fp8"}, {"id": "deepseek-ai/DeepSeek-V2-Lite", "weights": "fp16"}, (8, 9)),
        ({"kv_cache": "auto"}, LLAMA, (7, 0)),
        ({"engine": "sglang"}, LLAMA, (7, 5)),
        ({"engine": "tensorrt-llm"}, LLAMA, (8, 0)),
        ({"engine": "transformers"}, LLAMA, None),
        ({}, {**LLAMA, "weights": "bf16"}, (8, 0)),
        ({}, {"id": "openai/gpt-oss-20b", "weights": "auto"}, (8, 0)),
        ({}, {"id": "deepseek-ai/DeepSeek-V3", "weights": "auto"}, (8, 9)),
    ],
)
def test_what_serving_asks_of_a_gpu(serve, catalog, inference, model, expected):
    assert floor(serve(model=model, inference=inference), catalog) == expected


@pytest.mark.parametrize(
    ("training", "expected"),
    [
        ({"precision": "fp8", "method": "full"}, (8, 9)),
        ({"precision": "bf16"}, (8, 0)),
        ({"precision": "fp16-mixed"}, None),
        ({"precision": "fp16-mixed", "attention": "flash"}, (8, 0)),
        ({"precision": "fp16-mixed", "attention": "sdpa"}, None),
    ],
)
def test_what_a_training_asks_of_a_gpu(finetune, catalog, training, expected):
    assert floor(finetune(training=training), catalog) == expected


def test_formats_that_are_stored_and_not_computed_in(serve, catalog):
    def said(weights, capability, **inference):
        request = request_for(serve(model={**LLAMA, "weights": weights}, inference=inference), catalog, None)
        return stored_only(request, capability)

    assert "FP8" in said("fp8", (8, 0))[0]
    assert said("fp8", (9, 0)) == ()
    assert "FP4" in said("nvfp4", (9, 0))[0]
    assert said("nvfp4", (10, 0)) == ()
    assert "cache" in said("fp16", (8, 6), kv_cache="fp8")[0]
    assert said("fp16", None, kv_cache="fp8") == ()


@pytest.mark.parametrize(
    ("training", "gpu", "text"),
    [
        ({"precision": "bf16"}, "T4", "set training.precision to fp16-mixed"),
        ({"precision": "fp8", "method": "lora"}, "A100-80GB", "set training.precision to bf16-mixed"),
        ({"precision": "fp16-mixed", "attention": "flash"}, "T4", "set training.attention to sdpa"),
    ],
)
def test_the_closest_change_names_what_runs(finetune, plan_of, training, gpu, text):
    plan = plan_of(finetune(model={"id": "Qwen/Qwen2.5-0.5B"}, training=training, placement={"gpus": [gpu]}))
    assert plan.choice is None
    assert any(text in each for each in plan.closest)


def test_changes_are_such_that_the_engine_loads(serve, plan_of):
    tight = {"gpus": ["L4"], "max_gpus": 1}
    plan = plan_of(
        serve(
            model={"id": "Qwen/Qwen3-14B", "weights": "bf16"},
            inference={"engine": "llama.cpp", "context_tokens": 2048},
            placement=tight,
        )
    )
    assert any("set model.weights to gguf-" in each for each in plan.closest)
    assert not any("fp8" in each for each in plan.closest)
    held = plan_of(serve(model=LLAMA, inference={"gpu_memory_fraction": 0.05}, placement={"gpus": ["L4"]}))
    assert any("set inference.gpu_memory_fraction to auto" in each for each in held.closest)


@pytest.mark.parametrize(
    ("model", "method", "words"),
    [
        ("Qwen/Qwen2.5-7B-Instruct-AWQ", "full", "int4-awq"),
        ("Qwen/Qwen2.5-7B-Instruct-AWQ", "qlora", "nf4 is made from 16-bit weights"),
        ("Qwen/Qwen2.5-7B-Instruct", "full", None),
        ("Qwen/Qwen2.5-7B-Instruct-AWQ", "lora", None),
        ("deepseek-ai/DeepSeek-V3", "qlora", None),
    ],
)
def test_packed_checkpoints_are_trained_with_adapters_alone(finetune, model, method, words):
    workload = finetune(model={"id": model}, training={"method": method})
    if words is None:
        assert isinstance(demand_for(workload, shape_for(workload)), TrainingDemand)
        return
    with pytest.raises(KeyedSpecError, match=words) as caught:
        demand_for(workload, shape_for(workload))
    assert caught.value.key == "model.id"


def test_a_packed_base_stays_packed_below_a_lora(finetune):
    packed = finetune(model={"id": "Qwen/Qwen2.5-7B-Instruct-AWQ"})
    assert demand_for(packed, shape_for(packed)).weights == WeightFormat.INT4_AWQ
    plain = finetune(model={"id": "Qwen/Qwen2.5-7B-Instruct"})
    assert demand_for(plain, shape_for(plain)).weights == WeightFormat.AUTO


BAD = {
    "heads": ({"model": {"shape": {**SHAPE, "heads": 30}}}, "30 is not a multiple of num_key_value_heads 8"),
    "width": ({"model": {"shape": {**SHAPE, "hidden_size": 4100}}}, "4100 is not a multiple of num_attention_heads 32"),
    "layers": ({"model": {"shape": {**SHAPE, "layers": 10**6}}}, "num_hidden_layers is 1,000,000, above 4096"),
    "hidden": ({"model": {"shape": {**SHAPE, "hidden_size": 10**12}}}, "outside 0 to 1,000,000,000"),
    "context": ({"inference": {"context_tokens": 10**12}}, "out of range"),
    "concurrency": ({"inference": {"concurrency": 10**9}}, "out of range"),
    "split": ({"inference": {"tensor_parallel": 3}}, "32 attention heads do not divide by tensor_parallel 3"),
    "stages": ({"inference": {"pipeline_parallel": 40}}, "40 pipeline stages for 32 layers"),
}


@pytest.mark.parametrize("case", BAD)
def test_what_cannot_be_is_an_error_at_its_place(tmp_path, capsys, case):
    sections, words = BAD[case]
    spec = {"version": 1, "name": "case", "task": "serve", "model": {"id": LLAMA["id"]}, **sections}
    path = tmp_path / "workload.yaml"
    path.write_text(json.dumps(spec, indent=1))
    assert run(["size", str(path)]) == 2
    error = capsys.readouterr().err
    assert words in error
    place = error.partition("workload.yaml:")[2]
    assert int(place.partition(":")[0]) > 1


HUGE = {
    "context and requests": {"inference": {"context_tokens": 10**9, "concurrency": 10**6}},
    "all dimensions": {"model": {"shape": dict.fromkeys(SHAPE, 10**9) | {"layers": 4096}}},
    "images": {
        "model": {"id": "black-forest-labs/FLUX.1-dev"},
        "inference": {"image": {"width": 65536, "height": 65536, "batch": 10_000}},
    },
    "frames": {"model": {"id": "Wan-AI/Wan2.1-T2V-1.3B-Diffusers"}, "inference": {"video": {"frames": 10**6}}},
    "seconds": {
        "model": {"id": "facebook/musicgen-large"},
        "inference": {"audio": {"seconds": 10**6, "batch": 10_000}},
    },
}


@pytest.mark.parametrize("case", HUGE)
def test_absurd_sizes_neither_overflow_nor_hang(tmp_path, capsys, case):
    spec = {"version": 1, "name": "case", "task": "serve", "model": {"id": LLAMA["id"]}, **HUGE[case]}
    path = tmp_path / "workload.yaml"
    path.write_text(json.dumps(spec))
    assert run(["size", str(path), "--format", "json"]) == 0
    layouts = json.loads(capsys.readouterr().out)["layouts"]
    assert layouts
    assert all(each["fits"] == "does-not-fit" for each in layouts)
    assert all(isinstance(each["footprint"]["per_gpu"]["total_bytes"], int) for each in layouts)
    assert run(["plan", str(path), "--format", "json"]) == 6


def test_a_context_beyond_the_models_own_is_a_warning_with_the_reason(serve, plan_of):
    plan = plan_of(serve(model={"id": "google/gemma-2-9b-it"}, inference={"context_tokens": 20_000}))
    assert any("over the 8192 positions" in warning for warning in plan.warnings)
