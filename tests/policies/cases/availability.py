"""Cases of the availability rules."""

from __future__ import annotations

from datetime import date, timedelta
from typing import Any

from policies.facts import UNKNOWN, AttachmentFacts, QuotaRoom, ReservationFacts, Source
from tests.policies.builders import TRAINING, candidate, offered
from tests.policies.cases.common import NOT_KNOWN, Cases

TODAY = date(2026, 11, 30)
ANY = {"placement": {}}
EAST = {"placement": {"regions": ["us-east-1"]}}
SPOT = {"placement": {"capacity": "spot"}}
BREACH = {"gpu": "L4 is not one of placement.gpus"}
L4 = {"placement": {"gpus": ["L4"]}}


def quota(needed: float = 4, limit: Any = 64.0) -> QuotaRoom:
    return QuotaRoom(
        name="Running On-Demand G instances", code="L-1", unit="vCPU", needed=needed, limit=limit, as_of="2026-11-01"
    )


def room(*args: Any, **facts: Any) -> Any:
    return offered(candidate(quota=quota(*args), **facts))


def attached(disk: Any, machine: Any) -> AttachmentFacts:
    return AttachmentFacts(
        name="aws_volume_attachment.a",
        path="tfplan.json",
        source=Source.TERRAFORM,
        disk="aws_ebs_volume.d",
        machine="aws_instance.m",
        disk_zone=disk,
        machine_zone=machine,
    )


def reserved(ends_on: Any) -> ReservationFacts:
    return ReservationFacts(
        name="aws_ec2_capacity_reservation.r", path="tfplan.json", source=Source.TERRAFORM, ends_on=ends_on
    )


def days(count: int) -> ReservationFacts:
    return reserved(TODAY + timedelta(days=count))


AVAILABILITY = {
    "placement-kept": Cases(
        passes=(
            offered(),
            offered(changes=ANY),
            offered(changes=EAST),
            offered(candidate(capacity_type="spot"), base=TRAINING, changes=SPOT),
            offered(candidate(capacity_type="capacity-block"), changes={"placement": {"capacity": "reserved"}}),
            offered(candidate(capacity_type="flex-start"), changes={"placement": {"capacity": "reserved"}}),
            offered(candidate(capacity_type=None)),
            offered(candidate(instance_type="g6.12xlarge"), changes={"placement.max_gpus": 4}),
            offered(candidate(instance=None), changes={"placement.max_gpus": 1}),
            offered(changes=L4),
            offered(candidate(breaches=BREACH), changes=ANY),
        ),
        fails=(
            offered(candidate(region="us-west-2"), changes=EAST),
            offered(candidate(region=None), candidate(key="failover[1]", region="eu-west-1"), changes=EAST),
            offered(candidate(cloud="gcp", instance_type="g2-standard-4"), changes={"placement": {"clouds": ["aws"]}}),
            offered(candidate(capacity_type="spot")),
            offered(changes=SPOT, base=TRAINING),
            offered(candidate(capacity_type=None), changes=SPOT, base=TRAINING),
            offered(changes={"placement": {"capacity": "reserved"}}),
            offered(candidate(instances=2)),
            offered(candidate(instance_type="g6.12xlarge")),
            offered(candidate(breaches=BREACH), changes=L4),
            offered(candidate(breaches=BREACH), changes={"placement": {"instance_types": ["g6.xlarge"]}}),
            offered(candidate(breaches=BREACH), changes={"placement": {"exclude_gpus": ["L4"]}}),
        ),
        boundary=(
            offered(candidate(instances=3), changes={"placement.max_gpus": 3}),
            offered(candidate(instances=4), changes={"placement.max_gpus": 3}),
        ),
        unknowns=(
            offered(candidate(region=UNKNOWN), changes=EAST),
            offered(candidate(region=None), changes=EAST),
            offered(candidate(cloud=UNKNOWN)),
            offered(candidate(capacity_type=UNKNOWN)),
            offered(candidate(instances=UNKNOWN)),
            offered(candidate(breaches=UNKNOWN), changes=L4),
            offered(NOT_KNOWN),
            offered(workload=UNKNOWN),
            offered(candidates=UNKNOWN),
        ),
    ),
    "quota-room": Cases(
        passes=(room(), room(64), room(0.5, 1.0)),
        fails=(room(65), room(4, 0.0), room(192, 100.0)),
        boundary=(room(64, 64.0), room(64, 63.9)),
        unknowns=(room(4, None), room(4, UNKNOWN), offered(candidate(quota=UNKNOWN)), offered(candidates=UNKNOWN)),
    ),
    "reservation-expiry": Cases(
        passes=(reserved(None), days(7), days(400)),
        fails=(days(6), days(0), days(-1)),
        boundary=(days(7), days(6)),
        unknowns=(reserved(UNKNOWN),),
    ),
    "volume-zone": Cases(
        passes=(attached("us-east-1a", "us-east-1a"), attached("us-central1-b", "us-central1-b"), attached("x", "x")),
        fails=(
            attached("us-east-1a", "us-east-1b"),
            attached("us-east-1a", "us-west-2a"),
            attached("us-central1-a", "us-central1-f"),
        ),
        boundary=(attached("us-east-1a", "us-east-1a"), attached("us-east-1a", "us-east-1b")),
        unknowns=(attached(UNKNOWN, "us-east-1a"), attached("us-east-1a", UNKNOWN), attached(UNKNOWN, UNKNOWN)),
    ),
}
