"""Nothing fits: the smallest changes that would, each verified by a search of its own."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

from provisioner.planner.candidates import Sizer
from provisioner.planner.changes import Change, Dial, demand_changes, demand_dials, everything_open, requirement_changes
from provisioner.planner.ranking import Candidate
from provisioner.planner.request import Request
from provisioner.planner.requirements import name_some
from provisioner.planner.search import Market, Outcome, search
from provisioner.units import decimal_string
from provisioner.vocabulary import Fit

CHANGES_MAX = 6
"""Changes named: more would be a list to read, not an answer."""
CHANGES_MIN = 3
"""Changes looked for: where single ones give fewer, other values of the same requirement and pairs of changes follow."""


def closest_changes(request: Request, market: Market, outcome: Outcome) -> tuple[str, ...]:
    """Changes in words, the one to make first at the front; empty where even the widest search finds nothing.

    Where some instance type holds the workload and only place, price or speed stand against it, requirements come first; else
    the demand.
    """
    probe = _Probe(request, market, is_short_of_quota=outcome.ledger.has("quota"))
    requirements = probe.requirement_texts()
    demand = probe.demand_texts()
    ordered = [requirements, demand] if outcome.holding else [demand, requirements]
    found: list[str] = []
    for texts in ordered:
        found += islice(texts, CHANGES_MAX - len(found))
    for texts in (probe.other_values(), probe.pair_texts()):
        found += islice((text for text in texts if text not in found), max(0, CHANGES_MIN - len(found)))
    return tuple(found or probe.combined_texts())


class _Probe:
    """Searches with one change each."""

    def __init__(self, request: Request, market: Market, *, is_short_of_quota: bool) -> None:
        self._request = request
        self._market = market
        self._is_short_of_quota = is_short_of_quota
        self._sizer = Sizer(request)
        self._opening: list[tuple[Change, tuple[Candidate, ...]]] = []
        self._asked: set[str] = set()

    def requirement_texts(self) -> Iterator[str]:
        """Requirements that would do when opened."""
        for change in requirement_changes(self._request, is_short_of_quota=self._is_short_of_quota, gives_least=True):
            found = self._search(change.request)
            self._opening.append((change, found))
            if found:
                self._asked.add(change.words(change.pick(found)))
                yield self._text(change, found)

    def demand_texts(self) -> Iterator[str]:
        """Numbers that would do when lowered, then words that would do when exchanged."""
        for dial in demand_dials(self._request):
            if text := self._turn(dial):
                yield text
        for change in demand_changes(self._request):
            if text := self._try(change):
                yield text

    def other_values(self) -> Iterator[str]:
        """Other values that a requirement may be given: the next GPU, region or instance type that would do."""
        for change, found in self._opening:
            if not change.has_values:
                continue
            for candidate in found:
                words = change.words(candidate)
                if words not in self._asked:
                    self._asked.add(words)
                    yield f"{words}: {_place(candidate)}"

    def pair_texts(self) -> Iterator[str]:
        """A requirement opened less far, together with one change to the demand; each requirement once, then again."""
        again: list[str] = []
        for change, _ in self._opening:
            named: set[str] = set()
            for other in demand_changes(change.request):
                found = self._search(other.request)
                words = change.words(change.pick(found)) if found else ""
                if not found or words in self._asked:
                    continue
                text = f"{words} and {other.words(found[0])}: {_place(change.pick(found))}"
                if words in named:
                    again.append(text)
                else:
                    named.add(words)
                    yield text
        yield from again

    def combined_texts(self) -> Iterator[str]:
        """No single change does: open all of the placement, alone and with one change to the demand."""
        widest = everything_open(self._request)
        found = self._search(widest)
        if found:
            yield f"open placement (gpus, instance_types, regions, max_gpus, prices): {_place(found[0])}"
            return
        changes = list(demand_changes(widest))
        for change in changes:
            found = self._search(change.request)
            if found:
                yield f"open placement and {change.words(found[0])}: {_place(found[0])}"
                return
        for dial in demand_dials(widest):
            if text := self._turn(dial):
                yield f"open placement and {text}"
                return

    def _search(self, request: Request) -> tuple[Candidate, ...]:
        """Candidates of a changed request; only those that fit count as an answer."""
        sizer = self._sizer_for(request)
        outcome = search(request, self._market, sizer)
        return outcome.candidates if outcome.fit is Fit.FITS else ()

    def _sizer_for(self, request: Request) -> Sizer | None:
        """Sizing is shared where only requirements differ."""
        if request.demand is not self._request.demand or request.workload is not self._request.workload:
            return None
        return self._sizer.lend(request)

    def _try(self, change: Change) -> str | None:
        found = self._search(change.request)
        return self._text(change, found) if found else None

    def _text(self, change: Change, found: tuple[Candidate, ...]) -> str:
        chosen = change.pick(found)
        text = f"{change.words(chosen)}: {_place(chosen)}"
        if change.request.requirements.regions == self._request.requirements.regions:
            return text
        name = chosen.offer.instance.name
        regions = {one.offer.region for one in found if one.offer.instance.name == name}
        return (
            f"{text}; {name} is also offered in {name_some(regions - {chosen.offer.region})}"
            if len(regions) > 1
            else text
        )

    def _turn(self, dial: Dial) -> str | None:
        """The largest value of a dial that fits, found by halving; the need grows with it."""
        low, high = 0, -(-dial.current // dial.step) - 1
        best: tuple[Candidate, ...] = ()
        value = 0
        while low < high:
            middle = (low + high + 1) // 2
            found = self._search(dial.turned(middle * dial.step))
            if found:
                low, best, value = middle, found, middle * dial.step
            else:
                high = middle - 1
        return f"lower {dial.key} to {value}: {_place(best[0])}" if best else None


def _place(candidate: Candidate) -> str:
    """Where it would fit: ``fits on g6e.xlarge (1 x L40S, aws us-east-1, 1.861 USD/h)``."""
    arrangement, offer = candidate.arrangement, candidate.offer
    count = f"{arrangement.instances} x " if arrangement.instances > 1 else ""
    gpus = f"{arrangement.instance.gpu_count} x {arrangement.gpu.gpu_class}"
    compute = candidate.bill.cost.compute_usd_per_hour
    price = "price unknown" if compute is None else f"{decimal_string(compute)} USD/h"
    return f"fits on {count}{arrangement.instance.name} ({gpus}, {offer.cloud} {offer.region}, {price})"
