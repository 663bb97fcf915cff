"""Prices per instance-hour, GCP's local SSD added where the source left it out, and commitments for comparison."""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal
from typing import NamedTuple

from provisioner.catalog.cells import split_codes
from provisioner.catalog.codes import EXCLUDES_LOCAL_SSD, LOCAL_SSD_ASSUMED, OTHER_REGION
from provisioner.catalog.files import CatalogFiles
from provisioner.catalog.instances import InstanceType
from provisioner.catalog.prices import Price, ServicePrices
from provisioner.units import GIB, HOURS_PER_MONTH
from provisioner.vocabulary import CapacityType

ANY = "*"
CLOUDS = ("aws", "gcp")
"""Clouds that offers are made from; the others are there for comparison."""

CAPACITY_TYPES: Mapping[str, CapacityType] = {
    "on_demand": CapacityType.ON_DEMAND,
    "spot": CapacityType.SPOT,
    "capacity_block": CapacityType.CAPACITY_BLOCK,
    "flex_start": CapacityType.FLEX_START,
    "calendar": CapacityType.RESERVED,
}
"""Purchase models of prices.csv that are offers; commitments (``commit_1y``, ``commit_3y``) are contracts beside them."""

_LOCAL_SSD_SERVICES = {CapacityType.ON_DEMAND: "local_ssd_on_demand", CapacityType.SPOT: "local_ssd_spot"}


class InstancePrice(NamedTuple):
    """USD per instance-hour, bundled local disks included, with date, source and suspect codes."""

    amount_usd: Decimal
    source: str
    as_of: str
    suspect: tuple[str, ...]


Place = tuple[str, CapacityType]
"""Zone, or ``*`` for each zone of the region, and capacity type."""
PriceIndex = dict[tuple[str, str], dict[Place, InstancePrice]]
"""By (instance type, region)."""
PriceView = Mapping[tuple[str, str], Mapping[Place, InstancePrice]]
"""The same for readers."""


class PriceRow(NamedTuple):
    """The cells of one row of prices.csv that matter to us."""

    cloud: str
    instance_type: str
    region: str
    zone: str
    purchase_model: str
    amount: str
    excludes: str
    source: str
    as_of: str
    confidence: str
    codes: str


PRICE_DATE = PriceRow._fields.index("as_of")
"""Place of the date in a row."""


def read_price_rows(files: CatalogFiles) -> list[tuple[str, ...]]:
    """Cells of each row of prices.csv of the clouds in ``CLOUDS``, in the order of ``PriceRow``; read once for all uses."""
    return files.rows(
        "prices.csv",
        *("cloud", "instance_type", "region", "zone", "purchase_model", "price_usd_per_hour", "excludes"),
        *("source", "as_of", "confidence", "suspect_reason"),
        clouds=CLOUDS,
    )


def index_prices(
    rows: list[tuple[str, ...]], instances: Mapping[tuple[str, str], InstanceType], services: ServicePrices
) -> dict[str, PriceIndex]:
    """Prices of each cloud in ``CLOUDS`` by instance type and region."""
    clouds: dict[str, PriceIndex] = {cloud: {} for cloud in CLOUDS}
    for cloud, name, region, zone, model, amount, excludes, source, as_of, _, codes in rows:
        capacity = CAPACITY_TYPES.get(model)
        if capacity is None:
            continue
        price = InstancePrice(Decimal(amount), source, as_of, split_codes(codes))
        if excludes == "local_ssd":
            price = with_local_ssd(price, instances[cloud, name], region, capacity, services)
        clouds[cloud].setdefault((name, region), {})[zone, capacity] = price
    return clouds


def with_local_ssd(
    price: InstancePrice, instance: InstanceType, region: str, capacity: CapacityType, services: ServicePrices
) -> InstancePrice:
    """The price with the disks that come with the type: GCP bills A3, A4 and A2 Ultra disks apart from the machine.

    Optional disks are not added: a machine starts without them.
    """
    if instance.local_ssd_kind != "bundled" or not instance.local_ssd_bytes:
        return price
    disk = services.storage_price(instance.cloud, _LOCAL_SSD_SERVICES.get(capacity, "local_ssd_on_demand"), region)
    if disk is None:
        return price._replace(suspect=(*price.suspect, EXCLUDES_LOCAL_SSD))
    per_hour = disk.amount_usd * Decimal(instance.local_ssd_bytes) / GIB / HOURS_PER_MONTH
    assumed = (LOCAL_SSD_ASSUMED,) if OTHER_REGION in disk.suspect else ()
    return InstancePrice(
        amount_usd=(price.amount_usd + per_hour).quantize(Decimal("0.000001")),
        source=joined_sources(price.source, disk.source),
        as_of=min(price.as_of, disk.as_of),
        suspect=(*price.suspect, *assumed),
    )


def joined_sources(*sources: str) -> str:
    """Source keys of a sum, each once, joined with ``;``."""
    return ";".join(dict.fromkeys(key for source in sources for key in source.split(";")))


COMMITMENTS = frozenset({"commit_1y", "commit_3y"})
_MODEL = PriceRow._fields.index("purchase_model")


def index_commitments(
    rows: list[tuple[str, ...]], instances: Mapping[tuple[str, str], InstanceType], services: ServicePrices
) -> dict[tuple[str, str, str], dict[str, Price]]:
    """``commit_1y`` and ``commit_3y`` prices per hour by (cloud, instance type, region).

    Bundled local disks that the row leaves out are added at the on-demand rate: they are billed beside the contract.
    """
    found: dict[tuple[str, str, str], dict[str, Price]] = {}
    for cells in rows:
        if cells[_MODEL] not in COMMITMENTS:
            continue
        row = PriceRow._make(cells)
        price = InstancePrice(Decimal(row.amount), row.source, row.as_of, split_codes(row.codes))
        if row.excludes == "local_ssd":
            instance = instances[row.cloud, row.instance_type]
            price = with_local_ssd(price, instance, row.region, CapacityType.ON_DEMAND, services)
        found.setdefault((row.cloud, row.instance_type, row.region), {})[row.purchase_model] = Price(
            price.amount_usd, "hour", row.region, price.source, price.as_of, row.confidence, price.suspect
        )
    return found
