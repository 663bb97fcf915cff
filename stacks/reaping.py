"""A cloud as the reaper sees it, the JSON of a sweep, and who is told of a mark."""

from __future__ import annotations

import json
import urllib.request
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from decimal import Decimal
from typing import Any

from provisioner import tags
from provisioner.clouds.cloud import BillableObject, Cloud, Placement
from provisioner.errors import GpuprovError
from provisioner.reaper.decision import Step, Verdict
from provisioner.reaper.machines import Machine, Observed, Sample
from provisioner.reaper.sweep import Outcome, Sweep
from provisioner.tags import format_time
from provisioner.vocabulary import CapacityType
from stacks.clouds import survey
from stacks.documents import money
from stacks.inventory import object_document, price_of

_KIND = "instance"
_NOTIFY_TIMEOUT_S = 10


@dataclass(slots=True)
class CloudInventory:
    """``provisioner.reaper.machines.Inventory`` over a cloud: one list, then signals of those that matter."""

    cloud: Cloud
    objects: dict[str, BillableObject] = field(default_factory=dict)
    """The machines of the last list, by id."""
    unlisted: Mapping[str, GpuprovError] = field(default_factory=dict)
    """Regions that the last list lacks, and why."""

    def now(self) -> datetime:
        """The cloud's clock."""
        return self.cloud.now()

    def machines(self) -> Sequence[Machine]:
        """Machines with our tags, each with what hangs on it in its price."""
        seen = survey(self.cloud)
        listed, self.unlisted = seen.objects, seen.unlisted
        self.objects = {entry.id: entry for entry in listed if entry.kind == _KIND}
        parts: dict[str, list[BillableObject]] = {}
        for entry in listed:
            owner = entry.extra.get("instance")
            if owner is not None and entry.extra.get("role") != "data":
                parts.setdefault(owner, []).append(entry)
        return [read_machine(entry, parts.get(entry.id, ())) for entry in self.objects.values()]

    def look(self, machine: Machine) -> Machine | None:
        """The machine by its id: its state and tags are read again, its prices stay."""
        found = self.cloud.get_instance(place_of(machine), machine.id)
        if found is None or found.state.is_gone:
            return None
        return Machine(**{**_fields(machine), "state": str(found.state), "tags": dict(found.tags)})

    def observe(self, machine: Machine, since: datetime) -> Observed:
        """Metrics and console."""
        signals = self.cloud.read_signals(place_of(machine), machine.id, since)
        return Observed(
            samples=[Sample(at, reading) for at, reading in signals.samples],
            holds=signals.holds,
            period_s=signals.period_s,
            console=self.console(machine),
        )

    def console(self, machine: Machine) -> Sequence[str]:
        """The last lines of its serial console."""
        return self.cloud.read_console(place_of(machine), machine.id)

    def write_tags(self, machine: Machine, written: Mapping[str, str]) -> None:
        """Write tags of the machine."""
        self.cloud.set_tags(place_of(machine), machine.id, written)

    def stop(self, machine: Machine) -> None:
        """Stop it."""
        self.cloud.stop_instance(place_of(machine), machine.id)

    def terminate(self, machine: Machine) -> None:
        """End it."""
        self.cloud.terminate_instance(place_of(machine), machine.id)


def read_machine(entry: BillableObject, parts: Sequence[BillableObject] = ()) -> Machine:
    """A machine from the object that a cloud lists, with its root disk and address."""
    extra = entry.extra
    rest = [price_of(part) for part in parts if part.kind != "ip"]
    whole = [price_of(entry), *(price_of(part) for part in parts)]
    return Machine(
        id=entry.id,
        cloud=entry.cloud,
        region=entry.region,
        zone=entry.zone,
        instance_type=extra.get("instance_type", ""),
        capacity_type=_capacity_type(extra.get("capacity_type")),
        state=entry.state,
        tags=entry.tags,
        created_at=entry.created_at,
        price_usd_per_hour=_sum(whole),
        stopped_usd_per_hour=_sum(rest),
        stopped_at=tags.parse_time(extra["stopped_at"]) if extra.get("stopped_at") else None,
        disk=extra.get("disk", "network"),
        cannot_stop=extra.get("spot_request") in ("one-time", "cancelled"),
    )


def place_of(machine: Machine) -> Placement:
    """Where a machine is, for calls that name it by its id: there the capacity type says nothing."""
    market = machine.capacity_type or CapacityType.ON_DEMAND
    return Placement(machine.cloud, machine.region, machine.zone, machine.instance_type, market)


def _capacity_type(text: str | None) -> CapacityType | None:
    """How a listed machine was bought; ``None`` for a word that this version does not know, or none."""
    return CapacityType(text) if text in tuple(CapacityType) else None


def document(
    done: Sweep, foreign: Sequence[BillableObject], provider: str, unlisted: Iterable[str] = ()
) -> dict[str, Any]:
    """``gpuprov.reap/1``."""
    return {
        "schema": "gpuprov.reap/1",
        "dry_run": done.dry,
        "at": format_time(done.at),
        "objects": [_object(outcome, provider) for outcome in done.outcomes],
        "saved_usd_per_hour": money(done.saved_usd_per_hour),
        "idle_usd_per_hour": money(done.idle_usd_per_hour),
        "foreign": [object_document(entry, provider) for entry in foreign],
        "unlisted_regions": sorted(unlisted),
    }


def marks_document(marks: Sequence[Verdict]) -> dict[str, Any]:
    """``gpuprov.reap-marks/1``: what ``--notify`` is sent; ``text`` is what chat services show."""
    return {
        "schema": "gpuprov.reap-marks/1",
        "text": "\n".join(announcement(mark) for mark in marks),
        "marks": [
            {
                "stack": mark.machine.stack,
                "id": mark.machine.id,
                "region": mark.machine.region,
                "cause": str(mark.cause),
                "reason": mark.reason,
                "ending": mark.ending.how if mark.ending is not None else None,
                "due_at": format_time(mark.due_at) if mark.due_at is not None else None,
                "price_usd_per_hour": money(mark.machine.price_usd_per_hour),
                "keepalive": keepalive_line(mark.machine),
            }
            for mark in marks
        ],
    }


def announcement(mark: Verdict) -> str:
    """A mark in one line, with the line that keeps the machine."""
    due = format_time(mark.due_at) if mark.due_at is not None else "now"
    how = mark.ending.how if mark.ending is not None else "end"
    return f"{mark.machine.stack} ({mark.machine.id}): {mark.reason}; {how} at {due}. To keep it: {keepalive_line(mark.machine)}"


def keepalive_line(machine: Machine) -> str:
    """The command that keeps a machine."""
    return f"gpuprov keepalive {machine.stack} --for 2h"


def notify(url: str, marks: Sequence[Verdict]) -> None:
    """Send the marks as JSON.

    Args:
        url: an http address that takes JSON by POST.
        marks: what is told.

    Raises:
        OSError: it was not taken.
    """
    body = json.dumps(marks_document(marks)).encode()
    request = urllib.request.Request(url, data=body, headers={"Content-Type": "application/json"}, method="POST")  # noqa: S310 - an http address, see above
    with urllib.request.urlopen(request, timeout=_NOTIFY_TIMEOUT_S):  # noqa: S310 - an http address, see above
        pass


def _object(outcome: Outcome, provider: str) -> dict[str, Any]:
    verdict, machine = outcome.verdict, outcome.verdict.machine
    ending = verdict.ending
    return {
        "cloud": machine.cloud,
        "provider": provider,
        "kind": _KIND,
        "id": machine.id,
        "region": machine.region,
        "zone": machine.zone,
        "state": machine.state,
        "tags": dict(machine.tags),
        "price_usd_per_hour": money(machine.price_usd_per_hour),
        "stopped_usd_per_hour": money(machine.stopped_usd_per_hour),
        "created_at": format_time(machine.created_at),
        "instance_type": machine.instance_type,
        "stack": machine.stack,
        "step": str(verdict.step),
        "done": outcome.done,
        "held_back": outcome.held_back,
        "cause": str(verdict.cause) if verdict.cause is not None else None,
        "reason": verdict.reason,
        "ending": None if ending is None else {"how": ending.how, "reason": ending.reason},
        "due_at": format_time(verdict.due_at) if verdict.due_at is not None else None,
        "drain": outcome.answer,
        "error": outcome.error.message if outcome.error is not None else None,
    }


def lines(done: Sweep) -> list[str]:
    """The sweep for people, one line a machine that something is to be said of."""
    shown = []
    for outcome in done.outcomes:
        verdict, machine = outcome.verdict, outcome.verdict.machine
        if verdict.step is Step.KEEP and outcome.error is None and not verdict.is_unjudged:
            continue
        word = _word(outcome)
        price = "price unknown" if machine.price_usd_per_hour is None else f"{machine.price_usd_per_hour:.4f} USD/h"
        after = "" if verdict.ending is None else f" ({verdict.ending.reason}{_rest(verdict)})"
        due = "" if verdict.due_at is None or verdict.step is Step.ACT else f", due {format_time(verdict.due_at)}"
        shown.append(f"{machine.stack}  {machine.id}  {word}{due}: {verdict.reason}; {price}{after}")
        if verdict.step in (Step.MARK, Step.WAIT):
            shown.append(f"    to keep it: {keepalive_line(machine)}")
        if outcome.answer is not None:
            shown.append(f"    asked to drain: {outcome.answer}")
        if outcome.error is not None:
            shown.append(f"    {outcome.error.message}")
    return shown


def _rest(verdict: Verdict) -> str:
    rest = verdict.machine.stopped_usd_per_hour
    is_stop = verdict.ending is not None and verdict.ending.how == "stop"
    return f"; stopped it costs {rest:.4f} USD/h" if is_stop and rest is not None else ""


def _word(outcome: Outcome) -> str:
    verdict = outcome.verdict
    how = verdict.ending.how if verdict.ending is not None else "end"
    past = {"stop": "stopped", "terminate": "terminated"}.get(how, how)
    if outcome.held_back:
        return "held back by the limits of this sweep"
    words = {
        Step.MARK: "marked" if outcome.done else "would be marked",
        Step.WAIT: f"marked, waits to {how}",
        Step.ACT: past if outcome.done else f"would be {past}",
        Step.UNMARK: "works again, mark taken away" if outcome.done else "would lose its mark",
        Step.KEEP: "kept",
    }
    return words[verdict.step]


def _fields(machine: Machine) -> dict[str, Any]:
    return {name: getattr(machine, name) for name in machine.__dataclass_fields__}


def _sum(prices: Sequence[Decimal | None]) -> Decimal | None:
    known = [price for price in prices if price is not None]
    return sum(known, Decimal(0)) if len(known) == len(prices) else None
