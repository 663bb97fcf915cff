"""The inline Pulumi program of a plan: one launch, its data disks, one machine.

Resources are made by type token, without a generated SDK: three resources need none, and the plugin's schema is the contract.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from provisioner import tags
from provisioner.errors import NothingFits, UsageError
from provisioner.planner.machine_facts import node_document, predicted_lifetime
from provisioner.planner.plan import Plan, PlannedOffer
from provisioner.workload.spec import Workload
from stacks.state import GPU_INSTANCE, LAUNCH, VOLUME, StackState

LAUNCH_NAME = "launch"
INSTANCE_NAME = "instance"
DISK_KINDS = ("data", "checkpoints")
"""Storage of a plan that outlives the machine; root and local disks come and go with it."""
_LAUNCH_FACTS = ("stackId", "generation", "createdAt", "expiresAt", "image", "owner", "avoid")


@dataclass(frozen=True, slots=True)
class Disk:
    """A data disk to keep beside the machine."""

    name: str
    size_bytes: int


@dataclass(frozen=True, slots=True)
class ProgramInputs:
    """Everything that the program states; equal inputs make equal resources."""

    workload: Mapping[str, Any]
    offers: tuple[Mapping[str, Any], ...]
    """In the order in which they are tried."""
    root_bytes: int | None = None
    disks: tuple[Disk, ...] = ()
    tags: Mapping[str, str] | None = None
    wait: str | None = None
    """``created`` returns without waiting for the machine to run; ``None`` waits."""
    node: Mapping[str, Any] | None = None
    """What the plan adds for the machine itself; another start of it reaches a live machine too."""


def inputs_of_plan(
    plan: Plan, workload: Workload, *, state: StackState | None = None, wait: str | None = None
) -> ProgramInputs:
    """The program's inputs for a plan.

    Args:
        plan: what was decided.
        workload: the spec.
        state: the stack's state; a lifetime that was predicted when its machine was made stays.
        wait: see ``ProgramInputs``.

    Raises:
        NothingFits: the plan has no choice.
        UsageError: the plan needs several machines.
    """
    if plan.choice is None:
        raise NothingFits(f"no offer can hold {plan.workload_name}")
    if plan.choice.instances != 1:
        raise UsageError(
            f"the plan needs {plan.choice.instances} instances of {plan.choice.instance_type}, and `up` makes one machine",
            remedy="clusters come with a later step of gpuprov; allow larger instance types, or fewer replicas",
        )
    candidates = (plan.choice, *plan.failover)
    offers = {offer.key: offer_inputs(offer) for offer in candidates if offer.instances == 1}
    root = next((item.size_bytes for item in plan.storage if item.kind == "root"), None)
    disks = tuple(Disk(item.name, item.size_bytes) for item in plan.storage if item.kind in DISK_KINDS)
    own_tags = {str(key): str(value) for key, value in workload.tags.items()}
    return ProgramInputs(
        workload=bounded_document(workload, plan, state),
        offers=tuple(offers.values()),
        root_bytes=root,
        disks=disks,
        tags=own_tags | {tags.SPEC_DIGEST: workload.digest},
        wait=wait,
        node=node_document(plan, offers),
    )


def bounded_document(workload: Workload, plan: Plan, state: StackState | None) -> dict[str, Any]:
    """The spec with the lifetime that its predicted length gives, where it states none (CONTRACTS section 4: twice that).

    The prediction depends on where the machine lands and on the catalog of the day. A machine that was made for this spec
    keeps its lifetime, so that a second ``up`` changes nothing.
    """
    document = workload.to_document()
    predicted = predicted_lifetime(workload, plan)
    if predicted is None:
        return document
    made = state.instance.inputs if state is not None and state.instance is not None else {}
    kept = None
    if (made.get("tags") or {}).get(tags.SPEC_DIGEST) == workload.digest:
        kept = (made.get("workload") or {}).get("lifecycle", {}).get("max_lifetime")
    document["lifecycle"] = {**document.get("lifecycle", {}), "max_lifetime": kept or predicted}
    return document


def offer_inputs(offer: PlannedOffer) -> dict[str, Any]:
    """An offer as the plugin takes it; a zone that is not known is absent, since Pulumi tells absent from null."""
    place = {"cloud": offer.cloud, "region": offer.region}
    if offer.zone is not None:
        place["zone"] = offer.zone
    return {**place, "instanceType": offer.instance_type, "capacityType": str(offer.capacity_type)}


def make_program(inputs: ProgramInputs) -> Callable[[], None]:
    """The program as ``pulumi.automation`` runs it."""

    def program() -> None:
        from pulumi import CustomResource

        common: dict[str, Any] = {"workload": inputs.workload, "offers": list(inputs.offers)}
        if inputs.root_bytes is not None:
            common["rootVolume"] = inputs.root_bytes
        node = {"node": dict(inputs.node)} if inputs.node is not None else {}
        launch = CustomResource(LAUNCH, LAUNCH_NAME, {**common, **node, **dict.fromkeys(_LAUNCH_FACTS)})
        disks = [
            CustomResource(
                VOLUME,
                disk.name,
                {
                    "stackId": _output(launch, "stackId"),
                    "name": disk.name,
                    "size": disk.size_bytes,
                    "offers": list(inputs.offers),
                    "workload": inputs.workload,
                },
            )
            for disk in inputs.disks
        ]
        machine: dict[str, Any] = {
            **common,
            "launch": {fact: _output(launch, fact) for fact in _LAUNCH_FACTS},
            "volumes": [{"name": _output(disk, "name"), "size": _output(disk, "size")} for disk in disks],
            "tags": dict(inputs.tags or {}),
            "power": "running",
        }
        machine |= node
        if inputs.wait is not None:
            machine["wait"] = inputs.wait
        CustomResource(GPU_INSTANCE, INSTANCE_NAME, machine)

    return program


def _output(resource: Any, name: str) -> Any:
    """An output of a resource made by token: the SDK sets it as an attribute of the property's own name."""
    return getattr(resource, name)
