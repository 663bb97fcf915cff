"""The one interface that a cloud implements, and the objects that pass through it.

Foreign errors never pass: each cloud maps them to ``provisioner.errors`` by a table. What every method keeps:

- ``create_*`` is idempotent by ``token``: the same token with the same bytes gives the same object, with other bytes
  ``TokenMismatch``, after its instance was terminated ``TokenSpent``. Tags are part of the create call.
- A list may lag behind a create (an object may be invisible for some seconds after it was made), and never shows terminated
  instances older than the cloud keeps them. ``get_instance`` returns ``None`` where nothing is visible.
- ``terminate_instance`` and ``delete_*`` of something that is gone succeed.
- An end takes time: after ``terminate_instance`` the machine is ``terminating``, and its data disks and security group are free
  only once ``get_instance`` shows a state that ``is_gone``, or ``None``. Deleting what is still in use is ``Rejected``.
- Zones are AWS zone ids and GCP zones; times are aware UTC; prices are not a cloud's business.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Any, Protocol

from provisioner.errors import GpuprovError
from provisioner.units import DiskSpeed
from provisioner.vocabulary import CapacityType


class InstanceState(StrEnum):
    """Power state as observed."""

    PENDING = "pending"
    RUNNING = "running"
    STOPPING = "stopping"
    STOPPED = "stopped"
    TERMINATING = "terminating"
    TERMINATED = "terminated"
    INTERRUPTED = "interrupted"
    """Taken back by the cloud (spot); gone, or stopped where the request was persistent."""

    @property
    def is_gone(self) -> bool:
        """Nothing of it bills any more."""
        return self in (InstanceState.TERMINATED, InstanceState.INTERRUPTED)


class End(StrEnum):
    """What brought a machine to its stop or its end, as its cloud tells."""

    TAKEN_BACK = "taken-back"
    """Spot: the cloud needed its capacity."""
    CALLED = "called"
    """A call to the cloud: a person, a script or a service of the account, this product among them."""
    FROM_INSIDE = "from-inside"
    """Its own system shut down: its watcher, or somebody with a shell."""
    RETIRED = "retired"
    """The cloud stopped it, since its host is taken out of service."""
    NO_CAPACITY = "no-capacity"
    """There was no room for its start."""
    FAILED = "failed"
    """The cloud could not bring it up."""


@dataclass(frozen=True, slots=True)
class Ended:
    """Why a machine is stopped or gone."""

    how: End
    at: datetime | None
    """``None`` where the cloud does not tell."""


@dataclass(frozen=True, slots=True)
class Placement:
    """Where and how an instance is asked for: one offer."""

    cloud: str
    region: str
    zone: str | None
    instance_type: str
    capacity_type: CapacityType

    @property
    def key(self) -> str:
        """Stable text, the same as an offer's key."""
        return f"{self.cloud}/{self.region}/{self.zone or '*'}/{self.instance_type}/{self.capacity_type}"

    @classmethod
    def of_key(cls, key: str) -> Placement | None:
        """The placement of a ``key``; ``None`` for a text that is none."""
        parts = key.split("/")
        if len(parts) != 5:
            return None
        cloud, region, zone, instance_type, capacity = parts
        try:
            capacity_type = CapacityType(capacity)
        except ValueError:
            return None
        return cls(cloud, region, None if zone == "*" else zone, instance_type, capacity_type)


@dataclass(frozen=True, slots=True)
class InstanceRequest:
    """Every byte of a create call. Equal requests are the same call."""

    token: str
    name: str
    placement: Placement
    image: str
    root_volume_bytes: int
    tags: Mapping[str, str]
    user_data: str = ""
    security_group: str | None = None
    stop_on_shutdown: bool = False
    """Shutdown from inside stops (``True``) or terminates (``False``) the machine."""
    spot_usd_per_hour_max: str | None = None
    """Most that a spot machine may come to cost an hour; ``None``: what the market allows, at most on-demand."""
    root_speed: DiskSpeed | None = None
    """What is bought for the root disk; ``None``: what its kind includes."""


@dataclass(frozen=True, slots=True)
class Instance:
    """A machine as the cloud shows it now."""

    id: str
    name: str
    placement: Placement
    state: InstanceState
    tags: Mapping[str, str]
    image: str
    created_at: datetime
    private_ip: str | None = None
    public_ip: str | None = None
    volume_ids: tuple[str, ...] = ()
    token: str | None = None
    console: tuple[str, ...] = ()
    failure: str | None = None
    """Why it could not start, where any other machine of the same request could not either; with what mends it."""
    ended: Ended | None = None
    """Why it is stopped or gone; ``None`` where it is neither, or its cloud does not tell."""


@dataclass(frozen=True, slots=True)
class VolumeRequest:
    """A data disk to make in one zone."""

    token: str
    name: str
    region: str
    zone: str
    size_bytes: int
    tags: Mapping[str, str]
    cloud: str
    speed: DiskSpeed | None = None
    """What is bought for it; ``None``: what its kind includes."""


@dataclass(frozen=True, slots=True)
class Volume:
    """A data disk as the cloud shows it now."""

    id: str
    name: str
    cloud: str
    region: str
    zone: str
    size_bytes: int
    tags: Mapping[str, str]
    created_at: datetime
    attached_to: str | None = None
    state: str = "available"
    speed: DiskSpeed | None = None
    """What it is made to do, bought or included; ``None`` where its kind is not made to do anything, or that does not show."""
    kind: str | None = None
    """The cloud's own name of what it is, where somebody can change it: ``gp3``."""


AGE_UNKNOWN = "age_unknown"
"""A fact in ``extra``: the cloud does not say when it was made, and ``created_at`` is the time of the list."""


@dataclass(frozen=True, slots=True)
class BillableObject:
    """Any object that bills or belongs to one that does, for ``status``, ``gc`` and ``reap`` (CONTRACTS section 5)."""

    cloud: str
    kind: str
    """``instance``, ``volume``, ``security-group``, ``ip``, ``spot-request``; in ``gc`` also ``network-interface``, ``address``
    (an elastic one) and ``snapshot``."""
    id: str
    region: str
    zone: str | None
    state: str
    tags: Mapping[str, str]
    price_usd_per_hour: str | None
    created_at: datetime
    extra: Mapping[str, str] = field(default_factory=dict)
    """More facts as text, where they are known: ``name``, ``instance_type``, ``capacity_type``, ``stopped_at`` (RFC 3339) of a
    machine; ``role`` (root or data), ``size_bytes`` and ``instance`` of a disk."""


@dataclass(frozen=True, slots=True)
class Survey:
    """What a cloud lists where not every region answers."""

    objects: tuple[BillableObject, ...]
    unlisted: Mapping[str, GpuprovError] = field(default_factory=dict)
    """Region -> why it could not be listed: what is there is not known."""


@dataclass(frozen=True, slots=True)
class Signals:
    """What a cloud's metrics say about a machine, oldest first, under the names of ``provisioner.node.idleness``."""

    samples: Sequence[tuple[datetime, Mapping[str, Any]]] = ()
    holds: bool = False
    """Whether a sample stands until the next one, or is a point of a series."""
    period_s: float = 300.0


@dataclass(frozen=True, slots=True)
class Ailment:
    """One thing that is wrong with a machine that runs, or will be."""

    kind: str
    """``system-check``, ``instance-check``, ``disk-check``, or the cloud's own word for an event that it has announced."""
    text: str
    remedy: str


@dataclass(frozen=True, slots=True)
class Health:
    """How a machine that runs is."""

    ailments: tuple[Ailment, ...] = ()
    unknown: str | None = None
    """Why it could not be told."""


@dataclass(frozen=True, slots=True)
class Terms:
    """What a machine was asked for, as far as somebody can change it afterwards. ``None`` where that is not known."""

    placement: Placement | None = None
    image: str | None = None
    root_volume_bytes: int | None = None
    root_speed: DiskSpeed | None = None
    """Bought for the root disk; ``None``: what its kind includes."""
    stop_on_shutdown: bool | None = None
    security_groups: tuple[str, ...] = ()
    data_disks: tuple[str, ...] = ()


ROOT_SPEED = "speed of the root disk"
"""A change that ``set_root_speed`` puts right."""


@dataclass(frozen=True, slots=True)
class ForeignChange:
    """One thing about a machine that is other than it was asked for: somebody has changed it."""

    what: str
    """For people: ``instance type``."""
    wanted: str
    found: str
    undo: str | None = None
    """What a person does about it; ``None``: nothing, since ``up`` puts it right."""


@dataclass(frozen=True, slots=True)
class Inspection:
    """A machine beside what it was asked for."""

    changes: tuple[ForeignChange, ...] = ()
    unknown: str | None = None
    """Why a part of it could not be told."""


@dataclass(frozen=True, slots=True)
class Readiness:
    """One thing that a launch needs, looked at before anything is made."""

    check: str
    """``rights``, ``disk``, ``capacity``, ``quota``, ``offering``, ``subnet`` or ``way out``."""
    offer: str | None
    """Key of the placement that it is about; ``None``: of all."""
    error: GpuprovError | None = None
    """What would refuse the launch; ``None``: nothing, or it could not be told."""
    unknown: str | None = None
    """Why it could not be told."""


class Cloud(Protocol):
    """A cloud account, or the sandbox. All calls block; each may raise any error of ``provisioner.errors``."""

    @property
    def provider(self) -> str:
        """``sandbox``, ``aws`` or ``gcp``."""
        ...

    def now(self) -> datetime:
        """The cloud's own clock (the sandbox's can be moved)."""
        ...

    def resolve_image(self, placement: Placement) -> str:
        """The machine image for a placement. May change from day to day, so callers keep the answer."""
        ...

    def create_instance(self, request: InstanceRequest) -> Instance:
        """Make a machine, or give the one that this token made.

        Raises:
            CapacityError, QuotaError: nothing was made; the next offer may do.
            Ambiguous, Throttled: the same call again.
            Rejected, CredentialsError: stop.
            TokenMismatch, TokenSpent: see the module's head.
        """
        ...

    def check_room(self, placement: Placement, ending: str | None = None) -> None:
        """Look whether a machine would be refused now, without asking for one; silence is no promise.

        Args:
            placement: what would be asked for.
            ending: id of a machine that ends before; what it takes counts as free.

        Raises:
            CapacityError, QuotaError: it would be refused, as far as the cloud lets that be known.
        """
        ...

    def get_instance(self, placement: Placement, instance_id: str) -> Instance | None:
        """The machine, or ``None`` where nothing is visible under this id."""
        ...

    def find_instances(self, tags: Mapping[str, str], placements: Sequence[Placement]) -> list[Instance]:
        """Machines that carry all of ``tags`` in the regions of ``placements``, oldest first, terminated ones included while visible."""
        ...

    def start_instance(self, placement: Placement, instance_id: str) -> Instance:
        """Start a stopped machine; ``pending`` at first. ``CapacityError`` leaves it stopped and whole."""
        ...

    def stop_instance(self, placement: Placement, instance_id: str) -> Instance:
        """Stop a running machine; ``stopping`` at first. ``Rejected`` where its market or disks do not allow a stop."""
        ...

    def stop_refusal(self, placement: Placement, instance_id: str) -> str | None:
        """Why the machine's market or disks do not allow a stop; ``None`` where they do.

        Raises:
            NotFound: it is not there.
        """
        ...

    def set_user_data(self, placement: Placement, instance_id: str, user_data: str) -> None:
        """What a stopped machine reads at its next boot; ``Rejected`` while it is not stopped."""
        ...

    def set_shutdown(self, placement: Placement, instance_id: str, *, stops: bool) -> None:
        """What a shutdown from inside does to a machine from now on, running or stopped: stop it, or terminate it.

        Raises:
            NotFound: it is not there.
            Rejected: its cloud or its market settles that at the creation, or it cannot be stopped.
        """
        ...

    def terminate_instance(self, placement: Placement, instance_id: str) -> None:
        """End a machine and its root disk; returns before it is gone (see the module's head)."""
        ...

    def set_tags(self, placement: Placement, object_id: str, tags: Mapping[str, str]) -> None:
        """Write tags (others stay)."""
        ...

    def create_volume(self, request: VolumeRequest) -> Volume:
        """Make a data disk, or give the one that this token made."""
        ...

    def find_volumes(self, tags: Mapping[str, str], placements: Sequence[Placement]) -> list[Volume]:
        """Data disks that carry all of ``tags`` in the regions of ``placements``, oldest first."""
        ...

    def get_volume(self, placement: Placement, volume_id: str) -> Volume | None:
        """The disk under an id, whatever tags it has; ``None`` where none shows."""
        ...

    def attach_volume(self, placement: Placement, instance_id: str, volume_id: str) -> None:
        """Attach a disk of the machine's zone; attached to this machine already is fine."""
        ...

    def grow_volume(
        self, placement: Placement, volume_id: str, size_bytes: int, speed: DiskSpeed | None = None
    ) -> Volume:
        """Make a disk larger in place, and give it a speed (``None`` leaves the one it has). ``Rejected`` for a smaller size."""
        ...

    def set_root_speed(self, placement: Placement, instance_id: str, speed: DiskSpeed) -> None:
        """Give the root disk of a machine a speed, in place; the one it has is fine."""
        ...

    def delete_volume(self, placement: Placement, volume_id: str) -> None:
        """Delete a detached disk. ``Rejected`` while it is attached."""
        ...

    def ensure_security_group(
        self, placement: Placement, tags: Mapping[str, str], cidrs: Sequence[str], ports: Sequence[int]
    ) -> str:
        """Id of the closed group with these tags in the region, made where there is none; its rules become the given ones."""
        ...

    def delete_security_group(self, placement: Placement, group_id: str) -> None:
        """Delete a group that nothing uses. ``Rejected`` while a machine uses it."""
        ...

    def list_objects(self) -> list[BillableObject]:
        """Everything that carries one of our tags, over all regions."""
        ...

    def read_console(self, placement: Placement, instance_id: str) -> tuple[str, ...]:
        """The last lines of a machine's serial console, also for some time after its end; empty where there are none."""
        ...

    def read_signals(self, placement: Placement, instance_id: str, since: datetime) -> Signals:
        """The machine's metrics since a moment; a source without a metric is left out."""
        ...

    def list_others(self) -> list[BillableObject]:
        """Machines with GPUs that carry none of our tags, over all regions; read-only."""
        ...
