"""Every no of a search, gathered so that one record stands for all offers it holds for."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

from provisioner.catalog.instances import InstanceType
from provisioner.catalog.offers import Lot
from provisioner.planner.filters import Refusal
from provisioner.planner.plan import Rejection

ANY = "*"


class Ledger:
    """Refusals of instance types, and of single offers grouped by (instance type, refusal)."""

    def __init__(self) -> None:
        self._types: list[tuple[InstanceType, Refusal]] = []
        self._offers: dict[tuple[str, str, Refusal], list[Lot]] = {}
        self._general: dict[tuple[str, Refusal], None] = {}

    def refuse_type(self, instance: InstanceType, refusal: Refusal) -> None:
        """An instance type is out wherever it is sold."""
        self._types.append((instance, refusal))

    def refusals(self) -> Iterator[tuple[InstanceType, Refusal]]:
        """Every no with the instance type it is about; those of a whole capacity type are not among them."""
        yield from self._types
        for (_, _, refusal), offers in self._offers.items():
            yield offers[0].instance, refusal

    def has(self, name: str) -> bool:
        """Whether a filter of offers said no to any."""
        return any(refusal.filter == name for _, _, refusal in self._offers)

    def absorb(self, other: Ledger) -> None:
        """Take over the refusals of another ledger, after its own."""
        self._types += other._types
        for key, offers in other._offers.items():
            self._offers.setdefault(key, []).extend(offers)
        self._general |= other._general

    def forget(self, instances: Iterable[InstanceType]) -> None:
        """Drop what was said of instance types: another answer has taken its place."""
        gone = {(instance.cloud, instance.name) for instance in instances}
        self._types = [(each, refusal) for each, refusal in self._types if (each.cloud, each.name) not in gone]
        self._offers = {key: offers for key, offers in self._offers.items() if key[:2] not in gone}

    def refuse_offer(self, offer: Lot, refusal: Refusal) -> None:
        """One offer is out."""
        self._offers.setdefault((offer.cloud, offer.instance.name, refusal), []).append(offer)

    def refuse_capacity(self, offer: Lot, refusal: Refusal) -> None:
        """All offers of a capacity type are out, whatever the instance type."""
        self._general[str(offer.capacity_type), refusal] = None

    def rejections(self, regions_offering: Callable[[str, str], Iterable[str]]) -> tuple[Rejection, ...]:
        """All records in the order of the search, single offers grouped by type, region and filter.

        ``regions_offering`` gives the regions that sell a type, by cloud and name.
        """
        found = [
            _record(f"{instance.cloud}/{ANY}/{ANY}/{instance.name}/{ANY}", refusal) for instance, refusal in self._types
        ]
        for (cloud, name, refusal), offers in self._offers.items():
            everywhere = regions_offering(cloud, name)
            found += [
                _record(f"{cloud}/{place}/{ANY}/{name}/{kind}", refusal) for place, kind in _places(offers, everywhere)
            ]
        found += [_record(f"{ANY}/{ANY}/{ANY}/{ANY}/{kind}", refusal) for kind, refusal in self._general]
        return tuple(found)


def _places(offers: Sequence[Lot], everywhere: Iterable[str]) -> list[tuple[str, str]]:
    """(region, capacity type) pairs that name a group of offers; ``*`` for all regions that sell the type."""
    pairs: dict[str, set[str]] = {}
    for offer in offers:
        pairs.setdefault(str(offer.capacity_type), set()).add(offer.region)
    all_regions = set(everywhere)
    found: list[tuple[str, str]] = []
    for kind, regions in pairs.items():
        found += (
            [(ANY, kind)]
            if regions >= all_regions and len(regions) > 1
            else [(region, kind) for region in sorted(regions)]
        )
    return found


def _record(offer: str, refusal: Refusal) -> Rejection:
    return Rejection(offer, refusal.filter, refusal.reason, refusal.needed, refusal.available)
