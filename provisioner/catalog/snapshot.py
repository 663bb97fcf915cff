"""The catalog: one frozen set of dated facts, read from the bundled files, from refreshed ones or from a directory of the user's.

Loading reads and digests the files; each table is parsed when it is first asked for, since ``plan`` needs some and ``size``
needs fewer.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from functools import cached_property
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

from provisioner.catalog.attachments import attached_market, read_attached_types
from provisioner.catalog.cache import Manifest, base_digest, cache_folder, read_snapshot, supply_path
from provisioner.catalog.codes import NO_SPARE, OWN_MEANINGS
from provisioner.catalog.exclusions import type_codes
from provisioner.catalog.files import QUOTAS, CatalogFiles, bundled_files, directory_files
from provisioner.catalog.gpus import Gpu, read_gpus
from provisioner.catalog.instance_prices import (
    ANY,
    CLOUDS,
    PRICE_DATE,
    PriceIndex,
    PriceView,
    index_commitments,
    index_prices,
    read_price_rows,
)
from provisioner.catalog.instances import InstanceType, read_instances
from provisioner.catalog.interruption import Band, read_interruption_bands
from provisioner.catalog.names import GpuNames
from provisioner.catalog.offers import ExcludedOffer, Lot, Market, Offer, TypeMarket, ZoneIndex, read_zones
from provisioner.catalog.prices import Price, ServicePrices, Tiers
from provisioner.errors import UsageError
from provisioner.vocabulary import CapacityType

if TYPE_CHECKING:
    from provisioner.catalog.billing import BillingRule
    from provisioner.catalog.disk_kinds import DiskLink
    from provisioner.catalog.images import DriverFloor, ImageSelector
    from provisioner.catalog.listings import Listing
    from provisioner.catalog.price_sources import PriceSource
    from provisioner.catalog.quotas import AccountQuota, Quota, QuotaNeed
    from provisioner.catalog.supply import Supply, SupplyIndex

ENVIRONMENT = "GPUPROV_CATALOG"
"""Directory of CSV files that replaces the refreshed and the bundled catalog; ``--catalog`` comes before it."""


BUNDLED_NAME = "bundled"
"""``--catalog bundled`` or ``GPUPROV_CATALOG=bundled``: the files that ship with gpuprov, whatever was refreshed on this host."""


class Origin(NamedTuple):
    """Where a catalog was read from. ``manifest`` is that of a refreshed one; ``notice`` is for people."""

    kind: str
    """``bundled``, ``refreshed`` or ``directory``."""
    path: Path | None = None
    manifest: Manifest | None = None
    notice: str | None = None


def load_catalog(directory: Path | None = None) -> Catalog:
    """The catalog of a directory, else of the one that ``GPUPROV_CATALOG`` names, else the refreshed one, else the bundled one.

    The word ``bundled`` instead of a directory means the files that ship with gpuprov and nothing else. Supply that launches
    on this host observed is part of the refreshed catalog, and of the bundled one where none was refreshed.

    Raises:
        UsageError: the directory lacks a file, or a cell breaks its type (the message names file:line:column), or the
            refreshed catalog is damaged.
    """
    if directory is None and os.environ.get(ENVIRONMENT):
        directory = Path(os.environ[ENVIRONMENT])
    if directory is None:
        return _refreshed_catalog()
    if str(directory) == BUNDLED_NAME:
        return Catalog(bundled_files())
    from provisioner.catalog.check import check_files

    files = directory_files(directory)
    check_files(files)
    return Catalog(files, Origin("directory", directory))


def _refreshed_catalog() -> Catalog:
    try:
        folder = cache_folder()
    except UsageError:
        return Catalog(bundled_files())  # a user without a home folder has refreshed nothing
    snapshot = read_snapshot(folder)
    if snapshot is None:
        origin, files = Origin("bundled"), bundled_files()
    elif snapshot.manifest.base != base_digest():
        notice = "the refreshed prices were merged over another version's data and are not used; run `gpuprov prices refresh`"
        origin, files = Origin("bundled", notice=notice), bundled_files()
    else:
        origin, files = Origin("refreshed", snapshot.path, snapshot.manifest), snapshot.files
    observed = supply_path(folder)
    return Catalog(files.with_file(observed) if observed.is_file() else files, origin)


class Catalog:
    """GPUs, instance types, offers and prices of one set of files. Everything it gives is frozen."""

    def __init__(self, files: CatalogFiles, origin: Origin | None = None) -> None:
        self._files = files
        self._markets: dict[str, Market] = {}
        self.origin = origin or Origin("bundled")
        """Where it was read from; not part of what it says."""

    # Identity

    @cached_property
    def digest(self) -> str:
        """``sha256:<hex>`` of the data files: same digest, same answers."""
        return self._files.digest()

    @cached_property
    def as_of(self) -> str:
        """Newest date of an instance price, ISO."""
        return max((row[PRICE_DATE] for row in self._price_rows), default="unknown")

    # GPUs and instance types

    @cached_property
    def gpus(self) -> Mapping[str, Gpu]:
        """GPU models by exact name."""
        return MappingProxyType(read_gpus(self._files))

    @cached_property
    def instances(self) -> Mapping[tuple[str, str], InstanceType]:
        """Instance types of all clouds by (cloud, name), GCP hosts with attached GPUs among them."""
        own = read_instances(self._files)
        return MappingProxyType({**own, **read_attached_types(self._files, own, self.gpus)})

    @property
    def gpu_classes(self) -> Mapping[str, tuple[str, ...]]:
        """Models of each GPU class."""
        return self._names.classes

    def resolve_gpu(self, name: str) -> tuple[str, ...]:
        """Exact models that a class, model or alias means, whatever its case.

        Raises:
            UsageError: an unknown name (with the nearest), or one that covers several sizes, such as ``A100``.
        """
        return self._names.resolve(name)

    @cached_property
    def _names(self) -> GpuNames:
        return GpuNames(self.gpus, self._files)

    # Offers

    def offers(self, clouds: Iterable[str] | None = None) -> tuple[Offer, ...]:
        """What can be bought on AWS and GCP, ordered by cloud, region, type, zone and capacity type.

        An offer whose price is unknown has the price ``None``. Commitments are not offers.
        """
        return tuple(offer for cloud in _chosen(clouds) for offer in self._market(cloud).offers())

    def excluded_offers(self, clouds: Iterable[str] | None = None) -> tuple[ExcludedOffer, ...]:
        """What is listed or priced but must not be bought by, each with its codes (see ``explain_code``)."""
        return tuple(excluded for cloud in _chosen(clouds) for excluded in self._market(cloud).excluded())

    def instance_prices(self, cloud: str) -> PriceView:
        """All prices per instance-hour of a cloud by (instance type, region), those of excluded offers too."""
        return MappingProxyType(self._prices.get(cloud, {}))

    def regions(self, cloud: str) -> tuple[str, ...]:
        """Regions of a cloud that a listing or a price names, sorted; none of a cloud without offers."""
        if cloud not in CLOUDS:
            return ()
        return tuple(sorted(self._market(cloud).regions))

    def regions_offering(self, cloud: str, instance_type: str) -> tuple[str, ...]:
        """Regions where an instance type can be bought in some way, sorted."""
        if cloud not in CLOUDS:
            return ()
        return tuple(dict.fromkeys(lot.region for lot in self.type_market(cloud, instance_type).lots))

    def type_market(self, cloud: str, instance_type: str) -> TypeMarket:
        """How one instance type is sold, zones at the same terms together; empty of a cloud without offers."""
        return self._market(cloud).of(instance_type) if cloud in CLOUDS else TypeMarket()

    def type_codes(self, cloud: str, instance_type: str) -> tuple[str, ...]:
        """Why an instance type makes no offer anywhere; empty where nothing speaks against it.

        For types that no listing and no price names (``p6e-gb200.36xlarge``), so that no excluded offer can say it.
        """
        return type_codes(self.instances[cloud, instance_type])

    def explain_code(self, code: str) -> str:
        """What a suspect or exclusion code means."""
        meanings = {row[0]: row[1] for row in self._files.rows("suspect_reasons.csv", "code", "meaning")}
        return OWN_MEANINGS.get(code) or meanings.get(code, code)

    def _market(self, cloud: str) -> Market:
        if cloud not in self._markets:
            prices, zones = self._prices[cloud], self._zones.get(cloud, {})
            attached = attached_market(self._files, cloud, self._attached_types, prices)
            self._markets[cloud] = Market(
                cloud, self.instances, {**zones, **attached.zones}, {**prices, **attached.prices}
            )
        return self._markets[cloud]

    @cached_property
    def _attached_types(self) -> dict[tuple[str, str], InstanceType]:
        return {key: instance for key, instance in self.instances.items() if instance.attached is not None}

    @cached_property
    def _zones(self) -> dict[str, ZoneIndex]:
        return read_zones(self._files)

    @cached_property
    def _prices(self) -> dict[str, PriceIndex]:
        return index_prices(self._price_rows, self.instances, self.services)

    @cached_property
    def _price_rows(self) -> list[tuple[str, ...]]:
        return read_price_rows(self._files)

    # Prices beside the machine's

    @cached_property
    def services(self) -> ServicePrices:
        """Prices of disks, traffic and addresses by tier."""
        return ServicePrices(self._files)

    def storage_price(self, cloud: str, service: str, region: str) -> Price | None:
        """USD per GiB-month of a disk, object or snapshot service (``ebs_gp3``, ``pd_balanced``, ...), first volume tier.

        Where the region has no row, the reference region's price with confidence ``assumed`` and the code
        ``price_of_other_region``; ``None`` where nothing is known.
        """
        return self.services.storage_price(cloud, service, region)

    def egress_price_tiers(self, cloud: str, region: str) -> Tiers:
        """USD per GiB to the internet by GiB a month; ``prices.tiered_cost_usd`` sums them."""
        return self.services.egress_tiers(cloud, region)

    def public_ip_price(self, cloud: str, *, is_spot: bool = False) -> Price | None:
        """USD per hour of a public IPv4 address in use."""
        return self.services.public_ip_price(cloud, is_spot=is_spot)

    def commitments(self, cloud: str, instance_type: str, region: str) -> Mapping[str, Price]:
        """``commit_1y`` and ``commit_3y`` prices per hour where known, for comparison."""
        return self._commitments.get((cloud, instance_type, region), {})

    @cached_property
    def _commitments(self) -> dict[tuple[str, str, str], dict[str, Price]]:
        return index_commitments(self._price_rows, self.instances, self.services)

    def block_start(self, lot: Lot) -> str | None:
        """When the capacity block whose price a lot has would start, RFC 3339; ``None`` where no offer of one was read."""
        where = (lot.cloud, lot.instance.name, lot.region)
        starts = (self._block_starts.get((*where, zone or ANY)) for zone in lot.zones)
        return next((start for start in starts if start is not None), None)

    @cached_property
    def _block_starts(self) -> dict[tuple[str, str, str, str], str]:
        from provisioner.catalog.blocks import read_block_starts

        return read_block_starts(self._files)

    def price_sources(self, cloud: str | None = None) -> tuple[PriceSource, ...]:
        """Where prices come from, with their dates."""
        from provisioner.catalog.price_sources import read_price_sources

        return read_price_sources(self._files, cloud)

    def listings(self) -> tuple[Listing, ...]:
        """Prices per GPU-hour of other providers, for comparison: they are never chosen."""
        from provisioner.catalog.listings import read_listings

        return read_listings(self._files)

    # Supply, quotas, billing, images

    def supply_of(self, offer: Offer | Lot, zone: str | None = None) -> Supply:
        """Whether a launch is ``likely`` to succeed, ``scarce`` or ``unknown``, why, and when that was seen.

        Launches and placement scores say it; without any, an AWS spot price at the on-demand price does: the market is out of
        spare machines. ``zone`` is one of those of a lot.
        """
        from provisioner.catalog.supply import NOTHING_KNOWN, SCARCE, Supply

        name, capacity = offer.instance.name, str(offer.capacity_type)
        own = offer.zone if isinstance(offer, Offer) else None
        found = self._supply.of(offer.cloud, offer.region, zone or own, name, capacity)
        if found is NOTHING_KNOWN and NO_SPARE in offer.suspect and offer.cloud == "aws":
            return Supply(SCARCE, offer.price_as_of, "spot costs as much as on-demand")
        return found

    @cached_property
    def _supply(self) -> SupplyIndex:
        from provisioner.catalog.supply import SupplyIndex, read_observations

        return SupplyIndex(read_observations(self._files))

    @property
    def knows_account_quotas(self) -> bool:
        """Whether a refresh has read any quota of this account."""
        return bool(self._account_quotas)

    def account_quota(self, cloud: str, region: str, code: str) -> AccountQuota | None:
        """What this account may use of a quota in a region, as a refresh read it; ``None`` where it is not known."""
        return self._account_quotas.get((cloud, region, code))

    @property
    def has_account_quotas(self) -> bool:
        """Whether limits of an account were ever read."""
        return bool(self._account_quotas)

    @cached_property
    def _account_quotas(self) -> dict[tuple[str, str, str], AccountQuota]:
        if QUOTAS not in self._files.names:
            return {}
        from provisioner.catalog.quotas import read_account_quotas

        return read_account_quotas(self._files)

    def interruption_band(self, cloud: str, instance_type: str, region: str) -> Band | None:
        """Share of spot machines interrupted in a month, low and high, or ``None`` where no figure is known."""
        return self._bands.get((cloud, instance_type, region))

    @cached_property
    def _bands(self) -> dict[tuple[str, str, str], Band]:
        return read_interruption_bands(self._files)

    def disk_link(self, cloud: str, instance_type: str) -> DiskLink | None:
        """What an instance type moves to and from its disks, or ``None`` where it is not listed."""
        return self._disk_links.get((cloud, instance_type))

    @cached_property
    def _disk_links(self) -> dict[tuple[str, str], DiskLink]:
        from provisioner.catalog.disk_kinds import read_disk_links

        return read_disk_links(self._files)

    @cached_property
    def quotas(self) -> Mapping[tuple[str, str], Quota]:
        """Account quotas by (cloud, code)."""
        from provisioner.catalog.quotas import read_quotas

        return MappingProxyType(read_quotas(self._files))

    def quota_need(self, instance: InstanceType, capacity: CapacityType) -> QuotaNeed | None:
        """The quota and the units that one instance takes, or ``None`` where it is not known."""
        from provisioner.catalog.quotas import quota_need

        return quota_need(self.quotas, instance, capacity)

    def billing_rule(self, cloud: str, capacity: CapacityType) -> BillingRule | None:
        """How an offer is billed, taken back and stopped, or ``None`` where it is not known."""
        from provisioner.catalog.billing import billing_rule

        return billing_rule(self._billing_rules, cloud, capacity)

    @cached_property
    def _billing_rules(self) -> dict[tuple[str, str], BillingRule]:
        from provisioner.catalog.billing import read_billing_rules

        return read_billing_rules(self._files)

    @cached_property
    def images(self) -> tuple[ImageSelector, ...]:
        """Machine image selectors of all clouds."""
        from provisioner.catalog.images import read_images

        return read_images(self._files)

    @cached_property
    def driver_floors(self) -> tuple[DriverFloor, ...]:
        """Driver limits by GPU generation."""
        from provisioner.catalog.images import read_driver_floors

        return read_driver_floors(self._files)


def _chosen(clouds: Iterable[str] | None) -> tuple[str, ...]:
    if clouds is None:
        return CLOUDS
    wanted = set(clouds)
    unknown = sorted(wanted - set(CLOUDS))
    if unknown:
        raise UsageError(f"the catalog has no offers of {', '.join(unknown)}", remedy=f"name {' or '.join(CLOUDS)}")
    return tuple(cloud for cloud in CLOUDS if cloud in wanted)
