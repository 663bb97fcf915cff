"""What is bought ahead: contracts beside on-demand with their break-even, capacity blocks with days and fee."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest

from provisioner.planner.candidates import Sizer
from provisioner.planner.economics import bill_of, cost_of_choice
from provisioner.planner.tariff import Tariff
from provisioner.vocabulary import CapacityType, Fit

G2 = {"instance_types": ["g2-standard-8"], "regions": ["us-central1"]}


@pytest.fixture
def terms_of(request_of: Any, catalog: Any) -> Any:
    """Terms of a workload on an offer."""

    def build(workload: Any, offer: Any) -> Any:
        request = request_of(workload)
        arrangements = Sizer(request).arrangements(offer.instance, catalog.gpus[offer.instance.gpu_model], tuple(Fit))
        return Tariff(request, catalog, lambda *_: None).account(next(arrangements)).terms(offer)

    return build


def test_contracts_beside_a_steady_endpoint(plan_of: Any, serve: Any, catalog: Any) -> None:
    cost = plan_of(serve(placement=G2)).cost
    rates = catalog.commitments("gcp", "g2-standard-8", "us-central1")
    assert [rate.years for rate in cost.commitments] == [1, 3]
    for rate, name in zip(cost.commitments, ("commit_1y", "commit_3y"), strict=True):
        assert rate.usd_per_hour == rates[name].amount_usd
        assert rate.usd_per_month == round(rates[name].amount_usd * 730, 4)
        assert rate.saved_usd_per_month == round(730 * cost.compute_usd_per_hour, 4) - rate.usd_per_month
        expected = float(rates[name].amount_usd / cost.compute_usd_per_hour) * 730
        assert rate.breakeven_hours_per_month == pytest.approx(expected, abs=0.05)
        assert rate.as_of == "2026-07-30"


def test_hours_from_which_a_contract_is_cheaper(plan_of: Any, serve: Any) -> None:
    """At the break-even both cost the same; below it on-demand is cheaper."""
    hours = plan_of(serve(placement=G2)).cost.commitments[0].breakeven_hours_per_month
    few = plan_of(serve(placement=G2, lifecycle={"hours_per_month": hours - 20})).cost.commitments[0]
    many = plan_of(serve(placement=G2, lifecycle={"hours_per_month": hours + 20})).cost.commitments[0]
    assert few.saved_usd_per_month < 0 < many.saved_usd_per_month


def test_without_a_row_the_price_is_unknown(plan_of: Any, serve: Any) -> None:
    rates = plan_of(serve(placement={"instance_types": ["g6e.xlarge"]})).cost.commitments
    assert [(rate.years, rate.usd_per_hour, rate.breakeven_hours_per_month) for rate in rates] == [
        (1, None, None),
        (3, None, None),
    ]


def test_other_tasks_and_markets_have_none(plan_of: Any, serve: Any, finetune: Any) -> None:
    assert plan_of(finetune()).cost.commitments == ()
    assert plan_of(serve(placement={**G2, "capacity": "spot"})).cost.commitments == ()


def test_a_contract_covers_all_machines(plan_of: Any, serve: Any, catalog: Any) -> None:
    cost = plan_of(serve(placement=G2, inference={"replicas": 3})).cost
    one = catalog.commitments("gcp", "g2-standard-8", "us-central1")["commit_1y"].amount_usd
    assert cost.commitments[0].usd_per_hour == 3 * one


def test_a_contract_has_the_disks_that_its_row_leaves_out(catalog: Any) -> None:
    """a2-megagpu-16g has optional disks: none is added; the rows of A3 hold theirs."""
    rows = catalog.commitments("gcp", "a3-highgpu-8g", "us-central1")
    assert rows["commit_1y"].amount_usd == Decimal("61.3837")
    assert catalog.commitments("gcp", "a2-highgpu-1g", "us-central1")["commit_1y"].amount_usd == Decimal("2.31421")


def test_a_block_is_whole_days_paid_ahead(terms_of: Any, finetune: Any, offer: Any) -> None:
    """A run of 30 h takes a block of 2 days: 48 h at 39.33 USD, whether used or not."""
    document = finetune(training={"method": "full"}).to_document()
    document["training"] = {**document["training"], "duration": "30h"}
    del document["training"]["tokens"]
    spec = type(finetune()).from_document(document)
    block = offer("p5.48xlarge", "39.33", capacity_type=CapacityType.CAPACITY_BLOCK)
    cost = bill_of(terms_of(spec, block)).cost
    assert (cost.commitment.kind, cost.commitment.days) == ("capacity-block", 2)
    assert cost.commitment.upfront_usd == 48 * Decimal("39.33")
    assert cost.commitment.start is None
    (compute,) = (line for line in cost.lines if line.item == "compute" and line.per == "run")
    assert compute.quantity == 48
    (month,) = (line for line in cost.lines if line.item == "compute" and line.per == "month")
    assert month.quantity == 48
    (address,) = (line for line in cost.lines if line.item == "public-address" and line.per == "run")
    assert address.quantity == 30  # the machine's own hours, whatever the block has


def test_a_block_for_work_of_unknown_length_has_no_fee(terms_of: Any, serve: Any, offer: Any) -> None:
    block = offer("p5.48xlarge", "39.33", capacity_type=CapacityType.CAPACITY_BLOCK)
    ahead = bill_of(terms_of(serve(), block)).cost.commitment
    assert (ahead.days, ahead.upfront_usd) == (None, None)


def test_a_block_of_unknown_price_has_no_fee(terms_of: Any, finetune: Any, offer: Any) -> None:
    block = offer("p5.48xlarge", None, capacity_type=CapacityType.CAPACITY_BLOCK)
    cost = bill_of(terms_of(finetune(), block)).cost
    assert cost.commitment.days == 1
    assert cost.commitment.upfront_usd is None
    assert cost.run_usd is None


def test_flex_start_is_billed_by_use(terms_of: Any, finetune: Any, offer: Any) -> None:
    flex = offer("a3-highgpu-8g", "40.00", capacity_type=CapacityType.FLEX_START)
    cost = cost_of_choice(terms_of(finetune(training={"method": "full"}), flex))
    assert (cost.commitment.kind, cost.commitment.upfront_usd) == ("flex-start", 0)
    assert cost.commitments == ()


def test_unknown_prices_ahead_are_compared_by_those_on_demand(plan_of: Any, finetune: Any) -> None:
    """No block has a known price: the type that costs less on demand comes first, and its own price stays unknown."""
    spec = finetune(training={"method": "full"}, placement={"capacity": "reserved", "clouds": ["aws"]})
    plan = plan_of(spec)
    assert (plan.choice.capacity_type, plan.choice.price_usd_per_hour) == ("capacity-block", None)
    assert plan.cost.run_usd is None
    assert any("by their prices on demand" in reason for reason in plan.choice.reasons)


def test_flex_start_ends_after_a_week(plan_of: Any, finetune: Any) -> None:
    spec = finetune(training={"method": "full"}, placement={"capacity": "reserved", "clouds": ["gcp"]})
    document = spec.to_document()
    training = {key: value for key, value in document["training"].items() if key != "tokens"}
    long = type(spec).from_document({**document, "training": {**training, "duration": "200h"}})
    assert any("after 168 h" in warning for warning in plan_of(long).warnings)
    assert not any("after 168 h" in warning for warning in plan_of(spec).warnings)
