"""Data disks on EBS: encrypted, in one zone, kept when their machine ends, grown in place."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC
from typing import Any

from provisioner.clouds.aws import tagging, views
from provisioner.clouds.aws.errors import code_of
from provisioner.clouds.aws.instances import DISK_KIND, Instances, speed_parameters
from provisioner.clouds.aws.session import filters, in_parallel
from provisioner.clouds.cloud import Placement, Volume, VolumeRequest
from provisioner.errors import NotFound, Rejected, TimedOut, TokenMismatch, TokenSpent
from provisioner.units import GIB, DiskSpeed, format_gib

_ENDED = ("deleting", "deleted")
_BROKEN = "error"
"""Source: EC2 user guide, "EBS volume state": its creation failed."""
_LOOKS = 60
_SHOWS_WITHIN = 3
"""Looks after which a disk that EC2 does not know is not there."""
_PAUSE_S = 1.0
_ATTACHED = ("attaching", "attached", "busy", "detaching")


@dataclass(frozen=True, slots=True)
class Storage:
    """Data disks of one account."""

    instances: Instances
    sleep: Callable[[float], None] = time.sleep

    def create(self, request: VolumeRequest) -> Volume:
        """See ``Cloud.create_volume``."""
        if request.size_bytes <= 0:
            raise Rejected(f"a disk of {request.size_bytes} bytes")
        places, settings = self.instances.places, self.instances.settings
        places.require(request.region)
        parameters: dict[str, Any] = {
            "ClientToken": request.token,
            "AvailabilityZone": places.zone_name(request.region, request.zone),
            "Size": -(-request.size_bytes // GIB),
            "VolumeType": DISK_KIND,
            **speed_parameters(request.speed, request.size_bytes),
            "Encrypted": True,
            "TagSpecifications": tagging.specifications(["volume"], tagging.write(request.name, request.tags)),
        }
        if settings.kms_key:
            parameters["KmsKeyId"] = settings.kms_key
        try:
            made = self.instances.api.call("ec2", "CreateVolume", request.region, **parameters)
        except TokenMismatch as error:
            raise TokenMismatch(
                f"{error.message} (token {request.token})", where=error.where, remedy=error.remedy
            ) from error
        if made.get("State") in _ENDED:
            raise TokenSpent(f"token {request.token} made {made['VolumeId']}, which is {made['State']}")
        return self.view(
            {**made, "Tags": made.get("Tags") or parameters["TagSpecifications"][0]["Tags"]}, request.region
        )

    def find(self, tags: Mapping[str, str], placements: Sequence[Placement]) -> list[Volume]:
        """See ``Cloud.find_volumes``. Root disks are none: they end with their machine."""
        wanted = dict.fromkeys(place.region for place in placements if place.cloud == views.CLOUD)
        reachable = self.instances.places.regions() if wanted else ()

        def look(region: str) -> Iterator[Volume]:
            found = self.instances.api.pages("ec2", "DescribeVolumes", region, "Volumes", Filters=filters(tags))
            for described in found:
                volume = self.view(described, region)
                if described["State"] not in _ENDED and not is_root(described) and tags.items() <= volume.tags.items():
                    yield volume

        found: list[Volume] = in_parallel(look, [region for region in wanted if region in reachable])
        return sorted(found, key=lambda volume: (volume.created_at, volume.id))

    def get(self, placement: Placement, volume_id: str) -> Volume | None:
        """See ``Cloud.get_volume``."""
        try:
            return self._get(placement.region, volume_id)
        except NotFound:
            return None

    def attach(self, placement: Placement, instance_id: str, volume_id: str) -> None:
        """See ``Cloud.attach_volume``."""
        volume = self._ready(placement.region, volume_id)
        if volume.attached_to == instance_id:
            return
        if volume.attached_to is not None:
            raise Rejected(f"{volume_id} is attached to {volume.attached_to}", remedy="detach it there first")
        machine = self.instances.existing(placement, instance_id)
        zone = views.placement(machine, placement.region, self.instances.places).zone
        if zone != volume.zone:
            raise Rejected(
                f"{volume_id} is in {volume.zone}, {instance_id} in {zone}",
                remedy="make the machine in the disk's zone",
            )
        used = {str(mapping["DeviceName"]) for mapping in machine.get("BlockDeviceMappings") or ()}
        device = next((name for name in views.DATA_DEVICES if name not in used), None)
        if device is None:
            raise Rejected(f"{instance_id} has {len(used)} disks; no device name is free")
        self.instances.api.call(
            "ec2", "AttachVolume", placement.region, InstanceId=instance_id, VolumeId=volume_id, Device=device
        )

    def grow(self, placement: Placement, volume_id: str, size_bytes: int, speed: DiskSpeed | None = None) -> Volume:
        """See ``Cloud.grow_volume``: size and speed in one call, since EC2 takes the next one only when it is through."""
        volume = self._get(placement.region, volume_id)
        size_gib = -(-size_bytes // GIB)
        if size_gib * GIB < volume.size_bytes:
            raise Rejected(
                f"{volume_id} has {format_gib(volume.size_bytes)} and cannot shrink to {format_gib(size_bytes)}",
                remedy="make a smaller disk and copy the data",
            )
        changes: dict[str, Any] = {"Size": size_gib} if size_gib * GIB > volume.size_bytes else {}
        if speed is not None and speed != volume.speed:
            # A disk without a speed of gp3 is of another kind: somebody has changed it.
            changes |= speed_parameters(speed, size_gib * GIB) | ({} if volume.speed else {"VolumeType": DISK_KIND})
        if changes:
            self.instances.api.call("ec2", "ModifyVolume", placement.region, VolumeId=volume_id, **changes)
        return replace(
            volume, size_bytes=size_gib * GIB, speed=speed or volume.speed, kind=DISK_KIND if speed else volume.kind
        )

    def set_root_speed(self, placement: Placement, instance_id: str, speed: DiskSpeed) -> None:
        """See ``Cloud.set_root_speed``."""
        machine = self.instances.existing(placement, instance_id)
        root = views.root_volume(machine)
        if root is None:
            raise NotFound(f"{instance_id} shows no root disk")
        self.grow(placement, root, self._get(placement.region, root).size_bytes, speed)

    def delete(self, placement: Placement, volume_id: str) -> None:
        """See ``Cloud.delete_volume``."""
        try:
            self.instances.api.call("ec2", "DeleteVolume", placement.region, VolumeId=volume_id)
        except NotFound:
            return
        except Rejected as error:
            if code_of(error) != "VolumeInUse":
                raise
            try:
                holder = self._get(placement.region, volume_id).attached_to
            except NotFound:
                return
            raise Rejected(
                f"{error.message} (attached to {holder})", where=error.where, remedy="end that machine first"
            ) from error

    def _get(self, region: str, volume_id: str) -> Volume:
        answer = self.instances.api.call("ec2", "DescribeVolumes", region, VolumeIds=[volume_id])
        described = next(iter(answer["Volumes"]), None)
        if described is None or described["State"] in _ENDED:
            raise NotFound(f"there is no volume {volume_id} in {region}")
        return self.view(described, region)

    def _ready(self, region: str, volume_id: str) -> Volume:
        """A disk once EC2 has made it: one that is still being made cannot be attached.

        Raises:
            NotFound: it does not show either.
            Rejected: it could not be made.
            TimedOut: it is not ready after a minute.
        """
        for look in range(_LOOKS):
            if look:
                self.sleep(_PAUSE_S)
            try:
                volume = self._get(region, volume_id)
            except NotFound:
                if look >= _SHOWS_WITHIN:
                    raise
                continue  # made a moment ago, it may not show yet
            if volume.state == _BROKEN:
                raise Rejected(
                    f"EC2 could not make {volume_id}, as a rule for want of its key (aws.kms_key)",
                    remedy="let the key be enabled and its policy give you kms:CreateGrant; end the disk with `gpuprov down`",
                )
            if volume.state != "creating":
                return volume
        raise TimedOut(f"{volume_id} in {region} is still being made", remedy="run the command again")

    def view(self, described: Mapping[str, Any], region: str) -> Volume:
        """A disk as the interface shows it."""
        shown = tagging.read(described.get("Tags"))
        holder = next(
            (a["InstanceId"] for a in described.get("Attachments") or () if a.get("State") in _ATTACHED), None
        )
        zone = described.get("AvailabilityZoneId") or self.instances.places.zone_id(
            region, described.get("AvailabilityZone")
        )
        return Volume(
            id=str(described["VolumeId"]),
            name=shown.name,
            cloud=views.CLOUD,
            region=region,
            zone=str(zone),
            size_bytes=int(described["Size"]) * GIB,
            tags=shown.tags,
            created_at=described["CreateTime"].astimezone(UTC),
            attached_to=holder,
            state=str(described["State"]),
            speed=_speed(described),
            kind=described.get("VolumeType"),
        )


def _speed(described: Mapping[str, Any]) -> DiskSpeed | None:
    """What a gp3 disk is made to do; other kinds are not made by us."""
    iops, throughput = described.get("Iops"), described.get("Throughput")
    if described.get("VolumeType") != DISK_KIND or iops is None or throughput is None:
        return None
    return DiskSpeed(int(iops), int(throughput))


def is_root(described: Mapping[str, Any]) -> bool:
    """Whether a disk came with the machine that it is attached to, and ends with it; see ``views.is_root``."""
    return any(
        attachment.get("DeleteOnTermination") and attachment.get("Device") not in views.DATA_DEVICES
        for attachment in described.get("Attachments") or ()
    )
