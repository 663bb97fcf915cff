"""``status``: each stack as the state has it, beside what the cloud shows now. No engine with a file backend."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from provisioner import tags
from provisioner.clouds.cloud import BillableObject, Cloud, End, Ended, Health, Instance, InstanceState
from provisioner.errors import CloudError, GpuprovError
from provisioner.reaper import machines
from provisioner.reaper.ending import STOP, TERMINATE
from provisioner.reaper.evidence import last_line, silent_since
from stacks import ends, failures, health
from stacks.clouds import cloud_of
from stacks.documents import money, objects, outputs_document, power_of
from stacks.inventory import Standing, describe, look
from stacks.locks import is_held, lock_path, read_holder
from stacks.own_machine import placement_of
from stacks.readiness import ready_now
from stacks.site import Site
from stacks.state import StackState

REAPED = "reaped"
"""Ended on purpose, idle or over age: expected, and `up` brings it back."""
UNREACHABLE = "unreachable"
"""The cloud says that it runs, and its watcher has missed three heartbeats: it is told, and never taken for gone."""
_SHUTDOWN_MAX = timedelta(minutes=15)
"""From a watcher's last word to the machine's stop: its clock may be off by some, and the system shuts down in between."""
PROVIDER_OF_NEW = "sandbox"
"""Where a stack is looked for that has no resource yet."""


@dataclass(frozen=True, slots=True)
class Status:
    """One stack now."""

    state: StackState
    provider: str
    standing: Standing | None
    """``None``: the cloud could not be asked; ``trouble`` says why."""
    trouble: str | None = None
    busy: str | None = None
    """Who works on it just now."""
    ended: str | None = None
    """Why its machine was ended from outside or by its own watcher; ``None`` where it was not."""
    ready: bool | None = None
    """Whether its workload answers; ``None`` where that is not probed."""
    decision: Mapping[str, Any] | None = None
    """The last line of the machine's watcher."""
    silent_since: str | None = None
    """Last word of a watcher that should have spoken since; ``None`` where nothing is missing."""
    health: Health | None = None
    """How its machine is; ``None`` where it does not run."""
    shown: Instance | BillableObject | None = None
    """The machine as the cloud shows it, one that it lists no more included."""
    is_readable: bool = True
    """Whether the backend's file could be read; ``trouble`` says why not."""

    @property
    def word(self) -> str:
        """What the machine does: as the cloud shows it, else as the state last saw it."""
        shown = [entry.state for entry in self.machines]
        if self.ended is not None and set(shown) <= {"stopped", "stopping", "terminating"}:
            return REAPED
        if shown and shown[0] == InstanceState.RUNNING and self.silent_since is not None:
            return UNREACHABLE
        if shown:
            return shown[0]
        if not self.is_readable:
            return "unknown"
        seen = power_of(self.state)
        if self.standing is None or not self.state.outputs:
            return seen
        last = None if self.shown is None else str(self.shown.state)
        return last if last == "interrupted" or (last is not None and self.end is not None) else "gone"

    @property
    def end(self) -> Ended | None:
        """What brought the machine to its stop or its end; ``None`` where the cloud does not tell."""
        if not isinstance(self.shown, BillableObject):
            return None if self.shown is None else self.shown.ended
        how, at = (self.shown.extra.get(key) for key in ("ended", "stopped_at"))
        return None if how is None else Ended(End(how), machines.moment(at))

    @property
    def machines(self) -> tuple[BillableObject, ...]:
        """Machines in the cloud; more than one is a leak."""
        return tuple(o for o in self.standing.objects if o.kind == "instance") if self.standing else ()


def read_all(site: Site, names: Sequence[str] | None = None) -> tuple[Status, ...]:
    """The named stacks, or all of the backend; of all, one whose state cannot be read does not hide the others.

    Raises:
        UsageError: a named one does not exist.
        CloudError: the state of a named one cannot be read.
    """
    if names is not None:
        return tuple(_status(site, site.existing(name)) for name in names)
    found = (_status_of(site, name) for name in site.stacks())
    return tuple(status for status in found if status is not None)


def document(found: Sequence[Status]) -> dict[str, Any]:
    """``gpuprov.status/1``."""
    return {
        "schema": "gpuprov.status/1",
        "stacks": [_stack_document(status) for status in found],
        "objects": [entry for status in found for entry in objects(status.standing, status.provider)],
    }


def rows(found: Sequence[Status]) -> list[Mapping[str, Any]]:
    """The same for people: one entry a stack, with its objects described."""
    return [
        {
            "stack": status.state.name,
            "provider": status.provider,
            "state": status.word,
            "price": status.standing.price_usd_per_hour if status.standing else None,
            "objects": [describe(entry) for entry in (status.standing.objects if status.standing else ())],
            "notes": _notes(status),
        }
        for status in found
    ]


def _stack_document(status: Status) -> dict[str, Any]:
    total = status.standing.price_usd_per_hour if status.standing else None
    return {
        "stack": status.state.name,
        "provider": status.provider,
        "state": status.word,
        "price_usd_per_hour": money(total),
        "outputs": outputs_document(status.state, status.ready if status.word in ("running", UNREACHABLE) else False),
        "health": health.spoken(status.health),
        "last_decision": status.decision,
        "unfinished": [resource.name for resource in status.state.pending_creates],
        "notes": _notes(status),
    }


def _reason(status: Status) -> str | None:
    """Why the machine is stopped or gone, else what its watcher last said; ``None`` where nothing is known."""
    if status.ended:
        return f"{status.ended}; `gpuprov up` brings it back"
    said = status.decision or {}
    end = ends.words(status.end, str(status.state.outputs.get("cloud")), is_gone=not status.machines)
    is_open = said.get("why") and "act" not in said
    return end or (f"{said.get('state')}: {said['why']}{_until(said)}" if is_open else None)


def _told(status: Status) -> list[str]:
    """The reason, and the last lines of a workload that has failed."""
    reason, tail = _reason(status), (status.decision or {}).get("tail")
    notes = [] if reason is None else [reason]
    return [*notes, f"last lines of its workload: {' | '.join(map(str, tail))}"] if tail else notes


def _notes(status: Status) -> list[str]:
    notes = _told(status)
    if status.health is not None and status.health.unknown is not None:
        notes.append(f"whether it is impaired is not known: {status.health.unknown}")
    notes += [f"impaired: {one.text}; {one.remedy}" for one in (status.health.ailments if status.health else ())]
    if status.word == UNREACHABLE:
        notes.append(
            f"its watcher has said nothing since {status.silent_since}, and the cloud says that it runs: it is kept, and bills; "
            f"`gpuprov logs {status.state.name}` shows its last lines"
        )
    notes += [
        f"marked as idle or over age, may be ended from {entry.tags[machines.DUE]}; "
        f"to keep it: gpuprov keepalive {status.state.name} --for 2h"
        for entry in status.machines
        if entry.state == "running" and entry.tags.get(machines.DUE, tags.NONE) != tags.NONE
    ]
    speed = _speed(status)
    if speed is not None:
        notes.append(speed)
    if status.busy:
        notes.append(f"in use by {status.busy}")
    if status.trouble:
        notes.append(status.trouble)
    if status.state.pending_creates:
        names = ", ".join(resource.name for resource in status.state.pending_creates)
        notes.append(f"an earlier run did not finish creating {names}; `gpuprov up` or `gpuprov down` resolves it")
    notes += [
        f"{r.name} is not whole: {'; '.join(map(failures.strip, r.init_errors))}"
        for r in status.state.own
        if r.init_errors
    ]
    if status.standing is not None:
        there = {entry.id for entry in status.standing.objects}
        lost = [disk for disk in status.state.outputs.get("volumeIds") or () if disk not in there]
        notes += [f"data disk {disk} is not there any more; `gpuprov up` makes an empty one" for disk in lost]
        notes += [f"not in the state: {describe(entry)}" for entry in status.standing.unknown_to(status.state)]
    return notes


def _speed(status: Status) -> str | None:
    """What the engine does beside what was planned, and what would lift it; ``None`` where nothing is measured."""
    decision = status.decision or {}
    rate, running, waiting = (decision.get(key) for key in ("tokens_per_s", "running", "waiting"))
    if rate is None:
        return None
    made = status.state.instance.inputs.get("node") if status.state.instance is not None else None
    plan = made if isinstance(made, Mapping) else {}
    planned, bound, remedy = plan.get("plannedTokensPerS"), plan.get("boundBy"), plan.get("remedy")
    text = f"{rate:g} tokens/s" + (f" of {planned:g} planned a copy" if planned else "")
    text += f" (bound by {bound})" if bound else ""
    if running is not None:
        text += f"; {running:g} requests run, {waiting or 0:g} wait"
    return text + (f"; first remedy: {remedy}" if remedy and waiting else "")


def _status_of(site: Site, name: str) -> Status | None:
    try:
        state = site.read(name)
    except CloudError as error:
        return Status(StackState(name), PROVIDER_OF_NEW, None, str(error), is_readable=False)
    return _status(site, state) if state is not None else None


def _status(site: Site, state: StackState) -> Status:
    provider = state.provider or PROVIDER_OF_NEW
    busy = _busy(lock_path(site.home, site.backend.key, state.name))
    try:
        cloud = cloud_of(state, provider, site.home)
        standing = look(cloud, (state.stack_id,), state.regions)
    except GpuprovError as error:
        return Status(state, provider, None, f"the cloud could not be asked: {error}", busy)
    seen = Status(state, provider, standing, None, busy)
    try:
        seen = _found(cloud, seen)
        seen = _watched(cloud, seen)
        seen = _examined(cloud, seen)
        ready = ready_now(cloud, state) if seen.word == "running" else None
    except GpuprovError as error:  # what exists and what it costs is known all the same
        return replace(seen, trouble=f"its console could not be read: {error}")
    return replace(seen, ready=ready)


def _examined(cloud: Cloud, seen: Status) -> Status:
    """With how its machine is, where it runs."""
    outputs = seen.state.outputs
    if seen.word not in ("running", UNREACHABLE) or not outputs.get("instanceId"):
        return seen
    return replace(seen, health=health.look(cloud, placement_of(outputs), str(outputs["instanceId"])))


def _found(cloud: Cloud, seen: Status) -> Status:
    """With its machine, one that has ended and is not listed any more included."""
    outputs = seen.state.outputs
    if not outputs.get("instanceId"):
        return seen
    instance_id = str(outputs["instanceId"])
    listed = next((entry for entry in seen.machines if entry.id == instance_id), None)
    return replace(seen, shown=listed or cloud.get_instance(placement_of(outputs), instance_id))


def _watched(cloud: Cloud, seen: Status) -> Status:
    """With the last word of the machine's watcher, and why the machine is not there or not heard where that is known."""
    outputs, found = seen.state.outputs, seen.shown
    if not outputs.get("instanceId"):
        return seen
    console = cloud.read_console(placement_of(outputs), str(outputs["instanceId"]))
    seen, said = replace(seen, decision=last_line(console)), last_line(console) or {}
    if found is None and said.get("act") == TERMINATE and said.get("state") != "interrupted":
        return replace(seen, ended=_by_itself(said))  # the cloud shows it no more, and its console still does
    if found is None or found.state in ("running", "pending", "interrupted"):
        return replace(seen, silent_since=silent_since(console, cloud.now()))
    reaped = found.tags.get(machines.REAPED, tags.NONE)
    if reaped != tags.NONE:
        at, _, cause = reaped.partition(" ")
        return replace(seen, ended=f"reaped at {at}: {cause}")
    end = seen.end
    if end is not None and end.how is not End.FROM_INSIDE:
        return seen
    ended_at = end.at if end is not None else _stopped_at(found)
    if said.get("act") in (STOP, TERMINATE) and not _is_older(said, ended_at):
        return replace(seen, ended=_by_itself(said))
    return seen


def _by_itself(said: Mapping[str, Any]) -> str:
    return f"ended by itself at {said.get('at')}: {said.get('why')}"


def _until(decision: Mapping[str, Any]) -> str:
    """When a machine that is quiet will end, as far as its watcher knows."""
    said_at, left_s = machines.moment(str(decision.get("at"))), decision.get("ends_in_s")
    if said_at is None or not isinstance(left_s, (int, float)):
        return ""
    return f"; it ends at {tags.format_time(said_at + timedelta(seconds=left_s))} unless it works"


def _stopped_at(found: Instance | BillableObject) -> datetime | None:
    return machines.moment(found.extra.get("stopped_at")) if isinstance(found, BillableObject) else None


def _is_older(decision: Mapping[str, Any], ended_at: datetime | None) -> bool:
    """Whether a watcher's word is of an end before this one: the machine was started again since, and stopped by its owner."""
    said_at = machines.moment(str(decision.get("at")))
    if said_at is None or ended_at is None:
        return False
    return ended_at - said_at > _SHUTDOWN_MAX


def _busy(path: Path) -> str | None:
    return (str(read_holder(path)) if read_holder(path) else "another gpuprov") if is_held(path) else None
