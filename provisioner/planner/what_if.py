"""What would change the answer: single changes to the spec whose plan is cheaper or faster, each found by planning it."""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import islice

from provisioner.planner.candidates import Sizer
from provisioner.planner.changes import Change, Dial, demand_changes, demand_dials, opened, requirement_changes
from provisioner.planner.ranking import Candidate, speed_of
from provisioner.planner.request import Request
from provisioner.planner.search import Market, search
from provisioner.planner.spoken import DEARER, FASTER, spoken_cost, times
from provisioner.planner.spot import intolerance
from provisioner.vocabulary import CapacityType, Fit, Objective

ANSWERS_MAX = 6
CHEAPER = 0.95
"""A bill has to fall below this share to be worth a line: nearer ones are equal (``ranking.NEAR_EQUAL_COST``)."""
FASTER_BY = 1.1
"""The same for the speed where that is what ranks."""
DIAL_PARTS = (2, 4, 8)
"""A number is tried at a half, a quarter and an eighth: the first that moves the answer is named."""
SAME_BILL = 0.02
"""Bills that differ by less read as the same answer."""


def what_if(request: Request, market: Market, choice: Candidate) -> tuple[str, ...]:
    """Changes in words with what they would plan to, at most ``ANSWERS_MAX``."""
    return tuple(islice(_Probe(request, market, choice).texts(), ANSWERS_MAX))


class _Probe:
    """Searches with one change each, against the choice."""

    def __init__(self, request: Request, market: Market, choice: Candidate) -> None:
        self._request = request
        self._market = market
        self._choice = choice
        self._sizer = Sizer(request)
        self._named: list[tuple[str, str, float]] = []

    def texts(self) -> Iterator[str]:
        """Numbers lowered, words exchanged, requirements opened; a value that leads where another of its key does is left out."""
        for dial in demand_dials(self._request):
            if text := self._turn(dial):
                yield text
        for change in demand_changes(self._request):
            if text := self._try(change):
                yield text
        for change in (*requirement_changes(self._request), *self._other_capacity()):
            if text := self._try(change):
                yield text

    def _other_capacity(self) -> Iterator[Change]:
        """Spot, where it was not looked at; without the endpoint's own reason against it nobody should take it."""
        is_asked_already = self._request.requirements.has_price_limit and intolerance(self._request.workload)
        if self._choice.offer.capacity_type is not CapacityType.SPOT and not is_asked_already:
            yield Change(
                opened(self._request, capacity="spot"),
                lambda _: "set placement.capacity to spot, if an interruption may stop it",
            )

    def _turn(self, dial: Dial) -> str | None:
        for part in DIAL_PARTS:
            value = max(1, dial.current // part // dial.step) * dial.step
            if value < dial.current and (found := self._better(dial.turned(value))):
                return self._line(f"lower {dial.key} to {value}", found)
        return None

    def _try(self, change: Change) -> str | None:
        found = self._better(change.request)
        if found is None or not self._is_news(words := change.words(found), found):
            return None
        return self._line(words, found)

    def _is_news(self, words: str, found: Candidate) -> bool:
        """Whether no earlier value of the same key led to the same instance type for about the same bill."""
        key = next((word for word in words.split() if "." in word), words)
        name, bill = found.offer.instance.name, found.terms.ranking_usd
        if any((key, name) == known[:2] and abs(bill / known[2] - 1) < SAME_BILL for known in self._named):
            return False
        self._named.append((key, name, bill))
        return True

    def _better(self, request: Request) -> Candidate | None:
        """The choice of a changed request where it is clearly cheaper, or clearly faster where speed ranks."""
        shared = request.demand is self._request.demand and request.workload is self._request.workload
        outcome = search(request, self._market, self._sizer.lend(request) if shared else None)
        if outcome.fit is not Fit.FITS:
            return None
        first, mine = outcome.candidates[0], self._choice
        objective = self._request.workload.optimize
        if objective is not Objective.COST and speed_of(first, objective) >= FASTER_BY * speed_of(mine, objective):
            return first
        bill, ours = first.terms.ranking_usd, mine.terms.ranking_usd
        if first.terms.basis != mine.terms.basis or not math.isfinite(bill) or bill >= CHEAPER * ours:
            return None
        return first

    def _line(self, words: str, found: Candidate) -> str:
        """``set model.weights to fp8: g2-standard-4 (1 x L4, gcp us-east4), $525.65 a month, 62 % cheaper``."""
        arrangement, offer, objective = found.arrangement, found.offer, self._request.workload.optimize
        count = f"{arrangement.instances} x " if arrangement.instances > 1 else ""
        share = arrangement.instance.gpu_fraction
        gpus = f"{share if share < 1 else arrangement.instance.gpu_count:g} x {arrangement.gpu.gpu_class}"
        place = f"{count}{arrangement.instance.name} ({gpus}, {offer.cloud} {offer.region})"
        facts = [place, spoken_cost(self._request, found)]
        mine = self._choice.terms.ranking_usd
        facts += [times(found.terms.ranking_usd / mine, DEARER)] if math.isfinite(mine) and mine else []
        speed, ours = speed_of(found, objective), speed_of(self._choice, objective)
        facts += [times(speed / ours, FASTER)] if speed and ours else []
        return f"{words}: {', '.join(fact for fact in facts if fact)}"
