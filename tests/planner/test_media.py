"""Image, video and audio models: demands from the spec, else from the model; plans and changes."""

from __future__ import annotations

import pytest

from provisioner.planner.request import demand_for, engine_of, shape_for
from provisioner.planner.requirements import KeyedSpecError
from provisioner.sizing.demand import AudioDemand, DiffusionDemand, DiffusionTrainingDemand
from provisioner.vocabulary import Engine, TrainingPrecision
from provisioner.workload.spec import Workload

FLUX, WAN, WHISPER = "black-forest-labs/FLUX.1-dev", "Wan-AI/Wan2.1-T2V-14B-Diffusers", "openai/whisper-large-v3"


@pytest.fixture
def media():
    def build(model, task="serve", **sections) -> Workload:
        return Workload.from_document({"version": 1, "name": "case", "task": task, "model": {"id": model}} | sections)

    return build


def demand(workload):
    return demand_for(workload, shape_for(workload))


def test_usual_size_of_the_model(media):
    found = demand(media(FLUX))
    assert isinstance(found, DiffusionDemand)
    assert (found.width, found.height, found.frames, found.batch, found.offload) == (1024, 1024, 1, 1, "none")


def test_size_of_the_spec(media):
    found = demand(media(FLUX, inference={"image": {"width": 512, "height": 768, "batch": 4}, "offload": "model"}))
    assert (found.width, found.height, found.batch, found.offload) == (512, 768, 4, "model")
    clip = demand(media(WAN, inference={"video": {"frames": 33}}))
    assert clip.frames == 33


def test_concurrency_is_the_batch(media):
    assert demand(media(FLUX, inference={"concurrency": 3})).batch == 3


def test_audio(media):
    found = demand(media(WHISPER, inference={"audio": {"batch": 8}}))
    assert isinstance(found, AudioDemand)
    assert (found.seconds, found.batch) == (30.0, 8)


def test_training_of_a_denoiser(media):
    found = demand(media(FLUX, "finetune", training={"method": "full", "image": {"width": 512, "height": 512}}))
    assert isinstance(found, DiffusionTrainingDemand)
    assert (found.width, found.height, found.precision) == (512, 512, TrainingPrecision.BF16_MIXED)


def test_training_of_an_audio_model(media):
    found = demand(media(WHISPER, "finetune", training={"method": "lora", "audio": {"seconds": 12, "batch": 6}}))
    assert isinstance(found, DiffusionTrainingDemand)
    assert (found.seconds, found.micro_batch, found.width) == (12, 6, 0)
    usual = demand(media(WHISPER, "finetune", training={"method": "full", "micro_batch": 3}))
    assert (usual.seconds, usual.micro_batch) == (30, 3)


@pytest.mark.parametrize(
    ("model", "sections", "key"),
    [
        (FLUX, {"inference": {"video": {"frames": 16}}}, "inference.video"),
        (WHISPER, {"inference": {"image": {"batch": 2}}}, "inference.image"),
        (WHISPER, {"task": "finetune", "training": {"method": "lora", "image": {"batch": 2}}}, "training.image"),
    ],
)
def test_what_the_model_does_not_make(media, model, sections, key):
    with pytest.raises(KeyedSpecError) as caught:
        demand(media(model, **sections))
    assert caught.value.key == key


@pytest.mark.parametrize(
    ("model", "engine"),
    [
        (FLUX, Engine.DIFFUSERS),
        (WAN, Engine.DIFFUSERS),
        (WHISPER, Engine.WHISPER),
        ("facebook/musicgen-large", Engine.TRANSFORMERS),
    ],
)
def test_usual_engine(media, model, engine):
    workload = media(model, inference={})
    assert engine_of(workload.inference, shape_for(workload)) == (engine, None)


def test_plan_of_images(media, plan_of):
    plan = plan_of(media(FLUX, placement={"gpus": ["L40S", "H100"]}))
    assert plan.verdict == "fits"
    assert plan.footprint.per_gpu.kv_cache_bytes is None
    assert plan.launch_argv == ()


def test_too_small_a_card_for_images_names_offload_or_weights(media, plan_of):
    plan = plan_of(media(FLUX, placement={"gpus": ["L4"], "max_gpus": 1}))
    assert plan.choice is None
    assert any("offload" in text or "model.weights" in text for text in plan.closest)


def test_batch_of_unknown_speed_has_no_cost_of_its_own(media, plan_of):
    plan = plan_of(media(FLUX, "batch", inference={"total": "10000 images"}))
    if plan.throughput.images_per_s is None:
        assert plan.cost.run_usd is None
        assert any("no speed is predicted" in warning for warning in plan.warnings)
    else:
        assert plan.cost.run_usd is not None


def test_old_gpus_on_arm_hosts_are_not_chosen(media, plan_of):
    plan = plan_of(media(WHISPER))
    assert not plan.choice.instance_type.startswith("g5g")
    refusal = next(one for one in plan.rejections if one.offer == "aws/*/*/g5g.xlarge/*")
    assert refusal.filter == "architecture"
    pinned = plan_of(media(WHISPER, placement={"instance_types": ["g5g.xlarge"]}))
    assert pinned.choice.instance_type == "g5g.xlarge"


def test_a_plan_says_before_it_is_carried_out_that_auto_starts_no_library(media, plan_of):
    def said(workload):
        return [warning for warning in plan_of(workload).warnings if "`run: auto`" in warning]

    (flux,) = said(media(FLUX, run="auto"))
    assert "ComfyUI" in flux
    assert "`up` refuses it" in flux
    lora = {"method": "lora", "tokens": "10M", "sequence_tokens": 2048}
    (tune,) = said(media("meta-llama/Llama-3.1-8B-Instruct", "finetune", run="auto", training=lora))
    assert "a finetune runs a program of its own" in tune
    assert said(media("meta-llama/Llama-3.1-8B-Instruct", run="auto")) == []
    assert said(media(FLUX)) == []
