"""Speed of sound and of training images, and what a training asks of storage."""

from __future__ import annotations

from dataclasses import replace

import pytest

from provisioner.sizing.demand import AudioDemand, DiffusionTrainingDemand
from provisioner.sizing.estimate import estimate_throughput
from provisioner.sizing.layout import Layout
from provisioner.sizing.models import find_model
from provisioner.sizing.storage_demand import PAUSE_SHARE, TOKEN_BYTES, storage_demand
from provisioner.sizing.throughput import Throughput
from provisioner.vocabulary import Interconnect, Optimizer, Sharding, TrainingMethod, TrainingPrecision

GB = 10**9


def speed(demand, card, layout=None, link=Interconnect.NONE):
    return estimate_throughput(demand, layout or Layout(), card, link)


def test_whisper_is_as_fast_as_published(gpu):
    """faster-whisper README: 13 minutes with large-v2 in fp16, beam 5, take openai/whisper 143 s on an RTX 3070 Ti."""
    demand = AudioDemand(find_model("openai/whisper-large-v2"), "auto", 780)
    card = replace(gpu("A10G"), memory_bandwidth_bytes_per_s=608e9, flop_per_s={"fp16": 87e12, "fp32": 21.7e12})
    found = speed(demand, card)
    assert found.low < 780 / 143 < found.high
    assert found.realtime_factor == pytest.approx(780 / 143, rel=0.5)


def test_smaller_and_batched_speech_is_faster(gpu):
    large = AudioDemand(find_model("openai/whisper-large-v3"), "auto", 30)
    turbo = replace(large, model=find_model("openai/whisper-large-v3-turbo"))
    assert speed(turbo, gpu("L4")).realtime_factor > 3 * speed(large, gpu("L4")).realtime_factor
    batched = speed(replace(large, batch=16), gpu("L4")).realtime_factor
    assert batched > 6 * speed(large, gpu("L4")).realtime_factor


def test_music_is_made_token_by_token_or_in_steps(gpu):
    tokens = speed(AudioDemand(find_model("facebook/musicgen-large"), "auto", 30), gpu("L4"))
    steps = speed(AudioDemand(find_model("stabilityai/stable-audio-open-1.0"), "auto", 30), gpu("L4"))
    assert tokens.realtime_factor < 2 < steps.realtime_factor


def test_unknown_rates_of_sound_have_a_reason(gpu):
    demand = AudioDemand(find_model("openai/whisper-tiny"), "auto", 30)
    assert "matrix rate" in speed(demand, replace(gpu("L4"), flop_per_s={})).unknown
    assert "bandwidth" in speed(demand, replace(gpu("L4"), memory_bandwidth_bytes_per_s=None)).unknown


@pytest.fixture
def images():
    return DiffusionTrainingDemand(
        model=find_model("stabilityai/stable-diffusion-xl-base-1.0"),
        weights="auto",
        method=TrainingMethod.LORA,
        precision=TrainingPrecision.BF16_MIXED,
        optimizer=Optimizer.ADAMW,
        width=1024,
        height=1024,
        frames=1,
        micro_batch=4,
        gradient_checkpointing=True,
    )


def test_training_images_follows_operations_and_gpus(images, gpu):
    one = speed(images, gpu("A100-80GB"))
    assert 0.5 < one.train_samples_per_s < 10
    assert speed(replace(images, width=512), gpu("A100-80GB")).train_samples_per_s > 1.5 * one.train_samples_per_s
    eight = speed(images, gpu("A100-80GB"), Layout(data_parallel=8, sharding=Sharding.DDP), Interconnect.NVLINK)
    assert eight.train_samples_per_s == pytest.approx(8 * one.train_samples_per_s)
    full = replace(images, method=TrainingMethod.FULL)
    assert speed(full, gpu("A100-80GB")).train_samples_per_s < one.train_samples_per_s
    slow = speed(
        replace(full, micro_batch=1, width=256, height=256), gpu("L4"), Layout(data_parallel=8), Interconnect.PCIE
    )
    assert slow.bound_by == "interconnect"
    assert speed(images, replace(gpu("L4"), flop_per_s={})).train_samples_per_s is None


def test_storage_keeps_up_with_checkpoints_and_data(training, images):
    text = storage_demand(
        training("Qwen/Qwen2.5-0.5B-Instruct"),
        Throughput(train_tokens_per_s=1e6),
        checkpoint_bytes=6 * GB,
        interval_s=600,
    )
    assert text.checkpoint_bytes_per_s == pytest.approx(6 * GB / (600 * PAUSE_SHARE))
    assert text.data_bytes_per_s == 1e6 * TOKEN_BYTES
    pictures = storage_demand(images, Throughput(train_samples_per_s=100), checkpoint_bytes=GB)
    assert pictures.data_bytes_per_s == pytest.approx(100 * 1024 * 1024 * 0.5)
    assert storage_demand(images, Throughput(), checkpoint_bytes=GB).data_bytes_per_s is None
