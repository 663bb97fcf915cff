"""Adapters and images of a spec: what sizing is asked, what the engine is told, and what is refused at its key."""

from __future__ import annotations

import json

import pytest

from provisioner.planner.launch import adapter_options
from provisioner.planner.request import demand_for, request_for, shape_for
from provisioner.planner.requirements import KeyedSpecError
from provisioner.sizing.demand import DiffusionDemand, ServingDemand, TrainingDemand
from provisioner.vocabulary import Engine

VISION = {"id": "Qwen/Qwen3-VL-8B-Instruct", "weights": "bf16"}


def demand(workload):
    return demand_for(workload, shape_for(workload))


def refused(workload) -> KeyedSpecError:
    with pytest.raises(KeyedSpecError) as caught:
        demand(workload)
    assert caught.value.remedy
    return caught.value


def test_adapters_are_counted_with_their_largest_rank(serve):
    adapters = ["s3://b/a", {"source": "hf://me/b@v2", "rank": 24, "targets": ["q_proj"]}]
    found = demand(serve(model={"adapters": adapters}))
    assert isinstance(found, ServingDemand)
    assert (found.adapters, found.adapter_rank, found.adapter_targets) == (2, 24, None)
    both = [{"source": f"s3://b/{name}", "targets": [name]} for name in ("q_proj", "v_proj")]
    assert demand(serve(model={"adapters": both})).adapter_targets == ("q_proj", "v_proj")


def test_engines_are_told_of_adapters(serve, plan_of):
    workload = serve(model={"adapters": ["s3://b/a", {"source": "hf://me/b@v2", "rank": 24}]})
    argv = list(plan_of(workload).launch_argv)
    at = argv.index("--enable-lora")
    assert argv[at:] == [
        "--enable-lora", "--max-loras", "2", "--max-lora-rank", "32", "--lora-modules", "a=s3://b/a", "b=me/b",
    ]  # fmt: skip
    found = demand(workload)
    for engine, words in ((Engine.SGLANG, "--lora-paths"), (Engine.LLAMA_CPP, "--lora")):
        changed = demand(serve(model={"adapters": ["hf://me/b"], "weights": "auto"}, inference={"engine": str(engine)}))
        assert words in adapter_options(changed, workload.model.adapters)
    assert adapter_options(found, ()) == ()


@pytest.mark.parametrize(
    ("adapter", "key", "words"),
    [
        ({"source": "s3://b/a", "rank": 1024}, "model.adapters[0]", "ranks up to 512"),
        ({"source": "s3://b/a", "targets": ["wonder_proj"]}, "model.adapters[0]", "wonder_proj"),
    ],
)
def test_adapters_that_cannot_be_served(serve, adapter, key, words):
    error = refused(serve(model={"adapters": [adapter]}))
    assert error.key == key
    assert words in error.message


def test_a_training_starts_from_an_adapter_of_its_rank(finetune):
    started = demand(finetune(model={"adapters": [{"source": "s3://b/a", "rank": 64}]}))
    assert isinstance(started, TrainingDemand)
    assert started.lora_rank == 64
    assert demand(finetune(model={"adapters": ["s3://b/a"]})).lora_rank == 16
    error = refused(finetune(model={"adapters": [{"source": "s3://b/a", "rank": 64}]}, training={"lora": {"rank": 8}}))
    assert error.key == "training.lora.rank"
    error = refused(finetune(model={"adapters": ["s3://b/a", "s3://b/b"]}))
    assert error.key == "model.adapters[1]"


def test_pipelines_hold_adapters_too(serve):
    found = demand(
        serve(
            model={"id": "black-forest-labs/FLUX.1-dev", "adapters": ["hf://me/style"]},
            inference={"engine": "diffusers"},
        )
    )
    assert isinstance(found, DiffusionDemand)
    assert (found.adapters, found.adapter_rank) == (1, 16)


def test_images_of_a_request(serve, plan_of):
    inputs = {"images": 4, "image_pixels": 1024 * 1024}
    workload = serve(model=VISION, inference={"inputs": inputs, "context_tokens": 16_384})
    found = demand(workload)
    assert isinstance(found, ServingDemand)
    assert (found.images, found.image_pixels) == (4, 1024 * 1024)
    # What a typical request reads is text and images.
    assert found.input_tokens == 1024 + 4 * (32 * 32 + 2)
    plan = plan_of(workload)
    argv = list(plan.launch_argv)
    assert json.loads(argv[argv.index("--limit-mm-per-prompt") + 1]) == {"image": 4}
    assert plan.footprint is not None
    assert any(each.name == "images" and "1026 tokens each" in each.value for each in plan.footprint.assumptions)


def test_pixels_alone_are_one_image_and_images_alone_a_megapixel(serve):
    assert demand(serve(model=VISION, inference={"inputs": {"image_pixels": 50_000}})).images == 1
    assert demand(serve(model=VISION, inference={"inputs": {"images": 2}})).image_pixels == 1024 * 1024
    assert demand(serve(model=VISION, inference={"inputs": {"images": 0}})).images == 0
    assert demand(serve(model=VISION)).images is None


@pytest.mark.parametrize(
    ("model", "inputs", "key", "words"),
    [
        (VISION, {"images": 8}, "inference.inputs", "8208 tokens"),
        (VISION, {"audio_seconds": 30}, "inference.inputs.audio_seconds", "takes no audio"),
        ({"id": "Qwen/Qwen3-8B"}, {"images": 1}, "inference.inputs.images", "takes no image"),
        ({"id": "openai/whisper-large-v3"}, {"audio_seconds": 30}, "inference.inputs", "multimodal"),
    ],
)
def test_inputs_that_do_not_go(serve, model, inputs, key, words):
    engine = {"engine": "whisper"} if "whisper" in model["id"] else {}
    error = refused(
        serve(model={"weights": "auto", **model}, inference={"inputs": inputs, "context_tokens": 8192, **engine})
    )
    assert error.key == key
    assert words in error.message


def test_more_images_never_need_less(serve, catalog):
    from provisioner.planner.sizes import size_workload

    needs = []
    for images in (0, 1, 4, 12):
        workload = serve(
            model=VISION,
            inference={"inputs": {"images": images}, "context_tokens": 32_768},
            placement={"gpus": ["L40S"]},
        )
        assert request_for(workload, catalog, None).demand.images == images
        needs.append([each.footprint.per_gpu.total_bytes for each in size_workload(workload, catalog)])
    assert all(list(column) == sorted(column) for column in zip(*needs, strict=True))
