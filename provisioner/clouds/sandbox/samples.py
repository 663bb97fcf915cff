"""Samples of a machine's signals, as a person or a test sets them; a sample holds until the next one.

A signal that is ``None`` is not available (a MIG device's utilisation, say); that is unknown, never zero.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from fractions import Fraction
from sqlite3 import Connection
from typing import Any

from provisioner.clouds.sandbox import machines
from provisioner.clouds.sandbox.clock import from_us
from provisioner.errors import NotFound, UsageError

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
_OF_WORK = ("gpu_utilization_percent", *(name for name in SCALARS if name != "logins"))
"""Signals that fall to nothing when the work ends."""
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
    merged = {**last(connection, require(connection, instance_id)), **given}
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


def read(connection: Connection, instance_id: str, since_us: int = 0) -> list[Sample]:
    """Samples of a machine since a moment, oldest first; the one that holds at that moment comes first.

    Raises:
        NotFound: there never was such a machine.
    """
    require(connection, instance_id)
    rows = connection.execute(
        "SELECT * FROM telemetry WHERE instance_id = ? AND at_us >= coalesce("
        " (SELECT max(at_us) FROM telemetry WHERE instance_id = ? AND at_us <= ?), ?) ORDER BY at_us, seq",
        (instance_id, instance_id, since_us, since_us),
    )
    return [Sample(from_us(row["at_us"]), json.loads(row["signals"])) for row in rows]


def last(connection: Connection, machine: machines.Machine) -> dict[str, Any]:
    """The signals that hold, of those that were set since the machine's last start."""
    row = connection.execute(
        "SELECT signals FROM telemetry WHERE instance_id = ? AND at_us >= ? ORDER BY seq DESC LIMIT 1",
        (machine.id, machine.running_us or 0),
    ).fetchone()
    return {} if row is None else dict(json.loads(row["signals"]))


def calm(connection: Connection, machine: machines.Machine, at_us: int) -> Sample:
    """Add the sample that the end of the work leaves: what worked rests; what was not available stays so, and people stay."""
    before = {"gpu_utilization_percent": [0] * _gpus(machine), **last(connection, machine)}
    resting: dict[str, Any] = {name: _at_rest(before[name]) for name in _OF_WORK if name in before}
    return put(connection, machine.id, at_us, resting)


def clear(connection: Connection, instance_id: str) -> None:
    """Forget a machine's samples: its telemetry has gone silent.

    Raises:
        NotFound: there never was such a machine.
    """
    require(connection, instance_id)
    connection.execute("DELETE FROM telemetry WHERE instance_id = ?", (instance_id,))


def reading_of(signals: Mapping[str, Any]) -> dict[str, Any]:
    """The signals under the names of an idle decision."""
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


def require(connection: Connection, instance_id: str) -> machines.Machine:
    """The machine with an id, gone or not.

    Raises:
        NotFound: there never was such a machine.
    """
    machine = machines.load(connection, instance_id)
    if machine is None:
        raise NotFound(f"there is no instance {instance_id} in the sandbox", remedy="see `gpuprov status`")
    return machine


def _for_each_gpu(connection: Connection, instance_id: str, name: str, value: Any) -> Any:
    """One number for a signal of the GPUs is that of each of them."""
    machine = require(connection, instance_id)
    if name not in PER_GPU or isinstance(value, list) or not _is_reading(value):
        return value
    return [value] * _gpus(machine)


def _gpus(machine: machines.Machine) -> int:
    """GPUs as the machine's own tools count them: a part of one is one."""
    return max(1, math.ceil(Fraction(machine.gpus)))


def _at_rest(value: Any) -> Any:
    if isinstance(value, list):
        return [_at_rest(one) for one in value]
    return None if value is None else 0


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
