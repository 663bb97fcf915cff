"""Nothing fits: each change that is named makes the spec fit when it is made."""

from __future__ import annotations

import math
import re

import pytest

from provisioner.planner.candidates import NEAR_EQUAL_RATE
from provisioner.workload.spec import Workload

LLAMA_70B = {"id": "meta-llama/Llama-3.1-70B-Instruct"}
L4_ONLY = {"gpus": ["L4"], "max_gpus": 1}
UNITS = {"placement.max_price": " USD/h", "placement.budget": " USD/month", "placement.deadline": "h"}


def check(workload: Workload, plan_of, made, expected: set[str]) -> None:
    plan = plan_of(workload)
    assert plan.choice is None
    assert plan.closest
    keys = set()
    for text in plan.closest:
        changes, fits, _ = text.partition(": fits on ")
        assert fits, text
        changed = made(workload, changes)
        again = plan_of(changed)
        assert again.verdict == "fits", text
        keys.add(re.search(r"((?:inference|training|model|placement|lifecycle)(?:\.\w+)+)", text)[1])
    assert expected <= keys, plan.closest
    assert len(plan.closest) >= 3, plan.closest


def test_too_large_a_cache(serve, plan_of, made):
    workload = serve(inference={"concurrency": 16}, placement=L4_ONLY)
    check(
        workload,
        plan_of,
        made,
        {"inference.concurrency", "inference.context_tokens", "placement.gpus", "placement.max_gpus"},
    )


def test_lowered_numbers_are_the_largest_that_fit(serve, plan_of):
    workload = serve(inference={"concurrency": 16}, placement=L4_ONLY)
    text = next(text for text in plan_of(workload).closest if "concurrency" in text)
    value = int(re.search(r"to (\d+)", text)[1])
    more = serve(inference={"concurrency": value + 1}, placement=L4_ONLY)
    assert plan_of(more).verdict != "fits"


def test_too_large_a_model(serve, plan_of, made):
    check(serve(model=LLAMA_70B, placement={"gpus": ["L40S"], "max_gpus": 1}), plan_of, made, {"placement.max_gpus"})


def test_bf16_on_a_t4(serve, plan_of, made):
    check(
        serve(model={"id": "Qwen/Qwen2.5-3B-Instruct"}, placement={"gpus": ["T4"]}),
        plan_of,
        made,
        {"model.weights", "placement.gpus"},
    )


def test_region_without_the_gpu(serve, plan_of, made):
    workload = serve(
        model={"id": "deepseek-ai/DeepSeek-V3", "weights": "auto"},
        placement={"clouds": ["aws"], "regions": ["eu-west-3"], "gpus": ["H200"]},
    )
    check(workload, plan_of, made, {"placement.regions"})
    assert "is also offered in" in plan_of(workload).closest[0]


@pytest.mark.parametrize(
    ("placement", "key"),
    [
        ({"max_price": "0.50 USD/h"}, "placement.max_price"),
        ({"budget": "50 USD/month"}, "placement.budget"),
        ({"instance_types": ["g6.xlarge"]}, "placement.instance_types"),
    ],
)
def test_price_and_pin(serve, plan_of, made, placement, key):
    check(serve(inference={"concurrency": 8}, placement=placement), plan_of, made, {key})


def test_deadline(finetune, plan_of, made):
    check(
        finetune(training={"tokens": "2B"}, placement={"deadline": "1h", "gpus": ["L40S"], "max_gpus": 1}),
        plan_of,
        made,
        {"placement.deadline"},
    )


def test_target(serve, plan_of, made):
    spec = serve(
        inference={"targets": {"tokens_per_second_per_request": 500}}, placement={"gpus": ["L40S"], "max_gpus": 1}
    )
    check(spec, plan_of, made, {"inference.targets.tokens_per_second_per_request"})


def test_training(finetune, plan_of, made):
    check(
        finetune(training={"method": "full", "micro_batch": 4}, placement={"gpus": ["L40S"], "max_gpus": 1}),
        plan_of,
        made,
        {"training.method"},
    )


def test_nothing_single_would_do(serve, plan_of):
    """405B in 16 bit at long context: a whole node is too small for any one change of these requirements."""
    workload = serve(
        model={"id": "meta-llama/Llama-3.1-405B-Instruct"},
        inference={"context_tokens": 131072, "concurrency": 4},
        placement={"gpus": ["L4"], "max_gpus": 1, "clouds": ["gcp"]},
    )
    plan = plan_of(workload)
    assert plan.choice is None
    assert plan.closest
    assert "open placement" in plan.closest[0]


@pytest.mark.parametrize(
    ("degrees", "words"),
    [
        ({"tensor_parallel": 3}, "set inference.tensor_parallel to 1: "),
        ({"pipeline_parallel": 33}, "set inference.pipeline_parallel to 1: "),
        ({"tensor_parallel": 3, "pipeline_parallel": 2}, "set inference.tensor_parallel to 1 and set inference.pipeline_parallel to 1: "),
    ],
)  # fmt: skip
def test_only_degrees_that_were_asked_for_are_changed(plan_of, serve, degrees, words):
    assert plan_of(serve(inference=degrees)).closest[0].startswith(words)


def test_a_target_is_relaxed_no_further_than_needed(serve, plan_of):
    spec = serve(inference={"targets": {"tokens_per_second_per_request": 500}}, placement={"gpus": ["L40S", "L4"]})
    text = next(text for text in plan_of(spec).closest if "set " not in text.partition(":")[0])
    wanted = int(re.search(r"per_request to (\d+)", text)[1])
    tighter = serve(
        inference={"targets": {"tokens_per_second_per_request": math.ceil(wanted * (1 + NEAR_EQUAL_RATE)) + 1}},
        placement={"gpus": ["L40S", "L4"]},
    )
    assert plan_of(tighter).verdict != "fits"


def test_other_values_follow_where_one_requirement_stands_alone(serve, plan_of, made):
    spec = serve(model=LLAMA_70B | {"weights": "fp8"}, placement={"gpus": ["MI300X"]})
    check(spec, plan_of, made, {"placement.gpus"})
    names = [re.match(r"add (\S+) to", text)[1] for text in plan_of(spec).closest]
    assert len(set(names)) == len(names) >= 3


def test_more_copies_where_a_rate_or_a_deadline_is_missed(serve, batch, plan_of, made):
    rate = serve(inference={"replicas": 1, "targets": {"requests_per_second": 50}})
    check(rate, plan_of, made, {"inference.replicas"})
    late = batch(inference={"total": "1B tokens"}, placement={"deadline": "14h"})
    check(late, plan_of, made, {"inference.replicas", "placement.deadline"})
