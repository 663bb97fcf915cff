"""Cases of the capacity rules."""

from __future__ import annotations

from dataclasses import replace

from policies.facts import UNKNOWN
from tests.policies.builders import TRAINING, candidate, catalog, machine, offered, spec
from tests.policies.cases.common import NOT_KNOWN, UNCHECKED, Cases

SPOT = candidate(capacity_type="spot")
CAPACITY = {
    "spot-endpoint": Cases(
        passes=(
            spec(),
            offered(),
            offered(SPOT, base=TRAINING),
            spec({"placement": {"capacity": "spot"}}, base=TRAINING),
        ),
        fails=(
            spec({"placement.capacity": "spot"}),
            offered(SPOT),
            offered(candidate(), candidate(key="failover[1]", capacity_type="spot")),
        ),
        boundary=(spec({"placement.capacity": "auto"}), spec({"placement.capacity": "spot"})),
        unknowns=(
            spec(unknown=("placement.capacity",)),
            offered(candidate(capacity_type=UNKNOWN)),
            spec({"placement.capacity": "spot"}, unknown=("task",)),
        ),
    ),
    "spot-checkpoint": Cases(
        passes=(spec(base=TRAINING), offered(SPOT, base=TRAINING), offered(base=TRAINING, changes=UNCHECKED)),
        fails=(
            offered(SPOT, base=TRAINING, changes=UNCHECKED),
            spec({**UNCHECKED, "placement": {"capacity": "spot"}}, base=TRAINING),
            spec({"training.checkpoint": {"every": "30m"}, "placement": {"capacity": "spot"}}, base=TRAINING),
        ),
        boundary=(
            spec({"training.checkpoint": {"resumable": True}, "placement": {"capacity": "spot"}}, base=TRAINING),
            spec({"training.checkpoint": {"resumable": False}, "placement": {"capacity": "spot"}}, base=TRAINING),
        ),
        unknowns=(
            spec({"placement": {"capacity": "spot"}}, base=TRAINING, unknown=("training.checkpoint.resumable",)),
            offered(candidate(capacity_type=UNKNOWN), base=TRAINING, changes=UNCHECKED),
        ),
    ),
    "spot-stop": Cases(
        passes=(
            spec(),
            spec({"placement.capacity": "spot", "lifecycle.idle.then": "terminate"}),
            spec({"placement.capacity": "spot", "lifecycle.idle.then": ...}),
        ),
        fails=(
            spec({"placement.capacity": "spot"}),
            spec({"placement.capacity": "spot", "lifecycle.idle.after": "1h"}),
            spec(
                {"placement": {"capacity": "spot"}, "lifecycle": {"idle": {"after": "1h", "then": "stop"}}},
                base=TRAINING,
            ),
        ),
        boundary=(spec({"placement.capacity": "auto"}), spec({"placement.capacity": "spot"})),
        unknowns=(
            spec(unknown=("placement.capacity",)),
            spec({"placement.capacity": "spot"}, unknown=("lifecycle.idle.then",)),
        ),
    ),
    "region-support": Cases(
        passes=tuple(
            offered(candidate(region=region, regions_offered=frozenset({"us-east-1", "us-west-2", "eu-west-1"})))
            for region in ("us-east-1", "us-west-2", "eu-west-1")
        ),
        fails=(
            offered(candidate(region="eu-north-1", regions_offered=frozenset({"us-east-1"}))),
            machine(region="af-south-1", regions_offered=frozenset({"us-east-1"})),
            offered(candidate(regions_offered=frozenset())),
        ),
        boundary=(
            machine(region="us-east-1", regions_offered=frozenset({"us-east-1"})),
            machine(region="us-east-2", regions_offered=frozenset({"us-east-1"})),
        ),
        unknowns=(
            offered(candidate(region=UNKNOWN, regions_offered=frozenset({"us-east-1"}))),
            machine(region="us-east-1", regions_offered=UNKNOWN),
            offered(candidates=UNKNOWN),
        ),
    ),
    "zone-support": Cases(
        passes=tuple(
            offered(candidate(zone=zone, zones_offered=frozenset({"use1-az1", "use1-az2", "us-central1-a"})))
            for zone in ("use1-az1", "use1-az2", "us-central1-a")
        ),
        fails=tuple(
            offered(candidate(zone=zone, zones_offered=frozenset({"use1-az1"})))
            for zone in ("use1-az3", "use1-az6", "us-central1-b")
        ),
        boundary=(
            offered(candidate(zone="use1-az1", zones_offered=frozenset({"use1-az1"}))),
            offered(candidate(zone="use1-az2", zones_offered=frozenset({"use1-az1"}))),
        ),
        unknowns=(
            offered(candidate(zone=UNKNOWN, zones_offered=frozenset({"use1-az1"}))),
            offered(candidate(zone="use1-az1", zones_offered=UNKNOWN)),
            offered(candidates=UNKNOWN),
        ),
    ),
    "retired-type": Cases(
        passes=(offered(), machine(), offered(candidate(instance_type="p5.48xlarge"))),
        fails=tuple(
            machine(instance_type=name)
            for name in sorted(
                row.name for row in catalog().instances.values() if row.cloud == "aws" and row.status != "current"
            )[:3]
        ),
        boundary=(
            machine(instance=replace(catalog().instances["aws", "g6.xlarge"], status="current")),
            machine(instance=replace(catalog().instances["aws", "g6.xlarge"], status="restricted")),
        ),
        unknowns=(machine(instance=UNKNOWN), offered(NOT_KNOWN), offered(candidates=UNKNOWN)),
    ),
}
