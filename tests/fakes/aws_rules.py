"""What stock moto 5.2.5 lacks of EC2's rules: market and state rules, spot requests, disks, groups, delays, images, regions.

Patched once a process; all of it looks at one ``Rules`` object. Private names of moto are used, so the version is pinned, and a
name that is gone fails at import.
"""

from __future__ import annotations

import itertools
import os
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

os.environ.setdefault("MOTO_EC2_LOAD_DEFAULT_AMIS", "false")

from moto import settings
from moto.core.responses import ActionResult
from moto.ec2 import ec2_backends
from moto.ec2.exceptions import EC2ClientError
from moto.ec2.models import EC2Backend
from moto.ec2.models import elastic_block_store as disks
from moto.ec2.models.amis import Ami, AmiBackend
from moto.ec2.models.availability_zones_and_regions import Region, RegionsAndZonesBackend
from moto.ec2.models.instances import InstanceBackend, StateReason
from moto.ec2.models.security_groups import SecurityGroupBackend
from moto.ec2.responses import EC2Response
from moto.ec2.responses.instances import InstanceResponse
from moto.ec2.utils import filter_dict_attribute_mapping

# Not by environment variables: moto reads those once, and another file may have imported it before.
settings.ENABLE_AMI_VALIDATION = settings.EC2_ENABLE_INSTANCE_TYPE_VALIDATION = True

ACCOUNT = "123456789012"
REGIONS = ("eu-west-1", "us-east-1", "us-west-2")
CLOSED_REGION = "ap-east-1"
"""Exists, and is not enabled for the account."""
IMAGE = "ami-0d1a000000000001"
OLD_IMAGE = "ami-0d1a000000000002"
"""By name pattern, for Volta; its root is ``/dev/xvda``."""
_CODES = {"pending": 0, "running": 16, "shutting-down": 32, "terminated": 48, "stopping": 64, "stopped": 80}


@dataclass
class Rules:
    """Knobs and records of the emulated account. ``boot_s`` and ``ending_s`` are how long transitions take."""

    visibility_s: float = 0.0
    boot_s: float = 0.0
    ending_s: float = 0.0
    health: dict[str, dict[str, Any]] = field(default_factory=dict)
    """Machine -> what its status checks and events say, where they are not well."""
    console: str | None = None
    """What every machine says on its console; ``None``: a Linux that boots."""
    unregistered: set[str] = field(default_factory=set)
    """Running machines that Systems Manager does not know."""
    modifying_s: float = 0.0
    """How long a change of a disk takes, in which no other is accepted."""
    spot_requests: dict[str, dict[str, Any]] = field(default_factory=dict)
    relaunched: list[str] = field(default_factory=list)
    """Persistent spot requests that started another machine because nobody had cancelled them."""
    reservations: list[dict[str, Any]] = field(default_factory=list)
    closed_vpcs: bool = False
    """Whether default VPCs have lost their way to the internet."""
    passed_s: float = 0.0
    """How far the account's clock was moved."""
    spot_prices: dict[tuple[str | None, str], float] = field(default_factory=dict)
    """(zone letter, instance type) -> USD an hour below which a spot request is refused."""
    zone_letters: dict[str, dict[str, str]] = field(default_factory=dict)
    """Region -> zone id -> this account's letter; what is not named is as moto has it."""
    numbers: itertools.count[int] = field(default_factory=lambda: itertools.count(1))


RULES = Rules()
_LOOKING = threading.local()


def reset() -> None:
    """An empty account with the default knobs."""
    RULES.__init__()  # type: ignore[misc]
    ec2_backends.reset()


def backend(region: str) -> Any:
    """moto's own model of a region."""
    return ec2_backends[ACCOUNT][region]


def machine(region: str, instance_id: str) -> Any:
    """moto's own model of a machine, whether it shows or not."""
    return _find(backend(region), instance_id)


def zone_of_subnet(region: str, subnet_id: str) -> str | None:
    """Letter of a subnet's zone; ``None`` for one that does not exist, which moto itself refuses."""
    zones = backend(region).subnets.values()
    return next((found[subnet_id].availability_zone for found in zones if subnet_id in found), None)


def interrupt(region: str, instance_id: str) -> None:
    """Take a spot machine back: EC2 ends it."""
    found = machine(region, instance_id)
    found.terminate()
    found.state_reason = StateReason("Server.SpotInstanceTermination: taken back", "Server.SpotInstanceTermination")


def fail_launch(region: str, instance_id: str, code: str) -> None:
    """End a machine while it starts, as EC2 does where it cannot use a disk's key.

    Source: AWS knowledge center, "encrypted-volumes-stops-immediately".
    """
    found = machine(region, instance_id)
    found.terminate()
    found.state_reason = StateReason(f"{code}: Client error on launch", code)


def interrupt_and_stop(region: str, instance_id: str) -> None:
    """Take a persistent spot machine back: EC2 stops it, and alone starts it again when there is room.

    Source: EC2 user guide, "Behavior of Spot Instance interruptions".
    """
    found = machine(region, instance_id)
    found.stop()
    found.state_reason = StateReason("Server.SpotInstanceShutdown: no capacity", "Server.SpotInstanceShutdown")
    found.waits_for_capacity = True


def resume(region: str, instance_id: str) -> None:
    """The pool of a machine that was taken back and stopped has room again: EC2 starts it, and nobody else could."""
    found = machine(region, instance_id)
    found.waits_for_capacity = False
    found.start()


def terminate(region: str, instance_id: str) -> None:
    """Somebody ends a machine in the console."""
    backend(region).terminate_instances([instance_id])


def _find(model: Any, instance_id: str) -> Any:
    machines = (one for reservation in model.reservations.values() for one in reservation.instances)
    return next((one for one in machines if one.id == instance_id), None)


def refuse(code: str, message: str) -> EC2ClientError:
    return EC2ClientError(code, message)


def patch(owner: Any, name: str, make: Callable[[Any], Any]) -> None:
    setattr(owner, name, make(getattr(owner, name)))


# States that take time, and machines that do not show yet


def _move(one: Any, during: str, after: str, seconds: float) -> None:
    if seconds:
        one._state.name, one._state.code = during, _CODES[during]
        one.due = (time.monotonic() + seconds, after)


def _settle(one: Any) -> None:
    due = getattr(one, "due", None)
    if due is not None and time.monotonic() >= due[0]:
        one._state.name, one._state.code = due[1], _CODES[due[1]]
        one.due = None


def _is_hidden(one: Any) -> bool:
    return time.monotonic() < getattr(one, "visible_at", 0.0)


def _as_seen(original: Any) -> Any:
    """A list as a caller sees it: what is too young is not there."""

    def all_reservations(self: Any, filters: Any = None) -> Any:
        found = original(self, None)
        for reservation in found:
            for one in reservation.instances:
                _settle(one)
        if getattr(_LOOKING, "on", False):
            for reservation in found:
                reservation.instances = [one for one in reservation.instances if not _is_hidden(one)]
            found = [reservation for reservation in found if reservation.instances]
        if filters is None:
            return found
        from moto.ec2.utils import filter_reservations

        return filter_reservations(found, filters)

    return all_reservations


def _looking(original: Any) -> Any:
    def action(self: Any) -> Any:
        _LOOKING.on = True
        try:
            return original(self)
        finally:
            _LOOKING.on = False

    return action


def _exist(original: Any) -> Any:
    def do_resources_exist(self: Any, resource_ids: Any) -> Any:
        for resource_id in resource_ids:
            found = _find(self, resource_id)
            if resource_id.startswith("i-") and (found is None or _is_hidden(found)):
                raise refuse("InvalidInstanceID.NotFound", f"The instance ID '{resource_id}' does not exist")
        return original(self, resource_ids)

    return do_resources_exist


patch(EC2Backend, "do_resources_exist", _exist)
patch(InstanceBackend, "all_reservations", _as_seen)
for _action in ("describe_instances", "terminate_instances", "stop_instances", "start_instances"):
    patch(EC2Response, _action, _looking)
filter_dict_attribute_mapping["client-token"] = "client_token"


# Markets


def _check_default_subnet(response: Any) -> None:
    """Refuse a call that names no subnet where the default VPC has none.

    Source: terraform-aws-modules/terraform-aws-ec2-instance#50, hashicorp/terraform-provider-aws#4869.
    """
    if response._get_param("SubnetId") or response._get_param("NetworkInterfaces"):
        return
    zone = response._get_param("Placement.AvailabilityZone")
    there = [one.availability_zone for one in response.ec2_backend.get_default_subnets().values()]
    if not there:
        raise refuse("MissingInput", "No subnets found for the default VPC 'vpc-1'. Please specify a subnet.")
    known = {one.name for one in response.ec2_backend.describe_availability_zones()}
    if zone in known and zone not in there:
        raise refuse("InvalidInput", f"No default subnet for availability zone: '{zone}'.")


def _run(original: Any) -> Any:
    def run_instances(self: Any) -> Any:
        spot = self._get_param("InstanceMarketOptions.SpotOptions", {})
        market = self._get_param("InstanceMarketOptions.MarketType")
        persistent = spot.get("SpotInstanceType") == "persistent"
        stops = self._get_param("InstanceInitiatedShutdownBehavior") == "stop"
        if market == "spot" and stops and not persistent:
            raise refuse(
                "InvalidParameterCombination", "instance_initiated_shutdown_behavior=stop is not supported for spot"
            )
        _check_default_subnet(self)
        kinds = [one["ResourceType"] for one in self._get_param("TagSpecifications", [])]
        if "spot-instances-request" in kinds and market != "spot":
            raise refuse("InvalidParameterValue", "'spot-instances-request' is not a valid taggable resource type here")
        answer = original(self)
        for one in answer.result.instances:
            one.visible_at = time.monotonic() + RULES.visibility_s
            for interface in one.nics.values():  # made by the call itself: it ends with its machine
                interface.delete_on_termination = True
            _move(one, "pending", "running", RULES.boot_s)
            if market == "spot":
                _request_spot(self, one, spot)
        return answer

    return run_instances


def _request_spot(response: Any, one: Any, options: dict[str, Any]) -> None:
    request_id = f"sir-{next(RULES.numbers):08x}"
    tags = next(
        (
            s["Tags"]
            for s in response._get_param("TagSpecifications", [])
            if s["ResourceType"] == "spot-instances-request"
        ),
        [],
    )
    one.spot_instance_request_id = request_id
    RULES.spot_requests[request_id] = {
        "SpotInstanceRequestId": request_id,
        "Type": options.get("SpotInstanceType", "one-time"),
        "State": "active",
        "InstanceId": one.id,
        "CreateTime": one.launch_time,
        "Tags": tags,
        "region": response.region,
    }


def _describe_requests(self: Any) -> Any:
    wanted = self._get_param("SpotInstanceRequestIds", [])
    asked = self._filters_from_querystring()
    found = [one for one in RULES.spot_requests.values() if one["region"] == self.region]
    if unknown := set(wanted) - {one["SpotInstanceRequestId"] for one in found}:
        raise refuse("InvalidSpotInstanceRequestID.NotFound", f"there is no {', '.join(sorted(unknown))}")
    if wanted:
        found = [one for one in found if one["SpotInstanceRequestId"] in wanted]
    keys = set(asked.get("tag-key", ()))
    kinds = set(asked.get("type", ()))
    machines = asked.get("instance-id")
    found = [one for one in found if keys <= {tag["Key"] for tag in one["Tags"]}]
    found = [one for one in found if machines is None or one["InstanceId"] in machines]
    return ActionResult({"SpotInstanceRequests": [one for one in found if not kinds or one["Type"] in kinds]})


def _cancel_requests(self: Any) -> Any:
    for request_id in self._get_param("SpotInstanceRequestIds", []):
        if request_id not in RULES.spot_requests:
            raise refuse("InvalidSpotInstanceRequestID.NotFound", f"there is no {request_id}")
        RULES.spot_requests[request_id]["State"] = "cancelled"
    return ActionResult({"CancelledSpotInstanceRequests": []})


patch(EC2Response, "run_instances", _run)
EC2Response.describe_spot_instance_requests = _describe_requests
EC2Response.cancel_spot_instance_requests = _cancel_requests


# Stop, start, end


def _stop(original: Any) -> Any:
    def stop_instances(self: Any, instance_ids: Any) -> Any:
        for one in self.get_multi_instances_by_id(instance_ids):
            request = RULES.spot_requests.get(getattr(one, "spot_instance_request_id", None) or "")
            if request is not None and request["Type"] != "persistent":
                raise refuse("UnsupportedOperation", f"You can't stop the Spot Instance '{one.id}' (one-time request)")
            if request is not None and request["State"] == "cancelled":
                raise refuse("UnsupportedOperation", f"You can't stop the Spot Instance '{one.id}' (cancelled request)")
            if one._state.name not in ("running", "stopping", "stopped"):
                raise refuse("IncorrectInstanceState", f"{one.id} is {one._state.name}")
        answer = original(self, instance_ids)
        for one in self.get_multi_instances_by_id(instance_ids):
            _move(one, "stopping", "stopped", RULES.ending_s)
        return answer

    return stop_instances


def _start(original: Any) -> Any:
    def start_instances(self: Any, instance_ids: Any) -> Any:
        for one in self.get_multi_instances_by_id(instance_ids):
            if one._state.name not in ("stopped", "running"):
                raise refuse("IncorrectInstanceState", f"{one.id} is {one._state.name}")
            if getattr(one, "waits_for_capacity", False):
                raise refuse(
                    "IncorrectSpotRequestState",
                    f"You can't start the Spot Instance '{one.id}' because the associated Spot Instance request is not in an"
                    " appropriate state to support start.",
                )
        answer = original(self, instance_ids)
        for one in self.get_multi_instances_by_id(instance_ids):
            _move(one, "pending", "running", RULES.boot_s)
        return answer

    return start_instances


def relaunch(model: Any, ended: Any, request: dict[str, Any]) -> None:
    """A persistent request that stands starts another machine, which has none of the tags.

    Source: EC2 user guide, "Spot Instance request states" and "Tag your Spot Instance requests" (instances that a request
    launches are not tagged by it).
    """
    RULES.relaunched.append(request["SpotInstanceRequestId"])
    kind, zone = ended.instance_type, ended.placement.zone
    made = model.run_instances(
        ended.image_id, 1, None, [], instance_type=kind, placement=zone, nics=[], security_group_ids=[],
        lifecycle="spot", is_instance_type_default=False, region_name=model.region_name, tags={}, owner_id=ACCOUNT,
    )  # fmt: skip
    (one,) = made.instances
    one.spot_instance_request_id = request["SpotInstanceRequestId"]
    for interface in one.nics.values():
        interface.delete_on_termination = True
    request["InstanceId"], request["State"] = one.id, "active"


def _end(original: Any) -> Any:
    def terminate_instances(self: Any, instance_ids: Any) -> Any:
        ending = [one for one in self.get_multi_instances_by_id(instance_ids) if one._state.name != "terminated"]
        answer = original(self, [one.id for one in ending]) if ending else []
        for one in ending:
            request = RULES.spot_requests.get(getattr(one, "spot_instance_request_id", None) or "")
            if request is not None and request["State"] == "active":
                if request["Type"] == "persistent":
                    relaunch(self, one, request)
                else:
                    request["State"] = "closed"
            _move(one, "shutting-down", "terminated", RULES.ending_s)
        return answer

    return terminate_instances


patch(InstanceBackend, "stop_instances", _stop)
patch(InstanceBackend, "start_instances", _start)
patch(InstanceBackend, "terminate_instances", _end)


def _change(original: Any) -> Any:
    def modify_instance_attribute(self: Any, instance_id: str, key: str, value: Any) -> Any:
        one = self.get_instance(instance_id)
        if key == "user_data" and one._state.name != "stopped":
            raise refuse("IncorrectInstanceState", f"The instance '{instance_id}' is not in the 'stopped' state.")
        return original(self, instance_id, key, value)

    return modify_instance_attribute


def _set_shutdown(model: Any, instance_id: str, behaviour: str) -> None:
    one = model.get_instance(instance_id)
    if behaviour not in ("stop", "terminate"):
        raise refuse("InvalidParameterValue", f"Value ({behaviour}) for instanceInitiatedShutdownBehavior is invalid")
    if one._state.name not in ("pending", "running", "stopping", "stopped"):
        raise refuse("IncorrectInstanceState", f"{instance_id} is {one._state.name}")
    request = RULES.spot_requests.get(getattr(one, "spot_instance_request_id", None) or "")
    if request is not None and request["Type"] != "persistent" and behaviour == "stop":
        raise refuse(
            "UnsupportedOperation", "Modifying 'instanceInitiatedShutdownBehavior' is not supported for spot instances."
        )
    one.instance_initiated_shutdown_behavior = behaviour


def _read_start(original: Any) -> Any:
    def handler(self: Any) -> Any:
        # moto decodes the user data of this call twice; EC2 and the SDK agree on once.
        value = self._get_param("UserData.Value")
        behaviour = self._get_param("InstanceInitiatedShutdownBehavior.Value")
        if behaviour is not None:
            _set_shutdown(self.ec2_backend, self._get_param("InstanceId"), behaviour)
            return True
        if value is None:
            return original(self)
        self.ec2_backend.modify_instance_attribute(self._get_param("InstanceId"), "user_data", value)
        return True

    return handler


patch(InstanceResponse, "_dot_value_instance_attribute_handler", _read_start)
patch(InstanceBackend, "modify_instance_attribute", _change)


# Disks and groups


def _attach(original: Any) -> Any:
    def attach_volume(self: Any, volume_id: str, instance_id: str, device_path: str, *rest: Any, **more: Any) -> Any:
        volume, one = self.get_volume(volume_id), self.get_instance(instance_id)
        if volume.attachment is not None:
            raise refuse("VolumeInUse", f"{volume_id} is already attached to an instance")
        if volume.zone.name != one.placement.zone:
            raise refuse("InvalidVolume.ZoneMismatch", f"{volume_id} is not in the zone of {instance_id}")
        if device_path in one.block_device_mapping:
            raise refuse("InvalidParameterValue", f"Attachment point {device_path} is already in use")
        return original(self, volume_id, instance_id, device_path, *rest, **more)

    return attach_volume


def _modify(original: Any) -> Any:
    def modify_volume(self: Any, volume_id: str, target_size: Any = None, *rest: Any, **more: Any) -> Any:
        if target_size and int(target_size) < self.get_volume(volume_id).size:
            raise refuse("InvalidParameterValue", "New size cannot be smaller than existing size")
        return original(self, volume_id, target_size, *rest, **more)

    return modify_volume


def _ends_with_machine(attachment: Any) -> bool:
    mapping = attachment.instance.block_device_mapping.get(attachment.device)
    return bool(mapping is not None and mapping.delete_on_termination)


def _delete_group(original: Any) -> Any:
    def delete_security_group(self: Any, name: Any = None, group_id: Any = None) -> Any:
        for reservation in self.reservations.values():
            for one in reservation.instances:
                _settle(one)
                if one._state.name != "terminated" and any(group.id == group_id for group in one.security_groups):
                    raise refuse("DependencyViolation", f"resource {group_id} has a dependent object")
        return original(self, name, group_id)

    return delete_security_group


patch(disks.EBSBackend, "attach_volume", _attach)
patch(disks.EBSBackend, "modify_volume", _modify)
patch(SecurityGroupBackend, "delete_security_group", _delete_group)
disks.VolumeAttachment.delete_on_termination = property(_ends_with_machine)


# Ways out


def _route_tables(original: Any) -> Any:
    def describe_route_tables(self: Any) -> Any:
        """A default VPC comes with an internet gateway and a route to it. Source: VPC user guide, "Default VPCs"."""
        model = self.ec2_backend
        for vpc in [one for one in model.vpcs.values() if one.is_default == "true" or one.is_default is True]:
            table = model.describe_route_tables(filters={"vpc-id": [vpc.id], "association.main": ["true"]})[0]
            if not RULES.closed_vpcs and not any(
                r.gateway is not None and r.gateway.id.startswith("igw-") for r in table.routes
            ):
                gateway = model.create_internet_gateway()
                model.attach_internet_gateway(gateway.id, vpc.id)
                model.create_route(table.id, "0.0.0.0/0", None, gateway_id=gateway.id)
        return original(self)

    return describe_route_tables


patch(EC2Response, "describe_route_tables", _route_tables)


# Images and regions


def _images(original: Any) -> Any:
    def load(self: Any) -> None:
        original(self)
        for image_id, name, root in (
            (IMAGE, "Deep Learning Base OSS Nvidia Driver GPU AMI (Ubuntu 24.04) 20261101", "/dev/sda1"),
            (OLD_IMAGE, "Deep Learning Base Proprietary Nvidia Driver AMI (Amazon Linux 2) Version 80.1", "/dev/xvda"),
        ):
            image = Ami(self, image_id, name=name, root_device_name=root, architecture="x86_64", owner_alias="amazon",
                        owner_id=ACCOUNT, virtualization_type="hvm", region_name=f"{self.region_name}a")  # fmt: skip
            self.amis[image_id] = image

    return load


patch(AmiBackend, "_load_amis", _images)


def _regions(self: Any, region_names: Any = None) -> list[Region]:
    del region_names
    found = [Region(name, f"ec2.{name}.amazonaws.com", "opt-in-not-required") for name in REGIONS]
    return [*found, Region(CLOSED_REGION, f"ec2.{CLOSED_REGION}.amazonaws.com", "not-opted-in")]


patch(RegionsAndZonesBackend, "describe_regions", lambda _: _regions)
