"""Warnings about a bill: what it leaves out, what it takes for granted, what adds up unless somebody deletes it."""

from __future__ import annotations

from collections.abc import Iterator
from decimal import Decimal

from provisioner.planner.account import AHEAD, Origin
from provisioner.planner.commitments import FLEX_START_HOURS_MAX
from provisioner.planner.ranking import Candidate
from provisioner.planner.request import Request
from provisioner.planner.storage import CHECKPOINTS_KEPT, checkpoints_of
from provisioner.units import GIB, format_gib, format_usd
from provisioner.vocabulary import CapacityType
from provisioner.workload.spec import Workload


def bill_notes(request: Request, candidate: Candidate) -> Iterator[str]:
    """What the bill leaves out, or takes for granted."""
    terms, region = candidate.terms, candidate.offer.region
    origin = terms.origin
    if origin is None:
        return
    if terms.fetch is None:
        fetched = f"each fetch of {origin.account.fetched_gib:.0f} GiB is billed by the bucket's cloud; the total leaves that out"
        yield f"model.source_region is not given: if its bucket is not in {region}, {fetched}"
    if request.workload.access.internet == "nat" and not _names_subnets(request.workload, candidate.offer.cloud):
        key = "aws.subnets" if candidate.offer.cloud == "aws" else "gcp.subnetwork"
        yield f"access.internet is nat, and {key} names no subnet whose route goes through a NAT gateway: without one, machines get public addresses"
    if any(disk.kind == "shared" for disk in origin.account.disks):
        yield "the shared file system is planned and priced, and `up` does not make it yet: mount one of your own"
    if candidate.offer.capacity_type in AHEAD:
        yield from _ahead(candidate)
    yield from _checkpoints(request, candidate, origin)


def _names_subnets(workload: Workload, cloud: str) -> bool:
    if cloud == "aws":
        return bool(workload.aws and workload.aws.subnets)
    return bool(workload.gcp and workload.gcp.subnetwork)


def _ahead(candidate: Candidate) -> Iterator[str]:
    ahead, run_hours = candidate.bill.cost.commitment, candidate.terms.run_hours
    if ahead is None:
        return
    if candidate.offer.capacity_type is CapacityType.FLEX_START:
        if run_hours is None or run_hours > FLEX_START_HOURS_MAX:
            yield f"{ahead.kind} ends a machine after {FLEX_START_HOURS_MAX} h: longer work must resume from a checkpoint"
    elif run_hours is None:
        yield f"{ahead.kind} is a commitment with a start and an end, and the length of the work is unknown: its fee is that of the days you book"
    elif ahead.days is None:
        yield f"no {ahead.kind} is sold for as long as {run_hours:.0f} h: book several, or split the work"


def _checkpoints(request: Request, candidate: Candidate, origin: Origin) -> Iterator[str]:
    """Checkpoints add up unless old ones are deleted: what keeping all of them would take."""
    found = checkpoints_of(request, candidate.arrangement, candidate.terms.run_hours)
    if found is None or found.written <= found.room:
        return
    service = next((disk.service for disk in origin.account.disks if disk.kind == "checkpoints"), None)
    price = origin.account.tariff.disk(candidate.offer.cloud, service, candidate.offer.region)
    more = (found.written - found.room) * found.bytes_each
    cost = f", {format_usd(Decimal(more) / GIB * price.amount_usd)} a month" if price else ""
    if found.room < CHECKPOINTS_KEPT:
        yield f"storage.checkpoints has room for {found.room} of {format_gib(found.bytes_each)}: the old one must go before the new one is whole"
    yield f"the run writes {found.written} checkpoints of {format_gib(found.bytes_each)} and the disk has room for {found.room}: delete old ones, or keep all with {format_gib(more)} more{cost}"
