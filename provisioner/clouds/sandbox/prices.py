"""What the sandbox sells: the catalog's offers, and the catalog's prices as exact rates in USD an hour."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from decimal import Decimal
from fractions import Fraction
from functools import cached_property
from typing import TYPE_CHECKING, Protocol

from provisioner.clouds.cloud import Placement
from provisioner.clouds.sandbox.errors import rejected
from provisioner.clouds.sandbox.pools import matches
from provisioner.units import GIB, HOURS_PER_MONTH, DiskSpeed, decimal_string
from provisioner.vocabulary import CapacityType

if TYPE_CHECKING:  # the catalog costs more to import than all of the sandbox, and most calls need none of it
    from provisioner.catalog.billing import BillingRule
    from provisioner.catalog.instances import InstanceType
    from provisioner.catalog.offers import Offer
    from provisioner.catalog.prices import Price, ServicePrices
    from provisioner.catalog.quotas import QuotaNeed

DISK_SERVICES = {"aws": "ebs_gp3", "gcp": "pd_balanced"}
"""The disk that a machine gets as root and data volume, as storage_capacity_prices.csv names it."""

_PLACES = Decimal("1e-10")
"""Rates and amounts are rounded to this only where they leave the sandbox."""


class PriceList(Protocol):
    """What the sandbox needs of a catalog; ``provisioner.catalog.snapshot.Catalog`` has it."""

    @property
    def instances(self) -> Mapping[tuple[str, str], InstanceType]:
        """Instance types by cloud and name."""
        ...

    def offers(self, clouds: Iterable[str] | None = None) -> tuple[Offer, ...]:
        """All offers of the clouds."""
        ...

    def storage_price(self, cloud: str, service: str, region: str) -> Price | None:
        """USD per GiB-month."""
        ...

    @property
    def services(self) -> ServicePrices:
        """Prices of disks by what they are made to do, among others."""
        ...

    def public_ip_price(self, cloud: str) -> Price | None:
        """USD per hour."""
        ...

    def quota_need(self, instance: InstanceType, capacity: CapacityType) -> QuotaNeed | None:
        """What one machine takes from a quota."""
        ...

    def billing_rule(self, cloud: str, capacity: CapacityType) -> BillingRule | None:
        """How long before a machine is taken back its notice comes, among others."""
        ...


@dataclass(frozen=True, slots=True)
class Quote:
    """What the catalog offers for a placement: zones in order, and the rate in each (``None``: unknown)."""

    instance: InstanceType
    rates: Mapping[str, Fraction | None]
    quota: QuotaNeed | None
    """What one machine takes from a quota; ``None`` where it takes from none that is known."""

    @property
    def zones(self) -> tuple[str, ...]:
        """Zones that may be taken."""
        return tuple(self.rates)


class Market:
    """The catalog as the sandbox sees it; loaded when something is first bought, and once only."""

    def __init__(self, load: Callable[[], PriceList]) -> None:
        self._load = load
        self._by_cloud: dict[str, Mapping[tuple[str, str], tuple[Offer, ...]]] = {}

    @cached_property
    def _catalog(self) -> PriceList:
        return self._load()

    def _offers(self, cloud: str) -> Mapping[tuple[str, str], tuple[Offer, ...]]:
        """Offers of a cloud by region and instance type."""
        if cloud not in self._by_cloud:
            found: dict[tuple[str, str], list[Offer]] = {}
            for offer in self._catalog.offers((cloud,)):
                found.setdefault((offer.region, offer.instance.name), []).append(offer)
            self._by_cloud[cloud] = {key: tuple(offers) for key, offers in found.items()}
        return self._by_cloud[cloud]

    def prepare(self, cloud: str) -> None:
        """Read what the catalog has of a cloud, before a transaction would make other processes wait for it."""
        self._offers(cloud)

    def zones(self, cloud: str, region: str) -> tuple[str, ...]:
        """Zones of a region that the catalog names, sorted; empty for an unknown region.

        Where the catalog knows offers of a GCP region but names no zone of it, zone ``-a`` stands in.
        """
        offers = [one for (where, _), found in self._offers(cloud).items() if where == region for one in found]
        named = sorted({offer.zone for offer in offers if offer.zone})
        return tuple(named) if named or not offers else (f"{region}-a",)

    def quote(self, placement: Placement) -> Quote:
        """Zones and rates for a placement.

        Raises:
            Rejected: the catalog has no such instance type, or does not offer it there.
        """
        cloud, name = placement.cloud, placement.instance_type
        instance = self._catalog.instances.get((cloud, name))
        if instance is None:
            raise rejected(
                "unknown-type", cloud, f"there is no instance type {name} on {cloud}", "see `gpuprov offers`"
            )
        rates: dict[str, Fraction | None] = {}
        for offer in self._offers(cloud).get((placement.region, name), ()):
            if offer.capacity_type is placement.capacity_type:
                rate = None if offer.price_usd_per_hour is None else Fraction(offer.price_usd_per_hour)
                # An offer that names no zone holds in each zone of its region.
                for zone in (offer.zone,) if offer.zone else self.zones(cloud, placement.region):
                    rates.setdefault(zone, rate)
        allowed = {zone: rates[zone] for zone in sorted(rates) if placement.zone in {None, zone}}
        if not allowed:
            where = placement.zone or placement.region
            elsewhere = f"; it is offered in {', '.join(sorted(rates))}" if rates else ""
            raise rejected(
                "unsupported", cloud, f"{name} {placement.capacity_type} is not offered in {where}{elsewhere}"
            )
        return Quote(instance, allowed, self._catalog.quota_need(instance, placement.capacity_type))

    def is_sold(self, pool: str) -> bool:
        """Whether any offer falls into a pool (see ``pools``)."""
        for offer in self._catalog.offers():
            for zone in (offer.zone,) if offer.zone else self.zones(offer.cloud, offer.region):
                if matches(pool, f"{offer.cloud}/{offer.region}/{zone}/{offer.instance.name}/{offer.capacity_type}"):
                    return True
        return False

    def disk_rate_per_byte(self, cloud: str, region: str) -> Fraction | None:
        """USD an hour for one byte of the default disk."""
        price = self._catalog.storage_price(cloud, DISK_SERVICES[cloud], region)
        return None if price is None else Fraction(price.amount_usd) / HOURS_PER_MONTH / GIB

    def speed_rate(self, cloud: str, region: str, speed: DiskSpeed | None) -> Fraction | None:
        """USD an hour for what the default disk is made to do beyond what it includes; ``None`` for an unknown price."""
        if speed is None:
            return Fraction(0)
        from provisioner.catalog.prices import tiered_cost_usd

        total = Fraction(0)
        for metric, wanted in (("iops", speed.iops), ("mib_per_s", speed.mib_per_s)):
            tiers = self._catalog.services.performance_tiers(cloud, DISK_SERVICES[cloud], metric, region)
            price = tiered_cost_usd(tiers, Decimal(wanted)) if tiers else None
            if price is None:
                return None
            total += Fraction(price) / HOURS_PER_MONTH
        return total

    def ip_rate(self, cloud: str) -> Fraction | None:
        """USD an hour for a public IPv4 address in use."""
        price = self._catalog.public_ip_price(cloud)
        return None if price is None else Fraction(price.amount_usd)

    def reclaim_notice(self, cloud: str) -> timedelta:
        """Time between the notice and the end of a spot machine; none where the catalog knows of no notice."""
        rule = self._catalog.billing_rule(cloud, CapacityType.SPOT)
        return timedelta(seconds=(rule.reclaim_notice_s or 0) if rule is not None else 0)

    def quota_codes(self, cloud: str, name: str) -> tuple[str, ...]:
        """Quota codes that a name stands for: a code itself, or those of an instance type or family; empty: unknown."""
        types = [one for (where, _), one in self._catalog.instances.items() if where == cloud]
        codes = {code for one in types for code in (one.quota_on_demand, one.quota_spot) if code}
        if name in codes:
            return (name,)
        named = [one for one in types if name in (one.name, one.family)]
        return tuple(sorted({code for one in named for code in (one.quota_on_demand, one.quota_spot) if code}))


def rate_text(rate: Fraction | None) -> str | None:
    """A rate as the file keeps it: an exact fraction, or ``None`` for an unknown price."""
    return None if rate is None else str(rate)


def usd_text(amount: Fraction | None) -> str | None:
    """USD as a decimal string with at most ten places; unknown stays ``None``."""
    if amount is None:
        return None
    return decimal_string((Decimal(amount.numerator) / Decimal(amount.denominator)).quantize(_PLACES))
