"""Layouts on instance types: sized once per GPU kind, then the one to run on each instance type."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace

from provisioner.catalog.gpus import Gpu
from provisioner.catalog.instances import InstanceType
from provisioner.planner.request import Request, accelerator_for, interconnect_for
from provisioner.planner.work import copies_needed, request_targets
from provisioner.records import record
from provisioner.sizing.accelerator import Accelerator
from provisioner.sizing.demand import ServingDemand
from provisioner.sizing.estimate import estimate_footprint, estimate_throughput
from provisioner.sizing.footprint import Footprint
from provisioner.sizing.layout import Layout
from provisioner.sizing.layouts import feasible_layouts
from provisioner.sizing.throughput import Targets, Throughput, main_rate
from provisioner.vocabulary import Fit, Interconnect, Objective, Task

NEAR_EQUAL_RATE = 0.05
"""Layouts whose predicted rates differ by less are the same speed: the fewer GPUs work, the simpler. Predictions are no better."""


@record(frozen=True, slots=True)
class Arrangement:
    """The workload laid over one or more instances of a type, with its memory and speed."""

    instance: InstanceType
    gpu: Gpu
    accelerator: Accelerator
    layout: Layout
    instances: int
    interconnect: Interconnect
    footprint: Footprint
    throughput: Throughput
    requests_per_s: float | None = None
    """Requests that one copy takes a second while it keeps the targets; ``None`` without targets, or where it is not known."""

    @property
    def gpus_billed(self) -> int:
        """Devices paid for, used or not."""
        return self.instances * self.instance.gpu_count


class Sizer:
    """Sizing of one request, remembered per GPU kind and layout: thousands of offers share a few dozen footprints."""

    def __init__(self, request: Request) -> None:
        self.request = request
        self._layouts: dict[int, tuple[Layout, ...]] = {}
        self._accelerators: dict[tuple[str, float, float], Accelerator] = {}
        self._footprints: dict[tuple[str, int, Layout], Footprint] = {}
        self._rates: dict[tuple[str, int, Layout, Interconnect], Throughput] = {}
        self._capacities: dict[tuple[str, int, Layout, Interconnect, Targets], float | None] = {}

    def lend(self, request: Request) -> Sizer:
        """The same memory for a request that differs in its requirements alone."""
        sizer = Sizer(request)
        sizer._layouts, sizer._accelerators = self._layouts, self._accelerators
        sizer._footprints, sizer._rates, sizer._capacities = self._footprints, self._rates, self._capacities
        return sizer

    def layouts(self, gpus: int) -> tuple[Layout, ...]:
        """Layouts of one copy on at most ``gpus`` GPUs, smallest first; pipeline stages only where the spec asks for them."""
        if gpus not in self._layouts:
            demand = self.request.demand
            layouts = feasible_layouts(demand, gpus)
            if isinstance(demand, ServingDemand) and demand.pipeline_parallel is None:
                layouts = tuple(layout for layout in layouts if layout.pipeline_parallel == 1)
            self._layouts[gpus] = layouts
        return self._layouts[gpus]

    def accelerator(self, gpu: Gpu, instance: InstanceType) -> Accelerator:
        """The GPU as the instance sells it."""
        key = (gpu.model, instance.gpu_fraction, instance.nvlink_bytes_per_s_per_gpu or 0.0)
        if key not in self._accelerators:
            self._accelerators[key] = accelerator_for(gpu, instance)
        return self._accelerators[key]

    def footprint(self, accelerator: Accelerator, layout: Layout) -> Footprint:
        """Memory of one layout on one GPU kind; links do not change it."""
        key = (accelerator.model, accelerator.memory_usable_bytes, layout)
        if key not in self._footprints:
            self._footprints[key] = estimate_footprint(self.request.demand, layout, accelerator)
        return self._footprints[key]

    def throughput(self, accelerator: Accelerator, layout: Layout, interconnect: Interconnect) -> Throughput:
        """Speed of one layout on one GPU kind over one kind of link."""
        key = (accelerator.model, accelerator.memory_usable_bytes, layout, interconnect)
        if key not in self._rates:
            self._rates[key] = estimate_throughput(self.request.demand, layout, accelerator, interconnect)
        return self._rates[key]

    def requests_per_s(self, accelerator: Accelerator, layout: Layout, interconnect: Interconnect) -> float | None:
        """Requests/s that one copy takes while it keeps the targets; ``None`` without targets, or where it is not known."""
        demand, targets = self.request.demand, request_targets(self.request.workload)
        if targets is None or not isinstance(demand, ServingDemand):
            return None
        key = (accelerator.model, accelerator.memory_usable_bytes, layout, interconnect, targets)
        if key not in self._capacities:
            from provisioner.sizing.steady_state import steady_state  # only where targets are asked for

            state = steady_state(demand, layout, accelerator, interconnect)
            self._capacities[key] = state.rate_within(targets) if state is not None else None
        return self._capacities[key]

    def arrangements(self, instance: InstanceType, gpu: Gpu, fits: Sequence[Fit]) -> Iterator[Arrangement]:
        """Every layout on this instance type whose verdict is one of ``fits``, smallest first."""
        accelerator = self.accelerator(gpu, instance)
        placed = ((layout, 1) for layout in self.layouts(instance.gpu_count))
        for layout, machines in (*placed, *self._spanning(instance)):
            footprint = self.footprint(accelerator, layout)
            if footprint.fit in fits:
                link = interconnect_for(instance, layout)
                speed = self.throughput(accelerator, layout, link)
                capacity = self.requests_per_s(accelerator, layout, link)
                together = max(1, instance.gpu_count // layout.gpus_per_replica)
                copies = together if self._fills else copies_needed(self.request.workload, capacity)
                yield Arrangement(
                    instance=instance,
                    gpu=gpu,
                    accelerator=accelerator,
                    layout=layout if copies == layout.replicas else replace(layout, replicas=copies),
                    instances=math.ceil(copies / together) * machines,
                    interconnect=link,
                    footprint=footprint,
                    throughput=speed,
                    requests_per_s=capacity,
                )

    @property
    def _fills(self) -> bool:
        """Whether as many copies run as a machine holds: a batch with ``replicas: auto``, whose work is shared out among them."""
        inference = self.request.workload.inference
        return inference is not None and inference.replicas == "auto" and self.request.workload.task is Task.BATCH

    def _spanning(self, instance: InstanceType) -> tuple[tuple[Layout, int], ...]:
        """Layouts of a copy that the spec asks to span several of these instances, with their number."""
        demand = self.request.demand
        if not isinstance(demand, ServingDemand) or not demand.pipeline_parallel:
            return ()
        from provisioner.planner.clusters import spanning_layouts  # only where it is asked for

        return spanning_layouts(demand, instance.gpu_count)

    def closest_miss(self, instance: InstanceType, gpu: Gpu) -> tuple[Layout, Footprint] | None:
        """The layout that lacks the least memory on this instance type; ``None`` where no layout goes on it."""
        accelerator = self.accelerator(gpu, instance)
        sized = [(layout, self.footprint(accelerator, layout)) for layout in self.layouts(instance.gpu_count)]
        return min(sized, key=lambda pair: pair[1].per_gpu.high_bytes - pair[1].usable_bytes, default=None)


def loaded_weights_bytes(arrangement: Arrangement) -> int:
    """Bytes of one copy's weights over all its GPUs (the fullest one times the degrees: at most a little high)."""
    layout = arrangement.layout
    return arrangement.footprint.per_gpu.weights_bytes * layout.tensor_parallel * layout.pipeline_parallel


def best_arrangement(request: Request, arrangements: Sequence[Arrangement]) -> Arrangement:
    """The layout to run on one instance type: fewest instances, then the fastest, then (near-equal) the fewest GPUs a copy.

    The fastest is that of all copies together, or for ``latency`` the faster stream of one request.
    """
    latency = request.workload.optimize == Objective.LATENCY
    fewest = min(arrangement.instances for arrangement in arrangements)
    pool = [arrangement for arrangement in arrangements if arrangement.instances == fewest]
    rates = [_rate(arrangement, latency=latency) for arrangement in pool]
    floor = max(rates) * (1 - NEAR_EQUAL_RATE)
    fast = [arrangement for arrangement, rate in zip(pool, rates, strict=True) if rate >= floor]
    return min(fast, key=lambda arrangement: (arrangement.layout.gpus_per_replica, arrangement.layout))


def _rate(arrangement: Arrangement, *, latency: bool) -> float:
    throughput = arrangement.throughput
    if latency:
        return throughput.tokens_per_s_per_request or main_rate(throughput) or 0.0
    return (main_rate(throughput) or 0.0) * arrangement.layout.replicas
