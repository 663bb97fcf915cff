"""Prices beside the machine's, as one request meets them, each looked up once: disks, traffic, addresses, gateways."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from decimal import Decimal
from functools import cached_property
from typing import NamedTuple

from provisioner.catalog.instances import InstanceType
from provisioner.catalog.prices import REFERENCE_REGIONS, Price, Tiers
from provisioner.catalog.snapshot import Catalog
from provisioner.planner.account import Account, Place
from provisioner.planner.candidates import Arrangement
from provisioner.planner.request import Request
from provisioner.planner.storage import SHARED_SERVICE, Disk
from provisioner.planner.transfer import Bucket, Way, bucket_of, way_to
from provisioner.units import GIB, DiskSpeed

NAT_VMS_MAX = 32
"""Google Cloud bills a NAT gateway by the VMs that use it, up to so many. Source: Cloud NAT pricing page."""


class Gateway(NamedTuple):
    """A NAT gateway: its price an hour for so many machines, and that of a GiB that passes."""

    hour: Price | None
    units: int
    """How many hourly units the machines make: the machines on Google Cloud, else one gateway."""
    gib: Tiers


class Tariff:
    """Prices beside the machine's, by cloud and region.

    ``on_demand_usd`` gives the lowest on-demand price of one instance by instance type and region.
    """

    def __init__(
        self, request: Request, catalog: Catalog, on_demand_usd: Callable[[InstanceType, str], Decimal | None]
    ) -> None:
        self.request = request
        self.catalog = catalog
        self.on_demand_usd = on_demand_usd
        self.bucket: Bucket = bucket_of(request.workload)
        self.has_nat = request.workload.access.internet == "nat"
        self.egress_gib = Decimal(request.workload.storage.egress) / GIB
        self._disks: dict[tuple[str, str, str], Price | None] = {}
        self._egress: dict[tuple[str, str], Tiers] = {}
        self._addresses: dict[tuple[str, bool], Price | None] = {}
        self._ways: dict[tuple[str, str], Way] = {}
        self._places: dict[tuple[tuple[Disk, ...], int, int], dict[tuple[str, str], Place]] = {}

    def places(self, disks: tuple[Disk, ...], machines: int, files_bytes: int) -> dict[tuple[str, str], Place]:
        """What regions cost, found so far, for arrangements with these disks, machines and files: most share theirs."""
        return self._places.setdefault((disks, machines, files_bytes), {})

    def disk(self, cloud: str, service: str | None, region: str) -> Price | None:
        """USD per GiB-month of a disk service."""
        if service is None:
            return None
        key = (cloud, service, region)
        if key not in self._disks:
            self._disks[key] = self.catalog.storage_price(cloud, service, region)
        return self._disks[key]

    def egress(self, cloud: str, region: str) -> Tiers:
        """USD per GiB to the internet, by GiB a month."""
        key = (cloud, region)
        if key not in self._egress:
            self._egress[key] = self.catalog.egress_price_tiers(cloud, region)
        return self._egress[key]

    def address(self, cloud: str, *, is_spot: bool) -> Price | None:
        """USD an hour of one public address."""
        key = (cloud, is_spot)
        if key not in self._addresses:
            self._addresses[key] = self.catalog.public_ip_price(cloud, is_spot=is_spot)
        return self._addresses[key]

    def gateway(self, cloud: str, region: str, machines: int) -> Gateway:
        """What a NAT gateway in front of so many machines costs."""
        services = self.catalog.services
        passing = services.traffic_tiers(cloud, "nat_processing", "any", region)
        if cloud != "gcp":
            return Gateway(services.misc_price(cloud, "nat_gateway", region), 1, passing)
        if machines < NAT_VMS_MAX:
            return Gateway(services.misc_price(cloud, "nat_gateway_per_vm", region), machines, passing)
        return Gateway(services.misc_price(cloud, "nat_gateway_32_vms_or_more", region), 1, passing)

    def way(self, cloud: str, region: str) -> Way:
        """How the weights come to a machine in a region."""
        key = (cloud, region)
        if key not in self._ways:
            self._ways[key] = way_to(self.catalog.services, self.bucket, cloud, region)
        return self._ways[key]

    @cached_property
    def dearest_shared_usd(self) -> Decimal:
        """The highest price per GiB-month of a shared file system that is known of any cloud."""
        known = (self.disk(cloud, name, REFERENCE_REGIONS[cloud]) for cloud, name in SHARED_SERVICE.items())
        return max((price.amount_usd for price in known if price is not None), default=Decimal(0))

    def account(self, arrangement: Arrangement, speeds: Mapping[str, DiskSpeed] | None = None) -> Account:
        """What an arrangement costs wherever it is bought; ``speeds`` are those bought for its disks, by kind."""
        return Account(self, arrangement, speeds)
