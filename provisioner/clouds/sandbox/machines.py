"""A machine of the sandbox and what time alone does to it: pure functions of a record and the clock."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from sqlite3 import Connection, Row
from typing import Any

from provisioner import tags as tag_keys
from provisioner.clouds.cloud import End, Ended, InstanceState, Placement
from provisioner.clouds.sandbox import watcher
from provisioner.clouds.sandbox.clock import to_us
from provisioner.clouds.sandbox.watcher import Event, Node
from provisioner.vocabulary import CapacityType

ALIVE = (InstanceState.PENDING, InstanceState.RUNNING)
"""States in which a machine takes capacity and quota and bills for compute and its public address."""


@dataclass(frozen=True, slots=True)
class Machine:
    """One row of ``instances``. Rates are USD an hour as exact fractions (``"503/625"``); ``None`` is an unknown price."""

    id: str
    cloud: str
    region: str
    zone: str
    instance_type: str
    capacity_type: CapacityType
    name: str
    state: InstanceState
    token: str
    image: str
    user_data: str
    security_group: str | None
    stop_on_shutdown: bool
    root_volume_id: str
    root_volume_bytes: int
    tags: Mapping[str, str]
    private_ip: str
    public_ip: str | None
    has_local_disk: bool
    """Disks inside the host: what is on them is lost when the machine stops."""
    quota_code: str | None
    quota_units: str
    gpus: str
    compute_rate: str | None
    root_rate: str | None
    ip_rate: str | None
    created_us: int
    visible_us: int
    next_us: int | None = None
    """When the present state (pending, stopping, terminating) ends."""
    running_us: int | None = None
    """Since when the system on it has run."""
    expires_us: int | None = None
    """Its lifetime's end, from the tag ``gpuprov:expires-at``."""
    reclaim_us: int | None = None
    """When the cloud takes it back, once that is announced."""
    ended_us: int | None = None
    vanished: bool = False
    """Gone without a trace: shown nowhere any more, billed until then."""
    root_iops: int | None = None
    """Bought for the root disk; ``None``: what its kind includes."""
    root_mib_per_s: int | None = None
    node: Node | None = None
    """What runs on it; ``None`` where it was started without anything of ours, or has not come up yet."""

    @property
    def placement(self) -> Placement:
        """Where it is."""
        return Placement(self.cloud, self.region, self.zone, self.instance_type, self.capacity_type)

    @property
    def is_alive(self) -> bool:
        """Takes capacity and quota, and bills for compute."""
        return self.state in ALIVE and not self.vanished

    @property
    def is_gone(self) -> bool:
        """Exists no more."""
        return self.vanished or self.state.is_gone

    @property
    def can_stop(self) -> bool:
        """Whether the market and the disks allow a stop; ``stop_refusal`` says why not."""
        return stop_refusal(self) is None


@dataclass(frozen=True, slots=True)
class Due:
    """A change that time alone brings."""

    at_us: int
    state: InstanceState | None
    """What the machine becomes; ``None`` where that depends on what the event brings."""
    line: str | None = None
    """What the serial console says about it."""
    event: Event | None = None
    """What happens to what runs on it."""


TAKEN_BACK = "spot: taken back by the cloud"
"""Line on the console of a machine that was taken back, its last but for ``DISK_LOST``."""
DISK_LOST = "local disk: its data was lost with the stop"


def next_due(machine: Machine) -> Due | None:
    """The earliest change that comes by itself, or ``None``: end of a transition, reclaim, end of the lifetime, or what runs on it.

    The lifetime is kept by a timer on the machine itself, so it fires only while the machine runs; one that starts with
    its lifetime over ends as soon as its system is up. Of two changes at one moment the first of these comes first.
    """
    if machine.is_gone:
        return None
    changes: list[Due] = []
    if machine.next_us is not None:
        changes.append(_end_of_transition(machine, machine.next_us))
    if machine.is_alive and machine.reclaim_us is not None:
        changes.append(_reclaim(machine, machine.reclaim_us))
    if machine.state is InstanceState.RUNNING:
        changes += _from_inside(machine)
    return min(changes, key=lambda change: change.at_us, default=None)


def _end_of_transition(machine: Machine, at_us: int) -> Due:
    if machine.state is InstanceState.PENDING:
        return Due(at_us, InstanceState.RUNNING, f"boot: {machine.image} is up")
    if machine.state is InstanceState.STOPPING:
        return Due(at_us, InstanceState.STOPPED, "stopped")
    return Due(at_us, InstanceState.TERMINATED)


def _reclaim(machine: Machine, at_us: int) -> Due:
    """One-time EC2 spot and GCE spot with termination action DELETE end; a persistent one, and STOP, leave a stopped machine."""
    stops = machine.stop_on_shutdown and machine.can_stop
    state = InstanceState.STOPPED if stops else InstanceState.INTERRUPTED
    return Due(at_us, state, TAKEN_BACK)


def _from_inside(machine: Machine) -> list[Due]:
    """What the timer and the watcher on a machine that runs will do."""
    node, found = machine.node, []
    if machine.expires_us is not None and not (node is not None and node.is_dead):
        since_us = node.woke_us if node is not None else machine.running_us or machine.created_us
        found.append(_lifetime_over(machine, max(machine.expires_us, since_us)))
    event = None if node is None else watcher.next_event(node)
    if event is not None:
        found.append(Due(event[0], None, event=event[1]))
    return found


def _lifetime_over(machine: Machine, at_us: int) -> Due:
    # In the words of the watcher that ends a real one, so that `status` can tell why it ended.
    act, state = shutdown(machine)
    return Due(at_us, state, watcher.line(at_us, state="dead-man", act=act, why="its lifetime is over"))


def shutdown(machine: Machine) -> tuple[str, InstanceState]:
    """What a shutdown from inside does to a machine, in the watcher's word, and what becomes of it."""
    if machine.stop_on_shutdown and machine.can_stop:
        return "stop", InstanceState.STOPPED
    return "terminate", InstanceState.TERMINATED


def ended(machine: Machine, console: Sequence[str]) -> Ended | None:
    """That a machine is stopped or gone since it was taken back; other ends are told by the lines themselves."""
    said = [line for line in console if line != DISK_LOST]
    is_taken = not machine.is_alive and said[-1:] == [TAKEN_BACK]
    return Ended(End.TAKEN_BACK, None) if is_taken else None


def stop_refusal(machine: Machine) -> str | None:
    """Why a machine cannot be stopped, or ``None``.

    Source: catalog billing rules; EC2: a user stop of a spot instance needs a persistent request, and a capacity block
    cannot be modified; GCE: local SSD bundled with the machine type only with discard-local-ssd, flex-start runs through.
    """
    if machine.cloud == "aws" and machine.capacity_type is CapacityType.SPOT and not machine.stop_on_shutdown:
        return "a one-time spot instance cannot be stopped"
    if machine.capacity_type in (CapacityType.CAPACITY_BLOCK, CapacityType.FLEX_START):
        return f"a {machine.capacity_type} instance cannot be stopped"
    if machine.cloud == "gcp" and machine.has_local_disk:
        return "an instance with local SSD cannot be stopped without discarding it"
    return None


def expiry_us(tags: Mapping[str, str]) -> int | None:
    """End of the lifetime that the tags state, in microseconds, or ``None`` for none.

    Raises:
        ValueError: the tag is neither ``none`` nor a time with a zone: a lifetime that nothing would keep.
    """
    text = tags.get(tag_keys.EXPIRES_AT, tag_keys.NONE)
    moment = tag_keys.parse_time(text)
    return None if moment is None else to_us(moment)


def insert(connection: Connection, machine: Machine) -> None:
    """Add a new machine's row."""
    values = _columns(machine)
    marks = ", ".join("?" for _ in values)
    connection.execute(
        f"INSERT INTO instances ({', '.join(values)}) VALUES ({marks})",  # noqa: S608 - column names are our own fields
        tuple(values.values()),
    )


def save(connection: Connection, machine: Machine) -> None:
    """Write a machine's row."""
    values = _columns(machine)
    changes = ", ".join(f"{name} = ?" for name in values)
    connection.execute(
        f"UPDATE instances SET {changes} WHERE id = ?",  # noqa: S608 - column names are our own fields
        (*values.values(), machine.id),
    )


def load(connection: Connection, machine_id: str) -> Machine | None:
    """The machine with an id, gone or not."""
    row = connection.execute("SELECT * FROM instances WHERE id = ?", (machine_id,)).fetchone()
    return None if row is None else from_row(row)


def ids_of_stack(connection: Connection, stack: str) -> list[str]:
    """Ids of the machines that exist and carry the name of a stack."""
    rows = connection.execute(
        "SELECT id, tags FROM instances WHERE ended_us IS NULL AND vanished = 0 AND instr(tags, ?) ORDER BY seq",
        (json.dumps(stack),),
    )
    return [str(row["id"]) for row in rows if json.loads(row["tags"]).get(tag_keys.STACK) == stack]


def from_row(row: Row) -> Machine:
    """A machine from its row."""
    values = {name: row[name] for name in _NAMES}
    values["capacity_type"] = CapacityType(values["capacity_type"])
    values["state"] = InstanceState(values["state"])
    values["has_local_disk"] = bool(values["has_local_disk"])
    values["tags"] = json.loads(values["tags"])
    values["stop_on_shutdown"] = bool(values["stop_on_shutdown"])
    values["vanished"] = bool(values["vanished"])
    values["node"] = None if values["node"] is None else watcher.from_document(values["node"])
    return Machine(**values)


def _columns(machine: Machine) -> dict[str, Any]:
    values: dict[str, Any] = {name: getattr(machine, name) for name in _NAMES}
    values["capacity_type"] = str(machine.capacity_type)
    values["state"] = str(machine.state)
    values["tags"] = json.dumps(dict(machine.tags), sort_keys=True)
    values["node"] = None if machine.node is None else watcher.document(machine.node)
    due = next_due(machine)
    values["due_us"] = None if due is None else due.at_us
    return values


_NAMES = tuple(field.name for field in fields(Machine))
