"""Before anything is made: what an earlier run, here or on another host, may have left for this slot."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from provisioner.clouds.cloud import Instance, InstanceState, Placement
from provisioner.errors import NotFound, Rejected
from stacks.provider.disks import Zone, move_steps
from stacks.provider.failover import ADOPTED, PERMIT, Failover
from stacks.provider.identity import Slot
from stacks.provider.inputs import InstanceInputs
from stacks.provider.journal import Note, Stage
from stacks.provider.machine import VISIBILITY, Wanted, covers, is_over, live, reasons_for_new
from stacks.provider.offers import image_of, ordered
from stacks.provider.rerun import Live, rerun
from stacks.provider.session import Session

KIND = "instance"


@dataclass(frozen=True, slots=True)
class Recovery:
    """Looks for the machine of one slot that the state does not hold."""

    session: Session
    slot: Slot
    inputs: InstanceInputs
    asked_at: datetime
    """When the look began: what an answer does not show is judged by the age that it had then."""

    @property
    def places(self) -> tuple[Placement, ...]:
        """Where a machine or a disk of the slot may be: the offers, and those of which the launch knows."""
        return (*self.inputs.offers, *places_of(tuple(self.inputs.launch.image)))

    def existing(self, walk: Failover, note: Note | None) -> Instance | None:
        """The live machine of the slot that satisfies the inputs; any other of the slot is ended first.

        Raises:
            GpuprovError: the cloud cannot say, or does not end one.
            Unfinished: it exists, and does not come to life.
        """
        watch = self.session.watch
        wanted = Wanted(self.inputs.offers, self.inputs.workload, self.inputs.root_volume_bytes)
        keep: Instance | None = None
        for instance in live(watch.find(self.slot, self.places)) or self._appearing(note):
            is_fit = not reasons_for_new(wanted, instance.placement, instance.image, None)
            if keep is None and is_fit and not is_over(instance.state) and self._can_run(instance):
                keep = instance
            else:
                watch.end(instance.placement, instance.id)
        if keep is None:
            return None
        if keep.state in (InstanceState.STOPPING, InstanceState.STOPPED):
            walk.note(keep.placement, ADOPTED, keep.id)
            return keep
        return walk.alive(keep.placement, keep, ADOPTED)[0]

    def _can_run(self, instance: Instance) -> bool:
        """Whether the machine runs what is asked for, or can be told to."""
        given = (self.inputs.workload, self.inputs.node)
        try:
            again = rerun(self.session.cloud, Live(instance.placement, instance.id, instance.tags), given, {})
        except NotFound:
            return False
        return again is None or again.refusal is None

    def unsettled(self, note: Note | None) -> Note | None:
        """The call of an earlier run that can be made again to learn what became of it."""
        if note is None or not self._is_recent(note) or image_of(self.inputs.launch, note.placement) is None:
            return None
        return note if any(covers(offer, note.placement) for offer in self.inputs.offers) else None

    def offers(self) -> tuple[Placement, ...]:
        """The offers in the order in which they are tried, narrowed to the zone of the data disks.

        Raises:
            Rejected: the disks are where no offer is.
        """
        offers = ordered(self.inputs.offers, self.inputs.launch.avoid)
        zone = self._zone_of_disks()
        if zone is None:
            return offers
        narrowed = zone.narrow(offers)
        if not narrowed:
            raise Rejected(
                f"the data disks are in {zone.zone} ({zone.cloud} {zone.region}), and no offer is there",
                remedy=move_steps("them", "the new zone"),
            )
        return narrowed

    def _appearing(self, note: Note | None) -> list[Instance]:
        """Machines that an earlier run may have made and that are not visible yet, waited for where no token tells."""
        watch = self.session.watch
        launch = self.inputs.launch
        if note is not None and note.generation == launch.generation:
            if not self._is_recent(note) or self.unsettled(note) is not None:
                return []
            return watch.until_found(self.slot, [*self.places, note.placement], VISIBILITY)
        is_first = (launch.stack_id, launch.generation) in self.session.issued
        is_old = self.asked_at - launch.created_at > PERMIT + VISIBILITY
        if is_first or is_old or not self.session.is_shared:
            return []
        return watch.until_found(self.slot, self.places, VISIBILITY)

    def _is_recent(self, note: Note) -> bool:
        """Whether a call may have made a machine that is not visible yet."""
        is_open = note.kind == KIND and note.stage in (Stage.CALLING, Stage.MADE)
        is_ours = note.generation == self.inputs.launch.generation
        return is_open and is_ours and self.asked_at - note.at <= VISIBILITY

    def _zone_of_disks(self) -> Zone | None:
        slots = [Slot(self.slot.stack_id, self.slot.stack, volume.name) for volume in self.inputs.volumes]
        return self.session.disks.bound_zone(slots, self.places) if slots else None


def places_of(keys: Sequence[str]) -> tuple[Placement, ...]:
    """Placements of offer keys (``Placement.key``); keys that are none are left out."""
    return tuple(place for key in keys if (place := Placement.of_key(key)) is not None)
