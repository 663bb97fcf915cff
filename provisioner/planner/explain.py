"""Why this offer, why not the others: reasons in a few sentences, and rejections grouped so that a person reads ten lines."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from typing import NamedTuple

from provisioner.planner.candidates import NEAR_EQUAL_RATE, Arrangement
from provisioner.planner.clusters import fabric_of, instances_per_copy, is_cluster, network_of
from provisioner.planner.contrast import step_up
from provisioner.planner.offer_filters import COMMITMENTS
from provisioner.planner.plan import Plan, Rejection
from provisioner.planner.ranking import Candidate, speed_of
from provisioner.planner.request import Request
from provisioner.planner.search import Market, Outcome
from provisioner.planner.spoken import DEARER, FASTER, LINKS, spoken_cost, times
from provisioner.planner.spot import intolerance
from provisioner.sizing.pipelines import VIDEO
from provisioner.units import format_gib
from provisioner.vocabulary import CapacityType, Interconnect, Objective

GROUPS_SHOWN = 10

_FILTER_WORDS = {
    "cloud": "other cloud",
    "instance-type": "not the pinned type",
    "gpu": "other GPU than asked for",
    "excluded-gpu": "excluded GPU",
    "runtime": "no CUDA or ROCm",
    "architecture": "no builds for ARM",
    "status": "not on sale",
    "memory": "too little GPU memory",
    "memory-unknown": "GPU memory unknown",
    "precision": "format not supported",
    "layout": "the model cannot be split so",
    "gpu-count": "no layout for its GPUs",
    "max-gpus": "over max_gpus",
    "fabric": "no fabric for several instances",
    "host-ram": "too little host memory",
    "time-to-first-token": "first token too late",
    "tokens-per-second": "stream too slow",
    "requests-per-second": "too few requests/s",
    "region": "not in the regions",
    "capacity": "other capacity type",
    "offered": "not offered there",
    "purchasable": "cannot be bought so",
    "quota": "over the account's quota",
    "price-unknown": "price unknown",
    "spot-not-cheaper": "spot not cheaper",
    "spot-rework": "too many interruptions",
    "max-price": "over max_price",
    "budget": "over budget",
    "deadline": "after the deadline",
}
_ASKED_FOR = frozenset({"cloud", "instance-type", "gpu", "excluded-gpu", "runtime", "architecture", "status"})
"""Filters that say what was not looked at; causes are the others."""
_NUMBER = re.compile(r"\d+(?:\.\d+)?")


class RejectionGroup(NamedTuple):
    """All rejections by one filter: ``words`` for a person, how many instance types, and the nearest miss as an example."""

    filter: str
    words: str
    instance_types: tuple[str, ...]
    example: Rejection


def group_rejections(rejections: Sequence[Rejection]) -> tuple[RejectionGroup, ...]:
    """Rejections by filter, at most about ten lines: those that came furthest first, what was not looked at last."""
    groups: dict[str, list[Rejection]] = {}
    for rejection in rejections:
        groups.setdefault(rejection.filter, []).append(rejection)
    names = sorted(groups, key=lambda name: (name in _ASKED_FOR, -_place_in_line(name), name))
    return tuple(
        RejectionGroup(
            filter=name,
            words=_FILTER_WORDS.get(name, name),
            instance_types=tuple(dict.fromkeys(rejection.offer.split("/")[3] for rejection in groups[name])),
            example=min(groups[name], key=_shortfall),
        )
        for name in names
    )


def _place_in_line(name: str) -> int:
    """When a filter is asked: the later, the closer an offer was to being chosen."""
    order = list(_FILTER_WORDS)
    return order.index(name) if name in order else -1


def _shortfall(rejection: Rejection) -> float:
    """How far an offer misses, relative to what it has; records without numbers come after those with."""
    needed, available = _NUMBER.match(rejection.needed or ""), _NUMBER.match(rejection.available or "")
    if needed is None or available is None or not float(available[0]):
        return float("inf")
    ratio = float(needed[0]) / float(available[0])
    return max(ratio, 1 / ratio) if ratio else float("inf")


def reasons(request: Request, market: Market, outcome: Outcome, choice: Candidate) -> tuple[str, ...]:
    """Why the choice was made: room, place in the order, the step up from a smaller card, GPUs, capacity type, speed."""
    return tuple(
        reason
        for reason in (
            _room(choice),
            _order(request, outcome, choice),
            step_up(request, market, outcome, choice),
            _span(request, outcome, choice),
            _capacity(request, outcome, choice),
            _speed(request, choice),
        )
        if reason
    )


def _room(choice: Candidate) -> str:
    terms, usable = choice.arrangement.footprint.per_gpu, choice.arrangement.footprint.usable_bytes
    return (
        f"needs {format_gib(terms.total_bytes)} per GPU ({format_gib(terms.low_bytes)} to {format_gib(terms.high_bytes)}) "
        f"of the {format_gib(usable)} usable on {choice.arrangement.gpu.gpu_class}"
    )


def _order(request: Request, outcome: Outcome, choice: Candidate) -> str:
    """Place in the order, with the next of another type, or with the cheapest where that is not the choice."""
    types = {candidate.offer.instance.name for candidate in outcome.candidates}
    cost = spoken_cost(request, choice)
    if len(types) == 1:
        return f"the only instance type that meets everything: {cost}"
    among = f"of {len(types)} instance types that meet everything"
    if request.workload.optimize is not Objective.COST:
        return _speed_order(request, outcome, choice, f"{among}: {cost}")
    if choice.offer.price_usd_per_hour is None:
        if math.isfinite(choice.terms.ranking_usd):
            return f"cheapest {among} by their prices on demand: none is known for {choice.offer.capacity_type}"
        return f"simplest {among}: no price is known for any of them"
    cheapest = min(outcome.candidates, key=lambda candidate: candidate.terms.ranking_usd)
    if choice.terms.ranking_usd <= cheapest.terms.ranking_usd:
        rival = next(one for one in outcome.candidates if one.offer.instance.name != choice.offer.instance.name)
        return f"cheapest {among}: {cost}; next is {rival.offer.instance.name} in {rival.offer.region}, {spoken_cost(request, rival)}"
    other = f"{cheapest.offer.instance.name} in {cheapest.offer.region} costs {spoken_cost(request, cheapest)}"
    return f"best {among}: {cost}; {other} but {_why_not_cheapest(choice, cheapest)}"


def _speed_order(request: Request, outcome: Outcome, choice: Candidate, among: str) -> str:
    """Place in the order of speed: the fastest within a limit, else the fastest that is worth its money and what is faster."""
    objective = request.workload.optimize
    what = "fastest" if objective is Objective.THROUGHPUT else "quickest"
    if request.requirements.has_price_limit:
        return f"{what} predicted under the price limit {among}"
    fastest = max(outcome.candidates, key=lambda one: speed_of(one, objective))
    mine, theirs = speed_of(choice, objective), speed_of(fastest, objective)
    text = f"{what} predicted that is worth its price {among}"
    faster, dearer = theirs / mine if mine else 0.0, fastest.terms.ranking_usd / choice.terms.ranking_usd
    if faster <= 1 + NEAR_EQUAL_RATE or not math.isfinite(dearer):
        return text
    name = f"{fastest.offer.instance.name} would be {times(faster, FASTER)}, {times(dearer, DEARER)}"
    return f"{text}; {name} ({spoken_cost(request, fastest)}): placement.max_price allows it"


def _why_not_cheapest(choice: Candidate, cheapest: Candidate) -> str:
    spans, alone = cheapest.arrangement.layout.gpus_per_replica, choice.arrangement.layout.gpus_per_replica
    if spans > alone:
        less = times(cheapest.terms.ranking_usd / choice.terms.ranking_usd, DEARER).removesuffix(" cheaper")
        return f"spans {spans} GPUs a copy for only {less} less" if less else f"spans {spans} GPUs a copy for the same"
    ratio = choice.rate / cheapest.rate if cheapest.rate else 0.0
    return f"is {ratio:.1f} times slower for about the same" if ratio > 1.05 else "has a bill with unknown terms"


def _span(request: Request, outcome: Outcome, choice: Candidate) -> str:
    gpus = choice.arrangement.layout.gpus_per_replica
    if is_cluster(choice.arrangement):
        return _across(choice.arrangement)
    if gpus == 1:
        return "one GPU holds a copy: nothing crosses a link"
    link = LINKS.get(choice.arrangement.interconnect, "no link")
    single = next((one for one in outcome.candidates if one.arrangement.layout.gpus_per_replica == 1), None)
    if single is None:
        text = f"a copy spans {gpus} GPUs over {link}: no single GPU on offer holds it"
    else:
        text = f"a copy spans {gpus} GPUs over {link}: clearly better than the best single GPU, {single.offer.instance.name}"
    return text + _over_pcie(request, outcome, choice)


def _over_pcie(request: Request, outcome: Outcome, choice: Candidate) -> str:
    """What the same would be over PCIe, where the choice pays for NVLink."""
    if choice.arrangement.interconnect is not Interconnect.NVLINK:
        return ""
    rival = next((one for one in outcome.candidates if one.arrangement.interconnect is Interconnect.PCIE), None)
    if rival is None:
        return ""
    speed, other = speed_of(choice, request.workload.optimize), speed_of(rival, request.workload.optimize)
    rate = f", {times(other / speed, FASTER)}" if speed and other and times(other / speed, FASTER) else ""
    return f"; the best over PCIe, {rival.offer.instance.name}, costs {spoken_cost(request, rival)}{rate}"


def _across(arrangement: Arrangement) -> str:
    instance, layout = arrangement.instance, arrangement.layout
    link = LINKS.get(arrangement.interconnect, "one GPU")
    network = f"{fabric_of(instance) or 'the network'} at {network_of(instance)}"
    what = "a copy" if layout.data_parallel == 1 else "the training"
    count = instances_per_copy(layout, instance.gpu_count)
    inside = f"tensor parallel {layout.tensor_parallel} inside each" if layout.tensor_parallel > 1 else ""
    across = f"pipeline stages {layout.pipeline_parallel}" if layout.pipeline_parallel > 1 else ""
    if layout.data_parallel > 1 and layout.pipeline_parallel == 1:
        across = f"{str(layout.sharding).upper()} across all {layout.gpus_per_replica} GPUs"
    degrees = ", ".join(part for part in (inside, across) if part)
    return f"{what} spans {count} instances: {link} inside, {network} between them; {degrees}"


def _cluster_capacity(outcome: Outcome, choice: Candidate) -> str:
    """How several machines that work as one are bought."""
    kind = choice.offer.capacity_type
    if kind in COMMITMENTS:
        return f"{kind}: all instances start together; a commitment with a start and an end, paid whether used or not"
    known = any(one.offer.capacity_type in COMMITMENTS for one in outcome.candidates)
    why = "costs more than on-demand" if known else "has no known price here"
    return (
        f"{kind}: reserved capacity, which starts all instances together, {why}; "
        "placement.capacity: reserved plans a capacity block or a flex-start"
    )


def _capacity(request: Request, outcome: Outcome, choice: Candidate) -> str:
    if is_cluster(choice.arrangement) and request.requirements.capacity in ("auto", "reserved"):
        return _cluster_capacity(outcome, choice)
    if choice.offer.capacity_type is CapacityType.SPOT:
        asked = "" if request.requirements.capacity == "auto" else "as asked for: "
        means = intolerance(request.workload) or "an interruption costs a restart and no more"
        return f"spot: {asked}{means}{spot_sentence(choice)}"
    if request.requirements.capacity != "auto":
        return f"{choice.offer.capacity_type}, as asked for"
    if why := intolerance(request.workload):
        return f"on-demand: {why}"
    spot = next((one for one in outcome.candidates if one.offer.capacity_type is CapacityType.SPOT), None)
    if spot is None:
        return "on-demand: no spot offer meets everything"
    return f"on-demand: the best spot offer, {spot.offer.instance.name} in {spot.offer.region}, costs {spoken_cost(request, spot)} with the work that interruptions repeat"


def spot_sentence(choice: Candidate) -> str:
    """What spot saves and up to which interruption rate, as the end of a sentence."""
    saved, spot = choice.bill.saved_by_spot_usd, choice.bill.cost.spot
    over = "run" if choice.bill.cost.run_usd is not None else "month"
    saving = f"; it saves {saved:,.0f} USD a {over} against on-demand" if saved is not None else ""
    limit = (
        f"; it stays cheaper up to {spot.breakeven} interruptions an hour"
        if spot and spot.breakeven is not None
        else ""
    )
    return saving + limit


def _speed(request: Request, choice: Candidate) -> str:
    throughput = choice.arrangement.throughput
    lift = {
        "memory-bandwidth": "faster memory, smaller weights or more requests at once would lift it",
        "compute": "more compute or a lower precision would lift it",
        "interconnect": "NVLink or fewer GPUs a copy would lift it",
    }.get(throughput.bound_by or "", "")
    if throughput.decode_tokens_per_s_per_replica is not None:
        rate = f"{throughput.decode_tokens_per_s_per_replica:,.0f} tokens/s a copy"
    elif throughput.train_tokens_per_s is not None:
        rate = f"{throughput.train_tokens_per_s:,.0f} trained tokens/s"
    elif throughput.images_per_s is not None:
        made = "clips" if request.shape.modality == VIDEO else "images"
        rate = f"{throughput.images_per_s * 3600:,.4g} {made} an hour"
    elif throughput.train_samples_per_s is not None:
        rate = f"{throughput.train_samples_per_s:,.3g} trained samples/s"
    elif throughput.realtime_factor is not None:
        rate = f"{throughput.realtime_factor:,.3g} seconds of sound a second"
    else:
        return throughput.unknown or "no speed is predicted for this kind of work on this GPU"
    return f"predicted {rate}, bound by {throughput.bound_by}: {lift}" if lift else f"predicted {rate}"


def refusal_of(plan: Plan) -> str:
    """Why nothing fits, in one sentence: how many instance types fell at which filter.

    The last filter that any of them reached is first, then the commonest.
    """
    groups = [group for group in group_rejections(plan.rejections) if group.filter not in _ASKED_FOR]
    groups[1:] = sorted(groups[1:], key=lambda group: -len(group.instance_types))
    causes = [f"{group.words} ({len(group.instance_types)}: {_nearest(group)})" for group in groups[:3]]
    return f"nothing fits {plan.workload_name}: {'; '.join(causes) or 'the requirements leave no instance type'}"


def _nearest(group: RejectionGroup) -> str:
    example = group.example
    name = example.offer.split("/")[3]
    facts = [
        f"needs {example.needed}" if example.needed else "",
        f"has {example.available}" if example.available else "",
    ]
    detail = ", ".join(fact for fact in facts if fact)
    return f"{name} {detail}" if detail and name != "*" else example.reason
