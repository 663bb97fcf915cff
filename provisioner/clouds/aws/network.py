"""Where machines are connected: the default VPC or the user's own, and one closed security group a stack and region."""

from __future__ import annotations

import hashlib
import ipaddress
import json
import re
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, NamedTuple

from provisioner.clouds.aws import tagging
from provisioner.clouds.aws.errors import Scope, code_of
from provisioner.clouds.aws.places import Places
from provisioner.clouds.aws.session import AwsApi, filters
from provisioner.clouds.aws.settings import AwsSettings
from provisioner.clouds.cloud import Placement
from provisioner.errors import CapacityError, NotFound, Rejected, TimedOut
from provisioner.tags import STACK, format_time, parse_time

_LOOKS = 20
_PAUSE_S = 0.5
"""A new group may be invisible for some seconds, and a machine that names it would be refused."""
_DESCRIPTION = "Closed but for what the workload opens. Made by gpuprov at {}"
_MADE_AT = re.compile(r"Made by gpuprov at (\S+)$")
_DUPLICATE_GROUP = "InvalidGroup.Duplicate"
_DUPLICATE_RULE = "InvalidPermission.Duplicate"
_USED = "DependencyViolation"


class Rule(NamedTuple):
    """Who may reach which ports. ``source`` is a CIDR; anything else was made by somebody else."""

    protocol: str
    first_port: int | None
    last_port: int | None
    source: str

    def __str__(self) -> str:
        """For people: ``tcp 22 from 0.0.0.0/0``."""
        if self.first_port is None:
            ports = "all ports"
        else:
            ports = str(self.first_port) if self.first_port == self.last_port else f"{self.first_port}-{self.last_port}"
        return f"{'all protocols' if self.protocol == '-1' else self.protocol} {ports} from {self.source}"

    @property
    def permission(self) -> dict[str, Any]:
        """The rule as the API takes it."""
        found: dict[str, Any] = {"IpProtocol": self.protocol}
        if self.first_port is not None:
            found |= {"FromPort": self.first_port, "ToPort": self.last_port}
        if self.source.startswith("sg-"):
            return found | {"UserIdGroupPairs": [{"GroupId": self.source}]}
        if self.source.startswith("pl-"):
            return found | {"PrefixListIds": [{"PrefixListId": self.source}]}
        if ":" in self.source:
            return found | {"Ipv6Ranges": [{"CidrIpv6": self.source}]}
        return found | {"IpRanges": [{"CidrIp": self.source}]}


class Network:
    """Subnets and security groups of one account. Safe to share between threads."""

    def __init__(self, api: AwsApi, places: Places, settings: AwsSettings) -> None:
        self._api = api
        self._places = places
        self._settings = settings
        self._lock = threading.Lock()
        self._subnets: dict[str, list[dict[str, Any]]] = {}
        self._vpcs: dict[str, str] = {}
        self._defaults: dict[str, list[dict[str, Any]]] = {}

    def own(self, placement: Placement) -> list[dict[str, Any]]:
        """The user's subnets for a placement, the one that is taken first; none where EC2 takes the default one of the zone.

        Raises:
            CapacityError: the user named a VPC or subnets, and none of them is there.
        """
        if not self._settings.vpc and not self._settings.subnets:
            return []
        found = self._own_subnets(placement.region)
        fitting = [s for s in found if placement.zone in (None, s.get("AvailabilityZoneId"))]
        if not fitting:
            raise no_subnet(
                f"no subnet of {self._named()} is in {placement.zone or placement.region}",
                "name one there in aws.subnets, or narrow placement.regions",
            )
        return fitting

    def candidates(self, placement: Placement) -> list[dict[str, Any]]:
        """Subnets in which a machine of a placement may start, the one that is taken first: the user's, else the default ones."""
        has_own = self._settings.vpc or self._settings.subnets
        found = self._own_subnets(placement.region) if has_own else self._default_subnets(placement.region)
        return [subnet for subnet in found if placement.zone in (None, subnet.get("AvailabilityZoneId"))]

    def _default_subnets(self, region: str) -> list[dict[str, Any]]:
        with self._lock:
            known = self._defaults.get(region)
        if known is None:
            asked = [{"Name": "default-for-az", "Values": ["true"]}]
            known = self._api.pages("ec2", "DescribeSubnets", region, "Subnets", Filters=asked)
            with self._lock:
                self._defaults[region] = known
        return known

    def rehearse(self, placement: Placement, tags: Mapping[str, str]) -> None:
        """Ask whether a group could be made.

        Raises:
            GpuprovError: it would be refused.
        """
        name = _group_name(tags)
        self._api.rehearse(
            "ec2",
            "CreateSecurityGroup",
            placement.region,
            GroupName=name,
            Description=_DESCRIPTION.format(format_time(datetime.now(UTC))),
            VpcId=self._vpc(placement.region),
            TagSpecifications=tagging.specifications(["security-group"], tagging.write(name, tags)),
        )

    def ensure_group(
        self, placement: Placement, tags: Mapping[str, str], cidrs: Sequence[str], ports: Sequence[int]
    ) -> str:
        """See ``Cloud.ensure_security_group``."""
        region = placement.region
        self._places.require(region)
        if not tags:
            raise Rejected("a security group needs tags to be found by")
        vpc = self._vpc(region)
        group = self._find(region, filters(tags, ("vpc-id", vpc))) or self._create(region, vpc, tags)
        self._align(region, group, _wanted(cidrs, ports))
        return str(group["GroupId"])

    def foreign_rules(
        self, placement: Placement, group_id: str, cidrs: Sequence[str], ports: Sequence[int]
    ) -> tuple[str, ...]:
        """Rules of a group that are other than wanted, for people; empty also where the group is gone.

        Raises:
            GpuprovError: they cannot be read.
        """
        wanted = _wanted(cidrs, ports)
        asked = [{"Name": "group-id", "Values": [group_id]}]
        group = self._find(placement.region, asked)
        if group is None:
            return ()
        there = set(_rules(group.get("IpPermissions") or ()))
        opened = [f"{rule} is open" for rule in sorted(there - wanted, key=str)]
        return (*opened, *(f"{rule} is closed" for rule in sorted(wanted - there, key=str)))

    def delete_group(self, placement: Placement, group_id: str) -> None:
        """See ``Cloud.delete_security_group``."""
        try:
            self._api.call("ec2", "DeleteSecurityGroup", placement.region, GroupId=group_id)
        except NotFound:
            return
        except Rejected as error:
            if code_of(error) != _USED:
                raise
            users = ", ".join(self._users(placement.region, group_id)) or "a network interface"
            raise Rejected(
                f"{error.message} (used by {users})", where=error.where, remedy="end that machine first"
            ) from error

    def _named(self) -> str:
        return f"aws.vpc {self._settings.vpc}" if self._settings.vpc else "aws.subnets"

    def _own_subnets(self, region: str) -> list[dict[str, Any]]:
        """The user's subnets in a region, in the order in which they are taken."""
        with self._lock:
            known = self._subnets.get(region)
        if known is not None:
            return known
        wanted, vpc = self._settings.subnets, self._settings.vpc
        asked = [{"Name": "subnet-id", "Values": list(wanted)}] if wanted else []
        asked += [{"Name": "vpc-id", "Values": [vpc]}] if vpc else []
        found = self._api.pages("ec2", "DescribeSubnets", region, "Subnets", Filters=asked)
        if wanted:
            found.sort(key=lambda subnet: wanted.index(str(subnet["SubnetId"])))
        else:
            found = [subnet for subnet in found if self._is_usable(region, subnet)]
            # A machine needs a way out; a subnet that gives public addresses has one.
            found.sort(key=lambda subnet: (not subnet.get("MapPublicIpOnLaunch"), str(subnet["SubnetId"])))
        with self._lock:
            self._subnets[region] = found
        return found

    def _is_usable(self, region: str, subnet: Mapping[str, Any]) -> bool:
        """Whether a subnet that nobody named may be taken: no local or wavelength zone, and addresses of IPv4.

        Without IPv4 a machine reaches neither its metadata service nor the endpoints that it fetches from.
        """
        return self._places.is_regional(region, subnet.get("AvailabilityZoneId")) and not subnet.get("Ipv6Native")

    def _vpc(self, region: str) -> str:
        """The VPC of a region in which machines start."""
        if self._settings.vpc or self._settings.subnets:
            found = self._own_subnets(region)
            if not found:
                raise no_subnet(
                    f"{self._named()} has no subnet in {region}", "narrow placement.regions to where it has"
                )
            return str(found[0]["VpcId"])
        with self._lock:
            known = self._vpcs.get(region)
        if known is not None:
            return known
        answer = self._api.call("ec2", "DescribeVpcs", region, Filters=[{"Name": "is-default", "Values": ["true"]}])
        if not answer["Vpcs"]:
            raise no_subnet(
                f"there is no default VPC in {region}",
                f"`aws ec2 create-default-vpc --region {region}`, or name aws.vpc or aws.subnets",
            )
        vpc = str(answer["Vpcs"][0]["VpcId"])
        with self._lock:
            self._vpcs[region] = vpc
        return vpc

    def _find(self, region: str, asked: list[dict[str, Any]]) -> dict[str, Any] | None:
        found = self._api.pages("ec2", "DescribeSecurityGroups", region, "SecurityGroups", Filters=asked)
        return min(found, key=lambda group: str(group["GroupId"]), default=None)

    def _create(self, region: str, vpc: str, tags: Mapping[str, str]) -> dict[str, Any]:
        """A new group; its name is made from its tags, so that two callers at once make one."""
        name = _group_name(tags)
        own = filters(tags, ("group-name", name), ("vpc-id", vpc))
        is_taken = False
        try:
            self._api.call(
                "ec2",
                "CreateSecurityGroup",
                region,
                GroupName=name,
                Description=_DESCRIPTION.format(format_time(datetime.now(UTC))),
                VpcId=vpc,
                TagSpecifications=tagging.specifications(["security-group"], tagging.write(name, tags)),
            )
        except Rejected as error:
            if code_of(error) != _DUPLICATE_GROUP:
                raise
            is_taken = True
        for look in range(_LOOKS):
            if look:
                time.sleep(_PAUSE_S)
            if (group := self._find(region, own)) is not None:
                return group
        if is_taken:  # by name alone nothing is ours
            raise Rejected(
                f"security group {name} in {vpc} has the name of ours and not its tags",
                remedy="give it its tags back, or delete it, and run the command again",
            )
        raise TimedOut(f"security group {name} was made in {region} and does not show", remedy="run the command again")

    def _align(self, region: str, group: Mapping[str, Any], wanted: set[Rule]) -> None:
        """Give a group exactly the wanted rules for traffic that comes in."""
        there = set(_rules(group.get("IpPermissions") or ()))
        if missing := sorted(wanted - there):
            self._change(region, "AuthorizeSecurityGroupIngress", group, missing)
        if surplus := sorted(there - wanted, key=str):
            self._change(region, "RevokeSecurityGroupIngress", group, surplus)

    def _change(self, region: str, operation: str, group: Mapping[str, Any], rules: Sequence[Rule]) -> None:
        permissions = [rule.permission for rule in rules]
        try:
            self._api.call("ec2", operation, region, GroupId=group["GroupId"], IpPermissions=permissions)
        except (NotFound, Rejected) as error:
            # Another caller was first, which leaves the group as it should be.
            if code_of(error) not in {_DUPLICATE_RULE, "InvalidPermission.NotFound"}:
                raise

    def _users(self, region: str, group_id: str) -> list[str]:
        asked = [
            {"Name": "instance.group-id", "Values": [group_id]},
            {"Name": "instance-state-name", "Values": ["pending", "running", "stopping", "stopped", "shutting-down"]},
        ]
        found = self._api.pages("ec2", "DescribeInstances", region, "Reservations", Filters=asked)
        return [str(instance["InstanceId"]) for reservation in found for instance in reservation["Instances"]]


def no_subnet(message: str, remedy: str) -> CapacityError:
    """The refusal of an offer where no machine could be connected; another region or zone may have a subnet."""
    refusal = CapacityError(message, remedy=remedy)
    refusal.scope = Scope.SUBNET.short
    return refusal


def has_room(subnet: Mapping[str, Any]) -> bool:
    """Whether a subnet had a free address when it was read; one that does not say counts as having one."""
    return int(subnet.get("AvailableIpAddressCount", 1)) > 0


def made_at(group: Mapping[str, Any]) -> datetime:
    """When a group was made, by its description: EC2 itself does not keep that. One that does not say is taken for new."""
    stated = _MADE_AT.search(str(group.get("Description", "")))
    try:
        moment = parse_time(stated[1]) if stated else None
    except ValueError:
        moment = None
    return moment or datetime.now(UTC)


def _group_name(tags: Mapping[str, str]) -> str:
    digest = hashlib.sha256(json.dumps(sorted(tags.items()), ensure_ascii=False).encode("utf-8", "surrogatepass"))
    return f"gpuprov-{tags.get(STACK, 'group')}-{digest.hexdigest()[:16]}"


def _wanted(cidrs: Sequence[str], ports: Sequence[int]) -> set[Rule]:
    return {Rule("tcp", port, port, _network(cidr)) for cidr in cidrs for port in ports}


def _network(cidr: str) -> str:
    """A CIDR as EC2 writes it: host bits cleared. Without that, each comparison would find a difference."""
    try:
        return str(ipaddress.ip_network(cidr, strict=False))
    except ValueError:
        return cidr


def _rules(permissions: Sequence[Mapping[str, Any]]) -> Iterator[Rule]:
    for permission in permissions:
        sources = [
            *(entry["CidrIp"] for entry in permission.get("IpRanges") or ()),
            *(entry["CidrIpv6"] for entry in permission.get("Ipv6Ranges") or ()),
            *(entry["GroupId"] for entry in permission.get("UserIdGroupPairs") or ()),
            *(entry["PrefixListId"] for entry in permission.get("PrefixListIds") or ()),
        ]
        for source in sources:
            yield Rule(permission["IpProtocol"], permission.get("FromPort"), permission.get("ToPort"), str(source))
