"""Capacity rules: spot only where an interruption is survived, and instance types where they are sold."""

from __future__ import annotations

import re
from collections.abc import Iterator

from policies.facts import UNKNOWN, MachineFacts, OfferedFacts, SpecFacts, Unknown
from policies.rule import Level, Outcome, Rule, Setting, Severity, failed, passed, unknown
from policies.rules.candidates import candidates_of, machines_of, offers_of
from provisioner.vocabulary import CapacityType, Task

_AWS_LETTER_ZONE = re.compile(r"[a-z]{2}(-[a-z]+)+-\d[a-z]")
"""A zone by letter: accounts map letters to zones differently, so that only zone ids can be compared."""
_STATUS_WORDS = {
    "not_listed": "is no longer in the cloud's listing",
    "restricted": "is sold to selected customers only",
    "reservation_only": "is sold by reservation only",
}


def _spot_keys(facts: SpecFacts | OfferedFacts) -> Iterator[tuple[str, str, object]]:
    """Places that may ask for spot: (key, what, capacity type); one that repeats the spec's own word is left out."""
    if isinstance(facts, SpecFacts):
        yield "placement.capacity", facts.name, facts.read("placement.capacity")
        return
    asked = None if isinstance(facts.workload, Unknown) else facts.workload.placement.capacity
    for candidate in offers_of(facts)[0]:
        if asked != "spot":
            yield candidate.key, candidate.label, candidate.capacity_type
    if offers_of(facts)[1] is not None:
        yield "candidates", facts.name, UNKNOWN


def _task(facts: SpecFacts | OfferedFacts) -> object:
    if isinstance(facts, SpecFacts):
        return facts.read("task")
    return UNKNOWN if isinstance(facts.workload, Unknown) else facts.workload.task


def spot_endpoint(facts: SpecFacts | OfferedFacts, setting: Setting) -> Iterator[Outcome]:
    """An endpoint does not run on capacity that is taken back within minutes."""
    del setting
    task = _task(facts)
    remedy = "write placement.capacity: on-demand"
    for key, what, capacity in _spot_keys(facts):
        if capacity in (CapacityType.SPOT, UNKNOWN) and task in (Task.SERVE, UNKNOWN):
            if UNKNOWN in (capacity, task):
                yield unknown(key, f"whether the endpoint {what} runs on spot is not known yet", remedy, identity=what)
            else:
                yield failed(
                    key,
                    f"{facts.name} serves requests on spot capacity, which is taken back with minutes' notice",
                    remedy,
                    identity=what,
                )
        else:
            yield passed(key)


def spot_checkpoint(facts: SpecFacts | OfferedFacts, setting: Setting) -> Iterator[Outcome]:
    """A training on spot resumes from checkpoints."""
    del setting
    task = _task(facts)
    if task in (Task.SERVE, Task.BATCH):
        return
    resumable = _resumable(facts)
    remedy = "write training.checkpoint: {every: 30m, resumable: true}, or placement.capacity: on-demand"
    for key, what, capacity in _spot_keys(facts):
        if capacity not in (CapacityType.SPOT, UNKNOWN) or resumable is True:
            yield passed(key)
        elif UNKNOWN in (capacity, task, resumable):
            yield unknown(key, f"whether {facts.name} survives an interruption is not known yet", remedy, identity=what)
        else:
            yield failed(
                key, f"{facts.name} trains on spot capacity and does not resume from checkpoints", remedy, identity=what
            )


def _resumable(facts: SpecFacts | OfferedFacts) -> object:
    """Whether a training resumes from its checkpoints."""
    if isinstance(facts, SpecFacts):
        resumable = facts.read("training.checkpoint.resumable")
        return UNKNOWN if resumable is UNKNOWN else resumable is True
    if isinstance(facts.workload, Unknown):
        return UNKNOWN
    training = facts.workload.training
    checkpoint = training.checkpoint if training is not None else None
    return checkpoint is not None and checkpoint.resumable is True


def spot_stop(facts: SpecFacts, setting: Setting) -> Iterator[Outcome]:
    """An idle rule that stops a machine goes with capacity that starts again."""
    del setting
    key = "lifecycle.idle.then"
    then, capacity = facts.read(key), facts.read("placement.capacity")
    remedy = "write lifecycle.idle.then: terminate, or leave it out"
    if then not in ("stop", UNKNOWN) or capacity not in (CapacityType.SPOT, UNKNOWN):
        yield passed(key)
    elif UNKNOWN in (then, capacity):
        yield unknown(key, "whether an idle spot machine is to be stopped is not known yet", remedy)
    else:
        yield failed(
            key, "a stopped spot machine starts again only where its pool has room; its disks bill meanwhile", remedy
        )


def region_support(facts: OfferedFacts | MachineFacts, setting: Setting) -> Iterator[Outcome]:
    """Instance types are asked for in regions that sell them."""
    del setting
    if isinstance(facts, MachineFacts):
        yield from _judge_region("instance_type", facts.name, facts.instance_type, facts.region, facts.regions_offered)
        return
    for candidate in offers_of(facts)[0]:
        yield from _judge_region(
            candidate.key, facts.name, candidate.instance_type, candidate.region, candidate.regions_offered
        )
    if offers_of(facts)[1] is not None:
        yield unknown("candidates", f"the regions of {facts.name} are not known yet", "write its offers as constants")


def _judge_region(
    key: str, name: str, kind: object, region: object, offered: frozenset[str] | Unknown | None
) -> Iterator[Outcome]:
    if region is None or offered is None or kind is None:
        return
    if isinstance(offered, Unknown) or UNKNOWN in (region, kind):
        yield unknown(
            key, f"where {name} runs is not known yet", "write region and instance type as constants", identity=key
        )
    elif region in offered:
        yield passed(key)
    else:
        where = ", ".join(sorted(offered)[:5]) or "no region that the catalog knows"
        yield failed(key, f"{kind} is not sold in {region}", f"{kind} is sold in {where}", identity=f"{kind}@{region}")


def zone_support(facts: OfferedFacts, setting: Setting) -> Iterator[Outcome]:
    """A zone that is named sells the instance type."""
    del setting
    for candidate in candidates_of(facts)[0]:
        zone, offered, key = candidate.zone, candidate.zones_offered, candidate.key
        if zone is None or offered is None or (isinstance(zone, str) and _AWS_LETTER_ZONE.fullmatch(zone)):
            continue
        if isinstance(zone, Unknown) or isinstance(offered, Unknown):
            yield unknown(key, f"the zone of {facts.name} is not known yet", "write it as a constant", identity=key)
        elif zone in offered:
            yield passed(key)
        else:
            where = ", ".join(sorted(offered)[:5]) or "no zone that the catalog knows"
            kind = candidate.instance_type
            yield failed(
                key, f"{kind} is not sold in zone {zone}", f"{kind} is sold in {where}", identity=f"{kind}@{zone}"
            )
    if candidates_of(facts)[1] is not None:
        yield unknown("candidates", f"the zones of {facts.name} are not known yet", "write its offers as constants")


def retired_type(facts: OfferedFacts | MachineFacts, setting: Setting) -> Iterator[Outcome]:
    """Instance types are ones that anyone can buy today."""
    del setting
    if isinstance(facts, MachineFacts):
        rows = [("instance_type", facts.instance)]
    else:
        rows = [(candidate.key, candidate.instance) for candidate in machines_of(facts)[0]]
        if machines_of(facts)[1] is not None:
            yield unknown(
                "candidates", f"the instance types of {facts.name} are not known yet", "write them as constants"
            )
    for key, row in rows:
        if isinstance(row, Unknown):
            yield unknown(
                key, f"the instance type of {facts.name} is not known yet", "write it as a constant", identity=key
            )
        elif row is None:
            continue
        elif row.status == "current":
            yield passed(key)
        else:
            word = _STATUS_WORDS.get(row.status, f"has the status {row.status}")
            yield failed(key, f"{row.name} {word}", "choose one that `gpuprov offers` lists", identity=row.name)


RULES = (
    Rule(
        "spot-endpoint",
        "capacity",
        "Endpoints do not run on spot",
        "Spot is taken back with two minutes' notice or less: too short to load a model elsewhere.",
        Severity.HIGH,
        (SpecFacts, OfferedFacts),
        spot_endpoint,
    ),
    Rule(
        "spot-checkpoint",
        "capacity",
        "Trainings on spot resume from checkpoints",
        "Without a checkpoint each interruption starts the training again, and the saving is gone.",
        Severity.HIGH,
        (SpecFacts, OfferedFacts),
        spot_checkpoint,
    ),
    Rule(
        "spot-stop",
        "capacity",
        "Spot machines are ended, not stopped",
        "A stopped spot machine is tied to one pool: it may not start again for days, while its disks bill.",
        Severity.MEDIUM,
        (SpecFacts,),
        spot_stop,
    ),
    Rule(
        "region-support",
        "capacity",
        "Instance types are sold in their region",
        "GPU types are missing in most regions; the cloud says so only when the machine is made.",
        Severity.HIGH,
        (OfferedFacts, MachineFacts),
        region_support,
    ),
    Rule(
        "zone-support",
        "capacity",
        "Instance types are sold in their zone",
        "A region sells a type in some of its zones only.",
        Severity.MEDIUM,
        (OfferedFacts,),
        zone_support,
    ),
    Rule(
        "retired-type",
        "capacity",
        "Instance types can be bought by anyone",
        "Types that left the listing, and types for selected customers, fail when they are made.",
        Severity.LOW,
        (OfferedFacts, MachineFacts),
        retired_type,
        level=Level.ADVISORY,
    ),
)
