"""Capacity by pool, quota by code."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import pytest

from provisioner.clouds.cloud import Placement
from provisioner.clouds.sandbox import pools
from provisioner.errors import CapacityError, QuotaError, UsageError
from provisioner.vocabulary import CapacityType


def test_without_limits_there_is_room(box):
    for number in range(5):
        box.running(f"token-{number}")
    assert box.controls.capacities() == []
    assert box.controls.quotas() == []


def test_a_sold_out_pool_refuses_and_another_zone_does_not(box):
    box.controls.set_capacity("aws/us-east-1/use1-az2/g6.xlarge/on-demand", 0)
    with pytest.raises(CapacityError, match="InsufficientInstanceCapacity"):
        box.running()
    assert box.running(placement=box.next_zone).placement.zone == "use1-az4"


def test_a_refused_create_leaves_nothing_and_its_token_free(box):
    box.controls.set_capacity("aws/*/*/*/*", 0)
    with pytest.raises(CapacityError):
        box.running()
    assert box.controls.bill().lines == ()
    box.controls.clear_capacity()
    changed = box.request(name="another-name")
    assert box.cloud.create_instance(changed).name == "another-name"


def test_room_is_shared_in_a_pool_and_comes_back_with_an_end(box):
    box.controls.set_capacity("aws/us-east-1/*/g6.*/*", 2)
    first = box.running("token-1")
    box.running("token-2", placement=box.next_zone)
    with pytest.raises(CapacityError):
        box.running("token-3")
    (pool,) = box.controls.capacities()
    assert (pool.instances, pool.used) == (2, 2)
    box.cloud.stop_instance(box.here, first.id)
    third = box.running("token-3")
    assert third.id != first.id
    with pytest.raises(CapacityError):
        box.cloud.start_instance(box.here, first.id)


def test_the_most_specific_pool_decides(box):
    box.controls.set_capacity("*/*/*/*/*", 0)
    box.controls.set_capacity("aws/us-east-1/use1-az4/g6.xlarge/on-demand", None)
    with pytest.raises(CapacityError):
        box.running()
    box.running(placement=box.next_zone)


def test_what_runs_stays_when_capacity_goes(box):
    made = box.running()
    box.controls.set_capacity("aws/*/*/*/*", 0)
    assert box.see(made).state == "running"
    assert box.cloud.create_instance(box.request()).id == made.id


@pytest.mark.parametrize("text", ["", "aws", "aws/us-east-1/g6.xlarge", "aws/us-east-1//g6.xlarge/spot", "a/b/c/d/e/f"])
def test_a_pool_has_five_parts(box, text):
    with pytest.raises(UsageError, match="is no pool"):
        box.controls.set_capacity(text, 0)


def test_a_misspelt_pool_is_noticed(box):
    assert box.controls.is_sold("aws/us-east-1/*/g6.xlarge/spot")
    assert not box.controls.is_sold("aws/us-east-1/*/g6.xlrge/spot")
    assert not box.controls.is_sold("aws/us-central1/*/*/*")


def test_specificity_orders_patterns():
    ordered = ["*/*/*/*/*", "aws/*/*/*/*", "aws/*/*/g6*/*", "aws/*/*/g6.x*/*", "aws/*/*/g6.xlarge/*"]
    ranks = [pools.specificity(pool) for pool in ordered]
    assert ranks == sorted(set(ranks))


def test_quota_names_code_need_have_and_used(box):
    assert box.controls.set_quota("aws", "us-east-1", "g6", Fraction(6)) == ("L-3819A6DF", "L-DB2E81BA")
    box.running("token-1")
    with pytest.raises(QuotaError, match=r"VcpuLimitExceeded.*L-DB2E81BA in us-east-1.*need 4, have 6, used 4"):
        box.running("token-2", placement=box.next_zone)
    spot = box.running("token-3", placement=box.spot)
    assert spot.placement.capacity_type is CapacityType.SPOT
    used = {one.code: one.used for one in box.controls.quotas()}
    assert used == {"L-DB2E81BA": 4, "L-3819A6DF": 4}


def test_quota_comes_before_capacity_and_after_the_token(box):
    made = box.running("token-1")
    box.controls.set_quota("aws", "us-east-1", "L-DB2E81BA", Fraction(0))
    box.controls.set_capacity("aws/*/*/*/*", 0)
    with pytest.raises(QuotaError):
        box.running("token-2")
    assert box.cloud.create_instance(box.request("token-1")).id == made.id


def test_a_quota_of_every_region_counts_each_region_for_itself(box):
    box.controls.set_quota("aws", "*", "L-DB2E81BA", Fraction(4))
    box.running("token-1")
    with pytest.raises(QuotaError):
        box.running("token-2")
    elsewhere = Placement("aws", "us-west-2", "usw2-az1", "g6.xlarge", CapacityType.ON_DEMAND)
    box.running("token-3", placement=elsewhere)
    box.controls.set_quota("aws", "us-east-1", "L-DB2E81BA", Fraction(8))
    box.running("token-2")
    assert [one.used for one in box.controls.quotas()] == [None, 8]


def test_e15_gcp_counts_gpus_by_model_and_over_the_project(gcp_box):
    gcp_box.controls.set_quota("gcp", "us-central1", "NVIDIA_L4_GPUS", Fraction(2))
    gcp_box.controls.set_quota("gcp", "*", "GPUS_ALL_REGIONS", Fraction(3))
    two = replace(gcp_box.here, instance_type="g2-standard-24")
    gcp_box.running("token-1", placement=two)
    with pytest.raises(QuotaError, match=r"QUOTA_EXCEEDED.*NVIDIA_L4_GPUS in us-central1.*need 1, have 2, used 2"):
        gcp_box.running("token-2")
    elsewhere = replace(two, region="us-east4", zone="us-east4-a")
    with pytest.raises(QuotaError, match=r"GPUS_ALL_REGIONS in \*.*need 2, have 3, used 2"):
        gcp_box.running("token-3", placement=elsewhere)
    gcp_box.running("token-4", placement=replace(elsewhere, instance_type="g2-standard-8"))
    with pytest.raises(QuotaError, match="GPUS_ALL_REGIONS") as none_left:
        gcp_box.running("token-5", placement=elsewhere)
    assert none_left.value.scope == "account"


def test_a_lifted_quota_is_gone(box):
    box.controls.set_quota("aws", "us-east-1", "L-DB2E81BA", Fraction(0))
    box.controls.set_quota("aws", "us-east-1", "L-DB2E81BA", None)
    box.running()
    box.controls.set_quota("aws", "us-east-1", "L-DB2E81BA", Fraction(0))
    box.controls.clear_quotas()
    assert box.controls.quotas() == []


@pytest.mark.parametrize(
    ("region", "name"), [("us-east-1", "g99"), ("us-east-1", "NVIDIA_L4_GPUS"), ("nowhere-1", "g6"), ("*", "")]
)
def test_an_unknown_quota_or_region_is_refused(box, region, name):
    with pytest.raises(UsageError):
        box.controls.set_quota("aws", region, name, Fraction(1))
    assert box.controls.quotas() == []


def test_negative_limits_are_refused(box):
    with pytest.raises(UsageError, match="not negative"):
        box.controls.set_capacity("aws/*/*/*/*", -1)
    with pytest.raises(UsageError, match="not negative"):
        box.controls.set_quota("aws", "us-east-1", "g6", Fraction(-1))


def test_failover_over_refusals_costs_one_call_each(box):
    """k refusals cost k + 1 create calls."""
    offers = [replace(box.here, zone=zone) for zone in ("use1-az1", "use1-az2", "use1-az4", "use1-az5", "use1-az6")]
    for offer in offers[:3]:
        box.controls.set_capacity(offer.key, 0)
    made = None
    for number, offer in enumerate(offers):
        try:
            made = box.running(f"token-{number}", placement=offer)
        except CapacityError:
            continue
        break
    assert made.placement.zone == "use1-az5"
    calls = box.controls.calls(operation="create_instance")
    assert [call.outcome for call in calls] == ["capacity"] * 3 + ["ok"]
    assert [str(call.effect) for call in calls] == ["none"] * 3 + ["created"]


def test_room_can_be_looked_at_without_making_anything(box):
    box.controls.set_capacity("aws/us-east-1/*/g6.*/*", 1)
    box.cloud.check_room(box.here)
    old = box.running("token-1")
    with pytest.raises(CapacityError):
        box.cloud.check_room(box.here)
    box.cloud.check_room(box.here, ending=old.id)
    box.controls.clear_capacity()
    box.controls.set_quota("aws", "us-east-1", "L-DB2E81BA", Fraction(4))
    with pytest.raises(QuotaError, match="need 4, have 4, used 4"):
        box.cloud.check_room(box.here)
    box.cloud.check_room(box.here, ending=old.id)
    assert [line.id for line in box.controls.bill().lines if line.kind == "instance"] == [old.id]
