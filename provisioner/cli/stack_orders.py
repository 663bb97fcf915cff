"""What ``up`` and ``preview`` do between parsing and printing."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from provisioner.catalog.snapshot import load_catalog
from provisioner.cli import stack_options as options
from provisioner.cli.located import located
from provisioner.cli.settings import current, say, warn
from provisioner.clouds.cloud import InstanceState
from provisioner.errors import GpuprovError, UsageError
from provisioner.planner.documents import plan_document, plan_from_document
from provisioner.report.tables import print_plan
from provisioner.units import HOURS_PER_MONTH, format_usd
from provisioner.workload.load import Loaded, load
from stacks.altered import refuse_altered
from stacks.apply import (
    Applied,
    ApplyFailed,
    Decision,
    NoPlan,
    Order,
    decide,
    discard_new,
    failed,
    is_settled,
    machine_price,
    preview,
    update,
)
from stacks.deploy import Session
from stacks.documents import preview_document
from stacks.progress import preview_lines
from stacks.readiness import endpoint_of

if TYPE_CHECKING:
    from provisioner.planner.plan import Plan
    from stacks.outcome import Outcome
    from stacks.progress import Progress

NOTHING_REAL = "sandbox: nothing real is created"


def load_spec(spec: Path) -> Loaded:
    """The spec, its warnings said."""
    loaded = load(spec)
    for warning in loaded.warnings:
        warn(warning)
    return loaded


def order_for(
    loaded: Loaded,
    *,
    cloud: str | None,
    stack: str | None,
    replan: bool = False,
    saved: Path | None = None,
    catalog: Path | None = None,
    wait: str = "ready",
) -> Order:
    """What is asked for, from a spec and options."""
    return Order(
        workload=loaded.workload,
        catalog=load_catalog(catalog),
        spec=loaded.path,
        stack=options.checked_name(stack or loaded.workload.name),
        provider=options.chosen_cloud(cloud),
        saved=_read_plan(saved) if saved is not None else None,
        replan=replan,
        wait="created" if wait == "created" else None,
    )


def _read_plan(path: Path) -> Plan:
    remedy = "save one: gpuprov plan SPEC --format json -o PLAN.json"
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror}", remedy=remedy) from None
    except ValueError as error:
        raise UsageError(f"{path} is no JSON ({error})", remedy=remedy) from None
    if not isinstance(document, Mapping):
        raise UsageError(f"{path} holds no plan", remedy=remedy)
    return plan_from_document(document)


def decide_order(order: Order, loaded: Loaded, site: Any) -> Decision:
    """The decision, with errors placed in the spec."""
    with located(loaded):
        return decide(order, site)


def apply_order(order: Order, loaded: Loaded, backend: str | None, *, yes: bool, lock_wait: timedelta) -> Applied:
    """Decide, show, preview, ask, and carry out."""
    site = options.open_site(backend)
    decision = decide_order(order, loaded, site)
    show_decision(decision)
    watch, progress = options.screen()
    with Session(site, order.stack, "up", watch, lock_wait) as session:
        try:
            return _apply(session, order, loaded, decision, progress, yes=yes)
        except ApplyFailed:
            raise
        except Exception as error:
            raise failed(session, decision, options.classified(error)) from error


def _apply(
    session: Session, order: Order, loaded: Loaded, decision: Decision, progress: Progress, *, yes: bool
) -> Applied:
    """Preview, ask and carry out, under the lock."""
    if session.state() != decision.basis:  # another command was first
        decision = decide_order(order, loaded, session.site)
    progress.is_on = False
    seen = preview(session, decision)
    show_preview(seen)
    refuse_altered(order.stack, decision.inputs, seen)
    if not is_settled(seen, session.state()):
        options.confirm(f"Carry this out as stack {order.stack!r}?", yes=yes)
    progress.is_on = True
    applied = update(session, decision, seen)
    for warning in applied.warnings:
        if warning not in seen.warnings:  # those were told with the preview
            warn(warning)
    return applied


def preview_order(
    order: Order, loaded: Loaded, backend: str | None, *, lock_wait: timedelta
) -> tuple[Decision, Outcome]:
    """Decide and ask the engine what it would change."""
    site = options.open_site(backend)
    decision = decide_order(order, loaded, site)
    watch, progress = options.screen()
    progress.is_on = False
    with Session(site, order.stack, "preview", watch, lock_wait) as session:
        seen = preview(session, decision)
        discard_new(session, decision)
        return decision, seen


def seen_document(stack: str, decision: Decision, seen: Outcome) -> dict[str, Any]:
    """The preview as JSON, with its plan."""
    return preview_document(stack, seen, plan_document(decision.plan))


def print_preview(stack: str, decision: Decision, seen: Outcome) -> None:
    """The plan and the changes on standard output: they are what was asked for."""
    print_plan(decision.plan, color=current().color)
    click.echo(f"preview of stack {stack}:")
    for line in preview_lines(seen):
        click.echo(line)
    show_findings(decision)
    for warning in seen.warnings:
        warn(warning)


def show_findings(decision: Decision) -> None:
    """What the gate remarked without saying no: one line a rule, however many offers it is about."""
    by_rule: dict[str, list[str]] = {}
    for finding in decision.verdict.findings:
        by_rule.setdefault(finding.rule.id, []).append(finding.outcome.message)
    for rule, messages in by_rule.items():
        more = f" (and {len(messages) - 1} more)" if len(messages) > 1 else ""
        warn(f"{rule}: {messages[0]}{more}")


def show_decision(decision: Decision) -> None:
    """The plan and what the gate remarked, on standard error."""
    settings = current()
    if not settings.quiet:
        print_plan(decision.plan, file=sys.stderr, color=settings.use_color)
    show_findings(decision)
    if decision.provider == "sandbox":
        say(NOTHING_REAL)


def show_preview(seen: Outcome) -> None:
    """What will change."""
    say("preview:")
    for line in preview_lines(seen):
        say(line)
    for warning in seen.warnings:
        warn(warning)


def failure_document(error: GpuprovError, document: Mapping[str, Any]) -> Mapping[str, Any]:
    """The document of a failure before anything was done: where nothing fits, the plan itself."""
    if isinstance(error, NoPlan):
        return {**document, **plan_document(error.plan)}
    return document


def print_result(applied: Applied) -> None:
    """The machine, its price, and how to end it."""
    outputs = applied.state.outputs if applied.state is not None else {}
    changes = applied.changes
    parts = [f"{count} {name}d" for name, count in _counts(applied)]
    click.echo(f"stack {applied.stack}: {'no changes' if changes.is_empty else ', '.join(parts)}")
    for label, key in (
        ("instance", "instanceId"),
        ("type", "instanceType"),
        ("capacity", "capacityType"),
        ("cloud", "cloud"),
        ("region", "region"),
        ("zone", "zone"),
        ("state", "power"),
        ("private ip", "privateIp"),
        ("public ip", "publicIp"),
        ("expires at", "expiresAt"),
    ):
        if outputs.get(key):
            click.echo(f"  {label:<12}{outputs[key]}")
    endpoint = endpoint_of(applied.state)
    if endpoint is not None:
        word = {True: "answers", False: "does not answer yet", None: "not probed"}[applied.ready]
        click.echo(f"  {'endpoint':<12}{endpoint} ({word})")
    if outputs.get("volumeIds"):
        click.echo(f"  {'data disks':<12}{', '.join(outputs['volumeIds'])}")
    _print_price(applied)


def _counts(applied: Applied) -> list[tuple[str, int]]:
    return [(name, count) for name, count in applied.changes.to_document().items() if count and name != "same"]


def _print_price(applied: Applied) -> None:
    machine = machine_price(applied)
    total = applied.standing.price_usd_per_hour if applied.standing is not None else None
    click.echo(f"  {'price':<12}{f'{format_usd(machine, 4)}/h' if machine is not None else 'unknown'} for the machine")
    whole = (
        f"{format_usd(total, 4)}/h now, {format_usd(total * HOURS_PER_MONTH)} a month if it runs on"
        if total is not None
        else "unknown: it bills all the same"
    )
    click.echo(f"  {'in all':<12}{whole}")
    pause = f"    (to pause it: gpuprov stop {applied.stack})" if _can_pause(applied) else ""
    click.echo(f"  {'to end it':<12}gpuprov down {applied.stack}{pause}")


def _can_pause(applied: Applied) -> bool:
    """Whether the machine runs and can be stopped, by what the cloud lists of it: the spec may be younger than its spot request."""
    from provisioner.reaper.decision import can_stop
    from stacks.reaping import read_machine

    held = applied.state.outputs.get("instanceId") if applied.state is not None else None
    listed = applied.standing.objects if applied.standing is not None else ()
    return any(can_stop(read_machine(one)) for one in listed if one.id == held and one.state == InstanceState.RUNNING)
