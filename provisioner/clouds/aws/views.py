"""Machines as EC2 describes them, in our words."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from provisioner.clouds.aws import tagging
from provisioner.clouds.aws.places import Places
from provisioner.clouds.cloud import End, Ended, Instance, InstanceState, Placement
from provisioner.vocabulary import CapacityType

CLOUD = "aws"
_STATES = {
    "pending": InstanceState.PENDING,
    "running": InstanceState.RUNNING,
    "stopping": InstanceState.STOPPING,
    "stopped": InstanceState.STOPPED,
    "shutting-down": InstanceState.TERMINATING,
    "terminated": InstanceState.TERMINATED,
}
_TAKEN_BACK = "Server.SpotInstanceTermination"
"""Source: EC2 API reference, StateReason."""
CLOSED_REQUESTS = ("closed", "cancelled", "failed")
"""States of a spot request that starts nothing any more; one whose machine is stopped is ``disabled``.

Source: EC2 user guide, "Spot Instance request states".
"""
_KEY = (
    "EC2 cannot read one of its disks, as a rule for want of their key: let aws.kms_key be enabled, and its policy give you"
    " (and for spot machines the role AWSServiceRoleForEC2Spot) kms:CreateGrant and kms:Decrypt"
)
_FAILURES = {
    "Client.InternalError": _KEY,
    "Client.InvalidKMSKey": _KEY,
    "Client.InvalidSnapshot": "a snapshot of its image is gone: pin another image, aws.image",
    "Client.VolumeLimitExceeded": "the quota of EBS volumes is used up: delete some, or ask for more at Service Quotas",
}
"""Beginning of a state reason's code -> what is wrong with the request.

Source: EC2 API reference, StateReason; AWS knowledge center, "encrypted-volumes-stops-immediately".
"""
DATA_DEVICES = tuple(f"/dev/sd{letter}" for letter in "fghijklmnop")
"""Device names that EC2 recommends for data disks, and ours get. Source: EC2 user guide, "Device names on Linux instances"."""
_ENDS = {
    "Server.SpotInstanceTermination": End.TAKEN_BACK,
    "Server.SpotInstanceShutdown": End.TAKEN_BACK,
    "Client.UserInitiatedShutdown": End.CALLED,
    "Client.UserInitiatedHibernate": End.CALLED,
    "Client.InstanceTerminated": End.CALLED,
    "Client.InstanceInitiatedShutdown": End.FROM_INSIDE,
    "Server.ScheduledStop": End.RETIRED,
    "Server.InsufficientInstanceCapacity": End.NO_CAPACITY,
    "Server.InternalError": End.FAILED,
}
"""Code of a state reason -> what it tells. Source: EC2 API reference, StateReason."""
_AT = re.compile(r"\((\d{4}-\d\d-\d\d \d\d:\d\d:\d\d) (?:GMT|UTC)\)")
"""Source: EC2 API reference, Instance, stateTransitionReason."""
_ALIVE = (InstanceState.PENDING, InstanceState.RUNNING)
_ONLY_RESERVED = "capacity-reservations-only"
_LIFECYCLES = {"spot": CapacityType.SPOT, "capacity-block": CapacityType.CAPACITY_BLOCK}

Described = Mapping[str, Any]
"""One instance of ``DescribeInstances``."""


def view(described: Described, region: str, places: Places) -> Instance:
    """A machine as the interface shows it."""
    shown = tagging.read(described.get("Tags"))
    reason = described.get("StateReason") or {}
    return Instance(
        id=str(described["InstanceId"]),
        name=shown.name,
        placement=placement(described, region, places),
        state=state(described),
        tags=shown.tags,
        image=str(described.get("ImageId", "")),
        created_at=created_at(described),
        private_ip=described.get("PrivateIpAddress") or None,
        public_ip=described.get("PublicIpAddress") or None,
        volume_ids=data_volumes(described),
        token=described.get("ClientToken") or None,
        console=(str(reason["Message"]),) if reason.get("Message") else (),
        failure=_failure(str(reason.get("Code") or "")),
        ended=ended(described),
    )


def ended(described: Described) -> Ended | None:
    """Why a machine is stopped or gone; ``None`` where it is neither, or EC2 does not tell."""
    code = str((described.get("StateReason") or {}).get("Code") or "")
    how = _ENDS.get(code, End.FAILED if _failure(code) else None)
    return None if how is None or state(described) in _ALIVE else Ended(how, changed_at(described))


def changed_at(described: Described) -> datetime | None:
    """When a machine came to its state, where EC2 says it: ``User initiated (2026-11-30 12:00:00 GMT)``."""
    found = _AT.search(str(described.get("StateTransitionReason") or ""))
    return None if found is None else datetime.strptime(found[1], "%Y-%m-%d %H:%M:%S").replace(tzinfo=UTC)


def placement(described: Described, region: str, places: Places) -> Placement:
    """Where a machine is; the zone by its id."""
    where = described.get("Placement") or {}
    zone = where.get("AvailabilityZoneId") or places.zone_id(region, where.get("AvailabilityZone"))
    return Placement(CLOUD, region, zone, str(described["InstanceType"]), capacity_type(described))


def state(described: Described) -> InstanceState:
    """Power state; a spot machine that was taken back and is gone is ``interrupted``, one that was stopped is ``stopped``."""
    found = _STATES[described["State"]["Name"]]
    if found is InstanceState.TERMINATED and (described.get("StateReason") or {}).get("Code") == _TAKEN_BACK:
        return InstanceState.INTERRUPTED
    return found


def capacity_type(described: Described) -> CapacityType:
    """How it was bought."""
    lifecycle = _LIFECYCLES.get(described.get("InstanceLifecycle") or "")
    if lifecycle is not None:
        return lifecycle
    return CapacityType.RESERVED if is_ahead(described) else CapacityType.ON_DEMAND


def is_ahead(described: Described) -> bool:
    """Whether it may run in capacity that was bought ahead alone: in a named reservation, or in any open one."""
    reservation = described.get("CapacityReservationSpecification") or {}
    only_reserved = reservation.get("CapacityReservationPreference") == _ONLY_RESERVED
    return only_reserved or reservation_target(described) is not None


def reservation_target(described: Described) -> str | None:
    """The reservation or block that its create call named; ``None`` where it named none."""
    reservation = described.get("CapacityReservationSpecification") or {}
    target = (reservation.get("CapacityReservationTarget") or {}).get("CapacityReservationId")
    return None if target is None else str(target)


def created_at(described: Described) -> datetime:
    """When it was made: when its first network interface was attached, since ``LaunchTime`` is the last start."""
    for interface in described.get("NetworkInterfaces") or ():
        attachment = interface.get("Attachment") or {}
        if attachment.get("DeviceIndex") == 0 and attachment.get("AttachTime"):
            return _utc(attachment["AttachTime"])
    return _utc(described["LaunchTime"])


def data_volumes(described: Described) -> tuple[str, ...]:
    """Disks that outlive the machine, in the order of their devices."""
    mappings = sorted(described.get("BlockDeviceMappings") or (), key=lambda mapping: str(mapping["DeviceName"]))
    return tuple(str(m["Ebs"]["VolumeId"]) for m in mappings if not is_root(described, m))


def root_volumes(described: Described) -> tuple[str, ...]:
    """Disks that end with the machine."""
    mappings = described.get("BlockDeviceMappings") or ()
    return tuple(str(m["Ebs"]["VolumeId"]) for m in mappings if is_root(described, m))


def root_volume(described: Described) -> str | None:
    """The disk that the machine boots from."""
    mappings = described.get("BlockDeviceMappings") or ()
    named = (m for m in mappings if m["DeviceName"] == described.get("RootDeviceName"))
    return next((str(mapping["Ebs"]["VolumeId"]) for mapping in named), None)


def is_root(described: Described, mapping: Mapping[str, Any]) -> bool:
    """Whether a disk came with the machine and ends with it.

    A data disk stays one where somebody has let it end with its machine: it is attached where only data disks are.
    """
    if mapping["DeviceName"] == described.get("RootDeviceName"):
        return True
    ends = (mapping.get("Ebs") or {}).get("DeleteOnTermination")
    return bool(ends) and mapping["DeviceName"] not in DATA_DEVICES


def _failure(code: str) -> str | None:
    return next((text for beginning, text in _FAILURES.items() if code.startswith(beginning)), None)


def _utc(moment: datetime) -> datetime:
    return moment.astimezone(UTC)
