"""The order of candidates: what the work costs, one fast GPU before several, speed between near-equals.

The rules, in the words of the documentation:

- ``optimize: cost``: the cheaper bill wins (of the run; of a million tokens where a run's length is unknown; else of the
  month). A copy that spans several GPUs must be clearly cheaper: each doubling of its GPUs counts as ``SPAN_SURCHARGE`` more,
  for the links, the harder failures and the idle ranks that no price shows. Among candidates within ``NEAR_EQUAL_COST`` of
  the cheapest, fewer GPUs a copy are first, then the lowest cost per token.
- ``optimize: throughput`` looks at the predicted rate, ``latency`` at the stream of one request, then at the first token.
  Where the spec states a limit on money (``max_price``, ``budget``), the fastest within it wins. Where it states none, speed
  is bought while it is worth its money: twice the speed may cost up to ``2 ** SPEED_WORTH`` times as much (decision 0008).
  Within ``NEAR_EQUAL_RATE`` the cheaper one wins. Unknown rates come last.
- Ties: a bill without unknown terms, fewer GPUs, fewer instances, where no price is known the smaller card, then names.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cached_property

from provisioner.catalog.offers import Lot
from provisioner.planner.account import Terms
from provisioner.planner.candidates import NEAR_EQUAL_RATE, Arrangement
from provisioner.planner.economics import Bill, bill_of
from provisioner.records import record
from provisioner.sizing.throughput import main_rate
from provisioner.vocabulary import Objective

SPAN_SURCHARGE = 0.08
"""Share by which each doubling of the GPUs that one copy spans must be cheaper: 8 % for two, 17 % for four, 26 % for eight.
A judgement, not a measurement: half of what a spot market moves in a week, and below the step between neighbouring GPUs."""
NEAR_EQUAL_COST = 0.05
"""Bills that differ by less are equal: regions, disks and predicted rates are not known better."""
SPEED_WORTH = 2.0
"""Power of the speed that its price is weighed against: at 2, twice the speed may cost up to four times as much, and ten times
the price has to bring 3.2 times the speed. A judgement (decision 0008): 1 is cost per token again, and from 3 on an 8B model
gets a node of eight GPUs."""


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


BASES = ("run", "tokens", "month")
"""What bills are of, the most telling first (``Terms.basis``)."""


def rank_candidates(
    candidates: Sequence[Candidate], objective: Objective, *, is_limited: bool = False
) -> list[Candidate]:
    """All candidates, best first; the order of the input does not matter.

    ``is_limited``: the spec states what may be spent, so that speed alone decides within it. Where the length of some runs is
    known, offers whose speed nobody can predict come last: the bill of a month says nothing about that of a run.
    """
    groups = {basis: [one for one in candidates if one.terms.basis == basis] for basis in BASES}
    return [one for group in groups.values() for one in _rank_alike(group, objective, is_limited=is_limited)]


def _rank_alike(candidates: Sequence[Candidate], objective: Objective, *, is_limited: bool) -> list[Candidate]:
    """Candidates whose bills are of the same thing."""
    if objective is Objective.COST:
        return _by_cost(candidates)
    return _by_rate(candidates, objective) if is_limited else _by_worth(candidates, objective)


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
    fastest = max((speed_of(candidate, objective) for candidate in candidates), default=0.0)
    near = fastest * (1 - NEAR_EQUAL_RATE)

    def key(candidate: Candidate) -> tuple[object, ...]:
        speed, wait = speed_of(candidate, objective), _wait(candidate, objective)
        if speed >= near:
            return (0, _digits(candidate.score_usd), _digits(-speed), _digits(wait), *_ties(candidate))
        return (1, _digits(-speed), _digits(wait), _digits(candidate.score_usd), *_ties(candidate))

    return sorted(candidates, key=key)


def _by_worth(candidates: Sequence[Candidate], objective: Objective) -> list[Candidate]:
    """By the bill per speed to the power of ``SPEED_WORTH``; by speed alone where no price is known."""
    near = min((_bill_per_worth(candidate, objective) for candidate in candidates), default=0.0) * (1 + NEAR_EQUAL_RATE)

    def key(candidate: Candidate) -> tuple[object, ...]:
        worth, speed = _bill_per_worth(candidate, objective), speed_of(candidate, objective)
        score, rest = _digits(candidate.score_usd), (_digits(_wait(candidate, objective)), *_ties(candidate))
        if worth <= near < math.inf:
            return (0, candidate.arrangement.layout.gpus_per_replica, score, _digits(-speed), *rest)
        return (1, _digits(worth), _digits(-speed), score, *rest)

    return sorted(candidates, key=key)


def _bill_per_worth(candidate: Candidate, objective: Objective) -> float:
    speed = speed_of(candidate, objective)
    return candidate.score_usd / math.pow(speed, SPEED_WORTH) if speed else math.inf


def _wait(candidate: Candidate, objective: Objective) -> float:
    """Time to the first token where it counts and is known."""
    first = candidate.arrangement.throughput.time_to_first_token_s
    return first if objective is Objective.LATENCY and first is not None else 0.0


def speed_of(candidate: Candidate, objective: Objective) -> float:
    """The predicted rate that an objective looks at, 0 where it is unknown."""
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
        arrangement.gpu.memory_nominal_bytes if offer.price_usd_per_hour is None else 0,
        offer.cloud,
        offer.instance.name,
        offer.region,
        str(offer.capacity_type),
        candidate.offer.zones[0] or "",
    )


def _digits(value: float) -> float:
    """Nine significant digits: sums in another order must not decide."""
    return float(f"{value:.9g}") if math.isfinite(value) else value
