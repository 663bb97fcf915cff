"""What somebody has changed on a machine since its create call, and the calls that put it right.

Source: EC2 API reference, DescribeInstances, DescribeInstanceAttribute, ModifyInstanceAttribute and
ModifyInstanceMetadataOptions. A machine's zone, subnet, market and key pair are settled for good when it is made; they differ
only where another machine carries its tags ("Launch more like this" of the console copies them).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from provisioner.catalog.disk_kinds import INCLUDED_SPEED
from provisioner.clouds.aws import views
from provisioner.clouds.aws.instances import DISK_KIND, HOPS, Instances
from provisioner.clouds.aws.session import in_parallel
from provisioner.clouds.aws.views import Described
from provisioner.clouds.cloud import ROOT_SPEED, ForeignChange, Inspection, Placement, Terms
from provisioner.errors import GpuprovError
from provisioner.units import GIB, DiskSpeed

_NONE = "none"
_ON, _OFF = "on", "off"
_SHUTDOWN = {True: "stop", False: "terminate"}
_METADATA: Mapping[str, tuple[str, Any]] = {
    "HttpTokens": ("metadata service: session tokens (IMDSv2)", "required"),
    "HttpEndpoint": ("metadata service", "enabled"),
    "HttpPutResponseHopLimit": ("metadata service: hops", HOPS),
}
"""Option of the metadata service -> what it is for people, and how every machine of ours is made."""
_PROTECTIONS = {
    "DisableApiTermination": ("termination protection", "--no-disable-api-termination"),
    "DisableApiStop": ("stop protection", "--no-disable-api-stop"),
}
_ATTRIBUTES = ("disableApiTermination", "disableApiStop", "instanceInitiatedShutdownBehavior")
"""What ``DescribeInstances`` does not tell; one call each."""
_ANOTHER = "no call changes that on a machine that is there: it takes another one"
_LARGER = "a disk does not shrink; it costs more as long as it is there"


@dataclass(frozen=True, slots=True)
class _Found:
    """A change, and the call that puts it right; ``None`` where none of ours does."""

    change: ForeignChange
    operation: str | None = None
    parameters: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class Inspector:
    """Compares machines of one account with what they were asked for."""

    instances: Instances

    def inspect(self, placement: Placement, instance_id: str, terms: Terms) -> Inspection:
        """What is other than it was asked for; what may not be read is unknown and no error."""
        try:
            described = self.instances.describe(placement.region, instance_id)
            if described is None:
                return Inspection()
            found = list(self._told(described, placement, terms))
        except GpuprovError as error:
            return Inspection(unknown=error.message)
        try:
            found += self._asked(described, placement.region, terms)
        except GpuprovError as error:
            return Inspection(tuple(one.change for one in found), error.message)
        return Inspection(tuple(one.change for one in found))

    def put_right(self, placement: Placement, instance_id: str, terms: Terms) -> None:
        """Change back what one call each changes back while the machine runs.

        Raises:
            GpuprovError: it cannot be read, or EC2 refused.
        """
        described = self.instances.existing(placement, instance_id)
        region = placement.region
        for one in (*self._told(described, placement, terms), *self._asked(described, region, terms)):
            if one.operation is not None:
                self.instances.api.call("ec2", one.operation, region, InstanceId=instance_id, **one.parameters or {})

    def _told(self, described: Described, placement: Placement, terms: Terms) -> Iterator[_Found]:
        """Differences that the machine's own description shows."""
        yield from self._place(described, placement.region, terms)
        yield from self._own_objects(described, placement.region)
        yield from _metadata(described)
        yield from _groups(described, terms)
        yield from _ends(described, terms)

    def _asked(self, described: Described, region: str, terms: Terms) -> Iterator[_Found]:
        """Differences that take calls of their own: protections, shutdown, the root disk."""
        instance_id = str(described["InstanceId"])

        def read(name: str) -> list[tuple[str, Any]]:
            answer = self.instances.api.call(
                "ec2", "DescribeInstanceAttribute", region, InstanceId=instance_id, Attribute=name
            )
            key = name[0].upper() + name[1:]
            return [(key, (answer.get(key) or {}).get("Value"))]

        told = dict(in_parallel(read, _ATTRIBUTES))
        for key, (what, option) in _PROTECTIONS.items():
            if told[key]:
                undo = self._command("modify-instance-attribute", instance_id, region, option)
                yield _Found(
                    ForeignChange(what, _OFF, _ON, f"as long as it is on, gpuprov cannot do it either: {undo}")
                )
        behaviour, stops = told["InstanceInitiatedShutdownBehavior"], terms.stop_on_shutdown
        if stops is not None and behaviour not in (None, _SHUTDOWN[stops]):
            wanted = _SHUTDOWN[stops]
            yield _Found(
                ForeignChange("what a shutdown from inside does", wanted, str(behaviour)),
                "ModifyInstanceAttribute",
                {"InstanceInitiatedShutdownBehavior": {"Value": wanted}},
            )
        yield from self._root(described, region, terms)

    def _place(self, described: Described, region: str, terms: Terms) -> Iterator[_Found]:
        instance_id, asked = str(described["InstanceId"]), terms.placement
        here = views.placement(described, region, self.instances.places)
        if asked is not None and asked.instance_type != here.instance_type:
            undo = self._when_stopped(
                "modify-instance-attribute", instance_id, region, f"--instance-type Value={asked.instance_type}"
            )
            yield _Found(ForeignChange("instance type", asked.instance_type, here.instance_type, undo))
        if asked is not None and asked.capacity_type != here.capacity_type:
            yield _Found(ForeignChange("market", str(asked.capacity_type), str(here.capacity_type), _ANOTHER))
        if asked is not None and asked.zone not in (None, here.zone):
            yield _Found(ForeignChange("zone", str(asked.zone), str(here.zone), _ANOTHER))
        if terms.image not in (None, described.get("ImageId")):
            yield _Found(ForeignChange("image", str(terms.image), str(described.get("ImageId")), _ANOTHER))
        tenancy = (described.get("Placement") or {}).get("Tenancy") or "default"
        if tenancy != "default":
            undo = self._when_stopped("modify-instance-placement", instance_id, region, "--tenancy default")
            yield _Found(ForeignChange("tenancy", "default", str(tenancy), undo))

    def _own_objects(self, described: Described, region: str) -> Iterator[_Found]:
        settings, instance_id = self.instances.settings, str(described["InstanceId"])
        arn = (described.get("IamInstanceProfile") or {}).get("Arn")
        wanted = settings.instance_profile
        if _profile(wanted) != _profile(arn):
            yield _Found(
                ForeignChange(
                    "instance profile", wanted or _NONE, str(arn or _NONE), self._profile_undo(instance_id, region)
                )
            )
        if described.get("KeyName"):
            yield _Found(ForeignChange("key pair", _NONE, str(described["KeyName"]), _ANOTHER))
        subnet = described.get("SubnetId")
        if settings.subnets and subnet and subnet not in settings.subnets:
            yield _Found(ForeignChange("subnet", " or ".join(settings.subnets), str(subnet), _ANOTHER))
        if settings.vpc and described.get("VpcId") not in (None, settings.vpc):
            yield _Found(ForeignChange("VPC", settings.vpc, str(described["VpcId"]), _ANOTHER))

    def _root(self, described: Described, region: str, terms: Terms) -> Iterator[_Found]:
        """The root disk: its kind and speed can go back in place, its size cannot.

        A speed is put right with the machine's own (``Cloud.set_root_speed``), since it takes the size into account.
        """
        root = views.root_volume(described)
        if root is None:
            return
        answer = self.instances.api.call("ec2", "DescribeVolumes", region, VolumeIds=[root])
        disk = next(iter(answer["Volumes"]), None)
        if disk is None:
            return
        if terms.root_volume_bytes is not None:
            size_gib = -(-terms.root_volume_bytes // GIB)
            if int(disk["Size"]) != size_gib:
                yield _Found(ForeignChange("size of the root disk", f"{size_gib} GiB", f"{disk['Size']} GiB", _LARGER))
        wanted = terms.root_speed or INCLUDED_SPEED
        kind, iops, mib_per_s = disk.get("VolumeType"), disk.get("Iops"), disk.get("Throughput")
        if kind != DISK_KIND or (iops is not None and mib_per_s is not None and (int(iops), int(mib_per_s)) != wanted):
            yield _Found(ForeignChange(ROOT_SPEED, _speed(DISK_KIND, wanted), _speed(kind, (iops, mib_per_s))))

    def _when_stopped(self, command: str, instance_id: str, region: str, change: str) -> str:
        """The commands that change what can be changed on a stopped machine only."""
        steps = (
            f"aws ec2 stop-instances --instance-ids {instance_id}",
            f"aws ec2 wait instance-stopped --instance-ids {instance_id}",
            f"aws ec2 {command} --instance-id {instance_id} {change}",
            f"aws ec2 start-instances --instance-ids {instance_id}",
        )
        return " && ".join(f"{step}{self._options(region)}" for step in steps)

    def _command(self, command: str, instance_id: str, region: str, change: str) -> str:
        return f"aws ec2 {command} --instance-id {instance_id} {change}{self._options(region)}"

    def _profile_undo(self, instance_id: str, region: str) -> str:
        look = (
            f"aws ec2 describe-iam-instance-profile-associations --filters Name=instance-id,Values={instance_id}"
            f" --query IamInstanceProfileAssociations[0].AssociationId --output text{self._options(region)}"
        )
        wanted = self.instances.settings.instance_profile
        if wanted is None:
            return f"aws ec2 disassociate-iam-instance-profile --association-id $({look}){self._options(region)}"
        named = f"{'Arn' if wanted.startswith('arn:') else 'Name'}={wanted}"
        return (
            f"aws ec2 replace-iam-instance-profile-association --iam-instance-profile {named} --association-id"
            f" $({look}){self._options(region)}; where it has none, aws ec2 associate-iam-instance-profile"
            f" --iam-instance-profile {named} --instance-id {instance_id}{self._options(region)}"
        )

    def _options(self, region: str) -> str:
        profile = self.instances.settings.profile
        return f" --region {region}" + (f" --profile {profile}" if profile else "")


def _metadata(described: Described) -> Iterator[_Found]:
    options = described.get("MetadataOptions") or {}
    wrong = {key: value for key, (_, value) in _METADATA.items() if options.get(key) not in (None, value)}
    whole = {key: value for key, (_, value) in _METADATA.items()}
    for number, key in enumerate(wrong):
        what, wanted = _METADATA[key]
        change = ForeignChange(what, str(wanted), str(options[key]))
        # One call takes all of them.
        yield _Found(change, None if number else "ModifyInstanceMetadataOptions", whole)


def _groups(described: Described, terms: Terms) -> Iterator[_Found]:
    found = sorted(str(group["GroupId"]) for group in described.get("SecurityGroups") or ())
    if terms.security_groups and found and found != sorted(terms.security_groups):
        change = ForeignChange("security groups", ", ".join(sorted(terms.security_groups)), ", ".join(found))
        yield _Found(change, "ModifyInstanceAttribute", {"Groups": list(terms.security_groups)})


def _ends(described: Described, terms: Terms) -> Iterator[_Found]:
    """What becomes of each disk when the machine ends: its root disk goes with it, a data disk never does."""
    for mapping in described.get("BlockDeviceMappings") or ():
        ebs = mapping.get("Ebs") or {}
        is_root = mapping["DeviceName"] == described.get("RootDeviceName")
        is_data = ebs.get("VolumeId") in terms.data_disks
        ends = ebs.get("DeleteOnTermination")
        if not (is_root or is_data) or ends is None or bool(ends) == is_root:
            continue
        what = f"end of the {'root' if is_root else 'data'} disk {ebs.get('VolumeId')} with its machine"
        device = {"DeviceName": mapping["DeviceName"], "Ebs": {"DeleteOnTermination": is_root}}
        words = ("yes", "no") if is_root else ("no", "yes")
        yield _Found(ForeignChange(what, *words), "ModifyInstanceAttribute", {"BlockDeviceMappings": [device]})


def _profile(name: object) -> str | None:
    """The last part of a profile's name or ARN: what both have in common."""
    return str(name).rpartition("/")[2] if name else None


def _speed(kind: object, speed: DiskSpeed | tuple[Any, Any]) -> str:
    iops, mib_per_s = speed
    parts = [str(kind), *([f"{iops} IOPS"] if iops is not None else [])]
    return ", ".join([*parts, *([f"{mib_per_s} MiB/s"] if mib_per_s is not None else [])])
