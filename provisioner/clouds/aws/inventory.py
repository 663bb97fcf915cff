"""Everything of ours in the account, over all enabled regions: a region that does not answer is an error, never a gap."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import UTC
from typing import Any

from provisioner.clouds.aws import network, storage, tagging, views
from provisioner.clouds.aws.instances import Instances
from provisioner.clouds.aws.rates import Rates
from provisioner.clouds.aws.session import filters, in_parallel, where_it_answers
from provisioner.clouds.cloud import BillableObject, Instance, InstanceState, Placement, Survey
from provisioner.errors import GpuprovError
from provisioner.tags import format_time
from provisioner.units import GIB
from provisioner.vocabulary import CapacityType

_ALIVE = (InstanceState.PENDING, InstanceState.RUNNING)
_OPEN = "open"


@dataclass(frozen=True, slots=True)
class Inventory:
    """Lists of one account."""

    instances: Instances
    rates: Rates

    def list_objects(self) -> list[BillableObject]:
        """See ``Cloud.list_objects``. Machines first in each region, each with its root disk and public address."""
        return in_parallel(self._whole_region, self.instances.places.regions())

    def survey(self, more: Callable[[str], Iterable[BillableObject]] = lambda _region: ()) -> Survey:
        """Everything in the regions that answer, and why the others do not.

        Args:
            more: lists further objects of a region.

        Raises:
            GpuprovError: the regions themselves cannot be listed.
        """
        return Survey(
            *where_it_answers(lambda name: [*self._region(name), *more(name)], self.instances.places.regions())
        )

    def set_tags(self, placement: Placement, object_id: str, tags: Mapping[str, str]) -> None:
        """See ``Cloud.set_tags``. A user's own ``Name`` does not take the object's name away."""
        written = dict(tags)
        if tagging.NAME in tags:
            shown = self._tags_of(placement.region, object_id)
            if tagging.OWN_NAME not in shown:
                written[tagging.OWN_NAME] = shown.get(tagging.NAME, "")
        entries = [{"Key": key, "Value": value} for key, value in sorted(written.items())]
        self.instances.api.call("ec2", "CreateTags", placement.region, Resources=[object_id], Tags=entries)

    def _tags_of(self, region: str, object_id: str) -> dict[str, str]:
        asked = [{"Name": "resource-id", "Values": [object_id]}]
        found = self.instances.api.pages("ec2", "DescribeTags", region, "Tags", Filters=asked)
        return {str(entry["Key"]): str(entry["Value"]) for entry in found}

    def _region(self, region: str) -> list[BillableObject]:
        machines = list(self._machines(region))
        ours = frozenset(entry.id for entry in machines if entry.kind == "instance")
        requests = self._persistent(region)
        states = {str(request["InstanceId"]): request["State"] for request in requests if request.get("InstanceId")}
        marked = [_with_request(entry, states.get(entry.id)) for entry in machines]
        return [*marked, *self._requests(region, requests, ours), *self._groups(region)]

    def _persistent(self, region: str) -> list[dict[str, Any]]:
        """Our persistent spot requests, ended ones included."""
        asked = filters({}, ("type", "persistent"))
        return self.instances.api.pages(
            "ec2", "DescribeSpotInstanceRequests", region, "SpotInstanceRequests", Filters=asked
        )

    def _whole_region(self, region: str) -> list[BillableObject]:
        try:
            return self._region(region)
        except GpuprovError as error:
            raise type(error)(
                f"{error.message}; {region} could not be listed, so the list would not be whole",
                where=error.where,
                remedy=error.remedy,
            ) from error

    def _machines(self, region: str) -> Iterator[BillableObject]:
        """Machines and disks: a root disk goes under its machine, a disk that nothing ends stands for itself."""
        api = self.instances.api
        reservations = api.pages("ec2", "DescribeInstances", region, "Reservations", Filters=filters({}))
        disks = api.pages("ec2", "DescribeVolumes", region, "Volumes", Filters=filters({}))
        sizes = {str(disk["VolumeId"]): int(disk["Size"]) * GIB for disk in disks}
        roots: set[str] = set()
        for described in (machine for one in reservations for machine in one["Instances"]):
            machine = views.view(described, region, self.instances.places)
            if machine.state.is_gone:
                continue
            roots.update(views.root_volumes(described))
            yield from self._machine(machine, described, sizes)
        for disk in disks:
            if disk["VolumeId"] not in roots and disk["State"] not in ("deleting", "deleted"):
                yield self._disk(disk, region)

    def _machine(
        self, machine: Instance, described: Mapping[str, Any], sizes: Mapping[str, int]
    ) -> Iterator[BillableObject]:
        place = machine.placement
        is_alive = machine.state in _ALIVE
        entry = BillableObject(
            cloud=views.CLOUD,
            kind="instance",
            id=machine.id,
            region=place.region,
            zone=place.zone,
            state=str(machine.state),
            tags=machine.tags,
            price_usd_per_hour=self.rates.instance(place) if is_alive else "0",
            created_at=machine.created_at,
            extra={
                "provider": views.CLOUD,
                "capacity_type": str(place.capacity_type),
                "name": machine.name,
                "instance_type": place.instance_type,
                **_stopped(described),
            },
        )
        yield entry
        common = {"provider": views.CLOUD, "instance": machine.id}
        for volume_id in views.root_volumes(described):
            size_bytes = sizes.get(volume_id)
            price = None if size_bytes is None else self.rates.disk(place.region, size_bytes)
            extra = {**common, "role": "root", **({} if size_bytes is None else {"size_bytes": str(size_bytes)})}
            yield replace(entry, kind="volume", id=volume_id, state="in-use", price_usd_per_hour=price, extra=extra)
        if machine.public_ip is not None:
            extra = {**common, "address": machine.public_ip}
            price = self.rates.address()
            yield replace(
                entry, kind="ip", id=_interface(described), state="in-use", price_usd_per_hour=price, extra=extra
            )

    def _disk(self, described: Mapping[str, Any], region: str) -> BillableObject:
        volume = storage.Storage(self.instances).view(described, region)
        extra = {
            "provider": views.CLOUD,
            "name": volume.name,
            "role": "root" if storage.is_root(described) else "data",
            "size_bytes": str(volume.size_bytes),
        }
        if volume.attached_to is not None:
            extra["instance"] = volume.attached_to
        return BillableObject(
            cloud=views.CLOUD,
            kind="volume",
            id=volume.id,
            region=region,
            zone=volume.zone,
            state=volume.state,
            tags=volume.tags,
            price_usd_per_hour=self.rates.disk(region, volume.size_bytes),
            created_at=volume.created_at,
            extra=extra,
        )

    def _requests(
        self, region: str, requests: Iterable[dict[str, Any]], machines: frozenset[str]
    ) -> Iterator[BillableObject]:
        """Persistent spot requests without a machine of ours: they may start another one, or have, which has no tags.

        Args:
            region: where.
            requests: the persistent ones.
            machines: those of ours that live.
        """
        for request in requests:
            if request["State"] in views.CLOSED_REQUESTS or request.get("InstanceId") in machines:
                continue
            started = self._started(region, request)
            if started is None and request["State"] != _OPEN and request.get("InstanceId"):
                continue  # the machine is so young that it does not show yet
            shown = tagging.read(request.get("Tags"))
            yield BillableObject(
                cloud=views.CLOUD,
                kind="spot-request",
                id=str(request["SpotInstanceRequestId"]),
                region=region,
                zone=None,
                state=str(request["State"]),
                tags=shown.tags,
                price_usd_per_hour=None,
                created_at=request["CreateTime"].astimezone(UTC),
                extra={
                    "provider": views.CLOUD,
                    "name": shown.name,
                    **({} if started is None else {"started": str(started["InstanceId"])}),
                },
            )

    def _started(self, region: str, request: Mapping[str, Any]) -> Mapping[str, Any] | None:
        """The machine of a request as EC2 shows it, an ended one included."""
        instance_id = request.get("InstanceId")
        return self.instances.describe(region, str(instance_id)) if instance_id else None

    def _groups(self, region: str) -> Iterator[BillableObject]:
        found = self.instances.api.pages("ec2", "DescribeSecurityGroups", region, "SecurityGroups", Filters=filters({}))
        for group in found:
            yield BillableObject(
                cloud=views.CLOUD,
                kind="security-group",
                id=str(group["GroupId"]),
                region=region,
                zone=None,
                state="available",
                tags=tagging.read(group.get("Tags")).tags,
                price_usd_per_hour="0",
                created_at=network.made_at(group),
                extra={"provider": views.CLOUD},
            )


def _with_request(entry: BillableObject, state: str | None) -> BillableObject:
    """A spot machine with what its request is, which says whether it can be stopped: ``persistent``, ``one-time`` or ``cancelled``.

    Args:
        entry: an object.
        state: of the persistent request that the machine belongs to; ``None`` for none.

    Source: EC2 user guide, "Manage your Spot Instances" (only with a persistent request, and not once it is cancelled).
    """
    if entry.kind != "instance" or entry.extra.get("capacity_type") != CapacityType.SPOT:
        return entry
    word = "one-time" if state is None else "cancelled" if state in views.CLOSED_REQUESTS else "persistent"
    return replace(entry, extra={**entry.extra, "spot_request": word})


def _stopped(described: Mapping[str, Any]) -> dict[str, str]:
    """When and by what a stopped machine was stopped, where EC2 says it."""
    if described["State"]["Name"] != "stopped":
        return {}
    at, ended = views.changed_at(described), views.ended(described)
    return {
        **({} if at is None else {"stopped_at": format_time(at)}),
        **({} if ended is None else {"ended": str(ended.how)}),
    }


def _interface(described: Mapping[str, Any]) -> str:
    """Id of the network interface that carries the public address; the address lives and ends with it."""
    interfaces = described.get("NetworkInterfaces") or ()
    return str(interfaces[0]["NetworkInterfaceId"]) if interfaces else f"{described['InstanceId']}-ip"
