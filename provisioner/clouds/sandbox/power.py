"""Changes of a machine's state, with everything that hangs on them: the bill, its addresses, its disks."""

from __future__ import annotations

from dataclasses import replace
from sqlite3 import Connection
from typing import Any

from provisioner.clouds.cloud import InstanceState
from provisioner.clouds.sandbox import latencies, machines, samples, spans, watcher
from provisioner.clouds.sandbox.clock import duration_us
from provisioner.clouds.sandbox.machines import Due, Machine
from provisioner.clouds.sandbox.spans import Meter
from provisioner.clouds.sandbox.store import next_number
from provisioner.clouds.sandbox.watcher import Boot, Event, Turn
from provisioner.errors import InternalBug
from provisioner.node.config import config_of

_IP_FIRST = (198 << 24) + (18 << 16)
_IP_COUNT = 1 << 17
"""Addresses come from 198.18.0.0/15, which is set aside for tests and routed nowhere. Source: RFC 2544, RFC 6890."""


def settle(connection: Connection, now_us: int) -> None:
    """Bring every machine up to date: carry out what has become due, each change at its own moment."""
    rows = connection.execute("SELECT id FROM instances WHERE due_us <= ? ORDER BY due_us, seq", (now_us,)).fetchall()
    for row in rows:
        machine = machines.load(connection, row["id"])
        while machine is not None and (due := machines.next_due(machine)) is not None and due.at_us <= now_us:
            machine = _carry_out(connection, machine, due)


def _carry_out(connection: Connection, machine: Machine, due: Due) -> Machine:
    """A change that has become due; the machine as it is then, written."""
    if due.line is not None:
        write_console(connection, machine.id, due.at_us, due.line)
    if due.state is not None:
        return move(connection, machine, due.state, due.at_us)
    node, event = machine.node, due.event
    if node is None or event is None:
        raise InternalBug(f"a change of {machine.id} leads nowhere")
    if event is Event.FINISHED and node.finish is not None:
        resting = samples.calm(connection, machine, due.at_us)
        node = replace(node, seen=samples.reading_of(resting.signals))
    act, state = machines.shutdown(machine)
    turn = watcher.happen(node, event, due.at_us, act)
    machine = take(connection, machine, turn, due.at_us)
    return move(connection, machine, state, due.at_us) if turn.ends else machine


def take(connection: Connection, machine: Machine, turn: Turn, at_us: int) -> Machine:
    """Write what a moment has brought to a machine's console and row."""
    _write_lines(connection, machine.id, at_us, turn)
    after = replace(machine, node=turn.node)
    machines.save(connection, after)
    return after


def _write_lines(connection: Connection, machine_id: str, at_us: int, turn: Turn) -> None:
    for said in turn.lines:
        write_console(connection, machine_id, at_us, said)


def sensed(connection: Connection, machine_id: str, at_us: int) -> None:
    """Let what runs on a machine see the signals that hold now."""
    machine = machines.load(connection, machine_id)
    if machine is None or machine.node is None or machine.state is not InstanceState.RUNNING:
        return
    last = samples.last(connection, machine)
    take(connection, machine, watcher.sensed(machine.node, samples.reading_of(last) if last else None, at_us), at_us)


def move(
    connection: Connection,
    machine: Machine,
    state: InstanceState,
    at_us: int,
    *,
    until_us: int | None = None,
    vanished: bool = False,
) -> Machine:
    """Change a machine's state at a moment, and its bill, address and disks with it.

    Args:
        connection: inside a transaction.
        machine: as it is now.
        state: what it becomes.
        at_us: when.
        until_us: when the new state ends by itself, for a transitional one.
        vanished: whether it leaves no trace.

    Returns:
        The machine as it is then; its row is written.
    """
    after = replace(machine, state=state, next_us=until_us, vanished=vanished)
    after = replace(after, **_consequences(after, at_us))
    if machine.state is InstanceState.RUNNING and machine.node is not None:
        after = replace(after, node=watcher.left(machine.node, at_us))
    if after.state is InstanceState.RUNNING:
        after = _booted(connection, after, at_us)
    if machine.is_alive and not after.is_alive:
        after = replace(after, public_ip=None)
        spans.end(connection, machine.id, at_us)
        spans.end(connection, ip_id(machine), at_us)
    if after.is_alive and not machine.is_alive:
        after = replace(after, public_ip=next_public_ip(connection))
        start_alive_spans(connection, after, at_us)
    if after.state is InstanceState.STOPPED and after.has_local_disk:
        write_console(connection, after.id, at_us, machines.DISK_LOST)
    if after.is_gone and not machine.is_gone:
        after = replace(after, ended_us=at_us)
        spans.end(connection, machine.root_volume_id, at_us)
        connection.execute("UPDATE volumes SET attached_to = NULL WHERE attached_to = ?", (machine.id,))
    machines.save(connection, after)
    return after


def _booted(connection: Connection, machine: Machine, at_us: int) -> Machine:
    """With what its user data starts on it."""
    config = config_of(machine.user_data)
    if config is None:
        return replace(machine, node=None)
    ready = latencies.read(connection, "ready")
    boot = Boot(
        at_us, machine.tags, at_us + duration_us(ready.duration), measures=ready.duration != latencies.DEFAULTS["ready"]
    )
    turn = watcher.booted(config, boot, machine.node)
    _write_lines(connection, machine.id, at_us, turn)
    return replace(machine, node=turn.node)


def _consequences(machine: Machine, at_us: int) -> dict[str, Any]:
    """Fields that follow from a state."""
    if machine.state is InstanceState.RUNNING:
        return {"running_us": at_us}
    if machine.state is InstanceState.STOPPED:
        return {"running_us": None, "reclaim_us": None}
    if machine.state is InstanceState.PENDING:
        return {"running_us": None}
    return {"reclaim_us": None}


def vanish(connection: Connection, machine: Machine, at_us: int) -> Machine:
    """Make a machine disappear without a trace, as if somebody had deleted it and the cloud forgot it at once."""
    return move(connection, machine, InstanceState.TERMINATED, at_us, vanished=True)


def start_alive_spans(connection: Connection, machine: Machine, at_us: int) -> None:
    """Let a machine that came to life bill for compute and its public address."""
    spans.start(connection, Meter(spans.INSTANCE, machine.id, machine.id, machine.compute_rate), at_us)
    spans.start(connection, Meter(spans.IP, ip_id(machine), machine.id, machine.ip_rate), at_us)


def ip_id(machine: Machine) -> str:
    """Id of a machine's public address as a billable object; it lives and ends with the machine."""
    return f"eni-{machine.id.removeprefix('i-')}" if machine.cloud == "aws" else f"{machine.id}-nat"


def write_console(connection: Connection, machine_id: str, at_us: int, line: str) -> None:
    """Add a line to a machine's serial console."""
    connection.execute("INSERT INTO console (instance_id, at_us, line) VALUES (?, ?, ?)", (machine_id, at_us, line))


def read_console(connection: Connection, machine_id: str, lines_max: int) -> tuple[str, ...]:
    """The last lines of a machine's serial console, oldest first."""
    rows = connection.execute(
        "SELECT line FROM console WHERE instance_id = ? ORDER BY seq DESC LIMIT ?", (machine_id, lines_max)
    ).fetchall()
    return tuple(str(row["line"]) for row in reversed(rows))


def next_public_ip(connection: Connection) -> str:
    """An address that no machine has had for 131,070 starts; every start brings a new one."""
    return dotted(_IP_FIRST + 1 + next_number(connection, "public-ip") % (_IP_COUNT - 2))


def dotted(address: int) -> str:
    """An IPv4 address from its number."""
    return ".".join(str(address >> shift & 255) for shift in (24, 16, 8, 0))
