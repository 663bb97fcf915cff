"""Facts for tests, by hand: each builder gives a subject that passes, and takes what should differ."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any

from policies.facts import (
    Candidate,
    Disk,
    DiskFacts,
    FirewallFacts,
    MachineFacts,
    OfferedFacts,
    Opening,
    PlacementFacts,
    Source,
    SpecFacts,
)
from provisioner.catalog.snapshot import Catalog, load_catalog
from provisioner.planner.judge import OfferFit
from provisioner.sizing.footprint import Footprint, MemoryTerms
from provisioner.sizing.layout import Layout
from provisioner.sizing.models import find_model
from provisioner.sizing.shapes import ModelShape
from provisioner.units import GIB
from provisioner.workload.spec import Workload

BASE: dict[str, Any] = {
    "version": 1,
    "name": "chat",
    "task": "serve",
    "model": {"id": "meta-llama/Llama-3.1-8B-Instruct", "weights": "bf16"},
    "inference": {"engine": "vllm", "context_tokens": 8192, "concurrency": 4},
    "placement": {"clouds": ["aws", "gcp"], "max_gpus": 1, "max_price": "5 USD/h", "capacity": "on-demand"},
    "lifecycle": {
        "pattern": "bursty",
        "hours_per_month": 120,
        "idle": {"after": "30m", "then": "stop"},
        "stopped": {"terminate_after": "7d"},
        "max_lifetime": "12h",
    },
    "tags": {"team": "search", "owner": "ana"},
}
TRAINING: dict[str, Any] = {
    "version": 1,
    "name": "tune",
    "task": "finetune",
    "model": {"id": "meta-llama/Llama-3.1-8B-Instruct"},
    "training": {"method": "lora", "sequence_tokens": 2048, "checkpoint": {"every": "30m", "resumable": True}},
    "tags": {"owner": "ana"},
}


@functools.cache
def catalog() -> Catalog:
    return load_catalog()


def document(changes: Mapping[str, Any] | None = None, base: Mapping[str, Any] = BASE) -> dict[str, Any]:
    """A spec document with dotted keys set, or removed where the value is ``...``."""
    found: dict[str, Any] = _copy(base)
    for key, value in (changes or {}).items():
        *above, last = key.split(".")
        place = found
        for name in above:
            place = place.setdefault(name, {})
        if value is ...:
            place.pop(last, None)
        else:
            place[last] = _copy(value)
    return found


def _copy(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _copy(item) for key, item in value.items()}
    return list(value) if isinstance(value, list) else value


def workload(changes: Mapping[str, Any] | None = None, base: Mapping[str, Any] = BASE) -> Workload:
    return Workload.from_document(document(changes, base))


@functools.cache
def _shape(model: str) -> ModelShape:
    return find_model(model)


def shape_of(wanted: Workload) -> ModelShape:
    return _shape(wanted.model.id or "")


def spec(changes: Mapping[str, Any] | None = None, *, unknown: tuple[str, ...] = (), **facts: Any) -> SpecFacts:
    base = facts.pop("base", BASE)
    wanted = workload(changes, base)
    return SpecFacts(
        **{
            "name": wanted.name,
            "path": "workload.yaml",
            "source": Source.SPEC,
            "tags": wanted.tags,
            "workload": wanted,
            "unknown_keys": frozenset(unknown),
            **facts,
        }
    )


def footprint(total: int, high: int | None = None, usable: int = 20 * GIB, weights: int = 15 * GIB) -> Footprint:
    terms = MemoryTerms(weights, GIB, GIB, None, None, GIB, total, total, high if high is not None else total)
    return Footprint(terms, usable, total, total, total)


def fit(total: int = 18 * GIB, high: int | None = None, *, layout: Layout | None = None, **sizes: int) -> OfferFit:
    found = footprint(total, high, **sizes)
    return OfferFit(found.fit, found, layout or Layout(), (), "L4")


def candidate(**facts: Any) -> Candidate:
    name = facts.get("instance_type", "g6.xlarge")
    cloud = facts.get("cloud", "aws")
    row = catalog().instances.get((cloud, name)) if isinstance(name, str) and isinstance(cloud, str) else None
    gpu = catalog().gpus.get(row.gpu_model or "") if row is not None else None
    from decimal import Decimal

    given = {
        "key": "choice",
        "cloud": "aws",
        "instance_type": "g6.xlarge",
        "region": "us-east-1",
        "capacity_type": "on-demand",
        "instance": row,
        "gpu": gpu,
        "fit": fit(),
        "price_usd_per_hour": Decimal("0.8"),
        "price_as_of": "2026-11-01",
        **facts,
    }
    return Candidate(**given)


def placement(*candidates: Candidate, kind: type[PlacementFacts] = PlacementFacts, **facts: Any) -> PlacementFacts:
    changes, base = facts.pop("changes", None), facts.pop("base", BASE)
    wanted = workload(changes, base)
    given = {
        "name": wanted.name,
        "path": "plan.json",
        "source": Source.PLAN,
        "tags": wanted.tags,
        "workload": wanted,
        "shape": shape_of(wanted),
        "candidates": candidates or (candidate(),),
        "pinned": True,
        "suggest": lambda: "take g6e.xlarge",
        **facts,
    }
    return kind(**given)


def offered(*candidates: Candidate, **facts: Any) -> OfferedFacts:
    found = placement(*candidates, kind=OfferedFacts, **facts)
    assert isinstance(found, OfferedFacts)
    return found


def machine(**facts: Any) -> MachineFacts:
    name = facts.get("instance_type", "g6.xlarge")
    cloud = facts.get("cloud", "aws")
    row = catalog().instances.get((cloud, name)) if isinstance(name, str) else None
    given = {
        "name": "aws_instance.gpu",
        "path": "tfplan.json",
        "source": Source.TERRAFORM,
        "tags": {"owner": "ana", "gpuprov:workload": "workload.yaml"},
        "cloud": "aws",
        "instance_type": "g6.xlarge",
        "instance": row,
        "disks": (Disk(key="root", role="root", encrypted=True, customer_key=True, size_bytes=100 * GIB),),
        "metadata_tokens": "required",
        "metadata_hop_limit": 1,
        "image": "ami-0123456789abcdef0",
        "public_ip": False,
        "has_gpu": True,
        "workload_path": "workload.yaml",
        **facts,
    }
    return MachineFacts(**given)


def gcp(**facts: Any) -> MachineFacts:
    given = {
        "cloud": "gcp",
        "name": "google_compute_instance.gpu",
        "instance_type": "g2-standard-4",
        "metadata_tokens": None,
        "metadata_hop_limit": None,
        "image": "projects/p/global/images/one",
        "on_host_maintenance": "TERMINATE",
        "scopes": ("https://www.googleapis.com/auth/devstorage.read_only",),
        "service_account": "model@p.iam.gserviceaccount.com",
        **facts,
    }
    return machine(**given)


def volume(**facts: Any) -> DiskFacts:
    disk = Disk(**{"key": "data", "role": "data", "encrypted": True, "customer_key": True, **facts})
    return DiskFacts(name="aws_ebs_volume.data", path="tfplan.json", source=Source.TERRAFORM, disk=disk)


def firewall(*openings: tuple[Any, Any], **facts: Any) -> FirewallFacts:
    given = {
        "name": "aws_security_group.gpu",
        "path": "tfplan.json",
        "source": Source.TERRAFORM,
        "openings": tuple(Opening(key="openings[0].cidr_blocks", cidr=cidr, ports=ports) for cidr, ports in openings),
        **facts,
    }
    return FirewallFacts(**given)
