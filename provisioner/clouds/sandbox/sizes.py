"""Sizes that a disk of the sandbox can have."""

from __future__ import annotations

from provisioner.clouds.sandbox.errors import rejected
from provisioner.units import TIB, format_bytes

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
