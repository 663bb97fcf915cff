"""One search: instance types through filters and sizing, their offers through filters and bills, candidates ranked."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from decimal import Decimal
from typing import NamedTuple

from provisioner.catalog.gpus import Gpu
from provisioner.catalog.instances import InstanceType
from provisioner.catalog.offers import Lot, TypeMarket
from provisioner.catalog.snapshot import Catalog
from provisioner.planner.candidates import Arrangement, Sizer, best_arrangement
from provisioner.planner.clusters import cluster_arrangements, instance_counts, may_span, refuse_cluster
from provisioner.planner.filters import Refusal, refuse_arrangement, refuse_instance
from provisioner.planner.ledger import Ledger
from provisioner.planner.offer_filters import (
    capacity,
    excluded,
    max_price,
    price_known,
    quota,
    refuse_bill,
    spot_is_cheaper,
)
from provisioner.planner.ranking import Candidate, rank_candidates
from provisioner.planner.request import Request
from provisioner.planner.requirements import CLOUDS, name_some
from provisioner.planner.tariff import Tariff
from provisioner.sizing.demand import ServingDemand
from provisioner.sizing.layout import Layout
from provisioner.sizing.layouts import layout_objections
from provisioner.units import format_gib
from provisioner.vocabulary import CapacityType, Fit, Objective


class Market:
    """What a catalog sells, by instance type, with the on-demand prices to compare spot with."""

    def __init__(self, catalog: Catalog) -> None:
        self.catalog = catalog
        self._on_demand: dict[tuple[str, str], dict[str, Decimal]] = {}

    def of(self, instance: InstanceType) -> TypeMarket:
        """How an instance type is sold."""
        return self.catalog.type_market(instance.cloud, instance.name)

    def lowest_on_demand_usd(self, instance: InstanceType) -> Decimal | None:
        """The lowest on-demand price of one instance anywhere."""
        self.on_demand_usd(instance, "")
        return min(self._on_demand[instance.cloud, instance.name].values(), default=None)

    def on_demand_usd(self, instance: InstanceType, region: str) -> Decimal | None:
        """The lowest on-demand price of one instance in a region."""
        key = (instance.cloud, instance.name)
        if key not in self._on_demand:
            found = self._on_demand[key] = {}
            for lot in self.of(instance).lots:
                price = lot.price_usd_per_hour
                if lot.capacity_type is CapacityType.ON_DEMAND and price is not None:
                    found[lot.region] = min(price, found.get(lot.region, price))
        return self._on_demand[key].get(region)


class Outcome(NamedTuple):
    """What a search found: candidates best first, or none, and every no."""

    candidates: tuple[Candidate, ...]
    fit: Fit
    """``fits``; ``borderline`` where only that is left; ``does-not-fit`` where nothing is."""
    ledger: Ledger
    tariff: Tariff
    holding: tuple[Arrangement, ...] = ()
    """Layouts that hold the workload, whether an offer is left for them or not."""


def search(request: Request, market: Market, sizer: Sizer | None = None) -> Outcome:
    """All candidates of a request, best first: those that fit, else those that are borderline."""
    return _Search(request, market, sizer or Sizer(request)).run()


class _Search:
    """State of one search."""

    def __init__(self, request: Request, market: Market, sizer: Sizer) -> None:
        self.request = request
        self.market = market
        self.sizer = sizer
        self.ledger = Ledger()
        self._capacity: dict[tuple[CapacityType, bool], Refusal | None] = {}

    def run(self) -> Outcome:
        tariff = Tariff(self.request, self.market.catalog, self.market.on_demand_usd)
        fitting, tight = self._arrange()
        fit, candidates = Fit.FITS, self._all_candidates(tariff, fitting)
        if not candidates:
            fit, candidates = Fit.BORDERLINE, self._all_candidates(tariff, tight)
        if fit is Fit.FITS:
            for arrangement in tight:
                self.ledger.refuse_type(arrangement.instance, _memory_refusal(arrangement))
        self._note_excluded([*fitting, *(tight if fit is not Fit.FITS else [])])
        if may_span(self.request) and (not candidates or self._wants_speed()):
            found = self._cluster_candidates(tariff)
            if fit is not Fit.FITS and found:
                fit, candidates = Fit.FITS, []
            candidates += found
        objective, is_limited = self.request.workload.optimize, self.request.requirements.has_price_limit
        ranked = tuple(rank_candidates(candidates, objective, is_limited=is_limited))
        return Outcome(ranked, fit if ranked else Fit.DOES_NOT_FIT, self.ledger, tariff, (*fitting, *tight))

    def _wants_speed(self) -> bool:
        """Whether more GPUs than one instance has are asked for: to be fast, within a stated number."""
        wanted = self.request.requirements.max_gpus
        return self.request.workload.optimize is not Objective.COST and wanted is not None

    def _cluster_candidates(self, tariff: Tariff) -> list[Candidate]:
        """Candidates over several instances of each type, where those of one instance are missing or too slow.

        The fewest instances that pass are enough, except where speed is what counts.
        """
        found: list[Candidate] = []
        catalog = self.market.catalog
        for instance in catalog.instances.values():
            gpu = catalog.gpus.get(instance.gpu_model or "")
            if instance.cloud not in CLOUDS or gpu is None or refuse_instance(self.request, instance, gpu):
                continue
            if instance.gpu_count == 0 or not (counts := instance_counts(self.request, instance)):
                continue
            if refusal := refuse_cluster(instance):
                self.ledger.refuse_type(instance, refusal)
                continue
            found += self._spread(tariff, instance, gpu, counts)
        priced = [candidate for candidate in found if candidate.offer.price_usd_per_hour is not None]
        self.ledger.forget({(one.offer.cloud, one.offer.instance.name): one.offer.instance for one in found}.values())
        return priced or found

    def _spread(self, tariff: Tariff, instance: InstanceType, gpu: Gpu, counts: Sequence[int]) -> list[Candidate]:
        """Candidates of one type over more and more instances, with the refusals of the last number that failed."""
        found: list[Candidate] = []
        last = Ledger()
        for count in counts:
            arrangements = tuple(cluster_arrangements(self.sizer, instance, gpu, count, Fit.FITS))
            kept = [one for one in arrangements if not refuse_arrangement(self.request, one)]
            if not kept:
                continue
            last = Ledger()
            found += self._candidates(tariff, best_arrangement(self.request, kept), last)
            if found and self.request.workload.optimize is Objective.COST:
                break
        self.ledger.absorb(last)
        return found

    def _all_candidates(self, tariff: Tariff, arrangements: Sequence[Arrangement]) -> list[Candidate]:
        """Candidates of all arrangements; those of unknown price only where there is no other and no limit to keep."""
        found = [
            candidate
            for arrangement in arrangements
            for candidate in self._candidates(tariff, arrangement, self.ledger)
        ]
        priced = [candidate for candidate in found if candidate.offer.price_usd_per_hour is not None]
        if not priced:
            return found
        for candidate in found:
            if refusal := price_known(candidate.offer):
                self.ledger.refuse_offer(candidate.offer, refusal)
        return priced

    def _arrange(self) -> tuple[list[Arrangement], list[Arrangement]]:
        """The layout to run on each instance type that holds the workload, and on each that is borderline."""
        fitting: list[Arrangement] = []
        tight: list[Arrangement] = []
        catalog = self.market.catalog
        for (cloud, _), instance in catalog.instances.items():
            gpu = catalog.gpus.get(instance.gpu_model or "")
            if cloud not in CLOUDS or gpu is None or instance.gpu_count == 0:
                continue
            if refusal := refuse_instance(self.request, instance, gpu):
                self.ledger.refuse_type(instance, refusal)
            elif found := self._best(instance, gpu):
                (fitting if found.footprint.fit is Fit.FITS else tight).append(found)
        return fitting, tight

    def _best(self, instance: InstanceType, gpu: Gpu) -> Arrangement | None:
        """The layout to run: the best that fits and passes the arrangement filters, else the best borderline one."""
        refusals: list[Refusal] = []
        for fit in (Fit.FITS, Fit.BORDERLINE):
            kept: list[Arrangement] = []
            for arrangement in self.sizer.arrangements(instance, gpu, (fit,)):
                if refusal := refuse_arrangement(self.request, arrangement):
                    refusals.append(refusal)
                else:
                    kept.append(arrangement)
            if kept:
                return best_arrangement(self.request, kept)
        if refusals:
            self.ledger.refuse_type(instance, refusals[0])
        else:
            self._note_miss(instance, gpu)
        return None

    def _note_miss(self, instance: InstanceType, gpu: Gpu) -> None:
        """No layout holds the workload here: say by how much the best one misses."""
        miss = self.sizer.closest_miss(instance, gpu)
        if miss is None:
            count = f"{instance.gpu_count} GPU" + ("s" if instance.gpu_count > 1 else "")
            objection = self._objection()
            self.ledger.refuse_type(
                instance,
                Refusal("layout", objection)
                if objection
                else Refusal("gpu-count", f"no layout asked for goes on {count}", self._degrees(), count),
            )
            return
        layout, footprint = miss
        reason = f"does not fit {gpu.gpu_class} at {layout.gpus_per_replica} GPU{'s' if layout.gpus_per_replica > 1 else ''} a copy"
        high, usable = footprint.per_gpu.high_bytes, footprint.usable_bytes
        self.ledger.refuse_type(
            instance, Refusal("memory", reason, f"{format_gib(high)} per GPU", f"{format_gib(usable)} usable")
        )

    def _objection(self) -> str | None:
        """Why the model cannot be split by the degrees that the spec asks for, on however many GPUs."""
        demand = self.request.demand
        if not isinstance(demand, ServingDemand):
            return None
        asked = Layout(
            tensor_parallel=demand.tensor_parallel or 1,
            pipeline_parallel=demand.pipeline_parallel or 1,
        )
        return next(iter(layout_objections(demand, asked)), None)

    def _degrees(self) -> str | None:
        inference = self.request.workload.inference
        if inference is None:
            return None
        asked = {"tensor_parallel": inference.tensor_parallel, "pipeline_parallel": inference.pipeline_parallel}
        return ", ".join(f"{name} {degree}" for name, degree in asked.items() if degree != "auto") or None

    def _candidates(self, tariff: Tariff, arrangement: Arrangement, ledger: Ledger) -> list[Candidate]:
        """Candidates of one arrangement: its offers that pass, one per region, capacity type and price."""
        account = tariff.account(arrangement)
        catalog, instances = self.market.catalog, arrangement.instances
        is_cluster = arrangement.layout.gpus_per_replica > arrangement.instance.gpu_count
        has_quotas = self.request.requirements.keeps_quotas and catalog.knows_account_quotas
        found: list[Candidate] = []
        for lot in self._in_regions(arrangement.instance, ledger):
            if self._refuse_capacity(lot, is_cluster=is_cluster):
                continue
            if refusal := (quota(catalog, lot, instances) if has_quotas else None) or self._refuse_price(
                lot, instances
            ):
                ledger.refuse_offer(lot, refusal)
            else:
                candidate = Candidate(arrangement, lot, account.terms(lot))
                if refusal := refuse_bill(self.request, candidate):
                    ledger.refuse_offer(lot, refusal)
                else:
                    found.append(candidate)
        return found

    def _in_regions(self, instance: InstanceType, ledger: Ledger) -> Sequence[Lot]:
        """Offers in the regions asked for; where none is left, the record names the regions that have the type."""
        lots, wanted = self.market.of(instance).lots, self.request.requirements.regions
        if wanted is None:
            return lots
        inside = [lot for lot in lots if lot.region in wanted]
        if not inside:
            has = sorted({lot.region for lot in lots})
            reason = "not offered in placement.regions" if has else "not offered in any region"
            ledger.refuse_type(instance, Refusal("region", reason, name_some(wanted), ", ".join(has) or None))
        return inside

    def _refuse_capacity(self, offer: Lot, *, is_cluster: bool = False) -> bool:
        """Whether offers of this capacity type are out; asked once per type, since it holds for all of them."""
        key = (offer.capacity_type, is_cluster)
        if key not in self._capacity:
            self._capacity[key] = capacity(self.request, offer, is_cluster=is_cluster)
            if refusal := self._capacity[key]:
                self.ledger.refuse_capacity(offer, refusal)
        return self._capacity[key] is not None

    def _refuse_price(self, offer: Lot, instances: int) -> Refusal | None:
        requirements = self.request.requirements
        unjudged = offer.capacity_type is CapacityType.SPOT and requirements.capacity == "auto"
        if (requirements.has_price_limit or unjudged) and (refusal := price_known(offer)):
            return refusal
        if offer.capacity_type is CapacityType.SPOT and offer.price_usd_per_hour is not None:
            on_demand = self.market.on_demand_usd(offer.instance, offer.region)
            if refusal := spot_is_cheaper(offer.price_usd_per_hour, on_demand):
                return refusal
        return max_price(self.request, offer, instances)

    def _note_excluded(self, arrangements: Iterable[Arrangement]) -> None:
        """Offers that the catalog keeps aside, for instance types that would hold the workload."""
        regions = self.request.requirements.regions
        for arrangement in arrangements:
            for aside in self.market.of(arrangement.instance).excluded:
                if (regions is None or aside.region in regions) and not self._refuse_capacity(aside):
                    self.ledger.refuse_offer(aside, excluded(self.market.catalog, aside))


def _memory_refusal(arrangement: Arrangement) -> Refusal:
    terms, usable = arrangement.footprint.per_gpu, arrangement.footprint.usable_bytes
    reason = "borderline: the high end of the prediction does not fit"
    return Refusal("memory", reason, f"{format_gib(terms.high_bytes)} per GPU", f"{format_gib(usable)} usable")
