"""Stop or terminate: what each cloud allows by market and kind of disk, and what is cheap.

Source: reference of EC2 ("Stop and start your instance", "Spot Instance interruptions": a one-time spot request cannot be
stopped, a persistent one can) and of Compute Engine ("Stop or suspend": local SSD is discarded; flex-start runs through); catalog billing rules.
"""

from __future__ import annotations

from dataclasses import dataclass

from provisioner.vocabulary import CapacityType

STOP, TERMINATE = "stop", "terminate"
DISKS = ("network", "local", "local-root")


@dataclass(frozen=True, slots=True)
class Ending:
    """How a machine is ended, and why so."""

    how: str
    reason: str


_BLOCK = Ending(TERMINATE, "a block or a flex-start machine cannot be stopped; it is paid for to its end")
_UNKNOWN = Ending(STOP, "how it was bought is not known here, and a stop loses the least")
_RESERVED = Ending(STOP, "its reservation is billed on; a stop frees the place in it")
_TABLE: dict[tuple[str, str, str], Ending] = {
    ("aws", "on-demand", "network"): Ending(STOP, "only its disks bill while it is stopped"),
    ("aws", "on-demand", "local"): Ending(
        STOP, "only its root disk bills; what lies on local NVMe is lost and fetched again"
    ),
    ("aws", "on-demand", "local-root"): Ending(TERMINATE, "a machine whose root disk is local cannot be stopped"),
    ("aws", "spot", "network"): Ending(TERMINATE, "a one-time spot machine cannot be stopped"),
    ("aws", "spot", "local"): Ending(TERMINATE, "a one-time spot machine cannot be stopped"),
    ("aws", "spot", "local-root"): Ending(TERMINATE, "a one-time spot machine cannot be stopped"),
    ("aws", "reserved", "network"): _RESERVED,
    ("aws", "reserved", "local"): _RESERVED,
    ("aws", "reserved", "local-root"): Ending(TERMINATE, "a machine whose root disk is local cannot be stopped"),
    ("gcp", "on-demand", "network"): Ending(STOP, "only its disks bill while it is stopped"),
    ("gcp", "on-demand", "local"): Ending(
        TERMINATE, "a stop would discard its local SSD, and keep no more than its root disk"
    ),
    ("gcp", "on-demand", "local-root"): Ending(TERMINATE, "nothing of it would be kept"),
    ("gcp", "spot", "network"): Ending(STOP, "only its disks bill while it is stopped"),
    ("gcp", "spot", "local"): Ending(
        TERMINATE, "a stop would discard its local SSD, and keep no more than its root disk"
    ),
    ("gcp", "spot", "local-root"): Ending(TERMINATE, "nothing of it would be kept"),
    ("gcp", "reserved", "network"): _RESERVED,
    ("gcp", "reserved", "local"): Ending(
        TERMINATE, "a stop would discard its local SSD, and keep no more than its root disk"
    ),
    ("gcp", "reserved", "local-root"): Ending(TERMINATE, "nothing of it would be kept"),
}

_PERSISTENT = Ending(STOP, "its spot request is persistent, as the spec asks; only its disks bill while it is stopped")
_STATED: dict[tuple[str, str, str], Ending] = {
    ("aws", "spot", "network"): _PERSISTENT,
    ("aws", "spot", "local"): _PERSISTENT,
}
"""What stops only where the spec says so: by itself, a spot machine is asked for once."""


def ending(cloud: str, capacity_type: CapacityType | None, disk: str, wanted: str | None = None) -> Ending:
    """How a machine is ended.

    Args:
        cloud: ``aws`` or ``gcp``.
        capacity_type: how it was bought; ``None`` is unknown. A stop is tried then; where the market allows none, the cloud
            refuses it, and nothing is lost.
        disk: one of ``DISKS``.
        wanted: ``idle.then`` of the spec; ``None`` leaves it to the table.
    """
    if capacity_type in (CapacityType.CAPACITY_BLOCK, CapacityType.FLEX_START):
        return _BLOCK
    nothing = Ending(TERMINATE, "nothing is known of a stop there")
    found = _UNKNOWN if capacity_type is None else _TABLE.get((cloud, str(capacity_type), disk), nothing)
    if wanted == STOP and capacity_type is not None:
        return _STATED.get((cloud, str(capacity_type), disk), found)
    if wanted == TERMINATE and found.how == STOP:
        return Ending(TERMINATE, "the spec says so")
    return found
