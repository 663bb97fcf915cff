"""What carries our tags and no state here holds: whose it is, and whether ``gc`` may end it.

Pure decisions over a list, the books of one backend and a clock. Identity is the stack-id, never a name or an address.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum

from provisioner import tags
from provisioner.clouds.cloud import AGE_UNKNOWN, BillableObject, InstanceState
from provisioner.reaper.machines import duration, moment
from provisioner.tags import format_time

YOUNG = timedelta(minutes=15)
"""Younger objects may be of an ``up`` in progress."""
GRACE = timedelta(hours=1)
"""How long after its end a machine is left to the timer on it."""
NEVER_MADE = ("address", "snapshot")
"""Kinds that gpuprov never makes: a person or a backup service has copied our tags, so only a name removes them."""
_RUNS = (InstanceState.PENDING.value, InstanceState.RUNNING.value)


class Verdict(StrEnum):
    """Whose an object is; see ``is_removable``."""

    ORPHAN = "orphan"
    """Made by this backend, and held by none of its stacks."""
    EXPIRED = "expired"
    """A machine that runs an hour past ``expires-at``."""
    FORGOTTEN = "stopped-too-long"
    """A machine that is stopped an hour past ``terminate-after``."""
    NAMED = "named"
    """Named by ``--stack-id``."""
    IN_PROGRESS = "in-progress"
    """Young, or of a stack that somebody works on."""
    UNKNOWN = "unknown"
    """A state of this backend cannot be read, and may hold it."""
    FOREIGN = "foreign"
    """Not made by this backend."""

    @property
    def is_removable(self) -> bool:
        """Whether ``gc --yes`` ends it."""
        return self in (Verdict.ORPHAN, Verdict.EXPIRED, Verdict.FORGOTTEN, Verdict.NAMED)


@dataclass(frozen=True, slots=True)
class Books:
    """What one backend knows."""

    held: Mapping[str, str] = field(default_factory=dict)
    """Stack-id -> name of the stack whose state holds it."""
    made: Mapping[str, str] = field(default_factory=dict)
    """Stack-id -> name of the stack that it was made for."""
    busy: frozenset[str] = frozenset()
    """Names of stacks under a lock."""
    unreadable: tuple[str, ...] = ()
    """Stacks whose state could not be read."""


@dataclass(frozen=True, slots=True)
class Judgement:
    """One object and what is to become of it."""

    entry: BillableObject
    verdict: Verdict
    reason: str


def judge_all(
    objects: Sequence[BillableObject], books: Books, now: datetime, named: frozenset[str] = frozenset()
) -> list[Judgement]:
    """All objects that no state of the backend holds, and held machines past their end.

    Args:
        objects: what the cloud lists.
        books: what the backend knows.
        now: the cloud's time.
        named: stack-ids that were named; then nothing else is judged.
    """
    over = {o.id: found for o in objects if (found := _past_its_end(o, now)) is not None}
    judged = (_judge(entry, over, books, now, named) for entry in objects)
    return [judgement for judgement in judged if judgement is not None]


def _judge(
    entry: BillableObject, over: Mapping[str, Judgement], books: Books, now: datetime, named: frozenset[str]
) -> Judgement | None:
    stack_id = entry.tags.get(tags.STACK_ID, "")
    if named:
        return Judgement(entry, Verdict.NAMED, "named by --stack-id") if stack_id in named else None
    busy = _busy(stack_id, books)
    past = over.get(holder_of(entry))
    if past is not None:
        return Judgement(entry, *busy) if busy else Judgement(entry, past.verdict, past.reason)
    if stack_id in books.held:
        return None
    if stack_id not in books.made:
        return Judgement(entry, Verdict.FOREIGN, "this backend did not make its stack-id; --stack-id names it")
    if entry.kind in NEVER_MADE:
        return Judgement(
            entry, Verdict.FOREIGN, f"gpuprov makes no {entry.kind}: its tags were copied; --stack-id names it"
        )
    if books.unreadable:
        return Judgement(
            entry, Verdict.UNKNOWN, f"the state of {', '.join(books.unreadable)} cannot be read, and may hold it"
        )
    if busy:
        return Judgement(entry, *busy)
    age = now - entry.created_at
    # What says no age is an interface without a machine: no `up` makes one of these.
    if age < YOUNG and AGE_UNKNOWN not in entry.extra:
        return Judgement(entry, Verdict.IN_PROGRESS, f"{_minutes(age)} min old: an `up` may be making it")
    return Judgement(entry, Verdict.ORPHAN, f"stack {books.made[stack_id]!r} of this backend holds it no more")


def holder_of(entry: BillableObject) -> str:
    """The machine that an object comes and goes with, or itself; a data disk stands for itself."""
    return entry.id if entry.extra.get("role") == "data" else entry.extra.get("instance", entry.id)


def is_part(entry: BillableObject) -> bool:
    """Whether an object ends with its machine: a root disk, an address."""
    return holder_of(entry) != entry.id


def in_order(judgements: Iterable[Judgement]) -> list[Judgement]:
    """Machines before what they hold on to: interfaces and disks, then groups."""
    rank = {"spot-request": 0, "instance": 1, "network-interface": 2, "volume": 3, "security-group": 4}
    return sorted(judgements, key=lambda one: (rank.get(one.entry.kind, 9), one.entry.id))


def _busy(stack_id: str, books: Books) -> tuple[Verdict, str] | None:
    name = books.held.get(stack_id) or books.made.get(stack_id)
    return (Verdict.IN_PROGRESS, f"somebody works on stack {name!r}") if name in books.busy and name else None


def _past_its_end(entry: BillableObject, now: datetime) -> Judgement | None:
    """Whether a machine has outlived what its tags allow, grace included; unreadable or missing times say no."""
    if entry.kind != "instance":
        return None
    if entry.state in _RUNS:
        ends = moment(entry.tags.get(tags.EXPIRES_AT))
        if ends is not None and now - ends >= GRACE:
            return Judgement(entry, Verdict.EXPIRED, f"runs past its end at {format_time(ends)}")
    elif entry.state == InstanceState.STOPPED.value:
        since, allowed = moment(entry.extra.get("stopped_at")), duration(entry.tags.get(tags.TERMINATE_AFTER))
        if since is not None and allowed is not None and now - since - allowed >= GRACE:
            text = f"stopped since {format_time(since)}, and may be so for {entry.tags[tags.TERMINATE_AFTER]}"
            return Judgement(entry, Verdict.FORGOTTEN, text)
    return None


def _minutes(age: timedelta) -> int:
    return max(0, int(age.total_seconds() // 60))
