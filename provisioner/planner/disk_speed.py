"""Whether a disk is worth more throughput than its kind includes: machine hours saved against the disk's price.

A machine waits for its disk while it loads weights, writes checkpoints and reads data. More throughput shortens that wait and
costs a rate for as long as the disk is kept, so what pays depends on the price of the machine: the same 141 GB are worth a fast
disk under eight GPUs and none under one. It is bought where it saves at least ``WORTH`` times its price, and stays at what is
included where any of it is unknown. It is decided for offers that are already ranked. The start that a plan predicts, and bills, is one with a disk that keeps up.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import replace
from decimal import Decimal
from typing import NamedTuple

from provisioner.catalog.disk_kinds import KINDS, DiskKind, DiskLink
from provisioner.planner.account import Account, Origin, Terms
from provisioner.planner.ranking import Candidate
from provisioner.planner.storage import Disk, checkpoints_of, paid_speed, sum_of
from provisioner.sizing.demand import DiffusionTrainingDemand, TrainingDemand
from provisioner.sizing.start_up import start_up
from provisioner.sizing.storage_demand import storage_demand
from provisioner.units import HOURS_PER_MONTH, MIB, DiskSpeed, format_usd
from provisioner.vocabulary import Task

STEPS_MIB_PER_S = (250, 500, 750, 1000, 1500, 2000)
"""Throughputs that are looked at. Steps, so that a price that moves a little does not change the disk of a live stack."""
WORTH = 2.0
"""Machine money saved per disk money from which more is bought: predicted times err by about a factor of two."""
LEAST_SAVED_USD = 1.0
"""Machine money below which no disk is made faster: cents are not worth a word in a plan."""
READY_SHARE = 0.5
"""Share of the time to ready from which moving weights is not worth shortening further: the rest of a start is as long by then."""
SESSION_HOURS = 8.0
"""Hours of use per start of a machine that is used in bursts: a working day. An assumption; shorter sessions start more often."""


class Use(NamedTuple):
    """How long the machines wait for a disk over the billed span, by its throughput in MiB/s."""

    what: str
    hours: Callable[[int], float]
    enough_mib_per_s: float
    """From here on more is not worth looking at."""
    limit_mib_per_s: float
    """What the machine can move."""


class Choice(NamedTuple):
    """A speed that pays."""

    disk: Disk
    speed: DiskSpeed
    use: Use
    saved_usd: float
    price_usd: float

    def spoken(self, included: DiskSpeed, span: str) -> str:
        """The choice for people, with both sums of money."""
        before, after = self.use.hours(included.mib_per_s), self.use.hours(self.speed.mib_per_s)
        return (
            f"{self.disk.kind} disk at {self.speed.mib_per_s} MiB/s and {self.speed.iops} IOPS instead of the "
            f"{included.mib_per_s} and {included.iops} that {self.disk.service} includes: {self.use.what} {_minutes(after)} "
            f"instead of {_minutes(before)} a {span}, which saves {_usd(self.saved_usd)} of machine time for "
            f"{_usd(self.price_usd)} of disk"
        )


def worthwhile(candidate: Candidate) -> tuple[Choice, ...]:
    """What is worth buying for the disks of a candidate; empty for most."""
    origin, terms = candidate.terms.origin, candidate.terms
    if origin is None or terms.compute is None or not terms.compute or not math.isfinite(terms.known_stretch):
        return ()
    found = (_best(disk, terms, origin) for disk in origin.account.disks)
    return tuple(choice for choice in found if choice is not None)


def with_worthwhile_disks(candidate: Candidate) -> Candidate:
    """The candidate with the disk speeds that pay; itself where none does."""
    choices, origin = worthwhile(candidate), candidate.terms.origin
    if not choices or origin is None:
        return candidate
    account = origin.account
    fast = account.tariff.account(account.arrangement, {choice.disk.kind: choice.speed for choice in choices})
    return replace(candidate, terms=fast.terms(origin.offer))


def speed_reasons(candidate: Candidate) -> tuple[str, ...]:
    """Why disks are faster than what they include, for a candidate as it was ranked."""
    span = "run" if candidate.terms.run_hours is not None else "month"
    return tuple(choice.spoken(KINDS[str(choice.disk.service)].included, span) for choice in worthwhile(candidate))


def _best(disk: Disk, terms: Terms, origin: Origin) -> Choice | None:
    kind, use = KINDS.get(disk.service or ""), _use(disk, terms, origin)
    if kind is None or use is None or terms.compute is None:
        return None
    best: Choice | None = None
    for speed in _speeds(kind, disk, use):
        saved = float(terms.compute) * (use.hours(kind.included.mib_per_s) - use.hours(speed.mib_per_s))
        price = _price(replace(disk, speed=speed), terms, origin)
        if price is None or saved < max(LEAST_SAVED_USD, WORTH * price):
            continue
        if best is None or saved - price > best.saved_usd - best.price_usd:
            best = Choice(disk, speed, use, saved, price)
    return best


def _speeds(kind: DiskKind, disk: Disk, use: Use) -> Iterator[DiskSpeed]:
    """Speeds above what is included that the disk can have and the machine can use, up to the first that is enough."""
    for step in STEPS_MIB_PER_S:
        speed = kind.fast_enough(step, disk.size_bytes)
        if speed.mib_per_s < step or step > use.limit_mib_per_s:
            return
        yield speed
        if step >= use.enough_mib_per_s:
            return


def _use(disk: Disk, terms: Terms, origin: Origin) -> Use | None:
    """What the workload does with a disk that its machines wait for; ``None`` where it does nothing, or that is not known."""
    make = {"root": _loading, "checkpoints": _writing, "data": _reading}.get(disk.kind)
    offer = origin.offer
    link = origin.account.tariff.catalog.disk_link(offer.cloud, offer.instance.name) if make is not None else None
    return make(terms, origin.account, link) if make is not None and link is not None else None


def _loading(terms: Terms, account: Account, link: DiskLink) -> Use | None:
    """Weights are written to the root disk when they are fetched, and read from it when they are loaded."""
    files_bytes, engine = account.files_bytes, account.tariff.request.engine
    if link.bursting is None or not files_bytes:
        return None
    starts, rest_s = _starts(terms, account), start_up(0, engine).usual_s
    enough = 2 * files_bytes / MIB / (rest_s * READY_SHARE / (1 - READY_SHARE))

    def hours(rate: int) -> float:
        return starts * start_up(files_bytes, engine, disk_bytes_per_s=rate * MIB).usual_s / 3600

    return Use("starts take", hours, enough, link.bursting)


def _writing(terms: Terms, account: Account, link: DiskLink) -> Use | None:
    written = checkpoints_of(account.tariff.request, account.arrangement, terms.run_hours)
    if written is None or link.lasting is None:
        return None
    mib = written.written * written.bytes_each / MIB
    return Use("checkpoints are written in", lambda rate: mib / rate / 3600, math.inf, link.lasting)


def _reading(terms: Terms, account: Account, link: DiskLink) -> Use | None:
    demand, hours = account.tariff.request.demand, terms.run_hours
    if not isinstance(demand, (TrainingDemand, DiffusionTrainingDemand)) or link.lasting is None or hours is None:
        return None
    wanted = storage_demand(demand, account.arrangement.throughput, checkpoint_bytes=0).data_bytes_per_s
    if wanted is None:
        return None
    mib_per_s = wanted * account.arrangement.layout.replicas / MIB
    return Use("data is waited for", lambda rate: hours * max(0.0, mib_per_s / rate - 1), mib_per_s, link.lasting)


def _starts(terms: Terms, account: Account) -> float:
    """Starts over the billed span, those after expected interruptions included.

    One a run, one a month for what runs all month, and one a session for what is used in bursts.
    """
    interruptions = terms.interruptions_each or 0.0
    is_steady = account.tariff.request.workload.task is Task.SERVE and terms.month_hours >= HOURS_PER_MONTH
    if terms.run_hours is not None or is_steady:
        return 1.0 + interruptions
    return max(1.0, terms.month_hours / SESSION_HOURS) + interruptions


def _price(disk: Disk, terms: Terms, origin: Origin) -> float | None:
    """USD of a disk's speed for as long as it is kept: a disk that outlives its machine bills on, so a month at least counts."""
    account, offer = origin.account, origin.offer
    month: Decimal | None = sum_of(paid_speed(account.tariff.catalog, offer.cloud, disk, offer.region))
    if month is None:
        return None
    if disk.kind == "root":
        hours = account.root_hours(terms.known_stretch, can_stop=terms.can_stop)
    else:
        hours = max(float(HOURS_PER_MONTH), (terms.run_hours or 0.0) * terms.known_stretch)
    return float(month) * hours / HOURS_PER_MONTH


def _minutes(hours: float) -> str:
    return f"{hours:.1f} h" if hours >= 2 else f"{hours * 60:.1f} min"


def _usd(amount: float) -> str:
    return format_usd(Decimal(f"{amount:.2f}"))
