"""What a plan adds to its spec for the machine itself: start command, time to ready, facts of each offer, lifetime of its run."""

from __future__ import annotations

from collections.abc import Collection
from datetime import timedelta
from math import ceil
from typing import Any

from provisioner.planner.plan import Plan
from provisioner.sizing.start_up import idle_after_s
from provisioner.units import format_duration
from provisioner.workload.spec import Workload

LIFETIME_FACTOR = 2
"""Lifetime of a run of predicted length: twice that, since predictions err and a run cut short is lost work."""


def node_document(plan: Plan, offers: Collection[str]) -> dict[str, Any]:
    """The input ``node`` of a ``GpuInstance``.

    Args:
        plan: with its launch command and its predicted start.
        offers: keys of the offers that the machine may land on.
    """
    start = plan.outlook.start if plan.outlook is not None else None
    document: dict[str, Any] = {"offers": {}}
    if plan.launch_argv:
        document |= {"argv": list(plan.launch_argv), "env": dict(plan.launch_env)}
    if start is not None:
        document |= {"startS": round(start.usual_s), "idleAfterS": round(idle_after_s(start))}
    rate = plan.throughput.decode_tokens_per_s_per_replica if plan.throughput is not None else None
    if rate is not None:
        document["plannedTokensPerS"] = round(rate, 1)
    diagnosis = plan.outlook.diagnosis if plan.outlook is not None else None
    if diagnosis is not None:
        document["boundBy"] = diagnosis.bound_by
        if diagnosis.remedies:
            document["remedy"] = diagnosis.remedies[0].words
    candidates = (*((plan.choice,) if plan.choice is not None else ()), *plan.failover)
    for offer in candidates:
        if offer.key in offers:
            price = offer.price_usd_per_hour
            facts = {"gpus": ceil(offer.gpus_per_instance)}
            document["offers"][offer.key] = {**facts, **({"price": str(price)} if price is not None else {})}
    return document


def predicted_lifetime(workload: Workload, plan: Plan) -> str | None:
    """The lifetime that a run's predicted length gives; ``None`` where the spec states one, or no length is predicted."""
    hours = plan.cost.run_hours if plan.cost is not None else None
    if workload.lifecycle.max_lifetime is not None or hours is None:
        return None
    return lifetime_of_run(hours)


def lifetime_of_run(hours: float) -> str:
    """How long the machine of a run of so many predicted hours lives by default, in whole minutes (``3h18m``)."""
    return format_duration(timedelta(minutes=ceil(LIFETIME_FACTOR * hours * 60)))
