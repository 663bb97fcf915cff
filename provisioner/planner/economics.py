"""The whole bill of an arrangement on an offer: compute, disks, address, traffic, stopped time, spot rework, commitments."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import replace
from decimal import Decimal
from typing import NamedTuple

from provisioner.catalog.offers import Lot
from provisioner.errors import InternalBug
from provisioner.planner.account import ZERO, Account, Origin, Terms, decimal_of
from provisioner.planner.bill_lines import bill_lines, month_of, run_of
from provisioner.planner.commitments import commitment_of, committed_rates
from provisioner.planner.plan import BillLine, Cost, SpotEconomics
from provisioner.planner.spot import breakeven_per_hour
from provisioner.planner.storage import BLOCK_KINDS, SNAPSHOT_SERVICE, round_usd
from provisioner.units import HOURS_PER_MONTH

MILLION = Decimal(10**6)
_DISK = "disk:"
_TRANSFER = frozenset({"nat-gateway", "nat-processing", "weights-transfer"})


class Bill(NamedTuple):
    """The contracted bill, and what spot saves against on-demand in the same region over the run or month, rework counted."""

    cost: Cost
    saved_by_spot_usd: Decimal | None = None


def origin_of(terms: Terms) -> Origin:
    """Whose terms they are.

    Raises:
        InternalBug: the terms are of no account.
    """
    if terms.origin is None:
        raise InternalBug("a bill is asked for of terms that no account made")
    return terms.origin


def bill_of(terms: Terms) -> Bill:
    """The bill that terms add up to; a sum with an unknown term is unknown.

    Raises:
        InternalBug: the terms are of no account.
    """
    origin, ends = origin_of(terms), math.isfinite(terms.known_stretch)
    account, offer = origin.account, origin.offer
    billed = terms if ends else terms._replace(stretch=1.0)
    rule = account.tariff.catalog.billing_rule(offer.cloud, offer.capacity_type)
    run_span = run_of(billed, rule)
    month = bill_lines(billed, origin, month_of(billed, account, rule))
    run = bill_lines(billed, origin, run_span) if run_span else ()
    hourly, disks = _sum([terms.compute, terms.address]), _sum([terms.root, terms.lasting])
    saved = _saved(terms)
    cost = Cost(
        compute_usd_per_hour=terms.compute,
        storage_usd_per_month=_total(month, lambda line: line.item.startswith(_DISK)),
        egress_usd_per_month=terms.egress,
        stopped_usd_per_month=disks if terms.can_stop else terms.lasting,
        total_usd_per_month=_total(month) if ends else None,
        run_usd=_total(run) if run_span and ends else None,
        usd_per_million_tokens=_usd_per_million(terms),
        spot=_spot(terms, saved, account.arrangement.instances),
        public_ip_usd_per_month=_total(month, lambda line: line.item == "public-address"),
        rework_usd_per_month=_rework(month) if terms.risk and ends else None,
        hours_per_month=_short(terms.month_hours),
        run_hours=_short(terms.run_hours),
        transfer_usd_per_month=_total(month, lambda line: line.item in _TRANSFER),
        total_usd_per_hour=None if hourly is None or disks is None else hourly + round_usd(disks / HOURS_PER_MONTH),
        snapshot_usd_per_month=_snapshots(account, offer),
        lines=(*month, *run),
        commitment=commitment_of(terms, account, offer),
    )
    return Bill(cost, saved)


def cost_of_choice(terms: Terms) -> Cost:
    """The cost as the choice shows it: with the contracts that stand beside on-demand."""
    return replace(bill_of(terms).cost, commitments=committed_rates(terms))


def _total(lines: Iterable[BillLine], chosen: Callable[[BillLine], bool] | None = None) -> Decimal | None:
    """Sum of the chosen lines that belong to the total; ``None`` where one of them is unknown."""
    picked = [line for line in lines if line.in_total and (chosen is None or chosen(line))]
    return _sum([line.amount_usd for line in picked])


def _rework(lines: Iterable[BillLine]) -> Decimal | None:
    """Compute that is expected to be done again; ``None`` where nobody knows how often."""
    return _sum(line.amount_usd for line in lines if line.item == "rework")


def _spot(terms: Terms, saved: Decimal | None, machines: int) -> SpotEconomics | None:
    """Interruption rate a month, work expected to be done again over the run (else a month), and the rate at which it is a draw."""
    risk = terms.risk
    if risk is None:
        return None
    again = terms.billed_hours * (terms.known_stretch - 1)
    comparable = terms.compute is not None and terms.on_demand is not None
    each = terms.interruptions_each
    return SpotEconomics(
        interruption_rate=risk.interruption_rate,
        expected_rework_usd=_times(terms.compute, again) if risk.interruption_rate is not None else None,
        breakeven=breakeven_per_hour(terms.compute or ZERO, terms.on_demand or ZERO, risk.lost_hours)
        if comparable
        else None,
        saved_usd=saved,
        expected_interruptions=None if each is None else _short(each * machines),
        lost_hours_each=_short(risk.lost_hours),
    )


def _saved(terms: Terms) -> Decimal | None:
    if terms.risk is None or terms.compute is None or terms.on_demand is None or not math.isfinite(terms.stretch):
        return None
    hours = terms.billed_hours
    return round_usd(terms.on_demand * decimal_of(hours) - terms.compute * decimal_of(hours * terms.stretch))


def _snapshots(account: Account, offer: Lot) -> Decimal | None:
    """A month of all block disks as snapshots, each as large as its disk: snapshots hold used blocks only, so it is a ceiling."""
    price = account.tariff.disk(offer.cloud, SNAPSHOT_SERVICE.get(offer.cloud), offer.region)
    if price is None:
        return None
    sizes = (disk.total_gib for disk in account.disks if disk.kind in BLOCK_KINDS)
    return round_usd(sum(sizes, ZERO) * price.amount_usd)


def _usd_per_million(terms: Terms) -> Decimal | None:
    """Compute per million tokens generated at full load, or trained; ``None`` where the rate is unknown or not in tokens."""
    rate, stretch = terms.tokens_per_hour, terms.known_stretch
    if not rate or terms.compute is None or not math.isfinite(stretch):
        return None
    return round_usd(terms.compute * decimal_of(stretch) / Decimal(f"{rate:.6g}") * MILLION)


def _sum(amounts: Iterable[Decimal | None]) -> Decimal | None:
    """A sum, or ``None`` where a part is unknown."""
    total = ZERO
    for amount in amounts:
        if amount is None:
            return None
        total += amount
    return total


def _times(price: Decimal | None, hours: float) -> Decimal | None:
    return None if price is None or not math.isfinite(hours) else round_usd(price * decimal_of(hours))


def _short(value: float | None) -> float | None:
    """Hours as a plan prints them."""
    return None if value is None else round(value, 3)
