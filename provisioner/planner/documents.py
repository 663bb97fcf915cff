"""Plans as JSON documents, both ways (CONTRACTS section 5): same plan, same bytes."""

from __future__ import annotations

import json
from collections.abc import Mapping
from decimal import InvalidOperation
from typing import TYPE_CHECKING, Any

from provisioner.errors import UsageError
from provisioner.planner.cost_documents import (
    cost_document,
    cost_summary,
    money,
    plain_number,
    read_cost,
    read_money,
)
from provisioner.planner.plan import SCHEMA, Alternative, Plan, PlannedOffer, Rejection, StorageItem
from provisioner.sizing.footprint import Assumption, Footprint, MemoryTerms
from provisioner.sizing.layout import Layout
from provisioner.sizing.throughput import Throughput
from provisioner.units import DiskSpeed
from provisioner.vocabulary import Sharding

if TYPE_CHECKING:
    from provisioner.sizing.outlook import Outlook

Document = dict[str, Any]

_NO_SUPPLY: Document = {"likelihood": "unknown", "as_of": None}
"""Plans saved before supply was part of them."""
TERM_FIELDS = (
    "weights_bytes",
    "kv_cache_bytes",
    "activation_bytes",
    "gradient_bytes",
    "optimizer_bytes",
    "overhead_bytes",
    "total_bytes",
    "low_bytes",
    "high_bytes",
)
RATE_FIELDS = (
    "decode_tokens_per_s_per_replica",
    "tokens_per_s_per_request",
    "time_to_first_token_s",
    "train_tokens_per_s",
    "images_per_s",
    "low",
    "high",
    "bound_by",
)
OTHER_RATE_FIELDS = ("train_samples_per_s", "realtime_factor", "requests_per_s", "unknown")
"""Rates beside the contracted ones, and why a rate is not known."""


def plan_json(plan: Plan, **extra: Any) -> str:
    """The bytes of a plan on standard output and in saved files, ``extra`` keys (``error``) last, with a final newline."""
    return json.dumps(plan_document(plan) | extra, indent=2, ensure_ascii=False) + "\n"


def plan_document(plan: Plan) -> Document:
    """The contracted object ``gpuprov.plan/1``; money as decimal strings, unknown as null."""
    return {
        "schema": SCHEMA,
        "workload": {
            "name": plan.workload_name,
            "task": plan.task,
            "digest": plan.workload_digest,
            "spec": plan.workload_spec,
        },
        "catalog": {"digest": plan.catalog_digest, "as_of": plan.catalog_as_of},
        "verdict": plan.verdict,
        "choice": _offer_document(plan.choice) if plan.choice else None,
        "footprint": footprint_document(plan.footprint) if plan.footprint else None,
        "largest": dict(plan.largest) or None,
        "throughput": throughput_document(plan.throughput, plan.outlook) if plan.throughput else None,
        "cost": cost_document(plan.cost) if plan.cost else None,
        "storage": [_storage_document(item) for item in plan.storage],
        "launch": {"argv": list(plan.launch_argv), "env": dict(sorted(plan.launch_env.items()))},
        "failover": [_offer_document(offer) for offer in plan.failover],
        "alternatives": [_alternative_document(alternative) for alternative in plan.alternatives],
        "rejections": [_rejection_document(rejection) for rejection in plan.rejections],
        "warnings": list(plan.warnings),
        "closest": list(plan.closest),
        "what_if": list(plan.what_if),
    }


def plan_from_document(document: Mapping[str, Any]) -> Plan:
    """The plan of a document, as ``plan_document`` wrote it.

    Raises:
        UsageError: the document is no plan, or a part of it is missing or of another kind.
    """
    if not isinstance(document, Mapping) or document.get("schema") != SCHEMA:
        found = document.get("schema") if isinstance(document, Mapping) else type(document).__name__
        raise UsageError(
            f"this is no plan: schema is {found!r}, not {SCHEMA!r}",
            remedy="save one with `gpuprov plan SPEC --format json -o FILE`",
        )
    try:
        return _read_plan(document)
    except KeyError as error:
        raise UsageError(f"the plan lacks the key {error}", remedy="make the plan again") from None
    except (TypeError, ValueError, AttributeError, InvalidOperation) as error:
        raise UsageError(f"the plan is damaged: {error}", remedy="make the plan again") from None


def _read_plan(document: Mapping[str, Any]) -> Plan:
    workload, catalog, launch = document["workload"], document["catalog"], document["launch"]
    return Plan(
        workload_name=_text(workload["name"]),
        task=_text(workload["task"]),
        workload_digest=_text(workload["digest"]),
        workload_spec=dict(workload["spec"]),
        catalog_digest=_text(catalog["digest"]),
        catalog_as_of=_text(catalog["as_of"]),
        verdict=_text(document["verdict"]),
        choice=_read_offer(document["choice"]) if document["choice"] else None,
        footprint=_read_footprint(document["footprint"]) if document["footprint"] else None,
        throughput=_read_throughput(document["throughput"]) if document["throughput"] else None,
        outlook=_read_outlook(document["throughput"]) if document["throughput"] else None,
        cost=read_cost(document["cost"]) if document["cost"] else None,
        storage=tuple(_read_storage(item) for item in document["storage"]),
        launch_argv=tuple(_text(word) for word in launch["argv"]),
        launch_env={_text(key): _text(value) for key, value in launch["env"].items()},
        failover=tuple(_read_offer(offer) for offer in document["failover"]),
        alternatives=tuple(_read_alternative(alternative) for alternative in document["alternatives"]),
        rejections=tuple(_read_rejection(rejection) for rejection in document["rejections"]),
        warnings=tuple(_text(warning) for warning in document["warnings"]),
        largest={_text(name): int(value) for name, value in (document.get("largest") or {}).items()},
        closest=tuple(_text(change) for change in document.get("closest", ())),
        what_if=tuple(_text(change) for change in document.get("what_if", ())),
    )


def _offer_document(offer: PlannedOffer) -> Document:
    layout = offer.layout
    return {
        "cloud": offer.cloud,
        "region": offer.region,
        "zone": offer.zone,
        "instance_type": offer.instance_type,
        "instances": offer.instances,
        "gpu": offer.gpu,
        "gpus_per_instance": plain_number(offer.gpus_per_instance),
        "capacity_type": offer.capacity_type,
        "price_usd_per_hour": money(offer.price_usd_per_hour),
        "price_as_of": offer.price_as_of,
        "interconnect": offer.interconnect,
        "layout": {
            "tensor_parallel": layout.tensor_parallel,
            "pipeline_parallel": layout.pipeline_parallel,
            "data_parallel": layout.data_parallel,
            "replicas": layout.replicas,
            "sharding": str(layout.sharding),
        },
        "reasons": list(offer.reasons),
        "supply": {"likelihood": offer.supply, "as_of": offer.supply_as_of},
    }


def _read_offer(document: Mapping[str, Any]) -> PlannedOffer:
    layout = document["layout"]
    supply = document.get("supply") or _NO_SUPPLY
    return PlannedOffer(
        cloud=_text(document["cloud"]),
        region=_text(document["region"]),
        zone=document["zone"],
        instance_type=_text(document["instance_type"]),
        instances=_parts(document["instances"]),
        gpu=_text(document["gpu"]),
        gpus_per_instance=float(document["gpus_per_instance"]),
        capacity_type=_text(document["capacity_type"]),
        price_usd_per_hour=read_money(document["price_usd_per_hour"]),
        price_as_of=document["price_as_of"],
        interconnect=_text(document["interconnect"]),
        layout=Layout(
            tensor_parallel=_parts(layout["tensor_parallel"]),
            pipeline_parallel=_parts(layout["pipeline_parallel"]),
            data_parallel=_parts(layout["data_parallel"]),
            replicas=_parts(layout["replicas"]),
            sharding=Sharding(layout.get("sharding", Sharding.NONE)),
        ),
        reasons=tuple(_text(reason) for reason in document["reasons"]),
        supply=_text(supply["likelihood"]),
        supply_as_of=supply["as_of"],
    )


def footprint_document(footprint: Footprint) -> Document:
    """The contracted ``footprint`` object."""
    return {
        "per_gpu": {key: getattr(footprint.per_gpu, key) for key in TERM_FIELDS},
        "usable_bytes": footprint.usable_bytes,
        "headroom_bytes": footprint.headroom_bytes,
        "allocated_bytes": footprint.allocated_bytes,
        "reserved_bytes": footprint.reserved_bytes,
        "device_bytes": footprint.device_bytes,
        "assumptions": [
            {"name": each.name, "value": each.value, "source": each.source} for each in footprint.assumptions
        ],
    }


def _read_footprint(document: Mapping[str, Any]) -> Footprint:
    return Footprint(
        per_gpu=MemoryTerms(**{key: document["per_gpu"][key] for key in TERM_FIELDS}),
        usable_bytes=_count(document["usable_bytes"]),
        allocated_bytes=_count(document["allocated_bytes"]),
        reserved_bytes=_count(document["reserved_bytes"]),
        device_bytes=_count(document["device_bytes"]),
        assumptions=tuple(Assumption(each["name"], each["value"], each["source"]) for each in document["assumptions"]),
    )


def throughput_document(throughput: Throughput, outlook: Outlook | None = None) -> Document:
    """The contracted ``throughput`` object, with the outlook's keys where there is one."""
    document = {key: getattr(throughput, key) for key in (*RATE_FIELDS, *OTHER_RATE_FIELDS)}
    if outlook is not None:
        from provisioner.planner.outlooks import outlook_document

        document |= outlook_document(outlook)
    return document


def _read_throughput(document: Mapping[str, Any]) -> Throughput:
    rates = {key: document[key] for key in RATE_FIELDS}
    return Throughput(**rates, **{key: document.get(key) for key in OTHER_RATE_FIELDS})


def _read_outlook(document: Mapping[str, Any]) -> Outlook | None:
    from provisioner.planner.outlooks import read_outlook

    return read_outlook(document)


def _alternative_document(alternative: Alternative) -> Document:
    return _offer_document(alternative.offer) | {
        "footprint": footprint_document(alternative.footprint),
        "cost": cost_summary(alternative.cost),
        "why_not": alternative.why_not,
    }


def _read_alternative(document: Mapping[str, Any]) -> Alternative:
    return Alternative(
        offer=_read_offer(document),
        footprint=_read_footprint(document["footprint"]),
        cost=read_cost(document["cost"]),
        why_not=_text(document.get("why_not", "")),
    )


def _rejection_document(rejection: Rejection) -> Document:
    return {
        "offer": rejection.offer,
        "filter": rejection.filter,
        "reason": rejection.reason,
        "needed": rejection.needed,
        "available": rejection.available,
    }


def _read_rejection(document: Mapping[str, Any]) -> Rejection:
    return Rejection(
        offer=_text(document["offer"]),
        filter=_text(document["filter"]),
        reason=_text(document["reason"]),
        needed=document["needed"],
        available=document["available"],
    )


def _storage_document(item: StorageItem) -> Document:
    speed = {"iops": item.speed.iops, "throughput_mib_per_s": item.speed.mib_per_s} if item.speed else {}
    return {
        "name": item.name,
        "kind": item.kind,
        "size_bytes": item.size_bytes,
        "service": item.service,
        "usd_per_month": money(item.usd_per_month),
        "count": item.count,
        **speed,
    }


def _read_storage(document: Mapping[str, Any]) -> StorageItem:
    return StorageItem(
        name=_text(document["name"]),
        kind=_text(document["kind"]),
        size_bytes=_count(document["size_bytes"]),
        service=document["service"],
        usd_per_month=read_money(document["usd_per_month"]),
        count=_count(document.get("count", 1)),
        speed=DiskSpeed(_count(document["iops"]), _count(document["throughput_mib_per_s"]))
        if "iops" in document
        else None,
    )


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(f"a text is expected, not {value!r}")
    return value


def _parts(value: Any) -> int:
    """A number of machines or of parts, which others divide by."""
    if (count := _count(value)) < 1:
        raise ValueError(f"a number of machines or parallel parts is at least 1, not {count}")
    return count


def _count(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(f"a whole number is expected, not {value!r}")
    return value
