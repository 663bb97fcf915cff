"""Sizing rules: the machine holds the workload, by footprints that the gate computed itself."""

from __future__ import annotations

from collections.abc import Iterator

from policies.facts import UNKNOWN, Candidate, PlacementFacts, Unknown
from policies.parameters import Parameter
from policies.rule import Level, Outcome, Rule, Setting, Severity, failed, passed, unknown
from policies.rules.candidates import candidates_of, machines_of
from provisioner.planner.clusters import copies_held
from provisioner.planner.judge import OfferFit
from provisioner.planner.plan import Plan
from provisioner.sizing.footprint import Footprint
from provisioner.units import GIB, format_gib
from provisioner.vocabulary import Fit
from provisioner.workload.kinds import Number

SIZE_FILTERS = (
    "memory",
    "layout",
    "gpu-count",
    "max-gpus",
    "precision",
    "architecture",
    "memory-unknown",
    "runtime",
    "fabric",
)
"""Planner filters that say that an instance type cannot hold or run the workload, or only with more GPUs than allowed; the
most telling first."""
HELD_FILTERS = frozenset(
    {
        "budget",
        "deadline",
        "host-ram",
        "max-price",
        "price-unknown",
        "quota",
        "region",
        "requests-per-second",
        "spot-not-cheaper",
        "spot-rework",
        "time-to-first-token",
        "tokens-per-second",
    }
)
"""Planner filters that an instance type meets only after it was found to hold the workload."""
DISK_BASE_BYTES = 20 * GIB
"""System, driver, CUDA and one engine image: published GPU images unpack to 10 to 20 GiB."""


def nothing_holds(plan: Plan) -> bool:
    """Whether a plan without a choice failed on size alone, not on price, place or speed."""
    filters = {rejection.filter for rejection in plan.rejections}
    return bool(filters.intersection(SIZE_FILTERS)) and not filters & HELD_FILTERS


def under_sized(facts: PlacementFacts, setting: Setting) -> Iterator[Outcome]:
    """Every offer that the workload may end up on holds it."""
    del setting
    if facts.plan is not None and facts.plan.choice is None:
        if nothing_holds(facts.plan):
            yield failed(facts.constraint_key, _nothing_text(facts.plan), _change(facts), identity="nothing-fits")
        return
    candidates, outcome = machines_of(facts)
    if outcome is not None:
        yield outcome
    for candidate in candidates:
        if isinstance(candidate.refusals, Unknown) or not candidate.refusals:
            yield _judge_fit(facts, candidate)


def _judge_fit(facts: PlacementFacts, candidate: Candidate) -> Outcome:
    key, name, fit = candidate.key, candidate.label, candidate.fit
    identity = f"{candidate.key.partition('[')[0]}={name}"
    if isinstance(fit, Unknown):
        message = f"whether {name} holds {facts.name} is not known: its type or the workload is computed later"
        return unknown(key, message, "write both as constants", identity=identity)
    if fit is None:
        message = f"{name} is not in the catalog, so whether it holds {facts.name} is not known"
        return unknown(key, message, "name an instance type that `gpuprov offers` lists", identity=identity, stays=True)
    if fit.fit is Fit.DOES_NOT_FIT:
        return failed(key, f"{name} cannot hold {facts.name}: {shortfall(fit)}", _change(facts), identity=identity)
    return _judge_copies(facts, candidate, identity)


def _judge_copies(facts: PlacementFacts, candidate: Candidate, identity: str) -> Outcome:
    """Whether the instances that a plan names hold as many copies as it wants to run."""
    layout, instance = candidate.layout, candidate.instance
    if layout is None or instance is None:
        return passed(candidate.key)
    if isinstance(candidate.instances, Unknown) or isinstance(instance, Unknown):
        return unknown(
            candidate.key,
            f"how many instances {facts.name} gets is not known yet",
            "write it as a constant",
            identity=identity,
        )
    room = copies_held(layout, instance.gpu_count, candidate.instances)
    if room >= layout.replicas:
        return passed(candidate.key)
    message = f"{candidate.instances} x {candidate.label} hold {room} of the {layout.replicas} copies of {facts.name}"
    return failed(candidate.key, message, "make the plan again with `gpuprov plan`", identity=identity)


def shortfall(fit: OfferFit) -> str:
    """By how much a machine is too small, or why nothing can be sized."""
    footprint = fit.footprint
    if footprint is None:
        return "; ".join(fit.objections)
    total, usable = footprint.per_gpu.total_bytes, footprint.usable_bytes
    return f"it needs {format_gib(total)} per GPU, {format_gib(usable)} of a {fit.gpu} are usable, {format_gib(total - usable)} are missing"


def _nothing_text(plan: Plan) -> str:
    sized = [rejection for rejection in plan.rejections if rejection.filter == "memory"]
    if not sized:
        by_filter = {rejection.filter: rejection.reason for rejection in plan.rejections}
        reason = next(by_filter[name] for name in SIZE_FILTERS if name in by_filter)
        return f"nothing that the spec allows can hold {plan.workload_name}: {reason}"
    closest = min(
        sized,
        key=lambda each: (_shown_gib(each.needed) - _shown_gib(each.available), len(each.offer), each.offer),
    )
    name = closest.offer.split("/")[3]
    missing = _shown_gib(closest.needed) - _shown_gib(closest.available)
    return (
        f"nothing that the spec allows can hold {plan.workload_name}: the closest is {name}, "
        f"with {closest.needed} needed, {closest.available}, {missing:.1f} GiB missing"
    )


def _shown_gib(text: str | None) -> float:
    """The number of a text such as ``20.1 GiB usable``."""
    return float((text or "0").split()[0].replace(",", ""))


def _change(facts: PlacementFacts) -> str:
    """The smallest change that passes."""
    if facts.plan is not None and facts.plan.closest:
        return f"smallest change: {facts.plan.closest[0]}"
    return facts.suggest() or "lower context_tokens or concurrency, quantise the weights, or take larger GPUs"


def no_offer(facts: PlacementFacts, setting: Setting) -> Iterator[Outcome]:
    """Some offer meets the price, place and speed that the spec asks for."""
    del setting
    if facts.plan is None:
        return
    if facts.plan.choice is not None:
        yield passed("placement")
    elif not nothing_holds(facts.plan):
        filters = sorted({rejection.filter for rejection in facts.plan.rejections} & HELD_FILTERS)
        reason = f" (refused by {', '.join(filters)})" if filters else ""
        yield failed(_held_key(filters), f"no offer meets all requirements of {facts.name}{reason}", _change(facts))


def _held_key(filters: list[str]) -> str:
    keys = {
        "budget": "placement.budget",
        "deadline": "placement.deadline",
        "max-price": "placement.max_price",
        "region": "placement.regions",
    }
    return next((keys[name] for name in filters if name in keys), "placement")


def borderline(facts: PlacementFacts, setting: Setting) -> Iterator[Outcome]:
    """The high end of the band fits too, not only the likely need."""
    del setting
    for candidate, fit in _sized(facts):
        if fit.fit is Fit.BORDERLINE and fit.footprint is not None:
            high, usable = fit.footprint.per_gpu.high_bytes, fit.footprint.usable_bytes
            message = (
                f"{facts.name} is borderline on {candidate.label}: it may need {format_gib(high)} per GPU, "
                f"{format_gib(usable)} are usable, {format_gib(high - usable)} may be missing"
            )
            yield failed(
                candidate.key,
                message,
                "lower context_tokens or concurrency a little, or take the next larger GPU",
                identity=candidate.label,
            )
        elif fit.fit is Fit.FITS:
            yield passed(candidate.key)
    yield from _unsized(facts, "borderline")


def thin_headroom(facts: PlacementFacts, setting: Setting) -> Iterator[Outcome]:
    """Some memory stays free beside the need."""
    least: float = setting.parameters["min_fraction"]
    for candidate, fit in _sized(facts):
        if fit.fit is not Fit.FITS or fit.footprint is None:
            continue
        free, usable = fit.footprint.headroom_bytes, fit.footprint.usable_bytes
        if free >= least * usable:
            yield passed(candidate.key)
        else:
            message = f"{candidate.label} leaves {format_gib(free)} per GPU free, {free / usable:.1%} of what is usable"
            yield failed(
                candidate.key,
                message,
                f"free {format_gib(round(least * usable) - free)} more: lower context_tokens or concurrency",
                identity=candidate.label,
            )
    yield from _unsized(facts, "headroom")


def _sized(facts: PlacementFacts) -> Iterator[tuple[Candidate, OfferFit]]:
    """The offers whose fit is known; the others are ``under-sized``'s business."""
    for candidate in machines_of(facts)[0]:
        if isinstance(candidate.fit, OfferFit):
            yield candidate, candidate.fit


def _unsized(facts: PlacementFacts, what: str) -> Iterator[Outcome]:
    """One unknown outcome where some offer has no known fit."""
    candidates, outcome = candidates_of(facts)
    if outcome is not None:
        yield outcome
    elif any(UNKNOWN in (candidate.fit, candidate.instance) for candidate in candidates):
        yield unknown("candidates", f"the {what} of {facts.name} is not known yet", "write its offers as constants")


def tensor_parallel_divisible(facts: PlacementFacts, setting: Setting) -> Iterator[Outcome]:
    """The model can be split by the layout that is asked for."""
    del setting
    if isinstance(facts.layout_objections, Unknown):
        yield unknown("layout", f"the layout of {facts.name} is not known yet", "write it as constants")
    elif facts.layout_objections is not None:
        key = "inference.tensor_parallel" if facts.plan is not None else "choice.layout"
        if facts.layout_objections:
            yield failed(
                key, f"{facts.name} cannot be laid out as asked: {facts.layout_objections[0]}", _degrees(facts)
            )
        else:
            yield passed(key)


def _degrees(facts: PlacementFacts) -> str:
    if not facts.degrees_possible:
        return "let gpuprov choose: tensor_parallel: auto"
    shown = ", ".join(str(degree) for degree in facts.degrees_possible)
    return f"use a degree that divides the model: {shown}"


def tensor_parallel_pcie(facts: PlacementFacts, setting: Setting) -> Iterator[Outcome]:
    """A copy that spans GPUs has NVLink between them."""
    del setting
    for candidate, fit in _sized(facts):
        if fit.layout is None or fit.layout.tensor_parallel == 1:
            continue
        if isinstance(candidate.instance, Unknown) or candidate.instance is None:
            continue
        if candidate.instance.nvlink_bytes_per_s_per_gpu:
            yield passed(candidate.key)
        else:
            message = f"{candidate.label} splits each layer over {fit.layout.tensor_parallel} GPUs that talk over PCIe"
            yield failed(
                candidate.key,
                message,
                "take one GPU that holds the workload, or a type with NVLink",
                identity=candidate.label,
            )
    yield from _unsized(facts, "link")


def context_limit(facts: PlacementFacts, setting: Setting) -> Iterator[Outcome]:
    """The context asked for is one that the model was made for."""
    del setting
    if isinstance(facts.shape, Unknown) or isinstance(facts.workload, Unknown):
        yield unknown(
            "inference.context_tokens", f"the context of {facts.name} is not known yet", "write it as a constant"
        )
        return
    inference = facts.workload.inference
    if facts.shape is None or inference is None or inference.context_tokens is None:
        return
    limit = facts.shape.max_context_tokens
    if limit is None:
        return
    if inference.context_tokens <= limit:
        yield passed("inference.context_tokens")
    else:
        message = f"context_tokens is {inference.context_tokens:,}, the model takes {limit:,}"
        yield failed("inference.context_tokens", message, f"write context_tokens: {limit}")


def host_memory(facts: PlacementFacts, setting: Setting) -> Iterator[Outcome]:
    """Host memory holds the weights once while they are loaded."""
    factor: float = setting.parameters["factor"]
    for candidate, fit in _sized(facts):
        if (
            fit.footprint is None
            or fit.layout is None
            or isinstance(candidate.instance, Unknown)
            or candidate.instance is None
        ):
            continue
        needed = round(weights_bytes(fit.footprint, fit) * factor)
        if candidate.instance.ram_bytes >= needed:
            yield passed(candidate.key)
        else:
            message = f"{candidate.label} has {format_gib(candidate.instance.ram_bytes)} of host memory; loading takes up to {format_gib(needed)}"
            yield failed(
                candidate.key,
                message,
                "take the next larger instance type, or stream the weights",
                identity=candidate.label,
            )
    yield from _unsized(facts, "host memory")


def weights_bytes(footprint: Footprint, fit: OfferFit) -> int:
    """Weights of one copy over all its GPUs."""
    layout = fit.layout
    spans = layout.tensor_parallel * layout.pipeline_parallel if layout is not None else 1
    return footprint.per_gpu.weights_bytes * spans


def disk_size(facts: PlacementFacts, setting: Setting) -> Iterator[Outcome]:
    """The disks hold the system and the weights, with what a download keeps beside them."""
    factor: float = setting.parameters["factor"]
    for candidate, fit in _sized(facts):
        if fit.footprint is None or candidate.disk_bytes is None:
            continue
        needed = DISK_BASE_BYTES + round(weights_bytes(fit.footprint, fit) * factor)
        if isinstance(candidate.disk_bytes, Unknown):
            yield unknown(
                candidate.key,
                f"the disk of {facts.name} is not known yet",
                f"give it {format_gib(needed)}",
                identity=candidate.label,
            )
        elif candidate.disk_bytes >= needed:
            yield passed(candidate.key)
        else:
            message = f"the disks of {facts.name} have {format_gib(candidate.disk_bytes)}; image and weights take {format_gib(needed)}"
            yield failed(candidate.key, message, f"give it at least {-(-needed // GIB)} GiB", identity=candidate.label)
    yield from _unsized(facts, "disk")


def over_provisioned(facts: PlacementFacts, setting: Setting) -> Iterator[Outcome]:
    """A machine that a person named is not many times too large."""
    ratio_max: float = setting.parameters["max_ratio"]
    for candidate, fit in _sized(facts):
        if fit.fit is not Fit.FITS or fit.footprint is None or fit.layout is None or not facts.pinned:
            continue
        if isinstance(candidate.instance, Unknown) or candidate.instance is None:
            continue
        ratio = (
            fit.footprint.usable_bytes
            * candidate.instance.gpu_count
            / (fit.footprint.per_gpu.high_bytes * fit.layout.gpus)
        )
        if ratio <= ratio_max:
            yield passed(candidate.key)
        else:
            message = f"{candidate.label} has {ratio:.1f} times the GPU memory that {facts.name} needs"
            yield failed(
                candidate.key,
                message,
                facts.suggest() or "remove the pin and let gpuprov choose",
                identity=candidate.label,
            )
    yield from _unsized(facts, "size")


RULES = (
    Rule(
        "under-sized",
        "sizing",
        "Every machine holds its workload",
        "An engine that runs out of memory at start, or under its first full load, is an outage that arithmetic can see.",
        Severity.CRITICAL,
        (PlacementFacts,),
        under_sized,
        waivable=False,
    ),
    Rule(
        "no-offer",
        "sizing",
        "Some offer meets all requirements",
        "A spec that no offer meets cannot be carried out by anyone.",
        Severity.HIGH,
        (PlacementFacts,),
        no_offer,
        waivable=False,
    ),
    Rule(
        "borderline",
        "sizing",
        "The high end of the memory band fits too",
        "Where only the likely need fits, the first unusual batch may not.",
        Severity.MEDIUM,
        (PlacementFacts,),
        borderline,
        level=Level.ADVISORY,
    ),
    Rule(
        "thin-headroom",
        "sizing",
        "Some GPU memory stays free",
        "Engine updates and longer prompts take memory that no plan knows of.",
        Severity.LOW,
        (PlacementFacts,),
        thin_headroom,
        level=Level.ADVISORY,
        parameters=(
            Parameter("min_fraction", Number(0.9, "0.03"), 0.03, "least share of the usable memory that stays free"),
        ),
    ),
    Rule(
        "tensor-parallel-divisible",
        "sizing",
        "The model can be split as asked",
        "Engines refuse to start where heads or layers do not divide by the parallel degree.",
        Severity.HIGH,
        (PlacementFacts,),
        tensor_parallel_divisible,
        waivable=False,
    ),
    Rule(
        "tensor-parallel-pcie",
        "sizing",
        "GPUs that share a layer have NVLink",
        "Tensor parallelism exchanges activations twice a layer; over PCIe the link, not the GPU, sets the speed.",
        Severity.LOW,
        (PlacementFacts,),
        tensor_parallel_pcie,
        level=Level.ADVISORY,
    ),
    Rule(
        "context-limit",
        "sizing",
        "The context is within the model's limit",
        "Beyond the positions that it was trained on a model gives noise, and engines refuse to start.",
        Severity.MEDIUM,
        (PlacementFacts,),
        context_limit,
    ),
    Rule(
        "host-memory",
        "sizing",
        "Host memory is enough to load the weights",
        "Loading maps the checkpoint in host memory first; a host that is too small swaps for minutes or is killed.",
        Severity.LOW,
        (PlacementFacts,),
        host_memory,
        level=Level.ADVISORY,
        parameters=(Parameter("factor", Number(10, "1.2"), 1.2, "host memory over weights"),),
    ),
    Rule(
        "disk-size",
        "sizing",
        "Disks hold image and weights",
        "A download that fills the disk ends in a machine that bills and never serves.",
        Severity.HIGH,
        (PlacementFacts,),
        disk_size,
        parameters=(
            Parameter(
                "factor",
                Number(10, "1.2"),
                1.2,
                "disk for the weights over their size: what a download keeps beside them",
            ),
        ),
    ),
    Rule(
        "over-provisioned",
        "sizing",
        "Named machines are not many times too large",
        "The price of a GPU follows its memory: four times too much memory is about four times too much money.",
        Severity.LOW,
        (PlacementFacts,),
        over_provisioned,
        level=Level.ADVISORY,
        parameters=(Parameter("max_ratio", Number(1000, "4"), 4.0, "GPU memory over need that still passes"),),
    ),
)
