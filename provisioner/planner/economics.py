"""The whole bill of an arrangement on an offer: compute, disks, address, traffic, stopped time, spot rework."""

from __future__ import annotations

import math
from decimal import Decimal
from typing import NamedTuple

from provisioner.planner.plan import Cost, SpotEconomics
from provisioner.planner.spot import breakeven_per_hour
from provisioner.planner.storage import round_usd
from provisioner.planner.tariff import ZERO, Terms
from provisioner.units import HOURS_PER_MONTH

MILLION = Decimal(10**6)


class Bill(NamedTuple):
    """The contracted bill, and what spot saves against on-demand in the same region over the run or month, rework counted."""

    cost: Cost
    saved_by_spot_usd: Decimal | None = None


def bill_of(terms: Terms) -> Bill:
    """The bill that terms add up to; a sum with an unknown term is unknown."""
    known = _known_stretch(terms)
    hourly = _sum(terms.compute, terms.address)
    monthly = _sum(terms.storage, terms.egress)
    run = None
    if terms.run_hours is not None:
        share = _times(monthly, terms.run_hours / HOURS_PER_MONTH)
        run = _sum(_times(hourly, terms.run_hours * known), share)
    cost = Cost(
        compute_usd_per_hour=terms.compute,
        storage_usd_per_month=terms.storage,
        egress_usd_per_month=terms.egress,
        stopped_usd_per_month=terms.storage if terms.can_stop else terms.lasting,
        total_usd_per_month=_sum(_times(hourly, terms.month_hours * known), monthly),
        run_usd=run,
        usd_per_million_tokens=_usd_per_million(terms, known),
        spot=_spot(terms, known),
        public_ip_usd_per_month=_times(terms.address, terms.month_hours),
        rework_usd_per_month=_times(terms.compute, terms.month_hours * (known - 1)) if terms.risk else None,
        hours_per_month=_short(terms.month_hours),
        run_hours=_short(terms.run_hours),
    )
    return Bill(cost, _saved(terms))


def _known_stretch(terms: Terms) -> float:
    """Machine hours per useful hour as far as the rate is published: 1 where it is not."""
    return terms.stretch if terms.risk is not None and terms.risk.interruption_rate is not None else 1.0


def _spot(terms: Terms, known_stretch: float) -> SpotEconomics | None:
    """Interruption rate a month, work expected to be done again over the run (else a month), and the rate at which it is a draw."""
    risk = terms.risk
    if risk is None:
        return None
    again = terms.billed_hours * (known_stretch - 1)
    comparable = terms.compute is not None and terms.on_demand is not None
    return SpotEconomics(
        interruption_rate=risk.interruption_rate,
        expected_rework_usd=_times(terms.compute, again) if risk.interruption_rate is not None else None,
        breakeven=breakeven_per_hour(terms.compute or ZERO, terms.on_demand or ZERO, risk.lost_hours)
        if comparable
        else None,
    )


def _saved(terms: Terms) -> Decimal | None:
    if terms.risk is None or terms.compute is None or terms.on_demand is None or not math.isfinite(terms.stretch):
        return None
    hours = terms.billed_hours
    return round_usd(terms.on_demand * _hours(hours) - terms.compute * _hours(hours * terms.stretch))


def _usd_per_million(terms: Terms, known_stretch: float) -> Decimal | None:
    """Compute per million tokens generated at full load, or trained; ``None`` where the rate is unknown or not in tokens."""
    if not terms.tokens_per_hour or terms.compute is None or not math.isfinite(known_stretch):
        return None
    return round_usd(terms.compute * _hours(known_stretch) / Decimal(f"{terms.tokens_per_hour:.6g}") * MILLION)


def _sum(*amounts: Decimal | None) -> Decimal | None:
    """A sum, or ``None`` where a part is unknown."""
    return None if None in amounts else sum((amount for amount in amounts if amount is not None), ZERO)


def _times(price: Decimal | None, hours: float) -> Decimal | None:
    return None if price is None or not math.isfinite(hours) else round_usd(price * _hours(hours))


def _hours(value: float) -> Decimal:
    """Hours (or a share of them) as a decimal of six places, so that no binary fraction reaches a bill."""
    return Decimal(f"{value:.6f}")


def _short(value: float | None) -> float | None:
    """Hours as a plan prints them."""
    return None if value is None else round(value, 3)
