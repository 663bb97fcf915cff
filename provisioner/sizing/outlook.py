"""How a sized layout will do at work: its steady state, what bounds it, how long it takes to start, what it asks of storage."""

from __future__ import annotations

from provisioner.records import record
from provisioner.sizing.accelerator import Accelerator
from provisioner.sizing.bottleneck import Diagnosis, diagnose
from provisioner.sizing.demand import Demand, DiffusionTrainingDemand, ServingDemand, TrainingDemand
from provisioner.sizing.estimate import estimate_throughput
from provisioner.sizing.layout import Layout
from provisioner.sizing.start_up import StartUp, start_up
from provisioner.sizing.steady_state import BUSIEST, requests_in_memory, steady_state
from provisioner.sizing.storage_demand import StorageDemand, storage_demand
from provisioner.sizing.throughput import Targets, Throughput, main_rate
from provisioner.vocabulary import Engine, Interconnect

SAME_RATE = 0.01
"""Rates that differ by less are the same prediction."""


@record(frozen=True, slots=True)
class SteadyFigures:
    """One serving copy under continuous batching. Rates are per second; ``None`` is unknown or was not asked."""

    memory_concurrency: int
    """Requests of the full context that memory holds at once."""
    memory_tokens_per_s: float
    """Generated tokens per second of the copy with so many."""
    memory_tokens_per_s_per_request: float
    largest_requests_per_s: float
    """Rate at the asked concurrency that keeps the targets and leaves the copy ``busiest_share`` at most; 0 where none does."""
    busiest_share: float
    asked_requests_per_s: float | None
    """The copy's share of ``targets.requests_per_second``."""
    asked_time_to_first_token_s: float | None
    """Time to the first token at that rate, queueing included; ``None`` where the queue grows for ever."""
    asked_tokens_per_s_per_request: float | None
    asked_running: float | None
    """Requests that run at once at that rate."""


@record(frozen=True, slots=True)
class Outlook:
    """Everything about a layout at work beside its footprint and rates."""

    steady: SteadyFigures | None = None
    diagnosis: Diagnosis | None = None
    start: StartUp | None = None
    storage: StorageDemand | None = None


@record(frozen=True, slots=True)
class Circumstances:
    """What an outlook depends on beside the demand and the layout."""

    engine: Engine | None
    weights_bytes: int
    targets: Targets = Targets()
    requests_per_s: float | None = None
    """Of one copy."""
    checkpoint_bytes: int | None = None
    checkpoint_interval_s: float | None = None


def outlook_of(
    demand: Demand,
    layout: Layout,
    accelerator: Accelerator,
    interconnect: Interconnect,
    *,
    throughput: Throughput,
    around: Circumstances,
) -> Outlook:
    """The outlook of a layout whose speed was predicted as ``throughput``."""
    steady = None
    if isinstance(demand, ServingDemand):
        steady = steady_figures(demand, layout, accelerator, interconnect, around)
    storage = None
    if isinstance(demand, (TrainingDemand, DiffusionTrainingDemand)) and around.checkpoint_bytes is not None:
        storage = storage_demand(
            demand,
            throughput,
            checkpoint_bytes=around.checkpoint_bytes,
            interval_s=around.checkpoint_interval_s,
        )
    return Outlook(
        steady=steady,
        diagnosis=_diagnosis(demand, layout, accelerator, interconnect, throughput),
        start=start_up(around.weights_bytes, around.engine),
        storage=storage,
    )


def _diagnosis(
    demand: Demand, layout: Layout, accelerator: Accelerator, interconnect: Interconnect, throughput: Throughput
) -> Diagnosis | None:
    """The diagnosis of a layout; without remedies where something that it does not model, a network, set the speed."""
    found, rate = diagnose(demand, layout, accelerator, interconnect), main_rate(throughput)
    if found is None or rate is None or throughput.bound_by is None:
        return None
    alone = main_rate(estimate_throughput(demand, layout, accelerator, interconnect))
    if alone is not None and abs(alone - rate) <= SAME_RATE * rate:
        return found
    return Diagnosis(throughput.bound_by, ((throughput.bound_by, 1.0),), ())


def steady_figures(
    demand: ServingDemand,
    layout: Layout,
    accelerator: Accelerator,
    interconnect: Interconnect,
    around: Circumstances,
) -> SteadyFigures | None:
    """Figures of a copy's steady state; ``None`` where its speed is not known or memory holds no request."""
    held = requests_in_memory(demand, layout, accelerator)
    state = steady_state(demand, layout, accelerator, interconnect)
    if state is None or held < 1:
        return None
    full = steady_state(demand, layout, accelerator, interconnect, limit=held)
    if full is None:
        return None
    seen = state.waiting(around.requests_per_s) if around.requests_per_s is not None else None
    return SteadyFigures(
        memory_concurrency=held,
        memory_tokens_per_s=full.tokens_per_s,
        memory_tokens_per_s_per_request=1 / full.paces[-1].token_s,
        largest_requests_per_s=state.rate_within(around.targets),
        busiest_share=BUSIEST,
        asked_requests_per_s=around.requests_per_s,
        asked_time_to_first_token_s=seen.first_token_s if seen else None,
        asked_tokens_per_s_per_request=seen.tokens_per_s if seen else None,
        asked_running=seen.running if seen else None,
    )
