"""What bounds a speed and what would lift it: each gain is a prediction made again, on predicted and on measured time."""

from __future__ import annotations

from dataclasses import replace

import pytest

from provisioner.sizing.bottleneck import LEAST_GAIN, Measured, diagnose
from provisioner.sizing.demand import DiffusionDemand, DiffusionTrainingDemand
from provisioner.sizing.estimate import estimate_throughput
from provisioner.sizing.layout import Layout
from provisioner.sizing.models import find_model
from provisioner.sizing.throughput import main_rate
from provisioner.vocabulary import Interconnect, KvDtype, Optimizer, TrainingMethod, TrainingPrecision

LLAMA = "meta-llama/Llama-3.1-8B-Instruct"
LLAMA_70B = "meta-llama/Llama-3.1-70B-Instruct"


def gains(diagnosis):
    return {remedy.name: remedy.gain for remedy in diagnosis.remedies}


def test_one_request_wants_faster_memory_or_narrower_weights(serving, gpu):
    found = diagnose(serving(LLAMA), Layout(), gpu("L40S"), Interconnect.NONE)
    assert found.bound_by == "memory-bandwidth"
    lifted = gains(found)
    assert lifted["faster-memory"] > 1.6
    assert lifted["fp8-weights"] > 1.5
    assert lifted["larger-batch"] > 1.7
    assert "more-compute" not in lifted
    assert [remedy.gain for remedy in found.remedies] == sorted(lifted.values(), reverse=True)
    assert min(lifted.values()) >= LEAST_GAIN


def test_each_gain_is_the_prediction_with_the_change(serving, gpu):
    demand, card = serving(LLAMA, concurrency=16), gpu("L40S")
    before = estimate_throughput(demand, Layout(), card, Interconnect.NONE)
    after = estimate_throughput(replace(demand, kv_dtype=KvDtype.FP8), Layout(), card, Interconnect.NONE)
    found = diagnose(demand, Layout(), card, Interconnect.NONE)
    assert gains(found)["fp8-kv-cache"] == pytest.approx(main_rate(after) / main_rate(before))


def test_pcie_wants_nvlink_or_fewer_gpus(serving, gpu):
    demand = serving(LLAMA, concurrency=64, context_tokens=2048)
    found = diagnose(demand, Layout(8), gpu("L40S"), Interconnect.PCIE)
    assert found.bound_by == "interconnect"
    lifted = gains(found)
    assert lifted["nvlink"] > 2
    assert lifted["fewer-gpus"] > 1.5
    shares = dict(found.shares)
    assert shares["interconnect"] > 0.5


def test_fewer_gpus_are_not_named_where_the_model_would_not_fit(serving, gpu):
    found = diagnose(serving(LLAMA_70B), Layout(4), gpu("L40S"), Interconnect.PCIE)
    assert "fewer-gpus" not in gains(found)


def test_fp8_on_ampere_says_what_it_does_not_save(serving, gpu):
    found = diagnose(serving(LLAMA), Layout(), gpu("A100-80GB"), Interconnect.NONE)
    costs = next(remedy.costs for remedy in found.remedies if remedy.name == "fp8-weights")
    assert "memory is saved, not compute" in costs


def test_measured_time_that_nothing_explains_stays(serving, gpu):
    demand, card = serving(LLAMA), gpu("L40S")
    rate = main_rate(estimate_throughput(demand, Layout(), card, Interconnect.NONE))
    slow = diagnose(demand, Layout(), card, Interconnect.NONE, measured=Measured(rate / 4))
    usual = diagnose(demand, Layout(), card, Interconnect.NONE)
    assert slow.of_predicted == pytest.approx(0.25)
    assert "below the predicted band" in slow.reading
    assert 1 < gains(slow)["faster-memory"] < gains(usual)["faster-memory"]
    fast = diagnose(demand, Layout(), card, Interconnect.NONE, measured=Measured(rate * 3))
    assert "above the predicted band" in fast.reading
    assert gains(fast)["faster-memory"] == pytest.approx(gains(usual)["faster-memory"])
    near = diagnose(demand, Layout(), card, Interconnect.NONE, measured=Measured(rate))
    assert near.reading is None


def test_waiting_for_data_is_bound_by_storage(training, gpu):
    demand = training(LLAMA, method=TrainingMethod.LORA)
    measured = Measured(500, data_wait_share=0.6)
    found = diagnose(demand, Layout(), gpu("H100"), Interconnect.NONE, measured=measured)
    assert found.bound_by == "storage"
    assert "60%" in found.reading


def test_training_names_precision_recomputation_and_adapters(training, gpu):
    demand = training("Qwen/Qwen2.5-0.5B-Instruct", sequence_tokens=512)
    lifted = gains(diagnose(demand, Layout(), gpu("H100"), Interconnect.NONE))
    assert lifted["fp8-training"] > 1.1
    assert lifted["no-recomputation"] > 1.05
    assert lifted["lora"] > 1.2
    assert "fp8-training" not in gains(diagnose(demand, Layout(), gpu("A100-80GB"), Interconnect.NONE))


def test_images_name_steps_and_offload(gpu):
    model = find_model("black-forest-labs/FLUX.1-dev")
    demand = DiffusionDemand(model, "auto", 1024, 1024, offload="model", steps=4)
    lifted = gains(diagnose(demand, Layout(), gpu("H100"), Interconnect.NONE))
    assert lifted["no-offload"] > 1.1
    assert lifted["more-compute"] > 1.1
    wide = replace(demand, offload="none", steps=30)
    assert gains(diagnose(wide, Layout(), gpu("H100"), Interconnect.NONE))["fewer-steps"] == pytest.approx(2, rel=0.1)


def test_image_training_names_cached_latents(gpu):
    demand = DiffusionTrainingDemand(
        model=find_model("stabilityai/stable-diffusion-xl-base-1.0"),
        weights="auto",
        method=TrainingMethod.LORA,
        precision=TrainingPrecision.BF16_MIXED,
        optimizer=Optimizer.ADAMW,
        width=1024,
        height=1024,
        frames=1,
        micro_batch=1,
        gradient_checkpointing=True,
    )
    lifted = gains(diagnose(demand, Layout(), gpu("A100-80GB"), Interconnect.NONE))
    assert lifted["no-recomputation"] > 1.05
    assert lifted["cached-latents"] > 1.05


def test_unknown_speed_has_no_diagnosis(serving, gpu):
    assert diagnose(serving(LLAMA), Layout(), replace(gpu("L4"), flop_per_s={}), Interconnect.NONE) is None
