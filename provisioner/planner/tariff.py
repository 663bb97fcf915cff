"""What a bill is made of: prices as one request meets them, each looked up once, and the terms of each offer.

Thousands of offers are ranked and a dozen are shown, so that terms are cheap to make and to compare; whole bills are made of
them in ``economics``.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from decimal import Decimal
from typing import NamedTuple

from provisioner.catalog.codes import OTHER_REGION
from provisioner.catalog.instances import InstanceType
from provisioner.catalog.offers import Lot
from provisioner.catalog.prices import tiered_cost_usd
from provisioner.catalog.snapshot import Catalog
from provisioner.planner.candidates import Arrangement
from provisioner.planner.plan import StorageItem
from provisioner.planner.request import Request
from provisioner.planner.spot import SpotRisk, interruption_rate, lost_hours
from provisioner.planner.storage import Disk, checkpoint_file_bytes, disks_for, priced_disks, round_usd
from provisioner.planner.work import hours_per_month, start_hours, stated_hours, work_hours
from provisioner.units import GIB, HOURS_PER_MONTH
from provisioner.vocabulary import CapacityType, Task

ZERO = Decimal(0)
SECONDS_PER_HOUR = 3600


class Terms(NamedTuple):
    """Prices, hours and risk of an arrangement on one offer. Money is USD, ``None`` is unknown."""

    compute: Decimal | None
    """An hour of all instances."""
    on_demand: Decimal | None
    """The same on demand in this region, to compare spot with; ``None`` for other capacity."""
    address: Decimal | None
    """An hour of all public addresses."""
    storage: Decimal | None
    """A month of all disks."""
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

    @property
    def is_complete(self) -> bool:
        """No term is unknown and none is another region's price."""
        return not self.stand_ins and None not in (self.compute, self.storage, self.egress, self.address)

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
    def ranking_usd(self) -> float:
        """What offers are compared by: the run, a million tokens, or the month.

        The run where its length is known; a million tokens for a batch or training of unknown length; else the month. Unknown
        terms count nothing (such offers lose ties), rework at the rate that ranks. Infinite where the price is unknown.
        """
        if self.compute is None or not math.isfinite(self.stretch):
            return math.inf
        if self.run_hours is None and not self.is_endpoint and self.tokens_per_hour:
            return float(self.compute) * self.stretch / self.tokens_per_hour * 1e6
        hourly = float(self.compute) + float(self.address or 0)
        monthly = float(self.storage or 0) + float(self.egress or 0)
        share = self.run_hours / HOURS_PER_MONTH if self.run_hours is not None else 1.0
        return hourly * self.billed_hours * self.stretch + monthly * share


class Tariff:
    """Prices beside the machine's, by cloud and region, each looked up once.

    ``on_demand_usd`` gives the lowest on-demand price of one instance by instance type and region.
    """

    def __init__(
        self, request: Request, catalog: Catalog, on_demand_usd: Callable[[InstanceType, str], Decimal | None]
    ) -> None:
        self.request = request
        self.catalog = catalog
        self.on_demand_usd = on_demand_usd
        self._disk_rates: dict[tuple[str, str, str], tuple[Decimal | None, bool]] = {}
        self._egress: dict[tuple[str, str], tuple[Decimal | None, bool]] = {}
        self._addresses: dict[str, Decimal | None] = {}

    def disk_rate(self, cloud: str, service: str | None, region: str) -> tuple[Decimal | None, bool]:
        """USD per GiB-month, and whether it is another region's."""
        key = (cloud, service or "", region)
        if key not in self._disk_rates:
            price = self.catalog.storage_price(cloud, service, region) if service else None
            self._disk_rates[key] = (price.amount_usd, OTHER_REGION in price.suspect) if price else (None, False)
        return self._disk_rates[key]

    def egress(self, cloud: str, region: str) -> tuple[Decimal | None, bool]:
        """USD a month for the traffic asked for, and whether another region's price stood in."""
        key = (cloud, region)
        if key not in self._egress:
            tiers = self.catalog.egress_price_tiers(cloud, region)
            found = tiered_cost_usd(tiers, Decimal(self.request.workload.storage.egress) / GIB)
            stood_in = bool(found) and any(OTHER_REGION in tier.price.suspect for tier in tiers)
            self._egress[key] = (None if found is None else round_usd(found), stood_in)
        return self._egress[key]

    def address(self, cloud: str) -> Decimal | None:
        """USD an hour of one public address."""
        if cloud not in self._addresses:
            price = self.catalog.public_ip_price(cloud)
            self._addresses[cloud] = price.amount_usd if price else None
        return self._addresses[cloud]

    def account(self, arrangement: Arrangement) -> Account:
        """What an arrangement costs wherever it is bought."""
        request, workload = self.request, self.request.workload
        files = checkpoint_file_bytes(request, arrangement)
        copies, speed = arrangement.layout.replicas, arrangement.throughput
        run = stated_hours(workload)
        if run is None and (work := work_hours(workload, request.demand, speed, copies)) is not None:
            run = work + start_hours(files)
        rate = speed.decode_tokens_per_s_per_replica or speed.train_tokens_per_s
        return Account(
            tariff=self,
            arrangement=arrangement,
            disks=disks_for(request, arrangement),
            run_hours=run,
            month_hours=hours_per_month(workload, run),
            tokens_per_hour=rate * copies * SECONDS_PER_HOUR if rate else None,
            lost_hours=lost_hours(workload, files),
        )


class Account(NamedTuple):
    """An arrangement with its disks and hours; ``terms`` puts an offer's prices to them."""

    tariff: Tariff
    arrangement: Arrangement
    disks: tuple[Disk, ...]
    run_hours: float | None
    month_hours: float
    tokens_per_hour: float | None
    lost_hours: float

    def terms(self, offer: Lot) -> Terms:
        """Everything a bill is made of."""
        tariff, instances, cloud, region = self.tariff, self.arrangement.instances, offer.cloud, offer.region
        workload = tariff.request.workload
        storage, lasting, disks_stood_in = self._storage(cloud, region)
        egress, egress_stood_in = tariff.egress(cloud, region)
        address, price = tariff.address(cloud), offer.price_usd_per_hour
        risk = self._risk(offer)
        on_demand = tariff.on_demand_usd(offer.instance, region) if risk else None
        stretch = risk.stretch(instances if workload.task.is_training else 1) if risk else 1.0
        return Terms(
            compute=None if price is None else price * instances,
            on_demand=None if on_demand is None else on_demand * instances,
            address=None if address is None else address * instances,
            storage=storage,
            lasting=lasting,
            egress=egress,
            run_hours=self.run_hours,
            month_hours=self.month_hours,
            tokens_per_hour=self.tokens_per_hour,
            is_endpoint=workload.task is Task.SERVE,
            can_stop=offer.capacity_type is CapacityType.ON_DEMAND and workload.lifecycle.idle.then != "terminate",
            risk=risk,
            stretch=stretch,
            stand_ins=_stand_ins(storage=disks_stood_in, egress=egress_stood_in),
        )

    def items(self, region: str) -> tuple[StorageItem, ...]:
        """The disks with their prices in a region."""
        return priced_disks(self.tariff.catalog, self.arrangement.instance, region, self.disks)

    def _risk(self, offer: Lot) -> SpotRisk | None:
        """What interruptions are expected to cost in time; ``None`` for capacity that is not taken back."""
        if offer.capacity_type is not CapacityType.SPOT:
            return None
        band = self.tariff.catalog.interruption_band(offer.cloud, offer.instance.name, offer.region)
        return SpotRisk(interruption_rate(band), self.lost_hours)

    def _storage(self, cloud: str, region: str) -> tuple[Decimal | None, Decimal | None, bool]:
        """USD a month of all disks, and of those that outlive the machine; and whether another region's price stood in."""
        total, lasting, stood_in = ZERO, ZERO, False
        for disk in self.disks:
            if disk.kind == "local":
                continue
            rate, other = self.tariff.disk_rate(cloud, disk.service, region)
            if rate is None:
                return None, None, stood_in
            amount = round_usd(disk.total_gib * rate)
            total += amount
            lasting += amount if disk.kind != "root" else ZERO
            stood_in = stood_in or other
        return total, lasting, stood_in


def _stand_ins(*, storage: bool, egress: bool) -> tuple[str, ...]:
    return (*(("storage",) if storage else ()), *(("egress",) if egress else ()))
