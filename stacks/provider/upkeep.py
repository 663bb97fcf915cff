"""Bringing a machine that exists in line with its inputs: tags, rules, disks, power. Each step may be repeated."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from provisioner import tags
from provisioner.clouds.cloud import Instance, InstanceState
from provisioner.errors import CapacityError, CloudError, QuotaError
from provisioner.node.packing import packed_user_data
from provisioner.reaper.ending import STOP
from provisioner.units import DiskSpeed
from stacks.provider import lifetime, node, shutdown
from stacks.provider.alterations import asked_of, terms_of
from stacks.provider.asked import Asked
from stacks.provider.failover import Failover
from stacks.provider.identity import Slot, object_tags
from stacks.provider.inputs import SPEED_CLOUDS, InstanceInputs, Power
from stacks.provider.machine import generation_of
from stacks.provider.machine_state import Group, MachineState
from stacks.provider.session import Session


@dataclass(slots=True)
class Upkeep:
    """One pass over one machine; ``state`` tells at each moment what is so."""

    session: Session
    slot: Slot
    inputs: InstanceInputs
    walk: Failover
    instance: Instance
    volume_ids: list[str] = field(default_factory=list)
    root_speed: DiskSpeed | None = None
    """What the root disk is given now; ``None`` leaves the one it was made with."""
    asked: Asked | None = None
    """What the state says that the machine was asked for; ``None`` where it has just been made or taken over."""
    is_altered: bool = False
    """Whether somebody has changed it by hand, and some of that can be put right."""

    @property
    def state(self) -> MachineState:
        """The machine as far as it was brought."""
        groups = [Group(cloud, region, group_id) for (cloud, region), group_id in self.walk.groups.items()]
        return MachineState.of(
            self.session.provider,
            self.slot.stack_id,
            self.instance,
            self.volume_ids,
            groups,
            self.walk.attempts,
            self.inputs.tags,
            self._asked(),
        )

    def _asked(self) -> Asked:
        found = asked_of(self.inputs, self.slot, self.instance, self.asked)
        if self.asked is not None:
            return found
        return replace(found, stops=node.stops(self.inputs.workload, self.inputs.node, found.placement))

    def run(self, expires_at: str | None = None) -> None:
        """All steps.

        Args:
            expires_at: the machine's end, where it changed.

        Raises:
            GpuprovError: a step failed; those before it are done.
        """
        self._write_tags(expires_at)
        # Again, though the machine has its group: rules follow `access` in the spec.
        self.walk.groups.pop((self.instance.placement.cloud, self.instance.placement.region), None)
        self.walk.group(self.instance.placement)
        if self.instance.state is InstanceState.PENDING and self.walk.waits:
            self._until_running()
        if self.instance.state is InstanceState.STOPPING:
            self.instance = self.session.watch.until_stopped(self.instance)
        # Before the machine is stopped or started: a refusal leaves it as it is, and what it starts finds its disks.
        self._attach_disks()
        self._set_root_speed()
        self._tell_start()
        if self.inputs.power is Power.RUNNING:
            self._start()
        if self.is_altered:
            self.session.cloud.put_right(self.instance.placement, self.instance.id, terms_of(self.inputs, self.state))
        self._set_shutdown()
        if self.inputs.power is Power.STOPPED:
            self._stop()

    def _write_tags(self, expires_at: str | None) -> None:
        machine = self.instance
        written = object_tags(
            self.slot,
            self.inputs.workload,
            generation=generation_of(machine) or self.inputs.launch.generation,
            expires_at=expires_at or machine.tags.get(tags.EXPIRES_AT) or self.inputs.launch.expires_at,
            owner=self.inputs.launch.owner,
            stated=self.inputs.tags,
        )
        self._set({key: value for key, value in written.items() if machine.tags.get(key) != value})

    def _set(self, changed: dict[str, str]) -> None:
        if changed:
            self.session.cloud.set_tags(self.instance.placement, self.instance.id, changed)
            self.instance = replace(self.instance, tags={**self.instance.tags, **changed})

    def _tell_start(self) -> None:
        """Let the machine run what the inputs say: it is stopped, told so, and marked as told before anything starts it.

        One that is started anyway is told once more: what only its own configuration holds, such as limits, comes with it.
        """
        wanted = node.run_digest(self.inputs.workload, self.inputs.node)
        told = self.instance.tags.get(tags.RUN_DIGEST)
        is_down = self.instance.state in (InstanceState.STOPPING, InstanceState.STOPPED)
        if told is None or (told == wanted and not (is_down and self.inputs.power is Power.RUNNING)):
            return
        data = self._start_script()
        self._stop()
        machine = self.instance
        if machine.state is not InstanceState.STOPPED:
            raise CloudError(
                f"{machine.id} is {machine.state} after it was stopped to run something else",
                remedy="run the command again: it makes a new one",
            )
        self.session.cloud.set_user_data(machine.placement, machine.id, data)
        self._set({tags.RUN_DIGEST: wanted})

    def _start_script(self) -> str:
        """What the machine is told, known to fit before it is stopped for it."""
        place = self.instance.placement
        data = node.boot_data(self.inputs.workload, self.inputs.node, place, self.inputs.volumes)
        packed_user_data(data, place.cloud)
        return data

    def _start(self) -> None:
        """Start a stopped machine: its new end is written before it runs, and no other machine is ever made for it."""
        watch, cloud = self.session.watch, self.session.cloud
        if self.instance.state is InstanceState.STOPPING:
            self.instance = watch.until_stopped(self.instance)
        if self.instance.state is not InstanceState.STOPPED:
            return
        self._set({tags.EXPIRES_AT: lifetime.expires_at(self.inputs.workload, cloud.now())})
        try:
            cloud.start_instance(self.instance.placement, self.instance.id)
        except (CapacityError, QuotaError) as error:
            raise type(error)(
                f"{self.instance.id} cannot be started in {self.instance.placement.zone or self.instance.placement.region}: "
                f"{error.message}; it stays stopped, with its disks, and no other machine was made",
                remedy="try `start` again later; to go elsewhere, snapshot its disks and end it with `down` first",
            ) from error
        self._until_running()

    def _until_running(self) -> None:
        self.instance = self.session.watch.until_running(self.instance)
        self.walk.mark_seen(self.instance)
        if self.instance.state is not InstanceState.RUNNING:
            reason = f" ({self.instance.console[-1]})" if self.instance.console else ""
            raise CloudError(
                f"{self.instance.id} is {self.instance.state} after it was started{reason}",
                remedy=self.instance.failure or "run the command again: it reads what the machine is now",
            )

    def _attach_disks(self) -> None:
        self.volume_ids.clear()
        for wanted in self.inputs.volumes:
            disk = self.session.disks.ensure(self.slot, self.inputs, wanted, self.instance)
            self.volume_ids.append(disk.id)

    def _set_root_speed(self) -> None:
        """Bring the root disk of a machine that was made with another speed to the one of the inputs."""
        if self.root_speed is not None and self.instance.placement.cloud in SPEED_CLOUDS:
            self.session.cloud.set_root_speed(self.instance.placement, self.instance.id, self.root_speed)

    def _set_shutdown(self) -> None:
        """Let a shutdown from inside do what the spec says now; the tag is written once the machine is told."""
        machine, facts = self.instance, self.inputs.node
        written = shutdown.wanted(self.inputs.workload, facts, machine.placement, machine.tags)
        if written.items() <= machine.tags.items():
            return
        if shutdown.can_change(facts, machine.placement):
            stops = written[tags.IDLE_THEN] == STOP
            self.session.cloud.set_shutdown(machine.placement, machine.id, stops=stops)
        self._set(written)

    def _stop(self) -> None:
        machine = self.instance
        if machine.state is InstanceState.PENDING:
            machine = self.session.watch.until_running(machine)
        if machine.state is InstanceState.RUNNING:
            self.session.cloud.stop_instance(machine.placement, machine.id)
        self.instance = self.session.watch.until_stopped(machine)
