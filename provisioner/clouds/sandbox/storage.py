"""Data disks of the sandbox: zonal, survive their machine, grow only, bill until deleted."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from sqlite3 import Row

from provisioner.clouds.cloud import Placement, Volume, VolumeRequest
from provisioner.clouds.sandbox import instances, latencies, machines, spans, tokens
from provisioner.clouds.sandbox.call import Call, Effect
from provisioner.clouds.sandbox.clock import from_us
from provisioner.clouds.sandbox.errors import not_found, rejected, token_spent
from provisioner.clouds.sandbox.identifiers import new_id
from provisioner.clouds.sandbox.prices import Market, rate_text
from provisioner.clouds.sandbox.sizes import refuse_size, refuse_speed, shown_speed
from provisioner.units import DiskSpeed

KIND = "volume"


@dataclass(frozen=True, slots=True)
class Disk:
    """One row of ``volumes``. ``byte_rate`` is USD an hour for one byte, at the price of the day it was made."""

    id: str
    cloud: str
    region: str
    zone: str
    name: str
    size_bytes: int
    tags: Mapping[str, str]
    attached_to: str | None
    byte_rate: str | None
    created_us: int
    visible_us: int
    ended_us: int | None = None
    iops: int | None = None
    """Bought for it; ``None``: what its kind includes."""
    mib_per_s: int | None = None
    speed_rate: str | None = "0"
    """USD an hour for what it is made to do beyond what is included."""

    @property
    def meter(self) -> spans.Meter:
        """What it bills at its present size and speed; an unknown price stays unknown."""
        rate: str | None = None
        if self.byte_rate is not None and self.speed_rate is not None:
            rate = str(Fraction(self.byte_rate) * self.size_bytes + Fraction(self.speed_rate))
        return spans.Meter(spans.VOLUME, self.id, self.id, rate)


def create(call: Call, request: VolumeRequest, market: Market) -> Volume:
    """Make a data disk, or give back the one that the token made.

    Raises:
        Rejected: an unknown zone, no size, or on GCP a name that is taken.
        TokenMismatch, TokenSpent: the token was used before.
    """
    token = tokens.Token(request.cloud, request.region, KIND, request.token, tokens.digest_of(request))
    known = tokens.find(call.connection, token)
    if known is not None:
        disk = load(call, known)
        if disk is None:
            raise token_spent(request.cloud, request.token, known)
        call.note(Effect.REPLAYED, disk.id)
        return view(disk)
    _check_request(call, request, market)
    disk = Disk(
        id=new_id(request.cloud, KIND, request.name),
        cloud=request.cloud,
        region=request.region,
        zone=request.zone,
        name=request.name,
        size_bytes=request.size_bytes,
        tags=dict(request.tags),
        attached_to=None,
        byte_rate=rate_text(market.disk_rate_per_byte(request.cloud, request.region)),
        created_us=call.now_us,
        visible_us=call.now_us + latencies.read_us(call.connection, "visibility"),
        iops=None if request.speed is None else request.speed.iops,
        mib_per_s=None if request.speed is None else request.speed.mib_per_s,
        speed_rate=rate_text(market.speed_rate(request.cloud, request.region, request.speed)),
    )
    _insert(call, disk)
    tokens.remember(call.connection, token, disk.id)
    spans.start(call.connection, disk.meter, call.now_us)
    call.note(Effect.CREATED, disk.id)
    return view(disk)


def find(call: Call, tags: Mapping[str, str], placements: Sequence[Placement]) -> list[Volume]:
    """Visible disks with all of the tags in the regions of the placements, oldest first."""
    regions = {(placement.cloud, placement.region) for placement in placements}
    return [
        view(disk)
        for disk in read_all(call)
        if (disk.cloud, disk.region) in regions and disk.visible_us <= call.now_us and tags.items() <= disk.tags.items()
    ]


def get(call: Call, placement: Placement, volume_id: str) -> Volume | None:
    """The disk with an id in the placement's region, if it shows."""
    disk = load(call, volume_id)
    if disk is None or (disk.cloud, disk.region) != (placement.cloud, placement.region):
        return None
    return view(disk) if disk.visible_us <= call.now_us else None


def attach(call: Call, placement: Placement, instance_id: str, volume_id: str) -> None:
    """Attach a disk to a machine of its zone; attached there already is fine.

    Raises:
        NotFound: there is no such disk or machine.
        Rejected: another zone, or attached to another machine.
    """
    disk = _existing(call, placement, volume_id)
    machine = instances.existing(call, placement, instance_id)
    if disk.attached_to == machine.id:
        return
    if disk.attached_to is not None:
        raise rejected("in-use", disk.cloud, f"{disk.id} is attached to {disk.attached_to}")
    if disk.zone != machine.zone:
        raise rejected(
            "zone-mismatch", disk.cloud, f"{disk.id} is in {disk.zone}, {machine.id} in {machine.zone}",
            "make the machine in the disk's zone",
        )  # fmt: skip
    save(call, replace(disk, attached_to=machine.id))
    call.note(Effect.CHANGED, disk.id)


def grow(
    call: Call, placement: Placement, volume_id: str, size_bytes: int, *, speed: DiskSpeed | None, market: Market
) -> Volume:
    """Make a disk larger in place and give it a speed; the same size is fine, and no speed leaves the one it has.

    Raises:
        NotFound: there is no such disk.
        Rejected: a smaller size, or one that no disk has.
    """
    disk = _existing(call, placement, volume_id)
    if size_bytes < disk.size_bytes:
        raise rejected(
            "bad-value", disk.cloud, f"{disk.id} has {disk.size_bytes} bytes and cannot shrink to {size_bytes}",
            "make a smaller disk and copy the data",
        )  # fmt: skip
    refuse_size(disk.cloud, size_bytes)
    refuse_speed(disk.cloud, speed, size_bytes)
    grown = replace(disk, size_bytes=size_bytes)
    if speed is not None and speed != _speed(disk):
        rate = rate_text(market.speed_rate(disk.cloud, disk.region, speed))
        grown = replace(grown, iops=speed.iops, mib_per_s=speed.mib_per_s, speed_rate=rate)
    if grown != disk:
        disk = grown
        save(call, disk)
        spans.end(call.connection, disk.id, call.now_us)
        spans.start(call.connection, disk.meter, call.now_us)
        call.note(Effect.CHANGED, disk.id)
    return view(disk)


def delete(call: Call, placement: Placement, volume_id: str) -> None:
    """Delete a detached disk; one that is gone is fine.

    Raises:
        Rejected: it is attached, or the root disk of a machine.
    """
    disk = load(call, volume_id)
    if disk is None:
        _refuse_root(call, placement, volume_id)
        return
    if (disk.cloud, disk.region) != (placement.cloud, placement.region):
        return
    if disk.attached_to is not None:
        raise rejected("in-use", disk.cloud, f"{disk.id} is attached to {disk.attached_to}", "end that machine first")
    remove(call, disk)
    call.note(Effect.REMOVED, disk.id)


def remove(call: Call, disk: Disk) -> None:
    """Take a disk away, attached or not, and end its bill."""
    save(call, replace(disk, attached_to=None, ended_us=call.now_us))
    spans.end(call.connection, disk.id, call.now_us)


def set_tags(call: Call, disk: Disk, tags: Mapping[str, str]) -> None:
    """Write tags of a disk."""
    save(call, replace(disk, tags={**disk.tags, **tags}))
    call.note(Effect.CHANGED, disk.id)


def load(call: Call, volume_id: str) -> Disk | None:
    """The disk with an id, if it exists."""
    row = call.connection.execute("SELECT * FROM volumes WHERE id = ? AND ended_us IS NULL", (volume_id,)).fetchone()
    return None if row is None else from_row(row)


def read_all(call: Call) -> list[Disk]:
    """All disks that exist, oldest first."""
    rows = call.connection.execute("SELECT * FROM volumes WHERE ended_us IS NULL ORDER BY seq")
    return [from_row(row) for row in rows]


def view(disk: Disk) -> Volume:
    """A disk as the cloud shows it."""
    return Volume(
        id=disk.id,
        name=disk.name,
        cloud=disk.cloud,
        region=disk.region,
        zone=disk.zone,
        size_bytes=disk.size_bytes,
        tags=dict(disk.tags),
        created_at=from_us(disk.created_us),
        attached_to=disk.attached_to,
        state="available" if disk.attached_to is None else "in-use",
        speed=_speed(disk),
    )


def _speed(disk: Disk) -> DiskSpeed | None:
    return shown_speed(disk.cloud, disk.iops, disk.mib_per_s)


def from_row(row: Row) -> Disk:
    """A disk from its row."""
    return Disk(
        id=row["id"],
        cloud=row["cloud"],
        region=row["region"],
        zone=row["zone"],
        name=row["name"],
        size_bytes=row["size_bytes"],
        tags=json.loads(row["tags"]),
        attached_to=row["attached_to"],
        byte_rate=row["byte_rate"],
        created_us=row["created_us"],
        visible_us=row["visible_us"],
        ended_us=row["ended_us"],
        iops=row["iops"],
        mib_per_s=row["mib_per_s"],
        speed_rate=row["speed_rate"],
    )


def save(call: Call, disk: Disk) -> None:
    """Write what can change of a disk."""
    call.connection.execute(
        "UPDATE volumes SET size_bytes = ?, tags = ?, attached_to = ?, ended_us = ?, iops = ?, mib_per_s = ?, speed_rate = ?"
        " WHERE id = ?",
        (disk.size_bytes, json.dumps(dict(disk.tags), sort_keys=True), disk.attached_to, disk.ended_us, disk.iops,
         disk.mib_per_s, disk.speed_rate, disk.id),
    )  # fmt: skip


def _insert(call: Call, disk: Disk) -> None:
    call.connection.execute(
        "INSERT INTO volumes (id, cloud, region, zone, name, size_bytes, tags, byte_rate, created_us, visible_us,"
        " iops, mib_per_s, speed_rate) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        (disk.id, disk.cloud, disk.region, disk.zone, disk.name, disk.size_bytes,
         json.dumps(dict(disk.tags), sort_keys=True), disk.byte_rate, disk.created_us, disk.visible_us,
         disk.iops, disk.mib_per_s, disk.speed_rate),
    )  # fmt: skip


def _existing(call: Call, placement: Placement, volume_id: str) -> Disk:
    disk = load(call, volume_id)
    if disk is None or (disk.cloud, disk.region) != (placement.cloud, placement.region):
        raise not_found("no-volume", placement.cloud, volume_id)
    return disk


def _check_request(call: Call, request: VolumeRequest, market: Market) -> None:
    cloud = request.cloud
    if not request.token or not request.name:
        raise rejected("bad-value", cloud, "token and name must not be empty")
    refuse_size(cloud, request.size_bytes)
    refuse_speed(cloud, request.speed, request.size_bytes)
    if request.zone not in market.zones(cloud, request.region):
        raise rejected("bad-value", cloud, f"there is no zone {request.zone} in {request.region}")
    holder = call.connection.execute(
        "SELECT id FROM volumes WHERE cloud = 'gcp' AND zone = ? AND name = ? AND ended_us IS NULL",
        (request.zone, request.name),
    ).fetchone()
    if cloud == "gcp" and holder is not None:
        raise rejected("name-taken", cloud, f"the name {request.name} in {request.zone} is taken by {holder['id']}")


def _refuse_root(call: Call, placement: Placement, volume_id: str) -> None:
    row = call.connection.execute(
        "SELECT id FROM instances WHERE root_volume_id = ? AND ended_us IS NULL", (volume_id,)
    ).fetchone()
    machine = None if row is None else machines.load(call.connection, row["id"])
    if machine is not None:
        raise rejected(
            "in-use", placement.cloud, f"{volume_id} is the root disk of {machine.id}", "end that machine first"
        )
