"""JSON documents of the stack commands (CONTRACTS section 5)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from provisioner.clouds.cloud import BillableObject, InstanceState
from provisioner.tags import format_time
from provisioner.units import decimal_string
from stacks import foreign
from stacks.inventory import Standing, object_document
from stacks.outcome import Drift, Outcome
from stacks.readiness import endpoint_of, probe_of
from stacks.state import StackState

if TYPE_CHECKING:
    from stacks.apply import Applied
    from stacks.locks import EngineLock
    from stacks.teardown import Ended

_OUTPUTS = {
    "provider": "provider",
    "cloud": "cloud",
    "region": "region",
    "zone": "zone",
    "instance_id": "instanceId",
    "instance_type": "instanceType",
    "capacity_type": "capacityType",
    "private_ip": "privateIp",
    "public_ip": "publicIp",
    "volume_ids": "volumeIds",
    "expires_at": "expiresAt",
    "ready": "ready",
    "endpoint": "endpoint",
}
"""Key of the document -> output of the machine; an output that is not there is null."""


def outputs_document(state: StackState | None, ready: bool | None = None) -> dict[str, Any]:
    """The machine's outputs under their contracted names; empty where there is no machine.

    Args:
        state: of the stack.
        ready: whether its workload answers; ``None`` where that is not probed, or nobody could be asked: null for a workload
            that has a probe.
    """
    outputs = state.outputs if state is not None else {}
    if not outputs:
        return {}
    document = {key: outputs.get(name) for key, name in _OUTPUTS.items()}
    document["endpoint"] = document["endpoint"] or endpoint_of(state)
    if outputs.get("power") != InstanceState.RUNNING:
        ready = False  # whatever it answered before it was stopped
    if ready is None and probe_of(state) is None:
        return document  # running is all there is to tell
    return {**document, "ready": ready}


def up_document(applied: Applied, price_usd_per_hour: Decimal | None = None) -> dict[str, Any]:
    """``gpuprov.up/1``; a failed ``up`` adds ``error``.

    Args:
        applied: what was done.
        price_usd_per_hour: of the machine.
    """
    provider = applied.decision.provider if applied.decision is not None else None
    return {
        "schema": "gpuprov.up/1",
        "stack": applied.stack,
        "changes": applied.changes.to_document(),
        "outputs": outputs_document(applied.state, applied.ready),
        "price_usd_per_hour": money(price_usd_per_hour),
        "attempts": [attempt.to_document() for attempt in applied.attempts],
        "objects": objects(applied.standing, provider),
        "warnings": list(applied.warnings),
    }


def preview_document(stack: str, outcome: Outcome, plan: Mapping[str, Any]) -> dict[str, Any]:
    """``gpuprov.preview/1``: what an update would do, the drift it found, and the plan behind it."""
    return {
        "schema": "gpuprov.preview/1",
        "stack": stack,
        "changes": outcome.changes.to_document(),
        "steps": [
            {"kind": step.kind, "type": step.type, "name": step.name, "diffs": list(step.diffs)}
            for step in outcome.steps
        ],
        "drift": drift(outcome.drift),
        "warnings": list(outcome.warnings),
        "plan": dict(plan),
    }


def failed_preview_document(stack: str) -> dict[str, Any]:
    """``gpuprov.preview/1`` of a preview that failed; the caller adds ``error``."""
    return {
        "schema": "gpuprov.preview/1",
        "stack": stack,
        "changes": None,
        "steps": [],
        "drift": [],
        "warnings": [],
        "plan": None,
    }


def down_document(ended: Ended) -> dict[str, Any]:
    """``gpuprov.down/1``; a failed ``down`` adds ``error``."""
    return {
        "schema": "gpuprov.down/1",
        "stack": ended.stack,
        "changes": ended.changes.to_document(),
        "removed": ended.is_removed,
        "kept": [object_document(entry, ended.provider) for entry in ended.kept],
        "objects": objects(ended.standing, ended.provider),
    }


def refresh_document(kind: str, stack: str, outcome: Outcome, state: StackState | None) -> dict[str, Any]:
    """``gpuprov.refresh/1``, ``gpuprov.stop/1`` and ``gpuprov.start/1``: what the cloud showed, and the state after it."""
    return {
        "schema": f"gpuprov.{kind}/1",
        "stack": stack,
        "state": power_of(state),
        "drift": drift(outcome.drift),
        "outputs": outputs_document(state),
    }


def unlock_document(stack: str, cleared: Iterable[EngineLock]) -> dict[str, Any]:
    """``gpuprov.unlock/1``: the locks that were cleared; what a lock does not tell is null."""
    return {
        "schema": "gpuprov.unlock/1",
        "stack": stack,
        "cleared": [
            {
                "user": lock.user,
                "host": lock.host,
                "pid": lock.pid,
                "created_at": format_time(lock.at) if lock.at is not None else None,
            }
            for lock in cleared
        ],
    }


def drift(found: Iterable[Drift]) -> list[dict[str, Any]]:
    """Differences that a refresh found; resources without one are left out."""
    return [
        {
            "type": entry.type,
            "name": entry.name,
            "id": entry.id,
            "gone": entry.is_gone,
            "health": entry.ailment,
            "foreign": [foreign.document(change) for change in entry.foreign],
            "rules": list(entry.rules),
            "changes": {} if entry.is_gone else {k: {"from": a, "to": b} for k, (a, b) in entry.changed().items()},
        }
        for entry in found
        if entry.is_gone or entry.changed() or entry.ailment is not None or entry.foreign or entry.rules
    ]


def objects(standing: Standing | None, provider: str | None) -> list[dict[str, Any]]:
    """What the cloud holds."""
    found: tuple[BillableObject, ...] = standing.objects if standing is not None else ()
    return [object_document(entry, provider or "sandbox") for entry in found]


def power_of(state: StackState | None) -> str:
    """One word for a stack: what its machine was last seen doing, or ``no machine``."""
    if state is None or not state.own:
        return "empty"
    power = state.outputs.get("power")
    return str(power) if power else "no machine"


def money(amount: Decimal | None) -> str | None:
    """An amount for JSON; unknown is null."""
    return decimal_string(amount) if amount is not None else None
