"""Offers: instance type x region x zone x capacity type with a dated price, and those kept out with their codes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import NamedTuple

from provisioner.catalog.codes import NO_CAPACITY_BLOCK, NOT_OFFERED, STALE
from provisioner.catalog.exclusions import capacity_codes, capacity_types, price_codes, type_codes
from provisioner.catalog.files import CatalogFiles
from provisioner.catalog.instance_prices import ANY, CLOUDS, InstancePrice, Place, PriceIndex
from provisioner.catalog.instances import InstanceType
from provisioner.catalog.outliers import price_outliers
from provisioner.vocabulary import CapacityType


@dataclass(frozen=True, slots=True)
class Offer:
    """What can be bought. ``price_usd_per_hour`` is one instance, bundled local disks included; ``None`` is unknown.

    ``zone`` is an AWS zone id or a GCP zone; ``None`` where no listing names zones. ``suspect`` holds codes of
    suspect_reasons.csv and ``codes``; a suspect code never disappears silently. A price with the code ``stale`` is not
    given, only its date and source.
    """

    instance: InstanceType
    region: str
    zone: str | None
    capacity_type: CapacityType
    price_usd_per_hour: Decimal | None
    price_as_of: str | None
    price_source: str | None
    suspect: tuple[str, ...] = ()

    @property
    def cloud(self) -> str:
        """``aws`` or ``gcp``."""
        return self.instance.cloud

    @property
    def key(self) -> str:
        """Stable text of the offer for records, tokens and rejections: ``aws/us-east-1/use1-az1/g6.xlarge/on-demand``."""
        return f"{self.cloud}/{self.region}/{self.zone or '*'}/{self.instance.name}/{self.capacity_type}"


class ExcludedOffer(NamedTuple):
    """An offer that must not be bought by, and the codes that say why."""

    offer: Offer
    codes: tuple[str, ...]


class Market(NamedTuple):
    """All that is known to be sold in one cloud."""

    offers: tuple[Offer, ...]
    excluded: tuple[ExcludedOffer, ...]


ZoneIndex = dict[tuple[str, str], list[str]]
"""Zones that offer a type, by (instance type, region)."""

_ON_DEMAND = CapacityType.ON_DEMAND
_STRICT_LISTINGS = frozenset({"aws"})
"""Clouds whose listing of offered types is complete: what it lacks is not offered. Elsewhere it is not known."""


def read_zones(files: CatalogFiles) -> dict[str, ZoneIndex]:
    """Zones that offer an instance type, by cloud, sorted; none of them where a listing says that the region has no such type."""
    clouds: dict[str, ZoneIndex] = {}
    for cloud, region, zone, name, offered in files.rows(
        "offerings.csv", "cloud", "region", "zone", "instance_type", "offered", clouds=CLOUDS
    ):
        zones = clouds.setdefault(cloud, {}).setdefault((name, region), [])
        if offered == "yes":
            zones.append(zone)
    for index in clouds.values():
        for zones in index.values():
            zones.sort()
    return clouds


def build_market(
    cloud: str, instances: Mapping[tuple[str, str], InstanceType], zones: ZoneIndex, prices: PriceIndex
) -> Market:
    """Join where a cloud offers its types with what they cost, ordered by region, type, zone and capacity type."""
    join = _Join(cloud, instances, zones, prices)
    for region, name in sorted({(region, name) for name, region in (*zones, *prices) if region != ANY}):
        join.add(name, region)
    for name, region in prices:
        if region == ANY and name not in join.names_seen:
            join.add_unoffered(name, region)
    return Market(tuple(join.offers), tuple(join.excluded))


class _Term(NamedTuple):
    """What a type costs at a place, and why it must not be bought there."""

    amount_usd: Decimal | None
    as_of: str | None
    source: str | None
    suspect: tuple[str, ...]
    codes: tuple[str, ...]


class _Join:
    """Collects offers and exclusions of one cloud."""

    def __init__(
        self, cloud: str, instances: Mapping[tuple[str, str], InstanceType], zones: ZoneIndex, prices: PriceIndex
    ) -> None:
        self.offers: list[Offer] = []
        self.excluded: list[ExcludedOffer] = []
        self.names_seen: set[str] = set()
        self._cloud = cloud
        self._instances = instances
        self._zones = zones
        self._prices = prices
        self._outliers = price_outliers(cloud, prices, instances)
        self._priced_on_demand = {name for (name, _), places in prices.items() if (ANY, _ON_DEMAND) in places}
        self._unpriced: dict[str, dict[CapacityType, _Term]] = {}

    def add(self, name: str, region: str) -> None:
        """All offers of one type in one region."""
        self.names_seen.add(name)
        zones = self._zones.get((name, region))
        if zones == [] or (zones is None and self._cloud in _STRICT_LISTINGS):
            self.add_unoffered(name, region)
            return
        prices = self._prices_in(name, region)
        in_each_zone = dict(self._unpriced_terms(name))
        of_zones: dict[Place, _Term] = {}
        for place, price in prices.items():
            term = self._term(name, region, place, price)
            if place[0] == ANY:
                in_each_zone[place[1]] = term
            else:
                of_zones[place] = term
        for zone in zones or (None,):
            for capacity, term in in_each_zone.items():
                own = of_zones.pop((zone, capacity), term) if zone is not None and of_zones else term
                self._sell(name, region, zone, capacity, own)
        for place in sorted(of_zones):
            self._refuse(name, region, place, of_zones[place])

    def add_unoffered(self, name: str, region: str) -> None:
        """The priced rows of a type in a region that does not offer it."""
        prices = self._prices.get((name, region), {})
        for place in sorted(prices):
            self._refuse(name, region, place, self._term(name, region, place, prices[place]))

    def _refuse(self, name: str, region: str, place: Place, term: _Term) -> None:
        zone = None if place[0] == ANY else place[0]
        self._sell(name, region, zone, place[1], term._replace(codes=(*term.codes, NOT_OFFERED)))

    def _prices_in(self, name: str, region: str) -> Mapping[Place, InstancePrice]:
        own = self._prices.get((name, region), {})
        everywhere = self._prices.get((name, ANY))
        return {**everywhere, **own} if everywhere else own

    def _unpriced_terms(self, name: str) -> Mapping[CapacityType, _Term]:
        """Terms without a price of each way in which a type is sold; the same in all regions."""
        if name not in self._unpriced:
            instance = self._instances[self._cloud, name]
            priced = name in self._priced_on_demand
            codes = {
                capacity: (*type_codes(instance), *capacity_codes(instance, capacity, priced_on_demand=priced))
                for capacity in capacity_types(instance)
            }
            self._unpriced[name] = {capacity: _Term(None, None, None, (), found) for capacity, found in codes.items()}
        return self._unpriced[name]

    def _term(self, name: str, region: str, place: Place, price: InstancePrice) -> _Term:
        """Price and codes of a type at a place."""
        unpriced = self._unpriced_terms(name).get(place[1])
        codes = unpriced.codes if unpriced else (NO_CAPACITY_BLOCK,)
        if price.suspect or self._outliers:
            is_outlier = (name, region, place) in self._outliers
            codes = tuple(dict.fromkeys((*codes, *price_codes(price, is_outlier=is_outlier))))
        # An excluded offer shows its stale price: it is read, never paid by.
        amount = None if STALE in price.suspect and not codes else price.amount_usd
        return _Term(amount, price.as_of, price.source, price.suspect, codes)

    def _sell(self, name: str, region: str, zone: str | None, capacity: CapacityType, term: _Term) -> None:
        amount, as_of, source, suspect, codes = term
        offer = Offer(self._instances[self._cloud, name], region, zone, capacity, amount, as_of, source, suspect)
        if codes:
            self.excluded.append(ExcludedOffer(offer, codes))
        else:
            self.offers.append(offer)
