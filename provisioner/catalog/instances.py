"""Instance types: how many GPUs of which kind, links, host memory, local disk, quota keys."""

from __future__ import annotations

from collections.abc import Mapping

from provisioner.catalog.cells import bytes_of_gib, bytes_of_mib, number, scaled, split_codes
from provisioner.catalog.files import CatalogFiles
from provisioner.records import record


@record(frozen=True, slots=True)
class AttachedGpus:
    """GPUs that a create call attaches to a GCP host type: the host's name and the accelerators it asks for."""

    host: str
    accelerator_type: str
    count: int


@record(frozen=True, slots=True)
class InstanceType:
    """One row of instances.csv, or a GCP host with attached GPUs.

    Words ``yes``, ``no``, ``unknown`` stay words: unknown is a value. Memory is bytes per device the guest sees: of a
    fractional GPU (``gpu_fraction`` below 1, ``gpu_count`` 1) it is the fraction's.
    """

    cloud: str
    name: str
    family: str
    kind: str
    """``gpu``, ``neuron``, ``gaudi`` or ``cpu_host``."""
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
    quota_units: float | None
    """What one instance takes from the quota: vCPU on AWS, GPUs on GCP (0.125 of a fractional one)."""
    status: str
    source: str
    as_of: str
    gpu_memory_api_bytes: int | None = None
    """What the EC2 API reports per device; ``None`` on other clouds and where the value is known to be wrong."""
    cpu_architecture: str = "x86_64"
    bare_metal: bool = False
    gpu_topology: str = "unknown"
    suspect: tuple[str, ...] = ()
    attached: AttachedGpus | None = None
    """Set for a GCP host with attached GPUs, whose ``name`` is ours and not one that the cloud knows."""


def read_instances(files: CatalogFiles) -> dict[tuple[str, str], InstanceType]:
    """All rows of instances.csv by (cloud, name), in file order."""
    return {(row["cloud"], row["instance_type"]): _instance(row) for row in files.records("instances.csv")}


def _instance(row: Mapping[str, str]) -> InstanceType:
    ram_bytes = bytes_of_gib(row["ram_gib"])
    if ram_bytes is None:
        raise ValueError(f"{row['instance_type']} has no host memory")
    return InstanceType(
        cloud=row["cloud"],
        name=row["instance_type"],
        family=row["family"],
        kind=row["kind"],
        gpu_model=row["gpu_model"] or None,
        gpu_count=int(row["gpu_count"]),
        gpu_fraction=float(row["gpu_fraction"]),
        gpu_memory_nominal_bytes=bytes_of_mib(row["gpu_memory_nominal_mib"]) or None,
        gpu_memory_usable_bytes=bytes_of_mib(row["gpu_memory_usable_mib"]) or None,
        vcpu=int(float(row["vcpu"])),
        ram_bytes=ram_bytes,
        nvlink_bytes_per_s_per_gpu=scaled(row["nvlink_gb_per_s_per_gpu"], 1e9),
        network_gbit_per_s=number(row["network_gbit_per_s"]),
        efa_interfaces=int(row["efa_interfaces"]),
        gpudirect=row["gpudirect"],
        local_ssd_bytes=bytes_of_gib(row["local_ssd_gib"]),
        local_ssd_kind=row["local_ssd_kind"],
        on_demand_available=row["on_demand_available"],
        spot_available=row["spot_available"],
        capacity_block_available=row["capacity_block_available"],
        flex_start_available=row["flex_start_available"],
        quota_on_demand=row["quota_on_demand"] or None,
        quota_spot=row["quota_spot"] or None,
        quota_units=number(row["quota_units"]),
        status=row["status"],
        source=row["source"],
        as_of=row["as_of"],
        gpu_memory_api_bytes=bytes_of_mib(row["gpu_memory_api_mib"]),
        cpu_architecture=row["cpu_architecture"],
        bare_metal=row["bare_metal"] == "yes",
        gpu_topology=row["gpu_topology"],
        suspect=split_codes(row["suspect_reason"]),
    )
