"""Two plans side by side: what differs in choice, memory, speed and bill."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from provisioner.planner.cost_documents import MONEY_FIELDS, OTHER_MONEY_FIELDS
from provisioner.planner.documents import RATE_FIELDS, TERM_FIELDS, plan_document
from provisioner.planner.plan import Plan

SCHEMA = "gpuprov.plan-comparison/1"
PARTS = ("choice", "memory", "speed", "bill")

_CHOICE = ("cloud", "region", "instance_type", "instances", "gpu", "gpus_per_instance", "capacity_type")
_LAYOUT = ("tensor_parallel", "pipeline_parallel", "data_parallel", "replicas", "sharding")
_BILL = (*MONEY_FIELDS, *OTHER_MONEY_FIELDS, "hours_per_month", "run_hours")

Value = str | int | float | None


class Difference(NamedTuple):
    """One value that two plans give differently, as their documents write it; ``None`` is unknown or absent."""

    part: str
    """One of ``PARTS``."""
    name: str
    """The key of the plan's document."""
    a: Value
    b: Value

    @property
    def ratio(self) -> float | None:
        """``b`` per ``a`` where both are numbers, or amounts of money, and ``a`` is above 0."""
        if self.a is None or self.b is None or (self.part == "choice" and self.name != "price_usd_per_hour"):
            return None
        try:
            a, b = float(self.a), float(self.b)
        except ValueError:
            return None
        return b / a if a > 0 else None


def compare_plans(a: Plan, b: Plan) -> tuple[Difference, ...]:
    """All differences, in the order of the documents."""
    ours, theirs = dict(_values(plan_document(a))), dict(_values(plan_document(b)))
    return tuple(
        Difference(part, name, ours[part, name], theirs[part, name])
        for part, name in ours
        if ours[part, name] != theirs[part, name]
    )


def comparison_document(plans: tuple[Plan, Plan], sources: tuple[str, str]) -> dict[str, Any]:
    """The object ``gpuprov.plan-comparison/1``."""
    sides = [
        {
            "source": source,
            "workload": {"name": plan.workload_name, "task": plan.task, "digest": plan.workload_digest},
            "catalog": {"digest": plan.catalog_digest, "as_of": plan.catalog_as_of},
            "verdict": plan.verdict,
        }
        for plan, source in zip(plans, sources, strict=True)
    ]
    return {
        "schema": SCHEMA,
        "a": sides[0],
        "b": sides[1],
        "differences": [each._asdict() for each in compare_plans(*plans)],
    }


def _values(document: dict[str, Any]) -> Iterator[tuple[tuple[str, str], Value]]:
    """Part and name of each compared value; all of them for every plan, so that two plans can be put side by side."""
    choice, footprint = document["choice"] or {}, document["footprint"] or {}
    terms, speed, cost = footprint.get("per_gpu", {}), document["throughput"] or {}, document["cost"] or {}
    yield ("choice", "verdict"), document["verdict"]
    for name in (*_CHOICE, "price_usd_per_hour", "interconnect"):
        yield ("choice", name), choice.get(name)
    for name in _LAYOUT:
        yield ("choice", name), choice.get("layout", {}).get(name)
    for name in TERM_FIELDS:
        yield ("memory", name), terms.get(name)
    for name in ("usable_bytes", "headroom_bytes"):
        yield ("memory", name), footprint.get(name)
    for name in RATE_FIELDS:
        yield ("speed", name), speed.get(name)
    for name in _BILL:
        yield ("bill", name), cost.get(name)
