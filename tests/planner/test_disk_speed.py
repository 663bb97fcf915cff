"""Disks that are worth more throughput than they include: by money, within what disk and machine can do, and in the bill."""

from __future__ import annotations

import json
from dataclasses import replace
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from provisioner.catalog.disk_kinds import GP3, KINDS, DiskKind
from provisioner.planner import disk_speed
from provisioner.planner.documents import plan_document, plan_from_document
from provisioner.planner.plan import Plan, StorageItem
from provisioner.planner.storage import Disk, month_usd, paid_speed
from provisioner.units import GIB, DiskSpeed
from provisioner.vocabulary import CapacityType

GP3_KIND = KINDS[GP3]
BIG = {"id": "meta-llama/Llama-3.1-70B-Instruct"}
SAVED = {"every": "30m", "resumable": True}


def disk(plan: Plan, kind: str) -> StorageItem:
    return next(item for item in plan.storage if item.kind == kind)


def words(plan: Plan) -> list[str]:
    assert plan.choice is not None
    return [reason for reason in plan.choice.reasons if " disk at " in reason]


def full_70b(finetune: Any, **training: Any) -> Any:
    method = {"method": "full", "sharding": "auto", "tokens": "50M", "checkpoint": SAVED, **training}
    return finetune(model=BIG, training=method, placement={"clouds": ["aws"]})


@pytest.fixture(scope="module")
def trained(plan_of: Any, finetune: Any) -> Plan:
    plan: Plan = plan_of(full_70b(finetune))
    return plan


def test_p9_a_dear_machine_buys_the_speed_that_its_weights_and_checkpoints_need(trained: Plan) -> None:
    root, checkpoints = disk(trained, "root").speed, disk(trained, "checkpoints").speed
    assert root is not None
    assert checkpoints is not None
    for item in (disk(trained, "root"), disk(trained, "checkpoints")):
        assert item.speed is not None
        assert GP3_KIND.refusal(item.speed, item.size_bytes) is None
        assert item.speed.mib_per_s > 125
    assert len(words(trained)) == 2
    assert "starts take" in words(trained)[0]
    assert "checkpoints are written in" in words(trained)[1]


def test_the_bill_has_what_is_bought_and_its_sums_hold(trained: Plan) -> None:
    assert trained.cost is not None
    for per in ("month", "run"):
        lines = [line for line in trained.cost.lines if line.per == per and line.item.startswith("disk:")]
        names = {line.item for line in lines}
        assert {"disk:root:mib_per_s", "disk:checkpoints:mib_per_s"} <= names
        for line in lines:
            assert line.quantity is not None
            assert line.unit_price_usd is not None
            assert line.source
            assert line.as_of
            assert line.amount_usd == (line.quantity * line.unit_price_usd).quantize(Decimal("0.0001"))
        if per == "month":
            assert trained.cost.storage_usd_per_month == sum(line.amount_usd or 0 for line in lines)
    item = disk(trained, "checkpoints")
    assert item.speed is not None
    size_usd = Decimal(item.size_bytes) / GIB * Decimal("0.08")
    extra = (item.speed.iops - 3000) * Decimal("0.005") + (item.speed.mib_per_s - 125) * Decimal("0.04")
    assert item.usd_per_month == pytest.approx(size_usd + extra, abs=Decimal("0.01"))


def test_the_bill_rises_by_the_price_of_the_speed_alone(
    trained: Plan, plan_of: Any, finetune: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The predicted start is one with a disk that keeps up, whatever the disk."""
    monkeypatch.setattr(disk_speed, "WORTH", 1e9)
    plain: Plan = plan_of(full_70b(finetune))
    assert words(plain) == []
    assert {item.speed for item in plain.storage} == {None}
    assert plain.cost is not None
    assert trained.cost is not None
    assert trained.cost.run_hours == plain.cost.run_hours
    extra = [line for line in trained.cost.lines if line.per == "run" and line.item.count(":") == 2]
    assert trained.cost.run_usd == (plain.cost.run_usd or 0) + sum(line.amount_usd or 0 for line in extra)


def test_a_small_model_on_a_small_machine_keeps_what_is_included(plan_of: Any, serve: Any, finetune: Any) -> None:
    for workload in (serve(placement={"clouds": ["aws"]}), finetune(placement={"clouds": ["aws"]})):
        plan: Plan = plan_of(workload)
        assert {item.speed for item in plan.storage} == {None}
        assert words(plan) == []


def test_the_same_weights_are_worth_it_under_a_dear_machine_alone(
    plan_of: Any, batch: Any, stall: Any, offer: Any
) -> None:
    """The law: the price of the machine decides, all else as it is."""
    work = batch(model=BIG, inference={"total": "20M tokens"}, placement={"clouds": ["aws"]})
    speeds = []
    for price in ("0.50", "5.00", "50.00", "500.00"):
        plan: Plan = plan_of(work, stall(offer("p5.48xlarge", price)))
        speed = disk(plan, "root").speed
        speeds.append(125 if speed is None else speed.mib_per_s)
    assert speeds == sorted(speeds)
    assert speeds[0] == 125 < speeds[-1]


def test_what_is_not_known_buys_nothing(plan_of: Any, batch: Any, stall: Any, offer: Any, monkeypatch: Any) -> None:
    work = batch(model=BIG, inference={"total": "20M tokens"}, placement={"clouds": ["aws"]})
    sold = stall(offer("p5.48xlarge", "500.00"))
    assert disk(plan_of(work, sold), "root").speed is not None
    with monkeypatch.context() as patch:
        patch.setattr(type(sold), "disk_link", lambda *_: None, raising=False)
        assert disk(plan_of(work, sold), "root").speed is None
    with monkeypatch.context() as patch:
        patch.setattr("provisioner.catalog.prices.ServicePrices.performance_tiers", lambda *_: ())
        assert disk(plan_of(work, sold), "root").speed is None
    unpriced = stall(offer("p5.48xlarge", None, capacity_type=CapacityType.CAPACITY_BLOCK))
    reserved = batch(
        model=BIG, inference={"total": "20M tokens"}, placement={"clouds": ["aws"], "capacity": "reserved"}
    )
    assert disk(plan_of(reserved, unpriced), "root").speed is None


def test_no_disk_is_faster_than_its_machine_can_use(plan_of: Any, batch: Any, stall: Any, offer: Any) -> None:
    """A g6.xlarge moves 5,000 Mbit/s for half an hour a day: 596 MiB/s."""
    work = batch(
        inference={"total": "20M tokens", "context_tokens": 512, "concurrency": 1}, placement={"clouds": ["aws"]}
    )
    speed = disk(plan_of(work, stall(offer("g6.xlarge", "5000.00"))), "root").speed
    assert speed is not None
    assert speed.mib_per_s <= 596


def test_google_disks_get_no_speed_of_their_own_and_the_plan_reads_back(
    trained: Plan, plan_of: Any, finetune: Any
) -> None:
    google: Plan = plan_of(finetune(model=BIG, training={"method": "full"}, placement={"clouds": ["gcp"]}))
    assert {item.speed for item in google.storage} == {None}
    for plan in (trained, google):
        document = json.loads(json.dumps(plan_document(plan)))
        assert plan_from_document(document) == plan
        for item in document["storage"]:
            assert ("iops" in item) == ("throughput_mib_per_s" in item) == (item["kind"] != "local" and plan is trained)


def test_other_kinds_of_disk_are_priced_by_their_own_rows_and_unknown_stays_unknown(catalog: Any) -> None:
    """Hyperdisk includes 3,000 IOPS and 140 MiB/s; nobody publishes a speed that balanced persistent disks could buy."""
    hyper = Disk("data", 100 * GIB, 2, "hyperdisk_balanced", DiskSpeed(5000, 240))
    parts = {part.metric: part for part in paid_speed(catalog, "gcp", hyper, "us-central1")}
    assert {metric: part.units for metric, part in parts.items()} == {"iops": 4000, "mib_per_s": 200}
    price = month_usd(catalog, "gcp", hyper, "us-central1")
    assert price == month_usd(catalog, "gcp", replace(hyper, speed=None), "us-central1") + Decimal("28.0000")
    balanced = Disk("data", 100 * GIB, 1, "pd_balanced", DiskSpeed(5000, 240))
    assert month_usd(catalog, "gcp", balanced, "us-central1") is None
    assert month_usd(catalog, "gcp", replace(balanced, speed=None), "us-central1") is not None


@given(st.integers(1, 5000), st.integers(1, 70_000))
def test_a_speed_that_is_made_up_is_one_that_the_disk_takes(mib_per_s: int, size_gib: int) -> None:
    speed = GP3_KIND.fast_enough(mib_per_s, size_gib * GIB)
    if size_gib >= 6:  # below, even what is included is more than 500 IOPS a GiB
        assert GP3_KIND.refusal(speed, size_gib * GIB) is None
    assert speed.mib_per_s >= 125
    assert speed.mib_per_s <= max(125, mib_per_s)


@pytest.mark.parametrize(
    ("speed", "size_gib", "reason"),
    [
        (DiskSpeed(2999, 125), 100, "2999 IOPS are out of range"),
        (DiskSpeed(80_001, 125), 1000, "80001 IOPS are out of range"),
        (DiskSpeed(3000, 124), 100, "124 MiB/s are out of range"),
        (DiskSpeed(9000, 2001), 100, "2001 MiB/s are out of range"),
        (DiskSpeed(5001, 125), 10, "5001 IOPS need a disk of 11 GiB, and it has 10"),
        (DiskSpeed(3000, 751), 100, "751 MiB/s need 3004 IOPS, not 3000"),
        (DiskSpeed(3000, 750), 100, None),
        (DiskSpeed(80_000, 2000), 160, None),
    ],
)
def test_limits_of_gp3(speed: DiskSpeed, size_gib: int, reason: str | None) -> None:
    """Source: EC2 API reference, CreateVolume; EBS user guide, "General Purpose SSD volumes"."""
    kind: DiskKind = GP3_KIND
    found = kind.refusal(speed, size_gib * GIB)
    assert found is None if reason is None else found is not None and found.startswith(reason)
