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
from provisioner.units import DiskSpeed
from provisioner.workload.spec import Workload
from stacks.provider.inputs import read_speed, speed_document
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
    speed: DiskSpeed | None = None
    """Bought for it; ``None``: what its kind includes."""


@dataclass(frozen=True, slots=True)
class ProgramInputs:
    """Everything that the program states; equal inputs make equal resources."""

    workload: Mapping[str, Any]
    offers: tuple[Mapping[str, Any], ...]
    """In the order in which they are tried."""
    root_bytes: int | None = None
    root_speed: DiskSpeed | None = None
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
    root = next((item for item in plan.storage if item.kind == "root"), None)
    made = _made_for(workload, plan.choice, state)
    speeds = {item.name: item.speed for item in plan.storage} if made is None else _speeds_of(made)
    disks = tuple(
        Disk(item.name, item.size_bytes, speeds.get(item.name)) for item in plan.storage if item.kind in DISK_KINDS
    )
    own_tags = {str(key): str(value) for key, value in workload.tags.items()}
    return ProgramInputs(
        workload=bounded_document(workload, plan, state),
        offers=tuple(offers.values()),
        root_bytes=None if root is None else root.size_bytes,
        root_speed=None if root is None else speeds.get(root.name),
        disks=disks,
        tags=own_tags | {tags.SPEC_DIGEST: workload.digest},
        wait=wait,
        node=node_document(plan, offers) | ({"volumes": [disk.name for disk in disks]} if disks else {}),
    )


def _made_for(workload: Workload, choice: PlannedOffer, state: StackState | None) -> Mapping[str, Any] | None:
    """Inputs of a machine that was made for this very spec on this instance type; ``None`` where there is none.

    What pays for a disk depends on the price of the day and of the offer where the machine landed. Its disks keep the speeds that
    they were made with, so that a second ``up`` changes nothing.
    """
    if state is None or state.instance is None:
        return None
    inputs, outputs = state.instance.inputs, state.outputs
    is_same = (inputs.get("tags") or {}).get(tags.SPEC_DIGEST) == workload.digest
    return inputs if is_same and outputs.get("instanceType") == choice.instance_type else None


def _speeds_of(inputs: Mapping[str, Any]) -> dict[str, DiskSpeed | None]:
    """Speeds of a machine's disks by name; the root disk is ``root``."""
    named = {"root": inputs.get("rootSpeed")} | {
        disk["name"]: disk.get("speed") for disk in inputs.get("volumes") or ()
    }
    return {name: read_speed(speed) if speed else None for name, speed in named.items()}


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
                    **_speed(disk.speed, "speed"),
                },
            )
            for disk in inputs.disks
        ]
        machine: dict[str, Any] = {
            **common,
            "launch": {fact: _output(launch, fact) for fact in _LAUNCH_FACTS},
            "volumes": [
                {"name": _output(made, "name"), "size": _output(made, "size"), **_speed(disk.speed, "speed")}
                for made, disk in zip(disks, inputs.disks, strict=True)
            ],
            **_speed(inputs.root_speed, "rootSpeed"),
            "tags": dict(inputs.tags or {}),
            "power": "running",
        }
        machine |= node
        if inputs.wait is not None:
            machine["wait"] = inputs.wait
        CustomResource(GPU_INSTANCE, INSTANCE_NAME, machine)

    return program


def _speed(speed: DiskSpeed | None, name: str) -> dict[str, Any]:
    """A disk's speed as an input; absent for what is included, since Pulumi tells absent from null."""
    document = speed_document(speed)
    return {} if document is None else {name: document}


def _output(resource: Any, name: str) -> Any:
    """An output of a resource made by token: the SDK sets it as an attribute of the property's own name."""
    return getattr(resource, name)
