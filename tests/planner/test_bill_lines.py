"""Bills as sums of lines: the sums hold, each line can be multiplied by hand, and time is billed as the cloud counts it."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from provisioner.catalog.prices import Price, PriceTier, tiered_cost_usd
from provisioner.planner.bill_lines import Item, tier_lines
from provisioner.planner.cost_documents import cost_document, read_cost
from provisioner.planner.plan import Cost, Plan
from provisioner.units import GIB

ITEM = Item("egress", "month", "GiB")


def by_item(cost: Cost, per: str = "month") -> dict[str, Decimal]:
    """Amounts by item, tiers together."""
    found: dict[str, Decimal] = {}
    for line in cost.lines:
        if line.per == per and line.amount_usd is not None:
            found[line.item] = found.get(line.item, Decimal(0)) + line.amount_usd
    return found


SPECS: tuple[tuple[str, dict[str, Any]], ...] = (
    ("serve", {}),
    ("serve", {"storage": {"data": "1TiB", "egress": "30TB/month"}, "inference": {"replicas": 3}}),
    ("serve", {"lifecycle": {"pattern": "bursty", "idle": {"then": "terminate"}}, "storage": {"data": "80GiB"}}),
    ("serve", {"placement": {"capacity": "spot", "clouds": ["gcp"]}}),
    ("batch", {"inference": {"total": "5M tokens"}, "model": {"source": "s3://w/x", "source_region": "eu-west-1"}}),
    ("finetune", {"training": {"checkpoint": {"every": "30m", "resumable": True}}, "access": {"internet": "nat"}}),
    ("finetune", {"placement": {"clouds": ["aws"]}, "storage": {"shared": "2TiB", "checkpoints": "100GiB"}}),
)


@pytest.fixture(scope="module")
def plans(plan_of: Any, serve: Any, batch: Any, finetune: Any) -> list[Plan]:
    builders = {"serve": serve, "batch": batch, "finetune": finetune}
    return [plan_of(builders[task](**sections)) for task, sections in SPECS]


def test_totals_are_the_sums_of_their_lines(plans: list[Plan]) -> None:
    for plan in plans:
        cost = plan.cost
        assert cost is not None
        assert cost.total_usd_per_month == sum(by_item(cost).values())
        if cost.run_hours is not None:
            assert cost.run_usd == sum(by_item(cost, "run").values())
        disks = sum(usd for item, usd in by_item(cost).items() if item.startswith("disk:"))
        assert cost.storage_usd_per_month == disks


def test_each_line_can_be_multiplied_by_hand(plans: list[Plan]) -> None:
    checked = 0
    for plan in plans:
        for line in plan.cost.lines if plan.cost else ():
            if line.amount_usd is None:
                assert not line.in_total
                continue
            assert line.quantity is not None
            assert line.unit_price_usd is not None
            assert round(line.quantity * line.unit_price_usd, 4) == line.amount_usd
            assert line.source
            assert line.as_of
            checked += 1
    assert checked > 40


def test_lines_survive_a_document(plans: list[Plan]) -> None:
    for plan in plans:
        assert plan.cost is not None
        assert read_cost(cost_document(plan.cost)) == plan.cost


@given(
    steps=st.lists(st.tuples(st.integers(1, 500), st.integers(0, 90)), min_size=1, max_size=5),
    units=st.integers(0, 1500),
    is_open=st.booleans(),
)
@settings(max_examples=60)
def test_tier_lines_add_up_to_the_tiered_cost(steps: list[tuple[int, int]], units: int, *, is_open: bool) -> None:
    tiers, start = [], 0
    for number, (width, cents) in enumerate(steps):
        last = is_open and number == len(steps) - 1
        price = Price(Decimal(cents) / 100, "GiB", "r", "s", "2026-11-30", "observed")
        tiers.append(PriceTier(Decimal(start), None if last else Decimal(start + width), price))
        start += width
    lines = tier_lines(ITEM, Decimal(units), tuple(tiers))
    whole = tiered_cost_usd(tiers, Decimal(units))
    assert sum((line.quantity or 0 for line in lines), Decimal(0)) == units
    amounts = [line.amount_usd for line in lines]
    if whole is None:
        assert None in amounts
    else:
        assert sum((each for each in amounts if each is not None), Decimal(0)) == whole


def test_a_machine_that_ends_when_idle_keeps_no_root_disk(plan_of: Any, serve: Any) -> None:
    """120 of 730 hours of 70 GiB at 0.08, against a whole month where it stops."""
    place = {"instance_types": ["g6e.xlarge"], "regions": ["us-east-1"]}
    ends = plan_of(serve(placement=place, lifecycle={"pattern": "bursty", "idle": {"then": "terminate"}})).cost
    stops = plan_of(serve(placement=place, lifecycle={"pattern": "bursty"})).cost
    assert by_item(stops)["disk:root"] == Decimal("5.6")
    assert by_item(ends)["disk:root"] == round(Decimal(70 * 120) / 730 * Decimal("0.08"), 4)
    assert (ends.stopped_usd_per_month, stops.stopped_usd_per_month) == (0, Decimal("5.6"))


def test_a_training_that_stops_is_kept_for_a_while(plan_of: Any, finetune: Any) -> None:
    """20 h of run, then stopped.terminate_after (7 days): 188 of 730 hours of the root disk."""
    document = finetune(
        placement={"instance_types": ["g6e.xlarge"], "regions": ["us-east-1"], "capacity": "on-demand"}
    ).to_document()
    document["training"] = {**document["training"], "duration": "20h"}
    del document["training"]["tokens"]
    cost = plan_of(type(finetune()).from_document(document)).cost
    (root,) = (line for line in cost.lines if line.item == "disk:root" and line.per == "month")
    gib = 70
    assert root.quantity == round(Decimal(gib) * 188 / 730, 6)


def test_shared_file_systems_come_in_sizes(plan_of: Any, finetune: Any) -> None:
    """2 TiB is sold as 2,400 GiB, 1 GiB as 1,200; 0.145 USD a GiB-month."""
    place = {"instance_types": ["g6e.12xlarge"], "regions": ["us-east-1"]}
    large = plan_of(finetune(placement=place, storage={"shared": "2TiB"}))
    small = plan_of(finetune(placement=place, storage={"shared": "1GiB"}))
    assert by_item(large.cost)["disk:shared"] == 348
    assert by_item(small.cost)["disk:shared"] == 174
    assert next(item.size_bytes for item in large.storage if item.kind == "shared") == 2400 * GIB
    assert any("shared file system" in warning for warning in large.warnings)


def test_checkpoints_that_pile_up_are_said(plan_of: Any, finetune: Any) -> None:
    spec = finetune(training={"tokens": "2B", "checkpoint": {"every": "30m", "resumable": True}})
    (note,) = (warning for warning in plan_of(spec).warnings if "checkpoints of" in warning)
    assert "has room for" in note
    assert "a month" in note


def test_google_spot_addresses_cost_half(plan_of: Any, serve: Any) -> None:
    place = {"instance_types": ["g2-standard-8"], "regions": ["us-central1"]}
    spot = plan_of(serve(placement={**place, "capacity": "spot"})).cost
    listed = plan_of(serve(placement=place)).cost
    assert 2 * by_item(spot)["public-address"] == by_item(listed)["public-address"] == Decimal("3.65")


def test_an_hour_holds_everything_that_runs(plan_of: Any, serve: Any) -> None:
    place = {"instance_types": ["g6e.xlarge"], "regions": ["us-east-1"]}
    cost = plan_of(serve(placement=place)).cost
    assert cost.total_usd_per_hour == cost.compute_usd_per_hour + Decimal("0.005") + round(Decimal("5.6") / 730, 4)


def test_an_unknown_price_is_no_advantage(plan_of: Any, finetune: Any) -> None:
    """No price is known for a shared file system on Google Cloud: it ranks at AWS's, and its total stays unknown."""
    spec = finetune(storage={"shared": "100TiB"}, placement={"capacity": "on-demand"})
    plan = plan_of(spec)
    assert plan.choice.cloud == "aws"
    google = plan_of(finetune(storage={"shared": "1TiB"}, placement={"clouds": ["gcp"]}))
    assert google.choice is not None
    assert (google.cost.total_usd_per_month, google.cost.storage_usd_per_month) == (None, None)
    (shared,) = (line for line in google.cost.lines if (line.item, line.per) == ("disk:shared", "month"))
    assert (shared.quantity, shared.amount_usd, shared.in_total) == (1024, None, True)


def test_p7_i14_snapshots_instead_of_stopped_disks(plan_of: Any, serve: Any) -> None:
    """P7: what stays while stopped, and the same 170 GiB as snapshots at 0.05."""
    place = {"instance_types": ["g6e.xlarge"], "regions": ["us-east-1"]}
    cost = plan_of(serve(placement=place, storage={"data": "100GiB"}, lifecycle={"pattern": "bursty"})).cost
    assert cost.stopped_usd_per_month == Decimal("13.6")
    assert cost.snapshot_usd_per_month == Decimal("8.5")


def test_p9_disks_hold_weights_and_checkpoints(plan_of: Any, finetune: Any) -> None:
    """P9: 141 GB of weights and room for them, 50 GiB of system, two checkpoints."""
    spec = finetune(
        model={"id": "meta-llama/Llama-3.1-70B-Instruct"},
        training={"method": "qlora", "checkpoint": {"every": "1h", "resumable": True}},
    )
    plan = plan_of(spec)
    sizes = {item.kind: item.size_bytes for item in plan.storage}
    assert sizes["root"] >= 50 * GIB + 1.2 * 141e9
    assert sizes["checkpoints"] >= 10 * GIB


def test_p10_a_root_disk_is_never_below_an_image(plan_of: Any, serve: Any) -> None:
    """P10: the largest snapshot of a deep-learning image is 45 GiB; a root disk starts at 50 and holds the weights besides."""
    plan = plan_of(serve(model={"id": "Qwen/Qwen2.5-0.5B-Instruct", "weights": "bf16"}))
    assert next(item.size_bytes for item in plan.storage if item.kind == "root") >= 50 * GIB
