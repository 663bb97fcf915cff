"""What a machine was asked for, told from what it is: by the token of its create call, which no change by hand changes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from provisioner.clouds.cloud import Instance, Placement
from stacks.provider.failover import ROUNDS_MAX
from stacks.provider.identity import Slot
from stacks.provider.inputs import LaunchFacts
from stacks.provider.machine import covers
from stacks.provider.offers import image_of


@dataclass(frozen=True, slots=True)
class Asked:
    """Parts of a create call that the machine itself may contradict later."""

    placement: Placement
    image: str | None = None
    stops: bool | None = None
    """Whether a shutdown from inside was to stop it; ``None`` where that is not known."""

    def document(self) -> dict[str, Any]:
        """As it stands among the outputs."""
        parts = {"offer": self.placement.key, "image": self.image, "stopsOnShutdown": self.stops}
        return {key: value for key, value in parts.items() if value is not None}

    @classmethod
    def read(cls, value: Any) -> Asked | None:
        """Of an output; ``None`` where there is none, as in the state of an earlier version."""
        entry = value if isinstance(value, Mapping) else {}
        placement = Placement.of_key(str(entry.get("offer") or ""))
        return None if placement is None else cls(placement, entry.get("image"), entry.get("stopsOnShutdown"))


def placement_asked(instance: Instance, slot: Slot, generation: int, offers: Iterable[Placement]) -> Placement | None:
    """The offer whose create call made a machine, with the machine's zone; ``None`` where none of the offers did.

    Args:
        instance: as the cloud shows it.
        slot: whose it is; its stack's name does not count.
        generation: of its tags.
        offers: those that may have been asked for.
    """
    if not instance.token:
        return None
    for offer in dict.fromkeys(offers):
        here = replace(offer, zone=offer.zone or instance.placement.zone)
        for key in {offer.key, here.key}:
            if any(slot.token(generation, number, key) == instance.token for number in range(ROUNDS_MAX)):
                return here
    return None


def asked(
    instance: Instance,
    slot: Slot,
    generation: int,
    offers: Iterable[Placement],
    launch: LaunchFacts,
    *,
    before: Asked | None,
) -> Asked:
    """What a machine was asked for, as far as it can be known.

    One that none of our calls made has our tags all the same, copied with them: it should be what is asked for now.

    Args:
        instance: as the cloud shows it.
        slot: whose it is.
        generation: of its tags.
        offers: what is asked for now, in rank order, and what was before.
        launch: its launch.
        before: what the state says of this very machine.
    """
    wanted = tuple(offers)
    placement = placement_asked(instance, slot, generation, wanted)
    if placement is None and before is not None:
        placement = before.placement
    if placement is None:
        fitting = next((offer for offer in wanted if covers(offer, instance.placement)), wanted[0])
        placement = replace(fitting, zone=fitting.zone or instance.placement.zone)
    image = image_of(launch, placement) if launch.generation == generation else None
    known = image or (before.image if before is not None else None)
    return Asked(placement, known or instance.image, before.stops if before is not None else None)
