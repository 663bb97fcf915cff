"""Instance types: how many GPUs of which kind, links, host memory, local disk, quota keys."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class InstanceType:
    """One row of instances.csv. Words ``yes``, ``no``, ``unknown`` stay words: unknown is a value."""

    cloud: str
    name: str
    family: str
    kind: str
    gpu_model: str | None
    gpu_count: int
    gpu_fraction: float
    gpu_memory_nominal_bytes: int | None
    gpu_memory_usable_bytes: int | None
    vcpu: int
    ram_bytes: int
    nvlink_bytes_per_s_per_gpu: float | None
    network_gbit_per_s: float | None
    efa_interfaces: int
    gpudirect: str
    local_ssd_bytes: int | None
    local_ssd_kind: str
    on_demand_available: str
    spot_available: str
    capacity_block_available: str
    flex_start_available: str
    quota_on_demand: str | None
    quota_spot: str | None
    quota_units: int | None
    status: str
    source: str
    as_of: str
