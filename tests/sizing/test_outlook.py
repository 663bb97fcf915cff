"""The outlook of a layout: every part is there where it applies, and null where it does not."""

from __future__ import annotations

from dataclasses import replace

import pytest

from provisioner.sizing.estimate import estimate_throughput
from provisioner.sizing.layout import Layout
from provisioner.sizing.outlook import Circumstances, outlook_of
from provisioner.sizing.throughput import Targets
from provisioner.vocabulary import Engine, Interconnect

LLAMA = "meta-llama/Llama-3.1-8B-Instruct"


def look(demand, card, around, layout=None):
    layout = layout or Layout()
    speed = estimate_throughput(demand, layout, card, Interconnect.NONE)
    return outlook_of(demand, layout, card, Interconnect.NONE, throughput=speed, around=around)


def test_serving_has_a_steady_state_a_diagnosis_and_a_start(serving, gpu):
    around = Circumstances(Engine.VLLM, 16 * 10**9, Targets(first_token_s=2.0), requests_per_s=1.0)
    found = look(serving(LLAMA, concurrency=16), gpu("L40S"), around)
    assert found.steady.memory_concurrency >= 16
    assert found.steady.asked_time_to_first_token_s < 2.0
    assert found.steady.asked_running < 16
    assert found.diagnosis.bound_by == "memory-bandwidth"
    assert found.start.low_s < found.start.high_s
    assert found.storage is None


def test_a_rate_beyond_the_copy_has_no_waiting_time(serving, gpu):
    around = Circumstances(Engine.VLLM, 16 * 10**9, requests_per_s=1000.0)
    steady = look(serving(LLAMA, concurrency=16), gpu("L40S"), around).steady
    assert steady.asked_requests_per_s == 1000.0
    assert steady.asked_time_to_first_token_s is None
    assert steady.asked_tokens_per_s_per_request is None


def test_memory_without_room_has_no_steady_state(serving, gpu):
    assert look(serving(LLAMA), gpu("T4"), Circumstances(Engine.VLLM, 16 * 10**9)).steady is None


def test_training_has_storage_where_checkpoints_are_known(training, gpu):
    around = Circumstances(None, 16 * 10**9, checkpoint_bytes=96 * 10**9, checkpoint_interval_s=1800)
    found = look(training(LLAMA), gpu("H100"), around)
    assert found.steady is None
    assert found.storage.checkpoint_bytes_per_s == pytest.approx(96e9 / 18)
    assert look(training(LLAMA), gpu("H100"), replace(around, checkpoint_bytes=None)).storage is None


def test_a_speed_that_a_network_set_has_no_remedies_of_the_gpu(training, gpu):
    demand, card = training(LLAMA), gpu("H100")
    slow = replace(
        estimate_throughput(demand, Layout(), card, Interconnect.NONE), train_tokens_per_s=10.0, bound_by="interconnect"
    )
    around = Circumstances(None, 16 * 10**9)
    found = outlook_of(demand, Layout(), card, Interconnect.NONE, throughput=slow, around=around)
    assert found.diagnosis.bound_by == "interconnect"
    assert found.diagnosis.remedies == ()
