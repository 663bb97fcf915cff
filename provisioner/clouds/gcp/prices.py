"""Reads Google Cloud prices for ``prices refresh``: billing SKUs, machine types and accelerator types by zone.

No SKU prices a machine. A price is composed: cores, memory, GPUs and the local SSD that comes with the type; only where all
parts are listed in the region for one market is there a price. Rights: compute.machineTypes.list, compute.acceleratorTypes.list;
billing SKUs need any credentials or an API key. With an API key alone, listings by zone stay as they are.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

from provisioner.catalog.fetched import (
    ATTACHED_GPU,
    DISKS,
    OFFERINGS,
    ON_DEMAND,
    SPOT,
    DiskQuote,
    GpuQuote,
    PriceQuote,
    RegionFacts,
    Scores,
    SourceRow,
)
from provisioner.catalog.instances import InstanceType
from provisioner.catalog.snapshot import Catalog
from provisioner.clouds.gcp.errors import unreadable
from provisioner.clouds.gcp.session import GcpReader
from provisioner.clouds.gcp.skus import CORE, DISK, DISK_PHRASES, LOCAL_SSD, MARKETS, RAM, Part, Rate, Rates, read_rates
from provisioner.errors import CloudError, CredentialsError
from provisioner.units import GIB, HOURS_PER_MONTH

BILLING_SKUS = SourceRow(
    "gcp_billing_skus", "Cloud Billing catalogue, SKUs of Compute Engine", "cloudbilling.googleapis.com", "v1"
)
COMPUTE_TYPES = SourceRow(
    "gcp_compute_types", "Compute Engine machine and accelerator types by zone", "compute.googleapis.com", "v1"
)

SERVICE = "services/6F81-5844-456A"
"""Compute Engine in the billing catalogue."""
_SKUS_A_PAGE = "5000"
_TYPES_A_PAGE = "500"

_MACHINES: Mapping[str, tuple[str, str, str]] = {
    "a2-highgpu": ("a2", "gpu", "nvidia-tesla-a100"),
    "a2-megagpu": ("a2", "gpu", "nvidia-tesla-a100"),
    "a2-ultragpu": ("a2", "gpu", "nvidia-a100-80gb"),
    "a3-highgpu": ("a3", "gpu", "nvidia-h100-80gb"),
    "a3-edgegpu": ("a3", "gpu", "nvidia-h100-80gb"),
    "a3-megagpu": ("a3plus", "gpu", "nvidia-h100-mega-80gb"),
    "a3-ultragpu": ("a3ultra", "gpu", "nvidia-h200-141gb"),
    "a4-highgpu": ("", "slice", "nvidia-b200"),
    "a4x-highgpu": ("", "slice", "nvidia-gb200"),
    "a4x-maxgpu": ("", "slice", "nvidia-gb300"),
    "g2-standard": ("g2", "gpu", "nvidia-l4"),
    "g4-standard": ("g4", "gpu", "nvidia-rtx-pro-6000"),
    "n1-standard": ("n1", "", ""),
    "n1-highmem": ("n1", "", ""),
}
"""Machine family -> series of its core and memory rates, kind of its GPU rate, accelerator. N1 hosts have no GPU of their own."""
_FILTER = 'name eq "({})-.*"'.format("|".join(sorted({name.partition("-")[0] for name in _MACHINES})))
_SSD_MARKETS = {SPOT: SPOT}
"""Local SSD has rates of its own for spot; all other markets pay the listed one."""
_PLACES = Decimal("0.000001")


@dataclass(slots=True)
class _World:
    """What is listed once for all regions."""

    rates: Rates
    machines: dict[str, set[str]] | None
    """Zone -> names of its machine types; ``None`` where there was no right to read them."""
    accelerators: dict[str, set[str]]
    unreachable: set[str]
    notes: tuple[str, ...] = ()


@dataclass(slots=True)
class GcpPrices:
    """A ``PriceFetcher`` of one Google Cloud project. Safe to share between threads."""

    catalog: Catalog
    reader: GcpReader = field(default_factory=GcpReader)
    cloud: str = "gcp"
    sources: Sequence[SourceRow] = (BILLING_SKUS, COMPUTE_TYPES)
    _world: _World | None = None
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def regions(self) -> tuple[str, ...]:
        """Regions in which any GPU has a rate, sorted; reads the lists that are the same for all regions.

        Raises:
            CredentialsError: no valid credentials and no API key.
            CloudError: Google did not answer, or in another form.
        """
        return self._read_world().rates.regions()

    def fetch(self, region: str) -> RegionFacts:
        """Prices of machines and attached GPUs in all markets, and what each zone offers.

        Raises:
            CloudError: a zone of the region did not answer.
        """
        world = self._read_world()
        lost = sorted(zone for zone in world.unreachable if _region_of(zone) == region)
        if lost:
            raise CloudError(f"no answer from {', '.join(lost)}", where=f"compute {region}", remedy="try again later")
        zones = (
            None if world.machines is None else sorted(zone for zone in world.machines if _region_of(zone) == region)
        )
        sources = dict.fromkeys((*MARKETS, ATTACHED_GPU, DISKS), BILLING_SKUS.source) | {
            OFFERINGS: COMPUTE_TYPES.source
        }
        return RegionFacts(
            region=region,
            prices={market: tuple(self._quotes(world.rates, region, market)) for market in MARKETS},
            sources=sources,
            gpu_prices=tuple(self._gpu_quotes(world, region, zones)),
            disks=tuple(_disks(world.rates, region)),
            offerings=None if zones is None else tuple(self._offerings(world, zones)),
            notes=world.notes,
            confidence="derived",
        )

    def placement_scores(self, regions: Sequence[str]) -> Scores:
        """None: Google Cloud has no such score for single machine types."""
        del regions
        return Scores()

    # Prices

    def _quotes(self, rates: Rates, region: str, market: str) -> Iterator[PriceQuote]:
        for instance in self._types().values():
            quote = compose(rates, region, market, instance)
            if quote is not None:
                yield quote

    def _gpu_quotes(self, world: _World, region: str, zones: Sequence[str] | None) -> Iterator[GpuQuote]:
        """Prices of GPUs that attach to N1 hosts, with the zones that have them."""
        for model, accelerator in sorted(self._attachable().items()):
            having = None
            if zones is not None:
                having = tuple(zone for zone in zones if accelerator in world.accelerators.get(zone, ()))
            for market in (ON_DEMAND, SPOT):
                rate = world.rates.of(region, market, ("gpu", accelerator))
                if rate is not None and having != ():
                    yield GpuQuote(model, market, str(rate.amount_usd), having)

    def _offerings(self, world: _World, zones: Sequence[str]) -> Iterator[tuple[str, str]]:
        known = self._types()
        for zone in zones:
            yield from ((zone, name) for name in sorted((world.machines or {})[zone]) if name in known)

    def _types(self) -> Mapping[str, InstanceType]:
        return {
            name: instance
            for (cloud, name), instance in self.catalog.instances.items()
            if cloud == self.cloud and instance.attached is None
        }

    def _attachable(self) -> Mapping[str, str]:
        return {
            instance.gpu_model: instance.attached.accelerator_type
            for (cloud, _), instance in self.catalog.instances.items()
            if cloud == self.cloud and instance.attached is not None and instance.gpu_model is not None
        }

    # Lists

    def _read_world(self) -> _World:
        with self._lock:
            if self._world is None:
                self._world = self._list_all()
            return self._world

    def _list_all(self) -> _World:
        pages = self.reader.billing_pages(f"{SERVICE}/skus", currencyCode="USD", pageSize=_SKUS_A_PAGE)
        try:
            rates = read_rates(sku for page in pages for sku in page.get("skus", ()))
        except (KeyError, TypeError, ValueError, AttributeError, IndexError) as error:
            raise unreadable("cloudbilling skus", f"{type(error).__name__} {error}") from None
        try:
            machines, lost = self._by_zone("machineTypes", filter=_FILTER)
            accelerators, also_lost = self._by_zone("acceleratorTypes")
        except CredentialsError as error:
            note = f"machine types by zone left out: {error.message}"
            return _World(rates, None, {}, set(), (note,))
        return _World(rates, machines, accelerators, lost | also_lost)

    def _by_zone(self, kind: str, **parameters: str) -> tuple[dict[str, set[str]], set[str]]:
        """Names by zone of an aggregated list, and zones that did not answer."""
        found: dict[str, set[str]] = {}
        lost: set[str] = set()
        asked = {"maxResults": _TYPES_A_PAGE, "returnPartialSuccess": "true", **parameters}
        for page in self.reader.compute_pages(f"aggregated/{kind}", **asked):
            lost |= {str(scope).rpartition("/")[2] for scope in page.get("unreachables", ())}
            for scope, part in (page.get("items") or {}).items():
                zone = scope.rpartition("/")[2]
                if _warning(part) == "UNREACHABLE":
                    lost.add(zone)
                elif scope.startswith("zones/"):
                    found.setdefault(zone, set()).update(str(one["name"]) for one in part.get(kind, ()))
        return found, lost


def _disks(rates: Rates, region: str) -> Iterator[DiskQuote]:
    for service in DISK_PHRASES.values():
        rate = rates.of(region, ON_DEMAND, (DISK, service))
        if rate is not None:
            yield DiskQuote(service, str(rate.amount_usd))


def compose(rates: Rates, region: str, market: str, instance: InstanceType) -> PriceQuote | None:
    """The price of a machine in one market: all its parts, or ``None`` where one has no rate there.

    A part of 0 makes the whole 0, so that it is kept out: a host without its GPU's price is no bargain. Bundled local SSD whose
    rate is not listed is left out and said (``excludes``).
    """
    parts = _parts(instance)
    if parts is None:
        return None
    listed: list[tuple[Decimal, Rate]] = []
    for units, part in parts:
        rate = rates.of(region, market, part)
        if rate is None:
            return None
        listed.append((units, rate))
    excludes = "none"
    if instance.local_ssd_kind == "bundled" and instance.local_ssd_bytes:
        disk = rates.of(region, _SSD_MARKETS.get(market, ON_DEMAND), (LOCAL_SSD, ""))
        if disk is None:
            excludes = "local_ssd"
        else:
            listed.append((Decimal(instance.local_ssd_bytes) / GIB / HOURS_PER_MONTH, disk))
    elif instance.local_ssd_kind == "optional":
        excludes = "local_ssd"
    free = [rate.sku for _, rate in listed if rate.amount_usd <= 0]
    if free:
        return PriceQuote(instance.name, "*", "0", excludes, f"a part has no price: SKU {', '.join(free)}")
    total = sum((units * rate.amount_usd for units, rate in listed), Decimal(0))
    return PriceQuote(instance.name, "*", str(total.quantize(_PLACES)), excludes)


def _parts(instance: InstanceType) -> list[tuple[Decimal, Part]] | None:
    """Units and rates of a machine without its local SSD; ``None`` for a family that is not known."""
    family = "-".join(instance.name.split("-")[:2])
    if family not in _MACHINES:
        return None
    series, kind, accelerator = _MACHINES[family]
    parts: list[tuple[Decimal, Part]] = []
    if series:
        parts += [(Decimal(instance.vcpu), (CORE, series)), (Decimal(instance.ram_bytes) / GIB, (RAM, series))]
    if kind:
        gpus = Decimal(instance.gpu_count) * Decimal(str(instance.gpu_fraction))
        parts.append((gpus, (kind, accelerator)))
    return parts


def _region_of(zone: str) -> str:
    return zone.rpartition("-")[0]


def _warning(part: Mapping[str, Any]) -> str | None:
    warning = part.get("warning")
    return str(warning.get("code")) if isinstance(warning, dict) else None
