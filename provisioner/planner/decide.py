"""One plan from a workload and a catalog: pure, no clock, no network; same inputs, same plan."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import fields, replace
from typing import TYPE_CHECKING, Any

from provisioner.catalog.snapshot import Catalog
from provisioner.planner.candidates import Arrangement
from provisioner.planner.clusters import instances_per_copy
from provisioner.planner.contrast import why_not
from provisioner.planner.disk_speed import speed_reasons, with_worthwhile_disks
from provisioner.planner.economics import cost_of_choice, origin_of
from provisioner.planner.explain import reasons
from provisioner.planner.largest import largest_that_fits
from provisioner.planner.launch import launch_argv, launch_env
from provisioner.planner.notes import plan_warnings
from provisioner.planner.plan import Alternative, Plan, PlannedOffer
from provisioner.planner.ranking import Candidate
from provisioner.planner.request import Request, request_for
from provisioner.planner.search import Market, Outcome, search
from provisioner.planner.supply import SCARCE, likeliest_zones_first, supply_reason, supply_warnings
from provisioner.sizing.throughput import Throughput
from provisioner.vocabulary import CapacityType
from provisioner.workload.spec import Workload

if TYPE_CHECKING:
    from provisioner.sizing.outlook import Outlook

NOTHING_FITS = "nothing-fits"
FAILOVER_MAX = 25
"""Offers tried before giving up: as many as cover the zones of a few regions, few enough to end within minutes."""
FAILOVER_PER_TYPE_MAX = 12
"""Offers of one instance type among them: a shortage of a type is often everywhere, so other types get their turn."""
FAILOVER_ON_DEMAND = 5
"""On-demand offers at the end of a spot choice's list: when no spot is left anywhere, the work still runs."""
ALTERNATIVES_MAX = 10


def make_plan(workload: Workload, catalog: Catalog, *, provider: str | None = None, explain: bool = False) -> Plan:
    """The plan of a workload on a catalog; ``provider`` is ``--cloud``, ``explain`` also plans what would change the answer.

    The verdict ``nothing-fits`` is a normal answer, with ``choice`` ``None`` and ``closest`` changes.

    Raises:
        KeyedSpecError: the spec names a model, region, instance type or GPU that is not known, or leaves no cloud.
    """
    request = request_for(workload, catalog, provider)
    market = Market(catalog)
    outcome = search(request, market)
    if not outcome.candidates:
        return _refusal(request, market, outcome)
    plan = _plan(request, market, outcome)
    if not explain:
        return plan
    from provisioner.planner.what_if import what_if  # many searches: only where they are asked for

    return replace(plan, what_if=what_if(request, market, outcome.candidates[0]))


def _plan(request: Request, market: Market, outcome: Outcome) -> Plan:
    catalog = market.catalog
    ranked = likeliest_zones_first(catalog, outcome.candidates[0])
    best = with_worthwhile_disks(ranked)
    failover = _failover(catalog, (best, *outcome.candidates[1:]))
    arrangement = best.arrangement
    footprint = arrangement.footprint
    accelerator_bytes = arrangement.accelerator.memory_usable_bytes
    return replace(
        _frame(request, market, outcome),
        verdict=str(outcome.fit),
        choice=replace(
            _planned(catalog, best),
            reasons=(
                *reasons(request, market, outcome, ranked),
                *speed_reasons(ranked),
                *supply_reason(catalog, best),
            ),
        ),
        footprint=footprint,
        largest=largest_that_fits(request.demand, replace(arrangement.layout, replicas=1), arrangement.accelerator),
        throughput=_rounded(arrangement.throughput),
        outlook=_outlook(request, arrangement),
        cost=cost_of_choice(best.terms),
        storage=origin_of(best.terms).account.items(best.offer.region),
        launch_argv=launch_argv(
            request,
            arrangement.layout,
            footprint.usable_bytes / accelerator_bytes,
            instances_per_copy(arrangement.layout, arrangement.instance.gpu_count),
        ),
        launch_env=launch_env(request, arrangement.layout),
        failover=failover,
        alternatives=_alternatives(request, catalog, outcome.candidates),
        warnings=(*plan_warnings(request, market, best, outcome.fit), *supply_warnings(failover)),
    )


def _outlook(request: Request, arrangement: Arrangement) -> Outlook:
    from provisioner.planner.outlooks import arrangement_outlook  # judging a plan needs none of it

    return arrangement_outlook(request, arrangement)


def _refusal(request: Request, market: Market, outcome: Outcome) -> Plan:
    from provisioner.planner.closest import (
        closest_changes,
    )  # only where nothing fits: a plan that fits must not wait for it

    return replace(_frame(request, market, outcome), closest=closest_changes(request, market, outcome))


def _frame(request: Request, market: Market, outcome: Outcome) -> Plan:
    """What every plan has: whose it is, from which catalog, and every no."""
    workload, catalog = request.workload, market.catalog
    return Plan(
        workload_name=workload.name,
        task=str(workload.task),
        workload_digest=workload.digest,
        workload_spec=workload.to_document(),
        catalog_digest=catalog.digest,
        catalog_as_of=catalog.as_of,
        verdict=NOTHING_FITS,
        choice=None,
        footprint=None,
        throughput=None,
        cost=None,
        rejections=outcome.ledger.rejections(market.catalog.regions_offering),
    )


def _planned(catalog: Catalog, candidate: Candidate, zone: str | None = None) -> PlannedOffer:
    arrangement, offer = candidate.arrangement, candidate.offer
    instance = arrangement.instance
    zone = zone if zone is not None else candidate.offer.zones[0]
    supply = catalog.supply_of(offer, zone)
    return PlannedOffer(
        cloud=offer.cloud,
        region=offer.region,
        zone=zone,
        instance_type=instance.name,
        instances=arrangement.instances,
        gpu=arrangement.gpu.gpu_class,
        gpus_per_instance=float(instance.gpu_fraction if instance.gpu_fraction < 1 else instance.gpu_count),
        capacity_type=str(offer.capacity_type),
        price_usd_per_hour=offer.price_usd_per_hour,
        price_as_of=offer.price_as_of,
        interconnect=str(arrangement.interconnect),
        layout=arrangement.layout,
        supply=supply.likelihood,
        supply_as_of=supply.as_of,
    )


def _failover(catalog: Catalog, candidates: Sequence[Candidate]) -> tuple[PlannedOffer, ...]:
    """Offers in the order they are tried, the choice first: same layout, so that the same command runs wherever it lands.

    No instance type takes more than its share while others are left, and a spot choice ends in the best on-demand offers.
    """
    wanted = candidates[0].arrangement
    alike = [candidate for candidate in candidates if _same_launch(candidate.arrangement, wanted)]
    if candidates[0].offer.capacity_type is not CapacityType.SPOT:
        return tuple(_in_turn(catalog, alike, FAILOVER_MAX))
    steady = [candidate for candidate in alike if candidate.offer.capacity_type is not CapacityType.SPOT]
    last = _in_turn(catalog, steady, FAILOVER_ON_DEMAND)
    spot = [candidate for candidate in alike if candidate.offer.capacity_type is CapacityType.SPOT]
    return (*_in_turn(catalog, spot, FAILOVER_MAX - len(last)), *last)


def _in_turn(catalog: Catalog, candidates: Sequence[Candidate], limit: int) -> list[PlannedOffer]:
    """Offers of candidates, zone by zone, scarce ones last: up to a share per instance type first, then what is left over."""
    first: list[PlannedOffer] = []
    later: list[PlannedOffer] = []
    scarce: list[PlannedOffer] = []
    per_type: dict[str, int] = {}
    for candidate in candidates:
        if len(first) >= limit:
            break
        for zone in likeliest_zones_first(catalog, candidate).offer.zones:
            offer = _planned(catalog, candidate, zone)
            count = per_type[offer.instance_type] = per_type.get(offer.instance_type, 0) + 1
            if offer.supply == SCARCE and first:
                scarce.append(offer)
            else:
                (first if count <= FAILOVER_PER_TYPE_MAX else later).append(offer)
    return [*first, *later, *scarce][:limit]


def _same_launch(one: Arrangement, other: Arrangement) -> bool:
    return one.layout == other.layout and one.instances == other.instances


def _alternatives(request: Request, catalog: Catalog, candidates: Sequence[Candidate]) -> tuple[Alternative, ...]:
    """The best offer of each other instance type, in the order of the ranking."""
    best: dict[tuple[str, str], Candidate] = {}
    for candidate in candidates:
        best.setdefault((candidate.offer.cloud, candidate.offer.instance.name), candidate)
    others: Iterable[Candidate] = list(best.values())[1 : ALTERNATIVES_MAX + 1]
    return tuple(
        Alternative(
            _planned(catalog, each),
            replace(each.arrangement.footprint, assumptions=()),
            replace(with_worthwhile_disks(each).bill.cost, lines=()),
            why_not(request, candidates[0], each),
        )
        for each in others
    )


def _rounded(throughput: Throughput) -> Throughput:
    """Rates to four digits: predictions are no better, and the last bits of a float must not reach a document."""

    def short(value: float) -> float:
        return float(f"{value:.4g}")

    rates: dict[str, Any] = {each.name: getattr(throughput, each.name) for each in fields(throughput)}
    rounded: dict[str, Any] = {
        name: short(value) if isinstance(value, float) else value for name, value in rates.items()
    }
    return Throughput(**rounded)
