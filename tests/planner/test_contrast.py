"""The step up from a smaller card, and why not the next offers."""

from __future__ import annotations

from dataclasses import replace

import pytest

from provisioner.planner.spoken import DEARER, FASTER, times
from provisioner.workload.spec import Workload

LLAMA_70B = {"id": "meta-llama/Llama-3.3-70B-Instruct", "weights": "fp8"}


def step(plan) -> str:
    return next((reason for reason in plan.choice.reasons if reason.startswith("steps up")), "")


def test_room_is_the_reason_where_the_small_card_cannot_hold_a_copy(serve, plan_of):
    plan = plan_of(serve(inference={"concurrency": 8}))
    text = step(plan)
    assert text.startswith("steps up from L4 (24 GB) for room: ")
    assert "2 x L4 over PCIe (g2-standard-24) would cost $" in text


def test_room_with_no_answer_where_no_number_of_small_cards_holds_it(finetune, plan_of):
    plan = plan_of(finetune(training={"method": "full", "tokens": "50M"}))
    assert "for room: " in step(plan)
    assert step(plan).endswith("no offer of L4 meets everything")


def test_bandwidth_is_the_reason_where_the_small_card_holds_it_and_is_slow(serve, plan_of):
    plan = plan_of(serve(inference={"concurrency": 1}, optimize="latency"))
    assert "for bandwidth: " in step(plan)
    assert "times the predicted speed" in step(plan)


def test_a_target_that_the_small_card_misses_is_the_reason(serve, plan_of):
    targets = {"tokens_per_second_per_request": 60}
    spec = serve(inference={"concurrency": 1, "targets": targets}, placement={"max_gpus": 1})
    assert "for speed: predicted stream of a request is too slow (60 tokens/s against " in step(plan_of(spec))


def test_fp8_units_are_the_reason_where_compute_bounds_an_fp8_model(serve, plan_of, stall, offer):
    """Two cards that hold it, A10G without FP8 units and H100 with them, for work that prompts dominate."""
    goods = stall(offer("g5.xlarge", "1.00"), offer("p5.4xlarge", "1.05"))
    spec = serve(
        model={"weights": "fp8"},
        inference={"concurrency": 4, "context_tokens": 4096, "input_tokens": 4000, "output_tokens": 1},
        optimize="throughput",
    )
    plan = plan_of(spec, goods)
    assert plan.choice.instance_type == "p5.4xlarge"
    assert step(plan).startswith("steps up from A10G (24 GB) for ")


def test_nvlink_is_named_with_what_the_best_over_pcie_costs(serve, plan_of):
    plan = plan_of(serve(model=LLAMA_70B, optimize="latency"))
    assert plan.choice.interconnect == "nvlink"
    assert "NVLink instead of PCIe" in step(plan)
    assert any("the best over PCIe, " in reason and " costs $" in reason for reason in plan.choice.reasons)


def test_a_small_choice_and_a_share_of_a_card_step_up_from_nothing(serve, plan_of):
    assert step(plan_of(serve(inference={"concurrency": 1}))) == ""
    tiny = plan_of(serve(model={"id": "openai-community/gpt2", "weights": "auto"}, inference={"context_tokens": 1024}))
    assert tiny.choice.gpus_per_instance < 1
    assert step(tiny) == ""


def test_a_pin_leaves_no_smaller_card_to_compare_with(serve, plan_of):
    assert step(plan_of(serve(placement={"gpus": ["H100"]}))) == ""


def test_every_alternative_says_why_it_is_not_the_choice(serve, plan_of):
    plan = plan_of(serve(inference={"concurrency": 8}))
    assert all(each.why_not for each in plan.alternatives)
    other = next(each for each in plan.alternatives if each.offer.instance_type == "g2-standard-24")
    assert other.why_not.startswith("7 % dearer, a copy spans 2 GPUs over PCIe, ")
    assert other.why_not.endswith(" a month")
    same = next(each for each in plan.alternatives if each.offer.gpu == plan.choice.gpu)
    assert "for the same GPU" in same.why_not


def test_an_unknown_price_is_the_whole_reason(serve, plan_of, stall, offer):
    plan = plan_of(serve(), stall(offer("g6e.xlarge", None), offer("g6e.2xlarge", None)))
    assert plan.alternatives[0].why_not == "its price is unknown, for the same GPU"


def test_a_run_whose_length_nobody_can_predict_comes_last(finetune, plan_of):
    """The month of an offer without a predicted speed is no price of the run: cheap or not, it loses."""
    spec: Workload = finetune(training={"method": "full", "tokens": "1B", "sequence_tokens": 4096})
    plan = plan_of(spec)
    assert plan.cost.run_usd is not None
    lengths = [each.cost.run_usd is None for each in plan.alternatives]
    assert lengths == sorted(lengths)


def test_speed_that_is_not_bought_is_named_with_its_price(serve, plan_of):
    plan = plan_of(serve(inference={"concurrency": 1}, optimize="latency"))
    text = next(reason for reason in plan.choice.reasons if reason.startswith("quickest"))
    assert "would be" in text
    assert "times as fast" in text
    assert text.endswith("placement.max_price allows it")
    limited = plan_of(serve(inference={"concurrency": 1}, optimize="latency", placement={"max_price": "150 USD/h"}))
    assert limited.throughput.tokens_per_s_per_request > 2 * plan.throughput.tokens_per_s_per_request
    assert any("under the price limit" in reason for reason in limited.choice.reasons)


@pytest.mark.parametrize(
    ("ratio", "words", "text"),
    [
        (1.0, DEARER, ""),
        (1.09, DEARER, "9 % dearer"),
        (0.6, DEARER, "40 % cheaper"),
        (2.5, DEARER, "2.5 times as dear"),
        (3.0, FASTER, "3.0 times as fast"),
        (0.25, FASTER, "75 % slower"),
    ],
)
def test_ratios_in_words(ratio, words, text):
    assert times(ratio, words) == text


def test_plans_saved_before_the_reasons_of_alternatives_are_read(serve, plan_of):
    from provisioner.planner.documents import plan_document, plan_from_document

    document = plan_document(plan_of(serve()))
    for each in document["alternatives"]:
        del each["why_not"]
    del document["what_if"]
    plan = plan_from_document(document)
    assert {each.why_not for each in plan.alternatives} == {""}
    assert replace(plan, what_if=()) == plan
