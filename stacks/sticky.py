"""A live stack keeps its place: its machine stays where it is as long as that place still satisfies the spec.

Prices move every day; a machine that moves with them loses its disks' zone, its warm cache and its address. ``--replan`` moves.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from provisioner.catalog.snapshot import Catalog
from provisioner.clouds.cloud import InstanceState
from provisioner.planner.decide import make_plan
from provisioner.planner.plan import Alternative, Plan, PlannedOffer
from provisioner.vocabulary import CapacityType, Fit
from provisioner.workload.spec import Workload
from stacks.state import StackState

KEPT = "kept: the stack's machine runs there"
KEPT_DISKS = "kept: the stack's data disks are there"
_CAPACITY_WORDS = {
    CapacityType.SPOT: "spot",
    CapacityType.ON_DEMAND: "on-demand",
    CapacityType.RESERVED: "reserved",
    CapacityType.CAPACITY_BLOCK: "reserved",
    CapacityType.FLEX_START: "reserved",
}


@dataclass(frozen=True, slots=True)
class Anchor:
    """What binds a stack to a place: its machine, or disks that wait for one."""

    cloud: str
    region: str
    zone: str | None
    instance_type: str | None = None
    capacity_type: str | None = None

    def holds(self, offer: PlannedOffer) -> bool:
        """Whether an offer is in this place; one that names no zone is in any zone of its region."""
        return (
            (offer.cloud, offer.region) == (self.cloud, self.region)
            and (self.zone is None or offer.zone in (None, self.zone))
            and self.instance_type in (None, offer.instance_type)
            and self.capacity_type in (None, str(offer.capacity_type))
        )


def machine_anchor(state: StackState | None) -> Anchor | None:
    """The place of the stack's machine, or ``None`` where there is none to keep."""
    if state is None or state.instance is None or _is_gone(state.instance.outputs):
        return None
    outputs = state.instance.outputs
    if not outputs.get("cloud") or not outputs.get("region"):
        return None
    return Anchor(
        str(outputs["cloud"]),
        str(outputs["region"]),
        outputs.get("zone"),
        outputs.get("instanceType"),
        outputs.get("capacityType"),
    )


def disk_anchor(state: StackState | None) -> Anchor | None:
    """The zone of the stack's data disks, or ``None`` before they exist; disks never move."""
    if state is None:
        return None
    bound = [volume.outputs for volume in state.volumes if volume.outputs.get("zone")]
    if state.outputs.get("volumeIds") and state.outputs.get("zone"):
        bound.append(
            state.outputs
        )  # a disk is where its machine is; the disk's own entry learns that at the next refresh
    return next((Anchor(str(o["cloud"]), str(o["region"]), str(o["zone"])) for o in bound), None)


def plan_for_stack(
    workload: Workload, catalog: Catalog, state: StackState | None, *, provider: str | None, replan: bool = False
) -> Plan:
    """The plan of a workload for a stack: the free one for a new stack, the place it has for a live one.

    Args:
        workload: the spec.
        catalog: offers and prices.
        state: the stack's state; ``None`` for a new one.
        provider: where it is carried out.
        replan: choose anew, within the zone of bound disks.
    """
    free = make_plan(workload, catalog, provider=provider)
    if free.choice is None:
        return free
    machine, disks = machine_anchor(state), disk_anchor(state)

    def keep(anchor: Anchor, reason: str) -> Plan | None:
        return _keep(free, make_plan(_narrowed(workload, anchor), catalog, provider=provider), anchor, reason)

    if machine is not None and not replan:
        if machine.holds(free.choice):
            return replace(free, choice=replace(free.choice, reasons=(KEPT, *free.choice.reasons)))
        if kept := keep(machine, KEPT):
            return kept
    base = (keep(disks, KEPT_DISKS) if disks is not None else None) or free
    return _without(base, machine) if machine is not None and replan else base


def _keep(free: Plan, narrow: Plan, anchor: Anchor, reason: str) -> Plan | None:
    """The plan of a place in the frame of the free one, or ``None`` where the place no longer satisfies the spec."""
    offers = tuple(offer for offer in narrow.failover if anchor.holds(offer))
    if not offers or (narrow.verdict == Fit.BORDERLINE and free.verdict != Fit.BORDERLINE):
        return None
    return _kept(free, narrow, offers, reason)


def _kept(free: Plan, narrow: Plan, offers: tuple[PlannedOffer, ...], reason: str) -> Plan:
    """The plan of the kept place in the frame of the free one; other offers follow, for the case that the machine is gone."""
    choice = replace(offers[0], reasons=(reason,))
    others = (offer for offer in free.failover if offer.layout == choice.layout and offer.instances == choice.instances)
    return replace(
        free,
        verdict=narrow.verdict,
        choice=choice,
        footprint=narrow.footprint,
        throughput=narrow.throughput,
        cost=narrow.cost,
        storage=narrow.storage,
        launch_argv=narrow.launch_argv,
        launch_env=narrow.launch_env,
        failover=tuple(_distinct((*offers, *others))),
        alternatives=(*_best_elsewhere(free), *free.alternatives),
        warnings=narrow.warnings,
    )


def _without(plan: Plan, machine: Anchor) -> Plan:
    """The plan without the place that the machine would otherwise keep, unless the choice is that place."""
    if plan.choice is not None and machine.holds(plan.choice):
        return plan
    return replace(plan, failover=tuple(offer for offer in plan.failover if not machine.holds(offer)))


def _narrowed(workload: Workload, anchor: Anchor) -> Workload:
    """The workload that may run in the anchor's place only; all its other requirements stay and are checked again."""
    changes: dict[str, Any] = {"clouds": (anchor.cloud,), "regions": (anchor.region,)}
    if anchor.instance_type is not None:
        changes["instance_types"] = (anchor.instance_type,)
    if anchor.capacity_type is not None:
        changes["capacity"] = _CAPACITY_WORDS[CapacityType(anchor.capacity_type)]
    asked = workload.placement
    allowed: Mapping[str, tuple[str, ...]] = {
        "clouds": asked.clouds,
        "regions": asked.regions,
        "instance_types": asked.instance_types,
    }
    for key, names in allowed.items():
        if names and key in changes and changes[key][0] not in names:
            return workload  # the spec excludes the place: nothing to keep
    if asked.capacity not in ("auto", changes.get("capacity", asked.capacity)):
        return workload
    return workload.model_copy(update={"placement": asked.model_copy(update=changes)})


def _best_elsewhere(free: Plan) -> Iterator[Alternative]:
    """What a new stack would get: shown, so that ``--replan`` is an informed choice."""
    if free.choice is not None and free.footprint is not None and free.cost is not None:
        yield Alternative(replace(free.choice, reasons=()), replace(free.footprint, assumptions=()), free.cost)


def _distinct(offers: tuple[PlannedOffer, ...]) -> Iterator[PlannedOffer]:
    return iter({offer.key: offer for offer in offers}.values())


def _is_gone(outputs: Mapping[str, Any]) -> bool:
    power = outputs.get("power")
    return power in tuple(InstanceState) and InstanceState(str(power)).is_gone
