"""Places a workload on named offers: footprints, prices and regions, each looked up once per run."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal
from functools import cached_property
from typing import TYPE_CHECKING

from policies.engine_flags import EngineSetting
from policies.facts import UNKNOWN, Candidate, Known, QuotaRoom, Unknown, value_of
from provisioner.catalog.offers import Offer
from provisioner.catalog.snapshot import Catalog
from provisioner.errors import UsageError
from provisioner.planner.decide import make_plan
from provisioner.planner.filters import gpu_asked, instance_type, precision, runtime
from provisioner.planner.judge import OfferFit, offer_fit
from provisioner.planner.plan import Plan, PlannedOffer
from provisioner.planner.request import Request, accelerator_for, demand_for, shape_for
from provisioner.planner.requirements import Requirements, resolve_requirements
from provisioner.records import record
from provisioner.sizing.demand import Demand, ServingDemand, TrainingDemand
from provisioner.sizing.layout import Layout
from provisioner.sizing.layouts import feasible_layouts, layout_objections
from provisioner.sizing.shapes import ModelShape
from provisioner.units import format_usd
from provisioner.vocabulary import CapacityType, Engine
from provisioner.workload.spec import Run, Workload

if TYPE_CHECKING:
    from provisioner.catalog.gpus import Gpu
    from provisioner.catalog.images import DriverFloor
    from provisioner.catalog.instances import InstanceType

DEGREES_MAX = 16
_CUDA_LEAST = re.compile(r"CUDA (\d+)\.(\d+)")


@record(frozen=True, slots=True)
class Place:
    """An offer as a document names it; ``layout`` is what the document wants to run there."""

    key: str
    cloud: Known[str]
    instance_type: Known[str]
    region: Known[str | None] = None
    zone: Known[str | None] = None
    capacity_type: Known[str | None] = None
    instances: Known[int] = 1
    layout: Layout | None = None
    disk_bytes: Known[int | None] = None


@dataclass
class Placer:
    """Facts on offers from one catalog, remembered for the run."""

    catalog: Catalog
    planner: Callable[[Workload], Plan] | None = None
    """Makes the plan of a spec; the planner itself where none is given (``--stack`` keeps a live placement)."""
    _fits: dict[tuple[str, str, str, Layout | None], OfferFit] = field(default_factory=dict)
    _requirements: dict[str, Requirements] = field(default_factory=dict)
    _plans: dict[tuple[str, str | None], Plan] = field(default_factory=dict)

    def candidate(self, workload: Known[Workload], place: Place) -> Candidate:
        """The facts on one offer; whatever depends on something unknown is unknown."""
        cloud, name = place.cloud, place.instance_type
        bare = _uncatalogued(place)
        if isinstance(cloud, Unknown) or isinstance(name, Unknown):
            return bare
        instance = self.catalog.instances.get((cloud, name))
        gpu = self.catalog.gpus.get(instance.gpu_model or "") if instance is not None else None
        offers = self._offers.get((cloud, name), ())
        price, as_of = self._price(offers, place)
        found = replace(
            bare,
            instance=instance,
            gpu=gpu,
            quota=self.quota(instance, place),
            cuda_least=self.cuda_least(workload, gpu),
            price_usd_per_hour=price,
            price_as_of=as_of,
            regions_offered=frozenset(offer.region for offer in offers) if instance is not None else None,
            zones_offered=self._zones(offers, place.region),
        )
        if isinstance(workload, Unknown):
            return found
        fit = self._fit_of(workload, instance, place.layout)
        return replace(
            found,
            fit=fit,
            refusals=self._refusals(workload, instance, gpu),
            breaches=self._breaches(workload, instance, gpu),
            planned=self.planned(workload, instance, gpu, fit),
        )

    def _fit_of(self, workload: Workload, instance: InstanceType | None, layout: Layout | None) -> OfferFit | None:
        """The fit on a row of the catalog; ``None`` where it has no such row."""
        return None if instance is None else self.fit(workload, instance.cloud, instance.name, layout)

    def fit(self, workload: Workload, cloud: str, name: str, layout: Layout | None) -> OfferFit:
        """The fit of a workload on an instance type of the catalog."""
        key = (workload.digest, cloud, name, layout)
        if key not in self._fits:
            self._fits[key] = offer_fit(workload, self.catalog, cloud, "", name, layout)
        return self._fits[key]

    def _refusals(self, workload: Workload, instance: InstanceType | None, gpu: Gpu | None) -> dict[str, str]:
        """Why a GPU cannot run the workload, by planner filter."""
        if instance is None or gpu is None:
            return {}
        request = Request(workload, self.shape(workload), self.demand(workload), Requirements())
        found = {}
        for check in (runtime, precision):
            if refusal := check(request, instance, gpu):
                needed = f" (needed: {refusal.needed})" if refusal.needed else ""
                found[refusal.filter] = f"{refusal.reason}{needed}"
        return found

    def _breaches(self, workload: Workload, instance: InstanceType | None, gpu: Gpu | None) -> Known[Mapping[str, str]]:
        """Why an instance type is none of those that the spec names, by planner filter."""
        if instance is None or gpu is None:
            return UNKNOWN
        key = workload.digest
        if key not in self._requirements:
            self._requirements[key] = resolve_requirements(workload, self.catalog, None)
        request = Request(workload, self.shape(workload), self.demand(workload), self._requirements[key])
        refusals = (check(request, instance, gpu) for check in (instance_type, gpu_asked))
        return {
            refusal.filter: f"{refusal.available} is {refusal.reason}" for refusal in refusals if refusal is not None
        }

    def planned(
        self, workload: Workload, instance: InstanceType | None, gpu: Gpu | None, fit: OfferFit | None
    ) -> dict[EngineSetting, Known[str]]:
        """How the engine would be started on an offer; empty where the spec leaves that to us, or nothing can be sized."""
        run, demand = workload.run, self.demand(workload)
        if not isinstance(run, Run) or not (run.command or run.env):
            return {}
        if instance is None or gpu is None or fit is None or fit.footprint is None or fit.layout is None:
            return {}
        if isinstance(demand, TrainingDemand):
            found: dict[EngineSetting, Known[str]] = {
                EngineSetting.MICRO_BATCH: str(demand.micro_batch),
                EngineSetting.SEQUENCE: str(demand.sequence_tokens),
            }
            if fit.layout.gpus_per_replica <= instance.gpu_count:  # over several machines, tools count differently
                found[EngineSetting.PROCESSES] = str(fit.layout.gpus_per_replica)
            return found
        if not isinstance(demand, ServingDemand):
            return {}
        adapters = workload.model.adapters
        slots = demand.concurrency if demand.engine is Engine.LLAMA_CPP else 1
        share = fit.footprint.usable_bytes / accelerator_for(gpu, instance).memory_usable_bytes
        return {
            EngineSetting.TENSOR_PARALLEL: str(fit.layout.tensor_parallel),
            EngineSetting.PIPELINE_PARALLEL: str(fit.layout.pipeline_parallel),
            EngineSetting.CONTEXT: str(demand.context_tokens * slots),
            EngineSetting.MEMORY_SHARE: f"{share:.2f}",
            EngineSetting.QUANTISATION: demand.weights,
            EngineSetting.CACHE_SHARE: f"{share:.2f}",
            EngineSetting.KV_CACHE: str(demand.kv_dtype),
            EngineSetting.KV_VALUES: str(demand.kv_dtype),
            EngineSetting.GPU_LAYERS: str(demand.model.num_layers),
            EngineSetting.CONCURRENCY: str(demand.concurrency),
            EngineSetting.ADAPTERS: str(len(adapters)),
            EngineSetting.ADAPTER_RANK: _adapter_rank(demand) if adapters else "0",
        }

    def quota(self, instance: InstanceType | None, place: Place) -> Known[QuotaRoom | None]:
        """What an offer takes of the account's quota; ``None`` where it takes none that is known, or no quota was ever read."""
        if instance is None or not self.catalog.has_account_quotas:
            return None
        if (
            isinstance(place.capacity_type, Unknown)
            or isinstance(place.instances, Unknown)
            or isinstance(place.region, Unknown)
        ):
            return UNKNOWN
        kind = place.capacity_type or CapacityType.ON_DEMAND
        need = self.catalog.quota_need(instance, CapacityType(kind)) if kind in list(CapacityType) else None
        if need is None or place.region is None:
            return None
        account = self.catalog.account_quota(instance.cloud, place.region, need.quota.code)
        return QuotaRoom(
            name=need.quota.name,
            code=need.quota.code,
            unit=need.quota.unit,
            needed=need.units * place.instances,
            limit=account.limit if account is not None else None,
            as_of=account.as_of if account is not None else None,
        )

    def driver_floor(self, gpu: Gpu | None) -> DriverFloor | None:
        """Which drivers and CUDA versions know a GPU; ``None`` where that is not noted."""
        capability = gpu.compute_capability if gpu is not None else None
        if capability is None:
            return None
        return next((row for row in self.catalog.driver_floors if capability in row.compute_capabilities), None)

    def cuda_least(self, workload: Known[Workload], gpu: Gpu | None) -> tuple[int, int] | None:
        """The oldest CUDA version that knows a GPU; ``None`` where any will do or that is not noted, or no container asks."""
        if not isinstance(workload, Unknown) and value_of(workload, "run.image") is None:
            return None
        floor = self.driver_floor(gpu)
        match = _CUDA_LEAST.search(floor.cuda) if floor is not None else None
        return (int(match[1]), int(match[2])) if match else None

    def shape(self, workload: Workload) -> ModelShape:
        """The shape of the workload's model.

        Raises:
            KeyedSpecError: the model is not known or not modelled.
        """
        return shape_for(workload)

    def demand(self, workload: Workload) -> Demand:
        """What sizing is asked."""
        return demand_for(workload, self.shape(workload))

    def objections(self, workload: Workload, layout: Layout) -> tuple[str, ...]:
        """Why a model cannot be laid out in a way."""
        return tuple(layout_objections(self.demand(workload), layout))

    def degrees(self, workload: Workload) -> tuple[int, ...]:
        """Tensor-parallel degrees that divide the model."""
        demand = self.demand(workload)
        if isinstance(demand, ServingDemand):
            demand = replace(demand, tensor_parallel=None, pipeline_parallel=None)
        layouts = feasible_layouts(demand, DEGREES_MAX)
        return tuple(sorted({layout.tensor_parallel for layout in layouts}))

    def plan(self, workload: Workload, cloud: str | None = None) -> Plan:
        """The planner's answer, on the offers of one cloud where it is named.

        Raises:
            KeyedSpecError: the spec names a model, region, instance type or GPU that is not known.
        """
        key = (workload.digest, cloud)
        if key not in self._plans:
            self._plans[key] = make_plan(workload, self.catalog, provider=cloud)
        return self._plans[key]

    def plan_of_spec(self, workload: Workload) -> Plan:
        """The plan that ``gpuprov plan`` gives.

        Raises:
            KeyedSpecError: the spec names a model, region, instance type or GPU that is not known.
        """
        return self.planner(workload) if self.planner is not None else self.plan(workload)

    def suggestion(self, workload: Workload, cloud: str | None = None) -> str | None:
        """What would hold the workload, in words; ``None`` where the planner has no answer either."""
        clouds = workload.placement.clouds
        try:
            plan = self.plan(_without_pin(workload), cloud if cloud in clouds else None)
        except UsageError:
            return None
        if plan.choice is None:
            return f"smallest change: {plan.closest[0]}" if plan.closest else None
        return f"take {describe_offer(plan.choice)}"

    @cached_property
    def _offers(self) -> dict[tuple[str, str], list[Offer]]:
        found: dict[tuple[str, str], list[Offer]] = {}
        for offer in self.catalog.offers():
            found.setdefault((offer.cloud, offer.instance.name), []).append(offer)
        return found

    def regions_offered(self, cloud: str, instance_type: str) -> frozenset[str]:
        """Regions that sell an instance type."""
        return frozenset(offer.region for offer in self._offers.get((cloud, instance_type), ()))

    @staticmethod
    def _price(offers: Sequence[Offer], place: Place) -> tuple[Known[Decimal | None], Known[str | None]]:
        """Catalog price of an offer, and its date; the dearest where the region is not named."""
        if (
            isinstance(place.region, Unknown)
            or isinstance(place.capacity_type, Unknown)
            or isinstance(place.zone, Unknown)
        ):
            return UNKNOWN, UNKNOWN
        capacity = place.capacity_type or "on-demand"
        rows = [offer for offer in offers if offer.capacity_type == capacity and place.region in (None, offer.region)]
        exact = [offer for offer in rows if offer.zone == place.zone] or rows
        priced = [offer for offer in exact if offer.price_usd_per_hour is not None]
        if not priced:
            return None, None
        dearest = max(priced, key=lambda offer: offer.price_usd_per_hour or Decimal(0))
        return dearest.price_usd_per_hour, dearest.price_as_of

    @staticmethod
    def _zones(offers: Sequence[Offer], region: Known[str | None]) -> Known[frozenset[str] | None]:
        if isinstance(region, Unknown):
            return UNKNOWN
        zones = {offer.zone for offer in offers if offer.region == region}
        return None if None in zones or not zones else frozenset(zone for zone in zones if zone is not None)


def place_of(key: str, offer: PlannedOffer) -> Place:
    """An offer of a plan as a place."""
    return Place(
        key=key,
        cloud=offer.cloud,
        instance_type=offer.instance_type,
        region=offer.region,
        zone=offer.zone,
        capacity_type=offer.capacity_type,
        instances=offer.instances,
        layout=offer.layout,
    )


def _uncatalogued(place: Place) -> Candidate:
    """An offer with what its document says; what the catalog would say of it is not known."""
    return Candidate(
        key=place.key,
        cloud=place.cloud,
        instance_type=place.instance_type,
        region=place.region,
        zone=place.zone,
        capacity_type=place.capacity_type,
        instances=place.instances,
        layout=place.layout,
        disk_bytes=place.disk_bytes,
        instance=UNKNOWN,
        gpu=UNKNOWN,
        fit=UNKNOWN,
        price_usd_per_hour=UNKNOWN,
        price_as_of=UNKNOWN,
        refusals=UNKNOWN,
        regions_offered=UNKNOWN,
        zones_offered=UNKNOWN,
        breaches=UNKNOWN,
        planned=UNKNOWN,
        quota=UNKNOWN,
        cuda_least=UNKNOWN,
    )


def _without_pin(workload: Workload) -> Workload:
    """The workload without the instance types and GPUs that someone named."""
    document = workload.to_document()
    for key in ("instance_types", "gpus", "max_gpus"):
        document.get("placement", {}).pop(key, None)
    return Workload.from_document(document)


def describe_offer(offer: PlannedOffer) -> str:
    """An offer for people: type, GPU, place and price."""
    price = f" at {format_usd(offer.price_usd_per_hour, 4)}/h" if offer.price_usd_per_hour is not None else ""
    count = f"{offer.instances} x " if offer.instances > 1 else ""
    return f"{count}{offer.instance_type} ({offer.gpus_per_instance:g} x {offer.gpu}) in {offer.region}{price}"


def _adapter_rank(demand: ServingDemand) -> str:
    from provisioner.sizing.serving_extras import prepared_rank  # only where adapters are served

    return str(prepared_rank(demand))
