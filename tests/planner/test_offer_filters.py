"""Filters of offers and bills: what they keep, what they refuse, their boundary, and what they do with unknown."""

from __future__ import annotations

import math
from dataclasses import replace
from decimal import Decimal
from typing import Any

import pytest

from provisioner.planner import offer_filters as filters
from provisioner.planner.account import Terms
from provisioner.planner.candidates import Arrangement, Sizer
from provisioner.planner.economics import Bill
from provisioner.planner.plan import Cost
from provisioner.planner.ranking import Candidate
from provisioner.planner.search import Market, search
from provisioner.planner.spot import SpotRisk
from provisioner.units import parse_money
from provisioner.vocabulary import CapacityType, Fit

EMPTY_COST = Cost(None, None, None, None, None, None, None, None)
TERMS = Terms(
    compute=Decimal(1),
    on_demand=Decimal(1),
    address=Decimal(0),
    storage=Decimal(0),
    lasting=Decimal(0),
    egress=Decimal(0),
    run_hours=None,
    month_hours=120.0,
    tokens_per_hour=None,
    is_endpoint=False,
    can_stop=True,
    risk=None,
    stretch=1.0,
    stand_ins=(),
)


@pytest.fixture
def arranged(request_of, catalog):
    """The smallest fitting arrangement of a workload on an instance type, with its request."""

    def build(workload, name) -> tuple[Any, Arrangement]:
        request = request_of(workload)
        instance = catalog.instances["gcp" if ("gcp", name) in catalog.instances else "aws", name]
        return request, next(Sizer(request).arrangements(instance, catalog.gpus[instance.gpu_model], (Fit.FITS,)))

    return build


@pytest.mark.parametrize(
    ("capacity", "kind", "kept"),
    [
        ("auto", CapacityType.ON_DEMAND, True),
        ("auto", CapacityType.SPOT, False),
        ("auto", CapacityType.CAPACITY_BLOCK, False),
        ("spot", CapacityType.SPOT, True),
        ("spot", CapacityType.ON_DEMAND, False),
        ("on-demand", CapacityType.SPOT, False),
        ("reserved", CapacityType.CAPACITY_BLOCK, True),
        ("reserved", CapacityType.FLEX_START, True),
        ("reserved", CapacityType.ON_DEMAND, False),
    ],
)
def test_capacity_of_an_endpoint(request_of, serve, offer, capacity, kind, kept):  # noqa: PLR0917 - fixtures and parameters
    request = request_of(serve(placement={"capacity": capacity}))
    refusal = filters.capacity(request, offer("g6.xlarge", capacity_type=kind))
    assert (refusal is None) is kept


def test_capacity_auto_lets_resumable_training_have_spot(request_of, finetune, offer):
    spot = offer("g6.xlarge", capacity_type=CapacityType.SPOT)
    assert (
        filters.capacity(request_of(finetune(training={"checkpoint": {"every": "30m", "resumable": True}})), spot)
        is None
    )
    refusal = filters.capacity(request_of(finetune()), spot)
    assert "no resumable checkpoint" in refusal.reason


def test_price_known(offer):
    assert filters.price_known(offer("g6.xlarge")) is None
    assert filters.price_known(offer("g6.xlarge", None, price_as_of=None)).reason == "price unknown"
    assert "2024-12-01" in filters.price_known(offer("g6.xlarge", None, price_as_of="2024-12-01")).reason


@pytest.mark.parametrize(("instances", "kept"), [(1, True), (2, True), (3, False)])
def test_max_price_is_of_all_instances(request_of, serve, offer, instances, kept):
    request = request_of(serve(placement={"max_price": "2 USD/h"}))
    refusal = filters.max_price(request, offer("g6.xlarge", "1.00"), instances)
    assert (refusal is None) is kept
    if refusal:
        assert (refusal.needed, refusal.available) == ("2 USD/h", "3 USD/h")


@pytest.mark.parametrize(
    ("spot", "on_demand", "kept"),
    [("0.99", "1.00", True), ("1.00", "1.00", False), ("1.50", "1.00", False), ("1.50", None, True)],
)
def test_p5_spot_must_be_cheaper(spot, on_demand, kept):
    refusal = filters.spot_is_cheaper(Decimal(spot), Decimal(on_demand) if on_demand else None)
    assert (refusal is None) is kept


@pytest.fixture
def candidate(arranged, finetune, offer):
    """A candidate with made-up terms or costs."""

    def build(kind=CapacityType.ON_DEMAND, cost: Cost | None = None, **terms: Any) -> Candidate:
        _, arrangement = arranged(finetune(), "g6e.xlarge")
        sold = offer("g6e.xlarge", capacity_type=kind)
        made = Candidate(arrangement, sold, TERMS._replace(**terms))
        if cost is not None:
            made.__dict__["bill"] = Bill(cost)
        return made

    return build


@pytest.mark.parametrize(
    ("budget", "cost", "kept"),
    [
        ("100 USD/month", {"total_usd_per_month": Decimal(100)}, True),
        ("100 USD/month", {"total_usd_per_month": Decimal("100.01")}, False),
        ("100 USD/month", {"total_usd_per_month": None}, False),
        ("100 USD/run", {"run_usd": Decimal(100), "total_usd_per_month": Decimal(900)}, True),
        ("100 USD/run", {"run_usd": Decimal(101)}, False),
        ("100 USD/run", {"run_usd": None}, False),
    ],
)
def test_budget_is_the_whole_bill(request_of, finetune, candidate, budget, cost, kept):  # noqa: PLR0917 - fixtures and parameters
    request = request_of(finetune(placement={"budget": budget}))
    assert request.requirements.budget == parse_money(budget)
    assert (filters.budget(request, candidate(cost=replace(EMPTY_COST, **cost), month_hours=100.0)) is None) is kept


@pytest.mark.parametrize(
    ("kind", "hours", "lost", "kept"),
    [
        (CapacityType.ON_DEMAND, 10.0, 0.0, True),
        (CapacityType.ON_DEMAND, 10.1, 0.0, False),
        (CapacityType.SPOT, 9.5, 0.5, True),
        (CapacityType.SPOT, 9.6, 0.5, False),
    ],
)
def test_deadline_bears_one_interruption_more(request_of, finetune, candidate, kind, hours, lost, kept):  # noqa: PLR0917 - fixtures and parameters
    request = request_of(finetune(placement={"deadline": "10h"}))
    refusal = filters.deadline(request, candidate(kind, run_hours=hours, risk=SpotRisk(0.0, lost) if lost else None))
    assert (refusal is None) is kept


def test_deadline_of_unknown_length(request_of, finetune, candidate):
    known = request_of(finetune(placement={"deadline": "10h"}))
    assert filters.deadline(known, candidate()).reason == "its speed cannot be predicted"
    document = finetune(placement={"deadline": "10h"}, training={"checkpoint": {"resumable": True}}).to_document()
    del document["training"]["tokens"]
    unknown = request_of(type(finetune()).from_document(document))
    assert filters.deadline(unknown, candidate()) is None
    assert filters.deadline(unknown, candidate(CapacityType.SPOT)).filter == "deadline"


def test_endless_spot_is_refused(request_of, finetune, candidate):
    request = request_of(finetune())
    assert filters.refuse_bill(request, candidate(stretch=math.inf)).filter == "spot-rework"
    assert filters.refuse_bill(request, candidate()) is None


@pytest.mark.parametrize("capacity", ["spot", "on-demand"])
@pytest.mark.parametrize("task", ["serve", "finetune"])
def test_the_estimate_that_spares_bills_is_within_a_percent_of_them(request, catalog, request_of, capacity, task):
    workload = request.getfixturevalue(task)(
        storage={"data": "200GiB", "egress": "300GB/month"}, placement={"capacity": capacity}
    )
    found = search(request_of(workload), Market(catalog)).candidates[::37]
    assert len(found) > 10
    for candidate in found:
        for per, bill in (("run", candidate.bill.cost.run_usd), ("month", candidate.bill.cost.total_usd_per_month)):
            estimate = filters.estimate_usd(candidate.terms, per)
            assert (estimate is None) == (bill is None)
            if bill is not None:
                assert estimate == pytest.approx(float(bill), rel=0.01)


def test_an_estimate_never_decides_near_the_budget(serve, plan_of):
    free = plan_of(serve())
    bill = free.cost.total_usd_per_month
    assert plan_of(serve(placement={"budget": f"{bill:.4f} USD/month"})).choice.key == free.choice.key
    short = plan_of(serve(placement={"budget": f"{bill - Decimal('0.01'):.4f} USD/month"}))
    assert short.choice is None or short.choice.key != free.choice.key
