"""A stack's own machine: where its state says it is, and what the cloud shows of it. No engine."""

from __future__ import annotations

from typing import Any

from provisioner.clouds.cloud import Cloud, Instance, Placement
from provisioner.errors import NotFound
from provisioner.vocabulary import CapacityType
from stacks.state import StackState


def machine_of(state: StackState, cloud: Cloud) -> Instance:
    """The stack's machine as the cloud shows it.

    Raises:
        NotFound: the stack has none, or it is gone; nothing is made in its place.
    """
    resource = state.instance
    outputs = resource.outputs if resource is not None else {}
    if not outputs.get("instanceId"):
        raise NotFound(f"stack {state.name!r} has no machine", remedy="`gpuprov up` makes one")
    instance = cloud.get_instance(placement_of(outputs), str(outputs["instanceId"]))
    if instance is None or instance.state.is_gone:
        shown = "is gone" if instance is None else f"is {instance.state}"
        raise NotFound(
            f"the machine of stack {state.name!r} ({outputs['instanceId']}) {shown}",
            remedy="`gpuprov up` makes a new one; its data disks are kept",
        )
    return instance


def placement_of(outputs: Any) -> Placement:
    """Where a machine is, from the outputs of its resource."""
    return Placement(
        str(outputs["cloud"]),
        str(outputs["region"]),
        outputs.get("zone"),
        str(outputs["instanceType"]),
        CapacityType(outputs["capacityType"]),
    )
