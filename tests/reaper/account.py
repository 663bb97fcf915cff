"""An account in memory for the reaper: machines, what can be seen of them, a clock, and what was done."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

from provisioner import tags
from provisioner.reaper.machines import Machine, Observed, Sample
from provisioner.vocabulary import CapacityType

START = datetime(2026, 11, 30, 12, 0, tzinfo=UTC)
QUIET_READING: Mapping[str, Any] = {
    "gpus": [{"utilization": 0.0}],
    "cpu_percent": 1.0,
    "disk_bytes_per_s": 0,
    "network_bytes_per_s": 900,
    "logins": 0,
}


def machine(number: int = 0, **changes: Any) -> Machine:
    """A running machine with an idle limit of 30 min."""
    own = {
        tags.STACK: f"stack-{number}",
        tags.STACK_ID: f"{number:032x}",
        tags.IDLE_AFTER: "30m",
        tags.EXPIRES_AT: "none",
    }
    own |= {tags.TERMINATE_AFTER: "7d", **changes.pop("tags", {})}
    found = Machine(
        id=f"i-{number:017x}",
        cloud="aws",
        region="us-east-1",
        zone="use1-az1",
        instance_type="g6.xlarge",
        capacity_type=CapacityType.ON_DEMAND,
        state="running",
        tags=own,
        created_at=START - timedelta(hours=5),
        price_usd_per_hour=Decimal("0.80"),
        stopped_usd_per_hour=Decimal("0.02"),
    )
    return replace(found, **changes)


def quiet(since: datetime, **more: Any) -> Observed:
    """A machine that is quiet since a moment and was busy before."""
    busy = {**QUIET_READING, "gpus": [{"utilization": 90.0}]}
    return Observed([Sample(since - timedelta(hours=1), busy), Sample(since, {**QUIET_READING, **more})], holds=True)


@dataclass
class Account:
    """``Inventory`` in memory."""

    held: dict[str, Machine]
    seen: dict[str, Observed] = field(default_factory=dict)
    at: datetime = START
    done: list[tuple[str, str]] = field(default_factory=list)

    def now(self) -> datetime:
        return self.at

    def machines(self) -> Sequence[Machine]:
        return list(self.held.values())

    def look(self, machine: Machine) -> Machine | None:
        return self.held.get(machine.id)

    def observe(self, machine: Machine, since: datetime) -> Observed:
        return self.seen.get(machine.id, Observed())

    def console(self, machine: Machine) -> Sequence[str]:
        return self.seen.get(machine.id, Observed()).console

    def write_tags(self, machine: Machine, written: Mapping[str, str]) -> None:
        self.held[machine.id] = replace(self.held[machine.id], tags={**self.held[machine.id].tags, **written})

    def stop(self, machine: Machine) -> None:
        self.done.append(("stop", machine.id))
        self.held[machine.id] = replace(self.held[machine.id], state="stopped", stopped_at=self.at)

    def terminate(self, machine: Machine) -> None:
        self.done.append(("terminate", machine.id))
        del self.held[machine.id]


def account(*machines: Machine, quiet_for: timedelta = timedelta(hours=1)) -> Account:
    """An account whose running machines are all quiet for a while."""
    found = Account({m.id: m for m in machines})
    found.seen = {m.id: quiet(START - quiet_for) for m in machines}
    return found
