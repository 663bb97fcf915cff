"""Telemetry of the sandbox's machines: samples that a person or a test sets and an idle decision reads.

A sample holds until the next one. A signal that is ``None`` is not available (a MIG device's utilisation, say); that is
unknown, never zero.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from fractions import Fraction
from sqlite3 import Connection
from typing import Any

from provisioner.clouds.cloud import InstanceState, Signals
from provisioner.clouds.sandbox import latencies, machines, power
from provisioner.clouds.sandbox.call import Call
from provisioner.clouds.sandbox.clock import from_us, to_us
from provisioner.errors import NotFound, UsageError
from provisioner.node.config import config_of
from provisioner.node.drain import DRAIN_TAG
from provisioner.tags import NONE, RUN_DIGEST, format_time

PER_GPU = ("gpu_utilization_percent", "gpu_memory_used_bytes", "gpu_power_watts")
"""Signals with one value a GPU: a list of numbers and nulls."""

SCALARS = (
    "cpu_percent",
    "disk_bytes_per_s",
    "network_bytes_per_s",
    "logins",
    "requests_in_flight",
)
"""Signals with one value a machine."""

_SAME_NAMES = ("cpu_percent", "disk_bytes_per_s", "network_bytes_per_s", "logins")
CONSOLE_LINES = 100
"""Lines of the serial console that a reading gives."""
_KEPT_PER_INSTANCE = 10_000
_PERCENT_MAX = 100


@dataclass(frozen=True, slots=True)
class Sample:
    """Signals of one machine at one moment."""

    at: datetime
    signals: Mapping[str, Any]


def put(connection: Connection, instance_id: str, at_us: int, signals: Mapping[str, Any]) -> Sample:
    """Add a sample; signals that it does not name keep their last value.

    Raises:
        NotFound: there never was such a machine.
        UsageError: an unknown signal, or a value that is neither null nor a finite number of 0 or more.
    """
    given = {name: _for_each_gpu(connection, instance_id, name, value) for name, value in signals.items()}
    for name, value in given.items():
        _check(name, value)
    merged = {**_last(connection, instance_id), **given}
    connection.execute(
        "INSERT INTO telemetry (instance_id, at_us, signals) VALUES (?, ?, ?)",
        (instance_id, at_us, json.dumps(merged, sort_keys=True)),
    )
    connection.execute(
        "DELETE FROM telemetry WHERE instance_id = ? AND seq NOT IN"
        " (SELECT seq FROM telemetry WHERE instance_id = ? ORDER BY seq DESC LIMIT ?)",
        (instance_id, instance_id, _KEPT_PER_INSTANCE),
    )
    return Sample(from_us(at_us), merged)


def put_console(connection: Connection, instance_id: str, at_us: int, line: str) -> None:
    """Add a line to a machine's serial console, as the watcher on it does.

    Raises:
        NotFound: there never was such a machine.
    """
    _require(connection, instance_id)
    power.write_console(connection, instance_id, at_us, line)


def read(connection: Connection, instance_id: str, since_us: int = 0) -> list[Sample]:
    """Samples of a machine since a moment, oldest first; the one that holds at that moment comes first.

    Raises:
        NotFound: there never was such a machine.
    """
    _require(connection, instance_id)
    rows = connection.execute(
        "SELECT * FROM telemetry WHERE instance_id = ? AND at_us >= coalesce("
        " (SELECT max(at_us) FROM telemetry WHERE instance_id = ? AND at_us <= ?), ?) ORDER BY at_us, seq",
        (instance_id, instance_id, since_us, since_us),
    )
    return [Sample(from_us(row["at_us"]), json.loads(row["signals"])) for row in rows]


def clear(connection: Connection, instance_id: str) -> None:
    """Forget a machine's samples: its telemetry has gone silent.

    Raises:
        NotFound: there never was such a machine.
    """
    _require(connection, instance_id)
    connection.execute("DELETE FROM telemetry WHERE instance_id = ?", (instance_id,))


def console(call: Call, instance_id: str) -> tuple[str, ...]:
    """The last lines of a machine's serial console, with the word of its watcher that the workload answers."""
    rows = call.connection.execute(
        "SELECT at_us, line FROM console WHERE instance_id = ? ORDER BY seq DESC LIMIT ?", (instance_id, CONSOLE_LINES)
    )
    lines = [(int(row["at_us"]), str(row["line"])) for row in reversed(rows.fetchall())]
    machine = machines.load(call.connection, instance_id)
    if machine is not None and machine.running_us is not None and (config_of(machine.user_data) or {}).get("ready"):
        ready_us = machine.running_us + latencies.read_us(call.connection, "ready")
        if ready_us <= call.now_us:
            said = {
                "gpuprov": 1,
                "at": format_time(from_us(ready_us)),
                "state": "ready",
                "run": machine.tags.get(RUN_DIGEST),
            }
            # Lines of one moment keep their order: the machine came up before its workload.
            lines.append((ready_us, json.dumps(said)))
            lines.sort(key=lambda entry: entry[0])
    if machine is not None and (answer := _answer(call, machine, [line for _, line in lines])) is not None:
        lines.append((call.now_us, answer))
    return tuple(line for _, line in lines[-CONSOLE_LINES:])


def _answer(call: Call, machine: machines.Machine, lines: Sequence[str]) -> str | None:
    """What the machine's watcher answers to a request to drain: a machine whose console has any word of one has a watcher."""
    request = machine.tags.get(DRAIN_TAG, NONE)
    if request == NONE or machine.state is not InstanceState.RUNNING or not any('{"gpuprov"' in line for line in lines):
        return None
    last = _last(call.connection, machine.id)
    used = [value for value in last.get("gpu_utilization_percent") or () if value]
    works = bool(used or last.get("requests_in_flight"))
    facts = {"state": "busy", "act": "cancelled"} if works else {"state": "drained"}
    return json.dumps({"gpuprov": 1, "at": format_time(from_us(call.now_us)), **facts, "request": request})


def signals(call: Call, instance_id: str, since: datetime) -> Signals:
    """A machine's samples since its last start under the names of an idle decision; a sample holds until the next one."""
    machine = machines.load(call.connection, instance_id)
    if machine is None or machine.running_us is None:
        return Signals()
    started = from_us(machine.running_us)
    found = [sample for sample in read(call.connection, instance_id, to_us(since)) if sample.at >= started]
    return Signals([(sample.at, _reading(sample.signals)) for sample in found], holds=True)


def _reading(signals: Mapping[str, Any]) -> dict[str, Any]:
    reading = {name: signals[name] for name in _SAME_NAMES if name in signals}
    gpus = signals.get("gpu_utilization_percent")
    if "gpu_utilization_percent" in signals:
        watts = signals.get("gpu_power_watts") or []
        reading["gpus"] = gpus and [
            {"utilization": used, "watts": watts[index] if index < len(watts) else None}
            for index, used in enumerate(gpus)
        ]
    if "requests_in_flight" in signals:
        reading["engines"] = {"requests": {"running": signals["requests_in_flight"]}}
    return reading


def _require(connection: Connection, instance_id: str) -> machines.Machine:
    machine = machines.load(connection, instance_id)
    if machine is None:
        raise NotFound(f"there is no instance {instance_id} in the sandbox", remedy="see `gpuprov status`")
    return machine


def _for_each_gpu(connection: Connection, instance_id: str, name: str, value: Any) -> Any:
    """One number for a signal of the GPUs is that of each of them; a part of one is a GPU to the machine."""
    machine = _require(connection, instance_id)
    if name not in PER_GPU or isinstance(value, list) or not _is_reading(value):
        return value
    return [value] * max(1, math.ceil(Fraction(machine.gpus)))


def _last(connection: Connection, instance_id: str) -> dict[str, Any]:
    row = connection.execute(
        "SELECT signals FROM telemetry WHERE instance_id = ? ORDER BY seq DESC LIMIT 1", (instance_id,)
    ).fetchone()
    return {} if row is None else dict(json.loads(row["signals"]))


def _check(name: str, value: object) -> None:
    if name in PER_GPU:
        if not isinstance(value, list) or not value or not all(_is_reading(one) for one in value):
            raise UsageError(
                f"{name} takes numbers of 0 or more, or null: one for all GPUs or one each",
                remedy=f"write it as {name}=[0,97]",
            )
    elif name not in SCALARS:
        raise UsageError(f"there is no signal {name!r}", remedy=f"use one of {', '.join(PER_GPU + SCALARS)}")
    elif not _is_reading(value):
        raise UsageError(f"{name} takes a number of 0 or more, or null, not {value!r}", remedy=f"write it as {name}=3")
    if name.endswith("_percent") and any(one is not None and one > _PERCENT_MAX for one in _readings(value)):
        raise UsageError(f"{name} is a percentage", remedy=f"write numbers up to {_PERCENT_MAX}")


def _is_reading(value: object) -> bool:
    """Whether a value is null or a number that JSON can hold and a meter can show."""
    if value is None:
        return True
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value) and value >= 0


def _readings(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]
