"""Per rule: facts that pass, that fail, one step on either side of the limit, and facts that cannot be told."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from datetime import timedelta
from decimal import Decimal
from typing import Any

from policies.facts import UNKNOWN, Subject
from policies.facts import Disk as DiskFact
from provisioner.planner.judge import OfferFit
from provisioner.planner.plan import Plan, Rejection
from provisioner.sizing.layout import Layout
from provisioner.units import GIB, Money
from provisioner.vocabulary import Fit
from tests.policies.builders import (
    TRAINING,
    candidate,
    catalog,
    firewall,
    fit,
    gcp,
    machine,
    offered,
    placement,
    spec,
    volume,
)


@dataclass(frozen=True)
class Cases:
    """Subjects of one rule. ``boundary`` is the last that passes and the first that fails."""

    passes: tuple[Subject, ...]
    fails: tuple[Subject, ...]
    boundary: tuple[Subject, Subject]
    unknowns: tuple[Subject, ...]
    parameters: dict[str, Any] = field(default_factory=dict)


def plan(verdict: str = "nothing-fits", *rejections: tuple[str, str | None, str | None]) -> Plan:
    """A plan without a choice, refused by these filters."""
    found = tuple(
        Rejection("aws/*/*/g6.xlarge/*", name, f"refused by {name}", need, have) for name, need, have in rejections
    )
    return Plan(
        "chat", "serve", "d", {}, "c", "2026", verdict, None, None, None, None, rejections=found, closest=("take two",)
    )


NO_FIT = fit(30 * GIB)
NOT_KNOWN = candidate(
    instance_type=UNKNOWN, instance=UNKNOWN, gpu=UNKNOWN, fit=UNKNOWN, refusals=UNKNOWN, price_usd_per_hour=UNKNOWN
)
SPLIT = Layout(tensor_parallel=4)


def root(size: int | None = 100 * GIB, **facts: Any) -> DiskFact:
    return DiskFact(
        **{"key": "root", "role": "root", "encrypted": True, "customer_key": True, "size_bytes": size, **facts}
    )


def data(**facts: Any) -> DiskFact:
    return DiskFact(**{"key": "ebs[0]", "role": "data", "encrypted": True, "customer_key": True, **facts})


def env(**variables: Any) -> dict[str, Any]:
    return {"run": {"image": "x@sha256:" + "a" * 64, "env": variables}}


SIZING = {
    "under-sized": Cases(
        passes=(
            placement(),
            placement(candidate(), candidate(key="failover[1]")),
            placement(candidate(fit=fit(19 * GIB, 21 * GIB))),
        ),
        fails=(
            placement(candidate(fit=NO_FIT)),
            placement(candidate(), candidate(key="failover[1]", fit=NO_FIT)),
            placement(plan=plan("nothing-fits", ("memory", "30.0 GiB per GPU", "20.3 GiB usable")), candidates=()),
            placement(candidate(fit=OfferFit(Fit.DOES_NOT_FIT, None, None, ("g6.xlarge has no GPU",), None))),
            placement(candidate(layout=Layout(replicas=3), instances=2)),
        ),
        boundary=(placement(candidate(fit=fit(20 * GIB))), placement(candidate(fit=fit(20 * GIB + 1)))),
        unknowns=(
            placement(NOT_KNOWN),
            placement(candidate(instance_type="p9.new", fit=None)),
            placement(candidates=UNKNOWN),
            placement(workload=UNKNOWN),
            placement(candidate(layout=Layout(replicas=2), instances=UNKNOWN)),
        ),
    ),
    "no-offer": Cases(
        passes=(placement(plan=replace(plan("fits"), choice=candidate())),) * 3,
        fails=(
            placement(plan=plan("nothing-fits", ("max-price", None, None)), candidates=()),
            placement(plan=plan("nothing-fits", ("region", None, None)), candidates=()),
            placement(plan=plan("nothing-fits", ("memory", "30", "20"), ("budget", None, None)), candidates=()),
        ),
        boundary=(
            placement(plan=replace(plan("borderline"), choice=candidate())),
            placement(plan=plan("nothing-fits", ("deadline", None, None)), candidates=()),
        ),
        unknowns=(),
    ),
    "borderline": Cases(
        passes=(placement(), placement(candidate(fit=fit(1 * GIB))), placement(candidate(fit=fit(10 * GIB, 19 * GIB)))),
        fails=(
            placement(candidate(fit=fit(18 * GIB, 21 * GIB))),
            placement(candidate(fit=fit(20 * GIB, 30 * GIB))),
            placement(candidate(), candidate(key="failover[1]", fit=fit(19 * GIB, 21 * GIB))),
        ),
        boundary=(
            placement(candidate(fit=fit(18 * GIB, 20 * GIB))),
            placement(candidate(fit=fit(18 * GIB, 20 * GIB + 1))),
        ),
        unknowns=(placement(NOT_KNOWN), placement(candidates=UNKNOWN)),
    ),
    "thin-headroom": Cases(
        passes=(placement(candidate(fit=fit(10 * GIB))), placement(candidate(fit=fit(18 * GIB))), placement()),
        fails=(
            placement(candidate(fit=fit(20 * GIB))),
            placement(candidate(fit=fit(20 * GIB - 1))),
            placement(candidate(fit=fit(19 * GIB + GIB // 2))),
        ),
        boundary=(
            placement(candidate(fit=fit(95, usable=100))),
            placement(candidate(fit=fit(96, usable=100))),
        ),
        unknowns=(placement(NOT_KNOWN),),
        parameters={"min_fraction": 0.05},
    ),
    "tensor-parallel-divisible": Cases(
        passes=tuple(placement(layout_objections=()) for _ in range(3)),
        fails=(
            placement(layout_objections=("64 heads do not divide by 6",), degrees_possible=(1, 2, 4, 8)),
            placement(layout_objections=("a", "b")),
            placement(layout_objections=("8 KV heads do not divide by 3",)),
        ),
        boundary=(placement(layout_objections=()), placement(layout_objections=("32 heads do not divide by 3",))),
        unknowns=(placement(layout_objections=UNKNOWN),),
    ),
    "tensor-parallel-pcie": Cases(
        passes=(
            placement(candidate(instance_type="p5.48xlarge", fit=fit(layout=SPLIT))),
            placement(candidate(instance_type="p4d.24xlarge", fit=fit(layout=SPLIT))),
            placement(candidate(instance_type="p4de.24xlarge", fit=fit(layout=Layout(tensor_parallel=8)))),
        ),
        fails=(
            placement(candidate(instance_type="g6.12xlarge", fit=fit(layout=SPLIT))),
            placement(candidate(instance_type="g5.12xlarge", fit=fit(layout=SPLIT))),
            placement(candidate(instance_type="g6e.48xlarge", fit=fit(layout=Layout(tensor_parallel=8)))),
        ),
        boundary=(
            placement(candidate(instance_type="p5.48xlarge", fit=fit(layout=Layout(tensor_parallel=2)))),
            placement(candidate(instance_type="g6.12xlarge", fit=fit(layout=Layout(tensor_parallel=2)))),
        ),
        unknowns=(placement(NOT_KNOWN),),
    ),
    "host-memory": Cases(
        passes=(
            placement(candidate(fit=fit(weights=5 * GIB))),
            placement(candidate(instance_type="g6.2xlarge")),
            placement(candidate(instance_type="g6.48xlarge", fit=fit(weights=100 * GIB))),
        ),
        fails=(
            placement(candidate(fit=fit(weights=17 * GIB))),
            placement(candidate(instance_type="g5.xlarge", fit=fit(weights=18 * GIB))),
            placement(candidate(instance_type="g6.12xlarge", fit=fit(weights=50 * GIB, layout=SPLIT))),
        ),
        boundary=(
            placement(candidate(fit=fit(weights=16 * GIB))),
            placement(candidate(fit=fit(weights=16 * GIB + 1))),
        ),
        unknowns=(placement(NOT_KNOWN),),
        parameters={"factor": 1.0},
    ),
    "disk-size": Cases(
        passes=(
            placement(candidate(disk_bytes=100 * GIB)),
            placement(candidate(disk_bytes=200 * GIB, fit=fit(weights=100 * GIB))),
            placement(candidate(disk_bytes=60 * GIB)),
        ),
        fails=(
            placement(candidate(disk_bytes=8 * GIB)),
            placement(candidate(disk_bytes=100 * GIB, fit=fit(weights=131 * GIB))),
            placement(candidate(disk_bytes=100 * GIB, fit=fit(weights=35 * GIB, layout=SPLIT))),
        ),
        boundary=(placement(candidate(disk_bytes=35 * GIB)), placement(candidate(disk_bytes=35 * GIB - 1))),
        unknowns=(placement(candidate(disk_bytes=UNKNOWN)), placement(NOT_KNOWN)),
        parameters={"factor": 1.0},
    ),
    "over-provisioned": Cases(
        passes=(
            placement(),
            placement(candidate(fit=fit(6 * GIB))),
            placement(candidate(instance_type="g6.12xlarge", fit=fit(layout=SPLIT))),
        ),
        fails=(
            placement(candidate(fit=fit(2 * GIB))),
            placement(candidate(instance_type="g6.48xlarge")),
            placement(candidate(instance_type="p5.48xlarge")),
        ),
        boundary=(
            placement(candidate(fit=fit(5 * GIB))),
            placement(candidate(fit=fit(5 * GIB - 1))),
        ),
        unknowns=(placement(NOT_KNOWN),),
    ),
}
T4 = candidate(instance_type="g4dn.xlarge")
V100 = candidate(instance_type="p3.2xlarge")
FLASH = {"training.attention": "flash"}
HARDWARE = {
    "gpu-runtime": Cases(
        passes=(placement(), placement(T4), placement(candidate(), candidate(key="failover[1]"))),
        fails=tuple(
            placement(candidate(instance_type=name, refusals={"runtime": "neuron devices need a runtime of their own"}))
            for name in ("inf2.xlarge", "trn1.2xlarge", "dl1.24xlarge")
        ),
        boundary=(
            placement(candidate(refusals={"precision": "no bf16"})),
            placement(candidate(refusals={"runtime": "no build"})),
        ),
        unknowns=(placement(NOT_KNOWN), placement(workload=UNKNOWN)),
    ),
    "gpu-formats": Cases(
        passes=(placement(), placement(candidate(instance_type="g6e.xlarge")), placement(V100)),
        fails=tuple(
            placement(candidate(instance_type=name, refusals={"precision": "it has no bf16"}))
            for name in ("p3.2xlarge", "g4dn.xlarge", "g3.16xlarge")
        ),
        boundary=(
            placement(candidate(refusals={"runtime": "no build"})),
            placement(candidate(refusals={"precision": "no FP8"})),
        ),
        unknowns=(placement(NOT_KNOWN),),
    ),
    "flash-attention": Cases(
        passes=tuple(
            placement(candidate(instance_type=name), base=TRAINING, changes=FLASH)
            for name in ("g6.xlarge", "g5.xlarge", "p5.48xlarge")
        ),
        fails=tuple(
            placement(candidate(instance_type=name), base=TRAINING, changes=FLASH)
            for name in ("g4dn.xlarge", "p3.2xlarge", "g3.16xlarge")
        ),
        boundary=(
            placement(candidate(instance_type="p4d.24xlarge"), base=TRAINING, changes=FLASH),
            placement(candidate(instance_type="g4dn.xlarge"), base=TRAINING, changes=FLASH),
        ),
        unknowns=(
            placement(NOT_KNOWN, base=TRAINING, changes=FLASH),
            placement(workload=UNKNOWN),
        ),
    ),
    "engine-capability": Cases(
        passes=(placement(), placement(V100), placement(T4, changes={"inference.engine": "sglang"})),
        fails=(
            placement(candidate(instance_type="g3.16xlarge")),
            placement(V100, changes={"inference.engine": "sglang"}),
            placement(T4, changes={"inference.engine": "tensorrt-llm"}),
        ),
        boundary=(
            placement(candidate(instance_type="p4d.24xlarge"), changes={"inference.engine": "tensorrt-llm"}),
            placement(T4, changes={"inference.engine": "tensorrt-llm"}),
        ),
        unknowns=(placement(NOT_KNOWN), placement(workload=UNKNOWN)),
    ),
    "host-maintenance": Cases(
        passes=(gcp(), gcp(instance_type="a2-highgpu-1g"), gcp(has_gpu=UNKNOWN)),
        fails=(
            gcp(on_host_maintenance="MIGRATE"),
            gcp(on_host_maintenance=None),
            gcp(on_host_maintenance="terminate"),
        ),
        boundary=(gcp(on_host_maintenance="TERMINATE"), gcp(on_host_maintenance="MIGRATE")),
        unknowns=(gcp(on_host_maintenance=UNKNOWN), gcp(on_host_maintenance="MIGRATE", has_gpu=UNKNOWN)),
    ),
}
LIMIT = {"placement.max_price": "1 USD/h"}
BUDGET = {"placement.max_price": ..., "placement.budget": "120 USD/month"}
ENDLESS = {"lifecycle": {"pattern": "steady", "hours_per_month": 730}}
COST = {
    "price-limit": Cases(
        passes=(
            spec(),
            spec({"placement.max_price": ..., "placement.budget": "10 USD/month"}),
            spec({"placement.budget": "10 USD/month"}),
        ),
        fails=(
            spec({"placement.max_price": ...}),
            spec({"placement": ...}),
            spec({"placement.max_price": ..., "placement.max_gpus": 8}),
        ),
        boundary=(spec({"placement.max_price": "0.01 USD/h"}), spec({"placement.max_price": ...})),
        unknowns=(
            spec(unknown=("placement.max_price", "placement.budget")),
            spec({"placement.max_price": ...}, unknown=("placement.budget",)),
            spec(workload=UNKNOWN),
        ),
    ),
    "price-over-limit": Cases(
        passes=(
            offered(changes=LIMIT),
            offered(candidate(price_usd_per_hour=Decimal("0.4"), instances=2), changes=LIMIT),
            offered(candidate(price_usd_per_hour=Decimal("0.01")), changes=LIMIT),
        ),
        fails=(
            offered(candidate(price_usd_per_hour=Decimal("2")), changes=LIMIT),
            offered(candidate(instances=2), changes=LIMIT),
            offered(candidate(), candidate(key="failover[1]", price_usd_per_hour=Decimal("9")), changes=LIMIT),
        ),
        boundary=(
            offered(candidate(price_usd_per_hour=Decimal("1")), changes=LIMIT),
            offered(candidate(price_usd_per_hour=Decimal("1.0001")), changes=LIMIT),
        ),
        unknowns=(
            offered(candidate(price_usd_per_hour=None), changes=LIMIT),
            offered(candidate(price_usd_per_hour=UNKNOWN), changes=LIMIT),
            offered(candidate(instances=UNKNOWN), changes=LIMIT),
            offered(candidates=UNKNOWN, changes=LIMIT),
            offered(workload=UNKNOWN),
        ),
    ),
    "budget-over": Cases(
        passes=(
            offered(changes=BUDGET),
            offered(candidate(price_usd_per_hour=Decimal("0.5"), instances=2), changes=BUDGET),
            offered(candidate(price_usd_per_hour=Decimal("0.1")), changes=BUDGET),
        ),
        fails=(
            offered(candidate(price_usd_per_hour=Decimal("2")), changes=BUDGET),
            offered(candidate(instances=2), changes=BUDGET),
            offered(changes=BUDGET | {"lifecycle.hours_per_month": 730}),
        ),
        boundary=(
            offered(candidate(price_usd_per_hour=Decimal("1")), changes=BUDGET),
            offered(candidate(price_usd_per_hour=Decimal("1.0001")), changes=BUDGET),
        ),
        unknowns=(
            offered(candidate(price_usd_per_hour=None), changes=BUDGET),
            offered(candidates=UNKNOWN, changes=BUDGET),
            offered(workload=UNKNOWN),
        ),
    ),
    "price-ceiling": Cases(
        passes=(
            offered(),
            offered(candidate(price_usd_per_hour=Decimal("0.01"))),
            offered(candidate(price_usd_per_hour=Decimal("0.5"), instances=2)),
        ),
        fails=(
            offered(candidate(price_usd_per_hour=Decimal("2"))),
            offered(candidate(instances=2)),
            offered(candidate(), candidate(key="failover[1]", price_usd_per_hour=Decimal("98"))),
        ),
        boundary=(
            offered(candidate(price_usd_per_hour=Decimal("1"))),
            offered(candidate(price_usd_per_hour=Decimal("1.000001"))),
        ),
        unknowns=(offered(candidate(price_usd_per_hour=UNKNOWN)), offered(candidates=UNKNOWN)),
        parameters={"max_price": Money(Decimal(1), "h")},
    ),
    "gpu-ceiling": Cases(
        passes=(offered(), offered(candidate(instances=4)), offered(candidate(instance_type="g6.12xlarge"))),
        fails=(
            offered(candidate(instances=5)),
            offered(candidate(instance_type="g6.48xlarge")),
            offered(candidate(instance_type="g6.12xlarge", instances=2)),
        ),
        boundary=(offered(candidate(instances=4)), offered(candidate(instances=5))),
        unknowns=(
            offered(NOT_KNOWN),
            offered(candidate(instances=UNKNOWN)),
            offered(candidate(instance_type="p9.new", instance=None)),
            offered(candidates=UNKNOWN),
        ),
        parameters={"max_gpus": 4},
    ),
    "price-age": Cases(
        passes=(offered(), offered(candidate(price_as_of="2026-11-30")), offered(candidate(price_as_of="2026-10-31"))),
        fails=(
            offered(candidate(price_as_of="2024-07-01")),
            offered(candidate(price_as_of="2026-01-01")),
            offered(candidate(), candidate(key="failover[1]", price_as_of="2025-12-31")),
        ),
        boundary=(offered(candidate(price_as_of="2026-10-31")), offered(candidate(price_as_of="2026-10-30"))),
        unknowns=(
            offered(candidate(price_as_of=None)),
            offered(candidate(price_as_of=UNKNOWN)),
            offered(candidates=UNKNOWN),
        ),
        parameters={"max_age": timedelta(days=30)},
    ),
    "endless-cost": Cases(
        passes=(
            offered(),
            offered(changes={**ENDLESS, "lifecycle.max_lifetime": "30d"}),
            offered(candidate(price_usd_per_hour=Decimal("0.1")), changes=ENDLESS),
        ),
        fails=(
            offered(candidate(price_usd_per_hour=Decimal("98")), changes=ENDLESS),
            offered(candidate(instances=2), changes=ENDLESS),
            offered(changes={"lifecycle": {"pattern": "bursty", "idle": {"after": "off"}, "max_lifetime": "off"}}),
        ),
        boundary=(
            offered(candidate(price_usd_per_hour=Decimal("0.5")), changes=ENDLESS),
            offered(candidate(price_usd_per_hour=Decimal("0.50001")), changes=ENDLESS),
        ),
        unknowns=(
            offered(candidate(price_usd_per_hour=None), changes=ENDLESS),
            offered(candidates=UNKNOWN, changes=ENDLESS),
            offered(workload=UNKNOWN),
        ),
        parameters={"max_price_a_day": Money(Decimal(12))},
    ),
}
SPOT = candidate(capacity_type="spot")
UNCHECKED = {"training.checkpoint": ...}
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
LIFECYCLE = {
    "idle-rule": Cases(
        passes=(spec(), spec({"lifecycle.idle.after": "auto"}), spec({"lifecycle.pattern": "steady"})),
        fails=(
            spec({"lifecycle.idle.after": "off"}),
            spec({"lifecycle.idle.after": "3h"}),
            spec({"lifecycle.pattern": "steady", "lifecycle.idle.after": "off"}),
        ),
        boundary=(spec({"lifecycle.idle.after": "60m"}), spec({"lifecycle.idle.after": "3601s"})),
        unknowns=(
            spec(unknown=("lifecycle.idle.after",)),
            spec(unknown=("lifecycle.pattern",)),
            spec(workload=UNKNOWN),
        ),
        parameters={"max_idle": timedelta(hours=1)},
    ),
    "lifetime-limit": Cases(
        passes=(spec(), spec({"lifecycle.max_lifetime": "1h"}), spec({"lifecycle.max_lifetime": "24h"})),
        fails=(
            spec({"lifecycle.max_lifetime": "off"}),
            spec({"lifecycle.max_lifetime": "2d"}),
            spec({"lifecycle.pattern": "steady", "lifecycle.max_lifetime": "off"}),
        ),
        boundary=(spec({"lifecycle.max_lifetime": "1d"}), spec({"lifecycle.max_lifetime": "86401s"})),
        unknowns=(spec(unknown=("lifecycle.max_lifetime",)), spec(workload=UNKNOWN)),
        parameters={"max_lifetime": timedelta(days=1)},
    ),
    "stopped-limit": Cases(
        passes=(spec(), spec({"lifecycle.stopped": ...}), spec({"lifecycle.stopped.terminate_after": "1h"})),
        fails=tuple(spec({"lifecycle.stopped.terminate_after": text}) for text in ("31d", "60d", "365d")),
        boundary=(
            spec({"lifecycle.stopped.terminate_after": "30d"}),
            spec({"lifecycle.stopped.terminate_after": "2592001s"}),
        ),
        unknowns=(spec(unknown=("lifecycle.stopped",)), spec(workload=UNKNOWN)),
    ),
    "training-checkpoint": Cases(
        passes=tuple(spec({"training.checkpoint.every": text}, base=TRAINING) for text in ("5m", "1h", "4h")),
        fails=(
            spec(UNCHECKED, base=TRAINING),
            spec({"training.checkpoint": {"resumable": True}}, base=TRAINING),
            spec({"training.checkpoint.every": "1d"}, base=TRAINING),
        ),
        boundary=(
            spec({"training.checkpoint.every": "4h"}, base=TRAINING),
            spec({"training.checkpoint.every": "14401s"}, base=TRAINING),
        ),
        unknowns=(spec(base=TRAINING, unknown=("training.checkpoint.every",)), spec(base=TRAINING, workload=UNKNOWN)),
    ),
    "keep-failed": Cases(
        passes=(spec(), spec({"lifecycle.keep_failed": False}), spec(base=TRAINING)),
        fails=(
            spec({"lifecycle.keep_failed": True}),
            spec({"lifecycle": {"keep_failed": True}}, base=TRAINING),
            spec({"lifecycle.keep_failed": True, "lifecycle.pattern": "steady"}),
        ),
        boundary=(spec({"lifecycle.keep_failed": False}), spec({"lifecycle.keep_failed": True})),
        unknowns=(spec(unknown=("lifecycle.keep_failed",)),),
    ),
}
TOKEN = "hf_" + "Ab1" * 10
KEY_ID = "AKIA" + "ABCDEFGH23456789"
PINNED = "ghcr.io/team/serve@sha256:" + "0" * 64
SECURITY = {
    "open-cidr": Cases(
        passes=(
            spec(),
            spec({"access": {"cidrs": ["203.0.113.7/32", "10.0.0.0/8", "2001:db8::/48"]}}),
            firewall(("198.51.100.0/24", (443, 443))),
            firewall(("fd00::/8", None)),
        ),
        fails=(
            spec({"access": {"cidrs": ["0.0.0.0/0"]}}),
            spec({"access": {"cidrs": ["::/0"]}}),
            firewall(("0.0.0.0/0", (22, 22))),
            firewall(("10.0.0.0/8", None), ("0.0.0.0/1", None)),
            firewall(("128.0.0.0/1", None)),
        ),
        boundary=(firewall(("8.8.0.0/16", None)), firewall(("8.8.0.0/15", None))),
        unknowns=(
            spec(unknown=("access.cidrs",)),
            firewall((UNKNOWN, None)),
            firewall(("no range", None)),
            firewall(openings=UNKNOWN),
        ),
    ),
    "open-admin-port": Cases(
        passes=(
            firewall(("203.0.113.0/24", (443, 443))),
            firewall(("10.1.0.0/16", (22, 22))),
            firewall(("192.168.0.0/24", None)),
        ),
        fails=(
            firewall(("203.0.113.7/32", (22, 22))),
            firewall(("203.0.113.7/32", (0, 65535))),
            firewall(("203.0.113.7/32", None)),
        ),
        boundary=(firewall(("203.0.113.7/32", (23, 2374))), firewall(("203.0.113.7/32", (22, 2374)))),
        unknowns=(firewall((UNKNOWN, (22, 22))), firewall(("203.0.113.7/32", UNKNOWN)), firewall(openings=UNKNOWN)),
    ),
    "imdsv2": Cases(
        passes=(
            machine(),
            machine(metadata_endpoint="disabled", metadata_tokens=None),
            machine(metadata_endpoint="enabled"),
        ),
        fails=(
            machine(metadata_tokens="optional"),
            machine(metadata_tokens="optional", metadata_endpoint="enabled"),
            machine(metadata_tokens="Required"),
        ),
        boundary=(machine(metadata_tokens="required"), machine(metadata_tokens="optional")),
        unknowns=(machine(metadata_tokens=None), machine(metadata_tokens=UNKNOWN)),
    ),
    "imds-hop-limit": Cases(
        passes=(machine(), machine(metadata_hop_limit=2), machine(metadata_hop_limit=1, name="other")),
        fails=(machine(metadata_hop_limit=3), machine(metadata_hop_limit=10), machine(metadata_hop_limit=64)),
        boundary=(machine(metadata_hop_limit=2), machine(metadata_hop_limit=3)),
        unknowns=(machine(metadata_hop_limit=UNKNOWN),),
    ),
    "root-encryption": Cases(
        passes=(machine(), gcp(), machine(disks=(root(), data(encrypted=False)))),
        fails=(
            machine(disks=(root(encrypted=False),)),
            machine(disks=(data(), root(encrypted=False))),
            machine(disks=(root(encrypted=False, customer_key=False),)),
        ),
        boundary=(machine(disks=(root(encrypted=True),)), machine(disks=(root(encrypted=False),))),
        unknowns=(
            machine(disks=(root(encrypted=None),)),
            machine(disks=(root(encrypted=UNKNOWN),)),
            machine(disks=UNKNOWN),
        ),
    ),
    "data-encryption": Cases(
        passes=(machine(disks=(root(encrypted=False), data())), volume(), machine(disks=(root(), data(), data()))),
        fails=(
            volume(encrypted=False),
            machine(disks=(root(), data(encrypted=False))),
            machine(disks=(data(), data(encrypted=False))),
        ),
        boundary=(volume(encrypted=True), volume(encrypted=False)),
        unknowns=(volume(encrypted=UNKNOWN), volume(encrypted=None), machine(disks=UNKNOWN)),
    ),
    "customer-key": Cases(
        passes=(machine(), volume(), gcp()),
        fails=(
            machine(disks=(root(customer_key=False),)),
            volume(customer_key=False),
            machine(disks=(root(), data(customer_key=False))),
        ),
        boundary=(volume(customer_key=True), volume(customer_key=False)),
        unknowns=(volume(customer_key=UNKNOWN), machine(disks=UNKNOWN)),
    ),
    "secret-in-env": Cases(
        passes=(
            spec(env(HF_TOKEN={"secret": "aws-secretsmanager:hf"}, MODE="fast")),
            spec(env(MAX_TOKENS="4096", TOKENIZERS_PARALLELISM="false", TOKEN_FILE="/run/secrets/token")),
            spec({"run": {"image": PINNED, "command": ["serve", "--port", "8000"]}}),
        ),
        fails=(
            spec(env(HF_TOKEN=TOKEN)),
            spec(env(MODE=KEY_ID)),
            spec(env(DB_PASSWORD="correct horse battery")),
            spec({"run": {"image": PINNED, "command": ["serve", f"--token={TOKEN}"]}}),
            spec({"run": {"image": PINNED, "command": ["serve", "--api-key", "s3cr3t-value-1"]}}),
        ),
        boundary=(spec(env(API_KEY="12345")), spec(env(API_KEY="a12345"))),
        unknowns=(
            spec(env(HF_TOKEN="x"), unknown=("run.env.HF_TOKEN",)),
            spec(env(A="b"), unknown=("run",)),
            spec({"run": {"image": PINNED, "command": ["x"]}}, unknown=("run.command",)),
            spec(workload=UNKNOWN),
        ),
    ),
    "secret-in-user-data": Cases(
        passes=(
            machine(texts={"user_data": "#!/bin/sh\ndocker run -p 8000:8000 serve\n"}),
            gcp(texts={"startup-script": "export TOKEN=$(gcloud secrets versions access latest --secret=hf)"}),
            machine(texts={"user_data": "TOKEN_FILE=/run/secrets/hf"}),
        ),
        fails=(
            machine(texts={"user_data": f"export HF_TOKEN={TOKEN}"}),
            machine(texts={"user_data_base64": "ZXhwb3J0IEhGX1RPS0VOPWhmX0FiMUFiMUFiMUFiMUFiMUFiMUFiMQ=="}),
            gcp(texts={"ssh": "-----BEGIN OPENSSH PRIVATE KEY-----\nabc\n-----END OPENSSH PRIVATE KEY-----"}),
            machine(texts={"user_data": "x"}, sensitive_texts=frozenset({"user_data"})),
        ),
        boundary=(
            machine(texts={"user_data": "PASSWORD=short"[:14]}),
            machine(texts={"user_data": "PASSWORD=longer1"}),
        ),
        unknowns=(machine(texts={"user_data": UNKNOWN}), machine(texts=UNKNOWN)),
    ),
    "secret-in-tags": Cases(
        passes=(spec(), machine(), spec(tags={"token-owner": "ana", "cost": "c42"})),
        fails=(
            spec(tags={"note": TOKEN}),
            machine(tags={"api-key": "s3cr3t-value-1"}),
            spec(tags={"x": KEY_ID}),
        ),
        boundary=(spec(tags={"password": "12345"}), spec(tags={"password": "a12345"})),
        unknowns=(machine(tags=UNKNOWN), machine(tags={"api_key": UNKNOWN})),
    ),
    "image-digest": Cases(
        passes=(
            spec({"run": {"image": PINNED}}),
            spec({"run": {"image": "vllm/vllm-openai:v0.19@sha256:" + "f" * 64}}),
            spec(env(A="b")),
        ),
        fails=tuple(
            spec({"run": {"image": image}}) for image in ("vllm/vllm-openai", "vllm/vllm-openai:v0.19", "x:latest")
        ),
        boundary=(spec({"run": {"image": "x@sha256:" + "a" * 64}}), spec({"run": {"image": "x@sha256:" + "a" * 63}})),
        unknowns=(spec({"run": {"image": "x"}}, unknown=("run.image",)), spec(unknown=("run",))),
    ),
    "machine-image": Cases(
        passes=(machine(), gcp(), machine(image="ami-00000000000000001")),
        fails=(
            gcp(image="projects/deeplearning-platform-release/global/images/family/pytorch"),
            machine(image="resolve:ssm:/aws/service/deeplearning/ami"),
            gcp(image="pytorch-latest"),
        ),
        boundary=(gcp(image="projects/p/global/images/one"), gcp(image="projects/p/global/images/family/one")),
        unknowns=(machine(image=UNKNOWN),),
    ),
    "public-ip": Cases(
        passes=(machine(), gcp(), machine(public_ip=False, name="other")),
        fails=(machine(public_ip=True), gcp(public_ip=True), machine(public_ip=True, name="other")),
        boundary=(machine(public_ip=False), machine(public_ip=True)),
        unknowns=(machine(public_ip=UNKNOWN),),
    ),
    "broad-scopes": Cases(
        passes=(
            gcp(),
            gcp(scopes=("cloud-platform",)),
            gcp(service_account=None, scopes=("https://www.googleapis.com/auth/logging.write",)),
        ),
        fails=(
            gcp(service_account=None, scopes=("cloud-platform",)),
            gcp(
                service_account="123-compute@developer.gserviceaccount.com",
                scopes=("https://www.googleapis.com/auth/cloud-platform",),
            ),
            gcp(service_account=None, scopes=("logging-write", "cloud-platform")),
        ),
        boundary=(
            gcp(service_account="a-compute@developer.gserviceaccount.com", scopes=("cloud-platform",)),
            gcp(service_account="1-compute@developer.gserviceaccount.com", scopes=("cloud-platform",)),
        ),
        unknowns=(gcp(scopes=UNKNOWN), gcp(service_account=UNKNOWN)),
    ),
    "model-revision": Cases(
        passes=tuple(spec({"model.source": f"hf://a/b@{commit * 40}"}) for commit in ("a", "0", "9")),
        fails=tuple(spec({"model.source": f"hf://a/b{end}"}) for end in ("", "@main", "@v1.0")),
        boundary=(spec({"model.source": "hf://a/b@" + "a" * 40}), spec({"model.source": "hf://a/b@" + "a" * 39})),
        unknowns=(spec(unknown=("model.source",)),),
    ),
}
HYGIENE = {
    "owner-tag": Cases(
        passes=(spec(), machine(), spec(tags={"Team": "search"}), machine(tags={"gpuprov-owner": "ana"})),
        fails=(spec(tags={}), machine(tags={"Name": "gpu"}), spec(tags={"owner": ""})),
        boundary=(spec(tags={"owner": "a"}), spec(tags={"owners": "a"})),
        unknowns=(machine(tags=UNKNOWN), spec(tags=UNKNOWN)),
    ),
    "required-tags": Cases(
        passes=(spec(), machine(tags={"team": "a", "owner": "b", "x": "y"}), spec(tags={"team": "", "owner": ""})),
        fails=(spec(tags={}), machine(tags={"team": "a"}), spec(tags={"owner": "a"})),
        boundary=(spec(tags={"team": "a", "owner": "b"}), spec(tags={"team": "a", "Owner": "b"})),
        unknowns=(machine(tags=UNKNOWN),),
        parameters={"keys": ("team", "owner")},
    ),
    "unsized-resource": Cases(
        passes=(machine(), gcp(), machine(workload_path="a/b.yaml")),
        fails=(
            machine(workload_path=None),
            gcp(workload_path=None),
            machine(workload_path=None, instance_type="p5.48xlarge"),
        ),
        boundary=(machine(workload_path="w"), machine(workload_path=None)),
        unknowns=(machine(workload_path=UNKNOWN), machine(has_gpu=UNKNOWN)),
    ),
    "workload-tag": Cases(
        passes=(machine(), gcp(), machine(workload_path="a/b.yaml")),
        fails=tuple(
            machine(workload_error=error) for error in ("no such file", "workload.yaml:3:1: unknown key", "not UTF-8")
        ),
        boundary=(machine(workload_error=None), machine(workload_error="")),
        unknowns=(machine(workload_path=UNKNOWN),),
    ),
    "plan-intact": Cases(
        passes=tuple(placement(digest_stated=digest, digest_found=digest) for digest in ("sha256:a", "sha256:b", "")),
        fails=tuple(placement(digest_stated="sha256:a", digest_found=digest) for digest in ("sha256:b", None, "")),
        boundary=(
            placement(digest_stated="sha256:aa", digest_found="sha256:aa"),
            placement(digest_stated="sha256:aa", digest_found="sha256:ab"),
        ),
        unknowns=(placement(digest_stated="sha256:a", digest_found=UNKNOWN),),
    ),
}


def _context_limit() -> Cases:
    from provisioner.sizing.models import find_model

    shape = find_model("meta-llama/Meta-Llama-3-8B-Instruct")
    limit = shape.max_context_tokens
    assert limit is not None

    def asked(tokens: int) -> Subject:
        return placement(shape=shape, changes={"inference.context_tokens": tokens})

    return Cases(
        passes=(asked(1), asked(limit // 2), asked(limit)),
        fails=(asked(limit + 1), asked(limit * 2), asked(131_073)),
        boundary=(asked(limit), asked(limit + 1)),
        unknowns=(placement(shape=UNKNOWN), placement(workload=UNKNOWN)),
    )


CASES: dict[str, Cases] = {
    **SIZING,
    "context-limit": _context_limit(),
    **HARDWARE,
    **COST,
    **CAPACITY,
    **LIFECYCLE,
    **SECURITY,
    **HYGIENE,
}
