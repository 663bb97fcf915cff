"""Why ``up`` goes no further where somebody has changed the machine by hand into another than the spec allows."""

from __future__ import annotations

from provisioner.clouds.cloud import InstanceState, Placement
from provisioner.errors import Rejected
from stacks import foreign
from stacks.outcome import Outcome
from stacks.program import ProgramInputs
from stacks.provider.inputs import read_offers
from stacks.provider.machine import covers, pinned_image
from stacks.state import GPU_INSTANCE

_OVER = (InstanceState.TERMINATED, InstanceState.TERMINATING, InstanceState.INTERRUPTED)


def refuse_altered(stack: str, inputs: ProgramInputs, seen: Outcome) -> None:
    """Refuse an update of a machine that somebody has changed into one which the spec does not allow.

    Going on would leave it so, unseen by a pipeline; replacing it would end a machine that nobody has asked to end.

    Raises:
        Rejected: it is so; nothing was changed.
    """
    offers = read_offers(list(inputs.offers))
    for drift in seen.drift:
        there = drift.after
        if drift.type != GPU_INSTANCE or drift.is_gone or not drift.foreign or there.get("power") in _OVER:
            continue
        place = Placement.of_key(
            "/".join(str(there.get(key) or "*") for key in ("cloud", "region", "zone", "instanceType", "capacityType"))
        )
        pin = pinned_image(inputs.workload, str(there.get("cloud")))
        is_allowed = place is not None and any(covers(offer, place) for offer in offers)
        if is_allowed and pin in (None, there.get("image")):
            continue
        changes = foreign.left(drift.foreign)
        undo = "; ".join(dict.fromkeys(str(change.undo) for change in changes))
        raise Rejected(
            f"somebody has changed {there.get('instanceId')} into what the spec does not allow:"
            f" {'; '.join(foreign.words(change) for change in changes)}; nothing was changed",
            remedy=f"undo it: {undo}; or have another machine made (`gpuprov down {stack} --keep-data`, then"
            " `up`; data disks stay), or allow it in the spec",
        )
