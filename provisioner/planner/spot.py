"""When spot pays: who tolerates an interruption, what one costs, and up to which rate spot stays cheaper."""

from __future__ import annotations

import math
from decimal import Decimal
from typing import NamedTuple

from provisioner.planner.work import start_hours
from provisioner.units import HOURS_PER_MONTH
from provisioner.vocabulary import Engine, Task
from provisioner.workload.spec import Workload

CHECKPOINT_INTERVAL_HOURS = 1.0
"""Interval of a training whose checkpoints resume but whose spec names no ``every``."""

UNKNOWN_INTERRUPTIONS_PER_HOUR = 1 / 24
"""Rate used to rank an offer whose interruption rate nobody publishes (all of GCP): one a day, the 24 h limit that preemptible
machines once had. It only ranks: the plan shows the rate and the rework as unknown."""

_RATE_MAX = 0.95
"""Ceiling of a monthly share, so that ``over 20 %`` bands do not become certainty."""


class SpotRisk(NamedTuple):
    """What an interruption of an offer is expected to cost in time.

    ``interruption_rate`` is the share of machines interrupted in a month (``None``: unknown); ``lost_hours`` is the work and
    waiting lost by one interruption.
    """

    interruption_rate: float | None
    lost_hours: float

    @property
    def interruptions_per_hour(self) -> float:
        """Hazard per machine and hour: constant over the month, or the pessimistic stand-in where the rate is unknown."""
        if self.interruption_rate is None:
            return UNKNOWN_INTERRUPTIONS_PER_HOUR
        return -math.log1p(-min(self.interruption_rate, _RATE_MAX)) / HOURS_PER_MONTH

    def stretch(self, machines: int) -> float:
        """Machine hours bought per useful hour, at least 1; infinite where the work never ends.

        An interruption of any of the ``machines`` that work together stops all: T = W + rate x machines x T x lost hours.
        """
        lost_share = self.interruptions_per_hour * machines * self.lost_hours
        return 1 / (1 - lost_share) if lost_share < 1 else math.inf


def interruption_rate(band: tuple[float, float] | None) -> float | None:
    """Middle of an advisor's band, as a share per month."""
    return None if band is None else round((band[0] + band[1]) / 2, 6)


def lost_hours(workload: Workload, weights_bytes: int, engine: Engine | None) -> float:
    """Hours lost by one interruption: half a checkpoint interval on average, then a new machine and its weights.

    A batch of requests keeps what it has finished, so only the restart counts.
    """
    restart = start_hours(weights_bytes, engine)
    if not workload.task.is_training:
        return restart
    checkpoint = workload.training.checkpoint if workload.training else None
    every = checkpoint.every if checkpoint else None
    interval = every.total_seconds() / 3600 if every else CHECKPOINT_INTERVAL_HOURS
    return interval / 2 + restart


def intolerance(workload: Workload) -> str | None:
    """Why ``capacity: auto`` must not take spot for this workload; ``None`` where an interruption costs a restart and no more."""
    if workload.task is Task.SERVE:
        return "an endpoint has nothing to resume from: an interruption is an outage"
    if workload.task is Task.BATCH:
        return None
    checkpoint = workload.training.checkpoint if workload.training else None
    if checkpoint is None or not checkpoint.resumable:
        return "the training has no resumable checkpoint: an interruption would lose the run"
    return None


def breakeven_per_hour(spot_price_usd: Decimal, on_demand_price_usd: Decimal, lost_hours_each: float) -> Decimal | None:
    """Interruptions per hour and machine up to which spot stays cheaper than on-demand; ``None`` where it never is.

    From spot / (1 - rate x lost) = on-demand.
    """
    if spot_price_usd >= on_demand_price_usd or lost_hours_each <= 0:
        return None
    rate = (1 - float(spot_price_usd / on_demand_price_usd)) / lost_hours_each
    return Decimal(f"{rate:.3g}")
