"""Machines seen from a resource: which offers cover them, when a new one is needed, and how long to look for them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any

from provisioner import tags
from provisioner.clouds.cloud import Cloud, End, Instance, InstanceState, Placement
from provisioner.errors import GpuprovError, NotFound, Rejected, TimedOut
from stacks.provider.identity import Slot
from stacks.provider.lifeline import Lifeline

VISIBILITY = timedelta(seconds=60)
"""How long a machine may stay invisible after its create call. EC2 shows it within a second as a rule; one report has a
minute. Source: reference issues skypilot-org/skypilot#4443 and chef-boneyard/chef-provisioning-aws#158."""
RUNNING_MAX = timedelta(minutes=15)
"""Longest wait for a machine to run; large GPU machines take 5 to 10 min for their memory checks."""
GONE_MAX = timedelta(minutes=15)
"""Longest wait for a terminated machine to be gone; GPU machines shut down for several minutes."""
LOOKS = 3
"""Readings that must agree before a machine that was visible counts as gone (lists are eventually consistent)."""
_POLL_FIRST_S = 0.05
_POLL_LAST_S = 2.0


@dataclass(frozen=True, slots=True)
class Wanted:
    """What a machine must satisfy to stay."""

    offers: tuple[Placement, ...]
    workload: Mapping[str, Any]
    root_volume_bytes: int


def covers(offer: Placement, placement: Placement) -> bool:
    """Whether an offer is for this placement; one without a zone is for any zone of its region."""
    return replace(offer, zone=placement.zone if offer.zone is None else offer.zone) == placement


def pinned_image(workload: Mapping[str, Any], cloud: str) -> str | None:
    """The image that the spec pins for a cloud (``aws.image``, ``gcp.image``)."""
    part = workload.get(cloud)
    image = part.get("image") if isinstance(part, Mapping) else None
    return str(image) if image else None


def reasons_for_new(
    wanted: Wanted, placement: Placement, image: str | None, root_volume_bytes: int | None
) -> dict[str, str]:
    """Why the machine cannot stay: input -> reason; empty where it can.

    Args:
        wanted: the inputs.
        placement: where the machine is.
        image: what it was made from; ``None`` where that is not known.
        root_volume_bytes: size of its root disk; ``None`` where that is not known.
    """
    reasons = {}
    if not any(covers(offer, placement) for offer in wanted.offers):
        reasons["offers"] = f"{placement.key} is no longer among the offers"
    pin = pinned_image(wanted.workload, placement.cloud)
    if pin is not None and image is not None and pin != image:
        reasons["workload"] = f"the image is pinned to {pin}, the machine has {image}"
    if root_volume_bytes is not None and root_volume_bytes != wanted.root_volume_bytes:
        reasons["rootVolume"] = "the root disk has another size, and a root disk is made with its machine"
    return reasons


def is_over(state: InstanceState) -> bool:
    """Whether a machine is gone or on its way: it comes back in neither case."""
    return state.is_gone or state is InstanceState.TERMINATING


def is_loss(before: InstanceState, instance: Instance) -> bool:
    """Whether a machine that ran when it was last looked at has been taken back by its cloud since."""
    is_taken = instance.ended is not None and instance.ended.how is End.TAKEN_BACK
    return is_taken and before in (InstanceState.PENDING, InstanceState.RUNNING)


def generation_of(instance: Instance) -> int:
    """The generation in a machine's tags; 0 where somebody wrote over it."""
    text = instance.tags.get(tags.GENERATION, "")
    return int(text) if text.isdecimal() else 0


def regions(placements: Iterable[Placement]) -> tuple[Placement, ...]:
    """One placement of each region, for look-ups by tag."""
    return tuple({(place.cloud, place.region): place for place in placements}.values())


def live(instances: Iterable[Instance]) -> list[Instance]:
    """Those that still bill or can bill again, newest generation first, then oldest first."""
    return sorted((i for i in instances if not i.state.is_gone), key=lambda i: (-generation_of(i), i.created_at, i.id))


@dataclass(frozen=True, slots=True)
class Watch:
    """Waits for machines; every wait ends with the engine."""

    cloud: Cloud
    lifeline: Lifeline

    def find(self, slot: Slot, placements: Sequence[Placement]) -> list[Instance]:
        """Machines of the slot in the regions of the placements, gone ones included while they are listed."""
        return self.cloud.find_instances(slot.tags, regions(placements))

    def look_again(self, placement: Placement, instance_id: str) -> Instance | None:
        """A machine that was visible before; ``None`` only where several readings in a row do not show it."""
        for look in range(LOOKS):
            if look:
                self.lifeline.sleep(_POLL_FIRST_S * 4)
            instance = self.cloud.get_instance(placement, instance_id)
            if instance is not None:
                return instance
        return None

    def until_visible(self, placement: Placement, instance_id: str, made_at: datetime) -> Instance | None:
        """A machine that may not have been visible yet; ``None`` where it is not within ``VISIBILITY`` of its creation."""
        for _ in self._polls(VISIBILITY):
            asked_at = self.cloud.now()  # before the look: an answer may be long on its way
            instance = self.cloud.get_instance(placement, instance_id)
            if instance is not None:
                return instance
            if asked_at - made_at > VISIBILITY:
                return None
        return None

    def until_found(self, slot: Slot, placements: Sequence[Placement], limit: timedelta) -> list[Instance]:
        """Live machines of the slot, as soon as one is visible; empty after ``limit``."""
        for _ in self._polls(limit):
            found = live(self.find(slot, placements))
            if found:
                return found
        return []

    def until_running(self, instance: Instance) -> Instance:
        """The machine once it runs, is stopped, or is gone.

        Raises:
            NotFound: it did not become visible.
            TimedOut: it still does not run.
        """
        seen: Instance | None = None
        for waited in self._polls(RUNNING_MAX):
            now = self.cloud.get_instance(instance.placement, instance.id)
            if now is None and seen is not None:
                now = self.look_again(instance.placement, instance.id)
                if now is None:
                    return replace(seen, state=InstanceState.TERMINATED)
            if now is None and waited > VISIBILITY:
                raise NotFound(f"{instance.id} was made and has not been visible for {_seconds(waited)}")
            seen = now or seen
            if now is not None and now.state not in (InstanceState.PENDING, InstanceState.STOPPING):
                return now
        raise TimedOut(
            f"{instance.id} does not run after {_seconds(RUNNING_MAX)}; it bills",
            remedy="run the command again to wait on, or `down` to end it",
        )

    def until_stopped(self, instance: Instance) -> Instance:
        """The machine once it is stopped or gone.

        Raises:
            TimedOut: it is still stopping.
        """
        for _ in self._polls(GONE_MAX):
            now = self.look_again(instance.placement, instance.id)
            if now is None:
                return replace(instance, state=InstanceState.TERMINATED)
            if now.state is InstanceState.STOPPED or now.state.is_gone:
                return now
        raise TimedOut(f"{instance.id} is not stopped after {_seconds(GONE_MAX)}; it bills until it is")

    def until(self, is_so: Callable[[], bool], limit: timedelta) -> bool:
        """Whether something has become so within a limit."""
        return any(is_so() for _ in self._polls(limit))

    def end(self, placement: Placement, instance_id: str, *, maybe_unseen_since: datetime | None = None) -> None:
        """Terminate a machine and return when the cloud confirms that it is gone.

        Args:
            placement: where it is.
            instance_id: its id.
            maybe_unseen_since: when it was made, if it may not have been visible yet: a cloud that does not see a machine
                answers a terminate as if it were gone.

        Raises:
            TimedOut: the cloud does not confirm it; the machine may bill.
            GpuprovError: the cloud refused.
        """
        if maybe_unseen_since is not None:
            self.until_visible(placement, instance_id, maybe_unseen_since)
        self.cloud.terminate_instance(placement, instance_id)
        for _ in self._polls(GONE_MAX):
            now = self.look_again(placement, instance_id)
            if now is None or now.state.is_gone:
                return
        raise TimedOut(
            f"{instance_id} in {placement.region} was told to end and is not confirmed gone after {_seconds(GONE_MAX)}",
            remedy="it may bill: run the command again",
        )

    def drop_group(self, placement: Placement, group_id: str) -> None:
        """Delete a security group, waiting while the network still holds it for a machine that has just ended.

        Raises:
            GpuprovError: it cannot be deleted.
        """
        refusal: GpuprovError | None = None
        for _ in self._polls(timedelta(minutes=5)):
            try:
                self.cloud.delete_security_group(placement, group_id)
            except Rejected as error:
                refusal = error
            else:
                return
        raise refusal or TimedOut(f"security group {group_id} could not be deleted")

    def _polls(self, limit: timedelta) -> Iterable[timedelta]:
        """Moments to look, close together at first; the time waited so far with each."""
        pause_s, waited_s = _POLL_FIRST_S, 0.0
        while True:
            yield timedelta(seconds=waited_s)
            if waited_s >= limit.total_seconds():
                return
            self.lifeline.sleep(pause_s)
            waited_s += pause_s
            pause_s = min(pause_s * 1.5, _POLL_LAST_S)


def _seconds(duration: timedelta) -> str:
    return f"{duration.total_seconds():.0f} s"
