"""Capacity that is bought ahead: what a block or a flex-start binds to, and one- and three-year contracts beside on-demand."""

from __future__ import annotations

import math
from collections.abc import Iterator

from provisioner.catalog.billing import BillingRule
from provisioner.catalog.codes import STALE
from provisioner.catalog.offers import Lot
from provisioner.planner.account import ZERO, Account, Origin, Terms, decimal_of
from provisioner.planner.bill_lines import billed_hours, block_days
from provisioner.planner.plan import Commitment, CommittedRate
from provisioner.planner.storage import round_usd
from provisioner.units import HOURS_PER_MONTH
from provisioner.vocabulary import CapacityType

CONTRACT_YEARS = (1, 3)
FLEX_START_HOURS_MAX = 7 * 24
"""Longest run of a flex-start machine. Source: data billing_rules.csv, ``flex_start``."""
_TERMS = {
    CapacityType.CAPACITY_BLOCK: "paid at the purchase for whole days, used or not; no cancelling; starts up to 8 weeks ahead "
    "and ends at 11:30 UTC, machines from 30 min before",
    CapacityType.FLEX_START: "queued until the capacity is there, then runs up to 7 days; billed by use, and may end early",
    CapacityType.RESERVED: "the whole reservation is billed, used or not; start and end are fixed at booking",
}


def commitment_of(terms: Terms, account: Account, offer: Lot) -> Commitment | None:
    """What buying this offer binds to; ``None`` for on-demand and spot.

    Days are those of the run; where its length is unknown, so are they and the fee.
    """
    kind, catalog = offer.capacity_type, account.tariff.catalog
    if kind not in _TERMS:
        return None
    start = catalog.block_start(offer) if kind is CapacityType.CAPACITY_BLOCK else None
    if kind is CapacityType.FLEX_START:
        return Commitment(str(kind), None, None, ZERO, _TERMS[kind])
    days = _days(terms.run_hours, catalog.billing_rule(offer.cloud, kind))
    fee = None if days is None or terms.compute is None else round_usd(terms.compute * 24 * days)
    return Commitment(str(kind), start, days, fee, _TERMS[kind])


def _days(run_hours: float | None, rule: BillingRule | None) -> int | None:
    """Whole days that a run pays for; ``None`` where its length is unknown, or none is sold that long."""
    if run_hours is None or rule is None:
        return None
    if rule.purchase_model == "capacity_block":
        return block_days(run_hours)
    return max(1, math.ceil(round(billed_hours(run_hours, rule) / 24, 6)))


def committed_rates(terms: Terms) -> tuple[CommittedRate, ...]:
    """Contracts of one and three years for an endpoint on demand, without a price where none is known; else none.

    A contract is paid for 730 hours a month, used or not, and so breaks even at that share of them that its price is of
    on-demand's.
    """
    origin = terms.origin
    if origin is None or not terms.is_endpoint or origin.offer.capacity_type is not CapacityType.ON_DEMAND:
        return ()
    return tuple(_rates(terms, origin))


def _rates(terms: Terms, origin: Origin) -> Iterator[CommittedRate]:
    offer, machines = origin.offer, origin.account.arrangement.instances
    known = origin.account.tariff.catalog.commitments(offer.cloud, offer.instance.name, offer.region)
    for years in CONTRACT_YEARS:
        price = known.get(f"commit_{years}y")
        if price is None or STALE in price.suspect:
            yield CommittedRate(years, None, None, None, None, price.as_of if price else None)
            continue
        hourly = price.amount_usd * machines
        month = round_usd(hourly * HOURS_PER_MONTH)
        on_demand, saved, even = terms.compute, None, None
        if on_demand:
            saved = round_usd(on_demand * decimal_of(terms.month_hours)) - month
            share = hourly / on_demand
            even = round(float(share) * HOURS_PER_MONTH, 1) if share < 1 else None
        yield CommittedRate(years, hourly, month, saved, even, price.as_of, price.source)
