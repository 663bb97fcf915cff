"""``stop`` and ``start``: one call to the cloud about the stack's own machine, then a refresh of the state."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from time import monotonic, sleep
from typing import Any

from provisioner import tags
from provisioner.clouds.cloud import Cloud, Instance, InstanceState
from provisioner.errors import CapacityError, GpuprovError, NotFound, Rejected, TimedOut
from stacks.clouds import cloud_of
from stacks.deploy import Session
from stacks.outcome import Outcome
from stacks.own_machine import machine_of
from stacks.provider import lifetime, node
from stacks.state import GPU_INSTANCE, LAUNCH, StackState

CHANGE_MAX = timedelta(minutes=15)
"""Longest wait for a machine to stop or to run; large GPU machines need minutes for both."""
_POLL_FIRST_S = 0.1
_POLL_LAST_S = 2.0


def stop_machine(session: Session, state: StackState, provider: str) -> Outcome:
    """Stop the machine and wait until it is; its disks stay and cost on. One that is stopped already is fine.

    Raises:
        NotFound: there is no machine.
        Rejected: its market or its disks do not allow a stop.
        TimedOut: it does not stop.
    """
    cloud = cloud_of(state, provider, session.site.home)
    instance = machine_of(state, cloud)
    if instance.state is not InstanceState.STOPPED:
        session.require_free()
        facts = lifetime.part(state.instance.inputs, "node") if state.instance is not None else {}
        if node.disk_of(facts, instance.placement) != "network":
            session.watch.say("what lies on its local NVMe disks is lost with the stop; its root and data disks stay")
        cloud.stop_instance(instance.placement, instance.id)
        _until(cloud, instance, InstanceState.STOPPED)
    return session.refresh(provider)


def start_machine(session: Session, state: StackState, provider: str) -> Outcome:
    """Start the stopped machine: a new end of its lifetime first, so that it never runs without one.

    Raises:
        NotFound: there is no machine; none is made.
        CapacityError: there is no capacity now; the machine stays stopped and whole, and no other is made.
        TimedOut: it does not run.
    """
    cloud = cloud_of(state, provider, session.site.home)
    instance = machine_of(state, cloud)
    if instance.state is InstanceState.RUNNING:
        return session.refresh(provider)
    session.require_free()
    if instance.state is InstanceState.STOPPING:
        instance = _until(cloud, instance, InstanceState.STOPPED)
    renew(session, state, cloud, instance)
    try:
        cloud.start_instance(instance.placement, instance.id)
    except CapacityError as error:
        raise CapacityError(
            f"{error.message}; {instance.id} stays stopped with its disks, and nothing else was made",
            remedy="try again later, or move by hand: snapshot its disks, `gpuprov down --keep-data`, `gpuprov up --replan`",
        ) from error
    _until(cloud, instance, InstanceState.RUNNING)
    return session.refresh(provider)


def renew(session: Session, state: StackState, cloud: Cloud, instance: Instance) -> None:
    """Write a new ``expires-at`` into the machine's tag and into the state, before the machine runs."""
    workload = state.instance.inputs.get("workload", {}) if state.instance is not None else {}
    expires_at = lifetime.expires_at(workload, cloud.now())
    cloud.set_tags(instance.placement, instance.id, {tags.EXPIRES_AT: expires_at})
    session.edit(lambda deployment: write_expiry(deployment, instance.id, expires_at), cloud.provider)
    if expires_at != tags.NONE:
        session.watch.say(f"ends by itself at {expires_at}")


def write_expiry(deployment: dict[str, Any], instance_id: str, expires_at: str) -> bool:
    """Set ``expiresAt`` of the launch and of its machine in a deployment document; says whether anything differed.

    The machine's outputs repeat its tags: without the new one there, the next refresh would show our own change as drift.
    Tags that are sealed stay as they are, and the refresh learns them.
    """
    held = [
        resource.get("outputs") or {} for resource in deployment.get("resources") or () if _is_of(resource, instance_id)
    ]
    shown = [outputs["cloudTags"] for outputs in held if tags.EXPIRES_AT in (outputs.get("cloudTags") or {})]
    places = [*((outputs, "expiresAt") for outputs in held), *((carried, tags.EXPIRES_AT) for carried in shown)]
    stale = [(place, key) for place, key in places if place.get(key) != expires_at]
    for place, key in stale:
        place[key] = expires_at
    return bool(stale)


def _is_of(resource: Mapping[str, Any], instance_id: str) -> bool:
    """Whether a resource of a deployment document is the launch, or that machine."""
    if resource.get("type") == GPU_INSTANCE:
        return bool((resource.get("outputs") or {}).get("instanceId") == instance_id)
    return bool(resource.get("type") == LAUNCH)


def _until(cloud: Cloud, instance: Instance, state: InstanceState) -> Instance:
    """The machine once it has the state.

    Raises:
        TimedOut: it does not come to it.
        NotFound: it is gone.
        CapacityError: it began to start, and the cloud has stopped it again.
        Rejected: likewise, for a reason that lies in its request.
    """
    until, pause_s, has_begun = monotonic() + CHANGE_MAX.total_seconds(), _POLL_FIRST_S, False
    while True:
        now = cloud.get_instance(instance.placement, instance.id)
        if now is not None and now.state is state:
            return now
        if now is not None and now.state.is_gone:
            raise NotFound(f"{instance.id} is {now.state}", remedy="`gpuprov up` makes a new one")
        if now is not None and has_begun and now.state is InstanceState.STOPPED:
            raise _fell_back(now)
        has_begun = has_begun or (now is not None and now.state is InstanceState.PENDING)
        if monotonic() > until:
            shown = now.state if now is not None else "not visible"
            raise TimedOut(
                f"{instance.id} is {shown} after {CHANGE_MAX}, not {state}", remedy="look again: gpuprov status"
            )
        sleep(pause_s)
        pause_s = min(pause_s * 1.5, _POLL_LAST_S)


def _fell_back(machine: Instance) -> GpuprovError:
    reason = machine.console[-1] if machine.console else "the cloud does not say why"
    kind = CapacityError if machine.failure is None else Rejected
    return kind(
        f"{machine.id} began to start and is stopped again ({reason}); its disks are kept, and nothing else was made",
        remedy=machine.failure or "try again later: `gpuprov start`",
    )


def require_settled(outcome: Outcome) -> Outcome:
    """The outcome of a refresh that worked; its failure is raised."""
    if outcome.failure is not None:
        raise outcome.failure
    return outcome
