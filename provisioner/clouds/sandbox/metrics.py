"""What a machine of the sandbox tells to the outside: its metrics, its serial console, its answer to a request to drain."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from provisioner.clouds.cloud import InstanceState, Signals
from provisioner.clouds.sandbox import machines, power, samples, watcher
from provisioner.clouds.sandbox.call import Call
from provisioner.clouds.sandbox.clock import from_us, to_us
from provisioner.node.drain import DRAIN_TAG
from provisioner.tags import NONE

CONSOLE_LINES = 100
"""Lines of the serial console that a reading gives."""


def console(call: Call, instance_id: str) -> tuple[str, ...]:
    """The last lines of a machine's serial console, with what its watcher repeats and answers at this moment."""
    lines = list(power.read_console(call.connection, instance_id, CONSOLE_LINES))
    machine = machines.load(call.connection, instance_id)
    if machine is None or machine.state is not InstanceState.RUNNING:
        return tuple(lines)
    beat = None if machine.node is None else watcher.repeated(machine.node, call.now_us)
    lines += [] if beat is None else [beat]
    answer = _answer(call, machine, lines)
    lines += [] if answer is None else [answer]
    return tuple(lines[-CONSOLE_LINES:])


def _answer(call: Call, machine: machines.Machine, lines: Sequence[str]) -> str | None:
    """What the machine's watcher answers to a request to drain: a machine whose console has any word of one has a watcher."""
    request = machine.tags.get(DRAIN_TAG, NONE)
    is_dead = machine.node is not None and machine.node.is_dead
    if request == NONE or is_dead or not any('{"gpuprov"' in line for line in lines):
        return None
    last = samples.last(call.connection, machine)
    used = [value for value in last.get("gpu_utilization_percent") or () if value]
    works = bool(used or last.get("requests_in_flight"))
    facts = {"state": "busy", "act": "cancelled"} if works else {"state": "drained"}
    return watcher.line(call.now_us, **facts, request=request)


def signals(call: Call, instance_id: str, since: datetime) -> Signals:
    """A machine's samples since its last start under the names of an idle decision; a sample holds until the next one."""
    machine = machines.load(call.connection, instance_id)
    if machine is None or machine.running_us is None:
        return Signals()
    started = from_us(machine.running_us)
    found = [one for one in samples.read(call.connection, instance_id, to_us(since)) if one.at >= started]
    return Signals([(one.at, samples.reading_of(one.signals)) for one in found], holds=True)
