"""Everything in the sandbox that carries one of our tags, with what it costs now."""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction

from provisioner import tags as tag_keys
from provisioner.clouds.cloud import BillableObject, Ended, InstanceState, Placement
from provisioner.clouds.sandbox import instances, machines, network, power, spans, storage
from provisioner.clouds.sandbox.call import Call
from provisioner.clouds.sandbox.clock import from_us
from provisioner.clouds.sandbox.errors import not_found
from provisioner.clouds.sandbox.machines import Machine
from provisioner.clouds.sandbox.prices import usd_text
from provisioner.vocabulary import CapacityType

PROVIDER = "sandbox"

Rates = Mapping[str, Fraction | None]


def list_objects(call: Call) -> list[BillableObject]:
    """Visible objects that exist and carry one of our tags; machines first, each with its root disk and address."""
    rates = spans.running_rates(call.connection)
    found: list[BillableObject] = []
    for machine in instances.read_recent(call):
        if not machine.is_gone and instances.is_visible(call, machine) and _is_ours(machine.tags):
            stopped_us = (
                spans.last_end_us(call.connection, machine.id) if machine.state is InstanceState.STOPPED else None
            )
            why = machines.ended(machine, power.read_console(call.connection, machine.id, 2)) if stopped_us else None
            found.extend(_of_machine(machine, rates, stopped_us, why))
    disks = [disk for disk in storage.read_all(call) if disk.visible_us <= call.now_us and _is_ours(disk.tags)]
    found.extend(_of_disk(disk, rates) for disk in disks)
    found.extend(_of_group(group) for group in network.read_all(call) if _is_ours(group.tags))
    return found


def list_others(call: Call) -> list[BillableObject]:
    """Visible machines that exist and carry none of our tags."""
    rates = spans.running_rates(call.connection)
    found = [m for m in instances.read_recent(call) if not m.is_gone and instances.is_visible(call, m)]
    return [_of_machine(machine, rates, None)[0] for machine in found if not _is_ours(machine.tags)]


def set_tags(call: Call, placement: Placement, object_id: str, tags: Mapping[str, str]) -> None:
    """Write tags of a machine, a disk or a security group in the placement's region.

    Raises:
        NotFound: nothing of that id exists there.
    """
    machine = machines.load(call.connection, object_id)
    if machine is not None:
        instances.set_tags(call, instances.existing(call, placement, object_id), tags)
        return
    where = (placement.cloud, placement.region)
    disk = storage.load(call, object_id)
    if disk is not None and (disk.cloud, disk.region) == where:
        storage.set_tags(call, disk, tags)
        return
    group = network.load(call, object_id)
    if group is None or (group.cloud, group.region) != where:
        raise not_found("no-instance", placement.cloud, object_id)
    network.set_tags(call, group, tags)


def _is_ours(tags: Mapping[str, str]) -> bool:
    return any(key.startswith(tag_keys.PREFIX) for key in tags)


def _price(rates: Rates, object_id: str) -> str | None:
    """USD an hour now: nothing for what does not bill, ``None`` for an unknown price."""
    return usd_text(rates[object_id]) if object_id in rates else "0"


def _of_machine(
    machine: Machine, rates: Rates, stopped_us: int | None, why: Ended | None = None
) -> list[BillableObject]:
    """A machine, its root disk and, while it has one, its public address; all under the machine's tags."""
    facts = {"name": machine.name, "instance_type": machine.instance_type}
    facts |= {} if stopped_us is None else {"stopped_at": tag_keys.format_time(from_us(stopped_us))}
    facts |= {} if why is None else {"ended": str(why.how)}
    parts = [
        ("instance", machine.id, str(machine.state), facts),
        ("volume", machine.root_volume_id, "in-use", {"role": "root", "size_bytes": str(machine.root_volume_bytes)}),
    ]
    if machine.public_ip is not None:
        parts.append(("ip", power.ip_id(machine), "in-use", {"address": machine.public_ip}))
    disk = "local" if machine.has_local_disk else "network"
    common = {"provider": PROVIDER, "capacity_type": str(machine.capacity_type), "disk": disk}
    if machine.cloud == "aws" and machine.capacity_type is CapacityType.SPOT:
        common["spot_request"] = "persistent" if machine.stop_on_shutdown else "one-time"
    return [
        BillableObject(
            cloud=machine.cloud,
            kind=kind,
            id=object_id,
            region=machine.region,
            zone=machine.zone,
            state=state,
            tags=dict(machine.tags),
            price_usd_per_hour=_price(rates, object_id),
            created_at=from_us(machine.created_us),
            extra={"provider": PROVIDER, **extra, "instance": machine.id}
            if kind != "instance"
            else {**common, **extra},
        )
        for kind, object_id, state, extra in parts
    ]


def _of_disk(disk: storage.Disk, rates: Rates) -> BillableObject:
    extra = {"provider": PROVIDER, "name": disk.name, "role": "data", "size_bytes": str(disk.size_bytes)}
    if disk.attached_to is not None:
        extra["instance"] = disk.attached_to
    return BillableObject(
        cloud=disk.cloud,
        kind=storage.KIND,
        id=disk.id,
        region=disk.region,
        zone=disk.zone,
        state=storage.view(disk).state,
        tags=dict(disk.tags),
        price_usd_per_hour=_price(rates, disk.id),
        created_at=from_us(disk.created_us),
        extra=extra,
    )


def _of_group(group: network.SecurityGroup) -> BillableObject:
    return BillableObject(
        cloud=group.cloud,
        kind=network.KIND,
        id=group.id,
        region=group.region,
        zone=None,
        state="available",
        tags=dict(group.tags),
        price_usd_per_hour="0",
        created_at=from_us(group.created_us),
        extra={"provider": PROVIDER},
    )
