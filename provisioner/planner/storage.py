"""Disks that a workload needs, sized from its weights and checkpoints, priced by cloud and region."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from decimal import Decimal
from functools import cached_property
from typing import NamedTuple

from provisioner.catalog.instances import InstanceType
from provisioner.catalog.prices import Price
from provisioner.catalog.snapshot import Catalog
from provisioner.planner.candidates import Arrangement, loaded_weights_bytes
from provisioner.planner.plan import StorageItem
from provisioner.planner.request import Request
from provisioner.records import record
from provisioner.sizing.demand import DiffusionTrainingDemand, TrainingDemand
from provisioner.units import GIB, DiskSpeed
from provisioner.vocabulary import Optimizer, TrainingMethod, TrainingPrecision, WeightFormat

ROOT_BASE_BYTES = 50 * GIB
"""System, driver, CUDA libraries and one engine image. Larger than the snapshots of the deep-learning images in images.csv
(35 to 45 GiB), so that a root disk is never smaller than its image."""
WEIGHTS_ROOM = 1.2
"""Room for the weights and for what a download keeps beside them until it is whole."""
ROOT_STEP_BYTES = 10 * GIB
CHECKPOINTS_KEPT = 2
"""The last whole one, and the one being written."""

LOADED_WIDE = frozenset({WeightFormat.FP8, WeightFormat.INT8, WeightFormat.NF4})
"""Formats that engines make while loading: the disk holds the published checkpoint, in 16 bit. Pre-quantised formats
(AWQ, GPTQ, GGUF) are downloaded as they run."""

DISK_SERVICE = {"aws": "ebs_gp3", "gcp": "pd_balanced"}
"""Default disk of each cloud."""
HYPERDISK_FAMILIES = ("a3-ultra", "a4", "g4")
"""GCP machine series that attach Hyperdisk only. Source: machine-family pages of the Compute Engine documentation."""
HYPERDISK_SERVICE = "hyperdisk_balanced"
SHARED_SERVICE = {"aws": "fsx_for_lustre_persistent_2_ssd_125_mb_s_per_tib"}
"""Shared file system of each cloud whose price the catalog knows; GCP's is unknown."""
SHARED_SIZES_GIB = {"aws": (1200, 2400)}
"""Smallest size and step of the shared file system: what is asked for is rounded up to what can be made.

Source: FSx for Lustre, storage capacity of persistent SSD file systems: 1,200 GiB, 2,400 GiB and increments of 2,400 GiB.
"""
SNAPSHOT_SERVICE = {"aws": "ebs_snapshot_standard", "gcp": "pd_snapshot_regional"}
BLOCK_KINDS = frozenset({"root", "data", "checkpoints"})
"""Disks that can be kept as snapshots."""

MOMENT_BYTES = {
    Optimizer.ADAMW: 8.0,
    Optimizer.ADAMW_8BIT: 2.0,
    Optimizer.PAGED_ADAMW_8BIT: 2.0,
    Optimizer.ADAFACTOR: 0.1,
    Optimizer.SGD: 4.0,
    Optimizer.LION: 4.0,
    Optimizer.MUON: 4.0,
}
"""Bytes per trained parameter that a checkpoint keeps for the optimizer, in fp32 (reference: bytes of moments)."""


@record(frozen=True)
class Disk:
    """A disk of the workload: ``count`` of them (one root disk per instance)."""

    kind: str
    size_bytes: int
    count: int
    service: str | None
    speed: DiskSpeed | None = None
    """Bought beyond what the service includes; ``None``: nothing is."""

    @cached_property
    def total_gib(self) -> Decimal:
        """Size of all of them in GiB."""
        return Decimal(self.size_bytes * self.count) / GIB


def disks_for(request: Request, arrangement: Arrangement) -> tuple[Disk, ...]:
    """Root disks, data, checkpoints, a shared file system, and the local disks that the price includes.

    A block disk serves one machine. Where a training spans several and shares by ``auto``, its data and checkpoints are on the
    shared file system.
    """
    storage, instance = request.workload.storage, arrangement.instance
    block = disk_service(instance)
    disks = [Disk("root", root_bytes(request, arrangement), arrangement.instances, block)]
    own = [("data", storage.data), ("checkpoints", checkpoint_disk_bytes(request, arrangement))]
    shared = storage.shared if isinstance(storage.shared, int) else None
    if storage.shared == "auto" and request.workload.task.is_training and arrangement.instances > 1:
        shared = sum(size for _, size in own if size is not None) or None
        own = []
    disks += [Disk(kind, size, 1, block) for kind, size in own if size is not None]
    if shared is not None:
        disks.append(Disk("shared", shared_bytes(instance.cloud, shared), 1, SHARED_SERVICE.get(instance.cloud)))
    if instance.local_ssd_kind == "bundled" and instance.local_ssd_bytes:
        disks.append(Disk("local", instance.local_ssd_bytes, arrangement.instances, None))
    return tuple(disks)


def shared_bytes(cloud: str, wanted_bytes: int) -> int:
    """The size of a shared file system that can be made and holds what is wanted."""
    if cloud not in SHARED_SIZES_GIB:
        return wanted_bytes
    smallest, step = SHARED_SIZES_GIB[cloud]
    if wanted_bytes <= smallest * GIB:
        return smallest * GIB
    return math.ceil(wanted_bytes / (step * GIB)) * step * GIB


def disk_service(instance: InstanceType) -> str:
    """Name of the disk service in the catalog that an instance type gets by default."""
    if instance.cloud == "gcp" and instance.name.startswith(HYPERDISK_FAMILIES):
        return HYPERDISK_SERVICE
    return DISK_SERVICE[instance.cloud]


def root_bytes(request: Request, arrangement: Arrangement) -> int:
    """Root disk of one instance: 50 GiB and 1.2 x the weights on disk, rounded up to 10 GiB."""
    wanted = ROOT_BASE_BYTES + WEIGHTS_ROOM * checkpoint_file_bytes(request, arrangement)
    return math.ceil(wanted / ROOT_STEP_BYTES) * ROOT_STEP_BYTES


def checkpoint_file_bytes(request: Request, arrangement: Arrangement) -> int:
    """Bytes of the model's files: as loaded, or as published where the engine narrows them while loading."""
    loaded = loaded_weights_bytes(arrangement)
    if request.demand.weights not in LOADED_WIDE and not request.workload.task.is_training:
        return loaded
    return max(loaded, request.shape.params_total * _published_bytes(request))


def _published_bytes(request: Request) -> int:
    if request.shape.quantisation is not None:
        return 1
    return 4 if request.shape.weights_dtype == WeightFormat.FP32 else 2


def checkpoint_disk_bytes(request: Request, arrangement: Arrangement) -> int | None:
    """Disk for checkpoints: as asked, or two of them where the training asks for checkpoints; ``None`` for no disk."""
    asked, training = request.workload.storage.checkpoints, request.workload.training
    if isinstance(asked, int):
        return asked
    if training is None or (asked is None and training.checkpoint is None):
        return None
    size = CHECKPOINTS_KEPT * checkpoint_bytes(request, arrangement)
    return max(1, math.ceil(size / ROOT_STEP_BYTES)) * ROOT_STEP_BYTES


class Checkpoints(NamedTuple):
    """What a training writes: so many checkpoints of a size, while the disk has room for fewer."""

    written: int
    bytes_each: int
    room: int


def checkpoints_of(request: Request, arrangement: Arrangement, run_hours: float | None) -> Checkpoints | None:
    """The checkpoints of a run of known length; ``None`` where none are written, or nobody says how often."""
    training, size = request.workload.training, checkpoint_disk_bytes(request, arrangement)
    every = training.checkpoint.every if training and training.checkpoint else None
    each = math.ceil(checkpoint_bytes(request, arrangement))
    if every is None or run_hours is None or size is None or not each:
        return None
    return Checkpoints(max(1, int(run_hours * 3600 / every.total_seconds())), each, int(size // each))


def checkpoint_bytes(request: Request, arrangement: Arrangement) -> float:
    """One checkpoint: trained weights and optimizer state, whole."""
    demand = request.demand
    if not isinstance(demand, (TrainingDemand, DiffusionTrainingDemand)):
        return 0.0
    if demand.method is not TrainingMethod.FULL:
        terms = arrangement.footprint.per_gpu
        return float((terms.gradient_bytes or 0) + (terms.optimizer_bytes or 0)) * arrangement.layout.gpus_per_replica
    weights = 2.0 if demand.precision is TrainingPrecision.BF16 else 4.0
    return request.shape.params_total * (weights + MOMENT_BYTES[demand.optimizer])


class PaidSpeed(NamedTuple):
    """Units a month of ``iops`` or ``mib_per_s`` that all disks of a kind have beyond what is included."""

    metric: str
    units: Decimal
    price: Price | None


def paid_speed(catalog: Catalog, cloud: str, disk: Disk, region: str) -> Iterator[PaidSpeed]:
    """What a disk's speed is billed as, tier by tier; a price that is not known is ``None``."""
    if disk.speed is None or disk.service is None:
        return
    for metric, wanted in (("iops", disk.speed.iops), ("mib_per_s", disk.speed.mib_per_s)):
        tiers = catalog.services.performance_tiers(cloud, disk.service, metric, region)
        if not tiers:
            yield PaidSpeed(metric, Decimal(wanted * disk.count), None)
        for tier in tiers:
            upper = wanted if tier.to_units is None else min(Decimal(wanted), tier.to_units)
            if tier.price.amount_usd and upper > tier.from_units:
                yield PaidSpeed(metric, (upper - tier.from_units) * disk.count, tier.price)


def priced_disks(
    catalog: Catalog, instance: InstanceType, region: str, disks: tuple[Disk, ...]
) -> tuple[StorageItem, ...]:
    """The disks with their price a month in a region; local disks are in the price of the instance."""
    return tuple(
        StorageItem(
            disk.kind,
            disk.kind,
            disk.size_bytes,
            disk.service,
            Decimal(0) if disk.kind == "local" else month_usd(catalog, instance.cloud, disk, region),
            disk.count,
            disk.speed,
        )
        for disk in disks
    )


def month_usd(catalog: Catalog, cloud: str, disk: Disk, region: str) -> Decimal | None:
    """USD a month of a disk's size and speed; ``None`` where a part of the price is unknown."""
    price = catalog.storage_price(cloud, disk.service, region) if disk.service else None
    speed = sum_of(paid_speed(catalog, cloud, disk, region))
    return None if price is None or speed is None else round_usd(disk.total_gib * price.amount_usd) + speed


def sum_of(parts: Iterable[PaidSpeed]) -> Decimal | None:
    """USD a month of all parts; ``None`` where a price is unknown."""
    total = Decimal(0)
    for part in parts:
        if part.price is None:
            return None
        total += round_usd(part.units * part.price.amount_usd)
    return total


def round_usd(amount: Decimal) -> Decimal:
    """Money that was computed, to a hundredth of a cent: enough for a total, and the same on every machine."""
    return amount.quantize(Decimal("0.0001"))
