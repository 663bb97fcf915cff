"""Layouts over several instances: when they are looked at, what crosses the network, and how they are bought."""

from __future__ import annotations

import pytest

from provisioner.planner.clusters import (
    DOUBLING_SHARE,
    INSTANCE_COUNTS,
    across_network,
    cluster_layouts,
    copies_held,
    instance_counts,
    instances_per_copy,
    network_seconds,
    refuse_cluster,
)
from provisioner.planner.judge import offer_fit
from provisioner.planner.launch import launch_argv
from provisioner.sizing.layout import Layout
from provisioner.sizing.throughput import Throughput
from provisioner.vocabulary import CapacityType, Fit, Sharding, Task

FOUR = Layout(data_parallel=32, sharding=Sharding.FSDP)


@pytest.fixture(scope="module")
def pretrain(finetune):
    """A pre-training of an 8B model, 150 billion tokens in ten days on H100."""

    def build(**placement):
        training = {
            "method": "full",
            "sequence_tokens": 4096,
            "tokens": "150B",
            "checkpoint": {"every": "1h", "resumable": True},
        }
        sections = {"gpus": ["H100"], "max_gpus": 32, "deadline": "10d"} | placement
        return finetune(
            task="pretrain",
            training=training,
            placement={key: value for key, value in sections.items() if value is not None},
        )

    return build


def test_a_deadline_that_one_instance_misses_takes_the_fewest_that_meet_it(plan_of, pretrain):
    plan = plan_of(pretrain())
    assert plan.verdict == "fits"
    assert (plan.choice.instance_type, plan.choice.instances) == ("p5.48xlarge", 4)
    assert plan.choice.layout == FOUR
    assert plan.choice.interconnect == "nvlink"
    assert plan.cost.compute_usd_per_hour == 4 * plan.choice.price_usd_per_hour
    assert plan.cost.run_hours < 240
    assert any("spans 4 instances" in reason and "EFA" in reason for reason in plan.choice.reasons)
    assert any("`up` makes one machine" in warning for warning in plan.warnings)
    assert {offer.instances for offer in plan.failover} == {4}


def test_one_instance_where_it_is_enough(plan_of, pretrain):
    assert plan_of(pretrain(deadline="60d")).choice.instances == 1


def test_max_gpus_bounds_the_instances(plan_of, pretrain):
    plan = plan_of(pretrain(max_gpus=16))
    assert plan.choice is None
    assert any(change.startswith("raise placement.max_gpus to 32: fits on 4 x") for change in plan.closest)


def test_auto_takes_no_spot_for_instances_that_work_as_one(plan_of, pretrain):
    plan = plan_of(pretrain())
    assert plan.choice.capacity_type == "on-demand"
    assert any("placement.capacity: reserved" in reason for reason in plan.choice.reasons)
    assert any(each.filter == "capacity" and "losing any of them" in each.reason for each in plan.rejections)


def test_reserved_takes_a_commitment_and_says_so(plan_of, pretrain):
    plan = plan_of(pretrain(capacity="reserved"))
    assert (plan.choice.capacity_type, plan.choice.instances) == ("capacity-block", 4)
    assert any("start together" in reason for reason in plan.choice.reasons)
    if plan.choice.price_usd_per_hour is None:
        assert plan.cost.run_usd is None


def test_auto_takes_a_flex_start_that_is_cheaper_than_on_demand(plan_of, pretrain, stall, offer):
    """Commitments are looked at beside on-demand for machines that work as one, and rank by their price."""
    goods = stall(offer("a3-highgpu-8g", "88.49"), offer("a3-highgpu-8g", "50", capacity_type=CapacityType.FLEX_START))
    plan = plan_of(pretrain(), goods)
    assert (plan.choice.capacity_type, plan.choice.instances) == ("flex-start", 4)
    one = plan_of(pretrain(deadline="60d"), goods)
    assert (one.choice.capacity_type, one.choice.instances) == ("on-demand", 1)


def test_a_missed_deadline_is_extended_no_further_than_the_largest_cluster_needs(plan_of, pretrain, made):
    spec = pretrain(deadline="2d")
    text = next(text for text in plan_of(spec).closest if text.startswith("extend placement.deadline"))
    change, _, answer = text.partition(": fits on ")
    assert answer.startswith("4 x p5.48xlarge")
    assert plan_of(made(spec, change)).choice.instances == 4


def test_idle_gpus_of_a_training_are_said_with_what_would_use_them(finetune, plan_of):
    spec = finetune(training={"method": "full", "sharding": "none", "tokens": "100M"})
    assert any("stay idle: training.sharding: auto" in text for text in plan_of(spec).warnings)


def test_throughput_takes_as_many_as_may_be_taken(plan_of, pretrain):
    workload = pretrain(deadline=None, gpus=["A100-40GB"])
    fast = plan_of(workload.model_copy(update={"optimize": "throughput"}))
    assert (plan_of(workload).choice.instances, fast.choice.instances) == (1, 4)


def test_serving_spans_instances_only_where_it_is_asked_to(plan_of, serve):
    model = {"id": "meta-llama/Meta-Llama-3.1-405B-Instruct", "weights": "bf16"}
    sections = {"model": model, "placement": {"gpus": ["H100"]}}
    assert plan_of(serve(**sections)).choice is None
    asked = plan_of(serve(**sections, inference={"tensor_parallel": 8, "pipeline_parallel": 2}))
    assert (asked.choice.instances, asked.choice.layout.gpus_per_replica) == (2, 16)
    assert "--distributed-executor-backend" in asked.launch_argv


def test_a_small_stage_count_stays_in_one_instance(plan_of, serve):
    plan = plan_of(serve(inference={"tensor_parallel": 1, "pipeline_parallel": 2}))
    assert plan.choice.instances == 1


def test_what_does_not_train_together_says_why(catalog):
    named = {name: refuse_cluster(catalog.instances["aws", name]) for name in ("g6.12xlarge", "p5.48xlarge")}
    assert named["p5.48xlarge"] is None
    assert named["g6.12xlarge"].filter == "fabric"
    assert refuse_cluster(catalog.instances["gcp", "g2-standard-96"]).needed == "EFA or GPUDirect"


def test_counts_stay_within_max_gpus(request_of, pretrain, catalog):
    instance = catalog.instances["aws", "p5.48xlarge"]
    assert instance_counts(request_of(pretrain(max_gpus=32)), instance) == (2, 4)
    assert instance_counts(request_of(pretrain(max_gpus=None)), instance) == INSTANCE_COUNTS
    assert instance_counts(request_of(pretrain(max_gpus=8)), instance) == ()


@pytest.mark.parametrize(
    ("sharding", "expected"),
    [
        ("tp", Layout(tensor_parallel=8, data_parallel=4, sharding=Sharding.FSDP)),
        ("pp", Layout(pipeline_parallel=4, data_parallel=8, sharding=Sharding.ZERO1)),
        ("fsdp", FOUR),
    ],
)
def test_tensor_parallelism_never_leaves_an_instance(request_of, pretrain, sharding, expected):
    workload = pretrain()
    training = workload.training.model_copy(update={"sharding": Sharding(sharding)})
    demand = request_of(workload.model_copy(update={"training": training})).demand
    assert cluster_layouts(demand, 8, 4) == (expected,)


def test_a_slow_network_bounds_the_rate_and_a_fast_one_costs_little(request_of, pretrain, catalog):
    demand = request_of(pretrain()).demand
    fast = catalog.instances["aws", "p5.48xlarge"]
    slow = catalog.instances["aws", "g6.48xlarge"]
    inside = Throughput(train_tokens_per_s=230_000.0, low=200_000.0, high=260_000.0, bound_by="compute")
    near = across_network(demand, FOUR, fast, 4, inside)
    assert near.train_tokens_per_s == pytest.approx(230_000 * DOUBLING_SHARE**2)
    assert near.bound_by == "compute"
    far = across_network(demand, FOUR, slow, 4, inside)
    assert far.bound_by == "interconnect"
    tokens = 4096 * 32
    assert far.train_tokens_per_s == pytest.approx(tokens / network_seconds(demand, FOUR, slow, 4) * DOUBLING_SHARE**2)


def test_more_instances_never_need_less_of_the_network(request_of, pretrain, catalog):
    demand, instance = request_of(pretrain()).demand, catalog.instances["aws", "p5.48xlarge"]
    seconds = [
        network_seconds(demand, Layout(data_parallel=8 * count, sharding=Sharding.FSDP), instance, count)
        for count in INSTANCE_COUNTS
    ]
    assert seconds == sorted(seconds)


def test_copies_that_machines_hold():
    wide = Layout(tensor_parallel=4, pipeline_parallel=3)
    assert instances_per_copy(wide, 8) == 2
    assert (copies_held(wide, 8, 1), copies_held(wide, 8, 5)) == (0, 2)
    assert copies_held(Layout(tensor_parallel=2), 8, 3) == 12


def test_the_gate_sizes_the_layout_of_a_cluster(catalog, pretrain):
    verdict = offer_fit(pretrain(), catalog, "aws", "us-east-1", "p5.48xlarge", FOUR)
    assert verdict.fit is Fit.FITS
    crossing = offer_fit(pretrain(), catalog, "aws", "us-east-1", "p5.48xlarge", Layout(tensor_parallel=16))
    assert crossing.fit is Fit.DOES_NOT_FIT


def test_the_command_names_the_head_and_the_processes_of_each(request_of, pretrain):
    argv = launch_argv(request_of(pretrain()), FOUR, None, 4)
    assert argv[:2] == ("torchrun", "--nnodes=4")
    assert argv[-1] == "--nproc-per-node=8"
    assert pretrain().task is Task.PRETRAIN
