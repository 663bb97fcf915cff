"""What would refuse a launch, asked before anything is made: rights, quotas, offerings, room in the subnet, and a way out.

What cannot be read says so and refuses nothing. Only the regions that would be tried first are looked at.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from provisioner.clouds.aws import views
from provisioner.clouds.aws.instances import Instances
from provisioner.clouds.aws.network import has_room
from provisioner.clouds.aws.session import in_parallel
from provisioner.clouds.cloud import InstanceRequest, Placement, Readiness
from provisioner.errors import CapacityError, CredentialsError, GpuprovError, QuotaError, Rejected, UsageError
from provisioner.tags import STACK_ID
from provisioner.vocabulary import CapacityType

T = TypeVar("T")

REGIONS_MAX = 4
"""Regions that are looked at, in rank order; each costs four calls, and the first ones decide."""
ENDPOINTS = ("ecr.api", "ecr.dkr", "s3", "ssm", "ssmmessages")
"""Services that a machine without any route to the internet must reach inside its VPC: weights, images, a shell.

Source: Systems Manager user guide, "Create VPC endpoints"; ECR user guide, "Interface VPC endpoints".
"""
_REHEARSED = {STACK_ID: "preflight"}


@dataclass(frozen=True, slots=True)
class Region:
    """What a region says; ``None`` where it could not be read."""

    offered: frozenset[tuple[str, str]] | None
    """(instance type, zone id)"""
    tables: list[dict[str, Any]] | None
    endpoints: list[dict[str, Any]] | None
    troubles: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Preflight:
    """Looks of one account."""

    instances: Instances

    def check(self, offers: Sequence[Placement], root_volume_bytes: int) -> list[Readiness]:
        """All findings, rights last.

        Raises:
            CredentialsError: there is nobody to ask as.
        """
        mine = [offer for offer in offers if offer.cloud == views.CLOUD]
        enabled = self.instances.places.regions()
        names = list(dict.fromkeys(offer.region for offer in mine))[:REGIONS_MAX]
        kinds = sorted({offer.instance_type for offer in mine})
        looked = in_parallel(lambda name: [(name, self._look(name, kinds))], [n for n in names if n in enabled])
        regions: Mapping[str, Region] = dict(looked)
        found = [
            one for offer in mine if offer.region in names for one in self._offer(offer, regions.get(offer.region))
        ]
        found += [Readiness("region", None, unknown=text) for region in regions.values() for text in region.troubles]
        refused = {one.offer for one in found if one.error is not None}
        first = next((offer for offer in mine if offer.region in regions and offer.key not in refused), None)
        return [*found, *(self._rights(first, root_volume_bytes) if first is not None else ())]

    def _look(self, region: str, kinds: Sequence[str]) -> Region:
        api, troubles = self.instances.api, []

        def told(ask: Callable[[], T]) -> T | None:
            try:
                return ask()
            except GpuprovError as error:
                troubles.append(error.message)
                return None

        asked = [{"Name": "instance-type", "Values": list(kinds)}]
        offered = told(
            lambda: api.pages(
                "ec2",
                "DescribeInstanceTypeOfferings",
                region,
                "InstanceTypeOfferings",
                LocationType="availability-zone-id",
                Filters=asked,
            )
        )
        tables = told(lambda: api.pages("ec2", "DescribeRouteTables", region, "RouteTables"))
        endpoints = told(lambda: api.pages("ec2", "DescribeVpcEndpoints", region, "VpcEndpoints"))
        pairs = None if offered is None else frozenset((str(o["InstanceType"]), str(o["Location"])) for o in offered)
        return Region(pairs, tables, endpoints, tuple(troubles))

    def _offer(self, offer: Placement, region: Region | None) -> Iterator[Readiness]:
        if region is None:
            error = Rejected(f"region {offer.region} is not enabled for this account", remedy="leave it out")
            yield Readiness("region", offer.key, error)
            return
        yield Readiness("offering", offer.key, _not_offered(offer, region))
        if offer.capacity_type in (CapacityType.CAPACITY_BLOCK, CapacityType.RESERVED):
            yield self._told("capacity", offer, lambda: self.instances.check_ahead(offer))
        yield self._told("quota", offer, lambda: self.instances.quotas.check(offer, None))
        yield self._told("subnet", offer, lambda: self._room(offer, region))

    def _room(self, offer: Placement, region: Region) -> None:
        """Refuse a placement whose subnet is full or leads nowhere.

        Raises:
            CapacityError: there is no subnet, or no address free in it.
            UsageError: a machine in it could fetch nothing, and nobody could reach it.
        """
        subnets = self.instances.network.candidates(offer)
        if not subnets:
            raise CapacityError(
                f"there is no subnet for {offer.zone or offer.region}",
                remedy="name one in aws.subnets, or leave the zone",
            )
        subnet = next((one for one in subnets if has_room(one)), subnets[0])
        if not has_room(subnet):
            raise CapacityError(
                f"subnet {subnet['SubnetId']} has no free address", remedy="free some, or name another in aws.subnets"
            )
        if (closed := _no_way_out(subnet, offer.region, region)) is not None:
            raise UsageError(
                closed,
                remedy="let the subnet give public addresses, add a NAT gateway, or VPC endpoints for "
                f"{', '.join(ENDPOINTS)}; or name another subnet in aws.subnets",
            )

    def _told(self, check: str, offer: Placement, look: Callable[[], None]) -> Readiness:
        try:
            look()
        except UsageError as error:
            return Readiness("way out", offer.key, error)
        except (CapacityError, QuotaError) as error:
            return Readiness(check, offer.key, error)
        except GpuprovError as error:
            return Readiness(check, offer.key, unknown=error.message)
        return Readiness(check, offer.key)

    def _rights(self, offer: Placement, root_volume_bytes: int) -> Iterator[Readiness]:
        """Whether the account may make what the first good offer needs; DryRun calls, which make nothing."""
        try:
            image = self.instances.settings.image or self.instances.images.resolve(offer)
            request = InstanceRequest("preflight", "preflight", offer, image, root_volume_bytes, _REHEARSED)
            if (too_small := self.instances.root_refusal(request)) is not None:
                yield Readiness("disk", None, too_small)
                return
            self.instances.network.rehearse(offer, _REHEARSED)
            self.instances.rehearse(request)
        except CredentialsError as error:
            yield Readiness("rights", None, error)
        except GpuprovError as error:
            yield Readiness("rights", None, unknown=error.message)
        else:
            yield Readiness("rights", None)


def _not_offered(offer: Placement, region: Region) -> CapacityError | None:
    if region.offered is None:
        return None
    zones = sorted(zone for kind, zone in region.offered if kind == offer.instance_type)
    if (offer.zone is None and zones) or offer.zone in zones:
        return None
    where = f"it is in {', '.join(zones)}" if zones else "it is nowhere in that region"
    return CapacityError(
        f"{offer.instance_type} is not offered in {offer.zone or offer.region}: {where}",
        remedy="plan again: `gpuprov prices refresh` reads what is offered",
    )


def _no_way_out(subnet: Mapping[str, Any], region_name: str, region: Region) -> str | None:
    """Why a machine in a subnet reaches nothing; ``None`` where it reaches something, or that cannot be told."""
    if region.tables is None or region.endpoints is None:
        return None
    routes = _routes(subnet, region.tables)
    defaults = [r for r in routes if r.get("DestinationCidrBlock") == "0.0.0.0/0" and r.get("State") != "blackhole"]
    gateways = [str(route.get("GatewayId") or "") for route in defaults]
    if any(not gateway.startswith("igw-") for gateway in gateways):
        return None  # a NAT gateway, a transit gateway, an appliance
    if gateways and subnet.get("MapPublicIpOnLaunch"):
        return None
    here = {str(one["ServiceName"]) for one in region.endpoints if one.get("VpcId") == subnet.get("VpcId")}
    missing = [name for name in ENDPOINTS if f"com.amazonaws.{region_name}.{name}" not in here]
    if not missing:
        return None
    why = "gives no public address" if gateways else "has no route to 0.0.0.0/0"
    return f"a machine in subnet {subnet['SubnetId']} could fetch nothing: it {why}, and its VPC lacks endpoints for {', '.join(missing)}"


def _routes(subnet: Mapping[str, Any], tables: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Routes of a subnet: its own table's, else those of the main table of its VPC."""
    own: list[dict[str, Any]] | None = None
    main: list[dict[str, Any]] = []
    for table in tables:
        for association in table.get("Associations") or ():
            if association.get("SubnetId") == subnet.get("SubnetId"):
                own = list(table.get("Routes") or ())
            elif association.get("Main") and table.get("VpcId") == subnet.get("VpcId"):
                main = list(table.get("Routes") or ())
    return main if own is None else own
