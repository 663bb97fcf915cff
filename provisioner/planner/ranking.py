"""The order of candidates: what the work costs, one fast GPU before several, speed between near-equals.

The rules, in the words of the documentation:

- ``optimize: cost``: the cheaper bill wins (of the run; of a million tokens where a run's length is unknown; else of the
  month). A copy that spans several GPUs must be clearly cheaper: each doubling of its GPUs counts as ``SPAN_SURCHARGE`` more,
  for the links, the harder failures and the idle ranks that no price shows. Among candidates within ``NEAR_EQUAL_COST`` of
  the cheapest, fewer GPUs a copy are first, then the lowest cost per token.
- ``optimize: throughput``: the higher predicted rate wins; ``latency``: the faster stream of one request, then the earlier
  first token. Within ``NEAR_EQUAL_RATE`` the cheaper one wins. Unknown rates come last.
- Ties: a bill without unknown terms, fewer GPUs, fewer instances, then names.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cached_property

from provisioner.catalog.offers import Lot
from provisioner.planner.candidates import NEAR_EQUAL_RATE, Arrangement
from provisioner.planner.economics import Bill, bill_of
from provisioner.planner.tariff import Terms
from provisioner.planner.work import main_rate
from provisioner.records import record
from provisioner.vocabulary import Objective

SPAN_SURCHARGE = 0.08
"""Share by which each doubling of the GPUs that one copy spans must be cheaper: 8 % for two, 17 % for four, 26 % for eight.
A judgement, not a measurement: half of what a spot market moves in a week, and below the step between neighbouring GPUs."""
NEAR_EQUAL_COST = 0.05
"""Bills that differ by less are equal: regions, disks and predicted rates are not known better."""


@record(frozen=True)
class Candidate:
    """An arrangement on the offers of all zones that have it at one price, with the terms of its bill."""

    arrangement: Arrangement
    offer: Lot
    terms: Terms

    @cached_property
    def bill(self) -> Bill:
        """The whole bill; made when it is asked for, since most candidates are only ranked."""
        return bill_of(self.terms)

    @cached_property
    def rate(self) -> float:
        """Predicted main rate of the whole workload, 0 where it is unknown."""
        return (main_rate(self.arrangement.throughput) or 0.0) * self.arrangement.layout.replicas

    @cached_property
    def score_usd(self) -> float:
        """The bill that ranks, with the surcharge for the GPUs that a copy spans; infinite where the price is unknown."""
        span = math.log2(self.arrangement.layout.gpus_per_replica)
        return self.terms.ranking_usd * math.pow(1 + SPAN_SURCHARGE, span)

    @property
    def usd_per_rate(self) -> float:
        """The score per predicted rate: what a token costs at full load; infinite where the rate is unknown."""
        return self.score_usd / self.rate if self.rate else math.inf


def rank_candidates(candidates: Sequence[Candidate], objective: Objective) -> list[Candidate]:
    """All candidates, best first; the order of the input does not matter."""
    if objective is Objective.COST:
        return _by_cost(candidates)
    return _by_rate(candidates, objective)


def _by_cost(candidates: Sequence[Candidate]) -> list[Candidate]:
    cheapest = min((candidate.score_usd for candidate in candidates), default=0.0)
    near = cheapest * (1 + NEAR_EQUAL_COST)

    def key(candidate: Candidate) -> tuple[object, ...]:
        score = candidate.score_usd
        if score <= near:
            span = candidate.arrangement.layout.gpus_per_replica
            return (0, span, _digits(candidate.usd_per_rate), _digits(score), *_ties(candidate))
        return (1, 0, _digits(score), _digits(candidate.usd_per_rate), *_ties(candidate))

    return sorted(candidates, key=key)


def _by_rate(candidates: Sequence[Candidate], objective: Objective) -> list[Candidate]:
    fastest = max((_speed(candidate, objective) for candidate in candidates), default=0.0)
    near = fastest * (1 - NEAR_EQUAL_RATE)

    def key(candidate: Candidate) -> tuple[object, ...]:
        speed = _speed(candidate, objective)
        first = candidate.arrangement.throughput.time_to_first_token_s
        wait = first if objective is Objective.LATENCY and first is not None else 0.0
        if speed >= near:
            return (0, _digits(candidate.score_usd), _digits(-speed), _digits(wait), *_ties(candidate))
        return (1, _digits(-speed), _digits(wait), _digits(candidate.score_usd), *_ties(candidate))

    return sorted(candidates, key=key)


def _speed(candidate: Candidate, objective: Objective) -> float:
    if objective is Objective.LATENCY:
        rate = candidate.arrangement.throughput.tokens_per_s_per_request
        return rate if rate is not None else candidate.rate
    return candidate.rate


def _ties(candidate: Candidate) -> tuple[object, ...]:
    arrangement, offer = candidate.arrangement, candidate.offer
    return (
        not candidate.terms.is_complete,
        arrangement.gpus_billed,
        arrangement.instances,
        offer.cloud,
        offer.instance.name,
        offer.region,
        str(offer.capacity_type),
        candidate.offer.zones[0] or "",
    )


def _digits(value: float) -> float:
    """Nine significant digits: sums in another order must not decide."""
    return float(f"{value:.9g}") if math.isfinite(value) else value
