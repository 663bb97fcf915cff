"""Amount of work, copies, hours."""

from __future__ import annotations

from dataclasses import replace

import pytest

from provisioner.catalog.snapshot import Catalog, load_catalog
from provisioner.planner.decide import make_plan
from provisioner.planner.request import demand_for, shape_for
from provisioner.planner.work import (
    copies_needed,
    has_known_work,
    hours_per_month,
    start_hours,
    stated_hours,
    work_hours,
)
from provisioner.sizing.start_up import start_up
from provisioner.sizing.throughput import Throughput, main_rate
from provisioner.vocabulary import Engine
from provisioner.workload.spec import Workload

SPEED = Throughput(decode_tokens_per_s_per_replica=400.0, tokens_per_s_per_request=100.0, requests_per_s=2.0)


def test_main_rate_is_the_first_known():
    assert main_rate(SPEED) == 400.0
    assert main_rate(Throughput(train_tokens_per_s=7.0)) == 7.0
    assert main_rate(Throughput(images_per_s=2.0)) == 2.0
    assert main_rate(Throughput()) is None


@pytest.mark.parametrize(
    ("inference", "copies"),
    [
        ({}, 1),
        ({"replicas": 3}, 3),
        ({"replicas": 3, "targets": {"requests_per_second": 9}}, 3),
        ({"targets": {"requests_per_second": 2}}, 1),
        ({"targets": {"requests_per_second": 2.1}}, 2),
        ({"replicas": "auto", "targets": {"requests_per_second": 9}}, 5),
        ({"replicas": "1..4", "targets": {"requests_per_second": 9}}, 4),
        ({"replicas": "2..4", "targets": {"requests_per_second": 1}}, 2),
        ({"replicas": "2..4"}, 2),
    ],
)
def test_copies(serve, inference, copies):
    workload = serve(inference={"output_tokens": 100} | inference)
    assert copies_needed(workload, 2.0) == copies


def test_unknown_rate_gives_the_fewest_copies(serve):
    workload = serve(inference={"targets": {"requests_per_second": 9}})
    assert copies_needed(workload, None) == 1
    assert copies_needed(workload, 0.0) == 1


def test_batch_hours_are_of_generated_tokens(batch):
    workload = batch(inference={"total": "1.44M tokens", "replicas": 2, "output_tokens": 100})
    demand = demand_for(workload, shape_for(workload))
    assert work_hours(workload, demand, SPEED, 2) == pytest.approx(1.0)  # 2 copies x 2 requests/s x 100 tokens
    assert work_hours(workload, demand, Throughput(), 2) is None
    assert has_known_work(workload)


def test_batch_of_images_takes_the_rate_of_images():
    model, total = {"id": "black-forest-labs/FLUX.1-dev"}, {"total": "7200 images"}
    workload = Workload.from_document(
        {"version": 1, "name": "case", "task": "batch", "model": model, "inference": total}
    )
    demand = demand_for(workload, shape_for(workload))
    assert work_hours(workload, demand, replace(SPEED, images_per_s=2.0), 1) == pytest.approx(1.0)
    assert work_hours(workload, demand, SPEED, 1) is None


def test_stated_length(batch, finetune, serve):
    assert stated_hours(batch(inference={"duration": "6h"})) == 6.0
    assert stated_hours(batch()) is None
    document = finetune().to_document()
    document["training"] = {**document["training"], "duration": "20h"}
    del document["training"]["tokens"]
    assert stated_hours(Workload.from_document(document)) == 20.0
    assert stated_hours(serve()) is None


def test_training_hours(finetune):
    workload = finetune(training={"tokens": "36M"})
    demand = demand_for(workload, shape_for(workload))
    assert work_hours(workload, demand, Throughput(train_tokens_per_s=1000.0), 1) == pytest.approx(10.0)
    assert work_hours(workload, demand, Throughput(), 1) is None


@pytest.mark.parametrize("engine", [None, *Engine])
def test_a_start_takes_as_long_as_the_plan_shows(engine):
    for weights_bytes in (0, 10**10, 10**12):
        assert start_hours(weights_bytes, engine) == start_up(weights_bytes, engine).usual_s / 3600


def test_a_run_and_a_lost_machine_use_the_one_start_that_the_plan_shows(batch):
    plan = make_plan(batch(inference={"total": "50M tokens"}, placement={"capacity": "spot"}), load_catalog())
    shown_h = plan.outlook.start.usual_s / 3600
    assert plan.cost.spot.lost_hours_each == pytest.approx(shown_h, abs=0.001)


def test_hours_of_a_month(serve, finetune, batch):
    assert hours_per_month(serve(), None) == 730
    assert hours_per_month(serve(lifecycle={"pattern": "bursty"}), None) == 120
    assert hours_per_month(serve(lifecycle={"hours_per_month": 50}), None) == 50
    assert hours_per_month(batch(), None) == 120
    assert hours_per_month(finetune(), 20.0) == 20.0
    assert hours_per_month(finetune(lifecycle={"hours_per_month": 300}), 20.0) == 300


@pytest.mark.parametrize(
    ("tokens", "deadline", "is_said"), [("100B", None, True), ("100M", None, False), ("100M", "60d", False)]
)
def test_a_run_of_a_quarter_and_more_is_said(
    catalog: Catalog, tokens: str, deadline: str | None, is_said: bool
) -> None:
    document = {
        "version": 1,
        "name": "long",
        "task": "finetune",
        "model": {"id": "meta-llama/Llama-3.1-8B"},
        "training": {"method": "lora", "sequence_tokens": 2048, "tokens": tokens},
        "placement": {"gpus": ["L40S"], "max_gpus": 1} | ({"deadline": deadline} if deadline else {}),
    }
    plan = make_plan(Workload.from_document(document), catalog)
    assert any("placement.deadline plans" in warning for warning in plan.warnings) is is_said
