"""``preview`` and ``up``: a workload to a plan, the plan through the gate, the gate's yes to the engine.

The order is the promise: nothing touches the engine before the plan fits and the gate has passed, nothing bills before the
preview, and every failure after that says what exists and what it costs.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from time import monotonic, sleep
from typing import Any

from policies.finding import Verdict
from policies.plan_gate import judge_plan
from provisioner.catalog.snapshot import Catalog
from provisioner.clouds.cloud import Cloud
from provisioner.errors import Cancelled, GpuprovError, NothingFits, TimedOut, UsageError
from provisioner.planner.explain import refusal_of
from provisioner.planner.plan import Plan, PlannedOffer
from provisioner.workload.spec import Workload
from stacks import pending, preflight, readiness, supply
from stacks.clouds import open_cloud
from stacks.deploy import Session
from stacks.failures import Attempt
from stacks.images import Registry, image_of_plan
from stacks.inventory import Standing, account, ask, held_ids
from stacks.outcome import Changes, Outcome
from stacks.program import INSTANCE_NAME, ProgramInputs, inputs_of_plan
from stacks.provider.inputs import ROOT_VOLUME_BYTES, read_offers
from stacks.site import Site
from stacks.state import StackState
from stacks.sticky import plan_for_stack

_SHOWN_MAX_S = 3.0
_SHOWN_POLL_S = 0.1


@dataclass(frozen=True, slots=True)
class Order:
    """What ``up`` or ``preview`` is asked for."""

    workload: Workload
    catalog: Catalog
    spec: Path
    stack: str
    provider: str | None
    """``--cloud`` or its variable; ``None`` keeps the stack's, or takes the sandbox."""
    saved: Plan | None = None
    """The plan of ``--plan``."""
    replan: bool = False
    wait: str | None = None


@dataclass(frozen=True, slots=True)
class Decision:
    """What will be carried out."""

    plan: Plan
    inputs: ProgramInputs
    provider: str
    verdict: Verdict
    basis: StackState | None
    """The state that the plan was made for."""


@dataclass(frozen=True, slots=True)
class Applied:
    """What ``up`` did, or got to before it failed."""

    stack: str | None
    """``None`` where it failed before a name was known."""
    decision: Decision | None = None
    changes: Changes = field(default_factory=Changes)
    attempts: tuple[Attempt, ...] = ()
    state: StackState | None = None
    standing: Standing | None = None
    warnings: tuple[str, ...] = ()
    ready: bool | None = None
    """Whether the workload answers; ``None`` where that is not probed."""


class ApplyFailed(Exception):
    """``up`` failed after it had begun; carries the error for people and what was done."""

    def __init__(self, error: GpuprovError, applied: Applied) -> None:
        super().__init__(error.message)
        self.error = error
        self.applied = applied


def decide(order: Order, site: Site) -> Decision:
    """Plan, sticky to a live stack, through the gate; no engine with a file backend.

    Raises:
        UsageError: the stack has another provider, or the saved plan is of another spec.
        NoPlan: nothing fits; it carries the plan.
        PolicyViolation: the gate says no.
    """
    state = site.read(order.stack)
    provider = _provider(order, state)
    if order.saved is not None:
        plan = _checked(order.saved, order)
    else:
        plan = plan_for_stack(order.workload, order.catalog, state, provider=provider, replan=order.replan)
    if plan.choice is None:
        raise NoPlan(plan)
    verdict = judge_plan(order.workload, plan, order.catalog, spec=order.spec)
    if refusal := verdict.error():
        raise refusal
    inputs = inputs_of_plan(plan, order.workload, state=state, wait=order.wait)
    return Decision(plan, _with_image(inputs, order, plan, state, provider), provider, verdict, state)


def _with_image(
    inputs: ProgramInputs, order: Order, plan: Plan, state: StackState | None, provider: str
) -> ProgramInputs:
    """The inputs with the image of ``run: auto``; a live stack keeps the digest that it was started with."""
    if order.workload.run != "auto":
        return inputs
    before = state.instance.inputs.get("node") if state is not None and state.instance is not None else None
    kept = before.get("image") if isinstance(before, Mapping) else None
    registry = None if provider == "sandbox" else Registry()
    image = image_of_plan(plan.launch_argv, order.workload, kept, registry)
    return replace(inputs, node={**(inputs.node or {}), "image": image})


class NoPlan(NothingFits):
    """Nothing fits; carries the plan, which is the answer to show."""

    def __init__(self, plan: Plan) -> None:
        closest = plan.closest[0] if plan.closest else "`gpuprov plan --explain` lists every refusal"
        super().__init__(refusal_of(plan), remedy=closest)
        self.plan = plan


def preview(session: Session, decision: Decision) -> Outcome:
    """The engine's preview after a refresh; changes nothing.

    Raises:
        ApplyFailed: the engine, the plugin or the policy pack says no; with what exists.
    """
    if (refused := _refusal(session, decision)) is not None:
        raise failed(session, decision, refused)
    session.ensure(decision.provider)
    outcome = session.preview(decision.inputs, decision.provider, refresh=decision.basis is not None)
    if outcome.failure is not None:
        raise failed(session, decision, outcome.failure, Outcome(attempts=outcome.attempts, warnings=outcome.warnings))
    return outcome


def _refusal(session: Session, decision: Decision) -> GpuprovError | None:
    """Why no offer can be launched; what the cloud says counts where a machine is to be made: a live one needs none of it."""
    if (too_long := preflight.script_refusal(decision.inputs)) is not None:
        return too_long
    outputs = decision.basis.outputs if decision.basis is not None else {}
    if outputs.get("instanceId") and outputs.get("power") not in ("terminated", "interrupted"):
        return None
    if (blind := preflight.credentials_refusal(decision.inputs, decision.provider)) is not None:
        return blind
    offers = read_offers(list(decision.inputs.offers))
    cloud = _cloud(session, decision)
    try:
        found = preflight.look(cloud, offers, decision.inputs.root_bytes or ROOT_VOLUME_BYTES)
    except GpuprovError as error:
        return error
    return preflight.refusal(found, offers)


def discard_new(session: Session, decision: Decision) -> None:
    """Remove a new stack that holds nothing: neither a look nor an update that made nothing may leave a stack behind."""
    if decision.basis is not None:
        return
    state = session.state()
    if state is not None and not state.own and not state.pending:
        session.remove(bookkeeping=True)


def update(session: Session, decision: Decision, seen: Outcome) -> Applied:
    """Carry the decision out, unless the preview has shown that nothing is to be done.

    Args:
        session: the stack under its lock.
        decision: from ``decide``.
        seen: the preview's outcome.

    Raises:
        ApplyFailed: with what exists now.
    """
    state = session.state()
    if is_settled(seen, state):
        cloud = _cloud(session, decision)
        standing = ask(cloud, state)
        ready = readiness.ready_now(cloud, state)
        return Applied(session.stack, decision, seen.changes, (), state, standing, seen.warnings, ready)
    outcome = _remembered(session.update(decision.inputs, decision.provider), decision.provider)
    if outcome.failure is not None:
        raise failed(session, decision, outcome.failure, outcome)
    state = session.state()
    if state is not None and state.pending_creates:
        state = pending.settle(session, decision.provider)
    standing = _look_until_shown(_cloud(session, decision), state)
    try:
        ready = _until_ready(session, decision, state, standing)
    except TimedOut as error:
        session.refresh(decision.provider)  # the machine was told to end: the state shows it
        failure = failed(session, decision, error, outcome)
        failure.applied = replace(failure.applied, ready=False)
        raise failure from error
    return Applied(
        session.stack,
        decision,
        outcome.changes,
        _attempts(outcome, state),
        state,
        standing,
        outcome.warnings,
        ready,
    )


def _until_ready(
    session: Session, decision: Decision, state: StackState | None, standing: Standing | None
) -> bool | None:
    """Whether the workload answers; waits for it unless the user does not.

    Raises:
        TimedOut: it does not answer within 3 times the predicted start.
    """
    probe, cloud = readiness.probe_of(state), _cloud(session, decision)
    if probe is None or state is None:
        return None
    if decision.inputs.wait is None:
        session.watch.say("waits for the workload to answer")
        price = standing.price_usd_per_hour if standing is not None else None
        readiness.wait(cloud, state, replace(probe, price_usd_per_hour=price), session.watch.say)
    return readiness.ready_now(cloud, state)


def _remembered(outcome: Outcome, provider: str) -> Outcome:
    """The outcome of an update, after what it has seen of the supply was kept; with a warning where it could not be."""
    trouble = supply.remember(provider, outcome.told, datetime.now(UTC))
    return replace(outcome, warnings=(*outcome.warnings, trouble)) if trouble else outcome


def failed(session: Session, decision: Decision, error: GpuprovError, outcome: Outcome | None = None) -> ApplyFailed:
    """The failure to raise once the stack is locked: with what was done, what exists now, and what that costs."""
    discard_new(session, decision)
    state = session.state()
    standing = ask(_cloud(session, decision), decision.basis, state)
    done = outcome or Outcome()
    applied = Applied(session.stack, decision, done.changes, _attempts(done, state), state, standing, done.warnings)
    told = _without_stack(error) if state is None and isinstance(error, Cancelled) else error
    failure = ApplyFailed(account(told, standing, state, session.stack), applied)
    failure.__cause__ = error
    return failure


def _without_stack(error: Cancelled) -> Cancelled:
    """A cancellation that left no stack behind: there is nothing to go on from and nothing that `down` could end."""
    return Cancelled(error.message, where=error.where, remedy="no stack is left; the same command begins anew")


def is_settled(seen: Outcome, state: StackState | None) -> bool:
    """Whether a preview shows that an update would change neither a resource nor the state."""
    # What is learned about a disk that was bound late is written with the next change; it is not worth an update.
    drifted = any(drift.is_gone or drift.changed() for drift in seen.drift)
    unfinished = state is None or bool(state.pending) or any(r.init_errors or r.is_doomed for r in state.own)
    return seen.changes.is_empty and not drifted and not unfinished


def machine_price(applied: Applied) -> Decimal | None:
    """Price an hour of the machine where it landed, by the plan; by the cloud where the plan does not know the place."""
    outputs = applied.state.outputs if applied.state is not None else {}
    if applied.decision is not None and outputs:
        plan = applied.decision.plan
        offers: tuple[PlannedOffer, ...] = (*((plan.choice,) if plan.choice else ()), *plan.failover)
        for offer in offers:
            if _is_at(offer, outputs) and offer.price_usd_per_hour is not None:
                return offer.price_usd_per_hour
    machines = [o for o in applied.standing.objects if o.kind == "instance"] if applied.standing else []
    price = machines[0].price_usd_per_hour if machines else None
    return Decimal(price) if price is not None else None


def _is_at(offer: PlannedOffer, outputs: Mapping[str, Any]) -> bool:
    here = (outputs.get("cloud"), outputs.get("region"), outputs.get("instanceType"), outputs.get("capacityType"))
    there = (offer.cloud, offer.region, offer.instance_type, str(offer.capacity_type))
    return here == there and offer.zone in (None, outputs.get("zone"))


def _provider(order: Order, state: StackState | None) -> str:
    made_on = state.provider if state is not None else None
    provider = order.provider or made_on or "sandbox"
    if made_on is not None and provider != made_on:
        raise UsageError(
            f"stack {order.stack!r} was made on {made_on}, not on {provider}",
            remedy=f"use --cloud {made_on}, another --stack, or `gpuprov down {order.stack}` first",
        )
    open_cloud(provider, Path())  # refuses a provider that this version cannot reach, before anything else
    return provider


def _checked(saved: Plan, order: Order) -> Plan:
    if saved.workload_digest != order.workload.digest:
        raise UsageError(
            f"the saved plan was made from another spec ({saved.workload_name}, {saved.workload_digest[:19]}…)",
            where=str(order.spec),
            remedy="make it again: gpuprov plan SPEC --format json -o PLAN.json",
        )
    return saved


def _attempts(outcome: Outcome, state: StackState | None) -> tuple[Attempt, ...]:
    """Offers tried in this run: from the failure, else from the machine if this run made it."""
    if outcome.attempts:
        return outcome.attempts
    made = any(step.name == INSTANCE_NAME and step.kind in ("create", "replace") for step in outcome.steps)
    entries = state.outputs.get("attempts") or () if made and state is not None else ()
    return tuple(Attempt.from_document(entry) for entry in entries)


def _cloud(session: Session, decision: Decision) -> Cloud:
    """The cloud that the plan is carried out on, opened with the spec's own settings for it."""
    account = decision.basis.account if decision.basis is not None else None
    return open_cloud(decision.provider, session.site.home, decision.inputs.workload.get(decision.provider), account)


def _look_until_shown(cloud: Cloud, state: StackState | None) -> Standing | None:
    """What the cloud holds once it shows what was just made: lists lag, and a bill without the new disk would be wrong."""
    until = monotonic() + _SHOWN_MAX_S
    while True:
        standing = ask(cloud, state)
        missing = held_ids(state) - {entry.id for entry in standing.objects} if standing is not None else set()
        if not missing or monotonic() > until:
            return standing
        sleep(_SHOWN_POLL_S)
