"""Data disks: bound late, found by tag, grown in place, never deleted with a machine."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from provisioner import tags
from provisioner.clouds.cloud import Cloud, Instance, Placement, Volume, VolumeRequest
from provisioner.errors import Ambiguous, CloudError, GpuprovError, Rejected, TimedOut, TokenMismatch, TokenSpent
from provisioner.units import format_gib
from provisioner.vocabulary import CapacityType
from stacks.provider import journal
from stacks.provider.identity import Slot, object_tags
from stacks.provider.inputs import InstanceInputs, WantedVolume
from stacks.provider.journal import Note, Stage
from stacks.provider.lifeline import Lifeline
from stacks.provider.machine import VISIBILITY, Watch, is_over, regions

KIND = "volume"
_ROUNDS_MAX = 8
_POLL_S = 0.2
_DETACH_MAX = timedelta(minutes=5)
"""Longest wait for the cloud to let go of a disk whose machine has ended."""


def lost_words(volume_id: str) -> str:
    """What is said of a data disk that the state holds and the cloud does not; in the same words by whoever sees it first."""
    return f"data disk {volume_id} is not there any more, nor is its data; an update makes an empty one"


@dataclass(frozen=True, slots=True)
class Zone:
    """Where a disk can be attached."""

    cloud: str
    region: str
    zone: str

    def narrow(self, offers: Iterable[Placement]) -> tuple[Placement, ...]:
        """The offers that can be had in this zone, with the zone put in where they name none."""
        return tuple(
            replace(offer, zone=self.zone)
            for offer in offers
            if (offer.cloud, offer.region) == (self.cloud, self.region) and offer.zone in (None, self.zone)
        )


@dataclass(frozen=True, slots=True)
class Disks:
    """Data disks of one stack on one cloud."""

    cloud: Cloud
    lifeline: Lifeline
    home: Path

    def find(self, slot: Slot, placements: Sequence[Placement]) -> Volume | None:
        """The disk of a slot in the regions of the placements; the oldest, should there be several."""
        found = self.cloud.find_volumes(slot.tags, regions(placements))
        return found[0] if found else None

    def bound_zone(self, slots: Iterable[Slot], placements: Sequence[Placement]) -> Zone | None:
        """The zone that the disks of some slots are in; ``None`` where no disk exists yet.

        Raises:
            Rejected: they are in two zones, so no machine can have both.
        """
        found = [disk for slot in slots if (disk := self.find_settled(slot, placements)) is not None]
        zones = list(dict.fromkeys(Zone(disk.cloud, disk.region, disk.zone) for disk in found))
        if len(zones) > 1:
            places = ", ".join(f"{disk.name} ({disk.id}) in {disk.zone}" for disk in found)
            raise Rejected(f"the data disks are in several zones: {places}", remedy=move_steps("them", zones[0].zone))
        return zones[0] if zones else None

    def ensure(self, owner: Slot, inputs: InstanceInputs, wanted: WantedVolume, instance: Instance) -> Volume:
        """The disk, made or found in the machine's zone, large enough and attached.

        Raises:
            Rejected: the disk is in another zone or has another machine, or the machine is in no zone.
            GpuprovError: the cloud refused.
        """
        slot = Slot(owner.stack_id, owner.stack, wanted.name)
        place = instance.placement
        disk = self.find(slot, [place, *inputs.offers]) or self._shown(slot, self._make(slot, inputs, wanted, place))
        if (disk.region, disk.zone) != (place.region, place.zone):
            raise Rejected(
                f"data disk {disk.name} ({disk.id}) is in {disk.zone}, the machine in {place.zone}",
                remedy=move_steps(disk.id, str(place.zone)),
            )
        speed = wanted.speed_in(disk.cloud)
        if disk.size_bytes < wanted.size_bytes or speed not in (None, disk.speed):
            disk = self.cloud.grow_volume(place, disk.id, max(disk.size_bytes, wanted.size_bytes), speed)
        if self._free(disk, slot, instance) != instance.id:
            self.cloud.attach_volume(place, instance.id, disk.id)
        return disk

    def _shown(self, slot: Slot, disk: Volume) -> Volume:
        """A new disk once lists show it: no state holds its id yet, so whoever ends the stack next finds it by tag alone."""
        Watch(self.cloud, self.lifeline).until(lambda: self.find(slot, [placement_of(disk)]) is not None, VISIBILITY)
        return disk

    def delete(self, slot: Slot, placements: Sequence[Placement], known: tuple[Placement, str] | None) -> None:
        """Delete the disk of a slot, one whose creation was cut off included; none is fine.

        Args:
            slot: whose disk.
            placements: one of each region in which it may be.
            known: placement and id of the disk, where the state knows it.

        Raises:
            CloudError: it is attached to a machine.
            GpuprovError: the cloud refused; the disk still bills.
        """
        path = journal.slot_path(self.home, slot.stack_id, KIND, slot.resource)
        with journal.hold(path, self.lifeline) as calls:
            note = calls.read()
            places = [*placements, *([known[0]] if known else []), *([note.placement] if note else [])]
            for disk in self._all(slot, places, note):
                self._delete(placement_of(disk), disk.id, slot, places)
            for placement, volume_id in dict.fromkeys([*([known] if known else []), *_made(note)]):
                self._delete(placement, volume_id, slot, places)
            calls.forget()

    def _free(self, disk: Volume, slot: Slot, instance: Instance) -> str | None:
        """What the disk is attached to, once no other machine has it: this machine or none.

        Raises:
            Rejected: a machine that lives has it.
            TimedOut: the cloud does not let go of it.
        """
        holder, waited_s = disk.attached_to, 0.0
        while holder not in (None, instance.id):
            other = self.cloud.get_instance(instance.placement, holder)
            if other is not None and not is_over(other.state):
                raise Rejected(
                    f"data disk {disk.name} ({disk.id}) is attached to {holder}, which is {other.state}",
                    remedy="detach it there, or end that machine",
                )
            if waited_s > _DETACH_MAX.total_seconds():
                raise TimedOut(f"data disk {disk.id} is still attached to {holder}, which has ended")
            self.lifeline.sleep(_POLL_S)
            waited_s += _POLL_S
            holder = self._holder(disk.id, slot, [instance.placement])
        return holder

    def find_settled(self, slot: Slot, placements: Sequence[Placement]) -> Volume | None:
        """The disk of a slot; one that an earlier run may have made and that is not visible yet is waited for."""
        note = journal.peek(journal.slot_path(self.home, slot.stack_id, KIND, slot.resource))
        places = [*placements, *([note.placement] if note else [])]
        begun_at = self.cloud.now()
        while True:
            asked_at = self.cloud.now()  # before the look: an answer may be long on its way
            disk = self.find(slot, places)
            if disk is not None or _is_decided(note, begun_at, asked_at):
                return disk
            self.lifeline.sleep(_POLL_S)

    def _make(self, slot: Slot, inputs: InstanceInputs, wanted: WantedVolume, place: Placement) -> Volume:
        if place.zone is None:
            raise Rejected(
                f"the cloud does not say which zone of {place.region} the machine is in: no disk can be made"
            )
        path = journal.slot_path(self.home, slot.stack_id, KIND, slot.resource)
        with journal.hold(path, self.lifeline) as calls:
            note = calls.read()
            known = note if note is not None and note.stage is not Stage.REFUSED else None
            first = known.round_number if known is not None else 0
            for round_number in range(first, first + _ROUNDS_MAX):
                self.lifeline.check()  # before the note: a call that never went out needs no settling
                # A refusal of a call that is made again says nothing about the first time: what that made may exist.
                is_repeat = known is not None and round_number == first
                note = Note(KIND, Stage.CALLING, place, 1, round_number, self.cloud.now())
                calls.write(note)
                try:
                    disk = self.cloud.create_volume(_request(slot, inputs, wanted, place, round_number))
                except TokenSpent:
                    calls.amend(note.moved(Stage.REFUSED, self.cloud.now()))
                    continue
                except (Ambiguous, TokenMismatch) as error:
                    found = self._found(slot, place)
                    if found is None and (isinstance(error, TokenMismatch) or isinstance(error.__cause__, TokenSpent)):
                        calls.amend(note.moved(Stage.REFUSED, self.cloud.now()))
                        continue
                    if found is None:
                        raise
                    disk = found
                except GpuprovError:
                    if not is_repeat:
                        calls.amend(note.moved(Stage.REFUSED, self.cloud.now()))
                    raise
                calls.amend(note.moved(Stage.MADE, self.cloud.now(), disk.id))
                return disk
        raise CloudError(f"data disk {wanted.name} was deleted {_ROUNDS_MAX} times while it was made")

    def _found(self, slot: Slot, place: Placement) -> Volume | None:
        """The disk that an unanswered call made, by tag; ``None`` where none shows within the visibility window."""
        Watch(self.cloud, self.lifeline).until(lambda: self.find(slot, [place]) is not None, VISIBILITY)
        return self.find(slot, [place])

    def _all(self, slot: Slot, places: Sequence[Placement], note: Note | None) -> list[Volume]:
        """All disks of the slot; one that was made a moment ago, or may have been, is waited for."""
        begun_at = self.cloud.now()
        while True:
            asked_at = self.cloud.now()
            found = self.cloud.find_volumes(slot.tags, regions(places)) if places else []
            if found or _is_decided(note, begun_at, asked_at):
                return found
            self.lifeline.sleep(_POLL_S)

    def _delete(self, placement: Placement, volume_id: str, slot: Slot, places: Sequence[Placement]) -> None:
        waited_s = 0.0
        while (holder := self._holder(volume_id, slot, places)) is not None:
            instance = self.cloud.get_instance(placement, holder)
            if instance is not None and instance.tags.get(tags.STACK_ID) == slot.stack_id:
                # Machines are deleted before disks: one of ours that still has it was made by a create that was cut off.
                Watch(self.cloud, self.lifeline).end(instance.placement, holder)
            elif instance is not None and not instance.state.is_gone:
                raise CloudError(
                    f"data disk {volume_id} is attached to {holder}, which is {instance.state} and not of this stack",
                    remedy="detach it there first; the disk and its data are kept",
                )
            if waited_s > _DETACH_MAX.total_seconds():
                raise TimedOut(f"data disk {volume_id} is still attached to {holder}, which has ended; the disk bills")
            self.lifeline.sleep(_POLL_S)
            waited_s += _POLL_S
        self.cloud.delete_volume(placement, volume_id)

    def _holder(self, volume_id: str, slot: Slot, places: Sequence[Placement]) -> str | None:
        found = self.cloud.find_volumes(slot.tags, regions(places))
        return next((disk.attached_to for disk in found if disk.id == volume_id), None)


def placement_of(disk: Volume) -> Placement:
    """The place of a disk, for calls that name one; instance and capacity type say nothing there."""
    return Placement(disk.cloud, disk.region, disk.zone, "", CapacityType.ON_DEMAND)


def move_steps(disk: str, zone: str) -> str:
    """How a person moves a disk, since no command does it behind their back."""
    return (
        f"keep an offer in the zone of the disk, or move it by hand: stop the machine, snapshot {disk}, make a disk in "
        f"{zone} from the snapshot, copy its tags, and delete the old one"
    )


def refuse_to_shrink(name: str, size_bytes: int, wanted_bytes: int) -> Rejected:
    """Why a disk is not made smaller, and how a person does it; ``down`` of the old stack takes all of it along."""
    return Rejected(
        f"data disk {name} has {format_gib(size_bytes)} and cannot shrink to {format_gib(wanted_bytes)}",
        remedy="keep its size, or move by hand: snapshot the disk, make a stack of another name with the smaller one "
        "(`gpuprov up SPEC --stack NAME`), copy the data, and only then end this stack with `gpuprov down`",
    )


def _is_decided(note: Note | None, begun_at: datetime, asked_at: datetime) -> bool:
    """Whether a disk of which a note tells would show by now.

    A note without an answer says when its call was about to go out, not when it did: a process may have slept in between. So
    such a one is waited for from the first look on.
    """
    if note is None or note.stage is Stage.REFUSED:
        return True
    since = max(note.at, begun_at) if note.stage is Stage.CALLING else note.at
    return asked_at - since > VISIBILITY


def _made(note: Note | None) -> list[tuple[Placement, str]]:
    if note is None or note.object_id is None:
        return []
    return [(note.placement, note.object_id)]


def _request(
    slot: Slot, inputs: InstanceInputs, wanted: WantedVolume, place: Placement, round_number: int
) -> VolumeRequest:
    zone = f"{place.cloud}/{place.region}/{place.zone}"
    return VolumeRequest(
        token=slot.volume_token(round_number, zone),
        name=slot.name(KIND, round_number, zone),
        region=place.region,
        zone=str(place.zone),
        size_bytes=wanted.size_bytes,
        tags=volume_tags(slot, inputs.workload, round_number + 1, inputs.launch.owner, inputs.tags),
        cloud=place.cloud,
        speed=wanted.speed_in(place.cloud),
    )


def volume_tags(
    slot: Slot, workload: Mapping[str, Any], generation: int, owner: str, stated: Mapping[str, str]
) -> dict[str, str]:
    """Tags of a data disk: those of its machine, without an end."""
    written = object_tags(slot, workload, generation=generation, expires_at=tags.NONE, owner=owner, stated=stated)
    return {**written, tags.IDLE_AFTER: tags.NONE, tags.TERMINATE_AFTER: tags.NONE}
