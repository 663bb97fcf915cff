"""Steady state of continuous batching: concurrency, throughput and waiting at a request rate, and the rate that targets allow.

One copy runs requests side by side up to a limit. At a given rate so many run that each leaves when the next comes; what a new
request waits for is the pass in progress, the prompts before it, and, near the limit, a free place.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from itertools import accumulate

from provisioner.records import record
from provisioner.sizing.accelerator import Accelerator
from provisioner.sizing.demand import ServingDemand
from provisioner.sizing.layout import Layout
from provisioner.sizing.speed import Pace, ServingSpeed
from provisioner.sizing.throughput import Targets
from provisioner.vocabulary import Interconnect

BUSIEST = 0.9
"""Share of a copy's largest rate up to which it is planned: beyond, waiting grows without bound for any small excess."""
BISECTIONS = 24
MOST_REQUESTS = 4096
"""Bound of running requests where memory sets none."""


@record(frozen=True, slots=True)
class Waiting:
    """What a request sees at some rate."""

    running: float
    """Requests that run at once."""
    first_token_s: float
    """Mean time to the first token: queue, prompt, and the pass in progress."""
    tokens_per_s: float
    """Tokens per second of one request after the first."""


class SteadyState:
    """One serving copy that runs at most ``limit`` requests at once.

    Raises:
        ValueError: the copy's speed is not known (``ServingSpeed.unknown`` says why).
    """

    def __init__(self, speed: ServingSpeed, limit: int) -> None:
        prompt = speed.prompt_s()
        if prompt is None or limit < 1:
            raise ValueError(speed.unknown or "no request fits")
        self.prompt_s = prompt
        self.outputs = max(1, speed.demand.output_tokens)
        counts = [*(2**power for power in range(int(math.log2(limit)) + 1) if 2**power < limit), limit]
        paces = [speed.pace(count) for count in counts]
        self.paces: tuple[Pace, ...] = tuple(pace for pace in paces if pace is not None)
        # More requests never finish fewer a second: where experts or chunks bend the curve, the engine runs fewer at once.
        self._rates = list(accumulate((p.requests / p.round_s / self.outputs for p in self.paces), max))

    @property
    def limit(self) -> int:
        """Requests at once."""
        return self.paces[-1].requests

    @property
    def largest_rate(self) -> float:
        """Requests per second that pass with every place taken."""
        return self._rates[-1]

    @property
    def tokens_per_s(self) -> float:
        """Generated tokens per second with every place taken."""
        return self.largest_rate * self.outputs

    def waiting(self, rate: float) -> Waiting | None:
        """What a request sees at ``rate`` requests per second; ``None`` where the queue would grow for ever."""
        busy = rate / self.largest_rate
        if busy >= 1:
            return None
        running, token_s = self._running(rate)
        read = min(rate * self.prompt_s, busy)
        before = read * self.prompt_s / (2 * (1 - read))
        places = self.limit
        # Waiting for a place, Poisson arrivals, so many servers. Source: Sakasegawa, Ann. Inst. Stat. Math. 29 (1977).
        stay = self.outputs * self.paces[-1].token_s
        place = stay * busy ** (math.sqrt(2 * (places + 1)) - 1) / (places * (1 - busy))
        return Waiting(running, self.prompt_s + token_s / 2 + before + place, 1 / token_s)

    def _running(self, rate: float) -> tuple[float, float]:
        """Requests at once and the time between their tokens at a rate, between the points that were sized."""
        paces, rates = self.paces, self._rates
        if rate <= rates[0] or len(paces) == 1:
            return rate / rates[0], paces[0].token_s
        upper = min(bisect_left(rates, rate), len(rates) - 1)
        low, high = paces[upper - 1], paces[upper]
        span = rates[upper] - rates[upper - 1]
        share = (rate - rates[upper - 1]) / span if span else 1.0
        running = low.requests + share * (high.requests - low.requests)
        return running, low.token_s + share * (high.token_s - low.token_s)

    def rate_within(self, targets: Targets) -> float:
        """Largest requests per second that keep the targets and leave the copy ``BUSIEST`` at most; 0 where none does."""
        low, high = 0.0, self.largest_rate * BUSIEST
        if self._keeps(high, targets):
            return high
        if not self._keeps(high * 1e-4, targets):
            return 0.0
        for _ in range(BISECTIONS):
            middle = (low + high) / 2
            low, high = (middle, high) if self._keeps(middle, targets) else (low, middle)
        return low

    def _keeps(self, rate: float, targets: Targets) -> bool:
        seen = self.waiting(rate)
        if seen is None:
            return False
        is_early = targets.first_token_s is None or seen.first_token_s <= targets.first_token_s
        return is_early and (targets.tokens_per_s is None or seen.tokens_per_s >= targets.tokens_per_s)


def steady_state(
    demand: ServingDemand,
    layout: Layout,
    accelerator: Accelerator,
    interconnect: Interconnect,
    *,
    limit: int | None = None,
) -> SteadyState | None:
    """The steady state of a copy at its concurrency, or at another limit; ``None`` where its speed is not known."""
    speed = ServingSpeed(demand, layout, accelerator, interconnect)
    if speed.unknown:
        return None
    return SteadyState(speed, max(1, min(limit or demand.concurrency, MOST_REQUESTS)))


def requests_in_memory(demand: ServingDemand, layout: Layout, accelerator: Accelerator) -> int:
    """Requests of the full context that a copy's memory holds at once.

    Raises:
        UsageError: the engine serves no language models, or the weight format is not known.
    """
    from provisioner.sizing.serving import cache_pool

    return int(min(cache_pool(demand, layout, accelerator).requests, MOST_REQUESTS))
