"""Trainings of speech, music and sound models: what learns, what is kept, and the laws that hold for all."""

from __future__ import annotations

from dataclasses import replace

import pytest

from provisioner.sizing.audio_training import encoder_depth, trained_parts
from provisioner.sizing.demand import DiffusionTrainingDemand
from provisioner.sizing.estimate import estimate_footprint
from provisioner.sizing.layout import Layout
from provisioner.sizing.models import find_model, known_models
from provisioner.sizing.pipelines import IMAGE, VIDEO, PipelineShape
from provisioner.units import GIB
from provisioner.vocabulary import Fit, Optimizer, Sharding, TrainingMethod, TrainingPrecision

AUDIO = [
    each.id
    for each in known_models()
    if isinstance(each.shape, PipelineShape) and each.shape.modality not in (IMAGE, VIDEO)
]


def demand(name, **changes) -> DiffusionTrainingDemand:
    shape = find_model(name)
    assert isinstance(shape, PipelineShape)
    values = {
        "model": shape,
        "weights": "auto",
        "method": TrainingMethod.FULL,
        "precision": TrainingPrecision.FP16_MIXED,
        "optimizer": Optimizer.ADAMW,
        "width": 0,
        "height": 0,
        "frames": 1,
        "micro_batch": 4,
        "gradient_checkpointing": True,
        "seconds": 30.0,
    }
    return DiffusionTrainingDemand(**{**values, **changes})


def test_a_recogniser_learns_as_a_whole():
    assert {part.name for part in trained_parts(find_model("openai/whisper-large-v3"))} == {"encoder", "decoder"}
    assert [part.name for part in trained_parts(find_model("facebook/musicgen-small"))] == ["decoder"]
    assert encoder_depth(find_model("openai/whisper-large-v3")) == 32
    assert encoder_depth(find_model("openai/whisper-large-v3-turbo")) == 32
    assert encoder_depth(find_model("openai/whisper-small")) == 12


def test_whisper_small_with_sixteen_samples_fits_a_16_gb_card(gpu):
    found = estimate_footprint(demand("openai/whisper-small", micro_batch=16), Layout(), gpu("T4"))
    assert found.fit is not Fit.DOES_NOT_FIT
    # Weights, gradients and AdamW in fp32: 16 bytes a parameter.
    states = found.per_gpu.weights_bytes + found.per_gpu.gradient_bytes + found.per_gpu.optimizer_bytes
    assert states == pytest.approx(16 * 241.7e6, rel=0.01)


def test_whisper_large_in_full_needs_more_than_its_states(gpu):
    total = estimate_footprint(
        demand("openai/whisper-large-v3", micro_batch=8), Layout(), gpu("A100-80GB")
    ).per_gpu.total_bytes
    assert 25 * GIB < total < 50 * GIB


@pytest.mark.parametrize("name", AUDIO)
def test_laws_hold_for_every_audio_model(gpu, name):
    card = gpu("H100-SXM-80GB")

    def need(**changes):
        return estimate_footprint(demand(name, **changes), Layout(), card).per_gpu.total_bytes

    # Small batches are ruled by the optimizer's step, large ones by activations.
    assert need(micro_batch=8) >= need(micro_batch=4)
    assert need(micro_batch=512) > need(micro_batch=64)
    assert need(seconds=120.0) >= need(seconds=30.0)
    assert need(micro_batch=512, gradient_checkpointing=False) > need(micro_batch=512)
    assert need(method=TrainingMethod.LORA, precision=TrainingPrecision.BF16) < need()
    assert need(optimizer=Optimizer.ADAMW_8BIT) < need()
    split = estimate_footprint(demand(name), Layout(data_parallel=4, sharding=Sharding.FSDP), card).per_gpu
    alone = estimate_footprint(demand(name), Layout(), card).per_gpu
    assert split.optimizer_bytes < alone.optimizer_bytes
    assert alone.low_bytes <= alone.total_bytes <= alone.high_bytes


def test_frozen_parts_stay_on_the_card(gpu):
    card = gpu("H100-SXM-80GB")
    kept = estimate_footprint(demand("facebook/musicgen-small"), Layout(), card).per_gpu
    apart = estimate_footprint(
        replace(demand("facebook/musicgen-small"), keeps_frozen_parts=False), Layout(), card
    ).per_gpu
    assert apart.weights_bytes < kept.weights_bytes
