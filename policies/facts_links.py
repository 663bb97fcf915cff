"""Disks attached to machines, and reserved capacity, of other people's programs.

Sources: documentation of hashicorp/terraform-provider-aws (``aws_volume_attachment``, ``aws_ec2_capacity_reservation``) and
hashicorp/terraform-provider-google (``google_compute_attached_disk``, ``attached_disk``), and of the Pulumi packages that are
bridged from them; read 2026-11.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from datetime import date, datetime

from policies.facts import UNKNOWN, AttachmentFacts, Known, ReservationFacts, Unknown
from policies.json_value import Value
from policies.resources import Resource, child, last_part

Find = Callable[[Resource, str, Value], Resource | None]
"""The resource of the document that an attribute of another one refers to, by attribute name and value."""
ATTACHMENTS = {
    "aws_volume_attachment": ("volume_id", "instance_id"),
    "google_compute_attached_disk": ("disk", "instance"),
}
"""Types that attach a disk to a machine: the attributes that name the two."""
RESERVATIONS = ("aws_ec2_capacity_reservation", "aws_ec2_capacity_block_reservation")
_ZONES = ("availability_zone", "zone")


def attachments(resources: Sequence[Resource], find: Find) -> Iterator[AttachmentFacts]:
    """What is attached to what, by resources of their own and by blocks of machines."""
    for resource in resources:
        if resource.type in ATTACHMENTS:
            disk_name, machine_name = ATTACHMENTS[resource.type]
            disk, machine = resource.child(disk_name), resource.child(machine_name)
            own = _zone(resource)
            yield _attachment(
                resource,
                _end(find(resource, disk_name, disk), disk, own),
                _end(find(resource, machine_name, machine), machine, own),
            )
        elif resource.type == "google_compute_instance":
            blocks = resource.child("attached_disk").items()
            for block in () if isinstance(blocks, Unknown) else blocks:
                source = child(block, "source")
                disk_end = _end(find(resource, "attached_disk", source), source, None)
                yield _attachment(resource, disk_end, (resource.address, _zone(resource)))


def _attachment(
    resource: Resource, disk: tuple[str, Known[str | None]], machine: tuple[str, Known[str | None]]
) -> AttachmentFacts:
    return AttachmentFacts(
        name=resource.address,
        path=resource.json.file,
        source=resource.source,
        locate=resource.locate({}),
        disk=disk[0],
        machine=machine[0],
        disk_zone=disk[1],
        machine_zone=machine[1],
    )


def _end(found: Resource | None, value: Value, zone: Known[str | None]) -> tuple[str, Known[str | None]]:
    """Name and zone of a disk or machine: of the resource of the document, else as far as its link tells."""
    if found is not None:
        return found.address, _zone(found)
    link = value.text()
    if isinstance(link, str) and "/zones/" in link:
        return str(last_part(link)), link.partition("/zones/")[2].partition("/")[0]
    return (link if isinstance(link, str) else "what is attached"), zone


def _zone(resource: Resource) -> Known[str | None]:
    for name in _ZONES:
        value = resource.declared_child(name)
        if not value.is_absent:
            return last_part(value.text())
    return None


def reservation(resource: Resource) -> ReservationFacts:
    """Reserved capacity with its end."""
    return ReservationFacts(
        name=resource.address,
        path=resource.json.file,
        source=resource.source,
        locate=resource.locate({"ends_on": resource.child("end_date").path}),
        ends_on=_end_of(resource),
    )


def _end_of(resource: Resource) -> Known[date | None]:
    end = resource.child("end_date").text()
    if isinstance(end, Unknown) or end is None or end == "":
        return UNKNOWN if isinstance(end, Unknown) else None
    try:
        return datetime.fromisoformat(end).date()
    except ValueError:
        return UNKNOWN
