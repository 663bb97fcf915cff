"""Dated prices of disks, traffic and addresses, in volume tiers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from decimal import Decimal

from provisioner.catalog.cells import split_codes
from provisioner.catalog.codes import OTHER_REGION
from provisioner.catalog.files import CatalogFiles
from provisioner.records import record

REFERENCE_REGIONS: Mapping[str, str] = {"aws": "us-east-1", "gcp": "us-central1"}
"""Region whose price stands in, marked, where a region has none: AWS disk prices are known for us-east-1 only."""

ANY_REGION = "*"
_WORLDWIDE = ("internet", "internet, worldwide except China and Australia")
"""Destinations that mean the public internet as such."""
_PUBLIC_IP_ITEMS = {"aws": "public_ipv4_address", "gcp": "external_ipv4_in_use_standard_vm"}
_SPOT_IP_ITEMS = {"aws": "public_ipv4_address", "gcp": "external_ipv4_in_use_spot_vm"}


@record(frozen=True, slots=True)
class Price:
    """A price in USD per ``unit``, with its date and where it holds.

    ``region`` is the region whose price it is, ``*`` for a price of all regions. It differs from the one asked for only
    together with the code ``price_of_other_region`` and confidence ``assumed``.
    """

    amount_usd: Decimal
    unit: str
    """``GiB-month``, ``GiB``, ``hour``, ``iops-month``, ``mib_per_s-month``, ``1000_requests``."""
    region: str
    source: str
    as_of: str
    confidence: str
    suspect: tuple[str, ...] = ()


@record(frozen=True, slots=True)
class PriceTier:
    """A price that holds from one volume to another, in units; ``to_units`` is ``None`` for no upper end."""

    from_units: Decimal
    to_units: Decimal | None
    price: Price


Tiers = tuple[PriceTier, ...]
_ByRegion = dict[tuple[str, ...], dict[str, list[PriceTier]]]


def tiered_cost_usd(tiers: Sequence[PriceTier], units: Decimal) -> Decimal | None:
    """USD of so many units, each unit at the price of its tier; ``None`` where the tiers do not reach that far."""
    total, reached = Decimal(0), Decimal(0)
    for tier in tiers:
        if units <= tier.from_units:
            break
        if tier.from_units > reached:
            return None
        upper = units if tier.to_units is None else min(units, tier.to_units)
        if upper > reached:
            total += (upper - reached) * tier.price.amount_usd
            reached = upper
    return total if reached >= units else None


class ServicePrices:
    """Prices of storage, traffic and addresses, by cloud, service and region.

    Where a region has no row of its own, the price for all regions is taken, then that of the cloud's reference region,
    marked. Nothing is returned where none of the three is known.
    """

    def __init__(self, files: CatalogFiles) -> None:
        self._storage = _storage_tiers(files)
        self._performance = _performance_tiers(files)
        self._network = _network_tiers(files)
        self._misc = _misc_prices(files)

    def storage_tiers(self, cloud: str, service: str, region: str) -> Tiers:
        """USD per GiB-month by volume, smallest tier first."""
        return _in_region(self._storage, (cloud, service), region)

    def storage_price(self, cloud: str, service: str, region: str) -> Price | None:
        """USD per GiB-month of a storage service's first volume tier, or ``None`` where none is known."""
        tiers = self.storage_tiers(cloud, service, region)
        return tiers[0].price if tiers else None

    def performance_tiers(self, cloud: str, service: str, metric: str, region: str) -> Tiers:
        """USD per unit and month of ``iops`` or ``mib_per_s``; what the disk includes is a first tier at 0."""
        return _in_region(self._performance, (cloud, service, metric), region)

    def egress_tiers(self, cloud: str, region: str) -> Tiers:
        """USD per GiB to the public internet by GiB a month, smallest tier first.

        On AWS the account's free allowance (100 GB a month over all services and regions) is the first tier, at 0; other
        traffic of the account may have used it.
        """
        for destination in _WORLDWIDE:
            key = (cloud, "internet_egress", destination)
            tiers = _in_region(self._network, key, region)
            if tiers and tiers[0].price.region != ANY_REGION:
                return _after_allowance(self._network[key].get(ANY_REGION, []), tiers)
            if tiers:
                return tiers
        return ()

    def traffic_tiers(self, cloud: str, traffic: str, destination: str, region: str) -> Tiers:
        """USD per GiB of ``inter_zone``, ``inter_region`` or ``nat_processing`` traffic to a destination as network_prices.csv names it."""
        return _in_region(self._network, (cloud, traffic, destination), region)

    def misc_price(self, cloud: str, item: str, region: str) -> Price | None:
        """USD of an item of misc_prices.csv, such as ``nat_gateway``, or ``None``."""
        tiers = _in_region(self._misc, (cloud, item), region)
        return tiers[0].price if tiers else None

    def public_ip_price(self, cloud: str, *, is_spot: bool = False) -> Price | None:
        """USD per hour of a public IPv4 address in use by a running machine, or ``None``. Google Cloud asks half on spot machines."""
        item = (_SPOT_IP_ITEMS if is_spot else _PUBLIC_IP_ITEMS).get(cloud)
        return self.misc_price(cloud, item, ANY_REGION) if item else None


def _in_region(table: _ByRegion, key: tuple[str, ...], region: str) -> Tiers:
    regions = table.get(key, {})
    reference = REFERENCE_REGIONS.get(key[0], ANY_REGION)
    found = regions.get(region)
    if found is None and reference in regions and region != ANY_REGION:
        # A price for all regions comes first, unless it is only an allowance with an upper end.
        everywhere = regions.get(ANY_REGION)
        if everywhere is None or everywhere[-1].to_units is not None:
            return tuple(replace(tier, price=_assumed(tier.price)) for tier in regions[reference])
    return tuple(found if found is not None else regions.get(ANY_REGION, ()))


def _assumed(price: Price) -> Price:
    return replace(price, confidence="assumed", suspect=(*price.suspect, OTHER_REGION))


def _after_allowance(allowance: Iterable[PriceTier], tiers: Tiers) -> Tiers:
    """Regional tiers cut so that the allowance comes first."""
    merged = list(allowance)
    reached = merged[-1].to_units if merged else Decimal(0)
    for tier in tiers:
        if reached is None or (tier.to_units is not None and tier.to_units <= reached):
            continue
        merged.append(replace(tier, from_units=max(tier.from_units, reached)))
    return tuple(merged)


def _add(table: _ByRegion, key: tuple[str, ...], region: str, tier: PriceTier) -> None:
    tiers = table.setdefault(key, {}).setdefault(region, [])
    tiers.append(tier)
    tiers.sort(key=lambda one: one.from_units)


def _tier(start: str, end: str, price: Price) -> PriceTier:
    return PriceTier(Decimal(start), Decimal(end) if end else None, price)


def _storage_tiers(files: CatalogFiles) -> _ByRegion:
    table: _ByRegion = {}
    for cloud, service, region, start, end, amount, source, as_of, confidence, codes in files.rows(
        "storage_capacity_prices.csv",
        *("cloud", "service", "region", "tier_from_gib", "tier_to_gib", "price_usd_per_gib_month"),
        *("source", "as_of", "confidence", "suspect_reason"),
    ):
        price = Price(Decimal(amount), "GiB-month", region, source, as_of, confidence, split_codes(codes))
        _add(table, (cloud, service), region, _tier(start, end, price))
    return table


def _performance_tiers(files: CatalogFiles) -> _ByRegion:
    table: _ByRegion = {}
    for cloud, service, metric, region, start, end, free, amount, source, as_of, confidence, codes in files.rows(
        "storage_performance_prices.csv",
        *("cloud", "service", "metric", "region", "tier_from", "tier_to", "free_units", "price_usd_per_unit_month"),
        *("source", "as_of", "confidence", "suspect_reason"),
    ):
        price = Price(Decimal(amount), f"{metric}-month", region, source, as_of, confidence, split_codes(codes))
        tier = _tier(start, end, price)
        included = Decimal(free)
        if included > tier.from_units:
            free_tier = PriceTier(tier.from_units, included, replace(price, amount_usd=Decimal(0)))
            _add(table, (cloud, service, metric), region, free_tier)
            tier = replace(tier, from_units=included)
        _add(table, (cloud, service, metric), region, tier)
    return table


def _network_tiers(files: CatalogFiles) -> _ByRegion:
    table: _ByRegion = {}
    for cloud, traffic, region, destination, start, end, amount, source, as_of, confidence, codes in files.rows(
        "network_prices.csv",
        *("cloud", "traffic", "region", "destination", "tier_from_gib", "tier_to_gib", "price_usd_per_gib"),
        *("source", "as_of", "confidence", "suspect_reason"),
    ):
        price = Price(Decimal(amount), "GiB", region, source, as_of, confidence, split_codes(codes))
        _add(table, (cloud, traffic, destination), region, _tier(start, end, price))
    return table


def _misc_prices(files: CatalogFiles) -> _ByRegion:
    table: _ByRegion = {}
    for cloud, item, region, amount, unit, source, as_of, confidence, codes in files.rows(
        "misc_prices.csv",
        *("cloud", "item", "region", "price_usd", "per_unit", "source", "as_of", "confidence", "suspect_reason"),
    ):
        price = Price(Decimal(amount), unit, region, source, as_of, confidence, split_codes(codes))
        _add(table, (cloud, item), region, PriceTier(Decimal(0), None, price))
    return table
