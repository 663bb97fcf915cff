"""Fifteen plans whose bills are worked out again from the CSV files alone, by arithmetic that shares no code with the product."""

from __future__ import annotations

import csv
import math
from collections.abc import Callable
from decimal import Decimal
from functools import cache
from typing import Any

import pytest

from provisioner.catalog.files import BUNDLED
from provisioner.planner.plan import Plan

MONTH = Decimal(730)
REFERENCE = {"aws": "us-east-1", "gcp": "us-central1"}
CENT = Decimal("0.01")
Row = dict[str, str]


@cache
def table(name: str) -> tuple[Row, ...]:
    with (BUNDLED / name).open(encoding="utf-8", newline="") as stream:
        return tuple(csv.DictReader(stream))


def machine_price(plan: Plan) -> Decimal:
    """The price row of the choice, with the local disks that the row leaves out though they come with the machine."""
    choice = plan.choice
    assert choice is not None
    model = {"spot": "spot", "on-demand": "on_demand"}[choice.capacity_type]
    name, _, attached = choice.instance_type.partition("+")
    rows = [
        row
        for row in table("prices.csv")
        if (row["cloud"], row["instance_type"], row["purchase_model"]) == (choice.cloud, name, model)
        and row["region"] == choice.region
        and row["zone"] in (choice.zone, "*")
    ]
    assert rows, choice
    row = max(rows, key=lambda one: one["zone"] != "*")
    price = Decimal(row["price_usd_per_hour"])
    instance = next(
        one for one in table("instances.csv") if (one["cloud"], one["instance_type"]) == (choice.cloud, name)
    )
    if row["excludes"] == "local_ssd" and instance["local_ssd_kind"] == "bundled":
        gib = Decimal(instance["local_ssd_gib"])
        price += gib * rate("storage_capacity_prices.csv", "gcp", f"local_ssd_{model}", choice.region) / MONTH
    if attached:
        gpu, _, count = attached.rpartition("x")
        of = next(
            one
            for one in table("prices_attached_gpu.csv")
            if one["region"] == choice.region
            and one["purchase_model"] == model
            and one["gpu_model"].lower().startswith(gpu.split("-")[0])
        )
        price += int(count) * Decimal(of["price_usd_per_gpu_hour"])
    return price.quantize(Decimal("0.000001"))


def rate(file: str, cloud: str, service: str, region: str) -> Decimal:
    """A disk's price, that of the reference region where the region has none."""
    by_region = {
        row["region"]: Decimal(row["price_usd_per_gib_month"])
        for row in table(file)
        if (row["cloud"], row["service"], row["tier_from_gib"]) == (cloud, service, "0")
    }
    return by_region.get(region, by_region[REFERENCE[cloud]] if region not in by_region else Decimal(0))


def egress(cloud: str, region: str, gib: Decimal) -> Decimal:
    """Traffic to the internet: AWS gives 100 GB, then both go by their tiers."""
    destination = {"aws": "internet", "gcp": "internet, worldwide except China and Australia"}[cloud]
    found = [
        row
        for row in table("network_prices.csv")
        if (row["cloud"], row["traffic"], row["destination"]) == (cloud, "internet_egress", destination)
    ]
    regions = {row["region"] for row in found}
    place = region if region in regions else REFERENCE[cloud]
    total, free = Decimal(0), Decimal(100 if cloud == "aws" else 0)
    for row in found:
        if row["region"] == place:
            start = max(Decimal(row["tier_from_gib"]), free)
            end = Decimal(row["tier_to_gib"]) if row["tier_to_gib"] else Decimal("Infinity")
            total += max(Decimal(0), min(gib, end) - start) * Decimal(row["price_usd_per_gib"])
    return total


def address(cloud: str, capacity: str) -> Decimal:
    return Decimal("0.0025") if (cloud, capacity) == ("gcp", "spot") else Decimal("0.005")


def expected_month(plan: Plan, hours: Decimal, root_hours: Decimal, gib_out: Decimal) -> Decimal:
    """The total of a month without rework."""
    choice = plan.choice
    assert choice is not None
    hourly = (machine_price(plan) + address(choice.cloud, choice.capacity_type)) * choice.instances
    disks = Decimal(0)
    for item in plan.storage:
        if item.kind == "local":
            continue
        assert item.service is not None
        gib = Decimal(item.size_bytes * item.count) / 2**30
        share = root_hours / MONTH if item.kind == "root" else Decimal(1)
        disks += gib * share * rate("storage_capacity_prices.csv", choice.cloud, item.service, choice.region)
    return hourly * hours + disks + egress(choice.cloud, choice.region, gib_out)


def near(found: Decimal | None, expected: Decimal) -> None:
    assert found is not None
    assert abs(found - expected) < CENT, (found, expected)


SERVE: tuple[tuple[str, dict[str, Any], int, int, str], ...] = (
    ("aws, steady", {"placement": {"clouds": ["aws"]}}, 730, 730, "0"),
    ("gcp, steady", {"placement": {"clouds": ["gcp"]}}, 730, 730, "0"),
    ("bursty", {"lifecycle": {"pattern": "bursty"}}, 120, 730, "0"),
    ("own hours", {"lifecycle": {"hours_per_month": 200}}, 200, 730, "0"),
    ("ends when idle", {"lifecycle": {"pattern": "bursty", "idle": {"then": "terminate"}}}, 120, 120, "0"),
    ("data and traffic", {"storage": {"data": "1TiB", "egress": "50TiB/month"}, "placement": {"clouds": ["aws"]}}, 730, 730, "51200"),
    ("gcp traffic", {"storage": {"egress": "20TiB/month"}, "placement": {"clouds": ["gcp"]}}, 730, 730, "20480"),
    ("three copies", {"inference": {"replicas": 3}, "placement": {"instance_types": ["g6e.xlarge"]}}, 730, 730, "0"),
    ("another region", {"placement": {"clouds": ["aws"], "regions": ["eu-central-1"]}}, 730, 730, "0"),
    ("a fraction", {"placement": {"instance_types": ["g4-standard-24"]}}, 730, 730, "0"),
    ("bundled disks apart", {"placement": {"instance_types": ["a2-ultragpu-1g"]}}, 730, 730, "0"),
    ("an attached GPU", {"model": {"weights": "int4-awq"}, "inference": {"context_tokens": 2048}, "placement": {"gpus": ["T4"], "clouds": ["gcp"]}}, 730, 730, "0"),
)  # fmt: skip


@pytest.mark.parametrize(("name", "sections", "hours", "root_hours", "gib_out"), SERVE, ids=[case[0] for case in SERVE])
def test_a_month(  # noqa: PLR0917 - a case has as many parts
    plan_of: Callable[..., Plan],
    serve: Callable[..., Any],
    name: str,
    sections: dict[str, Any],
    hours: int,
    root_hours: int,
    gib_out: str,
) -> None:
    plan = plan_of(serve(**sections))
    assert plan.cost is not None, name
    near(plan.cost.total_usd_per_month, expected_month(plan, Decimal(hours), Decimal(root_hours), Decimal(gib_out)))


def test_a_month_of_spot_without_a_published_rate(plan_of: Callable[..., Plan], serve: Callable[..., Any]) -> None:
    """Ends when it is taken back, so the root disk is there as long as the machine; rework is unknown and left out."""
    plan = plan_of(serve(placement={"capacity": "spot", "clouds": ["gcp"]}, lifecycle={"pattern": "bursty"}))
    assert plan.cost is not None
    near(plan.cost.total_usd_per_month, expected_month(plan, Decimal(120), Decimal(120), Decimal(0)))


def timed(build: Callable[..., Any], duration: str, **sections: Any) -> Any:
    """A fine-tuning of a stated length."""
    document = build(**sections).to_document()
    training = {key: value for key, value in document["training"].items() if key != "tokens"}
    document["training"] = {**training, "duration": duration}
    return type(build()).from_document(document)


def test_a_run_on_demand(plan_of: Callable[..., Plan], finetune: Callable[..., Any]) -> None:
    """20 h and 7 s of machine, address and disks; then 7 days of a stopped machine in the month."""
    spec = timed(finetune, "20h", placement={"clouds": ["aws"], "capacity": "on-demand"}, storage={"data": "200GiB"})
    plan = plan_of(spec)
    assert plan.cost is not None
    hours = Decimal(20)
    near(plan.cost.total_usd_per_month, expected_month(plan, hours, hours + 168, Decimal(0)))
    assert plan.choice is not None
    gib = sum(Decimal(item.size_bytes * item.count) / 2**30 for item in plan.storage if item.kind != "local")
    run = (machine_price(plan) + Decimal("0.005")) * plan.choice.instances * hours
    near(plan.cost.run_usd, run + gib * Decimal("0.08") * hours / MONTH)


def test_a_run_on_spot_with_its_rework(plan_of: Callable[..., Plan], finetune: Callable[..., Any]) -> None:
    """The middle of the advisor's band as a hazard; each interruption loses half an interval and a start."""
    spec = timed(
        finetune,
        "60h",
        placement={"clouds": ["aws"], "capacity": "spot", "instance_types": ["g6e.xlarge"], "regions": ["us-east-1"]},
        training={"checkpoint": {"every": "1h", "resumable": True}},
    )
    plan = plan_of(spec)
    cost, choice = plan.cost, plan.choice
    assert cost is not None
    assert choice is not None
    assert cost.spot is not None
    band = next(
        row
        for row in table("spot_interruption.csv")
        if (row["instance_type"], row["region"]) == (choice.instance_type, choice.region)
    )
    share = (float(band["interruption_pct_low"]) + float(band["interruption_pct_high"])) / 200
    assert cost.spot.interruption_rate == share
    hazard = -math.log(1 - share) / 730
    assert cost.spot.lost_hours_each is not None
    lost = cost.spot.lost_hours_each
    assert plan.outlook is not None
    assert plan.outlook.start is not None
    assert lost == pytest.approx(0.5 + plan.outlook.start.usual_s / 3600, abs=0.001)
    stretch = 1 / (1 - hazard * lost)
    price = machine_price(plan)
    assert cost.spot.expected_rework_usd is not None
    assert abs(float(cost.spot.expected_rework_usd) - float(price) * 60 * (stretch - 1)) < 0.001
    on_demand = Decimal("1.861")
    assert cost.spot.breakeven is not None
    assert float(cost.spot.breakeven) == pytest.approx((1 - float(price / on_demand)) / lost, rel=0.01)
    saved = float(on_demand) * 60 - float(price) * 60 * stretch
    assert float(cost.spot.saved_usd or 0) == pytest.approx(saved, abs=0.01)
    disks = sum(Decimal(item.size_bytes * item.count) / 2**30 for item in plan.storage if item.kind != "local")
    expected = (float(price) + 0.005) * 60 * stretch + float(disks) * 0.08 * 60 * stretch / 730
    assert float(cost.run_usd or 0) == pytest.approx(expected, abs=0.01)


def test_sub_minute_work_pays_its_minute(plan_of: Callable[..., Plan], batch: Callable[..., Any]) -> None:
    plan = plan_of(batch(inference={"duration": "20s"}, placement={"clouds": ["aws"], "capacity": "on-demand"}))
    assert plan.cost is not None
    (compute,) = (line for line in plan.cost.lines if line.item == "compute" and line.per == "run")
    assert compute.quantity == round(Decimal(60) / 3600, 6)
