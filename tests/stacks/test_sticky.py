"""A live stack keeps its place while that satisfies the spec; `--replan` moves."""

from __future__ import annotations

from functools import cache

import pytest

from provisioner.catalog.snapshot import load_catalog
from provisioner.planner.decide import make_plan
from provisioner.workload.spec import Workload
from stacks.state import GPU_INSTANCE, VOLUME, ResourceState, StackState
from stacks.sticky import KEPT, KEPT_DISKS, disk_anchor, machine_anchor, plan_for_stack

SPEC = {
    "version": 1,
    "name": "demo",
    "task": "serve",
    "model": {"id": "meta-llama/Llama-3.1-8B-Instruct"},
    "inference": {"context_tokens": 8192, "concurrency": 4},
}


def workload(**changes):
    return Workload.from_document({**SPEC, **changes})


@cache
def catalog():
    return load_catalog()


@cache
def free_plan():
    return make_plan(workload(), catalog(), provider="sandbox")


def offer_of(instance_type, capacity="on-demand"):
    """An offer of that type that a plan for it alone would choose."""
    plan = make_plan(
        workload(placement={"instance_types": [instance_type], "capacity": capacity}), catalog(), provider="sandbox"
    )
    return plan.choice


def place(offer, zone=None):
    return {
        "cloud": offer.cloud,
        "region": offer.region,
        "zone": zone or offer.zone,
        "instanceType": offer.instance_type,
        "capacityType": str(offer.capacity_type),
        "instanceId": "i-1",
        "provider": "sandbox",
        "power": "running",
    }


def state_of(outputs=None, volumes=()):
    resources = []
    if outputs is not None:
        resources.append(ResourceState(f"x::{GPU_INSTANCE}::instance", GPU_INSTANCE, "i-1", {}, outputs))
    resources += [ResourceState(f"x::{VOLUME}::data", VOLUME, "v", {}, outputs) for outputs in volumes]
    return StackState("demo", tuple(resources))


def test_a_new_stack_gets_the_free_plan():
    assert plan_for_stack(workload(), catalog(), None, provider="sandbox") == free_plan()
    assert plan_for_stack(workload(), catalog(), state_of(), provider="sandbox") == free_plan()


def test_a_machine_on_the_best_offer_stays_and_says_so():
    choice = free_plan().choice
    plan = plan_for_stack(workload(), catalog(), state_of(place(choice)), provider="sandbox")
    assert plan.choice.key == choice.key
    assert plan.choice.reasons[0] == KEPT


def test_a_dearer_place_is_kept_and_the_better_one_shown():
    held = offer_of("g6e.2xlarge")
    plan = plan_for_stack(workload(), catalog(), state_of(place(held)), provider="sandbox")
    assert plan.choice.instance_type == "g6e.2xlarge"
    assert plan.choice.zone == held.zone
    assert plan.choice.reasons == (KEPT,)
    assert plan.failover[0].key == plan.choice.key
    assert plan.alternatives[0].offer.key == free_plan().choice.key
    assert plan.cost.compute_usd_per_hour == held.price_usd_per_hour
    assert plan.workload_digest == free_plan().workload_digest
    assert plan.rejections == free_plan().rejections


def test_replan_moves_and_drops_the_old_place():
    held = offer_of("g6e.2xlarge")
    plan = plan_for_stack(workload(), catalog(), state_of(place(held)), provider="sandbox", replan=True)
    assert plan.choice.key == free_plan().choice.key
    assert held.key not in {offer.key for offer in plan.failover}


def test_replan_of_the_best_place_changes_nothing():
    choice = free_plan().choice
    plan = plan_for_stack(workload(), catalog(), state_of(place(choice)), provider="sandbox", replan=True)
    assert choice.key in {offer.key for offer in plan.failover}


@pytest.mark.parametrize(
    "placement",
    [
        {"exclude_gpus": ["L40S"]},
        {"instance_types": ["g6e.xlarge"]},
        {"clouds": ["gcp"]},
        {"regions": ["eu-west-1", "eu-central-1", "eu-north-1"]},
    ],
)
def test_a_place_that_no_longer_satisfies_the_spec_is_left(placement):
    held = offer_of("g6e.2xlarge")
    changed = workload(placement=placement)
    plan = plan_for_stack(changed, catalog(), state_of(place(held)), provider="sandbox")
    assert plan == make_plan(changed, catalog(), provider="sandbox")
    assert held.key not in {offer.key for offer in plan.failover}


def test_a_machine_that_has_become_too_small_is_left():
    held = offer_of("g6e.2xlarge")
    larger = workload(inference={"context_tokens": 131072, "concurrency": 16})
    plan = plan_for_stack(larger, catalog(), state_of(place(held)), provider="sandbox")
    assert plan.choice.instance_type != "g6e.2xlarge"
    assert plan.choice.reasons[0] != KEPT


def test_another_capacity_type_than_asked_is_left():
    held = offer_of("g6e.2xlarge")
    spot = workload(placement={"capacity": "spot"})
    plan = plan_for_stack(spot, catalog(), state_of(place(held)), provider="sandbox")
    assert str(plan.choice.capacity_type) == "spot"


@pytest.mark.parametrize("power", ["terminated", "interrupted"])
def test_a_machine_that_is_gone_binds_nothing(power):
    held = {**place(offer_of("g6e.2xlarge")), "power": power}
    assert machine_anchor(state_of(held)) is None
    assert plan_for_stack(workload(), catalog(), state_of(held), provider="sandbox") == free_plan()


def test_a_stopped_machine_keeps_its_place():
    held = {**place(offer_of("g6e.2xlarge")), "power": "stopped"}
    plan = plan_for_stack(workload(), catalog(), state_of(held), provider="sandbox")
    assert plan.choice.instance_type == "g6e.2xlarge"


def test_disks_hold_the_zone_also_against_replan():
    disk = {"cloud": "aws", "region": "us-west-2", "zone": "usw2-az2"}
    for replan in (False, True):
        plan = plan_for_stack(workload(), catalog(), state_of(volumes=[disk]), provider="sandbox", replan=replan)
        assert (plan.choice.region, plan.choice.zone) == ("us-west-2", "usw2-az2")
        assert plan.choice.reasons == (KEPT_DISKS,)


def test_unbound_disks_hold_nothing():
    assert disk_anchor(state_of(volumes=[{"name": "data"}])) is None


def test_an_offer_without_a_zone_covers_the_machines_zone():
    choice = free_plan().choice
    anchor = machine_anchor(state_of(place(choice, zone="some-zone-b")))
    assert anchor.holds(choice) is (choice.zone is None)
