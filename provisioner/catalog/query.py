"""Filters and order of the ``offers`` command."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from decimal import Decimal

from provisioner.catalog.offers import ExcludedOffer, Offer
from provisioner.catalog.snapshot import Catalog
from provisioner.errors import UsageError
from provisioner.vocabulary import CapacityType

_RESERVED = (CapacityType.RESERVED, CapacityType.CAPACITY_BLOCK, CapacityType.FLEX_START)


@dataclass(frozen=True, slots=True)
class OfferQuery:
    """What to show. ``None`` does not filter; a price limit leaves out offers whose price is unknown."""

    models: frozenset[str] | None = None
    clouds: frozenset[str] | None = None
    regions: frozenset[str] | None = None
    instance_types: frozenset[str] | None = None
    capacity_types: frozenset[CapacityType] | None = None
    max_price_usd_per_hour: Decimal | None = None

    def matches(self, offer: Offer) -> bool:
        """Whether an offer passes all filters."""
        price = offer.price_usd_per_hour
        return (
            (self.models is None or offer.instance.gpu_model in self.models)
            and (self.clouds is None or offer.cloud in self.clouds)
            and (self.regions is None or offer.region in self.regions)
            and (self.instance_types is None or offer.instance.name in self.instance_types)
            and (self.capacity_types is None or offer.capacity_type in self.capacity_types)
            and (self.max_price_usd_per_hour is None or (price is not None and price <= self.max_price_usd_per_hour))
        )


def make_query(
    catalog: Catalog,
    *,
    gpus: Sequence[str] = (),
    clouds: Sequence[str] = (),
    regions: Sequence[str] = (),
    instance_types: Sequence[str] = (),
    capacities: Sequence[str] = (),
    max_price_usd_per_hour: Decimal | None = None,
) -> OfferQuery:
    """A query from names as people write them; an empty list does not filter.

    Raises:
        UsageError: a GPU, region or instance type that the catalog does not know.
    """
    wanted = clouds or ("aws", "gcp")
    known_regions = {region for cloud in wanted for region in catalog.regions(cloud)}
    known_types = {name for cloud, name in catalog.instances if cloud in wanted}
    _check_known("region", regions, known_regions)
    _check_known("instance type", instance_types, known_types)
    models = frozenset(model for name in gpus for model in catalog.resolve_gpu(name))
    return OfferQuery(
        models=models if gpus else None,
        clouds=frozenset(clouds) if clouds else None,
        regions=frozenset(regions) if regions else None,
        instance_types=frozenset(instance_types) if instance_types else None,
        capacity_types=frozenset(_capacity_types(capacities)) if capacities else None,
        max_price_usd_per_hour=max_price_usd_per_hour,
    )


def select(offers: Iterable[Offer], query: OfferQuery) -> list[Offer]:
    """Offers that match, cheapest first; an unknown price comes last; equal prices in catalog order."""
    return sorted((offer for offer in offers if query.matches(offer)), key=_by_price)


def select_excluded(excluded: Iterable[ExcludedOffer], query: OfferQuery) -> list[ExcludedOffer]:
    """Excluded offers that match, in catalog order."""
    return [one for one in excluded if query.matches(one.offer)]


def _by_price(offer: Offer) -> tuple[bool, Decimal]:
    price = offer.price_usd_per_hour
    return (price is None, price if price is not None else Decimal(0))


def _capacity_types(names: Sequence[str]) -> Iterable[CapacityType]:
    """Capacity types of names; ``reserved`` means all that is reserved in some way, as in a spec."""
    for name in names:
        if name == CapacityType.RESERVED:
            yield from _RESERVED
        else:
            yield CapacityType(name)


def _check_known(what: str, names: Sequence[str], known: set[str]) -> None:
    for name in names:
        if name not in known:
            import difflib

            near = difflib.get_close_matches(name, sorted(known), n=3, cutoff=0.5)
            raise UsageError(
                f"unknown {what} {name!r}",
                remedy=f"nearest: {', '.join(near)}" if near else "`gpuprov offers` lists what there is",
            )
