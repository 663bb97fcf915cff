"""What the cloud holds for a stack, what it costs, and what of it the state does not know.

Asked after every failure: a bill that nobody sees is the worst that a provisioner can do.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from provisioner import tags
from provisioner.clouds.cloud import AGE_UNKNOWN, BillableObject, Cloud
from provisioner.errors import GpuprovError, Leaked, Locked
from provisioner.tags import format_time
from provisioner.units import decimal_string, format_usd
from stacks.clouds import list_within
from stacks.state import StackState

_GONE = ("terminated", "interrupted", "deleted")


@dataclass(frozen=True, slots=True)
class Standing:
    """The objects of one stack as the cloud shows them."""

    objects: tuple[BillableObject, ...]

    @property
    def price_usd_per_hour(self) -> Decimal | None:
        """What all of it costs an hour; ``None`` where a price is unknown."""
        prices = [price_of(entry) for entry in self.objects]
        return None if None in prices else sum((price for price in prices if price is not None), Decimal(0))

    @property
    def billing(self) -> tuple[BillableObject, ...]:
        """What costs something, or may: an unknown price is not a price of nothing."""
        return tuple(entry for entry in self.objects if price_of(entry) != 0)

    def unknown_to(self, state: StackState | None) -> tuple[BillableObject, ...]:
        """What bills and the state does not hold."""
        held = held_ids(state)
        return tuple(entry for entry in self.billing if entry.id not in held and _parent(entry) not in held)

    def describe(self) -> str:
        """All that bills in one line, with its price, for messages; there must be something."""
        total = self.price_usd_per_hour
        cost = f"{format_usd(total, 4)}/h in all" if total is not None else "price unknown"
        return f"{'; '.join(describe(entry) for entry in self._named)}: {cost}"

    @property
    def _named(self) -> list[BillableObject]:
        """What a message names: each that bills by itself, or through a part of it, as the disk of a stopped machine does."""
        holders = {_parent(entry) or entry.id for entry in self.billing}
        named = [entry for entry in self.objects if entry.id in holders]
        known = {entry.id for entry in named}
        return named + [entry for entry in self.billing if entry.id not in known and _parent(entry) not in known]


def look(cloud: Cloud, stack_ids: Iterable[str | None], regions: Collection[str] = ()) -> Standing:
    """The objects that carry one of the stack-ids; the name of a stack is no identity.

    Args:
        cloud: the account.
        stack_ids: whose objects.
        regions: where they may be (``StackState.regions``); others need not answer. Empty: anywhere.

    Raises:
        GpuprovError: what is there could not be listed.
    """
    wanted = {stack_id for stack_id in stack_ids if stack_id}
    if not wanted:
        return Standing(())
    found = (entry for entry in list_within(cloud, regions) if entry.tags.get(tags.STACK_ID) in wanted)
    return Standing(tuple(entry for entry in found if entry.state not in _GONE))


def held_ids(state: StackState | None) -> set[str]:
    """Ids of cloud objects that the state holds, resources on their way out included."""
    if state is None:
        return set()
    held: set[str] = set()
    for resource in state.own:
        outputs = resource.outputs
        held.update(str(outputs[key]) for key in ("instanceId", "volumeId") if outputs.get(key))
        held.update(str(volume_id) for volume_id in outputs.get("volumeIds") or ())
        held.update(str(group["id"]) for group in outputs.get("securityGroups") or () if group.get("id"))
    return held


def price_of(entry: BillableObject) -> Decimal | None:
    """The price an hour, or ``None`` for an unknown one."""
    return None if entry.price_usd_per_hour is None else Decimal(entry.price_usd_per_hour)


def describe(entry: BillableObject) -> str:
    """One object for people: ``instance i-0abc (g6.xlarge) running in aws us-east-1 (use1-az1), $0.8048/h``."""
    kind = entry.extra.get("instance_type")
    price = price_of(entry)
    cost = "price unknown" if price is None else f"{format_usd(price, 4)}/h"
    return (
        f"{entry.kind} {entry.id}{f' ({kind})' if kind else ''} {entry.state} in {entry.cloud} "
        f"{_place(entry.region, entry.zone)}, {cost}"
    )


def _place(region: str, zone: str | None) -> str:
    """Region and zone; the zone alone where it says its region. A zone id of AWS does not: nobody finds a console by it."""
    if zone is None:
        return region
    return zone if zone.startswith(region) else f"{region} ({zone})"


def object_document(entry: BillableObject, provider: str) -> dict[str, Any]:
    """One object as it stands in JSON (CONTRACTS section 5)."""
    return {
        "cloud": entry.cloud,
        "provider": provider,
        "kind": entry.kind,
        "id": entry.id,
        "region": entry.region,
        "zone": entry.zone,
        "state": entry.state,
        "tags": dict(entry.tags),
        "price_usd_per_hour": None
        if entry.price_usd_per_hour is None
        else decimal_string(Decimal(entry.price_usd_per_hour)),
        "created_at": None if entry.extra.get(AGE_UNKNOWN) else format_time(entry.created_at),
        "size_bytes": int(entry.extra["size_bytes"]) if entry.extra.get("size_bytes") else None,
        "instance_type": entry.extra.get("instance_type"),
    }


def account(error: GpuprovError, standing: Standing | None, state: StackState | None, stack: str) -> GpuprovError:
    """An error that also says what exists now and what it costs; a leak comes before its cause.

    Args:
        error: why the command failed.
        standing: what the cloud holds; ``None`` where it could not be asked.
        state: the state after the failure.
        stack: the stack's name, for the way out.
    """
    if standing is None:
        return _with_text(error, f"what exists now could not be asked; `gpuprov status {stack}` asks again")
    if isinstance(error, Locked):  # what the state does not hold yet is being made, or ended, by who holds the stack
        return _with_text(
            error, f"exists now: {standing.describe()}" if standing.billing else "nothing of it bills now"
        )
    leaked = standing.unknown_to(state)
    if leaked and error.exit_code != 2:
        names = "; ".join(describe(entry) for entry in leaked)
        return Leaked(
            f"{error.message}; this bills and the state does not hold it: {names}",
            where=error.where,
            remedy=f"`gpuprov up` takes it over, `gpuprov down {stack}` ends it",
        )
    if not standing.billing:
        return _with_text(error, "nothing of the stack bills")
    return _with_text(error, f"exists now: {standing.describe()}", remedy=f"`gpuprov down {stack}` ends it")


def ask(cloud: Cloud, *states: StackState | None) -> Standing | None:
    """What the cloud holds for states of a stack; ``None`` where it does not answer, a fact to tell and not another failure."""
    known = [state for state in states if state is not None]
    regions = frozenset(region for state in known for region in state.regions)
    try:
        return look(cloud, [state.stack_id for state in known], regions)
    except GpuprovError:
        return None


def _with_text(error: GpuprovError, text: str, *, remedy: str | None = None) -> GpuprovError:
    copy = type(error)(f"{error.message}; {text}", where=error.where, remedy=error.remedy or remedy)
    copy.__cause__ = error
    return copy


def _parent(entry: BillableObject) -> str | None:
    """The machine that an object comes and goes with: root disks and addresses; data disks stand for themselves."""
    return None if entry.extra.get("role") == "data" else entry.extra.get("instance")
