"""Offers: instance type x region x zone x capacity type with a dated price, and those kept out with their codes.

A market is joined one instance type at a time, and zones that sell at the same terms stay together as a lot: a plan looks at a
few dozen types and never at single zones, while the whole list has thousands of offers.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from decimal import Decimal
from itertools import groupby
from typing import NamedTuple

from provisioner.catalog.codes import NOT_OFFERED, STALE
from provisioner.catalog.exclusions import capacity_codes, capacity_types, price_codes, type_codes
from provisioner.catalog.files import CatalogFiles
from provisioner.catalog.instance_prices import ANY, CLOUDS, InstancePrice, Place, PriceIndex
from provisioner.catalog.instances import InstanceType
from provisioner.catalog.outliers import price_outliers
from provisioner.records import record
from provisioner.vocabulary import CapacityType


@record(frozen=True, slots=True)
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


class Lot(NamedTuple):
    """Offers that differ in their zone alone. ``zones`` are sorted; a single ``None`` where no listing names zones.

    ``codes`` say why it must not be bought by; empty for one that may. The other fields are those of ``Offer``.
    """

    instance: InstanceType
    region: str
    zones: tuple[str | None, ...]
    capacity_type: CapacityType
    price_usd_per_hour: Decimal | None
    price_as_of: str | None
    price_source: str | None
    suspect: tuple[str, ...] = ()
    codes: tuple[str, ...] = ()

    @property
    def cloud(self) -> str:
        """``aws`` or ``gcp``."""
        return self.instance.cloud

    @property
    def key(self) -> str:
        """Text for people: the first zone stands for all where there is one, ``*`` for several."""
        zone = self.zones[0] if len(self.zones) == 1 and self.zones[0] else ANY
        return f"{self.cloud}/{self.region}/{zone}/{self.instance.name}/{self.capacity_type}"

    def offers(self) -> Iterator[Offer]:
        """The offer of each zone."""
        instance, region, zones, capacity, price, as_of, source, suspect, _ = self
        for zone in zones:
            yield Offer(instance, region, zone, capacity, price, as_of, source, suspect)


class TypeMarket(NamedTuple):
    """How one instance type is sold, by region and capacity type: what may be bought, and what is kept out."""

    lots: tuple[Lot, ...] = ()
    excluded: tuple[Lot, ...] = ()


ZoneIndex = dict[tuple[str, str], list[str]]
"""Zones that offer a type, by (instance type, region)."""

_ON_DEMAND = CapacityType.ON_DEMAND
_STRICT_LISTINGS = frozenset({"aws"})
"""Clouds whose listing of offered types is complete: what it lacks is not offered. Elsewhere it is not known."""


def read_zones(files: CatalogFiles) -> dict[str, ZoneIndex]:
    """Zones that offer an instance type, by cloud, sorted; none of them where a listing says that the region has no such type."""
    clouds: dict[str, ZoneIndex] = {cloud: {} for cloud in CLOUDS}
    for cloud, region, zone, name, offered in files.rows(
        "offerings.csv", "cloud", "region", "zone", "instance_type", "offered", clouds=CLOUDS
    ):
        zones = clouds[cloud].setdefault((name, region), [])
        if offered == "yes":
            zones.append(zone)
    for index in clouds.values():
        for zones in index.values():
            zones.sort()
    return clouds


class _Term(NamedTuple):
    """What a type costs at a place, and why it must not be bought there."""

    amount_usd: Decimal | None
    as_of: str | None
    source: str | None
    suspect: tuple[str, ...]
    codes: tuple[str, ...]


class Market:
    """All that is known to be sold in one cloud: where it offers its types, joined with what they cost."""

    def __init__(
        self, cloud: str, instances: Mapping[tuple[str, str], InstanceType], zones: ZoneIndex, prices: PriceIndex
    ) -> None:
        self._cloud = cloud
        self._instances = instances
        self._zones = zones
        self._prices = prices
        self._outliers = price_outliers(cloud, prices, instances)
        self._priced_on_demand = {name for (name, _), places in prices.items() if (ANY, _ON_DEMAND) in places}
        self._places: dict[str, set[str]] = {}
        for index in (zones, prices):
            for name, region in index:
                self._places.setdefault(name, set()).add(region)
        self._types: dict[str, TypeMarket] = {}

    @property
    def regions(self) -> frozenset[str]:
        """Regions that a listing or a price names."""
        return frozenset(set().union(*self._places.values()) - {ANY})

    def of(self, name: str) -> TypeMarket:
        """How one instance type is sold, ordered by region; empty where nothing names it."""
        if name not in self._types:
            self._types[name] = self._join(name)
        return self._types[name]

    def offers(self) -> tuple[Offer, ...]:
        """Everything that can be bought, ordered by region, type, zone and capacity type."""
        return tuple(_in_order(lot for name in self._places for lot in self.of(name).lots))

    def excluded(self) -> tuple[ExcludedOffer, ...]:
        """Everything kept out, ordered by region and type."""
        lots = (lot for name in self._places for lot in self.of(name).excluded)
        return tuple(ExcludedOffer(offer, lot.codes) for lot in sorted(lots, key=_place) for offer in lot.offers())

    def _join(self, name: str) -> TypeMarket:
        places = self._places.get(name, set())
        if not places:
            return TypeMarket()
        join = _Join(self._cloud, self._instances[self._cloud, name], self._terms_without_price(name))
        for region in sorted(places - {ANY}) or [ANY]:  # a price of all regions tells no region by itself
            own = self._prices.get((name, region), {})
            zones = self._zones.get((name, region))
            if zones == [] or (zones is None and self._cloud in _STRICT_LISTINGS) or region == ANY:
                join.refuse(region, self._priced(name, region, own))
            else:
                everywhere = self._prices.get((name, ANY), {})
                join.sell(region, zones or (None,), self._priced(name, region, {**everywhere, **own}))
        return TypeMarket(tuple(join.lots), tuple(join.excluded))

    def _terms_without_price(self, name: str) -> Mapping[CapacityType, _Term]:
        """Terms without a price of each way in which a type is sold; the same in all regions."""
        instance = self._instances[self._cloud, name]
        priced = name in self._priced_on_demand
        return {
            kind: _Term(None, None, None, (), _codes(instance, kind, priced_on_demand=priced))
            for kind in capacity_types(instance)
        }

    def _priced(
        self, name: str, region: str, prices: Mapping[Place, InstancePrice]
    ) -> list[tuple[Place, InstancePrice, bool]]:
        """Prices of a type in a region, each with whether it is an outlier."""
        outliers = self._outliers
        return [(place, price, bool(outliers) and (name, region, place) in outliers) for place, price in prices.items()]


class _Join:
    """Collects the lots of one instance type."""

    def __init__(self, cloud: str, instance: InstanceType, unpriced: Mapping[CapacityType, _Term]) -> None:
        self.lots: list[Lot] = []
        self.excluded: list[Lot] = []
        self._cloud = cloud
        self._instance = instance
        self._unpriced = unpriced

    def sell(
        self, region: str, zones: Sequence[str | None], prices: Iterable[tuple[Place, InstancePrice, bool]]
    ) -> None:
        """All lots of a region that offers the type."""
        in_each_zone = dict(self._unpriced)
        of_zones: dict[Place, _Term] = {}
        for place, price, is_outlier in prices:
            if place[0] == ANY:
                in_each_zone[place[1]] = self._term(place, price, is_outlier=is_outlier)
            else:
                of_zones[place] = self._term(place, price, is_outlier=is_outlier)
        for capacity, term in in_each_zone.items():
            if not of_zones:
                self._add(region, tuple(zones), capacity, term)
                continue
            together: dict[_Term, list[str | None]] = {}
            for zone in zones:
                together.setdefault(of_zones.pop((zone or ANY, capacity), term), []).append(zone)
            for own, alike in together.items():
                self._add(region, tuple(alike), capacity, own)
        for place in sorted(of_zones):
            self._refuse(region, place, of_zones[place])

    def refuse(self, region: str, prices: Iterable[tuple[Place, InstancePrice, bool]]) -> None:
        """The priced rows of a region that does not offer the type."""
        for place, price, is_outlier in sorted(prices):
            self._refuse(region, place, self._term(place, price, is_outlier=is_outlier))

    def _refuse(self, region: str, place: Place, term: _Term) -> None:
        zone = None if place[0] == ANY else place[0]
        self._add(region, (zone,), place[1], term._replace(codes=(*term.codes, NOT_OFFERED)))

    def _term(self, place: Place, price: InstancePrice, *, is_outlier: bool) -> _Term:
        """Price and codes of the type at a place."""
        unpriced = self._unpriced.get(place[1])
        codes = unpriced.codes if unpriced else _codes(self._instance, place[1], priced_on_demand=False)
        if price.suspect or is_outlier:
            codes = tuple(dict.fromkeys((*codes, *price_codes(price, is_outlier=is_outlier))))
        # An excluded offer shows its stale price: it is read, never paid by.
        amount = None if STALE in price.suspect and not codes else price.amount_usd
        return _Term(amount, price.as_of, price.source, price.suspect, codes)

    def _add(self, region: str, zones: tuple[str | None, ...], capacity: CapacityType, term: _Term) -> None:
        amount, as_of, source, suspect, codes = term
        lot = Lot(self._instance, region, zones, capacity, amount, as_of, source, suspect, codes)
        (self.excluded if codes else self.lots).append(lot)


def _codes(instance: InstanceType, kind: CapacityType, *, priced_on_demand: bool) -> tuple[str, ...]:
    """Why an instance type must not be bought in this way, wherever it is."""
    return (*type_codes(instance, kind), *capacity_codes(instance, kind, priced_on_demand=priced_on_demand))


def _place(lot: Lot) -> tuple[str, str]:
    return (lot.region, lot.instance.name)


def _in_order(lots: Iterable[Lot]) -> Iterator[Offer]:
    """The offers of lots by region, type and zone; those of one zone in the order of the lots."""
    for _, together in groupby(sorted(lots, key=_place), key=_place):
        yield from sorted((offer for lot in together for offer in lot.offers()), key=lambda offer: offer.zone or "")
