"""What the reaper knows of a machine, and the one interface through which it looks and acts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any, Protocol

from provisioner import tags
from provisioner.units import parse_duration
from provisioner.vocabulary import CapacityType

DUE = "gpuprov-reap-due"
"""When a marked machine may be ended; ``none`` takes the mark away."""
CAUSE = "gpuprov-reap-for"
REAPED = "gpuprov-reaped"
"""When and why a machine was ended from outside: ``2026-11-30T14:15:45Z idle``."""
KEEP = "gpuprov-keep"
"""Any value but ``false`` or ``none``: never reap this one."""
AUTO_IDLE = timedelta(minutes=60)
"""``auto`` where the machine itself has not said its own threshold: the longest one."""
_WATCHES = ("running",)


@dataclass(frozen=True, slots=True)
class Machine:
    """One GPU machine of the account."""

    id: str
    cloud: str
    region: str
    zone: str | None
    instance_type: str
    capacity_type: CapacityType | None
    """How it was bought; ``None`` is unknown: a market that is younger than this version."""
    state: str
    tags: Mapping[str, str]
    created_at: datetime
    price_usd_per_hour: Decimal | None
    """While it runs, its root disk and address included; ``None`` is unknown."""
    stopped_usd_per_hour: Decimal | None = None
    stopped_at: datetime | None = None
    disk: str = "network"
    """``network``, ``local`` (local disks beside a network root) or ``local-root``."""
    cannot_stop: bool = False
    """Its spot request is known to allow none, whatever its tags say by now."""

    @property
    def stack(self) -> str:
        """Name of its stack; the id where no tag says one."""
        return self.tags.get(tags.STACK, self.id)

    @property
    def is_running(self) -> bool:
        """Whether it can be idle at all."""
        return self.state in _WATCHES

    @property
    def due_at(self) -> datetime | None:
        """When its mark falls due; ``None`` without a mark."""
        return moment(self.tags.get(DUE))

    @property
    def is_opted_out(self) -> bool:
        """Whether its owner said that it is never to be reaped."""
        return self.tags.get(KEEP, "false").lower() not in ("false", "none", "")


@dataclass(frozen=True, slots=True)
class Sample:
    """Signals of a machine at a moment, under the names of ``provisioner.node.idleness``."""

    at: datetime
    reading: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Observed:
    """What can be seen of a machine from outside."""

    samples: Sequence[Sample] = ()
    """Oldest first."""
    holds: bool = False
    """Whether a sample stands until the next one, or is a point of a series."""
    period_s: float = 300.0
    console: Sequence[str] = ()


class Inventory(Protocol):
    """An account as the reaper needs it; calls may raise any error of ``provisioner.errors``."""

    def now(self) -> datetime:
        """The cloud's clock."""
        ...

    def machines(self) -> Sequence[Machine]:
        """Machines with our tags, in no particular order; gone ones are left out."""
        ...

    def look(self, machine: Machine) -> Machine | None:
        """The same machine read again; ``None`` where it is gone."""
        ...

    def observe(self, machine: Machine, since: datetime) -> Observed:
        """Signals and console of a machine; what cannot be read is left out, and never made up."""
        ...

    def console(self, machine: Machine) -> Sequence[str]:
        """The last lines of its serial console, oldest first."""
        ...

    def write_tags(self, machine: Machine, written: Mapping[str, str]) -> None:
        """Write tags of a machine."""
        ...

    def stop(self, machine: Machine) -> None:
        """Stop it; ``Rejected`` where its market or its disks do not allow that."""
        ...

    def terminate(self, machine: Machine) -> None:
        """End it and its root disk; data disks stay."""
        ...


def idle_after(machine: Machine, told: timedelta | None = None) -> timedelta | None:
    """How long it may be idle; ``None`` for no limit, or for a tag that says neither.

    Args:
        machine: the machine.
        told: its own threshold, as its watcher said it.
    """
    text = machine.tags.get(tags.IDLE_AFTER, tags.NONE)
    if text == "auto":
        return told or AUTO_IDLE
    return duration(text)


def duration(text: str | None) -> timedelta | None:
    """The duration of a tag; ``None`` for ``none`` and for anything else."""
    try:
        return parse_duration(text) if text and text != tags.NONE else None
    except ValueError:
        return None


def moment(text: str | None) -> datetime | None:
    """The time of a tag; ``None`` for ``none`` and for anything else."""
    try:
        return tags.parse_time(text) if text else None
    except ValueError:
        return None


def expires_at(machine: Machine) -> datetime | None:
    """The end of its lifetime by its tag."""
    return moment(machine.tags.get(tags.EXPIRES_AT))


def lease_until(machine: Machine) -> datetime | None:
    """The end of its keepalive by its tag."""
    return moment(machine.tags.get(tags.LEASE_UNTIL))
