"""``gc``: list everything of ours over all regions, judge it, and end what may be ended.

Nothing is ended on an old or partial view: a region that cannot be listed is left alone and named, and each object is looked at
again right before its end.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

from provisioner import tags
from provisioner.clouds.cloud import BillableObject, Cloud, Placement, Survey
from provisioner.errors import CloudError, GpuprovError, Leaked, Rejected, UsageError
from provisioner.vocabulary import CapacityType
from stacks.clouds import error_of_unlisted, survey
from stacks.inventory import describe, object_document, price_of
from stacks.locks import engine_locks, is_held, lock_path
from stacks.made import made_file, read_made
from stacks.orphans import Books, Judgement, Verdict, holder_of, in_order, is_part, judge_all
from stacks.provider.lifeline import Lifeline
from stacks.provider.machine import Watch
from stacks.provider.patience import PatientCloud
from stacks.site import Site


@runtime_checkable
class Straying(Protocol):
    """A cloud that knows kinds which only ``gc`` looks for."""

    def survey_with_strays(self) -> Survey:
        """Everything that could be listed, those kinds included, and why the rest could not."""
        ...

    def end_stray(self, region: str, kind: str, object_id: str) -> None:
        """End one of them."""
        ...


@dataclass(frozen=True, slots=True)
class Fate:
    """One object and what became of it."""

    judgement: Judgement
    is_removed: bool = False
    trouble: str | None = None
    """Why it is still there, though it was to go."""


@dataclass(frozen=True, slots=True)
class Swept:
    """What a run of ``gc`` saw and did."""

    provider: str
    fates: tuple[Fate, ...]
    unlisted: Mapping[str, GpuprovError]
    is_dry: bool
    held: frozenset[str] = frozenset()
    """Stack-ids that stacks of the backend hold: their objects are no leak."""

    def error(self) -> GpuprovError | None:
        """What must be told as a failure: objects that did not go, then regions that could not be seen."""
        stuck = [fate for fate in self.fates if fate.trouble is not None]
        if stuck:
            names = "; ".join(f"{describe(fate.judgement.entry)} ({fate.trouble})" for fate in stuck)
            is_leak = any(
                price_of(f.judgement.entry) != 0 and _stack_id(f.judgement.entry) not in self.held for f in stuck
            )
            failure = Leaked if is_leak else CloudError
            return failure(f"this could not be removed: {names}", remedy="mend what the message says, and run it again")
        return error_of_unlisted(self.unlisted)


def sweep(
    site: Site,
    cloud: Cloud,
    *,
    yes: bool,
    stack_ids: Sequence[str] = (),
    say: Callable[[str], None] = lambda _: None,
    lifeline: Lifeline | None = None,
) -> Swept:
    """List, judge and, with ``yes``, end.

    Args:
        site: the backend whose books count.
        cloud: the account.
        yes: end what may be ended; else only look.
        stack_ids: what was named; a stack of this backend cannot be.
        say: told of each end.
        lifeline: how to wait; the host's clock by default.

    Raises:
        UsageError: a named stack-id is held by a stack of this backend.
        GpuprovError: nothing could be listed, or a named one is in use.
    """
    patient = PatientCloud(cloud, lifeline or Lifeline())
    books, named = read_books(site), frozenset(stack_ids)
    _refuse_own(books, named)
    seen = cloud.survey_with_strays() if isinstance(cloud, Straying) else survey(cloud)
    judged = judge_all(seen.objects, books, patient.now(), named)
    if not yes:
        return Swept(cloud.provider, tuple(Fate(one) for one in judged), seen.unlisted, is_dry=True)
    gone: set[str] = set()
    stuck: list[BillableObject] = []
    fates: dict[str, Fate] = {one.entry.id: Fate(one) for one in judged}
    for one in in_order(one for one in judged if one.verdict.is_removable and not is_part(one.entry)):
        user = next((machine for machine in stuck if _uses(machine, one.entry)), None)
        if user is not None:
            fates[one.entry.id] = Fate(one, trouble=f"{user.id} still uses it")
            continue
        fates[one.entry.id] = fate = _end(site, patient, one, named, say)
        if fate.is_removed:
            gone.add(one.entry.id)
        elif one.entry.kind == "instance":
            stuck.append(one.entry)
    whole = (_with_its_machine(fate, gone) for fate in fates.values())
    return Swept(cloud.provider, tuple(whole), seen.unlisted, is_dry=False, held=frozenset(books.held))


def read_books(site: Site) -> Books:
    """What the backend knows now."""
    held: dict[str, str] = {}
    unreadable: list[str] = []
    busy: set[str] = set()
    made = read_made(made_file(site.home, site.backend))
    names = set(site.stacks())
    for name in sorted(names):
        try:
            state = site.read(name)
        except CloudError:
            unreadable.append(name)
            continue
        if state is not None and state.stack_id:
            held[state.stack_id] = name
    for name in names | set(made.values()):
        directory = site.backend.directory
        has_engine = directory is not None and bool(engine_locks(directory, name))
        if has_engine or is_held(lock_path(site.home, site.backend.key, name)):
            busy.add(name)
    return Books(held, made, frozenset(busy), tuple(unreadable))


def document(swept: Swept) -> dict[str, Any]:
    """``gpuprov.gc/1``."""
    return {
        "schema": "gpuprov.gc/1",
        "provider": swept.provider,
        "dry_run": swept.is_dry,
        "objects": [
            {
                **object_document(fate.judgement.entry, swept.provider),
                "verdict": fate.judgement.verdict.value,
                "reason": fate.judgement.reason,
                "removed": fate.is_removed,
                "trouble": fate.trouble,
            }
            for fate in swept.fates
        ],
        "unlisted_regions": sorted(swept.unlisted),
    }


def _refuse_own(books: Books, named: frozenset[str]) -> None:
    own = next((stack_id for stack_id in sorted(named) if stack_id in books.held), None)
    if own is not None:
        name = books.held[own]
        raise UsageError(f"stack-id {own} is held by stack {name!r}", remedy=f"end it with `gpuprov down {name}`")


def _end(site: Site, cloud: PatientCloud, one: Judgement, named: frozenset[str], say: Callable[[str], None]) -> Fate:
    """End one object, if it still is what it was judged to be."""
    entry = one.entry
    place = _place(entry)
    watch = Watch(cloud, cloud.lifeline)
    try:
        again = _again(site, cloud, one, named)
        if again is None:
            return Fate(one, is_removed=True)
        if not again.verdict.is_removable:
            return Fate(again)
        say(f"ending {describe(entry)}: {one.reason}")
        if entry.kind == "spot-request":
            cloud.terminate_instance(place, entry.id)
        elif entry.kind == "instance":
            watch.end(place, entry.id)
        elif entry.kind == "volume":
            cloud.delete_volume(place, entry.id)
        elif entry.kind == "security-group":
            watch.drop_group(place, entry.id)
        elif isinstance(cloud.cloud, Straying):
            cloud.cloud.end_stray(entry.region, entry.kind, entry.id)
        else:
            raise Rejected(f"gpuprov does not know how to end a {entry.kind}")
    except GpuprovError as error:
        return Fate(one, trouble=error.message)
    return Fate(one, is_removed=True)


def _again(site: Site, cloud: PatientCloud, one: Judgement, named: frozenset[str]) -> Judgement | None:
    """The object judged anew by fresh books and, for a machine, a fresh look; ``None`` where it is gone."""
    entry = one.entry
    if entry.kind == "instance":
        now = cloud.get_instance(_place(entry), entry.id)
        if now is None or now.state.is_gone:
            return None
        if now.tags.get(tags.STACK_ID) != entry.tags.get(tags.STACK_ID):
            return Judgement(entry, Verdict.FOREIGN, "its stack-id has changed since the list was made")
        entry = _replaced(entry, str(now.state), now.tags)
    fresh = judge_all([entry], read_books(site), cloud.now(), named)
    return fresh[0] if fresh else Judgement(entry, Verdict.IN_PROGRESS, "a stack holds it now")


def _replaced(entry: BillableObject, state: str, carried: Mapping[str, str]) -> BillableObject:
    from dataclasses import replace

    return replace(entry, state=state, tags=dict(carried))


def _with_its_machine(fate: Fate, gone: set[str]) -> Fate:
    """A root disk or an address goes with its machine."""
    entry = fate.judgement.entry
    if is_part(entry) and holder_of(entry) in gone:
        return Fate(fate.judgement, is_removed=True)
    return fate


def _uses(machine: BillableObject, entry: BillableObject) -> bool:
    """Whether a machine that stays keeps an object from its end: waiting for it would be in vain."""
    if entry.kind == "security-group":
        return (_stack_id(machine), machine.region) == (_stack_id(entry), entry.region)
    return entry.extra.get("instance") == machine.id


def _stack_id(entry: BillableObject) -> str:
    return entry.tags.get(tags.STACK_ID, "")


def _place(entry: BillableObject) -> Placement:
    capacity = entry.extra.get("capacity_type", CapacityType.ON_DEMAND.value)
    kind = entry.extra.get("instance_type", "")
    return Placement(entry.cloud, entry.region, entry.zone, kind, CapacityType(capacity))
