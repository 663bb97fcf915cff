"""What its own shutdown does to a live machine, where ``lifecycle.idle.then`` was edited: in place where its cloud and market allow.

The machine is told first, and its tag ``gpuprov:idle-then`` written after that: a cut between the two is told from the tag, and
the same call may be made again. Its watcher and ``reap`` go by the tag.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from provisioner import tags
from provisioner.clouds.cloud import Placement
from provisioner.reaper.ending import STOP, TERMINATE, Ending, ending
from provisioner.vocabulary import CapacityType
from stacks.provider import node
from stacks.provider.lifetime import idle_then


def wanted(
    workload: Mapping[str, Any], facts: Mapping[str, Any], place: Placement, carried: Mapping[str, str]
) -> dict[str, str]:
    """The tag that says how the machine ends: ``stop`` or ``terminate``; none where the spec has never said which.

    Args:
        workload: the spec.
        facts: what the plan adds to it.
        place: where the machine is.
        carried: its tags. An edit that takes ``then`` out again leaves the tag with what market and disks make of it.
    """
    if idle_then(workload) is None and tags.IDLE_THEN not in carried:
        return {}
    return {tags.IDLE_THEN: STOP if node.stops(workload, facts, place) else TERMINATE}


def can_change(facts: Mapping[str, Any], place: Placement) -> bool:
    """Whether the shutdown of a live machine can be changed.

    GCE settles it at the creation, a spot machine's request too: one that ended by itself under a persistent request would be
    started anew, without tags.
    """
    is_spot = place.capacity_type is CapacityType.SPOT
    return place.cloud == "aws" and not is_spot and _at_most(facts, place).how == STOP


def words(
    before: Mapping[str, Any], workload: Mapping[str, Any], facts: Mapping[str, Any], place: Placement, instance_id: str
) -> tuple[bool, str] | None:
    """Whether an edit of ``lifecycle.idle.then`` needs attention, and what it does to a live machine, in one line.

    Args:
        before: the spec that the machine was made or last brought in line with.
        workload: the spec now.
        facts: what the plan adds to it.
        place: where the machine is.
        instance_id: which machine.
    """
    then = idle_then(workload)
    if then == idle_then(before):
        return None
    key = f"lifecycle.idle.then: {then}" if then else "lifecycle.idle.then (left out)"
    best = _at_most(facts, place)
    if then == STOP and best.how == TERMINATE:
        return True, (
            f"{key} changes nothing for {instance_id}: {best.reason}; it is terminated, and so is the next one like it. "
            "A machine on demand with a network disk can be stopped"
        )
    was, now = (node.stops(side, facts, place) for side in (before, workload))
    if was == now:
        return None
    if not can_change(facts, place):
        return True, (
            f"{key} counts for the next machine: what a shutdown does to {instance_id} was settled when it was made; "
            "`gpuprov down --keep-data`, then `up`, makes another"
        )
    return False, f"{key}: a shutdown {'stops' if now else 'terminates'} {instance_id} from now on"


def _at_most(facts: Mapping[str, Any], place: Placement) -> Ending:
    """How a machine like this ends where the spec asks for a stop."""
    return ending(place.cloud, place.capacity_type, node.disk_of(facts, place), STOP)
