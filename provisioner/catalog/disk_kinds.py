"""How fast a disk can be made: what its kind includes, what can be bought, and what an instance type takes.

Kinds without a row here have a speed that follows from their size, or none that is known: nothing is bought for them.

Source: EC2 API reference, CreateVolume and EbsBlockDevice (gp3: 3,000 to 80,000 IOPS, 125 to 2,000 MiB/s, 1 to 65,536 GiB); EBS
user guide, "General Purpose SSD volumes" (500 IOPS per GiB, 0.25 MiB/s per IOPS).
"""

from __future__ import annotations

import math

from provisioner.catalog.files import CatalogFiles
from provisioner.records import record
from provisioner.units import GIB, MIB, DiskSpeed

GP3 = "ebs_gp3"
_BITS = 8
_MBIT = 10**6


@record(frozen=True, slots=True)
class DiskKind:
    """Limits of one kind of disk."""

    included: DiskSpeed
    """Part of the price of the disk's size."""
    largest: DiskSpeed
    iops_per_gib: int
    iops_per_mib_per_s: int

    def fast_enough(self, mib_per_s: int, size_bytes: int) -> DiskSpeed:
        """The least speed of a disk of a size that gives a throughput, or the most that the kind gives."""
        most_iops = max(self.included.iops, min(self.largest.iops, size_bytes // GIB * self.iops_per_gib))
        reached = max(
            self.included.mib_per_s, min(mib_per_s, self.largest.mib_per_s, most_iops // self.iops_per_mib_per_s)
        )
        return DiskSpeed(max(self.included.iops, reached * self.iops_per_mib_per_s), reached)

    def refusal(self, speed: DiskSpeed, size_bytes: int) -> str | None:
        """Why a disk of a size cannot have a speed; ``None`` where it can."""
        low, high = self.included, self.largest
        if not low.iops <= speed.iops <= high.iops:
            return f"{speed.iops} IOPS are out of range: {low.iops} to {high.iops}"
        if not low.mib_per_s <= speed.mib_per_s <= high.mib_per_s:
            return f"{speed.mib_per_s} MiB/s are out of range: {low.mib_per_s} to {high.mib_per_s}"
        size_gib = -(-size_bytes // GIB)
        if speed.iops > max(low.iops, size_gib * self.iops_per_gib):
            return f"{speed.iops} IOPS need a disk of {math.ceil(speed.iops / self.iops_per_gib)} GiB, and it has {size_gib}"
        if speed.mib_per_s * self.iops_per_mib_per_s > speed.iops:
            return f"{speed.mib_per_s} MiB/s need {speed.mib_per_s * self.iops_per_mib_per_s} IOPS, not {speed.iops}"
        return None


KINDS = {GP3: DiskKind(DiskSpeed(3000, 125), DiskSpeed(80_000, 2000), iops_per_gib=500, iops_per_mib_per_s=4)}
"""Service of the catalog -> its limits."""
INCLUDED_SPEED = KINDS[GP3].included
"""What a disk goes back to whose speed is taken out again."""


@record(frozen=True, slots=True)
class DiskLink:
    """What an instance type moves to and from all of its disks, in MiB/s; ``None`` where that is not published.

    Smaller types reach the higher figure for half an hour a day. Source: EC2 user guide, "EBS-optimized instance types".
    """

    lasting: float | None
    bursting: float | None


def read_disk_links(files: CatalogFiles) -> dict[tuple[str, str], DiskLink]:
    """Links by cloud and instance type."""
    return {
        (cloud, name): DiskLink(_mib_per_s(lasting), _mib_per_s(bursting))
        for cloud, name, lasting, bursting in files.rows(
            "instance_storage_limits.csv", "cloud", "instance_type", "baseline_mbit_per_s", "max_mbit_per_s"
        )
    }


def _mib_per_s(mbit_per_s: str) -> float | None:
    return float(mbit_per_s) * _MBIT / _BITS / MIB if mbit_per_s else None
