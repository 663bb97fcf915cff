"""What the rules say in words, where they say nothing, and how they judge with other parameters."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from decimal import Decimal
from typing import Any

from policies.engine_flags import EngineSetting
from policies.facts import UNKNOWN, Disk, Opening, Subject
from provisioner.planner.judge import OfferFit
from provisioner.sizing.layout import Layout
from provisioner.units import GIB
from provisioner.vocabulary import Fit
from tests.policies.builders import (
    TRAINING,
    candidate,
    firewall,
    fit,
    gcp,
    machine,
    offered,
    placement,
    spec,
    volume,
)
from tests.policies.cases.availability import attached, days
from tests.policies.cases.commands import PLANNED, TWO, runs
from tests.policies.cases.common import NO_FIT, NOT_KNOWN, SPLIT, Cases, plan
from tests.policies.cases.hardware import IMAGE
from tests.policies.cases.hygiene import stated

SPOT = candidate(capacity_type="spot")
OPEN = {"access": {"cidrs": ["0.0.0.0/0"]}}
WIDE = {"access": {"cidrs": ["8.0.0.0/8", "128.0.0.0/1"]}}
NO_HELP: dict[str, Any] = {"suggest": lambda: None}
SIX = frozenset({"r1", "r2", "r3", "r4", "r5", "r6"})
WITHOUT_SIZE = candidate(fit=OfferFit(Fit.FITS, None, None, (), None))
NO_GPU = candidate(instance_type="m5.large", instance=None, gpu=None, fit=fit(layout=SPLIT))
MEMORY = plan(
    "nothing-fits",
    ("memory", "30.0 GiB per GPU", "20.3 GiB usable"),
    ("memory", "1,030.0 GiB per GPU", "40.0 GiB usable"),
    ("gpu-count", "8", "1"),
)
COUNTED = plan("nothing-fits", ("gpu-count", "8", "1"))
MANY = plan("nothing-fits", ("budget", None, None), ("region", None, None))

SILENT: dict[str, tuple[Subject, ...]] = {
    "open-cidr": (firewall(),),
    "imdsv2": (gcp(metadata_tokens="optional"),),
    "imds-hop-limit": (
        gcp(metadata_hop_limit=9),
        machine(metadata_hop_limit=None),
        machine(metadata_hop_limit=9, metadata_endpoint="disabled"),
    ),
    "public-ip": (machine(public_ip=None),),
    "broad-scopes": (machine(scopes=("cloud-platform",)), gcp(scopes=())),
    "volume-zone": (attached(None, "us-east-1a"), attached("us-east-1a", None), attached(None, None)),
    "quota-room": (offered(candidate(quota=None)),),
    "spot-endpoint": (offered(SPOT, changes={"placement.capacity": "spot"}),),
    "spot-checkpoint": (spec(), offered(SPOT), spec({"task": "batch", "placement": {"capacity": "spot"}})),
    "region-support": (
        machine(region=None, regions_offered=frozenset({"x"})),
        machine(region="x", regions_offered=None),
        machine(region="x", regions_offered=frozenset(), instance_type=None),
    ),
    "zone-support": (
        offered(candidate(zone=None, zones_offered=frozenset({"use1-az1"}))),
        offered(candidate(zone="use1-az9", zones_offered=None)),
        offered(candidate(zone="us-east-1a", zones_offered=frozenset({"use1-az1"}))),
    ),
    "retired-type": (machine(instance=None),),
    "command-over-plan": (
        placement(command=None),
        placement(command=("serve",)),
        placement(command=("vllm", "--max-model-len", "9"), base=TRAINING),
        runs("llama-server", "--tensor-parallel-size", "8", engine="llama.cpp"),
    ),
    "command-differs": (placement(command=None), placement(command=("-tp", "1"), base=TRAINING)),
    "price-over-limit": (offered(candidate(price_usd_per_hour=Decimal(99)), changes={"placement.max_price": ...}),),
    "budget-over": (
        offered(candidate(price_usd_per_hour=Decimal(99))),
        offered(candidate(price_usd_per_hour=Decimal(99)), changes={"placement.budget": "4 USD/run"}, base=TRAINING),
    ),
    "price-age": (offered(candidates=()),),
    "flash-attention": (
        placement(),
        placement(base=TRAINING, changes={"training.attention": "sdpa"}),
        placement(candidate(gpu=None), base=TRAINING, changes={"training.attention": "flash"}),
    ),
    "engine-capability": (placement(base=TRAINING), placement(changes={"inference.engine": "llama.cpp"})),
    "host-maintenance": (
        machine(on_host_maintenance="MIGRATE"),
        gcp(on_host_maintenance="MIGRATE", has_gpu=False),
        gcp(on_host_maintenance="MIGRATE", has_gpu=False, instance_type="e2-micro"),
        gcp(on_host_maintenance="TERMINATE", has_gpu=False, instance_type="n2-standard-4"),
        gcp(on_host_maintenance="TERMINATE", has_gpu=False, instance_type="e2-micro", capacity_type="spot"),
    ),
    "container-cuda": (placement(container=None), placement(container="vllm/vllm-openai:v0.11.0")),
    "image-driver": (
        machine(image=IMAGE.format(470)),
        machine(image="ami-0123", driver_branches=(570, None)),
        machine(image=UNKNOWN),
    ),
    "unsized-resource": (machine(has_gpu=False, workload_path=None),),
    "workload-tag": (machine(workload_path=None, workload_error="x"),),
    "plan-intact": (placement(digest_found="sha256:a"),),
    "plan-figures": (placement(figures=()),),
    "plan-catalog": (placement(catalog_found="sha256:a"),),
    "training-checkpoint": (spec(), spec({"task": "batch"})),
    "secret-in-env": (spec(), spec({"run": "auto"})),
    "image-digest": (spec(), spec({"run": "auto"}), spec({"run": {"command": ["x"]}})),
    "image-version": (spec(), spec({"run": "auto"}), spec({"run": {"command": ["x"]}})),
    "machine-image": (machine(image=None),),
    "model-revision": (spec(), spec({"model.source": "s3://bucket/weights"})),
    "no-offer": (placement(plan=MEMORY, candidates=()), placement()),
    "under-sized": (placement(plan=MANY, candidates=()),),
    "tensor-parallel-divisible": (placement(layout_objections=None),),
    "tensor-parallel-pcie": (placement(), placement(NO_GPU), placement(WITHOUT_SIZE)),
    "context-limit": (
        placement(base=TRAINING),
        placement(shape=None),
        placement(changes={"inference.context_tokens": ...}),
    ),
    "thin-headroom": (placement(candidate(fit=NO_FIT)), placement(WITHOUT_SIZE)),
    "borderline": (
        placement(candidate(fit=NO_FIT)),
        placement(candidate(fit=OfferFit(Fit.BORDERLINE, None, None, (), None))),
    ),
    "host-memory": (placement(NO_GPU), placement(WITHOUT_SIZE)),
    "disk-size": (placement(), placement(candidate(fit=WITHOUT_SIZE.fit, disk_bytes=1))),
    "over-provisioned": (
        placement(pinned=False),
        placement(candidate(fit=NO_FIT)),
        placement(WITHOUT_SIZE),
        placement(replace(NO_GPU, fit=fit())),
    ),
}
"""Subjects that a rule does not concern: it says nothing of them."""

SAYS: dict[str, tuple[tuple[Subject, tuple[str, ...]], ...]] = {
    "open-cidr": (
        (spec(OPEN), ("0.0.0.0/0: the whole internet", "access.cidrs[0]")),
        (spec(WIDE), ("8.0.0.0/8: 16,777,216 addresses", "128.0.0.0/1: 2,147,483,648 addresses")),
        (firewall(("203.0.113.9/12", None)), ("fail|openings[0].cidr_blocks", "1,048,576 addresses")),
    ),
    "imdsv2": ((machine(metadata_tokens=None), ("unknown|metadata_tokens", "many allow IMDSv1")),),
    "placement-kept": ((offered(candidate(cloud=UNKNOWN)), ("unknown|choice|",)),),
    "reservation-expiry": (
        (days(6), ("r ends on 2026-12-06", "to 2026-12-07 at least (7d)")),
        (days(0), ("r ends on 2026-11-30",)),
        (days(-1), ("r has ended on 2026-11-29",)),
    ),
    "engine-capability": (
        (
            placement(candidate(instance_type="g3.16xlarge"), changes={"inference.engine": ...}),
            ("fail|choice|vllm needs compute capability 7.0",),
        ),
        (placement(shape=None, changes={"inference.engine": ...}), ("unknown|inference.engine",)),
        (placement(candidates=UNKNOWN), ("unknown|candidates",)),
    ),
    "spot-endpoint": (
        (offered(SPOT), ("fail|choice|",)),
        (offered(candidates=UNKNOWN, base=TRAINING), ("pass|candidates",)),
        (offered(candidates=UNKNOWN), ("unknown|candidates",)),
    ),
    "spot-checkpoint": ((offered(SPOT, workload=UNKNOWN), ("unknown|",)),),
    "region-support": (
        (machine(region="r9", regions_offered=SIX), ("is sold in r1, r2, r3, r4, r5|",)),
        (machine(region="r9", regions_offered=frozenset()), ("no region that the catalog knows",)),
    ),
    "zone-support": (
        (offered(candidate(zone="r9", zones_offered=SIX)), ("is sold in r1, r2, r3, r4, r5|",)),
        (offered(candidate(zone="r9", zones_offered=frozenset())), ("no zone that the catalog knows",)),
    ),
    "command-over-plan": (
        (runs("vllm", "--max-model-len", "9999"), ("write --max-model-len 8192, or leave",)),
        (runs("vllm", "-tp", "4", offer={"instance": None}), ("fail|",)),
        (runs("vllm", "-pp", "1", planned={EngineSetting.CONTEXT: "8"}, offer={"instance": None}), ("pass|",)),
        (runs("vllm", "--gpu-memory-utilization", "0.81", planned=PLANNED), ("pass|",)),
        (
            runs("vllm", "-q", "fp8", planned=PLANNED | {EngineSetting.QUANTISATION: "int4-gptq"}),
            ("sets -q fp8; planned for", "|leave -q out|"),
        ),
        (
            runs("vllm", "-q", "fp8", planned=PLANNED | {EngineSetting.QUANTISATION: "nf4"}),
            ("write -q bitsandbytes, or",),
        ),
        (
            runs("llama-server", engine="llama.cpp", env={"LLAMA_ARG_CACHE_TYPE_V": "f16"}),
            ("sets LLAMA_ARG_CACHE_TYPE_V=f16; planned", "write LLAMA_ARG_CACHE_TYPE_V=q8_0, or leave"),
        ),
        (
            runs("trtllm-serve", "m", "--tensor_parallel_size=1", engine="tensorrt-llm"),
            ("write --tensor_parallel_size 2, or leave",),
        ),
    ),
    "command-differs": (
        (
            runs("vllm", "--kv-cache-dtype", "fp8", planned={EngineSetting.CONTEXT: "8"}),
            ("planned for g6.12xlarge in us-east-1 is none", "leave --kv-cache-dtype out, or say in the spec"),
        ),
        (
            runs("vllm", "--gpu-memory-utilization", "0.99", offer={"fit": replace(TWO, footprint=None)}),
            ("fail|run.command|the command sets --gpu-memory-utilization 0.99",),
        ),
        (runs("vllm", "--gpu-memory-utilization", "0.5", offer={"fit": replace(TWO, footprint=None)}), ("fail|",)),
    ),
    "price-limit": (
        (spec({"placement.budget": "10 USD/month"}, unknown=("placement.max_price",)), ("pass|placement.max_price",)),
    ),
    "price-over-limit": (
        (
            offered(candidate(price_usd_per_hour=Decimal(9))),
            ("costs $9.0000/h, over placement.max_price of $5.00/h", "raise the limit to 9 USD/h"),
        ),
        (offered(candidate(price_usd_per_hour=UNKNOWN)), ("unknown|choice|the price of g6.xlarge",)),
    ),
    "endless-cost": (
        (
            offered(
                candidate(price_usd_per_hour=Decimal(1)),
                candidate(key="failover[1]", price_usd_per_hour=Decimal(2)),
                changes={"lifecycle": {"pattern": "steady", "hours_per_month": 730}},
            ),
            ("it costs $24.00 a day",),
        ),
    ),
    "gpu-runtime": (
        (placement(candidate(refusals={"runtime": "no build"})), ("no build|take g6e.xlarge|",)),
        (placement(candidate(refusals={"runtime": "no build"}), **NO_HELP), ("no build|take an NVIDIA GPU",)),
    ),
    "host-maintenance": (
        (gcp(on_host_maintenance=None), ("asks for the default, MIGRATE",)),
        (gcp(on_host_maintenance="KEEP"), ("asks for KEEP",)),
    ),
    "owner-tag": ((spec(tags={"owner": UNKNOWN}), ("unknown|tags|whose chat is",)),),
    "plan-figures": (
        (stated(None, "2 GiB"), ("the plan states nothing as x; computed again it is 2 GiB",)),
        (stated("1 GiB", None), ("the plan states 1 GiB as x; computed again it is not known",)),
    ),
    "root-encryption": (
        (machine(disks=(Disk(key="root", role="root", encrypted=False),)), ("the root disk of",)),
        (machine(disks=(Disk(key="root", role="root", encrypted=None),)), ("whether its root disk is encrypted",)),
    ),
    "data-encryption": ((volume(encrypted=False), ("the data disk of",)),),
    "secret-in-env": (
        (
            spec({"run": {"image": "x:1", "command": ["serve", "--api-key=", "hunter2hunter2"]}}),
            ("pass|run.command[2]",),
        ),
        (spec({"run": {"image": "x:1", "command": ["token", "hunter2hunter2"]}}), ("pass|run.command[1]",)),
        (spec({"run": {"image": "x:1", "command": ["--api-key", "hunter2hunter2"]}}), ("fail|run.command[1]",)),
    ),
    "under-sized": (
        (
            placement(candidate(fit=NO_FIT)),
            ("it needs 30.0 GiB per GPU, 20.0 GiB of a L4 are usable, 10.0 GiB are missing",),
        ),
        (placement(candidate(fit=NO_FIT)), ("|take g6e.xlarge|",)),
        (placement(candidate(fit=NO_FIT), **NO_HELP), ("|lower context_tokens or concurrency",)),
        (
            placement(candidate(fit=OfferFit(Fit.DOES_NOT_FIT, None, None, ("no GPU", "no room"), None))),
            ("cannot hold chat: no GPU; no room",),
        ),
        (
            placement(plan=MEMORY, candidates=()),
            (
                "the closest is g6.xlarge, with 30.0 GiB per GPU needed, 20.3 GiB usable, 9.7 GiB missing",
                "smallest change: take two",
            ),
        ),
        (placement(plan=COUNTED, candidates=()), ("can hold chat: refused by gpu-count",)),
        (placement(candidate(layout=Layout(replicas=2), instances=2)), ("pass|choice",)),
        (
            placement(candidate(layout=Layout(replicas=3), instances=2)),
            ("2 x g6.xlarge in us-east-1 hold 2 of the 3 copies",),
        ),
        (placement(candidate(layout=Layout(replicas=3), instance=None)), ("pass|choice",)),
    ),
    "no-offer": (
        (placement(plan=MANY, candidates=()), ("fail|placement.budget|", "(refused by budget, region)")),
        (
            placement(plan=plan("nothing-fits", ("host-ram", None, None)), candidates=()),
            ("fail|placement|", "(refused by host-ram)"),
        ),
        (placement(plan=plan("nothing-fits", ("status", None, None)), candidates=()), ("requirements of chat|",)),
    ),
    "tensor-parallel-divisible": (
        (
            placement(layout_objections=("no",), degrees_possible=(1, 2)),
            ("fail|choice.layout|", "use a degree that divides the model: 1, 2"),
        ),
        (
            placement(layout_objections=("no",), plan=replace(plan("fits"), choice=candidate())),
            ("fail|inference.tensor_parallel|", "let gpuprov choose: tensor_parallel: auto"),
        ),
    ),
    "host-memory": ((placement(candidate(fit=fit(weights=17 * GIB))), ("loading takes up to 17.0 GiB",)),),
    "disk-size": (
        (
            placement(candidate(disk_bytes=8 * GIB)),
            ("have 8.0 GiB; image and weights take 35.0 GiB", "give it at least 35 GiB"),
        ),
        (
            placement(
                candidate(
                    disk_bytes=8 * GIB, fit=fit(weights=GIB, layout=Layout(tensor_parallel=2, pipeline_parallel=3))
                )
            ),
            ("image and weights take 26.0 GiB",),
        ),
        (
            placement(candidate(disk_bytes=8 * GIB, fit=replace(fit(weights=GIB), layout=None))),
            ("weights take 21.0 GiB",),
        ),
    ),
    "thin-headroom": (
        (placement(candidate(fit=fit(95, usable=100))), ("pass|choice",)),
        (
            placement(candidate(fit=fit(19 * GIB + GIB // 2))),
            ("leaves 0.5 GiB per GPU free, 2.5% of", "free 0.5 GiB more"),
        ),
    ),
    "over-provisioned": (
        (placement(candidate(fit=fit(2 * GIB))), ("has 10.0 times the GPU memory", "|take g6e.xlarge|")),
        (placement(candidate(fit=fit(2 * GIB)), **NO_HELP), ("|remove the pin and let gpuprov choose|",)),
    ),
    "borderline": (
        (placement(candidate(fit=fit(18 * GIB, 21 * GIB))), ("need 21.0 GiB per GPU", "1.0 GiB may be missing")),
    ),
    "gpu-ceiling": ((offered(candidate(instances=5)), ("takes 5 GPUs, more than 4", "max_gpus: 4")),),
    "open-admin-port": (
        (firewall(("203.0.113.7/32", (20, 22))), ("reach port 22", "203.0.113.7/32:22")),
        (firewall(("203.0.113.7/32", None)), ("reach port 22",)),
        (firewall(("203.0.113.7/32", UNKNOWN)), ("unknown|",)),
        (firewall(openings=(Opening(key="o", cidr="pl-1", ports=(22, 22)),)), ("fail|o|",)),
    ),
}
"""Subjects with words of what a rule says of them."""

OFF = {"lifecycle.pattern": "bursty", "lifecycle.idle.after": "off", "lifecycle.max_lifetime": "off"}
EITHER = Cases(
    passes=(
        spec(),
        spec({**OFF, "lifecycle.max_spend": "200 USD"}),
        spec({**OFF, "lifecycle.lease": "2h"}),
        spec({**OFF, "lifecycle.max_spend": "200 USD"}, unknown=("lifecycle.lease",)),
    ),
    fails=(spec(OFF),),
    boundary=(spec(), spec(OFF)),
    unknowns=(spec(OFF, unknown=("lifecycle.lease",)), spec(OFF, unknown=("lifecycle.max_spend",))),
    silent=(spec({**OFF, "lifecycle.pattern": "steady"}), spec({"lifecycle.pattern": "steady"})),
)


def _either(other: str, remedy: str) -> Cases:
    """A rule that the other of idle rule and lifetime can stand in for, without a limit of the organisation."""
    return replace(
        EITHER,
        passes=(*EITHER.passes, spec({**OFF, other: "12h"}), spec({**OFF, other: ...})),
        unknowns=(*EITHER.unknowns, spec({**OFF, other: "12h"}, unknown=(other,))),
        says=((spec(OFF), (remedy,)), (spec(OFF, unknown=("lifecycle.lease",)), ("whether something else does",))),
    )


def _limited(text: str, changes: dict[str, object], **parameters: object) -> Cases:
    steady = {"lifecycle.pattern": "steady"}
    return Cases(
        passes=(spec(), spec(steady)),
        fails=(spec(changes), spec({**changes, **steady})),
        boundary=(spec(), spec(changes)),
        unknowns=(spec(workload=UNKNOWN),),
        parameters=parameters,
        says=((spec(changes), (text,)),),
    )


OTHER: tuple[tuple[str, Cases], ...] = (
    ("idle-rule", _either("lifecycle.max_lifetime", "write lifecycle.idle.after: 30m, or auto")),
    ("lifetime-limit", _either("lifecycle.idle.after", "write lifecycle.max_lifetime: 24h")),
    (
        "idle-rule",
        _limited(
            "write lifecycle.idle.after: 2h, or auto", {"lifecycle.idle.after": "3h"}, max_idle=timedelta(hours=2)
        ),
    ),
    (
        "lifetime-limit",
        _limited(
            "write lifecycle.max_lifetime: 13h", {"lifecycle.max_lifetime": "14h"}, max_lifetime=timedelta(hours=13)
        ),
    ),
    (
        "host-memory",
        Cases(
            passes=(placement(candidate(fit=fit(weights=8 * GIB))),),
            fails=(placement(candidate(fit=fit(weights=9 * GIB))),),
            boundary=(
                placement(candidate(fit=fit(weights=8 * GIB))),
                placement(candidate(fit=fit(weights=8 * GIB + 1))),
            ),
            unknowns=(placement(NOT_KNOWN),),
            parameters={"factor": 2.0},
            says=((placement(candidate(fit=fit(weights=9 * GIB))), ("loading takes up to 18.0 GiB",)),),
        ),
    ),
    (
        "disk-size",
        Cases(
            passes=(placement(candidate(disk_bytes=50 * GIB)),),
            fails=(placement(candidate(disk_bytes=50 * GIB - 1)),),
            boundary=(placement(candidate(disk_bytes=50 * GIB)), placement(candidate(disk_bytes=50 * GIB - 1))),
            unknowns=(placement(NOT_KNOWN),),
            parameters={"factor": 2.0},
        ),
    ),
    ("price-ceiling", Cases((), (), (offered(), offered()), (), {}, silent=(offered(), offered(candidates=UNKNOWN)))),
    ("gpu-ceiling", Cases((), (), (offered(), offered()), (), {}, silent=(offered(), offered(candidates=UNKNOWN)))),
    (
        "endless-cost",
        Cases(
            passes=(offered(),),
            fails=(
                offered(candidate(price_usd_per_hour=Decimal("0.01")), changes={"lifecycle": {"pattern": "steady"}}),
            ),
            boundary=(offered(), offered(changes={"lifecycle": {"pattern": "steady"}})),
            unknowns=(offered(workload=UNKNOWN),),
        ),
    ),
)
"""The same rules with other parameters."""
