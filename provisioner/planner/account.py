"""What an arrangement costs on each offer: the terms that offers are ranked by, and that whole bills are made of.

Thousands of offers are ranked and a dozen are shown, so that terms are cheap to make and to compare; bills are made of them
in ``economics``, line by line.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from decimal import Decimal
from typing import TYPE_CHECKING, NamedTuple

from provisioner.catalog.codes import OTHER_REGION
from provisioner.catalog.offers import Lot
from provisioner.catalog.prices import Price, Tiers, tiered_cost_usd
from provisioner.planner.candidates import Arrangement
from provisioner.planner.plan import StorageItem
from provisioner.planner.spot import SpotRisk, interruption_rate, lost_hours
from provisioner.planner.storage import (
    Disk,
    checkpoint_file_bytes,
    disks_for,
    paid_speed,
    priced_disks,
    round_usd,
    sum_of,
)
from provisioner.planner.work import hours_per_month, start_hours, stated_hours, work_hours
from provisioner.units import GIB, HOURS_PER_MONTH, DiskSpeed
from provisioner.vocabulary import CapacityType, Task

if TYPE_CHECKING:
    from provisioner.planner.tariff import Tariff

AHEAD = frozenset({CapacityType.RESERVED, CapacityType.CAPACITY_BLOCK, CapacityType.FLEX_START})
"""Capacity that is bought ahead."""
ZERO = Decimal(0)
SECONDS_PER_HOUR = 3600


class Place(NamedTuple):
    """What an arrangement costs in a region whatever the capacity type. Money is USD, ``None`` is unknown."""

    root: Decimal | None
    """A month of the root disks."""
    lasting: Decimal | None
    """A month of the disks that outlive the machines."""
    egress: Decimal | None
    """A month of traffic to the internet."""
    passing: Decimal | None
    """A month of that traffic through the NAT gateway; 0 without one."""
    fetch: Decimal | None
    """One fetch of the weights by all machines; ``None`` where their region is not named."""
    gateway: Decimal | None
    """An hour of the NAT gateway; ``None`` without one, or where its price is unknown."""
    supposed: Decimal
    """What ranking counts a month for disks and traffic of unknown price: the dearest price known of their kind."""
    stand_ins: tuple[str, ...]
    """Terms whose price is that of the cloud's reference region."""


class Origin(NamedTuple):
    """Whose terms they are: what the lines of a bill are made from."""

    account: Account
    offer: Lot
    place: Place


class Terms(NamedTuple):
    """Prices, hours and risk of an arrangement on one offer. Money is USD, ``None`` is unknown."""

    compute: Decimal | None
    """An hour of all instances."""
    on_demand: Decimal | None
    """The same on demand in this region, to compare spot with; ``None`` for other capacity."""
    address: Decimal | None
    """An hour of all public addresses, or of the NAT gateway instead."""
    storage: Decimal | None
    """A month of all disks, root disks for as long as their machines are kept."""
    lasting: Decimal | None
    """A month of the disks that outlive the machine."""
    egress: Decimal | None
    """A month of traffic."""
    run_hours: float | None
    """Length of the run without interruptions, its start included."""
    month_hours: float
    """Hours that a month is billed for, without interruptions."""
    tokens_per_hour: float | None
    """Generated at full load, or trained, by all copies."""
    is_endpoint: bool
    can_stop: bool
    risk: SpotRisk | None
    stretch: float
    """Machine hours per useful hour at the rate that ranks; infinite where interruptions undo the work faster than it is done."""
    stand_ins: tuple[str, ...]
    """Terms whose price is that of the cloud's reference region."""
    root: Decimal | None = ZERO
    """A month of the root disks."""
    passing: Decimal | None = ZERO
    """A month of traffic through the NAT gateway; 0 without one."""
    fetch: Decimal | None = ZERO
    """One fetch of the weights by all machines; ``None`` where their region is not named."""
    supposed: Decimal = ZERO
    """What ranking counts a month for disks and traffic of unknown price; no part of any bill."""
    supposed_compute: Decimal | None = None
    """What ranking counts an hour of all instances where capacity is bought ahead and its price is unknown: on demand there."""
    origin: Origin | None = None

    @property
    def unknown(self) -> tuple[str, ...]:
        """Terms without any price."""
        named = (
            ("compute", self.compute),
            ("storage", self.storage),
            ("egress", self.egress),
            ("public address", self.address),
            ("NAT gateway", self.passing),
        )
        return tuple(name for name, amount in named if amount is None)

    @property
    def is_complete(self) -> bool:
        """No term is unknown and none is another region's price."""
        return not self.stand_ins and None not in (self.compute, self.storage, self.egress, self.address, self.passing)

    @property
    def billed_hours(self) -> float:
        """Hours of the run, else of the month."""
        return self.run_hours if self.run_hours is not None else self.month_hours

    @property
    def expected_run_hours(self) -> float | None:
        """Length of the run with the work that interruptions make it do again."""
        return self.run_hours * self.stretch if self.run_hours is not None else None

    @property
    def lost_hours(self) -> float:
        """Work and waiting lost by one interruption; 0 for capacity that is not taken back."""
        return self.risk.lost_hours if self.risk is not None else 0.0

    @property
    def known_stretch(self) -> float:
        """Machine hours per useful hour as far as the rate is published: 1 where it is not."""
        return self.stretch if self.risk is not None and self.risk.interruption_rate is not None else 1.0

    @property
    def interruptions_each(self) -> float | None:
        """Interruptions of one machine to expect over the billed hours; ``None``: unknown, 0 for capacity that is kept."""
        if self.risk is None:
            return 0.0
        if self.risk.interruption_rate is None or not math.isfinite(self.stretch):
            return None
        return self.risk.interruptions_per_hour * self.billed_hours * self.stretch

    @property
    def basis(self) -> str:
        """What ``ranking_usd`` is the bill of: ``run``, ``tokens`` (a million) or ``month``; only like compares with like."""
        if self.run_hours is not None:
            return "run"
        return "tokens" if not self.is_endpoint and self.tokens_per_hour else "month"

    @property
    def ranking_usd(self) -> float:
        """What offers are compared by: the run, a million tokens, or the month.

        The run where its length is known; a million tokens for a batch or training of unknown length; else the month. Disks and
        traffic of unknown price count at the dearest price known of their kind, rework at the rate that ranks. Capacity
        that is bought ahead at an unknown price counts as on demand, to be compared with its like: offers with a price come first
        anyway. Infinite where nothing is known.
        """
        compute = self.compute if self.compute is not None else self.supposed_compute
        if compute is None or not math.isfinite(self.stretch):
            return math.inf
        if self.tokens_per_hour and self.basis == "tokens":
            return float(compute) * self.stretch / self.tokens_per_hour * 1e6
        hourly = (float(compute) + float(self.address or 0)) * self.billed_hours * self.stretch
        traffic = float(self.egress or 0) + float(self.passing or 0) + float(self.supposed)
        fetched = float(self.fetch or 0) * (1 + (self.interruptions_each or 0.0)) if self.fetch else 0.0
        if self.run_hours is None:
            return hourly + fetched + traffic + float(self.storage or 0)
        disks = float(self.root or 0) + float(self.lasting or 0)
        return hourly + fetched + (traffic + disks) * self.run_hours / HOURS_PER_MONTH


class Account:
    """An arrangement with its disks and hours; ``terms`` puts an offer's prices to them."""

    def __init__(self, tariff: Tariff, arrangement: Arrangement, speeds: Mapping[str, DiskSpeed] | None = None) -> None:
        """Count the disks and hours.

        Args:
            tariff: prices beside the machine's.
            arrangement: what is bought.
            speeds: what is bought for disks beyond what their kind includes, by the disk's kind.
        """
        request, workload = tariff.request, tariff.request.workload
        self.tariff = tariff
        self.arrangement = arrangement
        self.files_bytes = checkpoint_file_bytes(request, arrangement)
        copies, speed = arrangement.layout.replicas, arrangement.throughput
        run = stated_hours(workload)
        if run is None and (work := work_hours(workload, request.demand, speed, copies)) is not None:
            run = work + start_hours(self.files_bytes, request.engine)
        rate = speed.decode_tokens_per_s_per_replica or speed.train_tokens_per_s
        disks = disks_for(request, arrangement)
        self.disks: tuple[Disk, ...] = (
            tuple(replace(disk, speed=speeds.get(disk.kind)) for disk in disks) if speeds else disks
        )
        self.run_hours = run
        self.month_hours = hours_per_month(workload, run)
        self.tokens_per_hour = rate * copies * SECONDS_PER_HOUR if rate else None
        self.is_endpoint = workload.task is Task.SERVE
        self.machines_together = arrangement.instances if workload.task.is_training else 1
        """Machines of which each must run for the work to go on."""
        self.fetched_gib = Decimal(self.files_bytes * arrangement.instances) / GIB
        self._lost_hours = lost_hours(workload, self.files_bytes, request.engine)
        self._then = workload.lifecycle.idle.then
        billed = tuple(disk for disk in self.disks if disk.kind != "local")
        self._places = tariff.places(billed, arrangement.instances, self.files_bytes)
        self._kept: dict[tuple[Decimal, float, bool], Decimal] = {}
        self._addresses: dict[tuple[str, bool], Decimal | None] = {}

    def terms(self, offer: Lot) -> Terms:
        """Everything a bill is made of."""
        tariff, instances = self.tariff, self.arrangement.instances
        place, price = self.place(offer.cloud, offer.region), offer.price_usd_per_hour
        risk = self._risk(offer)
        on_demand = tariff.on_demand_usd(offer.instance, offer.region) if risk else None
        stretch = risk.stretch(self.machines_together) if risk else 1.0
        can_stop = self._can_stop(offer)
        return Terms(
            compute=None if price is None else price * instances,
            on_demand=None if on_demand is None else on_demand * instances,
            address=self._address(offer, place, is_spot=risk is not None),
            storage=self._storage(place, stretch, can_stop=can_stop),
            lasting=place.lasting,
            egress=place.egress,
            run_hours=self.run_hours,
            month_hours=self.month_hours,
            tokens_per_hour=self.tokens_per_hour,
            is_endpoint=self.is_endpoint,
            can_stop=can_stop,
            risk=risk,
            stretch=stretch,
            stand_ins=place.stand_ins,
            root=place.root,
            passing=place.passing,
            fetch=place.fetch,
            supposed=place.supposed,
            supposed_compute=self._listed(offer) if price is None and offer.capacity_type in AHEAD else None,
            origin=Origin(self, offer, place),
        )

    def _can_stop(self, offer: Lot) -> bool:
        """Whether an idle machine is kept stopped: on demand unless the spec says otherwise, on spot only where it says so.

        A stop would discard local SSD on Google Cloud, so that such a machine ends instead (docs/reaping.md).
        """
        if offer.capacity_type is CapacityType.ON_DEMAND:
            return self._then != "terminate"
        if offer.capacity_type is not CapacityType.SPOT or self._then != "stop":
            return False
        return offer.cloud == "aws" or offer.instance.local_ssd_kind != "bundled"

    def _listed(self, offer: Lot) -> Decimal | None:
        """An hour of all instances on demand in the region."""
        price = self.tariff.on_demand_usd(offer.instance, offer.region)
        return None if price is None else price * self.arrangement.instances

    def _storage(self, place: Place, stretch: float, *, can_stop: bool) -> Decimal | None:
        """A month of all disks, root disks for as long as their machines are kept."""
        if place.root is None or place.lasting is None:
            return None
        key = (place.root, stretch, can_stop)
        if key not in self._kept:
            hours = decimal_of(self.root_hours(stretch if math.isfinite(stretch) else 1.0, can_stop=can_stop))
            self._kept[key] = round_usd(place.root * hours / HOURS_PER_MONTH)
        return self._kept[key] + place.lasting

    def _address(self, offer: Lot, place: Place, *, is_spot: bool) -> Decimal | None:
        if self.tariff.has_nat:
            return place.gateway
        key = (offer.cloud, is_spot)
        if key not in self._addresses:
            price = self.tariff.address(offer.cloud, is_spot=is_spot)
            self._addresses[key] = None if price is None else price.amount_usd * self.arrangement.instances
        return self._addresses[key]

    def root_hours(self, stretch: float, *, can_stop: bool) -> float:
        """Hours of a month that root disks are billed for: while their machines run, and while they are kept stopped.

        A machine that cannot stop ends with its disk. One that can is kept after its run for ``stopped.terminate_after``; one
        that is used in bursts is taken to be used again before that.
        """
        running = self.month_hours * stretch
        if can_stop and self.run_hours is None:
            return float(HOURS_PER_MONTH)
        if can_stop:
            kept = self.tariff.request.workload.lifecycle.stopped.terminate_after
            running += kept.total_seconds() / SECONDS_PER_HOUR
        return min(running, float(HOURS_PER_MONTH))

    def items(self, region: str) -> tuple[StorageItem, ...]:
        """The disks with their prices in a region."""
        return priced_disks(self.tariff.catalog, self.arrangement.instance, region, self.disks)

    def place(self, cloud: str, region: str) -> Place:
        """What is the same for all offers in a region."""
        key = (cloud, region)
        if key not in self._places:
            self._places[key] = self._price_place(cloud, region)
        return self._places[key]

    def _price_place(self, cloud: str, region: str) -> Place:
        tariff = self.tariff
        root, lasting, disks_stood_in = self._disks_usd(cloud, region)
        tiers = tariff.egress(cloud, region)
        egress = tiered_cost_usd(tiers, tariff.egress_gib)
        gateway = tariff.gateway(cloud, region, self.arrangement.instances) if tariff.has_nat else None
        passing = tiered_cost_usd(gateway.gib, tariff.egress_gib) if gateway else ZERO
        hour = gateway.hour if gateway else None
        stood_in = {
            "storage": disks_stood_in,
            "egress": bool(egress) and tiers_stand_in(tiers),
            "NAT gateway": hour is not None and is_of_other_region(hour),
        }
        return Place(
            root=root,
            lasting=lasting,
            egress=None if egress is None else round_usd(egress),
            passing=None if passing is None else round_usd(passing),
            fetch=self._fetch_usd(cloud, region, gateway.gib if gateway else None),
            gateway=hour.amount_usd * gateway.units if gateway and hour else None,
            supposed=self._supposed_usd(cloud, region, tiers if egress is None else None),
            stand_ins=tuple(name for name, is_other in stood_in.items() if is_other),
        )

    def _fetch_usd(self, cloud: str, region: str, passing: Tiers | None) -> Decimal | None:
        way = self.tariff.way(cloud, region)
        if not way.is_known:
            return None
        sent = tiered_cost_usd(way.tiers, self.fetched_gib) if way.tiers else ZERO
        passed = tiered_cost_usd(passing, self.fetched_gib) if passing is not None and way.passes_nat else ZERO
        return None if sent is None or passed is None else round_usd(sent + passed)

    def _disks_usd(self, cloud: str, region: str) -> tuple[Decimal | None, Decimal | None, bool]:
        """USD a month of the root disks and of those that outlive the machines; and whether another region's price stood in."""
        root, lasting, stood_in = ZERO, ZERO, False
        for disk in self.disks:
            if disk.kind == "local":
                continue
            price = self.tariff.disk(cloud, disk.service, region)
            if price is None:
                return None, None, stood_in
            speed = tuple(paid_speed(self.tariff.catalog, cloud, disk, region))
            speed_usd = sum_of(speed)
            if speed_usd is None:
                return None, None, stood_in
            amount = round_usd(disk.total_gib * price.amount_usd) + speed_usd
            stood_in = stood_in or any(part.price is not None and is_of_other_region(part.price) for part in speed)
            if disk.kind == "root":
                root += amount
            else:
                lasting += amount
            stood_in = stood_in or is_of_other_region(price)
        return root, lasting, stood_in

    def _supposed_usd(self, cloud: str, region: str, short_tiers: Tiers | None) -> Decimal:
        """A month of the disks, or of traffic, where a price among them is unknown: not knowing it must be no advantage."""
        tariff, total = self.tariff, ZERO
        billed = [(disk, tariff.disk(cloud, disk.service, region)) for disk in self.disks if disk.kind != "local"]
        if any(price is None for _, price in billed):
            rates = ((disk, price.amount_usd if price else tariff.dearest_shared_usd) for disk, price in billed)
            total += sum((disk.total_gib * rate for disk, rate in rates), ZERO)
        if short_tiers:
            total += tariff.egress_gib * max(tier.price.amount_usd for tier in short_tiers)
        return total

    def _risk(self, offer: Lot) -> SpotRisk | None:
        """What interruptions are expected to cost in time; ``None`` for capacity that is not taken back."""
        if offer.capacity_type is not CapacityType.SPOT:
            return None
        band = self.tariff.catalog.interruption_band(offer.cloud, offer.instance.name, offer.region)
        return SpotRisk(interruption_rate(band), self._lost_hours)


def decimal_of(value: float) -> Decimal:
    """Hours or a share as a decimal of six places, so that no binary fraction reaches a bill."""
    return Decimal(f"{value:.6f}")


def is_of_other_region(price: Price) -> bool:
    """Whether another region's price stands in."""
    return OTHER_REGION in price.suspect


def tiers_stand_in(tiers: Tiers) -> bool:
    """Whether another region's prices stand in for any tier."""
    return any(is_of_other_region(tier.price) for tier in tiers)
