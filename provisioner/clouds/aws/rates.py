"""What AWS objects cost an hour, by the catalog."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from decimal import Decimal
from functools import cached_property
from typing import TYPE_CHECKING

from provisioner.clouds.cloud import Placement
from provisioner.units import GIB, HOURS_PER_MONTH, decimal_string
from provisioner.vocabulary import CapacityType

if TYPE_CHECKING:  # the catalog is read when something is first priced
    from provisioner.catalog.snapshot import Catalog

_CLOUD = "aws"
_DISK_SERVICE = "ebs_gp3"
_PLACES = Decimal("1e-10")

Key = tuple[str, str, CapacityType]


class Rates:
    """Prices of the catalog as USD an hour in decimal text; ``None`` where the catalog does not know."""

    def __init__(self, catalog: Callable[[], Catalog]) -> None:
        self._load = catalog

    def instance(self, placement: Placement) -> str | None:
        """A running machine: the price of its zone, else of any zone of its region."""
        zones = self._prices.get((placement.region, placement.instance_type, placement.capacity_type), {})
        price = zones.get(placement.zone, zones.get(None))
        if price is None and len(set(zones.values())) == 1:
            price = next(iter(zones.values()))
        return None if price is None else decimal_string(price)

    def disk(self, region: str, size_bytes: int) -> str | None:
        """A gp3 disk of a size at its included speed."""
        price = self._catalog.storage_price(_CLOUD, _DISK_SERVICE, region)
        if price is None:
            return None
        return decimal_string((price.amount_usd * size_bytes / GIB / HOURS_PER_MONTH).quantize(_PLACES))

    def address(self) -> str | None:
        """A public IPv4 address in use."""
        price = self._catalog.public_ip_price(_CLOUD)
        return None if price is None else decimal_string(price.amount_usd)

    @cached_property
    def _catalog(self) -> Catalog:
        return self._load()

    @cached_property
    def _prices(self) -> Mapping[Key, Mapping[str | None, Decimal | None]]:
        found: dict[Key, dict[str | None, Decimal | None]] = {}
        for offer in self._catalog.offers((_CLOUD,)):
            key = (offer.region, offer.instance.name, offer.capacity_type)
            found.setdefault(key, {})[offer.zone] = offer.price_usd_per_hour
        return found
