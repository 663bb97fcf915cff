"""Single changes to a request that might make it fit: to its requirements, and to the demand itself."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from decimal import ROUND_UP, Decimal

from provisioner.planner.clusters import MOST_GPUS, may_span
from provisioner.planner.ranking import Candidate
from provisioner.planner.request import Request
from provisioner.planner.requirements import CLOUDS
from provisioner.planner.spot import intolerance
from provisioner.planner.work import BURSTY_HOURS_PER_MONTH
from provisioner.records import record
from provisioner.sizing.demand import (
    AudioDemand,
    Demand,
    DiffusionDemand,
    DiffusionTrainingDemand,
    ServingDemand,
    TrainingDemand,
)
from provisioner.units import HOURS_PER_MONTH, Money, decimal_string
from provisioner.vocabulary import (
    Attention,
    CapacityType,
    KvDtype,
    Objective,
    Optimizer,
    Pattern,
    Sharding,
    Task,
    TrainingMethod,
    TrainingPrecision,
    WeightFormat,
)
from provisioner.workload.formats import FP8_CACHES, REFUSED_WEIGHTS
from provisioner.workload.spec import Inference

Pick = Callable[[Sequence[Candidate]], Candidate]
Words = Callable[[Candidate], str]

NARROWER_WEIGHTS = {
    "fp32": (WeightFormat.BF16, WeightFormat.FP8, WeightFormat.INT4_AWQ),
    "bf16": (WeightFormat.FP8, WeightFormat.INT4_AWQ),
    "fp16": (WeightFormat.FP8, WeightFormat.INT4_AWQ),
    "fp8": (WeightFormat.INT4_AWQ,),
    "int8": (WeightFormat.INT4_AWQ,),
}
"""Formats to try instead of one, the least lossy first."""
NARROWER_MEDIA_WEIGHTS = {
    "fp32": (WeightFormat.BF16, WeightFormat.FP8, WeightFormat.NF4),
    "bf16": (WeightFormat.FP8, WeightFormat.NF4),
    "fp16": (WeightFormat.FP8, WeightFormat.NF4),
    "fp8": (WeightFormat.NF4,),
}
"""The same for pipelines, whose libraries have no AWQ."""
OFFLOADS = ("none", "text-encoder", "model")
"""What a pipeline can keep in host memory, the fastest first."""
TRAINING = (TrainingDemand, DiffusionTrainingDemand)
CONTEXT_STEP = 256
SEQUENCE_STEP = 128


@record(frozen=True, slots=True)
class Change:
    """One change: the request with it, which of the candidates it opens to name, and the words that ask for it."""

    request: Request
    words: Words
    pick: Pick = lambda candidates: candidates[0]
    has_values: bool = False
    """Whether its words name one of several values that would do: a GPU, a region, an instance type."""
    text: str = ""
    """The words where no candidate is needed for them."""


@record(frozen=True, slots=True)
class Dial:
    """A number of the demand that can be lowered: the largest value below ``current`` that fits is looked for."""

    key: str
    current: int
    step: int
    turned: Callable[[int], Request]


def requirement_changes(
    request: Request, *, is_short_of_quota: bool = False, gives_least: bool = False
) -> Iterator[Change]:
    """Each hard requirement opened on its own, with the value that would do.

    ``gives_least``: deadlines and targets give way as little as they must, instead of to what is cheapest without them.
    """
    if is_short_of_quota:
        yield Change(opened(request, keeps_quotas=False), _raise_quota)
    yield from _place_changes(request)
    yield from _money_changes(request, gives_least=gives_least)
    yield from _target_changes(request, gives_least=gives_least)
    yield from _degree_changes(request)


def opened(request: Request, **changes: object) -> Request:
    """The request with requirements exchanged."""
    return replace(request, requirements=replace(request.requirements, **changes))  # type: ignore[arg-type]


def _place_changes(request: Request) -> Iterator[Change]:
    """What and where: instance types, regions, GPUs, their number, clouds, capacity type."""
    wanted = request.requirements
    if wanted.instance_types is not None:
        yield Change(
            opened(request, instance_types=None),
            lambda one: f"use {one.offer.instance.name} in placement.instance_types",
            has_values=True,
        )
    if wanted.regions is not None:
        yield Change(
            opened(request, regions=None), lambda one: f"add {one.offer.region} to placement.regions", has_values=True
        )
    if wanted.gpu_models is not None or wanted.excluded_gpu_models:
        any_gpu = opened(request, gpu_models=None, excluded_gpu_models=frozenset())
        yield Change(any_gpu, _allow_gpu, has_values=True)
    if wanted.max_gpus is not None:
        yield Change(
            opened(request, max_gpus=None),
            lambda one: f"raise placement.max_gpus to {one.arrangement.gpus_billed}",
            _fewest_gpus,
        )
    if len(wanted.clouds) < len(CLOUDS):
        yield Change(opened(request, clouds=CLOUDS), lambda one: f"allow {one.offer.cloud} in placement.clouds")
    if wanted.capacity not in ("auto", "on-demand"):
        yield Change(opened(request, capacity="on-demand"), _buy_as)
    elif wanted.has_price_limit and intolerance(request.workload):
        yield Change(opened(request, capacity="spot"), _buy_as)


def _buy_as(candidate: Candidate) -> str:
    return f"set placement.capacity to {candidate.offer.capacity_type}"


def _money_changes(request: Request, *, gives_least: bool) -> Iterator[Change]:
    """Price, bill and time."""
    wanted = request.requirements
    if wanted.max_price_usd_per_hour is not None:
        yield Change(opened(request, max_price_usd_per_hour=None), _raise_price, _lowest_price)
    if wanted.budget is not None:
        yield Change(opened(request, budget=None), _raise_budget(wanted.budget), _lowest_bill(wanted.budget))
    if wanted.deadline_hours is not None:
        free = _unhurried(request) if gives_least else opened(request, deadline_hours=None)
        yield Change(free, _extend_deadline, _shortest_run)


def _unhurried(request: Request) -> Request:
    """The request without its deadline, looked at for the shortest run: over as many instances as a training may take."""
    free = opened(request, deadline_hours=None)
    if not may_span(request):
        return free
    fast = request.workload.model_copy(update={"optimize": Objective.THROUGHPUT})
    return replace(opened(free, max_gpus=request.requirements.max_gpus or MOST_GPUS), workload=fast)


def everything_open(request: Request) -> Request:
    """The request with no requirement on place, kind, number or price left."""
    wanted = request.requirements
    return replace(request, requirements=replace(wanted, clouds=CLOUDS, **OPEN))  # type: ignore[arg-type]


OPEN: Mapping[str, object] = {
    "instance_types": None,
    "regions": None,
    "gpu_models": None,
    "excluded_gpu_models": frozenset(),
    "max_gpus": None,
    "max_price_usd_per_hour": None,
    "budget": None,
    "deadline_hours": None,
    "capacity": "auto",
    "keeps_quotas": False,
}


def _raise_quota(candidate: Candidate) -> str:
    instance, offer = candidate.arrangement.instance, candidate.offer
    code = instance.quota_on_demand if offer.capacity_type is CapacityType.ON_DEMAND else instance.quota_spot
    units = (instance.quota_units or 0) * candidate.arrangement.instances
    what = "vCPU" if offer.cloud == "aws" else "GPUs"
    return f"have the account's quota {code} in {offer.region} raised to {units:g} {what}"


def _allow_gpu(candidate: Candidate) -> str:
    return f"add {candidate.arrangement.gpu.gpu_class} to placement.gpus"


def _fewest_gpus(candidates: Sequence[Candidate]) -> Candidate:
    return min(candidates, key=lambda one: one.arrangement.gpus_billed)


def _lowest_price(candidates: Sequence[Candidate]) -> Candidate:
    return min(candidates, key=lambda one: one.bill.cost.compute_usd_per_hour or Decimal("Infinity"))


def _raise_price(candidate: Candidate) -> str:
    return f"raise placement.max_price to {_cents(candidate.bill.cost.compute_usd_per_hour)} USD/h"


def _lowest_bill(budget: Money) -> Pick:
    def pick(candidates: Sequence[Candidate]) -> Candidate:
        return min(candidates, key=lambda one: _bill_usd(one, budget) or Decimal("Infinity"))

    return pick


def _raise_budget(budget: Money) -> Words:
    def words(candidate: Candidate) -> str:
        amount = _bill_usd(candidate, budget)
        return (
            f"raise placement.budget to {_cents(amount)} USD/{budget.per}"
            if amount is not None
            else "remove placement.budget"
        )

    return words


def _bill_usd(candidate: Candidate, budget: Money) -> Decimal | None:
    cost = candidate.bill.cost
    return cost.run_usd if budget.per == "run" else cost.total_usd_per_month


def _shortest_run(candidates: Sequence[Candidate]) -> Candidate:
    return min(candidates, key=lambda one: _needed_hours(one) or math.inf)


def _needed_hours(candidate: Candidate) -> float | None:
    hours = candidate.terms.expected_run_hours
    return None if hours is None else hours + candidate.terms.lost_hours


def _extend_deadline(candidate: Candidate) -> str:
    hours = _needed_hours(candidate)
    return f"extend placement.deadline to {math.ceil(hours)}h" if hours is not None else "remove placement.deadline"


def _target_changes(request: Request, *, gives_least: bool) -> Iterator[Change]:
    """Each target dropped on its own; the words give what is predicted."""
    workload, inference = request.workload, request.workload.inference
    if inference is None:
        return
    yield from _copies_changes(request, inference)
    if inference.targets is None:
        return
    table: tuple[tuple[str, Words, Pick], ...] = (
        (
            "time_to_first_token",
            lambda one: f"raise inference.targets.time_to_first_token to {_ceil_ms(one)}ms",
            lambda found: min(found, key=_ceil_ms),
        ),
        (
            "tokens_per_second_per_request",
            lambda one: f"lower inference.targets.tokens_per_second_per_request to {_floor_rate(one)}",
            lambda found: max(found, key=_floor_rate),
        ),
        ("requests_per_second", _fewer_requests, lambda found: max(found, key=_requests)),
    )
    for key, words, pick in table:
        if getattr(inference.targets, key) is not None:
            targets = inference.targets.model_copy(update={key: None})
            changed: dict[str, object] = {"inference": inference.model_copy(update={"targets": targets})}
            if gives_least and key == "tokens_per_second_per_request":
                changed["optimize"] = Objective.LATENCY  # layouts with the fastest stream, not with the most tokens
            relaxed = workload.model_copy(update=changed)
            yield Change(replace(request, workload=relaxed), words, pick)


def _copies_changes(request: Request, inference: Inference) -> Iterator[Change]:
    """More copies: as many as a machine of a batch holds, or as a rate of requests takes."""
    wants_rate = inference.targets is not None and inference.targets.requests_per_second is not None
    if inference.replicas != "auto" and (wants_rate or request.workload.task is Task.BATCH):
        free = inference.model_copy(update={"replicas": "auto"})
        yield Change(
            replace(request, workload=request.workload.model_copy(update={"inference": free})),
            lambda one: f"set inference.replicas to {one.arrangement.layout.replicas}",
        )


def _requests(candidate: Candidate) -> float:
    """Requests/s that all copies of a candidate take, 0 where that is unknown."""
    arrangement = candidate.arrangement
    return (arrangement.requests_per_s or 0.0) * arrangement.layout.replicas


def _fewer_requests(candidate: Candidate) -> str:
    rate = math.floor(_requests(candidate) * 100) / 100
    return f"lower inference.targets.requests_per_second to {rate:g}, or raise inference.replicas"


def _ceil_ms(candidate: Candidate) -> int:
    return math.ceil((candidate.arrangement.throughput.time_to_first_token_s or 0) * 1000)


def _floor_rate(candidate: Candidate) -> int:
    return math.floor(candidate.arrangement.throughput.tokens_per_s_per_request or 0)


def _degree_changes(request: Request) -> Iterator[Change]:
    demand = request.demand
    if isinstance(demand, ServingDemand) and (
        demand.tensor_parallel is not None or demand.pipeline_parallel is not None
    ):
        freed = replace(request, demand=replace(demand, tensor_parallel=None, pipeline_parallel=None))
        names = [name for name in ("tensor_parallel", "pipeline_parallel") if getattr(demand, name) is not None]
        yield Change(freed, lambda one: _set_degrees(names, one))
    if isinstance(demand, TRAINING) and demand.sharding is not Sharding.AUTO:
        freed = replace(request, demand=replace(demand, sharding=Sharding.AUTO))
        yield Change(freed, lambda one: f"set training.sharding to {one.arrangement.layout.sharding}")


def _set_degrees(names: Sequence[str], candidate: Candidate) -> str:
    layout = candidate.arrangement.layout
    return " and ".join(f"set inference.{name} to {getattr(layout, name)}" for name in names)


_DIALS: Mapping[type[Demand], tuple[tuple[str, str, int], ...]] = {
    ServingDemand: (
        ("inference.concurrency", "concurrency", 1),
        ("inference.context_tokens", "context_tokens", CONTEXT_STEP),
    ),
    TrainingDemand: (
        ("training.micro_batch", "micro_batch", 1),
        ("training.sequence_tokens", "sequence_tokens", SEQUENCE_STEP),
    ),
    DiffusionTrainingDemand: (("training.micro_batch", "micro_batch", 1),),
    AudioDemand: (("inference.audio.batch", "batch", 1), ("inference.audio.seconds", "seconds", 1)),
}
"""Spec key, name in the demand and step of each number that can be lowered, the least painful first."""


def demand_dials(request: Request) -> Iterator[Dial]:
    """Numbers of the demand that can be lowered, the least painful first; a monthly budget also bounds the hours."""
    demand = request.demand
    budget, hours = request.requirements.budget, request.workload.lifecycle.hours_per_month
    if budget is not None and budget.per == "month" and request.workload.task is Task.SERVE:
        bursty = request.workload.lifecycle.pattern is Pattern.BURSTY
        current = math.ceil(hours if hours is not None else BURSTY_HOURS_PER_MONTH if bursty else HOURS_PER_MONTH)
        yield Dial("lifecycle.hours_per_month", current, 1, lambda value: _used_for(request, value))
    rows = _DIALS.get(type(demand), ())
    if isinstance(demand, DiffusionDemand):
        part = "video" if demand.frames > 1 else "image"
        rows = ((f"inference.{part}.batch", "batch", 1),)
        rows += (("inference.video.frames", "frames", 1),) if demand.frames > 1 else ()
    for key, name, step in rows:
        yield Dial(key, int(getattr(demand, name)), step, _turned(request, name))


def _used_for(request: Request, hours: int) -> Request:
    lifecycle = request.workload.lifecycle.model_copy(update={"hours_per_month": hours})
    return replace(request, workload=request.workload.model_copy(update={"lifecycle": lifecycle}))


def _turned(request: Request, name: str) -> Callable[[int], Request]:
    return lambda value: replace(request, demand=replace(request.demand, **{name: value}))  # type: ignore[arg-type]


def demand_changes(request: Request) -> Iterator[Change]:
    """Words of the demand that can be exchanged, the least lossy first."""
    demand = request.demand
    if isinstance(demand, TRAINING):
        yield from _training_changes(request, demand)
        return
    if isinstance(demand, ServingDemand) and demand.gpu_memory_fraction is not None:
        yield _exchange(request, replace(demand, gpu_memory_fraction=None), "inference.gpu_memory_fraction", "auto")
    has_cache = isinstance(demand, ServingDemand) and demand.engine in FP8_CACHES
    if has_cache and isinstance(demand, ServingDemand) and demand.kv_dtype is not KvDtype.FP8:
        yield _exchange(request, replace(demand, kv_dtype=KvDtype.FP8), "inference.kv_cache", KvDtype.FP8)
    if isinstance(demand, DiffusionDemand):
        for offload in OFFLOADS[OFFLOADS.index(demand.offload) + 1 :] if demand.offload in OFFLOADS else ():
            yield _exchange(request, replace(demand, offload=offload), "inference.offload", offload)
    if request.weights == WeightFormat.BF16:
        yield _exchange(request, replace(demand, weights=str(WeightFormat.FP16)), "model.weights", WeightFormat.FP16)
    narrower = NARROWER_WEIGHTS if isinstance(demand, ServingDemand) else NARROWER_MEDIA_WEIGHTS
    # What an engine cannot load is replaced by the nearest that it can.
    refused = REFUSED_WEIGHTS.get(request.engine, {}) if request.engine else {}
    words = (refused.get(word, str(word)) for word in narrower.get(request.weights, ()))
    for weights in dict.fromkeys(words):
        yield _exchange(request, replace(demand, weights=weights), "model.weights", weights)


def _training_changes(request: Request, demand: TrainingDemand | DiffusionTrainingDemand) -> Iterator[Change]:
    if demand.gradient_checkpointing is not True:
        yield _exchange(
            request, replace(demand, gradient_checkpointing=True), "training.gradient_checkpointing", "true"
        )
    full = demand.method is TrainingMethod.FULL
    if demand.optimizer in (Optimizer.ADAMW, Optimizer.MUON) and full:
        lighter = Optimizer.PAGED_ADAMW_8BIT
        yield _exchange(request, replace(demand, optimizer=lighter), "training.optimizer", lighter)
    yield from _precision_changes(request, demand)
    if request.workload.task is Task.PRETRAIN:
        return
    if full:
        yield _exchange(request, replace(demand, method=TrainingMethod.LORA), "training.method", TrainingMethod.LORA)
    if demand.method is not TrainingMethod.QLORA:
        quantised = replace(demand, method=TrainingMethod.QLORA, weights=str(WeightFormat.NF4))
        yield _exchange(request, quantised, "training.method", TrainingMethod.QLORA)


def _precision_changes(request: Request, demand: TrainingDemand | DiffusionTrainingDemand) -> Iterator[Change]:
    """What runs on GPUs without the matrix units or kernels that were asked for."""
    if demand.precision is TrainingPrecision.FP8:
        lower = replace(demand, precision=TrainingPrecision.BF16_MIXED)
        yield _exchange(request, lower, "training.precision", TrainingPrecision.BF16_MIXED)
    elif demand.precision in (TrainingPrecision.BF16, TrainingPrecision.BF16_MIXED):
        older = replace(demand, precision=TrainingPrecision.FP16_MIXED)
        yield _exchange(request, older, "training.precision", TrainingPrecision.FP16_MIXED)
    if isinstance(demand, TrainingDemand) and demand.attention is Attention.FLASH:
        yield _exchange(request, replace(demand, attention=Attention.SDPA), "training.attention", Attention.SDPA)


def _exchange(request: Request, demand: Demand, key: str, word: str) -> Change:
    text = f"set {key} to {word}"
    return Change(replace(request, demand=demand), lambda _: text, text=text)


def _cents(amount: Decimal | None) -> str:
    """An amount rounded up to a cent: the rounded value must pass the filter."""
    return decimal_string((amount or Decimal(0)).quantize(Decimal("0.01"), rounding=ROUND_UP))
