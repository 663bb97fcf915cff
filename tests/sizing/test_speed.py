"""Predicted speed: what bounds a step, how it scales, and that unknown rates stay unknown."""

from __future__ import annotations

from dataclasses import replace

import pytest

from provisioner.sizing.estimate import estimate_throughput
from provisioner.sizing.layout import Layout
from provisioner.sizing.models import find_model
from provisioner.sizing.speed_profile import speed_profile
from provisioner.sizing.step_time import Machine, all_reduce_s, matrix_rate
from provisioner.sizing.step_work import experts_touched, kernel_of, touched_weight_bytes, unit_of
from provisioner.sizing.throughput import Throughput
from provisioner.sizing.weights import total_weight_bytes
from provisioner.vocabulary import Engine, Interconnect, Sharding, TrainingMethod, TrainingPrecision

LLAMA = "meta-llama/Llama-3.1-8B-Instruct"
H100 = "H100-SXM-80GB"


def speed(demand, card, layout=None, link=Interconnect.NONE):
    return estimate_throughput(demand, layout or Layout(), card, link)


def test_one_request_is_bound_by_memory_and_many_by_more(gpu, serving):
    one = speed(serving(LLAMA), gpu(H100))
    assert one.bound_by == "memory-bandwidth"
    many = speed(serving(LLAMA, concurrency=256), gpu(H100))
    assert many.decode_tokens_per_s_per_replica > 30 * one.decode_tokens_per_s_per_replica
    assert many.tokens_per_s_per_request < one.tokens_per_s_per_request


def test_one_request_reads_all_weights_a_token(gpu, serving):
    """No engine reads weights faster than the memory; the best reach four fifths of it."""
    for name in ("L4", "A10G", "A100-SXM-80GB", H100):
        card = gpu(name)
        rate = speed(serving(LLAMA, input_tokens=128), card).tokens_per_s_per_request
        bound = card.memory_bandwidth_bytes_per_s / total_weight_bytes(find_model(LLAMA))
        assert 0.55 * bound < rate < 0.95 * bound, name


def test_narrow_weights_are_faster(gpu, serving):
    wide = speed(serving(LLAMA), gpu("L4")).tokens_per_s_per_request
    narrow = speed(serving(LLAMA, weights="int4-awq"), gpu("L4")).tokens_per_s_per_request
    assert 2 < narrow / wide < 4


def test_a_batch_touches_more_experts_but_never_more_than_all():
    assert experts_touched(8, 2, 1) == pytest.approx(2)
    assert experts_touched(8, 2, 1000) == pytest.approx(8)
    assert experts_touched(0, 0, 5) == 0
    model = find_model("mistralai/Mixtral-8x7B-Instruct-v0.1")
    few, many = touched_weight_bytes(model, "bf16", 1, 1), touched_weight_bytes(model, "bf16", 1, 4096)
    assert few == pytest.approx(2 * model.params_active, rel=0.03)
    assert many == pytest.approx(2 * (model.params_total - model.embedding_params), rel=0.001)


def test_links_bound_tensor_parallel_over_pcie(gpu, serving):
    demand = serving("meta-llama/Meta-Llama-3-70B-Instruct", concurrency=64)
    card = gpu("L40S")
    pcie = speed(demand, card, Layout(8), Interconnect.PCIE)
    nvlink = speed(demand, gpu("A100-SXM-40GB"), Layout(8), Interconnect.NVLINK)
    assert pcie.bound_by == "interconnect"
    assert nvlink.bound_by != "interconnect"


def test_all_reduce_of_a_large_message(gpu):
    """Published: 8 x H100 reach about 360 to 480 GB/s of bus bandwidth on NVLink."""
    machine = Machine(gpu(H100), speed_profile(), "vllm", Interconnect.NVLINK)
    size = 2**31
    bus = 2 * 7 / 8 * size / all_reduce_s(size, 8, machine) / 1e9
    assert 300 < bus < 500
    assert all_reduce_s(size, 1, machine) == 0


def test_first_token_waits_for_the_prompt(gpu, serving):
    short = speed(serving(LLAMA, input_tokens=128), gpu("L4")).time_to_first_token_s
    long = speed(serving(LLAMA, input_tokens=4096), gpu("L4")).time_to_first_token_s
    assert long > 5 * short


def test_formats_compute_where_the_hardware_can():
    rates = (("bf16", 100.0), ("fp8", 200.0), ("int8", 220.0))
    assert matrix_rate(rates, "fp8") == 200
    assert matrix_rate(rates, "int8") == 220
    assert matrix_rate(rates, "wide") == 100
    assert matrix_rate(rates, "fp4") == 200
    assert matrix_rate((("bf16", 100.0),), "fp8") == 100
    assert matrix_rate((), "wide") is None
    assert matrix_rate((("fp16", 0.1), ("fp32", 5.5)), "wide") == 5.5
    geforce = (("bf16", 165.0), ("int8", 660.0))
    assert matrix_rate(geforce, "wide", fast=True) == 330


def test_weight_only_formats_ask_for_16_bit_units():
    assert [unit_of(word, bits) for word, bits in (("int4-awq", 4.2), ("gguf-q8_0", 8.5), ("int8-gptq", 8.2))] == [
        "wide",
        "wide",
        "wide",
    ]
    assert [unit_of(word, bits) for word, bits in (("fp8", 8.0), ("int8", 8.0), ("nvfp4", 4.5), ("bf16", 16.0))] == [
        "fp8",
        "int8",
        "fp4",
        "wide",
    ]
    assert [kernel_of(word, bits) for word, bits in (("gguf-q4_k_m", 4.8), ("mxfp4", 4.25), ("int8-gptq", 8.2))] == [
        "int4",
        "fp4",
        "int8",
    ]


def test_unknown_rates_stay_unknown(gpu, serving, training):
    blind = replace(gpu("L4"), flop_per_s={})
    for demand, card, reason in (
        (serving(LLAMA), blind, "the 16-bit matrix rate of L4 is not known"),
        (training(LLAMA), blind, "the 16-bit matrix rate of L4 is not known"),
        (
            serving(LLAMA),
            replace(gpu("L4"), memory_bandwidth_bytes_per_s=None),
            "the memory bandwidth of L4 is not known",
        ),
    ):
        assert speed(demand, card) == Throughput(unknown=reason)


def test_training_speed_is_bound_by_operations(gpu, training):
    """Llama-3.1-8B on one H100: 6 operations per weight and token at 35 to 45 % of the dense rate."""
    demand = training(LLAMA, gradient_checkpointing=False)
    rate = speed(demand, gpu(H100)).train_tokens_per_s
    share = 6 * demand.model.params_total * rate / gpu(H100).flop_per_s["bf16"]
    assert 0.3 < share < 0.5


def test_frozen_weights_save_a_third_and_packed_ones_cost(gpu, training):
    card = gpu(H100)
    full, lora, qlora = (
        speed(training(LLAMA, method=method, gradient_checkpointing=False), card).train_tokens_per_s
        for method in (TrainingMethod.FULL, TrainingMethod.LORA, TrainingMethod.QLORA)
    )
    assert lora == pytest.approx(1.5 * full, rel=0.01)
    assert full < qlora < lora


def test_more_gpus_train_faster_unless_the_link_is_slow(gpu, training):
    demand = training(LLAMA, sequence_tokens=8192)
    one = speed(demand, gpu(H100)).train_tokens_per_s
    layout = Layout(data_parallel=8, sharding=Sharding.FSDP)
    eight = speed(demand, gpu(H100), layout, Interconnect.NVLINK)
    assert eight.train_tokens_per_s == pytest.approx(8 * one, rel=0.05)
    slow = speed(replace(demand, sequence_tokens=512), gpu("L4"), layout, Interconnect.PCIE)
    assert slow.bound_by == "interconnect"


def test_fp8_trains_faster_where_there_are_units(gpu, training):
    wide = training(LLAMA)
    narrow = training(LLAMA, precision=TrainingPrecision.FP8)
    assert speed(narrow, gpu(H100)).train_tokens_per_s > 1.2 * speed(wide, gpu(H100)).train_tokens_per_s
    assert (
        speed(narrow, gpu("A100-SXM-80GB")).train_tokens_per_s == speed(wide, gpu("A100-SXM-80GB")).train_tokens_per_s
    )


def test_transformers_is_bound_by_its_host(gpu, serving):
    fast = speed(serving("Qwen/Qwen2.5-0.5B-Instruct"), gpu(H100)).tokens_per_s_per_request
    demand = serving("Qwen/Qwen2.5-0.5B-Instruct", engine=Engine.TRANSFORMERS, engine_version=None)
    assert speed(demand, gpu(H100)).tokens_per_s_per_request < fast / 3
