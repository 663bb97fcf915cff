"""What a person or a test does to the sandbox from outside the cloud's interface; none of it is in the journal."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import datetime, timedelta
from fractions import Fraction
from typing import Any

from provisioner.clouds.cloud import InstanceState
from provisioner.clouds.sandbox import (
    altered,
    bill,
    capacity,
    clock,
    faults,
    health,
    instances,
    journal,
    latencies,
    machines,
    network,
    pools,
    power,
    quota,
    samples,
    schema,
    storage,
    watcher,
)
from provisioner.clouds.sandbox.call import Call
from provisioner.clouds.sandbox.errors import DamagedFile
from provisioner.clouds.sandbox.machines import Machine
from provisioner.clouds.sandbox.prices import Market
from provisioner.clouds.sandbox.store import Store
from provisioner.clouds.sandbox.watcher import Node
from provisioner.errors import NotFound, UsageError
from provisioner.units import DiskSpeed
from provisioner.vocabulary import CapacityType


class Controls:
    """Limits, events, clock, faults, telemetry and bill of one sandbox file.

    Where a machine is named, the name of its stack will do.
    """

    def __init__(self, store: Store, host: clock.Host, market: Market) -> None:
        self._store = store
        self._host = host
        self._market = market

    @contextmanager
    def _act(self) -> Iterator[Call]:
        """One transaction on a world that is up to date."""
        with self._store.transaction() as connection:
            call = Call(connection, clock.now_us(connection, self._host))
            power.settle(connection, call.now_us)
            yield call

    def clock_offset(self) -> timedelta:
        """How far the sandbox's clock is ahead of the host's."""
        with self._act() as call:
            return timedelta(microseconds=clock.offset_us(call.connection))

    def advance_clock(self, duration: timedelta) -> datetime:
        """Move the clock forward and carry out what becomes due on the way, each at its own moment.

        Returns:
            The new time.
        """
        with self._act() as call:
            clock.advance(call.connection, duration)
            now_us = call.now_us + clock.duration_us(duration)
            power.settle(call.connection, now_us)
            return clock.from_us(now_us)

    def set_capacity(self, pool: str, instances: int | None) -> None:
        """Limit how many machines run at once in a pool of placements; ``None`` lifts the limit for it."""
        with self._act() as call:
            capacity.put(call.connection, pool, instances)

    def is_sold(self, pool: str) -> bool:
        """Whether any offer of the catalog falls into a pool; where none does, the pattern is probably misspelt."""
        return self._market.is_sold(pools.parse(pool))

    def clear_capacity(self) -> None:
        """Forget all limits of capacity."""
        with self._act() as call:
            capacity.clear(call.connection)

    def capacities(self) -> list[capacity.Capacity]:
        """Limits of capacity with their use."""
        with self._act() as call:
            return capacity.read_all(call.connection)

    def set_quota(self, cloud: str, region: str, name: str, units: Fraction | None) -> tuple[str, ...]:
        """Set (or with ``None`` lift) a quota by its code, or by an instance type or family that it covers.

        Returns:
            The codes that were set.

        Raises:
            UsageError: an unknown region or name.
        """
        self._market.prepare(cloud)
        with self._act() as call:
            if region != quota.ANY_REGION and not self._market.zones(cloud, region):
                raise UsageError(
                    f"the catalog has no region {region!r} on {cloud}", remedy="see `gpuprov offers`, or use *"
                )
            is_global = cloud == "gcp" and name == quota.GLOBAL_GPUS
            codes = (name,) if is_global else self._market.quota_codes(cloud, name)
            if not codes:
                raise UsageError(
                    f"{name!r} is no quota code, instance type or family of {cloud}",
                    remedy="name a code such as L-DB2E81BA, or a family such as g6",
                )
            for code in codes:
                quota.put(call.connection, cloud, quota.ANY_REGION if is_global else region, code, units)
            return codes

    def clear_quotas(self) -> None:
        """Lift all quotas."""
        with self._act() as call:
            quota.clear(call.connection)

    def quotas(self) -> list[quota.Quota]:
        """Quotas that are set, with their use."""
        with self._act() as call:
            return quota.read_all(call.connection)

    def reclaim(self, instance_id: str, notice: timedelta | None = None) -> datetime:
        """Let the cloud take a spot machine back, after its notice.

        Args:
            instance_id: the machine.
            notice: how long it has left; ``None`` is the cloud's own.

        Returns:
            When it is taken.

        Raises:
            NotFound: there is no such machine.
            UsageError: it is no spot machine, does not run, or the notice is negative or endless.
        """
        with self._act() as call:
            machine = self._machine(call, instance_id)
            if machine.capacity_type is not CapacityType.SPOT:
                raise UsageError(f"{machine.id} is {machine.capacity_type}: only spot machines are taken back")
            if not machine.is_alive:
                raise UsageError(f"{machine.id} is {machine.state}: only a running machine can be taken back")
            left = self._market.reclaim_notice(machine.cloud) if notice is None else notice
            if not timedelta(0) <= left <= clock.FURTHEST:
                raise UsageError(f"a notice is from 0 to {clock.FURTHEST.days} days")
            at_us = call.now_us + clock.duration_us(left)
            line = f"spot: interruption notice, action at {clock.from_us(at_us).isoformat()}"
            power.write_console(call.connection, machine.id, call.now_us, line)
            machines.save(call.connection, replace(machine, reclaim_us=at_us))
            power.settle(call.connection, call.now_us)
            return clock.from_us(at_us)

    def impair(self, instance_id: str, kind: str, after: timedelta | None = None) -> None:
        """Let a running machine ail: a status check that fails, or an event that its cloud announces.

        Args:
            instance_id: the machine.
            kind: as in ``sandbox.health``.
            after: when an event is to begin, from now.

        Raises:
            NotFound: there is no such machine.
            UsageError: the time is negative or endless.
        """
        with self._act() as call:
            machine = self._machine(call, instance_id)
            if after is not None and not timedelta(0) <= after <= clock.FURTHEST:
                raise UsageError(f"an event begins within {clock.FURTHEST.days} days from now")
            begins_us = None if after is None else call.now_us + clock.duration_us(after)
            health.write(call.connection, machine.id, kind, begins_us)

    def kill_watcher(self, instance_id: str) -> None:
        """Let the watcher and the dead man's switch of a machine fail for good: only its owner, or ``reap``, ends it then.

        Raises:
            NotFound: there is no such machine.
            UsageError: none run on it.
        """
        with self._act() as call:
            machine, node = self._watched(call, instance_id)
            machines.save(call.connection, replace(machine, node=watcher.killed(node, call.now_us)))

    def alter(
        self,
        instance_id: str,
        *,
        instance_type: str | None = None,
        stops: bool | None = None,
        root_speed: DiskSpeed | None = None,
    ) -> None:
        """Change a machine as somebody at the console would: its type, what a shutdown does, its root disk's speed.

        Raises:
            NotFound: there is no such machine.
            UsageError: the type is not sold there.
            Rejected: no root disk has this speed.
        """
        for cloud in ("aws", "gcp"):
            self._market.prepare(cloud)
        with self._act() as call:
            machine = self._machine(call, instance_id)
            if instance_type is not None:
                altered.set_type(call, machine, instance_type, self._market)
            if stops is not None:
                instances.set_shutdown(call, machine.placement, machine.id, stops=stops)
            if root_speed is not None:
                instances.set_root_speed(call, machine.placement, machine.id, root_speed, self._market)

    def heal(self, instance_id: str) -> None:
        """Let a machine be well again, and what runs on it.

        Raises:
            NotFound: there is no such machine.
        """
        with self._act() as call:
            machine = self._machine(call, instance_id)
            health.clear(call.connection, machine.id)
            if machine.node is not None and machine.state is InstanceState.RUNNING:
                turn = watcher.revived(machine.node, machine.tags, call.now_us)
                power.take(call.connection, machine, turn, call.now_us)
                power.settle(call.connection, call.now_us)

    def finish(
        self, instance_id: str, exit_code: int = 0, after: timedelta = timedelta(0), tail: Sequence[str] = ()
    ) -> datetime:
        """Let the command of a machine's workload end for good, now or later.

        Args:
            instance_id: the machine.
            exit_code: what it ends with; any but 0 is a failure that its restarts have not mended.
            after: when, from now.
            tail: the last lines that it writes.

        Returns:
            When it ends.

        Raises:
            NotFound: there is no such machine.
            UsageError: nothing runs on it that could end so, or the time is negative or endless.
        """
        with self._act() as call:
            machine, node = self._watched(call, instance_id)
            _refuse_finish(machine, node, exit_code)
            if not timedelta(0) <= after <= clock.FURTHEST:
                raise UsageError(f"a command ends within {clock.FURTHEST.days} days from now")
            at_us = call.now_us + clock.duration_us(after)
            coming = watcher.Finish(at_us, exit_code, tuple(tail))
            machines.save(call.connection, replace(machine, node=replace(node, finish=coming)))
            power.settle(call.connection, call.now_us)
            return clock.from_us(at_us)

    def vanish(self, object_id: str) -> str:
        """Make a machine, disk or security group disappear without a trace; its bill ends.

        Returns:
            What it was: ``instance``, ``volume`` or ``security-group``.

        Raises:
            NotFound: nothing of that id exists.
        """
        with self._act() as call:
            machine = machines.load(call.connection, object_id)
            if machine is not None and not machine.is_gone:
                power.vanish(call.connection, machine, call.now_us)
                return "instance"
            disk = storage.load(call, object_id)
            if disk is not None:
                storage.remove(call, disk)
                return storage.KIND
            if network.load(call, object_id) is not None:
                network.remove(call, object_id)
                return network.KIND
            raise NotFound(
                f"nothing in the sandbox has the id {object_id}", remedy="see `gpuprov sandbox bill --running`"
            )

    def inject(self, fault: faults.Fault) -> None:
        """Put an error in front of coming calls."""
        with self._act() as call:
            faults.inject(call.connection, fault)

    def clear_faults(self) -> None:
        """Forget injected errors."""
        with self._act() as call:
            faults.clear(call.connection)

    def faults(self) -> list[faults.Fault]:
        """Injected errors that are still to strike."""
        with self._act() as call:
            return faults.read_all(call.connection)

    def set_latency(self, latency: latencies.Latency) -> latencies.Latency:
        """Set how long a call blocks or a change takes."""
        with self._act() as call:
            return latencies.write(call.connection, latency)

    def latencies(self) -> list[latencies.Latency]:
        """All latencies as they are set."""
        with self._act() as call:
            return [latencies.read(call.connection, name) for name in latencies.names()]

    def set_telemetry(
        self, instance_id: str, signals: Mapping[str, Any], console: str | None = None
    ) -> list[samples.Sample]:
        """Add a sample of signals, a line on the serial console, or both.

        Returns:
            The machine's samples, oldest first.
        """
        with self._act() as call:
            instance_id = self._known(call, instance_id)
            if signals:
                samples.put(call.connection, instance_id, call.now_us, signals)
                power.sensed(call.connection, instance_id, call.now_us)
            if console is not None:
                power.write_console(call.connection, instance_id, call.now_us, console)
            return samples.read(call.connection, instance_id)

    def clear_telemetry(self, instance_id: str) -> None:
        """Let a machine's telemetry go silent."""
        with self._act() as call:
            instance_id = self._known(call, instance_id)
            samples.clear(call.connection, instance_id)
            power.sensed(call.connection, instance_id, call.now_us)

    def telemetry(self, instance_id: str, since: datetime | None = None) -> list[samples.Sample]:
        """A machine's samples, oldest first."""
        with self._act() as call:
            return samples.read(
                call.connection, self._known(call, instance_id), 0 if since is None else clock.to_us(since)
            )

    def bill(self, *, running_only: bool = False, stack_id: str | None = None) -> bill.Bill:
        """The bill up to now."""
        with self._act() as call:
            return bill.read(call.connection, call.now_us, running_only=running_only, stack_id=stack_id)

    def calls(self, *, after: int = 0, operation: str | None = None) -> list[journal.Entry]:
        """The journal of calls."""
        with self._act() as call:
            return journal.read(call.connection, after=after, operation=operation)

    def reset(self) -> None:
        """Empty the sandbox: objects, bill, clock, limits, faults, journal. A damaged file is deleted."""
        try:
            with self._store.transaction() as connection:
                schema.clear(connection)
        except DamagedFile:
            self._store.remove()

    @staticmethod
    def _known(call: Call, name: str) -> str:
        """The id of a machine, gone or not, from the id itself or from the name of its stack.

        Raises:
            NotFound: there never was such a machine.
            UsageError: several machines of stacks of this name exist.
        """
        if machines.load(call.connection, name) is None:
            found = machines.ids_of_stack(call.connection, name)
            if len(found) > 1:
                raise UsageError(f"several machines are of a stack {name!r}: {', '.join(found)}", remedy="name one")
            name = found[0] if found else name
        return samples.require(call.connection, name).id

    @classmethod
    def _machine(cls, call: Call, name: str) -> Machine:
        machine = samples.require(call.connection, cls._known(call, name))
        if machine.is_gone:
            raise NotFound(f"there is no instance {name} in the sandbox", remedy="see `gpuprov status`")
        return machine

    @classmethod
    def _watched(cls, call: Call, instance_id: str) -> tuple[Machine, Node]:
        """A running machine and what runs on it."""
        machine = cls._machine(call, instance_id)
        if machine.state is not InstanceState.RUNNING:
            raise UsageError(f"{machine.id} is {machine.state}: nothing runs on it")
        if machine.node is None:
            raise UsageError(
                f"{machine.id} was not started with a watcher of ours",
                remedy="stop and start it, or make it by `gpuprov up`",
            )
        return machine, machine.node


def _refuse_finish(machine: Machine, node: Node, exit_code: int) -> None:
    """Refuse an end that the workload cannot have.

    Raises:
        UsageError: why.
    """
    if node.workload is None:
        raise UsageError(f"{machine.id} is a bare machine: its spec has no `run`, so no command can end")
    if node.ended is not None:
        raise UsageError(f"the command on {machine.id} has ended already, with {node.ended.exit_code}")
    if exit_code == 0 and not node.config.get("once"):
        raise UsageError(
            f"{machine.id} runs a server, which is started again when it ends",
            remedy="--exit-code 1 plays one that fails for good",
        )
