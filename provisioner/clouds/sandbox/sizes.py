"""Sizes and speeds that a disk of the sandbox can have."""

from __future__ import annotations

from provisioner.clouds.sandbox.errors import rejected
from provisioner.units import TIB, DiskSpeed, format_bytes

DISK_BYTES_MAX = 64 * TIB
"""Largest disk. Source: EBS gp3 (since September 2025) and Persistent Disk balanced both end at 64 TiB."""


def refuse_size(cloud: str, size_bytes: int) -> None:
    """Refuse a size that no disk has.

    Raises:
        Rejected: nothing, or more than ``DISK_BYTES_MAX``.
    """
    if not 0 < size_bytes <= DISK_BYTES_MAX:
        limit = f"ask for 1B to {format_bytes(DISK_BYTES_MAX)}"
        raise rejected("bad-value", cloud, f"a disk of {size_bytes} bytes", limit)


def refuse_speed(cloud: str, speed: DiskSpeed | None, size_bytes: int) -> None:
    """Refuse a speed that no disk of a size has.

    Raises:
        Rejected: out of the limits of gp3, or on a cloud whose default disk has no speed to choose.
    """
    if speed is None:
        return
    if cloud != "aws":
        raise rejected("bad-value", cloud, "the default disk has no speed to choose", "leave it out")
    from provisioner.catalog.disk_kinds import GP3, KINDS

    refusal = KINDS[GP3].refusal(speed, size_bytes)
    if refusal is not None:
        raise rejected("bad-value", cloud, f"gp3: {refusal}", "make the disk larger, or slower")


def shown_speed(cloud: str, iops: int | None, mib_per_s: int | None) -> DiskSpeed | None:
    """What a disk is made to do: bought, else what its kind includes."""
    if iops is not None and mib_per_s is not None:
        return DiskSpeed(iops, mib_per_s)
    if cloud != "aws":
        return None
    from provisioner.catalog.disk_kinds import GP3, KINDS

    return KINDS[GP3].included
