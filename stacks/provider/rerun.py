"""A live machine that has to run something else than it was told: in place where it can be stopped, else as a new machine.

docs/decisions/0010. What it was last told is its tag ``gpuprov:run-digest``: written in the create call, and again between the
change of its user data and its start, so that a cut at any moment is told from the cloud alone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from provisioner import tags
from provisioner.clouds.cloud import Cloud, InstanceState, Placement
from stacks.provider import node
from stacks.provider.lifetime import part


@dataclass(frozen=True, slots=True)
class Rerun:
    """What is to be done about another start."""

    key: str
    """The input that changes it: ``workload`` or ``node``."""
    refusal: str | None
    """Why the machine cannot take it over, and is replaced; ``None``: it can."""


@dataclass(frozen=True, slots=True)
class Live:
    """A live machine as far as it matters here."""

    placement: Placement
    id: str
    tags: Mapping[str, str]


Given = tuple[Mapping[str, Any], Mapping[str, Any]]
"""The spec, and what the plan adds to it."""


def rerun(cloud: Cloud, machine: Live, given: Given, before: Mapping[str, Any]) -> Rerun | None:
    """Whether a live machine has to run something else.

    Args:
        cloud: asked only where it has to.
        machine: as its tags tell.
        given: what it should run.
        before: the spec that the state repeats; empty where there is none.
    """
    workload, facts = given
    told = machine.tags.get(tags.RUN_DIGEST)
    key = "workload" if dict(workload) != dict(before) else "node"
    if told in (
        None,
        node.run_digest(workload, facts),
    ):  # without the tag, what it runs is unknown, and it is left alone
        return None
    return Rerun(key, cloud.stop_refusal(machine.placement, machine.id))


_LATER = ("max_spend", "lease", "keep_failed")


def later(before: Mapping[str, Any], workload: Mapping[str, Any]) -> list[str]:
    """Edited keys that the machine itself keeps, and learns of with its next start; tags carry the others to it at once."""
    was, now = part(before, "lifecycle"), part(workload, "lifecycle")
    keys = [f"lifecycle.{key}" for key in _LATER if was.get(key) != now.get(key)]
    if part(was, "idle").get("gpu_only") != part(now, "idle").get("gpu_only"):
        keys.append("lifecycle.idle.gpu_only")
    return keys


def words(found: Rerun, instance_id: str, power: InstanceState, given: Given, added: Sequence[str] = ()) -> str:
    """What will happen, and what it costs, in one line.

    Args:
        found: what is to be done.
        instance_id: to which machine.
        power: its state.
        given: what it should run.
        added: data disks that it does not have yet.
    """
    workload, facts = given
    changed = "what the machine runs has changed"
    if added:
        changed += f" (with it: data disk {', '.join(added)}, mounted before the workload starts; files of the root disk at its place are hidden by it)"
    if found.refusal is not None:
        begin = (
            f"{changed}, and {found.refusal}: {instance_id} is ended and another one is made; "
            "data disks stay, its root and local disks are lost"
        )
    elif power is InstanceState.STOPPED:
        begin = f"{changed}: {instance_id} is told so while it is stopped, and starts with it"
    else:
        begin = (
            f"{changed}: {instance_id} is stopped, told so and started again, with its disks; "
            "what lies on local NVMe, if it has any, is lost"
        )
    return f"{begin}{_work(workload, power)}{_pause(facts, power)}"


def _work(workload: Mapping[str, Any], power: InstanceState) -> str:
    if power is InstanceState.STOPPED:
        return ""
    if not node.is_once(workload):
        return "; requests in flight may finish, new ones are refused until it answers again"
    if not node.hook_of(workload):
        return "; the job in progress is cut off: it has no checkpoint hook"
    resumes = part(part(workload, "training"), "checkpoint").get("resumable")
    return f"; the job in progress runs its checkpoint hook first and then {'goes on from it' if resumes else 'starts anew'}"


def _pause(facts: Mapping[str, Any], power: InstanceState) -> str:
    start_s = facts.get("startS")
    if power is InstanceState.STOPPED or not start_s:
        return ""
    return f"; about {max(1, round(float(start_s) / 60))} min until it is ready again (predicted)"
