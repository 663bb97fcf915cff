"""Why a larger card than the usual small one, and why not the next offers: sentences from what the search already knows."""

from __future__ import annotations

import math

from provisioner.catalog.gpus import Gpu
from provisioner.catalog.instances import InstanceType
from provisioner.planner.candidates import Arrangement
from provisioner.planner.clusters import is_cluster
from provisioner.planner.filters import Refusal, refuse_instance
from provisioner.planner.ranking import Candidate, speed_of
from provisioner.planner.request import Request
from provisioner.planner.search import Market, Outcome
from provisioner.planner.spoken import DEARER, FASTER, LINKS, spoken_cost, times
from provisioner.units import GB, GIB, format_gib
from provisioner.vocabulary import Interconnect, Objective

STEP = 0.6
"""A card is smaller where it has at most this share of the memory of the chosen one: a class below, not a variant."""
MODERN = (8, 0)
"""Compute capability from which cards are compared: buyers do not step up from what cannot run bf16."""
ASKED_LAYOUT = ("gpu-count", "layout")
"""What the spec asks of the layout is no step from one card to another."""
SPEED_FILTERS = ("tokens-per-second", "time-to-first-token", "requests-per-second", "deadline")


def step_up(request: Request, market: Market, outcome: Outcome, choice: Candidate) -> str:
    """What made the step from the cheapest smaller card to the chosen one, and what the smaller card costs elsewhere.

    Empty where the choice is no larger than what the requirements allow at the low end, or is a fraction of a card.
    """
    small = _smaller_card(request, market, choice)
    if small is None:
        return ""
    gpu, instance = small
    head = f"steps up from {gpu.gpu_class} ({gpu.memory_nominal_bytes / GIB:.0f} GB) for "
    rival = next((one for one in outcome.candidates if one.arrangement.gpu.gpu_class == gpu.gpu_class), None)
    if rival is not None:
        if rival.offer.price_usd_per_hour is None:
            return ""
        count = rival.arrangement.gpus_billed
        links = _links(rival.arrangement)
        return (
            f"{head}{_cause(request, choice, rival, gpu)}; {count} x {gpu.gpu_class}{links} "
            f"({rival.offer.instance.name}) would cost {spoken_cost(request, rival)}"
        )
    refusal = _refusal(outcome, market, gpu, instance)
    return f"{head}{_refused(refusal)}; no offer of {gpu.gpu_class} meets everything" if refusal else ""


def _smaller_card(request: Request, market: Market, choice: Candidate) -> tuple[Gpu, InstanceType] | None:
    """The cheapest whole card with clearly less memory that the requirements leave, and the type that sells one of it."""
    chosen = choice.arrangement
    if chosen.instance.gpu_fraction < 1:
        return None
    small: dict[tuple[str, str], tuple[Gpu, InstanceType]] = {}
    for instance in market.catalog.instances.values():
        gpu = market.catalog.gpus.get(instance.gpu_model or "")
        if gpu is None or instance.gpu_count != 1 or instance.gpu_fraction < 1:
            continue
        is_old = (gpu.compute_capability or ()) < MODERN
        if is_old or gpu.memory_nominal_bytes > STEP * chosen.gpu.memory_nominal_bytes:
            continue
        refusal = refuse_instance(request, instance, gpu)
        if refusal is not None and refusal.filter != "precision":
            continue
        known = small.get((instance.cloud, gpu.gpu_class))
        if known is None or (instance.vcpu, instance.name) < (known[1].vcpu, known[1].name):
            small[instance.cloud, gpu.gpu_class] = (gpu, instance)
    priced = [(market.lowest_on_demand_usd(instance), gpu, instance) for gpu, instance in small.values()]
    found = [(price, instance.name, gpu, instance) for price, gpu, instance in priced if price is not None]
    return min(found, key=lambda each: each[:2])[2:] if found else None


def _cause(request: Request, choice: Candidate, rival: Candidate, small: Gpu) -> str:
    """Room, NVLink, bandwidth, FP8 or compute: the first that tells the two apart."""
    mine, other = choice.arrangement, rival.arrangement
    usable, need = other.footprint.usable_bytes, mine.footprint.per_gpu.high_bytes
    wide = other.layout.gpus_per_replica
    if wide > mine.layout.gpus_per_replica and need > usable:
        text = f"room: {format_gib(need)} per GPU where it has {format_gib(usable)} usable, so a copy would span {wide}"
        return text + _nvlink(mine, other)
    return _faster(request, choice, rival, small) + _nvlink(mine, other)


def _nvlink(mine: Arrangement, other: Arrangement) -> str:
    if mine.interconnect is Interconnect.NVLINK and other.interconnect is Interconnect.PCIE:
        return ", and NVLink instead of PCIe"
    return ""


def _faster(request: Request, choice: Candidate, rival: Candidate, small: Gpu) -> str:
    """What makes the larger card the faster one, by what bounds the smaller one."""
    gpu, bound = choice.arrangement.gpu, rival.arrangement.throughput.bound_by
    objective = request.workload.optimize
    faster, slower = speed_of(choice, objective), speed_of(rival, objective)
    times = f", {faster / slower:.1f} times the predicted speed" if faster and slower else ""
    mine, other = gpu.memory_bandwidth_bytes_per_s, small.memory_bandwidth_bytes_per_s
    narrow = str(request.weights).startswith("fp8")
    if bound == "memory-bandwidth" and mine and other:
        return f"bandwidth: {mine / GB:,.0f} GB/s against {other / GB:,.0f}{times}"
    if narrow and gpu.fp8_supported and not small.fp8_supported:
        return f"FP8 units, which {small.gpu_class} lacks{times}"
    fast, slow = gpu.flop_per_s.get("bf16"), small.flop_per_s.get("bf16")
    if bound == "compute" and fast and slow:
        return f"compute: {fast / 1e12:,.0f} bf16 TFLOP/s against {slow / 1e12:,.0f}{times}"
    return f"speed{times}" if times else "the lower bill"


def _links(arrangement: Arrangement) -> str:
    return "" if arrangement.interconnect is Interconnect.NONE else f" over {LINKS[arrangement.interconnect]}"


def _refusal(outcome: Outcome, market: Market, gpu: Gpu, instance: InstanceType) -> Refusal | None:
    """The no that says most of a card: of its largest machine for room, else of the type that sells one."""
    found = [
        (other, refusal)
        for other, refusal in outcome.ledger.refusals()
        if (each := market.catalog.gpus.get(other.gpu_model or "")) is not None and each.gpu_class == gpu.gpu_class
    ]
    for names in (SPEED_FILTERS, ("memory",), ("precision",)):
        named = [(other, refusal) for other, refusal in found if refusal.filter in names]
        if named:
            return max(named, key=lambda pair: (pair[0].gpu_count * pair[0].gpu_fraction, pair[0].name))[1]
    refusals = (refusal for other, refusal in found if other.name == instance.name)
    return next((refusal for refusal in refusals if refusal.filter not in ASKED_LAYOUT), None)


def _refused(refusal: Refusal) -> str:
    facts = " against ".join(part for part in (refusal.needed, refusal.available) if part)
    detail = f" ({facts})" if facts else ""
    if refusal.filter == "memory":
        return f"room: {facts}"
    if refusal.filter == "precision":
        return f"its number formats: {refusal.reason}{detail}"
    if refusal.filter in SPEED_FILTERS:
        return f"speed: {refusal.reason}{detail}"
    return f"what the smaller card does not meet: {refusal.reason}{detail}"


def why_not(request: Request, choice: Candidate, other: Candidate) -> str:
    """Why another offer that meets everything is not the choice, in one line."""
    mine, theirs = choice.terms.ranking_usd, other.terms.ranking_usd
    differences = _differences(request.workload.optimize, choice, other)
    if other.offer.price_usd_per_hour is None:
        return ", ".join(["its price is unknown", *differences])
    if other.terms.basis != choice.terms.basis:
        return ", ".join(["the length of its run is unknown", *differences])
    money = (times(theirs / mine, DEARER) or "the same bill") if math.isfinite(mine) and mine else ""
    return f"{', '.join(filter(None, [money, *differences]))}: {spoken_cost(request, other)}"


def _differences(objective: Objective, choice: Candidate, other: Candidate) -> list[str]:
    mine, theirs = choice.arrangement, other.arrangement
    found: list[str] = []
    same_gpus = (mine.gpu.gpu_class, mine.gpus_billed, mine.instance.gpu_fraction)
    if same_gpus == (theirs.gpu.gpu_class, theirs.gpus_billed, theirs.instance.gpu_fraction):
        found.append("for the same GPU" if mine.gpus_billed == 1 else "for the same GPUs")
    elif theirs.instances != mine.instances and is_cluster(theirs):
        found.append(f"{theirs.instances} instances that work as one")
    elif theirs.layout.gpus_per_replica > mine.layout.gpus_per_replica:
        found.append(f"a copy spans {theirs.layout.gpus_per_replica} GPUs{_links(theirs)}")
    elif theirs.gpus_billed > mine.gpus_billed:
        found.append(f"{theirs.gpus_billed} GPUs")
    speed, other_speed = speed_of(choice, objective), speed_of(other, objective)
    if speed and other_speed and (words := times(other_speed / speed, FASTER)):
        found.append(words)
    return found
