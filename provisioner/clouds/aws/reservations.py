"""Capacity that was bought ahead: which capacity block or reservation a machine goes into, and why not another.

A machine goes into the first one that is active and has room; one that is full, over, or not there yet is passed over with its
reason. Nothing here ever falls back to capacity that is paid on demand: the create call names what it takes, or is not made.

Source: EC2 API reference, CapacityReservation and DescribeCapacityReservations (which has no filter by type of reservation); EC2
user guide, "Capacity Blocks for ML": instances are ended from 30 minutes before the block's end.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from provisioner.clouds.aws.errors import code_of
from provisioner.clouds.aws.session import AwsApi
from provisioner.clouds.cloud import Placement
from provisioner.errors import CapacityError, GpuprovError
from provisioner.vocabulary import CapacityType

BLOCK_TAIL = timedelta(minutes=30)
"""How long before its end a block takes its machines away."""
_TYPES = {CapacityType.CAPACITY_BLOCK: "capacity-block", CapacityType.RESERVED: "default"}
_NAMES = {CapacityType.CAPACITY_BLOCK: "capacity block", CapacityType.RESERVED: "capacity reservation"}
_BUY = {
    CapacityType.CAPACITY_BLOCK: "buy one first: `aws ec2 describe-capacity-block-offerings`, then `purchase-capacity-block`",
    CapacityType.RESERVED: "make one first: `aws ec2 create-capacity-reservation`, or take reserved out of placement.capacity",
}
_COMING = ("scheduled", "payment-pending", "pending", "assessing", "delayed")
_OVER = ("expired", "cancelled", "cancelling", "failed", "payment-failed", "unsupported")
_FULL = ("ReservationCapacityExceeded", "InsufficientReservedInstanceCapacity", "InsufficientReservedInstancesCapacity")
"""Answers to a create call whose reservation somebody else has filled since it was read."""


@dataclass(frozen=True, slots=True)
class Target:
    """What a create call goes into."""

    id: str | None
    """``None``: whichever open reservation EC2 finds, and none else."""


@dataclass(frozen=True, slots=True)
class Reservations:
    """Capacity blocks and reservations of one account."""

    api: AwsApi
    now: Callable[[], datetime] = lambda: datetime.now(UTC)

    def targets(self, placement: Placement, holds: str | None = None) -> list[Target]:
        """What a machine may go into, in the order in which it is tried.

        Args:
            placement: an offer of capacity that was bought ahead.
            holds: a reservation of which a machine that ends before has a place.

        Raises:
            CapacityError: there is none with room; each one is named with its reason.
        """
        kind, zone = placement.capacity_type, placement.zone
        asked = [{"Name": "instance-type", "Values": [placement.instance_type]}]
        listed = self.api.pages(
            "ec2", "DescribeCapacityReservations", placement.region, "CapacityReservations", Filters=asked
        )
        mine = sorted((one for one in listed if _kind(one) == _TYPES[kind]), key=_order)
        reasons = {str(one["CapacityReservationId"]): self._unfit(one, zone, holds) for one in mine}
        fitting = [one for one in mine if reasons[str(one["CapacityReservationId"])] is None]
        if fitting:
            return list(_targets(fitting, kind))
        why = "; ".join(f"{name} {reason}" for name, reason in reasons.items()) or "the account has none of this type"
        raise CapacityError(
            f"no {_NAMES[kind]} of {placement.instance_type} in {zone or placement.region} has room: {why}",
            remedy=_remedy(mine, kind),
        )

    def _unfit(self, one: Mapping[str, Any], zone: str | None, holds: str | None) -> str | None:
        """Why a machine cannot go into a reservation now; ``None`` where it can."""
        here = one.get("AvailabilityZoneId")
        if zone not in (None, here):
            return f"is in {here}"
        state, start, end = str(one.get("State")), _moment(one, "StartDate"), _moment(one, "EndDate")
        if state in _COMING or (start is not None and start > self.now()):
            return _starts(state, start)
        if state in _OVER:
            return f"is {state}" + (f" since {_text(end)}" if end is not None and state == "expired" else "")
        if state != "active":
            return f"is {state}"
        if end is not None and end <= self.now():
            return f"ended at {_text(end)}"
        if end is not None and end - BLOCK_TAIL <= self.now() and _kind(one) == "capacity-block":
            return f"ends at {_text(end)}, and takes its machines away {BLOCK_TAIL.seconds // 60} min before"
        room = int(one.get("AvailableInstanceCount", 0)) + int(one["CapacityReservationId"] == holds)
        if room < 1:
            return f"is full ({one.get('TotalInstanceCount', 'all')} in use)"
        return None


def is_full(error: GpuprovError) -> bool:
    """Whether a create call was refused since its reservation has no room any more: the next one may have."""
    return code_of(error) in _FULL


def target_parameters(target: Target, kind: CapacityType) -> dict[str, Any]:
    """The part of a create call that names its capacity.

    Source: EC2 API reference, CapacityReservationSpecification: a target, or the preference for open ones alone.
    """
    if target.id is None:
        return {"CapacityReservationSpecification": {"CapacityReservationPreference": "capacity-reservations-only"}}
    named: dict[str, Any] = {"CapacityReservationTarget": {"CapacityReservationId": target.id}}
    market = {"InstanceMarketOptions": {"MarketType": "capacity-block"}} if kind is CapacityType.CAPACITY_BLOCK else {}
    return {**market, "CapacityReservationSpecification": named}


def _targets(fitting: Sequence[Mapping[str, Any]], kind: CapacityType) -> Iterator[Target]:
    """Blocks by name. Of reservations the open ones as one, as EC2 finds its way among them, then each targeted one."""
    is_block = kind is CapacityType.CAPACITY_BLOCK
    if not is_block and any(one.get("InstanceMatchCriteria") != "targeted" for one in fitting):
        yield Target(None)
    for one in fitting:
        if is_block or one.get("InstanceMatchCriteria") == "targeted":
            yield Target(str(one["CapacityReservationId"]))


def _order(one: Mapping[str, Any]) -> tuple[datetime, str]:
    """The one that ends first is used first: what is left of it is lost soonest."""
    return _moment(one, "EndDate") or datetime.max.replace(tzinfo=UTC), str(one["CapacityReservationId"])


def _kind(one: Mapping[str, Any]) -> str:
    return str(one.get("ReservationType") or "default")


def _starts(state: str, start: datetime | None) -> str:
    if state == "payment-pending":
        return "is not paid yet" + (f", and starts at {_text(start)}" if start is not None else "")
    return f"starts at {_text(start)}" if start is not None else f"is {state}"


def _remedy(mine: Sequence[Mapping[str, Any]], kind: CapacityType) -> str:
    starts = [start for one in mine if one.get("State") in _COMING and (start := _moment(one, "StartDate")) is not None]
    return f"run the command again from {_text(min(starts))} on" if starts else _BUY[kind]


def _moment(one: Mapping[str, Any], key: str) -> datetime | None:
    found = one.get(key)
    return found.astimezone(UTC) if isinstance(found, datetime) else None


def _text(moment: datetime | None) -> str:
    return "an unknown time" if moment is None else moment.strftime("%Y-%m-%d %H:%M UTC")
