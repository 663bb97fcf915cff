"""Availability rules: the offers are ones that the spec allows, that the account may use, and that work together."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta

from policies.facts import UNKNOWN, AttachmentFacts, Candidate, OfferedFacts, ReservationFacts, Unknown
from policies.parameters import Parameter
from policies.rule import Level, Outcome, Rule, Setting, Severity, failed, passed, unknown
from policies.rules.candidates import candidates_of, offers_of
from provisioner.units import format_duration
from provisioner.vocabulary import CapacityType
from provisioner.workload.quantities import DURATION
from provisioner.workload.spec import Placement

_RESERVED = (CapacityType.RESERVED, CapacityType.CAPACITY_BLOCK, CapacityType.FLEX_START)


def placement_kept(facts: OfferedFacts, setting: Setting) -> Iterator[Outcome]:
    """No offer lies outside what the spec's placement allows."""
    del setting
    candidates, outcome = candidates_of(facts)
    if outcome is not None:
        yield outcome
    if isinstance(facts.workload, Unknown):
        return
    placement = facts.workload.placement
    for candidate in candidates:
        yield _judge_offer(facts, placement, candidate)


def _judge_offer(facts: OfferedFacts, placement: Placement, candidate: Candidate) -> Outcome:
    broken = [text for text in _broken(placement, candidate) if text != ""]
    known = [text for text in broken if isinstance(text, str)]
    key, identity = candidate.key, f"{candidate.key.partition('[')[0]}={candidate.label}"
    if known:
        message = f"{candidate.label} is not what {facts.name} allows: {known[0]}"
        return failed(key, message, "make the plan again, or change the spec's placement", identity=identity)
    if broken:
        message = f"whether {candidate.label} is what {facts.name} allows is not known yet"
        return unknown(key, message, "write the offer as constants", identity=identity)
    return passed(key)


def _broken(placement: Placement, candidate: Candidate) -> Iterator[str | Unknown]:
    """What of the placement an offer breaks, in words; empty for what it keeps, ``UNKNOWN`` for what cannot be told."""
    yield _outside("clouds", placement.clouds, candidate.cloud)
    yield _outside("regions", placement.regions, candidate.region)
    yield _capacity(str(placement.capacity), candidate)
    yield _count(placement.max_gpus, candidate)
    if placement.instance_types or placement.gpus or placement.exclude_gpus:
        breaches = candidate.breaches
        yield breaches if isinstance(breaches, Unknown) else next(iter(breaches.values()), "")


def _outside(name: str, allowed: tuple[str, ...], found: object) -> str | Unknown:
    if not allowed or found in allowed:
        return ""
    return f"placement.{name} is {', '.join(allowed)}" if isinstance(found, str) else UNKNOWN


def _capacity(asked: str, candidate: Candidate) -> str | Unknown:
    found = candidate.capacity_type
    if asked == "auto":
        return ""
    if isinstance(found, Unknown):
        return UNKNOWN
    found = found or CapacityType.ON_DEMAND
    matches = found in _RESERVED if asked == "reserved" else found == asked
    return "" if matches else f"placement.capacity is {asked}, the offer is {found}"


def _count(most: int | None, candidate: Candidate) -> str | Unknown:
    if most is None or candidate.instance is None:
        return ""
    if isinstance(candidate.instance, Unknown) or isinstance(candidate.instances, Unknown):
        return UNKNOWN
    count = candidate.instance.gpu_count * candidate.instances
    return "" if count <= most else f"placement.max_gpus is {most}, the offer has {count}"


def quota_room(facts: OfferedFacts, setting: Setting) -> Iterator[Outcome]:
    """The account's quota has room for each offer."""
    del setting
    candidates, outcome = offers_of(facts)
    if outcome is not None:
        yield outcome
    for candidate in candidates:
        quota = candidate.quota
        if quota is None:
            continue
        if isinstance(quota, Unknown) or isinstance(quota.limit, Unknown):
            message = f"which quota {candidate.label} takes from is not known yet"
            yield unknown(candidate.key, message, "write its offer as constants", identity=candidate.label)
            continue
        want = f"{quota.needed:g} {quota.unit} of {quota.name!r} in {candidate.region}"
        if quota.limit is None:
            message = (
                f"whether the account may use {want}, which {candidate.label} takes, is not known: nobody has read it"
            )
            remedy = "run `gpuprov prices refresh`, which reads quotas"
            yield unknown(candidate.key, message, remedy, identity=quota.code, stays=True)
        elif quota.needed <= quota.limit:
            yield passed(candidate.key)
        else:
            message = f"{candidate.label} takes {want}; the account may use {quota.limit:g} (read {quota.as_of})"
            remedy = f"ask for at least {quota.needed:g} {quota.unit} of {quota.code}"
            yield failed(candidate.key, message, remedy, identity=candidate.label)


def reservation_expiry(facts: ReservationFacts, setting: Setting) -> Iterator[Outcome]:
    """Reserved capacity that a program keeps does not end within days."""
    least: timedelta = setting.parameters["min_left"]
    key = "ends_on"
    if isinstance(facts.ends_on, Unknown):
        yield unknown(key, f"when {facts.name} ends is not known yet", "write its end as a constant")
    elif facts.ends_on is None or facts.ends_on - setting.today >= least:
        yield passed(key)
    else:
        last = setting.today + least
        when = "has ended" if facts.ends_on < setting.today else "ends"
        message = f"{facts.name} {when} on {facts.ends_on}; machines in it are then billed on demand, or end"
        yield failed(key, message, f"extend it to {last} at least ({format_duration(least)}), or plan without it")


def volume_zone(facts: AttachmentFacts, setting: Setting) -> Iterator[Outcome]:
    """A disk and the machine that it is attached to are in one zone."""
    del setting
    key = "zone"
    if facts.disk_zone is None or facts.machine_zone is None:
        return
    if isinstance(facts.disk_zone, Unknown) or isinstance(facts.machine_zone, Unknown):
        message = f"whether {facts.disk} and {facts.machine} are in one zone is not known yet"
        yield unknown(key, message, "write both zones as constants, or take the disk's zone from the machine")
    elif facts.disk_zone == facts.machine_zone:
        yield passed(key)
    else:
        message = (
            f"{facts.disk} is in {facts.disk_zone}, {facts.machine} in {facts.machine_zone}: it cannot be attached"
        )
        yield failed(key, message, f"make {facts.disk} in {facts.machine_zone}, or restore a snapshot of it there")


RULES = (
    Rule(
        "placement-kept",
        "capacity",
        "Offers are what the spec allows",
        "An offer in another region or of another kind breaks what the spec's author asked for, whatever it costs.",
        Severity.HIGH,
        (OfferedFacts,),
        placement_kept,
    ),
    Rule(
        "quota-room",
        "capacity",
        "The account's quota has room",
        "New accounts may use no GPU at all; the cloud says so only when the machine is made.",
        Severity.MEDIUM,
        (OfferedFacts,),
        quota_room,
        level=Level.ADVISORY,
    ),
    Rule(
        "reservation-expiry",
        "capacity",
        "Reserved capacity does not end soon",
        "When a reservation ends its machines end with it, or go on at the on-demand price.",
        Severity.MEDIUM,
        (ReservationFacts,),
        reservation_expiry,
        level=Level.ADVISORY,
        parameters=(Parameter("min_left", DURATION, timedelta(days=7), "time that must be left"),),
    ),
    Rule(
        "volume-zone",
        "capacity",
        "Disks are in their machine's zone",
        "A disk of another zone cannot be attached; the cloud says so when the machine bills already.",
        Severity.HIGH,
        (AttachmentFacts,),
        volume_zone,
    ),
)
