"""GCP N1 hosts with attached GPUs, as instance types of our own with the sum of two prices.

``n1-standard-8+t4x1`` is the host ``n1-standard-8`` with one T4. Hosts are n1-standard types with 4 or 8 vCPUs per GPU
that the limits of attachable_gpus.csv allow: 15 or 30 GiB of host memory per GPU, which a 16 GB card needs for loading.
Larger hosts cost more and hold no larger model.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from decimal import Decimal

from provisioner.catalog.cells import scaled, split_codes
from provisioner.catalog.files import CatalogFiles
from provisioner.catalog.gpus import Gpu
from provisioner.catalog.instance_prices import ANY, CAPACITY_TYPES, InstancePrice, Place, PriceIndex, joined_sources
from provisioner.catalog.instances import AttachedGpus, InstanceType
from provisioner.records import record
from provisioner.units import GIB

_VCPU_PER_GPU = (4, 8)
_HOST_NAME = "{family}-standard-{vcpu}"


def read_attached_types(
    files: CatalogFiles, instances: Mapping[tuple[str, str], InstanceType], gpus: Mapping[str, Gpu]
) -> dict[tuple[str, str], InstanceType]:
    """Instance types of hosts with attached GPUs by (cloud, name)."""
    types = {}
    for row in files.records("attachable_gpus.csv"):
        for host in _hosts(row, instances):
            attached = _attached_type(row, host, gpus[row["gpu_model"]])
            types[attached.cloud, attached.name] = attached
    return types


def _hosts(row: Mapping[str, str], instances: Mapping[tuple[str, str], InstanceType]) -> Iterator[InstanceType]:
    count = int(row["gpu_count"])
    for vcpu in (count * each for each in _VCPU_PER_GPU):
        host = instances.get((row["cloud"], _HOST_NAME.format(family=row["host_family"], vcpu=vcpu)))
        if host is None or vcpu > float(row["max_host_vcpu"]) or host.ram_bytes > float(row["max_host_ram_gib"]) * GIB:
            continue
        yield host


def _attached_type(row: Mapping[str, str], host: InstanceType, gpu: Gpu) -> InstanceType:
    count = int(row["gpu_count"])
    return replace(
        host,
        name=f"{host.name}+{gpu.gpu_class.lower()}x{count}",
        kind="gpu",
        gpu_model=gpu.model,
        gpu_count=count,
        gpu_fraction=1.0,
        gpu_memory_nominal_bytes=gpu.memory_nominal_bytes,
        gpu_memory_usable_bytes=gpu.memory_usable_bytes,
        nvlink_bytes_per_s_per_gpu=scaled(row["nvlink_gb_per_s_per_gpu"], 1e9),
        gpu_topology="attached",
        quota_on_demand=row["quota_on_demand"] or None,
        quota_spot=row["quota_spot"] or None,
        quota_units=float(count),
        source=joined_sources(host.source, row["source"]),
        as_of=min(host.as_of, row["as_of"]),
        attached=AttachedGpus(host.name, row["accelerator_type"], count),
    )


@record(frozen=True, slots=True)
class AttachedMarket:
    """Zones and prices of the attached types of one cloud."""

    zones: dict[tuple[str, str], list[str]]
    prices: PriceIndex


def attached_market(
    files: CatalogFiles, cloud: str, types: Mapping[tuple[str, str], InstanceType], hosts: PriceIndex
) -> AttachedMarket:
    """Where each attached type can be had, at host price + count x GPU price; no price where the host's is unknown."""
    market = AttachedMarket({}, {})
    by_model: dict[str, list[InstanceType]] = {}
    for instance in types.values():
        if instance.cloud == cloud and instance.gpu_model is not None:
            by_model.setdefault(instance.gpu_model, []).append(instance)
    for row in files.records("prices_attached_gpu.csv"):
        if row["cloud"] == cloud:
            for instance in by_model.get(row["gpu_model"], ()):
                _add(market, row, instance, hosts)
    return market


def _add(market: AttachedMarket, row: Mapping[str, str], instance: InstanceType, hosts: PriceIndex) -> None:
    if instance.attached is None:
        return
    key = (instance.name, row["region"])
    market.zones[key] = sorted({*market.zones.get(key, ()), *row["zones"].split()})
    place: Place = (ANY, CAPACITY_TYPES[row["purchase_model"]])
    host = hosts.get((instance.attached.host, row["region"]), {}).get(place)
    if host is None:
        return
    market.prices.setdefault(key, {})[place] = InstancePrice(
        amount_usd=host.amount_usd + instance.attached.count * Decimal(row["price_usd_per_gpu_hour"]),
        source=joined_sources(host.source, row["source"]),
        as_of=min(host.as_of, row["as_of"]),
        suspect=tuple(dict.fromkeys([*host.suspect, *split_codes(row["suspect_reason"])])),
    )
