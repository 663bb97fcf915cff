"""What the outputs of a ``GpuInstance`` hold about its machine, read and written."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from provisioner import tags
from provisioner.clouds.cloud import Instance, InstanceState, Placement
from provisioner.errors import UsageError
from provisioner.vocabulary import CapacityType
from stacks.failures import Attempt
from stacks.provider.asked import Asked
from stacks.provider.machine import generation_of

ECHOED = ("workload", "rootVolume", "rootSpeed", "volumes", "tags")
"""Inputs that the outputs repeat, so that a difference shows as drift. The others change without touching a live machine."""
OUTPUTS = (
    "provider",
    "stackId",
    "cloud",
    "region",
    "zone",
    "instanceId",
    "instanceType",
    "capacityType",
    "privateIp",
    "publicIp",
    "volumeIds",
    "generation",
    "createdAt",
    "expiresAt",
    "image",
    "ready",
    "endpoint",
    "power",
    "health",
    "attempts",
    "asked",
    "securityGroups",
    "cloudTags",
)
STABLE = (
    "provider",
    "stackId",
    "cloud",
    "region",
    "zone",
    "instanceId",
    "instanceType",
    "capacityType",
    "generation",
    "image",
)
"""Outputs that an update in place never changes."""


@dataclass(frozen=True, slots=True)
class Group:
    """A security group that the machine owns."""

    cloud: str
    region: str
    id: str

    @property
    def placement(self) -> Placement:
        """The place of the group, for calls that name one."""
        return Placement(self.cloud, self.region, None, "", CapacityType.ON_DEMAND)


@dataclass(frozen=True, slots=True)
class MachineState:
    """A machine as the state holds it."""

    provider: str
    stack_id: str
    instance_id: str
    placement: Placement
    generation: int
    created_at: datetime
    expires_at: str
    image: str
    power: InstanceState
    private_ip: str | None
    public_ip: str | None
    volume_ids: tuple[str, ...]
    cloud_tags: Mapping[str, str]
    groups: tuple[Group, ...]
    attempts: tuple[Attempt, ...]
    asked: Asked | None = None
    """What its create call asked for, which somebody may have changed since; ``None`` where an earlier version made it."""
    health: str | None = None
    """What a refresh was told of it while it ran: ``ok``, or what is wrong; ``None`` where that is not known."""

    @property
    def is_gone(self) -> bool:
        """Nothing of it bills any more."""
        return self.power.is_gone

    @classmethod
    def of(  # noqa: PLR0917 - one place puts the parts together
        cls,
        provider: str,
        stack_id: str,
        instance: Instance,
        volume_ids: Sequence[str],
        groups: Sequence[Group],
        attempts: Sequence[Attempt],
        stated: Mapping[str, str],
        asked: Asked | None,
    ) -> MachineState:
        """The state of a machine as the cloud shows it.

        Args:
            provider: where it is carried out.
            stack_id: whose it is.
            instance: as shown.
            volume_ids: data disks in the order of the inputs.
            groups: security groups.
            attempts: offers tried for it.
            stated: tags of the inputs; with our own they are the ones that are watched.
            asked: what its create call asked for.
        """
        return cls(
            provider=provider,
            stack_id=stack_id,
            instance_id=instance.id,
            placement=instance.placement,
            generation=generation_of(instance),
            created_at=instance.created_at,
            expires_at=instance.tags.get(tags.EXPIRES_AT, tags.NONE),
            image=instance.image,
            power=instance.state,
            private_ip=instance.private_ip,
            public_ip=instance.public_ip,
            volume_ids=tuple(volume_ids),
            cloud_tags={k: v for k, v in instance.tags.items() if k.startswith(tags.PREFIX) or k in stated},
            groups=tuple(groups),
            attempts=tuple(attempts),
            asked=asked,
        )

    @classmethod
    def read(cls, outputs: Mapping[str, Any]) -> MachineState:
        """The machine of some outputs.

        Raises:
            UsageError: they are not those of a machine (an import, or a state that somebody edited).
        """
        try:
            return cls._read(outputs)
        except (KeyError, ValueError, TypeError) as error:
            raise UsageError(
                f"the state of the machine does not read ({type(error).__name__}: {error})",
                remedy="a machine is taken over by its tags: run `up` with the launch of its stack-id; it cannot be imported by id",
            ) from None

    @classmethod
    def _read(cls, outputs: Mapping[str, Any]) -> MachineState:
        created_at = tags.parse_time(outputs["createdAt"])
        if created_at is None:
            raise ValueError("createdAt")
        return cls(
            provider=outputs["provider"],
            stack_id=outputs["stackId"],
            instance_id=outputs["instanceId"],
            placement=Placement(
                outputs["cloud"],
                outputs["region"],
                outputs.get("zone"),
                outputs["instanceType"],
                CapacityType(outputs["capacityType"]),
            ),
            generation=int(outputs["generation"]),
            created_at=created_at,
            expires_at=outputs["expiresAt"],
            image=outputs["image"],
            power=InstanceState(outputs["power"]),
            private_ip=outputs.get("privateIp"),
            public_ip=outputs.get("publicIp"),
            volume_ids=tuple(outputs.get("volumeIds") or ()),
            cloud_tags=dict(outputs.get("cloudTags") or {}),
            groups=tuple(Group(g["cloud"], g["region"], g["id"]) for g in outputs.get("securityGroups") or ()),
            attempts=tuple(Attempt.from_document(entry) for entry in outputs.get("attempts") or ()),
            asked=Asked.read(outputs.get("asked")),
            health=outputs.get("health"),
        )

    def outputs(self) -> dict[str, Any]:
        """All outputs of the machine; ``None`` where there is nothing to say."""
        place = self.placement
        return {
            "provider": self.provider,
            "stackId": self.stack_id,
            "cloud": place.cloud,
            "region": place.region,
            "zone": place.zone,
            "instanceId": self.instance_id,
            "instanceType": place.instance_type,
            "capacityType": place.capacity_type.value,
            "privateIp": self.private_ip,
            "publicIp": self.public_ip,
            "volumeIds": list(self.volume_ids),
            "generation": self.generation,
            "createdAt": tags.format_time(self.created_at),
            "expiresAt": self.expires_at,
            "image": self.image,
            "ready": self.power is InstanceState.RUNNING,
            "endpoint": None,
            "power": self.power.value,
            "health": self.health,
            "attempts": [attempt.to_document() for attempt in self.attempts],
            "asked": self.asked.document() if self.asked is not None else None,
            "securityGroups": [{"cloud": g.cloud, "region": g.region, "id": g.id} for g in self.groups],
            "cloudTags": dict(self.cloud_tags),
        }

    def ended(self) -> MachineState:
        """The same machine, gone without a trace."""
        return replace(self, power=InstanceState.TERMINATED, private_ip=None, public_ip=None)
