"""A cloud in memory that does what a test scripts: errors before or after an effect, crashes at any call, lagging lists.

It keeps the promises of ``provisioner.clouds.cloud`` (tokens, tags in the create call, gone is fine), which the conformance
suite of tests/clouds holds against it as against the sandbox and AWS, and counts every call.
"""

from __future__ import annotations

import itertools
from collections import defaultdict, deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import TypeVar

from provisioner.clouds.cloud import (
    BillableObject,
    Cloud,
    Instance,
    InstanceRequest,
    InstanceState,
    Placement,
    Volume,
    VolumeRequest,
)
from provisioner.errors import CapacityError, GpuprovError, NotFound, QuotaError, Rejected, TokenMismatch, TokenSpent
from provisioner.tags import PREFIX
from provisioner.units import DiskSpeed
from provisioner.vocabulary import CapacityType
from stacks.provider.lifeline import Lifeline

T = TypeVar("T")
MAKERS = ("create_instance", "create_volume", "ensure_security_group")
MACHINE_USD_PER_HOUR = "0.8048"
DISK_USD_PER_HOUR = "0.05"
INCLUDED = DiskSpeed(3000, 125)
ADDRESS_USD_PER_HOUR = "0.005"


class Crash(BaseException):
    """The process was killed here; nothing catches it."""


@dataclass
class Clock:
    """Time that passes only where somebody waits."""

    now: datetime = datetime(2026, 11, 30, 12, 0, tzinfo=UTC)

    def advance(self, duration: timedelta) -> None:
        self.now += duration


class ClockedLifeline(Lifeline):
    """A lifeline whose waits move the clock instead of taking time."""

    def __init__(self, clock: Clock) -> None:
        super().__init__()
        self._clock = clock

    def sleep(self, seconds: float) -> None:
        self._clock.advance(timedelta(seconds=seconds))
        self.check()


@dataclass(frozen=True)
class CallRecord:
    """One call that came in. ``place`` is the offer's key where it has one."""

    operation: str
    place: str
    token: str | None = None


@dataclass
class _Machine:
    request: InstanceRequest
    instance: Instance
    visible_at: datetime
    running_at: datetime
    gone_at: datetime | None = None
    """When a machine that was told to end is gone."""
    ended_at: datetime | None = None
    is_traceless: bool = False


@dataclass
class _Disk:
    request: VolumeRequest
    volume: Volume
    visible_at: datetime


@dataclass
class FakeCloud(Cloud):
    """See the module. All fields may be changed by a test at any time."""

    clock: Clock = field(default_factory=Clock)
    name: str = "sandbox"
    visibility: timedelta = timedelta(0)
    boot: timedelta = timedelta(seconds=1)
    ending: timedelta = timedelta(seconds=2)
    """How long a machine is `terminating`."""
    no_capacity: set[str] = field(default_factory=set)
    """Offer keys that are refused."""
    no_quota: set[str] = field(default_factory=set)
    no_image: set[str] = field(default_factory=set)
    offered: Callable[[Placement], bool] | None = None
    """What is sold at all; everything by default."""
    dies_at_boot: dict[str, InstanceState] = field(default_factory=dict)
    """Offer key -> state in which its machines end before they run."""
    errors: dict[str, deque[tuple[bool, GpuprovError]]] = field(default_factory=lambda: defaultdict(deque))
    """Operation -> errors of its next calls; ``True`` has the call take effect first."""
    crash_at: tuple[int, bool] | None = None
    """Index of the call that kills the caller, and whether after its effect."""
    on_call: Callable[[CallRecord], None] | None = None
    calls: list[CallRecord] = field(default_factory=list)
    machines: dict[str, _Machine] = field(default_factory=dict)
    disks: dict[str, _Disk] = field(default_factory=dict)
    groups: dict[str, tuple[Placement, dict[str, str], tuple[object, ...]]] = field(default_factory=dict)
    user_data: dict[str, str] = field(default_factory=dict)
    """Of machines that were told another start since they were made."""
    shutdowns: dict[str, bool] = field(default_factory=dict)
    """Machine -> whether its own shutdown stops it, where that was changed since it was made."""
    root_speeds: dict[str, DiskSpeed] = field(default_factory=dict)
    """Machine -> what its root disk was given since it was made."""
    images: int = 0
    _groups_made: dict[str, datetime] = field(default_factory=dict)
    _spent_disks: dict[str, str] = field(default_factory=dict)
    """Token -> id of a disk that was deleted."""
    _numbers: itertools.count[int] = field(default_factory=lambda: itertools.count(1))

    @property
    def provider(self) -> str:
        return self.name

    def now(self) -> datetime:
        return self.clock.now

    # What tests look at

    def count(self, operation: str) -> int:
        """Calls of an operation so far."""
        return sum(call.operation == operation for call in self.calls)

    def offers_asked(self) -> list[str]:
        """Offers of all create calls, in order."""
        return [call.place for call in self.calls if call.operation == "create_instance"]

    @property
    def living(self) -> list[Instance]:
        """Machines that bill, or can again."""
        return [now for now in map(self._now, self.machines.values()) if now.state not in _GONE]

    @property
    def leftovers(self) -> list[str]:
        """Ids of everything that is there."""
        return [*(i.id for i in self.living), *self.disks, *self.groups]

    def vanish(self, instance_id: str) -> None:
        """Let a machine disappear without a trace."""
        self._end(instance_id, InstanceState.TERMINATED)
        self.machines[instance_id].is_traceless = True

    def reclaim(self, instance_id: str) -> None:
        """Take a machine back."""
        self._end(instance_id, InstanceState.INTERRUPTED)

    # The protocol

    def resolve_image(self, placement: Placement) -> str:
        def act() -> str:
            if placement.key in self.no_image:
                raise NotFound("no image there")
            self.images += 1
            return f"image-{self.images}"

        return self._call("resolve_image", placement.key, act)

    def create_instance(self, request: InstanceRequest) -> Instance:
        return self._call("create_instance", request.placement.key, lambda: self._create(request), request.token)

    def check_room(self, placement: Placement, ending: str | None = None) -> None:
        self._refuse(placement.key)

    def get_instance(self, placement: Placement, instance_id: str) -> Instance | None:
        def act() -> Instance | None:
            machine = self.machines.get(instance_id)
            if machine is None or not self._is_visible(machine):
                return None
            return self._now(machine) if _region(machine.instance.placement) == _region(placement) else None

        return self._call("get_instance", placement.key, act)

    def find_instances(self, tags: Mapping[str, str], placements: Sequence[Placement]) -> list[Instance]:
        places = {(p.cloud, p.region) for p in placements}

        def act() -> list[Instance]:
            shown = [self._now(m) for m in self.machines.values() if self._is_visible(m)]
            return [i for i in shown if tags.items() <= i.tags.items() and _region(i.placement) in places]

        return self._call("find_instances", "", act)

    def start_instance(self, placement: Placement, instance_id: str) -> Instance:
        def act() -> Instance:
            machine = self._existing(instance_id)
            if self._now(machine).state is not InstanceState.STOPPED:
                return self._now(machine)
            if placement.key in self.no_capacity:
                raise CapacityError("no capacity to start")
            machine.instance = replace(machine.instance, state=InstanceState.PENDING)
            machine.running_at = self.clock.now + self.boot
            return self._now(machine)

        return self._call("start_instance", placement.key, act)

    def stop_instance(self, placement: Placement, instance_id: str) -> Instance:
        def act() -> Instance:
            machine = self._existing(instance_id)
            if machine.instance.placement.capacity_type is CapacityType.SPOT:
                raise Rejected(f"{instance_id}: a one-time spot instance cannot be stopped")
            machine.instance = replace(self._now(machine), state=InstanceState.STOPPED)
            return self._now(machine)

        return self._call("stop_instance", placement.key, act)

    def stop_refusal(self, placement: Placement, instance_id: str) -> str | None:
        def act() -> str | None:
            spot = self._existing(instance_id).instance.placement.capacity_type is CapacityType.SPOT
            return "a one-time spot instance cannot be stopped" if spot else None

        return self._call("stop_refusal", placement.key, act)

    def set_user_data(self, placement: Placement, instance_id: str, user_data: str) -> None:
        def act() -> None:
            machine = self._existing(instance_id)
            if self._now(machine).state is not InstanceState.STOPPED:
                raise Rejected(f"{instance_id} is not stopped")
            self.user_data[instance_id] = user_data

        self._call("set_user_data", placement.key, act)

    def set_shutdown(self, placement: Placement, instance_id: str, *, stops: bool) -> None:
        def act() -> None:
            place = self._existing(instance_id).instance.placement
            if place.cloud != "aws" or place.capacity_type is CapacityType.SPOT:
                raise Rejected(f"{instance_id}: how it ends was settled when it was made")
            self.shutdowns[instance_id] = stops

        self._call("set_shutdown", placement.key, act)

    def terminate_instance(self, placement: Placement, instance_id: str) -> None:
        def act() -> None:
            machine = self.machines.get(instance_id)
            if machine is None or not self._is_visible(machine):
                return  # an invisible one is answered as gone
            if not self._now(machine).state.is_gone and machine.gone_at is None:
                machine.instance = replace(machine.instance, state=InstanceState.TERMINATING)
                machine.gone_at = self.clock.now + self.ending

        self._call("terminate_instance", placement.key, act)

    def set_tags(self, placement: Placement, object_id: str, tags: Mapping[str, str]) -> None:
        def act() -> None:
            machine = self._existing(object_id)
            machine.instance = replace(machine.instance, tags={**machine.instance.tags, **tags})

        self._call("set_tags", placement.key, act)

    def create_volume(self, request: VolumeRequest) -> Volume:
        def act() -> Volume:
            if request.token in self._spent_disks:
                raise TokenSpent(f"its disk {self._spent_disks[request.token]} is deleted")
            for disk in self.disks.values():
                if disk.request.token == request.token:
                    if disk.request != request:
                        raise TokenMismatch(f"{request.token} came with other parameters")
                    return disk.volume
            volume = Volume(
                f"vol-{next(self._numbers)}",
                request.name,
                request.cloud,
                request.region,
                request.zone,
                request.size_bytes,
                dict(request.tags),
                self.clock.now,
                speed=request.speed or INCLUDED,
            )
            self.disks[volume.id] = _Disk(request, volume, self.clock.now + self.visibility)
            return volume

        return self._call("create_volume", request.zone, act, request.token)

    def find_volumes(self, tags: Mapping[str, str], placements: Sequence[Placement]) -> list[Volume]:
        places = {(p.cloud, p.region) for p in placements}

        def act() -> list[Volume]:
            shown = [d.volume for d in self.disks.values() if d.visible_at <= self.clock.now]
            return [v for v in shown if tags.items() <= v.tags.items() and (v.cloud, v.region) in places]

        return self._call("find_volumes", "", act)

    def get_volume(self, placement: Placement, volume_id: str) -> Volume | None:
        def act() -> Volume | None:
            disk = self.disks.get(volume_id)
            is_here = disk is not None and (disk.volume.cloud, disk.volume.region) == _region(placement)
            return disk.volume if disk is not None and is_here and disk.visible_at <= self.clock.now else None

        return self._call("get_volume", placement.key, act)

    def attach_volume(self, placement: Placement, instance_id: str, volume_id: str) -> None:
        def act() -> None:
            machine = self._existing(instance_id)
            disk = self.disks.get(volume_id)
            if disk is None:
                raise NotFound(f"there is no {volume_id}")
            if disk.volume.zone != machine.instance.placement.zone:
                raise Rejected(f"{volume_id} is in another zone than {machine.instance.placement.zone}")
            if disk.volume.attached_to not in (None, instance_id):
                raise Rejected(f"{volume_id} is attached to {disk.volume.attached_to}")
            disk.volume = replace(disk.volume, attached_to=instance_id, state="in-use")

        self._call("attach_volume", placement.key, act)

    def grow_volume(
        self, placement: Placement, volume_id: str, size_bytes: int, speed: DiskSpeed | None = None
    ) -> Volume:
        def act() -> Volume:
            disk = self.disks[volume_id]
            if size_bytes < disk.volume.size_bytes:
                raise Rejected("a disk does not shrink")
            disk.volume = replace(disk.volume, size_bytes=size_bytes, speed=speed or disk.volume.speed)
            return disk.volume

        return self._call("grow_volume", placement.key, act)

    def set_root_speed(self, placement: Placement, instance_id: str, speed: DiskSpeed) -> None:
        def act() -> None:
            self.root_speeds[self._existing(instance_id).instance.id] = speed

        self._call("set_root_speed", placement.key, act)

    def delete_volume(self, placement: Placement, volume_id: str) -> None:
        def act() -> None:
            disk = self.disks.get(volume_id)
            if disk is None:
                return
            if disk.volume.attached_to is not None:
                raise Rejected(f"attached to {disk.volume.attached_to}")
            del self.disks[volume_id]
            self._spent_disks[disk.request.token] = volume_id

        self._call("delete_volume", placement.key, act)

    def ensure_security_group(
        self, placement: Placement, tags: Mapping[str, str], cidrs: Sequence[str], ports: Sequence[int]
    ) -> str:
        def act() -> str:
            rules = (tuple(cidrs), tuple(ports))
            for group_id, (place, written, _) in self.groups.items():
                if _region(place) == _region(placement) and tags.items() <= written.items():
                    self.groups[group_id] = (place, written, rules)
                    return group_id
            group_id = f"sg-{next(self._numbers)}"
            self.groups[group_id] = (placement, dict(tags), rules)
            self._groups_made[group_id] = self.clock.now
            return group_id

        return self._call("ensure_security_group", f"{placement.cloud}/{placement.region}", act)

    def delete_security_group(self, placement: Placement, group_id: str) -> None:
        def act() -> None:
            using = [i.id for i in self.living if self.machines[i.id].request.security_group == group_id]
            if using:
                raise Rejected(f"used by {', '.join(using)}")
            self.groups.pop(group_id, None)

        self._call("delete_security_group", placement.key, act)

    def list_objects(self) -> list[BillableObject]:
        def act() -> list[BillableObject]:
            found: list[BillableObject] = []
            for machine in self.machines.values():
                if self._is_visible(machine) and not self._now(machine).state.is_gone:
                    found += _of_machine(self._now(machine), machine.request.root_volume_bytes)
            found += [_of_disk(d.volume) for d in self.disks.values() if d.visible_at <= self.clock.now]
            found += [
                BillableObject(
                    p.cloud,
                    "security-group",
                    group_id,
                    p.region,
                    None,
                    "available",
                    dict(t),
                    "0",
                    self._groups_made[group_id],
                )
                for group_id, (p, t, _) in self.groups.items()
            ]
            return [entry for entry in found if any(key.startswith(PREFIX) for key in entry.tags)]

        return self._call("list_objects", "", act)

    def _existing(self, instance_id: str) -> _Machine:
        machine = self.machines.get(instance_id)
        if machine is None or self._now(machine).state in _ENDING or machine.is_traceless:
            raise NotFound(f"there is no {instance_id}")
        return machine

    def _create(self, request: InstanceRequest) -> Instance:
        key = request.placement.key
        for machine in self.machines.values():
            if machine.request.token == request.token:
                if machine.request != request:
                    raise TokenMismatch(f"{request.token} came with other parameters")
                if self._now(machine).state in _ENDING:
                    raise TokenSpent(f"its machine {machine.instance.id} is terminated")
                return self._now(machine)
        if self.offered is not None and not self.offered(request.placement):
            raise Rejected(f"{key} is not offered")
        self._refuse(key)
        if request.security_group is not None and request.security_group not in self.groups:
            raise Rejected(f"there is no group {request.security_group}")
        place = request.placement
        zone = place.zone or f"{place.region}-a"
        instance = Instance(
            id=f"i-{next(self._numbers)}",
            name=request.name,
            placement=replace(place, zone=zone),
            state=InstanceState.PENDING,
            tags=dict(request.tags),
            image=request.image,
            created_at=self.clock.now,
            private_ip="10.0.0.1",
            public_ip="198.51.100.1",
            token=request.token,
        )
        seen, running = self.clock.now + self.visibility, self.clock.now + self.boot
        self.machines[instance.id] = _Machine(request, instance, seen, running)
        return instance

    def _refuse(self, key: str) -> None:
        if key in self.no_quota:
            raise QuotaError(f"quota of {key} is 0")
        if key in self.no_capacity:
            raise CapacityError(f"no capacity in {key}")

    def _now(self, machine: _Machine) -> Instance:
        if machine.gone_at is not None and machine.gone_at <= self.clock.now:
            machine.ended_at, machine.gone_at = machine.gone_at, None
            self._end(machine.instance.id, InstanceState.TERMINATED)
        instance = machine.instance
        if instance.state is InstanceState.PENDING and machine.running_at <= self.clock.now:
            key = machine.request.placement.key
            instance = replace(instance, state=self.dies_at_boot.get(key, InstanceState.RUNNING))
            machine.instance = instance
        own_id = instance.id
        attached: tuple[str, ...] = ()
        for disk in self.disks.values():
            if disk.volume.attached_to == own_id:
                attached += (disk.volume.id,)
        if attached != instance.volume_ids:
            machine.instance = instance = replace(instance, volume_ids=attached)
        return instance

    def _is_visible(self, machine: _Machine) -> bool:
        return machine.visible_at <= self.clock.now and not machine.is_traceless

    def _end(self, instance_id: str, state: InstanceState) -> None:
        machine = self.machines[instance_id]
        machine.instance = replace(machine.instance, state=state, public_ip=None)
        machine.ended_at = machine.ended_at or self.clock.now
        for disk in self.disks.values():
            if disk.volume.attached_to == instance_id:
                disk.volume = replace(disk.volume, attached_to=None, state="available")

    def _call(self, operation: str, place: str, act: Callable[[], T], token: str | None = None) -> T:
        record = CallRecord(operation, place, token)
        index = len(self.calls)
        self.calls.append(record)
        if self.on_call is not None:
            self.on_call(record)
        if self.crash_at == (index, False):
            raise Crash(f"before {operation}")
        for machine in self.machines.values():
            self._now(machine)  # what is due has happened, whoever looks
        queue = self.errors.get(operation)
        takes_effect, error = queue.popleft() if queue else (True, None)
        result: T | None = None
        try:
            result = act() if takes_effect else None
        except GpuprovError as refusal:
            error = refusal
        if self.crash_at == (index, True):
            raise Crash(f"after {operation}")
        if error is not None:
            raise error
        return result  # type: ignore[return-value]


def _region(placement: Placement) -> tuple[str, str]:
    return placement.cloud, placement.region


_GONE = tuple(state for state in InstanceState if state.is_gone)
_ENDING = (InstanceState.TERMINATING, InstanceState.TERMINATED, InstanceState.INTERRUPTED)


def _of_machine(machine: Instance, root_bytes: int) -> list[BillableObject]:
    """A machine, its root disk and, while it runs, its address; all under the machine's tags."""
    place, kind = machine.placement, machine.placement.instance_type
    alive = machine.state in (InstanceState.PENDING, InstanceState.RUNNING)
    entry = BillableObject(
        place.cloud, "instance", machine.id, place.region, place.zone, str(machine.state), dict(machine.tags),
        MACHINE_USD_PER_HOUR if alive else "0", machine.created_at,
        {"instance_type": kind, "capacity_type": str(place.capacity_type), "name": machine.name},
    )  # fmt: skip
    part = {"instance": machine.id}
    found = [
        entry,
        replace(
            entry,
            kind="volume",
            id=f"root-{machine.id}",
            state="in-use",
            price_usd_per_hour=DISK_USD_PER_HOUR,
            extra={**part, "role": "root", "size_bytes": str(root_bytes)},
        ),
    ]
    if alive and machine.public_ip is not None:
        address = replace(entry, kind="ip", id=f"eni-{machine.id}", state="in-use", extra=part)
        found.append(replace(address, price_usd_per_hour=ADDRESS_USD_PER_HOUR))
    return found


def _of_disk(disk: Volume) -> BillableObject:
    extra = {"role": "data", "name": disk.name, "size_bytes": str(disk.size_bytes)}
    extra |= {"instance": disk.attached_to} if disk.attached_to is not None else {}
    return BillableObject(
        disk.cloud, "volume", disk.id, disk.region, disk.zone, disk.state, dict(disk.tags), DISK_USD_PER_HOUR,
        disk.created_at, extra,
    )  # fmt: skip
