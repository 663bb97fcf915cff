"""What the way of the weights to a machine costs: hub, buckets near and far, the NAT gateway."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest

from provisioner.catalog.snapshot import Catalog
from provisioner.planner.plan import BillLine, Plan
from provisioner.planner.transfer import Bucket, way_to

AWS, GCP = ("aws", "us-east-1"), ("gcp", "us-central1")


@pytest.mark.parametrize(
    ("bucket", "machine", "kind", "usd"),
    [
        (Bucket(None, None), AWS, "internet", "0"),
        (Bucket("aws", "us-east-1"), AWS, "same-region", "0"),
        (Bucket("aws", "us-west-2"), AWS, "other-region", "0.02"),
        (Bucket("aws", "us-east-2"), AWS, "other-region", "0.01"),  # a rate of its own between the two
        (Bucket("aws", "af-south-1"), AWS, "other-region", "0.147"),  # the sender's region decides
        (Bucket("gcp", "us-central1"), GCP, "same-region", "0"),
        (Bucket("gcp", "us-east4"), GCP, "other-region", "0.02"),
        (Bucket("gcp", "europe-west4"), GCP, "other-region", "0.05"),
        (Bucket("gcp", "asia-southeast1"), GCP, "other-region", "0.08"),
        (Bucket("gcp", "us-central1"), AWS, "other-cloud", "0.12"),
    ],
)
def test_who_sends_pays(catalog: Catalog, bucket: Bucket, machine: tuple[str, str], kind: str, usd: str) -> None:
    way = way_to(catalog.services, bucket, *machine)
    assert (way.kind, way.is_known) == (kind, True)
    assert (way.tiers[0].price.amount_usd if way.tiers else Decimal(0)) == Decimal(usd)


@pytest.mark.parametrize("bucket", [Bucket("aws", None), Bucket("gcp", None)])
def test_a_bucket_of_unknown_region_has_no_price(catalog: Catalog, bucket: Bucket) -> None:
    assert not way_to(catalog.services, bucket, "aws", "us-east-1").is_known


def lines(plan: Plan, item: str, per: str = "month") -> list[BillLine]:
    assert plan.cost is not None
    return [line for line in plan.cost.lines if (line.item, line.per) == (item, per)]


def pinned(build: Any, **sections: Any) -> Any:
    sections.setdefault("placement", {"instance_types": ["g6e.xlarge"], "regions": ["us-east-1"]})
    return build(**sections)


def test_weights_of_another_region_are_in_the_bill(plan_of, serve) -> None:
    model = {"source": "s3://weights/8b", "source_region": "us-west-2"}
    plan = plan_of(pinned(serve, model=model))
    plain = plan_of(pinned(serve))
    (line,) = lines(plan, "weights-transfer")
    assert line.quantity is not None
    assert Decimal("14.9") < line.quantity < Decimal("15.1")  # 8.03 G parameters of 2 bytes
    assert line.unit_price_usd == Decimal("0.02")
    assert plan.cost.transfer_usd_per_month == line.amount_usd
    assert plan.cost.total_usd_per_month == plain.cost.total_usd_per_month + line.amount_usd
    assert lines(plain, "weights-transfer") == []


def test_a_region_that_is_not_named_is_unknown_said_and_left_out(plan_of, serve) -> None:
    plan = plan_of(pinned(serve, model={"source": "s3://weights/8b"}))
    (line,) = lines(plan, "weights-transfer")
    assert (line.amount_usd, line.in_total) == (None, False)
    assert plan.cost.total_usd_per_month == plan_of(pinned(serve)).cost.total_usd_per_month
    assert any("model.source_region" in warning for warning in plan.warnings)


def test_the_next_cloud_is_dearer_than_the_own(plan_of, serve) -> None:
    model = {"source": "gs://weights/8b", "source_region": "us-central1"}
    plan = plan_of(pinned(serve, model=model))
    assert lines(plan, "weights-transfer")[0].unit_price_usd == Decimal("0.12")


def test_nat_replaces_the_address_and_counts_what_passes(plan_of, serve) -> None:
    """730 h of a gateway at 0.045; 200 GiB of traffic and the weights from the hub at 0.045 each GiB."""
    sections = {"storage": {"egress": "200GiB/month"}, "access": {"internet": "nat"}}
    plan = plan_of(pinned(serve, **sections))
    assert lines(plan, "public-address") == []
    (gateway,) = lines(plan, "nat-gateway")
    assert gateway.amount_usd == Decimal("32.85")
    traffic, weights = lines(plan, "nat-processing")
    assert traffic.amount_usd == 9
    assert weights.note == "weights"
    assert plan.cost.public_ip_usd_per_month == 0
    assert plan.cost.transfer_usd_per_month == gateway.amount_usd + traffic.amount_usd + weights.amount_usd
    assert any("aws.subnets" in warning for warning in plan.warnings)


def test_a_bucket_in_the_region_is_reached_past_the_gateway(plan_of, serve) -> None:
    model = {"source": "s3://weights/8b", "source_region": "us-east-1"}
    named = {"subnets": ["subnet-0123456789abcdef0"]}
    plan = plan_of(pinned(serve, model=model, access={"internet": "nat"}, aws=named))
    assert lines(plan, "nat-processing") == []
    assert not any("aws.subnets" in warning for warning in plan.warnings)


def test_google_bills_the_gateway_by_the_machine(plan_of, serve) -> None:
    placement = {"instance_types": ["g2-standard-8"], "regions": ["us-central1"]}
    few = plan_of(pinned(serve, access={"internet": "nat"}, inference={"replicas": 2}, placement=placement))
    many = plan_of(pinned(serve, access={"internet": "nat"}, inference={"replicas": 40}, placement=placement))
    assert lines(few, "nat-gateway")[0].amount_usd == 730 * 2 * Decimal("0.0014")
    assert lines(many, "nat-gateway")[0].amount_usd == 730 * Decimal("0.044")
