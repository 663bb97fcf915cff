"""``down``: end everything of a stack, look again, and only then forget the stack.

What an engine run leaves behind is found by stack-id in the cloud's own list: a machine whose creation was cut off, a disk
whose resource was lost. It is ended here, since nothing else will.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta
from time import monotonic, sleep

from provisioner.clouds.cloud import BillableObject, Cloud, Placement
from provisioner.errors import CloudError, GpuprovError, Leaked, Rejected
from provisioner.units import format_gib
from provisioner.vocabulary import CapacityType
from stacks import pending
from stacks.clouds import cloud_of
from stacks.deploy import Session
from stacks.inventory import Standing, account, ask, describe, look
from stacks.outcome import Changes, Outcome
from stacks.provider.machine import VISIBILITY
from stacks.state import GPU_INSTANCE, StackState

GONE_MAX = timedelta(minutes=5)
"""Longest wait for an object that a cloud has agreed to end; the engine's own deletes wait longer."""
_POLL_S, _POLL_LAST_S = 0.2, 2.0
_ENDERS = {
    "instance": "terminate_instance",
    "spot-request": "terminate_instance",
    "volume": "delete_volume",
    "security-group": "delete_security_group",
}


@dataclass(frozen=True, slots=True)
class Ended:
    """What ``down`` did, or got to before it failed."""

    stack: str
    provider: str
    changes: Changes = field(default_factory=Changes)
    kept: tuple[BillableObject, ...] = ()
    """Data disks that ``--keep-data`` kept."""
    standing: Standing | None = None
    is_removed: bool = False


class DownFailed(Exception):
    """``down`` failed after it had begun; carries the error for people and what was done."""

    def __init__(self, error: GpuprovError, ended: Ended) -> None:
        super().__init__(error.message)
        self.error = error
        self.ended = ended


def data_disks(standing: Standing) -> tuple[BillableObject, ...]:
    """The disks that outlive machines."""
    return tuple(o for o in standing.objects if o.kind == "volume" and o.extra.get("role") == "data")


def name_disk(disk: BillableObject) -> str:
    """A data disk with its size, for the question before it is deleted."""
    size = disk.extra.get("size_bytes")
    return (
        f"{disk.id} {disk.extra.get('name', '')} ({format_gib(int(size)) if size else 'size unknown'}) in {disk.zone}"
    )


def end_stack(session: Session, state: StackState, provider: str, *, keep_data: bool) -> Ended:
    """End the stack's objects; without ``keep_data`` also its data disks, and the stack itself.

    Args:
        session: the stack under its lock.
        state: its state.
        provider: where it was made.
        keep_data: keep data disks and the stack; only the machine ends.

    Raises:
        DownFailed: with what is left. Nothing that may still exist leaves the state.
    """
    cloud = cloud_of(state, provider, session.site.home)
    shows_until_s = monotonic() + (VISIBILITY.total_seconds() if _may_hide_something(state, provider) else 0.0)
    before = _look(cloud, state)
    if pending.has_cut_machine(state):
        session.require_free()  # what looks cut off may be in another host's hands just now
        _end_unrecorded_machines(cloud, before, state, session.watch.say)
    outcome = _destroy(session, state, provider, keep_data=keep_data)
    after = session.state()
    if outcome.failure is not None:
        raise failed(session, provider, outcome.failure, outcome.changes)
    if monotonic() < shows_until_s:
        session.watch.say(f"an earlier run was cut off: looking for what it made, up to {VISIBILITY.seconds} s")
    standing = _settled(cloud, state, session.watch.say, after, keep_data=keep_data, shows_until_s=shows_until_s)
    ended = Ended(session.stack, provider, outcome.changes, standing=standing)
    if keep_data:
        pending.settle(session, provider, standing)
        return Ended(session.stack, provider, outcome.changes, data_disks(standing), standing)
    if standing.billing:
        raise DownFailed(_left(standing, after, session.stack), ended)
    session.remove()
    return Ended(session.stack, provider, outcome.changes, standing=standing, is_removed=True)


def _may_hide_something(state: StackState, provider: str) -> bool:
    """Whether a run of any host that was cut off may have made a machine or a disk that no list shows yet.

    The journal of such calls lies on that host, and the sandbox shows everything at once.
    """
    return provider != "sandbox" and any(operation.resource.type == GPU_INSTANCE for operation in state.pending)


def _destroy(session: Session, state: StackState, provider: str, *, keep_data: bool) -> Outcome:
    if not keep_data:
        return session.destroy(provider) if state.resources else Outcome()
    urns = tuple(dict.fromkeys(resource.urn for resource in state.own if resource.type == GPU_INSTANCE))
    return session.destroy(provider, urns) if urns else Outcome()


def failed(session: Session, provider: str, error: GpuprovError, changes: Changes) -> DownFailed:
    """The failure to raise once the stack is locked: with what is left and what it costs."""
    state = session.state()
    standing = ask(cloud_of(state, provider, session.site.home), state)
    failure = DownFailed(
        account(error, standing, state, session.stack), Ended(session.stack, provider, changes, standing=standing)
    )
    failure.__cause__ = error
    return failure


def _settled(
    cloud: Cloud,
    state: StackState,
    say: Callable[[str], None],
    after: StackState | None,
    *,
    keep_data: bool,
    shows_until_s: float,
) -> Standing:
    """What is left once everything that can be ended is gone; the state's own objects are the engine's to end.

    Args:
        cloud: where it is.
        state: the state as it was before its end.
        say: told of each object that is ended.
        after: the state after the engine's part.
        keep_data: leave data disks alone.
        shows_until_s: until when, on the monotonic clock, something may still come to show.

    Raises:
        Rejected: an object does not let itself be ended.
    """
    until_s, pause_s = max(monotonic() + GONE_MAX.total_seconds(), shows_until_s), _POLL_S
    told: set[str] = set()
    while True:
        standing = _look(cloud, state)
        kept = data_disks(standing) if keep_data else ()
        unknown = [entry for entry in standing.unknown_to(after) if entry not in kept]
        refusal: Rejected | None = None
        for entry in unknown:
            if entry.id not in told:
                told.add(entry.id)
                say(f"ending what the state did not hold: {describe(entry)}")
            try:
                _end(cloud, entry)
            except Rejected as error:  # a disk or a group whose machine is ending
                refusal = error
        if monotonic() > until_s and refusal is not None:
            raise refusal
        if monotonic() > (until_s if unknown else shows_until_s):
            return standing
        sleep(pause_s)
        pause_s = min(pause_s * 1.5, _POLL_LAST_S)


def _end_unrecorded_machines(cloud: Cloud, standing: Standing, state: StackState, say: Callable[[str], None]) -> None:
    """End machines of a creation that was cut off before their disks are deleted: an attached disk cannot be."""
    machines = [entry for entry in standing.unknown_to(state) if entry.kind == "instance"]
    for entry in machines:
        say(f"ending a machine whose creation was not finished: {describe(entry)}")
        _end(cloud, entry)
    gone = {entry.id for entry in machines}
    until = monotonic() + GONE_MAX.total_seconds()
    while machines and monotonic() < until and any(o.id in gone for o in _look(cloud, state).objects):
        sleep(_POLL_S)


def _look(cloud: Cloud, state: StackState) -> Standing:
    """What the cloud holds for the stack, wherever the state as it was before its end may have put something."""
    return look(cloud, (state.stack_id,), state.regions)


def _end(cloud: Cloud, entry: BillableObject) -> None:
    """Ask the cloud to end one object; root disks and addresses go with their machine."""
    ender = _ENDERS.get(entry.kind)
    if ender is None or (entry.kind == "volume" and entry.extra.get("role") == "root"):
        return
    capacity = entry.extra.get("capacity_type", CapacityType.ON_DEMAND.value)
    placement = Placement(
        entry.cloud, entry.region, entry.zone, entry.extra.get("instance_type", ""), CapacityType(capacity)
    )
    getattr(cloud, ender)(placement, entry.id)


def _left(standing: Standing, after: StackState | None, stack: str) -> GpuprovError:
    leaked: Leaked | None = pending.leftovers(standing, after, stack)
    if leaked is not None:
        return leaked
    names = "; ".join(describe(entry) for entry in standing.billing)
    return CloudError(f"not everything has ended: {names}", remedy=f"run `gpuprov down {stack}` again")
