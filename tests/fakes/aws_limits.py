"""What stock moto lacks of EC2's limits: quotas, prices of spot, user data, changes of a volume, zones, requests that stay open.

The sources stand with the rules in ``tests.fakes.ec2_behaviours``.
"""

from __future__ import annotations

import base64
import re
import time
from typing import Any

from tests.fakes.aws_rules import REGIONS, RULES, backend, machine, patch, refuse, relaunch, zone_of_subnet

# What is imported above tells moto what to validate, before moto is imported.
# isort: split
from moto.ec2.models import elastic_block_store as disks
from moto.ec2.models.availability_zones_and_regions import RegionsAndZonesBackend, Zone
from moto.ec2.models.instance_types import INSTANCE_TYPE_OFFERINGS, INSTANCE_TYPES
from moto.ec2.models.instances import InstanceBackend, StateReason
from moto.ec2.responses import EC2Response

USER_DATA_BYTES_MAX = 16 * 1024
TOKEN_LENGTH_MAX = 64
FROM_INSIDE = "Client.InstanceInitiatedShutdown"
CHANGES_A_DAY = 4
DAY_S = 86_400.0
QUOTA_CODES = {
    ("p", False): "L-417A185B",
    ("p", True): "L-7212CCBC",
    ("g", False): "L-DB2E81BA",
    ("g", True): "L-3819A6DF",
}
"""(family, spot) -> quota of running vCPUs. Families gr and vt count as g."""
_ALIVE = ("pending", "running")


def now_s() -> float:
    """The account's clock, which ``pass_time`` moves."""
    return time.monotonic() + RULES.passed_s


def pass_time(seconds: float) -> None:
    """Let time pass: each persistent spot request that is still open starts a machine."""
    RULES.passed_s += seconds
    for request in RULES.spot_requests.values():
        if request["State"] == "open" and request["Type"] == "persistent":
            model = backend(request["region"])
            before = [one for one in model.all_instances() if _request_of(one) is request]
            relaunch(model, before[-1], request)


def shut_down(region: str, instance_id: str) -> None:
    """The system of a machine powers itself off: what then happens was said when it was made."""
    model, found = backend(region), machine(region, instance_id)
    if found.instance_initiated_shutdown_behavior == "terminate":
        model.terminate_instances([instance_id])
    else:
        model.stop_instances([instance_id])
    found.state_reason = StateReason(f"{FROM_INSIDE}: Instance initiated shutdown", FROM_INSIDE)


# What a create call may ask for


def _run(original: Any) -> Any:
    def run_instances(self: Any) -> Any:
        token = self._get_param("ClientToken") or ""
        if len(token) > TOKEN_LENGTH_MAX or not token.isascii():
            raise refuse("InvalidParameterValue", f"ClientToken is limited to {TOKEN_LENGTH_MAX} ASCII characters")
        data = base64.b64decode(self._get_param("UserData") or "")
        if len(data) > USER_DATA_BYTES_MAX:
            raise refuse("InvalidParameterValue", f"User data is limited to {USER_DATA_BYTES_MAX} bytes")
        kind = self._get_param("InstanceType")
        zone = self._get_param("Placement.AvailabilityZone")
        if (subnet := self._get_param("SubnetId")) and zone is None:
            zone = zone_of_subnet(self.region, subnet)
        if kind in INSTANCE_TYPES and zone is not None and not _is_offered(self.region, zone, kind):
            text = (
                f"Your requested instance type ({kind}) is not supported in your requested Availability Zone ({zone})."
            )
            raise refuse("Unsupported", text)
        _check_spot_price(self, kind, zone)
        answer = original(self)
        for specification in self._get_param("TagSpecifications", []):
            if specification["ResourceType"] == "network-interface":
                tags = {tag["Key"]: tag["Value"] for tag in specification["Tags"]}
                for one in answer.result.instances:
                    for interface in one.nics.values():
                        interface.add_tags(tags)
        return answer

    return run_instances


def _is_offered(region: str, zone: str, kind: str) -> bool:
    offered = INSTANCE_TYPE_OFFERINGS["availability-zone"].get(region, [])
    return any(entry["InstanceType"] == kind and entry["Location"] == zone for entry in offered)


def _check_spot_price(response: Any, kind: str, zone: str | None) -> None:
    limit = response._get_param("InstanceMarketOptions.SpotOptions.MaxPrice")
    price = RULES.spot_prices.get((zone, kind))
    if limit is not None and price is not None and float(limit) < price:
        raise refuse("SpotMaxPriceTooLow", f"Your Spot request price of {limit} is lower than the minimum of {price}.")


patch(EC2Response, "run_instances", _run)


# Quotas


def over_quota(
    region: str, kind: str, *, is_spot: bool, quotas: dict[tuple[str, str], float]
) -> tuple[str, str] | None:
    """The refusal of EC2 itself, code and text, where a machine would exceed the quota of its family and market."""
    family = _family(kind)
    limit = quotas.get((region, QUOTA_CODES.get((family, is_spot), "")))
    if limit is None or kind not in INSTANCE_TYPES:
        return None
    used = sum(
        _vcpus(one.instance_type)
        for one in backend(region).all_instances()
        if one._state.name in _ALIVE and _family(one.instance_type) == family and (one.lifecycle == "spot") is is_spot
    )
    if used + _vcpus(kind) <= limit:
        return None
    if is_spot:
        return "MaxSpotInstanceCountExceeded", "Max spot instance count exceeded"
    return "VcpuLimitExceeded", (
        f"You have requested more vCPU capacity than your current vCPU limit of {limit:.0f} allows for the instance bucket "
        f"that the specified instance type belongs to."
    )


def _family(kind: str) -> str:
    letters = (re.match(r"[a-z]+", kind) or [""])[0]
    return "g" if letters in ("g", "gr", "vt") else letters


def _vcpus(kind: str) -> int:
    return int(INSTANCE_TYPES[kind]["VCpuInfo"]["DefaultVCpus"])


# Volumes


def _modify(original: Any) -> Any:
    def modify_volume(self: Any, volume_id: str, *rest: Any, **more: Any) -> Any:
        volume = self.get_volume(volume_id)
        recent = [at for at in getattr(volume, "changed_at_s", []) if now_s() - at < DAY_S]
        if len(recent) >= CHANGES_A_DAY:
            text = f"{volume_id} has reached the limit of {CHANGES_A_DAY} modifications in a rolling 24-hour period"
            raise refuse("VolumeModificationRateExceeded", text)
        answer = original(self, volume_id, *rest, **more)
        volume.changed_at_s = [*recent, now_s()]
        return answer

    return modify_volume


patch(disks.EBSBackend, "modify_volume", _modify)


# Spot requests of machines that stop and start


def _request_of(one: Any) -> dict[str, Any] | None:
    return RULES.spot_requests.get(getattr(one, "spot_instance_request_id", None) or "")


def _moves(word: str) -> Any:
    def make(original: Any) -> Any:
        def change(self: Any, instance_ids: Any) -> Any:
            answer = original(self, instance_ids)
            for one in self.get_multi_instances_by_id(instance_ids):
                request = _request_of(one)
                if request is not None and request["State"] in ("active", "disabled"):
                    request["State"] = word
            return answer

        return change

    return make


patch(InstanceBackend, "stop_instances", _moves("disabled"))
patch(InstanceBackend, "start_instances", _moves("active"))


# Zones


def _zones(original: Any) -> Any:
    def describe_availability_zones(self: Any, *rest: Any, **more: Any) -> Any:
        """Letters as this account has them; the ids are the same places for everybody."""
        known = self.zones[self.region_name]
        own = RULES.zone_letters.get(self.region_name)
        if own is None or self.region_name not in REGIONS:
            return original(self, *rest, **more)
        return [Zone(own[zone.zone_id], zone.region_name, zone.zone_id) for zone in known if zone.zone_id in own]

    return describe_availability_zones


patch(RegionsAndZonesBackend, "describe_availability_zones", _zones)
