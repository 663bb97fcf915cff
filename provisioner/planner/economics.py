"""The whole bill of an arrangement on an offer: compute, disks, address, traffic, stopped time, spot rework."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from functools import cache

from provisioner.catalog.codes import OTHER_REGION
from provisioner.catalog.offers import Offer
from provisioner.catalog.prices import tiered_cost_usd
from provisioner.catalog.snapshot import Catalog
from provisioner.planner.candidates import Arrangement
from provisioner.planner.plan import Cost, SpotEconomics, StorageItem
from provisioner.planner.request import Request
from provisioner.planner.spot import SpotRisk, breakeven_per_hour, interruption_rate, lost_hours
from provisioner.planner.storage import Disk, checkpoint_file_bytes, disks_for, priced_disks, round_usd
from provisioner.planner.work import hours_per_month, start_hours, stated_hours, work_hours
from provisioner.units import GIB, HOURS_PER_MONTH
from provisioner.vocabulary import CapacityType, Task

ZERO = Decimal(0)
MILLION = Decimal(10**6)
SECONDS_PER_HOUR = Decimal(3600)


@dataclass(frozen=True, slots=True)
class Bill:
    """The bill of a candidate, with what filters, ranking and reasons need beside the contracted terms."""

    cost: Cost
    ranking_usd: Decimal | None
    """What is compared: the run, the month or a million tokens; unknown disk prices left out, rework at its ranked rate.
    ``None``: the price of the machine itself is unknown."""
    is_complete: bool
    """No term is unknown and none is another region's price."""
    endless: bool = False
    """Spot interruptions come faster than the work goes on."""
    expected_run_hours: float | None = None
    """Length of the run with the work that spot interruptions make it do again."""
    lost_hours: float = 0.0
    """Work and waiting lost by one interruption; 0 for capacity that is not taken back."""
    stand_ins: tuple[str, ...] = ()
    """Terms whose price is that of the cloud's reference region."""
    unknown: tuple[str, ...] = ()
    """Terms without any price."""
    saved_by_spot_usd: Decimal | None = None
    """Against on-demand in the same region, over the run or the month, rework counted."""


@dataclass(slots=True)
class Accounts:
    """Prices of a catalog as one request meets them, each looked up once."""

    request: Request
    catalog: Catalog
    on_demand_usd: Mapping[tuple[str, str, str], Decimal]
    """Lowest on-demand price per (cloud, instance type, region)."""
    _disks: dict[tuple[str, str, int, int], tuple[Disk, ...]] = field(default_factory=dict)
    _rates: dict[tuple[str, str, str], tuple[Decimal | None, bool]] = field(default_factory=dict)
    _egress: dict[tuple[str, str], tuple[Decimal | None, bool]] = field(default_factory=dict)
    _ip: dict[str, Decimal | None] = field(default_factory=dict)

    def disks(self, arrangement: Arrangement) -> tuple[Disk, ...]:
        """Disks of an arrangement; they do not depend on the region."""
        layout = arrangement.layout
        key = (arrangement.instance.cloud, arrangement.instance.name, layout.gpus_per_replica, arrangement.instances)
        if key not in self._disks:
            self._disks[key] = disks_for(self.request, arrangement)
        return self._disks[key]

    def items(self, arrangement: Arrangement, region: str) -> tuple[StorageItem, ...]:
        """Priced disks of an arrangement in a region."""
        return priced_disks(self.catalog, arrangement.instance, region, self.disks(arrangement))

    def storage(self, arrangement: Arrangement, region: str) -> tuple[Decimal | None, Decimal | None, bool]:
        """USD a month of all disks, and of those that outlive the machine; and whether another region's price stood in."""
        total, lasting, stood_in = ZERO, ZERO, False
        for disk in self.disks(arrangement):
            if disk.kind == "local":
                continue
            price, other = self._disk_rate(arrangement.instance.cloud, disk.service, region)
            if price is None:
                return None, None, stood_in
            amount = round_usd(disk.total_gib * price)
            total += amount
            lasting += amount if disk.kind != "root" else ZERO
            stood_in = stood_in or other
        return total, lasting, stood_in

    def _disk_rate(self, cloud: str, service: str | None, region: str) -> tuple[Decimal | None, bool]:
        """USD per GiB-month, and whether it is another region's."""
        key = (cloud, service or "", region)
        if key not in self._rates:
            price = self.catalog.storage_price(cloud, service, region) if service else None
            self._rates[key] = (price.amount_usd, OTHER_REGION in price.suspect) if price else (None, False)
        return self._rates[key]

    def egress(self, cloud: str, region: str) -> tuple[Decimal | None, bool]:
        """USD a month for the traffic asked for (``None``: no price known), and whether another region's price stood in."""
        key = (cloud, region)
        if key not in self._egress:
            tiers = self.catalog.egress_price_tiers(cloud, region)
            found = tiered_cost_usd(tiers, Decimal(self.request.workload.storage.egress) / GIB)
            stood_in = bool(found) and any(OTHER_REGION in tier.price.suspect for tier in tiers)
            self._egress[key] = (None if found is None else round_usd(found), stood_in)
        return self._egress[key]

    def public_ip(self, cloud: str) -> Decimal | None:
        """USD an hour of one public address."""
        if cloud not in self._ip:
            price = self.catalog.public_ip_price(cloud)
            self._ip[cloud] = price.amount_usd if price else None
        return self._ip[cloud]

    def risk(self, arrangement: Arrangement, offer: Offer) -> SpotRisk | None:
        """What interruptions are expected to cost in time; ``None`` for capacity that is not taken back."""
        if offer.capacity_type is not CapacityType.SPOT:
            return None
        band = self.catalog.interruption_band(offer.cloud, offer.instance.name, offer.region)
        weights = checkpoint_file_bytes(self.request, arrangement)
        return SpotRisk(interruption_rate(band), lost_hours(self.request.workload, weights))

    def bill(self, arrangement: Arrangement, offer: Offer) -> Bill:
        """The bill of an arrangement on an offer; an offer without a price has one with unknown terms."""
        return _bill(self, arrangement, offer)


@dataclass(frozen=True, slots=True)
class _Terms:
    """What a bill is made of: prices an hour and a month, hours, and how spot stretches them."""

    compute: Decimal | None
    address: Decimal | None
    storage: Decimal | None
    lasting: Decimal | None
    egress: Decimal | None
    useful_hours: float | None
    """Length of the run without interruptions."""
    month_hours: float
    risk: SpotRisk | None
    stretch: float
    """Machine hours per useful hour at the rate that ranks."""
    stand_ins: tuple[str, ...]

    @property
    def known_stretch(self) -> float:
        """Machine hours per useful hour as far as the rate is published: 1 where it is not."""
        return self.stretch if self.risk is not None and self.risk.interruption_rate is not None else 1.0

    @property
    def billed_hours(self) -> float:
        """Hours of the run, else of the month."""
        return self.useful_hours if self.useful_hours is not None else self.month_hours

    @property
    def hourly(self) -> Decimal | None:
        """Machines and their addresses."""
        return _sum([self.compute, self.address])

    @property
    def monthly(self) -> Decimal | None:
        """What a month costs whether machines run or not."""
        return _sum([self.storage, self.egress])

    @property
    def unknown(self) -> tuple[str, ...]:
        """Terms without any price."""
        named = (
            ("compute", self.compute),
            ("storage", self.storage),
            ("egress", self.egress),
            ("public address", self.address),
        )
        return tuple(name for name, amount in named if amount is None)


def _bill(accounts: Accounts, arrangement: Arrangement, offer: Offer) -> Bill:
    price = offer.price_usd_per_hour
    terms = _terms(accounts, arrangement, offer, None if price is None else price * arrangement.instances)
    on_demand = accounts.on_demand_usd.get((offer.cloud, offer.instance.name, offer.region))
    spot = _spot_economics(terms, price, on_demand)
    can_stop = terms.risk is None and accounts.request.workload.lifecycle.idle.then != "terminate"
    cost = Cost(
        compute_usd_per_hour=terms.compute,
        storage_usd_per_month=terms.storage,
        egress_usd_per_month=terms.egress,
        stopped_usd_per_month=terms.storage if can_stop else terms.lasting,
        total_usd_per_month=_sum([_times(terms.hourly, terms.month_hours * terms.known_stretch), terms.monthly]),
        run_usd=_run_usd(terms),
        usd_per_million_tokens=_usd_per_million(terms, arrangement),
        spot=spot,
        public_ip_usd_per_month=_times(terms.address, terms.month_hours),
        rework_usd_per_month=_times(terms.compute, terms.month_hours * (terms.known_stretch - 1)) if spot else None,
        hours_per_month=_short(terms.month_hours),
        run_hours=_short(terms.useful_hours),
    )
    saved = None
    if terms.risk is not None and on_demand is not None and terms.compute is not None and math.isfinite(terms.stretch):
        dear = on_demand * arrangement.instances * _hours(terms.billed_hours)
        saved = round_usd(dear - terms.compute * _hours(terms.billed_hours * terms.stretch))
    return Bill(
        cost=cost,
        ranking_usd=_ranking_usd(accounts.request, terms, cost),
        endless=not math.isfinite(terms.stretch),
        is_complete=not terms.unknown and not terms.stand_ins,
        expected_run_hours=terms.useful_hours * terms.stretch if terms.useful_hours is not None else None,
        lost_hours=terms.risk.lost_hours if terms.risk else 0.0,
        stand_ins=terms.stand_ins,
        unknown=terms.unknown,
        saved_by_spot_usd=saved,
    )


def _terms(accounts: Accounts, arrangement: Arrangement, offer: Offer, compute: Decimal | None) -> _Terms:
    request, workload = accounts.request, accounts.request.workload
    useful = _run_hours(request, arrangement)
    storage, lasting, storage_stood_in = accounts.storage(arrangement, offer.region)
    egress, egress_stood_in = accounts.egress(offer.cloud, offer.region)
    address = accounts.public_ip(offer.cloud)
    risk = accounts.risk(arrangement, offer)
    together = arrangement.instances if workload.task.is_training else 1
    return _Terms(
        compute=compute,
        address=None if address is None else address * arrangement.instances,
        storage=storage,
        lasting=lasting,
        egress=egress,
        useful_hours=useful,
        month_hours=hours_per_month(workload, useful),
        risk=risk,
        stretch=risk.stretch(together) if risk else 1.0,
        stand_ins=tuple(
            name for name, stood_in in (("storage", storage_stood_in), ("egress", egress_stood_in)) if stood_in
        ),
    )


def _run_hours(request: Request, arrangement: Arrangement) -> float | None:
    """Length of a run without interruptions: as stated, or the predicted work and the start before it."""
    stated = stated_hours(request.workload)
    if stated is not None:
        return stated
    hours = work_hours(request.workload, request.demand, arrangement.throughput, arrangement.layout.replicas)
    return None if hours is None else hours + start_hours(checkpoint_file_bytes(request, arrangement))


def _spot_economics(terms: _Terms, price: Decimal | None, on_demand: Decimal | None) -> SpotEconomics | None:
    """Interruption rate a month, work expected to be done again over the run (else a month), and the rate at which it is a draw."""
    if terms.risk is None:
        return None
    known = terms.risk.interruption_rate is not None
    again = terms.billed_hours * (terms.known_stretch - 1)
    return SpotEconomics(
        interruption_rate=terms.risk.interruption_rate,
        expected_rework_usd=_times(terms.compute, again) if known else None,
        breakeven=breakeven_per_hour(price, on_demand, terms.risk.lost_hours) if price and on_demand else None,
    )


def _run_usd(terms: _Terms) -> Decimal | None:
    """The run's own bill: machines for its hours, disks and traffic for its share of a month."""
    if terms.useful_hours is None:
        return None
    machines = _times(terms.hourly, terms.useful_hours * terms.known_stretch)
    return _sum([machines, _times(terms.monthly, terms.useful_hours / HOURS_PER_MONTH)])


def _usd_per_million(terms: _Terms, arrangement: Arrangement) -> Decimal | None:
    """Compute per million tokens generated at full load, or trained; ``None`` where the rate is unknown or not in tokens."""
    throughput = arrangement.throughput
    rate = throughput.decode_tokens_per_s_per_replica or throughput.train_tokens_per_s
    if not rate or terms.compute is None or not math.isfinite(terms.known_stretch):
        return None
    per_hour = Decimal(f"{rate * arrangement.layout.replicas:.6g}") * SECONDS_PER_HOUR
    return round_usd(terms.compute * _hours(terms.known_stretch) / per_hour * MILLION)


def _ranking_usd(request: Request, terms: _Terms, cost: Cost) -> Decimal | None:
    """What offers are compared by: the run, a million tokens, or the month.

    The run where its length is known; a million tokens for a batch or training of unknown length; else the month. Unknown
    terms count nothing (such offers lose ties), rework at the rate that ranks.
    """
    if terms.compute is None or not math.isfinite(terms.stretch):
        return None
    hourly = terms.compute + (terms.address or ZERO)
    monthly = (terms.storage or ZERO) + (terms.egress or ZERO)
    if terms.useful_hours is not None:
        hours = terms.useful_hours
        return hourly * _hours(hours * terms.stretch) + monthly * _hours(hours) / HOURS_PER_MONTH
    if request.workload.task is not Task.SERVE and cost.usd_per_million_tokens is not None:
        return cost.usd_per_million_tokens * _hours(terms.stretch / terms.known_stretch)
    return hourly * _hours(terms.month_hours * terms.stretch) + monthly


def _sum(amounts: list[Decimal | None]) -> Decimal | None:
    """A sum, or ``None`` where a part is unknown."""
    return sum((amount for amount in amounts if amount is not None), ZERO) if None not in amounts else None


def _times(price: Decimal | None, hours: float) -> Decimal | None:
    return None if price is None or not math.isfinite(hours) else round_usd(price * _hours(hours))


@cache
def _hours(value: float) -> Decimal:
    """Hours (or a share of them) as a decimal of six places, so that no binary fraction reaches a bill."""
    return Decimal(f"{value:.6f}")


def _short(value: float | None) -> float | None:
    """Hours as a plan prints them."""
    return None if value is None else round(value, 3)
