"""How much work a workload has, and how many copies and hours a layout of known speed takes for it."""

from __future__ import annotations

import math
from functools import cache

from provisioner.sizing.demand import Demand, ServingDemand
from provisioner.sizing.start_up import start_up
from provisioner.sizing.throughput import Targets, Throughput
from provisioner.units import HOURS_PER_MONTH
from provisioner.vocabulary import Engine, Pattern, Task
from provisioner.workload.quantities import ReplicaRange
from provisioner.workload.spec import Workload

ROUNDING = 1e-9
"""Share by which a quotient of floats may exceed a whole number and still be it."""

BURSTY_HOURS_PER_MONTH = 120.0
"""Hours a month of a bursty workload that names none (CONTRACTS 4)."""


@cache  # asked for each arrangement, and the same for all of a plan
def start_hours(weights_bytes: int, engine: Engine | None) -> float:
    """Hours from the first billed second to the first useful one: the usual start that a plan shows."""
    return start_up(weights_bytes, engine).usual_s / 3600


def request_targets(workload: Workload) -> Targets | None:
    """What the spec promises each request; ``None`` where it names no target at all."""
    inference = workload.inference
    targets = inference.targets if inference is not None else None
    if targets is None:
        return None
    first = targets.time_to_first_token
    return Targets(first.total_seconds() if first is not None else None, targets.tokens_per_second_per_request)


def copies_needed(workload: Workload, capacity: float | None) -> int:
    """Serving copies: as asked, or as many as ``requests_per_second`` takes within the range asked for.

    ``capacity`` is the requests/s that one copy takes while it keeps the other targets, ``None`` where that is not known.
    """
    inference = workload.inference
    if inference is None:
        return 1
    replicas, targets = inference.replicas, inference.targets
    wanted = targets.requests_per_second if targets else None
    if isinstance(replicas, int):
        return replicas
    lowest, highest = (replicas.minimum, replicas.maximum) if isinstance(replicas, ReplicaRange) else (1, None)
    if wanted is None:
        return lowest
    copies = max(lowest, math.ceil(wanted / capacity * (1 - ROUNDING))) if capacity else lowest
    return min(copies, highest) if highest is not None else copies


def work_hours(workload: Workload, demand: Demand, throughput: Throughput, copies: int) -> float | None:
    """Hours that an amount of work takes once it runs; ``None`` where there is none, or its rate is unknown.

    Tokens of a batch are generated tokens: reading the prompts is in the rate of requests.
    """
    if workload.training is not None:
        rate = throughput.train_tokens_per_s
        return workload.training.tokens / rate / 3600 if workload.training.tokens and rate else None
    if workload.task is not Task.BATCH or workload.inference is None:
        return None
    total, rate = workload.inference.total, None
    if total is not None and total.unit == "tokens" and isinstance(demand, ServingDemand):
        requests = throughput.requests_per_s
        rate = requests * demand.output_tokens if requests else None
    elif total is not None and total.unit in ("images", "clips"):  # the rate of a video model counts whole clips
        rate = throughput.images_per_s
    elif total is not None and total.unit == "audio hours" and throughput.realtime_factor:
        rate = throughput.realtime_factor / 3600
    return float(total.amount) / (rate * copies) / 3600 if total is not None and rate else None


def stated_hours(workload: Workload) -> float | None:
    """Length of a run that the spec states itself (``duration``)."""
    stated = workload.training.duration if workload.training is not None else None
    if workload.task is Task.BATCH and workload.inference is not None:
        stated = workload.inference.duration
    return stated.total_seconds() / 3600 if stated is not None else None


def has_known_work(workload: Workload) -> bool:
    """Whether the spec says how much a run has to do."""
    if workload.training is not None:
        return workload.training.tokens is not None or workload.training.duration is not None
    inference = workload.inference
    if workload.task is not Task.BATCH or inference is None:
        return False
    return inference.total is not None or inference.duration is not None


def hours_per_month(workload: Workload, predicted_run_hours: float | None) -> float:
    """Hours that a month is billed for: as asked, the run's own, else by the pattern of use."""
    asked = workload.lifecycle.hours_per_month
    if asked is not None:
        return asked
    if predicted_run_hours is not None:
        return predicted_run_hours
    pattern = workload.lifecycle.pattern or (Pattern.STEADY if workload.task is Task.SERVE else Pattern.BURSTY)
    return float(HOURS_PER_MONTH) if pattern is Pattern.STEADY else BURSTY_HOURS_PER_MONTH
