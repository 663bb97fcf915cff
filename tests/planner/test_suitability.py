"""What kinds of models rule out: engines, sizes, splits, units and adapters, each at its key."""

from __future__ import annotations

import pytest

from provisioner.planner.decide import make_plan
from provisioner.planner.request import demand_for, shape_for
from provisioner.planner.requirements import KeyedSpecError
from provisioner.planner.suitability import unused_keys
from provisioner.workload.spec import Workload

LLAMA, GEMMA_VISION = "meta-llama/Llama-3.1-8B-Instruct", "google/gemma-3-4b-it"
FLUX, WAN = "black-forest-labs/FLUX.1-dev", "Wan-AI/Wan2.1-T2V-14B-Diffusers"
WHISPER, MUSIC, SOUNDS = "openai/whisper-large-v3", "facebook/musicgen-small", "stabilityai/stable-audio-open-1.0"


def build(model: str, task: str = "serve", **sections: object) -> Workload:
    return Workload.from_document({"version": 1, "name": "case", "task": task, "model": {"id": model}} | sections)


def demand(workload: Workload) -> object:
    return demand_for(workload, shape_for(workload))


@pytest.mark.parametrize(
    ("model", "engines"),
    [
        (LLAMA, "vllm sglang tensorrt-llm transformers llama.cpp"),
        (FLUX, "diffusers"),
        (WAN, "diffusers"),
        (WHISPER, "whisper transformers"),
        (MUSIC, "transformers diffusers"),
        (SOUNDS, "transformers diffusers"),
    ],
)
def test_engines_by_kind_of_model(model, engines):
    for engine in ["vllm", "sglang", "tensorrt-llm", "transformers", "llama.cpp", "diffusers", "whisper"]:
        workload = build(model, inference={"engine": engine})
        if engine in engines.split():
            assert demand(workload)
            continue
        with pytest.raises(KeyedSpecError, match=f"engine {engine} is not one that {model}") as caught:
            demand(workload)
        assert caught.value.key == "inference.engine"
        assert engines.split()[0] in caught.value.remedy


@pytest.mark.parametrize(
    ("model", "task", "section", "key"),
    [
        (LLAMA, "serve", {"image": {"width": 512}}, "inference.image"),
        (LLAMA, "serve", {"video": {"frames": 81}}, "inference.video"),
        (LLAMA, "serve", {"audio": {"seconds": 30}}, "inference.audio"),
        (LLAMA, "serve", {"offload": "model"}, "inference.offload"),
        (LLAMA, "serve", {"inputs": {"images": 4}}, "inference.inputs.images"),
        (LLAMA, "serve", {"inputs": {"image_pixels": 4096}}, "inference.inputs.image_pixels"),
        (GEMMA_VISION, "serve", {"inputs": {"images": 1, "audio_seconds": 3}}, "inference.inputs.audio_seconds"),
        (FLUX, "serve", {"inputs": {"images": 1}}, "inference.inputs"),
        (FLUX, "serve", {"tensor_parallel": 2}, "inference.tensor_parallel"),
        (WHISPER, "serve", {"pipeline_parallel": 2}, "inference.pipeline_parallel"),
        (WHISPER, "serve", {"offload": "model"}, "inference.offload"),
        (FLUX, "serve", {"targets": {"time_to_first_token": "1s"}}, "inference.targets.time_to_first_token"),
        (WHISPER, "serve", {"targets": {"tokens_per_second_per_request": 9}}, "inference.targets.tokens_per_second_per_request"),
        (LLAMA, "batch", {"total": "5M images"}, "inference.total"),
        (FLUX, "batch", {"total": "5M tokens"}, "inference.total"),
        (WAN, "batch", {"total": "100 images"}, "inference.total"),
        (WHISPER, "batch", {"total": "100 clips"}, "inference.total"),
        (MUSIC, "batch", {"total": "100 tokens"}, "inference.total"),
    ],
)  # fmt: skip
def test_what_does_not_go_with_the_kind_is_refused_at_its_key(model, task, section, key):
    with pytest.raises(KeyedSpecError) as caught:
        demand(build(model, task, inference=section))
    assert caught.value.key == key
    assert caught.value.remedy


@pytest.mark.parametrize(
    ("model", "task", "section"),
    [
        (LLAMA, "serve", {"offload": "none", "inputs": {"images": 0}}),
        (GEMMA_VISION, "serve", {"inputs": {"images": 4, "image_pixels": 4096}}),
        (FLUX, "serve", {"tensor_parallel": 1, "offload": "text-encoder"}),
        (LLAMA, "batch", {"total": "5M tokens"}),
        (FLUX, "batch", {"total": "5k images"}),
        (WAN, "batch", {"total": "100 clips"}),
        (WHISPER, "batch", {"total": "1.5 audio hours"}),
        (MUSIC, "batch", {"total": "100 clips"}),
    ],
)
def test_what_goes_with_the_kind_is_taken(model, task, section):
    assert demand(build(model, task, inference=section))


@pytest.mark.parametrize("name", ["image", "video", "audio"])
def test_a_language_model_trains_on_no_media(name):
    training = {"method": "lora", "sequence_tokens": 512, name: {"batch": 1}}
    with pytest.raises(KeyedSpecError) as caught:
        demand(build(LLAMA, "finetune", training=training))
    assert caught.value.key == f"training.{name}"


def test_adapters_sit_on_layers_that_the_model_has():
    training = {"method": "lora", "sequence_tokens": 512, "lora": {"targets": ["q_proj", "foo_proj"]}}
    with pytest.raises(KeyedSpecError, match="foo_proj") as caught:
        demand(build(LLAMA, "finetune", training=training))
    assert caught.value.key == "training.lora.targets"
    assert "q_proj" in (caught.value.remedy or "")


def test_a_language_training_needs_its_sequence():
    with pytest.raises(KeyedSpecError, match=r"training\.sequence_tokens is missing") as caught:
        demand(build(LLAMA, "finetune", training={"method": "lora"}))
    assert caught.value.key == "training"
    assert "4096" in (caught.value.remedy or "")


def test_keys_without_a_meaning_are_named_in_the_plan(catalog):
    section = {"context_tokens": 8192, "kv_cache": "fp8", "input_tokens": 7}
    workload = build(FLUX, inference=section)
    unused = ("inference.context_tokens", "inference.input_tokens", "inference.kv_cache")
    assert unused_keys(workload, shape_for(workload)) == unused
    warnings = make_plan(workload, catalog).warnings
    for key in unused:
        assert any(warning.startswith(f"{key} means nothing to {FLUX}") for warning in warnings)
    tuned = build(FLUX, "finetune", training={"method": "lora", "sequence_tokens": 512})
    assert unused_keys(tuned, shape_for(tuned)) == ("training.sequence_tokens",)
    assert unused_keys(build(LLAMA, inference=section), shape_for(build(LLAMA))) == ()
