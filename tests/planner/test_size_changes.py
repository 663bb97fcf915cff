"""Nothing sized holds the workload: each change named does, and none is named where something holds it."""

from __future__ import annotations

import re

import pytest

from provisioner.planner.request import request_for
from provisioner.planner.size_changes import size_changes
from provisioner.planner.sizes import size_workload, sized_layouts


def changes(workload, catalog):
    request = request_for(workload, catalog, None)
    return size_changes(request, tuple(sized_layouts(request, catalog)), catalog)


def test_nothing_to_change_where_something_holds_it(serve, catalog):
    assert changes(serve(placement={"gpus": ["L4", "H100"]}), catalog) == ()


def test_numbers_that_are_named_hold(serve, catalog):
    placement = {"gpus": ["L4"], "max_gpus": 1}
    texts = changes(serve(inference={"context_tokens": 32768, "concurrency": 8}, placement=placement), catalog)
    assert texts[0].startswith("open placement")
    lowered = dict(
        match.groups() for match in (re.search(r"lower inference\.(\w+) to (\d+)", text) for text in texts) if match
    )
    assert set(lowered) == {"context_tokens"}
    fitting = serve(inference={"context_tokens": int(lowered["context_tokens"]), "concurrency": 8}, placement=placement)
    assert any(each.holds for each in size_workload(fitting, catalog))


def test_words_that_are_named_hold(serve, catalog):
    placement = {"gpus": ["L4"], "max_gpus": 1}
    spec = {"model": {"id": "Qwen/Qwen2.5-14B-Instruct", "weights": "bf16"}, "placement": placement}
    texts = changes(serve(**spec, inference={"context_tokens": 4096, "concurrency": 1}), catalog)
    word = next(match[1] for match in (re.search(r"set model\.weights to (\S+):", text) for text in texts) if match)
    spec["model"]["weights"] = word
    assert any(
        each.holds
        for each in size_workload(serve(**spec, inference={"context_tokens": 4096, "concurrency": 1}), catalog)
    )


def test_a_gpu_that_lacks_the_format_holds_nothing(serve, catalog):
    sized = size_workload(serve(placement={"gpus": ["T4"]}), catalog)
    assert all(each.refusal is not None and "bf16" in each.refusal for each in sized)
    texts = changes(serve(placement={"gpus": ["T4"]}), catalog)
    assert any("set model.weights to fp16" in text for text in texts)


@pytest.mark.parametrize("task", ["training", "image"])
def test_trainings_and_pictures_have_changes_too(serve, finetune, catalog, task):
    if task == "training":
        workload = finetune(
            training={"sequence_tokens": 8192, "micro_batch": 64}, placement={"gpus": ["L4"], "max_gpus": 1}
        )
        expected = "lower training.sequence_tokens to"
    else:
        workload = serve(
            model={"id": "stabilityai/stable-diffusion-xl-base-1.0", "weights": "fp16"},
            inference={"engine": "diffusers", "concurrency": 1, "image": {"batch": 200}},
            placement={"gpus": ["L4"], "max_gpus": 1},
        )
        expected = "lower inference.image.batch to"
    assert any(text.startswith(expected) for text in changes(workload, catalog))
