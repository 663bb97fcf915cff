"""What stock moto lacks of capacity blocks and reservations: lists, targets, and machines that fill them up."""

from __future__ import annotations

from typing import Any

from tests.fakes.aws_rules import REGIONS, RULES, backend, patch, refuse

# What is imported above tells moto what to validate, before moto is imported.
# isort: split
from moto.core.responses import ActionResult
from moto.ec2.responses import EC2Response

_RESERVATION_FILTERS = {
    "instance-type": "InstanceType",
    "state": "State",
    "instance-match-criteria": "InstanceMatchCriteria",
    "availability-zone": "AvailabilityZone",
}
"""Of those that DescribeCapacityReservations documents; there is none for the type of reservation."""


def _describe_reservations(self: Any) -> Any:
    asked = self._filters_from_querystring()
    if unknown := asked.keys() - _RESERVATION_FILTERS.keys():
        raise refuse("InvalidParameterValue", f"The filter '{min(unknown)}' is invalid")
    shown = [_shown(one) for one in RULES.reservations if one["region"] == self.region]
    found = [one for one in shown if all(one.get(_RESERVATION_FILTERS[key]) in vs for key, vs in asked.items())]
    return ActionResult({"CapacityReservations": found})


def _shown(one: dict[str, Any]) -> dict[str, Any]:
    """A reservation with the room that its machines leave."""
    return {**one, "AvailableInstanceCount": one["TotalInstanceCount"] - _used(one)}


def _used(one: dict[str, Any]) -> int:
    machines = [found for place in REGIONS for found in backend(place).all_instances()]
    in_it = [found for found in machines if getattr(found, "reservation_pool", None) is one]
    return sum(found._state.name not in ("terminated", "shutting-down", "stopped") for found in in_it)


def _reservation_for(response: Any, wanted: dict[str, Any], market: str | None) -> dict[str, Any] | None:
    """The reservation that a machine starts in; refused where it asks for one that has no room for it.

    Source: EC2 user guide, "Launch instances into an existing Capacity Reservation" and "Launch instances using Capacity Blocks".
    """
    target = wanted.get("CapacityReservationTarget", {}).get("CapacityReservationId")
    only_reserved = wanted.get("CapacityReservationPreference") == "capacity-reservations-only"
    if target is not None and wanted.get("CapacityReservationPreference"):
        raise refuse("InvalidParameterCombination", "a preference and a target cannot be given together")
    if target is None and not only_reserved:
        return None
    kind = response._get_param("InstanceType")
    here = [one for one in RULES.reservations if one["region"] == response.region and one["InstanceType"] == kind]
    if target is not None:
        here = [one for one in here if one["CapacityReservationId"] == target]
        if not here:
            raise refuse("InvalidCapacityReservationId.NotFound", f"The capacity reservation '{target}' does not exist")
        if (here[0]["ReservationType"] == "capacity-block") != (market == "capacity-block"):
            raise refuse("InvalidParameterValue", "the market type does not go with this reservation")
        if here[0]["State"] != "active":
            raise refuse("IncorrectState", f"{target} is {here[0]['State']}")
    else:
        here = [one for one in here if one["State"] == "active" and one.get("InstanceMatchCriteria") == "open"]
    for one in here:
        if _used(one) < one["TotalInstanceCount"]:
            return one
    code = "ReservationCapacityExceeded" if target is not None else "InsufficientReservedInstanceCapacity"
    raise refuse(code, "Insufficient capacity in the reservation")


def _run(original: Any) -> Any:
    def run_instances(self: Any) -> Any:
        wanted = self._get_param("CapacityReservationSpecification", {})
        market = self._get_param("InstanceMarketOptions.MarketType")
        pool = _reservation_for(self, wanted, market)
        answer = original(self)
        for one in answer.result.instances:
            one.reservation_pool = pool
            one.capacity_reservation_id = None if pool is None else pool["CapacityReservationId"]
            one.capacity_reservation_specification = wanted or None
            if market == "capacity-block":
                one.lifecycle = "capacity-block"
        return answer

    return run_instances


patch(EC2Response, "run_instances", _run)
EC2Response.describe_capacity_reservations = _describe_reservations
