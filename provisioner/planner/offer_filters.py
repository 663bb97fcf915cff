"""Filters of offers (capacity type, price) and of whole bills (budget, deadline), in the order in which they are asked."""

from __future__ import annotations

import math
from decimal import Decimal

from provisioner.catalog import codes
from provisioner.catalog.offers import Lot
from provisioner.catalog.snapshot import Catalog
from provisioner.planner.account import Terms
from provisioner.planner.filters import Refusal
from provisioner.planner.ranking import Candidate
from provisioner.planner.request import Request
from provisioner.planner.spot import intolerance
from provisioner.planner.work import has_known_work
from provisioner.units import HOURS_PER_MONTH, decimal_string
from provisioner.vocabulary import CapacityType

COMMITMENTS = (CapacityType.RESERVED, CapacityType.CAPACITY_BLOCK, CapacityType.FLEX_START)
"""Capacity with a start, an end and a fee."""


def capacity(request: Request, offer: Lot, *, is_cluster: bool = False) -> Refusal | None:
    """The capacity type asked for, or what ``auto`` may take for this task.

    ``is_cluster``: several instances work as one. All must be free at the same moment, and losing one stops all: ``auto`` then
    looks at commitments beside on-demand, and at no spot.
    """
    asked, kind = request.requirements.capacity, offer.capacity_type
    if asked == "auto" and is_cluster:
        if kind is not CapacityType.SPOT:
            return None
        reason = "no spot by auto: several instances work as one, and losing any of them stops all"
        return Refusal("capacity", reason, "reserved or on-demand", "spot")
    if asked == "auto":
        if kind in COMMITMENTS:
            return Refusal(
                "capacity",
                "a commitment with a start and an end is never taken by auto",
                "capacity: reserved",
                str(kind),
            )
        if kind is CapacityType.SPOT and (why := intolerance(request.workload)):
            return Refusal("capacity", f"no spot by auto: {why}", "on-demand", "spot")
        return None
    matches = kind in COMMITMENTS if asked == "reserved" else kind == asked
    return None if matches else Refusal("capacity", "not the capacity type asked for", asked, str(kind))


def quota(catalog: Catalog, offer: Lot, instances: int) -> Refusal | None:
    """A quota of the account that is known and too small for all instances; one that is unknown refuses nothing."""
    need = catalog.quota_need(offer.instance, offer.capacity_type)
    limit = catalog.account_quota(offer.cloud, offer.region, need.quota.code) if need else None
    if need is None or limit is None or need.units * instances <= limit.limit:
        return None
    return Refusal(
        "quota",
        f"the account's quota {need.quota.code} ({need.quota.name}) in {offer.region}, read on {limit.as_of}, is too small",
        f"{need.units * instances:g} {need.quota.unit}",
        f"{limit.limit:g} {need.quota.unit}",
    )


def excluded(catalog: Catalog, offer: Lot) -> Refusal:
    """Offers that the catalog keeps aside: not sold in this way, not offered there, or at a price that is no price of theirs."""
    code = offer.codes[0]
    name = "offered" if code in (codes.NOT_OFFERED, "not_offered_2026_10") else "purchasable"
    return Refusal(name, catalog.explain_code(code), str(offer.capacity_type), code)


def price_known(offer: Lot) -> Refusal | None:
    """An unknown price keeps no limit, and is chosen only where every other price is unknown too."""
    if offer.price_usd_per_hour is not None:
        return None
    reason = f"price unknown: the last one, of {offer.price_as_of}, is stale" if offer.price_as_of else "price unknown"
    return Refusal("price-unknown", reason, "a price", None)


def max_price(request: Request, offer: Lot, instances: int) -> Refusal | None:
    """``placement.max_price``: compute of the whole workload."""
    limit, price = request.requirements.max_price_usd_per_hour, offer.price_usd_per_hour
    if limit is None or price is None or price * instances <= limit:
        return None
    return Refusal(
        "max-price",
        "compute costs more than placement.max_price",
        f"{decimal_string(limit)} USD/h",
        f"{decimal_string(price * instances)} USD/h",
    )


def spot_is_cheaper(spot_price: Decimal, on_demand_price: Decimal | None) -> Refusal | None:
    """Spot at or above on-demand means no spare capacity, and buys nothing."""
    if on_demand_price is None or spot_price < on_demand_price:
        return None
    return Refusal(
        "spot-not-cheaper",
        "spot costs as much as on-demand: no spare capacity",
        f"below {decimal_string(on_demand_price)} USD/h",
        f"{decimal_string(spot_price)} USD/h",
    )


CLEARLY = 1.1
"""Bills that an estimate puts further than this from a budget are not made line by line: thousands of offers are looked at."""
_BILL_OF: dict[str | None, str] = {"run": "run_usd", "month": "total_usd_per_month"}
_OVER_BUDGET = "the whole bill ({}) is over placement.budget"


def estimate_usd(terms: Terms, per: str | None) -> float | None:
    """The bill of a run or month to about a percent, cheaply; ``None`` where a term of it is unknown.

    What it leaves out are whole hours and days that clouds bill, and rounding; ``bill_of`` has them.
    """
    hours = terms.run_hours if per == "run" else terms.month_hours
    if hours is None or terms.unknown or not terms.known_stretch or not math.isfinite(terms.known_stretch):
        return None
    known = [terms.compute, terms.address, terms.egress, terms.passing, terms.storage, terms.root, terms.lasting]
    compute, address, egress, passing, storage, root, lasting = (float(amount or 0) for amount in known)
    hourly = (compute + address) * hours * terms.known_stretch
    fetched = float(terms.fetch or 0) * (1 + (terms.interruptions_each or 0.0))
    if per == "run":
        return hourly + fetched + (egress + passing + root + lasting) * hours / HOURS_PER_MONTH
    return hourly + fetched + egress + passing + storage


def budget(request: Request, candidate: Candidate) -> Refusal | None:
    """``placement.budget``: the whole bill of a month or of the run; an unknown part cannot be shown to be under it."""
    limit = request.requirements.budget
    if limit is None:
        return None
    about = estimate_usd(candidate.terms, limit.per)
    if about is not None and about <= float(limit.amount_usd) / CLEARLY:
        return None
    if about is not None and about >= float(limit.amount_usd) * CLEARLY:
        return Refusal("budget", _OVER_BUDGET.format(_BILL_OF[limit.per]), str(limit), f"{about:.2f} USD/{limit.per}")
    cost, unknown = candidate.bill.cost, candidate.terms.unknown
    amount = cost.run_usd if limit.per == "run" else cost.total_usd_per_month
    if amount is None:
        why = f"price of {', '.join(unknown)} unknown" if unknown else "the length of the run is unknown"
        return Refusal("budget", f"the whole bill cannot be shown to be in placement.budget: {why}", str(limit), None)
    if amount <= limit.amount_usd:
        return None
    return Refusal(
        "budget",
        _OVER_BUDGET.format(_BILL_OF[limit.per]),
        str(limit),
        f"{decimal_string(amount)} USD/{limit.per}",
    )


def deadline(request: Request, candidate: Candidate) -> Refusal | None:
    """``placement.deadline``, against the predicted length; spot must bear one interruption more than expected.

    A workload that does not say how much work it has is not refused: the plan warns that its deadline is unchecked. By ``auto``
    it gets no spot, whose delays nobody could judge.
    """
    limit, hours = request.requirements.deadline_hours, candidate.terms.expected_run_hours
    if limit is None:
        return None
    spot = candidate.offer.capacity_type is CapacityType.SPOT
    if hours is None:
        if has_known_work(request.workload):
            return Refusal("deadline", "its speed cannot be predicted", f"{limit:g} h", None)
        if spot and request.requirements.capacity == "auto":
            return Refusal(
                "deadline",
                "no spot by auto: the length of the run is unknown, and there is a deadline",
                f"{limit:g} h",
                None,
            )
        return None
    needed = hours + candidate.terms.lost_hours
    if needed <= limit:
        return None
    what = "predicted run with interruptions is too long" if spot else "predicted run is too long"
    return Refusal("deadline", what, f"{limit:g} h", f"{needed:.1f} h" if math.isfinite(needed) else "no end")


def spot_progress(candidate: Candidate) -> Refusal | None:
    """Interruptions come faster than the work goes on."""
    if math.isfinite(candidate.terms.stretch):
        return None
    return Refusal("spot-rework", "interruptions would undo the work faster than it is done", None, None)


def refuse_bill(request: Request, candidate: Candidate) -> Refusal | None:
    """The first filter of the whole bill that a candidate fails."""
    return budget(request, candidate) or deadline(request, candidate) or spot_progress(candidate)
