"""One sweep over an account: look, look again, mark, wait, look again, act; within limits, and dry unless told otherwise."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from decimal import Decimal
from math import floor
from time import sleep
from typing import Any

from provisioner import tags
from provisioner.errors import GpuprovError
from provisioner.reaper import machines
from provisioner.reaper.asking import CANCELLED, ask, take_back
from provisioner.reaper.decision import STOP, Cause, Step, Verdict, decide, needs_evidence
from provisioner.reaper.evidence import Evidence, judge
from provisioner.reaper.machines import Inventory, Machine

LOOK_BACK = timedelta(hours=3)
"""How far signals are read: beyond the longest threshold by default."""


@dataclass(frozen=True, slots=True)
class Limits:
    """How many machines one sweep may mark or end: a fault in a sensor must not take a whole fleet."""

    count: int = 20
    share: float = 0.5

    def of(self, total: int) -> int:
        """Most machines of an account of so many; one can always be handled."""
        return max(1, min(self.count, floor(total * self.share)))


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a sweep did, or would do, with one machine."""

    verdict: Verdict
    done: bool = False
    held_back: bool = False
    """Beyond the limits of this sweep."""
    error: GpuprovError | None = None
    answer: str | None = None
    """What the machine answered when it was asked to drain (``asking``); ``None``: it was not asked."""


@dataclass(frozen=True, slots=True)
class Sweep:
    """A whole sweep."""

    at: datetime
    outcomes: tuple[Outcome, ...]
    dry: bool

    @property
    def saved_usd_per_hour(self) -> Decimal | None:
        """What the machines that were ended (or, in a dry run, would be) cost an hour less; ``None`` where a price is unknown."""
        ended = [o for o in self.outcomes if o.verdict.step is Step.ACT and not o.held_back and (o.done or self.dry)]
        return saving(o.verdict for o in ended)

    @property
    def idle_usd_per_hour(self) -> Decimal | None:
        """What all machines that are marked or due cost an hour."""
        return saving(o.verdict for o in self.outcomes if o.verdict.cause is not None)

    def error(self) -> GpuprovError | None:
        """What must be told as a failure: machines that could not be looked at, marked or ended; of the kind of the first."""
        failed = [(o.verdict.machine.id, o.error) for o in self.outcomes if o.error is not None]
        if not failed:
            return None
        machine, first = failed[0]
        count = "1 machine" if len(failed) == 1 else f"{len(failed)} machines"
        return type(first)(
            f"{count} could not be handled, {machine} first: {first.message}",
            where=first.where,
            remedy=first.remedy or "run it again; what was done is done",
        )


def saving(verdicts: Iterable[Verdict]) -> Decimal | None:
    """What ending these saves an hour: all of a machine, less what a stopped one bills on."""
    total = Decimal(0)
    for verdict in verdicts:
        machine = verdict.machine
        price = machine.price_usd_per_hour
        rest = machine.stopped_usd_per_hour if verdict.ending is not None and verdict.ending.how == STOP else Decimal(0)
        if price is None or rest is None:
            return None
        total += price - rest
    return total


def sweep(inventory: Inventory, limits: Limits, *, dry: bool = True, pause: Callable[[float], Any] = sleep) -> Sweep:
    """Look at every machine and do what is due.

    Args:
        inventory: the account.
        limits: of this sweep.
        dry: change nothing.
        pause: waits so many seconds, for machines that are asked to drain.

    Raises:
        GpuprovError: the account cannot be listed. What goes wrong with one machine is in its outcome.
    """
    found = inventory.machines()
    now = inventory.now()
    outcomes = [_judge(inventory, machine, now) for machine in found]
    allowed = limits.of(len(found))
    changing = [o for o in outcomes if o.verdict.step in (Step.MARK, Step.ACT) and o.error is None]
    # What is due goes first, then what costs most; an unknown price may be any.
    changing.sort(key=lambda o: (o.verdict.step is not Step.ACT, -_price(o.verdict.machine), o.verdict.machine.id))
    held = {o.verdict.machine.id for o in changing[allowed:]}
    due = [o.verdict.machine for o in changing[:allowed] if o.verdict.step is Step.ACT and not dry]
    answers = ask(inventory, due, pause)
    done = [
        replace(o, held_back=True) if o.verdict.machine.id in held else _carry_out(inventory, o, answers, dry=dry)
        for o in outcomes
    ]
    return Sweep(now, tuple(done), dry)


def _judge(inventory: Inventory, machine: Machine, now: datetime) -> Outcome:
    try:
        return Outcome(decide(machine, _evidence(inventory, machine, now), now))
    except GpuprovError as error:
        return Outcome(Verdict(machine, Step.KEEP, f"could not be looked at: {error.message}"), error=error)


def _evidence(inventory: Inventory, machine: Machine, now: datetime) -> Evidence | None:
    if not needs_evidence(machine):
        return None
    return judge(inventory.observe(machine, now - LOOK_BACK), now, machine.created_at)


def _carry_out(inventory: Inventory, outcome: Outcome, answers: Mapping[str, str], *, dry: bool) -> Outcome:
    """Do it, after a second reading of this one machine; one that works by then is left alone, and takes work again."""
    if dry or outcome.error is not None or outcome.verdict.step in (Step.KEEP, Step.WAIT):
        return outcome
    machine = outcome.verdict.machine
    done = replace(_do(inventory, outcome, answers.get(machine.id)), answer=answers.get(machine.id))
    is_ended = done.verdict.step is Step.ACT and done.done
    if done.answer is not None and not is_ended:
        take_back(inventory, machine)
    return done


def _do(inventory: Inventory, outcome: Outcome, answer: str | None) -> Outcome:
    verdict = outcome.verdict
    try:
        machine = inventory.look(verdict.machine)
        if machine is None:
            return Outcome(replace(verdict, step=Step.KEEP, reason="gone since the first look"))
        now = inventory.now()
        again = decide(machine, _evidence(inventory, machine, now), now)
        if answer == CANCELLED and again.cause is not Cause.OVER_AGE:
            again = replace(again, step=Step.UNMARK, reason="work arrived while it was about to end", cause=None)
        elif again.step is not verdict.step:
            return Outcome(again) if again.step is not Step.ACT else Outcome(replace(again, step=Step.WAIT))
        _write(inventory, again, now)
    except GpuprovError as error:
        return replace(outcome, error=error)
    return Outcome(again, done=True)


def _write(inventory: Inventory, verdict: Verdict, now: datetime) -> None:
    machine = verdict.machine
    if verdict.step is Step.UNMARK:
        inventory.write_tags(machine, {machines.DUE: tags.NONE, machines.CAUSE: tags.NONE})
    elif verdict.step is Step.MARK and verdict.due_at is not None:
        written = {machines.DUE: tags.format_time(verdict.due_at), machines.CAUSE: str(verdict.cause)}
        inventory.write_tags(machine, {**written, machines.REAPED: tags.NONE})
    elif verdict.step is Step.ACT and verdict.ending is not None:
        # First the tags: a machine that is gone takes none, and `status` tells by them why it went.
        reaped = f"{tags.format_time(now)} {verdict.cause}"
        inventory.write_tags(machine, {machines.REAPED: reaped, machines.DUE: tags.NONE, machines.CAUSE: tags.NONE})
        (inventory.stop if verdict.ending.how == STOP else inventory.terminate)(machine)


def _price(machine: Machine) -> Decimal:
    return machine.price_usd_per_hour if machine.price_usd_per_hour is not None else Decimal(10**9)


def marked(outcomes: Sequence[Outcome]) -> list[Verdict]:
    """What was marked just now, for who is to be told."""
    return [outcome.verdict for outcome in outcomes if outcome.verdict.step is Step.MARK and outcome.done]
