"""Machines of the sandbox: create by token, read, start, stop, terminate."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from fractions import Fraction

from provisioner.clouds.cloud import Instance, InstanceRequest, InstanceState, Placement
from provisioner.clouds.sandbox import (
    capacity,
    health,
    latencies,
    machines,
    network,
    power,
    quota,
    spans,
    tokens,
    watcher,
)
from provisioner.clouds.sandbox.call import Call, Effect
from provisioner.clouds.sandbox.clock import duration_us, from_us
from provisioner.clouds.sandbox.errors import not_found, out_of_capacity, rejected, token_spent
from provisioner.clouds.sandbox.identifiers import new_id
from provisioner.clouds.sandbox.machines import ALIVE, Machine
from provisioner.clouds.sandbox.prices import Market, Quote, rate_text
from provisioner.clouds.sandbox.sizes import refuse_size, refuse_speed, shown_speed
from provisioner.clouds.sandbox.store import next_number
from provisioner.errors import Rejected
from provisioner.units import DiskSpeed
from provisioner.vocabulary import CapacityType

KIND = "instance"

SHOWN_AFTER_END = timedelta(hours=1)
"""How long a terminated machine is still listed; about as long as EC2 lists one."""

CONSOLE_LINES = 100
"""Lines of the serial console that a reading gives."""

_PRIVATE_FIRST = 10 << 24
_PRIVATE_COUNT = 1 << 24


def create(call: Call, request: InstanceRequest, market: Market) -> Instance:
    """Make a machine, or give back the one that the token made.

    Raises:
        Rejected, QuotaError, CapacityError: nothing was made.
        TokenMismatch, TokenSpent: the token was used before.
    """
    placement = request.placement
    token = tokens.Token(placement.cloud, placement.region, KIND, request.token, tokens.digest_of(request))
    known = tokens.find(call.connection, token)
    if known is not None:
        return _replay(call, known, request)
    quote = market.quote(placement)
    expires_us = _checked_expiry(placement.cloud, request.tags)
    _check_request(call, request)
    machine = _new_machine(call, request, quote, market, expires_us)
    quota.check(call.connection, quota.Demand.of(machine))
    machine = _in_zone_with_room(call, machine, quote, placement)
    machines.insert(call.connection, machine)
    tokens.remember(call.connection, token, machine.id)
    power.start_alive_spans(call.connection, machine, call.now_us)
    root = spans.Meter(spans.ROOT_VOLUME, machine.root_volume_id, machine.id, machine.root_rate)
    spans.start(call.connection, root, call.now_us)
    call.note(Effect.CREATED, machine.id)
    return view(call, machine)


def check_room(call: Call, placement: Placement, market: Market, ending: str | None) -> None:
    """Refuse what a create would refuse for want of quota or capacity; nothing is made.

    Raises:
        CapacityError, QuotaError: no room.
        Rejected: the catalog has no such offer.
    """
    quote = market.quote(placement)
    code = None if quote.quota is None else quote.quota.quota.code
    units = Fraction(0) if quote.quota is None else Fraction(str(quote.quota.units))
    demand = quota.Demand(placement.cloud, placement.region, code, units, _gpus(quote))
    quota.check(call.connection, demand, ending)
    keys = (replace(placement, zone=zone).key for zone in quote.rates)
    if not any(capacity.has_room(call.connection, key, ending) for key in keys):
        raise out_of_capacity(placement, zones=quote.zones)


def get(call: Call, placement: Placement, instance_id: str) -> Instance | None:
    """The machine, or ``None`` where nothing is visible under this id in the placement's region."""
    machine = machines.load(call.connection, instance_id)
    if machine is None or (machine.cloud, machine.region) != (placement.cloud, placement.region):
        return None
    return view(call, machine) if is_visible(call, machine) else None


def find(call: Call, tags: Mapping[str, str], placements: Sequence[Placement]) -> list[Instance]:
    """Visible machines with all of the tags in the regions of the placements, oldest first."""
    regions = {(placement.cloud, placement.region) for placement in placements}
    return [
        view(call, machine)
        for machine in read_recent(call)
        if (machine.cloud, machine.region) in regions
        and is_visible(call, machine)
        and tags.items() <= machine.tags.items()
    ]


def start(call: Call, placement: Placement, instance_id: str) -> Instance:
    """Start a stopped machine; one that runs, or comes up, stays so.

    Raises:
        CapacityError, QuotaError: it stays stopped, with its disks.
        NotFound: there is no such machine.
        Rejected: it is still stopping.
    """
    machine = existing(call, placement, instance_id)
    if machine.state in ALIVE:
        return view(call, machine)
    if machine.state is not InstanceState.STOPPED:
        raise rejected(
            "bad-state", machine.cloud, f"{machine.id} is {machine.state}; only a stopped one can be started"
        )
    quota.check(call.connection, quota.Demand.of(machine))
    if not capacity.has_room(call.connection, machine.placement.key):
        raise out_of_capacity(machine.placement, zones=(machine.zone,))
    health.clear(call.connection, machine.id)  # it comes up on another host
    ready_us = call.now_us + latencies.read_us(call.connection, "boot")
    return view(call, _move(call, machine, InstanceState.PENDING, ready_us))


def stop(call: Call, placement: Placement, instance_id: str) -> Instance:
    """Stop a machine; one that is stopped or stopping stays so.

    Raises:
        NotFound: there is no such machine.
        Rejected: its market or its disks do not allow a stop.
    """
    machine = existing(call, placement, instance_id)
    if machine.state in {InstanceState.STOPPING, InstanceState.STOPPED}:
        return view(call, machine)
    refusal = machines.stop_refusal(machine)
    if refusal is not None:
        raise rejected("unsupported", machine.cloud, f"{machine.id}: {refusal}", "terminate it instead")
    stopped_us = call.now_us + latencies.read_us(call.connection, "stopping")
    return view(call, _move(call, machine, InstanceState.STOPPING, stopped_us))


def set_user_data(call: Call, placement: Placement, instance_id: str, user_data: str) -> None:
    """Change what a stopped machine reads at its next boot.

    Raises:
        NotFound: there is no such machine.
        Rejected: it is not stopped.
    """
    machine = existing(call, placement, instance_id)
    if machine.state is not InstanceState.STOPPED:
        raise rejected(
            "bad-state", machine.cloud, f"{machine.id} is {machine.state}; its user data changes while stopped"
        )
    machines.save(call.connection, replace(machine, user_data=user_data))
    call.note(Effect.CHANGED, machine.id)


def set_shutdown(call: Call, placement: Placement, instance_id: str, *, stops: bool) -> None:
    """Change what a shutdown from inside does to a machine; it follows at once.

    Raises:
        NotFound: there is no such machine.
        Rejected: it is a spot machine, or of GCE, where that is settled at the creation, or it cannot be stopped.
    """
    machine = existing(call, placement, instance_id)
    if machine.cloud == "gcp" or machine.capacity_type is CapacityType.SPOT:
        raise rejected("unsupported", machine.cloud, f"{machine.id}: how it ends was settled when it was made")
    if stops and (refusal := machines.stop_refusal(machine)) is not None:
        raise rejected("unsupported", machine.cloud, f"{machine.id}: {refusal}", "leave lifecycle.idle.then out")
    machines.save(call.connection, replace(machine, stop_on_shutdown=stops))
    call.note(Effect.CHANGED, machine.id)


def terminate(call: Call, placement: Placement, instance_id: str) -> None:
    """End a machine and its root disk; one that is gone, or never was, is fine."""
    machine = machines.load(call.connection, instance_id)
    if machine is None or machine.is_gone or machine.state is InstanceState.TERMINATING:
        return
    if (machine.cloud, machine.region) != (placement.cloud, placement.region):
        return
    gone_us = call.now_us + latencies.read_us(call.connection, "terminating")
    _move(call, machine, InstanceState.TERMINATING, gone_us, effect=Effect.REMOVED)


def set_tags(call: Call, machine: Machine, tags: Mapping[str, str]) -> None:
    """Write tags of a machine; the timer and the watcher on it follow.

    Raises:
        Rejected: a lifetime that nothing could keep.
    """
    merged = {**machine.tags, **tags}
    expires_us = _checked_expiry(machine.cloud, merged)
    machine = replace(machine, tags=merged, expires_us=expires_us)
    if machine.node is not None and machine.state is InstanceState.RUNNING:
        power.take(call.connection, machine, watcher.heard(machine.node, merged, call.now_us), call.now_us)
    else:
        machines.save(call.connection, machine)
    power.settle(call.connection, call.now_us)
    call.note(Effect.CHANGED, machine.id)


def set_root_speed(call: Call, placement: Placement, instance_id: str, speed: DiskSpeed, market: Market) -> None:
    """Give the root disk of a machine a speed; it bills for it from now on.

    Raises:
        NotFound: there is no such machine.
        Rejected: no disk of its size has this speed.
    """
    machine = existing(call, placement, instance_id)
    refuse_speed(machine.cloud, speed, machine.root_volume_bytes)
    if shown_speed(machine.cloud, machine.root_iops, machine.root_mib_per_s) == speed:
        return
    rate = _root_rate(market, machine.placement, machine.root_volume_bytes, speed)
    faster = replace(machine, root_iops=speed.iops, root_mib_per_s=speed.mib_per_s, root_rate=rate)
    machines.save(call.connection, faster)
    spans.end(call.connection, machine.root_volume_id, call.now_us)
    spans.start(call.connection, spans.Meter(spans.ROOT_VOLUME, machine.root_volume_id, machine.id, rate), call.now_us)
    call.note(Effect.CHANGED, machine.id)


def existing(call: Call, placement: Placement, instance_id: str) -> Machine:
    """The machine with an id in the placement's region, visible or not.

    Raises:
        NotFound: there is none, or it is gone or ending.
    """
    machine = machines.load(call.connection, instance_id)
    if (
        machine is None
        or machine.is_gone
        or machine.state is InstanceState.TERMINATING
        or (machine.cloud, machine.region) != (placement.cloud, placement.region)
    ):
        raise not_found("no-instance", placement.cloud, instance_id)
    return machine


def read_recent(call: Call) -> list[Machine]:
    """Machines that exist or ended a short while ago, oldest first."""
    since_us = call.now_us - duration_us(SHOWN_AFTER_END)
    rows = call.connection.execute(
        "SELECT * FROM instances WHERE vanished = 0 AND (ended_us IS NULL OR ended_us > ?) ORDER BY seq", (since_us,)
    )
    return [machines.from_row(row) for row in rows]


def is_visible(call: Call, machine: Machine) -> bool:
    """Whether lists and reads show a machine yet, and still."""
    if machine.vanished or machine.visible_us > call.now_us:
        return False
    return machine.ended_us is None or machine.ended_us > call.now_us - duration_us(SHOWN_AFTER_END)


def view(call: Call, machine: Machine) -> Instance:
    """A machine as the cloud shows it."""
    console = power.read_console(call.connection, machine.id, CONSOLE_LINES)
    attached = call.connection.execute("SELECT id FROM volumes WHERE attached_to = ? ORDER BY seq", (machine.id,))
    return Instance(
        id=machine.id,
        name=machine.name,
        placement=machine.placement,
        state=machine.state,
        tags=dict(machine.tags),
        image=machine.image,
        created_at=from_us(machine.created_us),
        private_ip=None if machine.is_gone else machine.private_ip,
        public_ip=machine.public_ip,
        volume_ids=tuple(str(row["id"]) for row in attached),
        token=machine.token,
        console=console,
        ended=machines.ended(machine, console),
    )


def _replay(call: Call, machine_id: str, request: InstanceRequest) -> Instance:
    machine = machines.load(call.connection, machine_id)
    if machine is None or machine.is_gone or machine.state is InstanceState.TERMINATING:
        raise token_spent(request.placement.cloud, request.token, machine_id)
    call.note(Effect.REPLAYED, machine.id)
    return view(call, machine)


def _move(call: Call, machine: Machine, state: InstanceState, end_us: int, effect: Effect = Effect.CHANGED) -> Machine:
    """Begin a change that ends at a moment; one that takes no time is over at once."""
    moved = power.move(call.connection, machine, state, call.now_us, until_us=end_us)
    power.settle(call.connection, call.now_us)
    call.note(effect, machine.id)
    return machines.load(call.connection, machine.id) or moved


def _checked_expiry(cloud: str, tags: Mapping[str, str]) -> int | None:
    try:
        return machines.expiry_us(tags)
    except ValueError as error:
        raise rejected(
            "bad-value", cloud, f"tag gpuprov:expires-at: {error}", "write an RFC 3339 time, or none"
        ) from error


def _check_request(call: Call, request: InstanceRequest) -> None:
    cloud, region = request.placement.cloud, request.placement.region
    if not request.token or not request.name or not request.image:
        raise rejected("bad-value", cloud, "token, name and image must not be empty")
    refuse_size(cloud, request.root_volume_bytes)
    refuse_speed(cloud, request.root_speed, request.root_volume_bytes)
    if request.security_group is not None:
        network.require(call, cloud, region, request.security_group)


def _check_name_free(call: Call, machine: Machine) -> None:
    """On GCE a name is taken while a machine of its zone has it."""
    if machine.cloud != "gcp":
        return
    row = call.connection.execute(
        "SELECT id FROM instances WHERE cloud = 'gcp' AND zone = ? AND name = ? AND ended_us IS NULL",
        (machine.zone, machine.name),
    ).fetchone()
    if row is not None:
        raise _name_taken(machine, row["id"])


def _name_taken(machine: Machine, holder: str) -> Rejected:
    return rejected("name-taken", machine.cloud, f"the name {machine.name} in {machine.zone} is taken by {holder}")


def _new_machine(call: Call, request: InstanceRequest, quote: Quote, market: Market, expires_us: int | None) -> Machine:
    """The machine that a request asks for, in the first of the zones that it allows."""
    placement, offered = request.placement, quote.instance
    boot_us = latencies.read_us(call.connection, "boot")
    return Machine(
        id=new_id(placement.cloud, KIND, request.name),
        cloud=placement.cloud,
        region=placement.region,
        zone=quote.zones[0],
        instance_type=placement.instance_type,
        capacity_type=placement.capacity_type,
        name=request.name,
        state=InstanceState.PENDING,
        token=request.token,
        image=request.image,
        user_data=request.user_data,
        security_group=request.security_group,
        stop_on_shutdown=request.stop_on_shutdown,
        root_volume_id=new_id(placement.cloud, "volume", f"{request.name}-root"),
        root_volume_bytes=request.root_volume_bytes,
        tags=dict(request.tags),
        private_ip=power.dotted(
            _PRIVATE_FIRST + 10 + next_number(call.connection, "private-ip") % (_PRIVATE_COUNT - 20)
        ),
        public_ip=power.next_public_ip(call.connection),
        has_local_disk=offered.local_ssd_kind == "bundled",
        quota_code=None if quote.quota is None else quote.quota.quota.code,
        quota_units="0" if quote.quota is None else str(Fraction(str(quote.quota.units))),
        gpus=str(_gpus(quote)),
        compute_rate=None,
        root_rate=_root_rate(market, placement, request.root_volume_bytes, request.root_speed),
        ip_rate=rate_text(market.ip_rate(placement.cloud)),
        created_us=call.now_us,
        visible_us=call.now_us + latencies.read_us(call.connection, "visibility"),
        next_us=call.now_us + boot_us,
        expires_us=expires_us,
        root_iops=None if request.root_speed is None else request.root_speed.iops,
        root_mib_per_s=None if request.root_speed is None else request.root_speed.mib_per_s,
    )


def _root_rate(market: Market, placement: Placement, size_bytes: int, speed: DiskSpeed | None) -> str | None:
    """USD an hour of a root disk as the file keeps it."""
    per_byte = market.disk_rate_per_byte(placement.cloud, placement.region)
    for_speed = market.speed_rate(placement.cloud, placement.region, speed)
    return rate_text(None if per_byte is None or for_speed is None else per_byte * size_bytes + for_speed)


def _gpus(quote: Quote) -> Fraction:
    """GPUs of an offer, a share for a fractional one."""
    return quote.instance.gpu_count * Fraction(str(quote.instance.gpu_fraction))


def _in_zone_with_room(call: Call, machine: Machine, quote: Quote, placement: Placement) -> Machine:
    """The machine in the first allowed zone that has room for it, at that zone's price."""
    for zone, rate in quote.rates.items():
        placed = replace(machine, zone=zone, compute_rate=rate_text(rate))
        if capacity.has_room(call.connection, placed.placement.key):
            _check_name_free(call, placed)
            return placed
    raise out_of_capacity(placement, zones=quote.zones)
