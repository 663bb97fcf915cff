"""What would change the answer: each line is what a plan of the changed spec says."""

from __future__ import annotations

import re

import pytest

from provisioner.planner.decide import make_plan
from provisioner.planner.documents import plan_document, plan_from_document


def explained(workload, catalog):
    return make_plan(workload, catalog, explain=True)


@pytest.mark.parametrize("optimize", ["cost", "latency"])
def test_each_line_is_what_the_changed_spec_plans_to(serve, catalog, plan_of, made, optimize):
    workload = serve(inference={"concurrency": 8}, placement={"clouds": ["gcp"]}, optimize=optimize)
    plan = explained(workload, catalog)
    assert len(plan.what_if) >= 3
    for line in plan.what_if:
        changes, _, answer = line.partition(": ")
        again = plan_of(made(workload, changes))
        assert again.choice.instance_type == re.match(r"(?:\d+ x )?(\S+) \(", answer)[1], line
        assert f"${again.cost.total_usd_per_month:,.2f} a month" in answer


def test_a_smaller_context_another_format_and_another_cloud_are_among_them(serve, catalog):
    plan = explained(serve(inference={"concurrency": 8}, placement={"clouds": ["gcp"]}), catalog)
    text = "\n".join(plan.what_if)
    for words in ("set model.weights to ", "allow aws in placement.clouds", "inference.", "placement.capacity to spot"):
        assert words in text


def test_another_region_is_named(serve, catalog):
    plan = explained(serve(inference={"concurrency": 8}, placement={"regions": ["eu-west-3"]}), catalog)
    assert any("to placement.regions: " in line for line in plan.what_if)


def test_a_later_deadline_is_named_with_what_it_saves(finetune, catalog):
    training = {"method": "full", "tokens": "2B", "sequence_tokens": 4096, "checkpoint": {"resumable": True}}
    workload = finetune(training=training, placement={"deadline": "12h"})
    plan = explained(workload, catalog)
    line = next(line for line in plan.what_if if line.startswith("extend placement.deadline"))
    assert " cheaper" in line


def test_a_lower_target_is_named_with_what_it_saves(serve, catalog):
    targets = {"tokens_per_second_per_request": 60}
    plan = explained(serve(inference={"concurrency": 1, "targets": targets}), catalog)
    line = next(line for line in plan.what_if if line.startswith("lower inference.targets"))
    assert " cheaper" in line


def test_only_an_explanation_plans_what_ifs(serve, catalog, plan_of):
    workload = serve()
    assert plan_of(workload).what_if == ()
    plan = explained(workload, catalog)
    document = plan_document(plan)
    assert document["what_if"] == list(plan.what_if)
    assert plan_document(plan_from_document(document)) == document
    assert document | {"what_if": []} == plan_document(plan_of(workload))


def test_no_key_repeats_an_answer(batch, catalog):
    image = {"id": "stabilityai/stable-diffusion-xl-base-1.0", "weights": "auto"}
    inference = {"engine": "diffusers", "context_tokens": None, "concurrency": 1, "total": "5000 images"}
    plan = explained(batch(model=image, inference={k: v for k, v in inference.items() if v is not None}), catalog)
    answers = [(re.search(r"\w+\.\w+", line)[0], line.partition(": ")[2]) for line in plan.what_if]
    assert len(answers) == len(set(answers))
