"""Memory and speed of a workload on every GPU kind and layout, without offers and prices."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import field
from typing import Any

from provisioner.catalog.gpus import Gpu
from provisioner.catalog.instances import InstanceType
from provisioner.catalog.snapshot import Catalog
from provisioner.planner.candidates import Sizer
from provisioner.planner.documents import footprint_document, throughput_document
from provisioner.planner.filters import Refusal, precision, runtime
from provisioner.planner.largest import largest_that_fits
from provisioner.planner.outlooks import circumstances_of
from provisioner.planner.request import Request, interconnect_for, request_for
from provisioner.planner.requirements import KeyedSpecError
from provisioner.records import record
from provisioner.sizing.footprint import Footprint
from provisioner.sizing.layout import Layout
from provisioner.sizing.layouts import layout_objections
from provisioner.sizing.outlook import Outlook, outlook_of
from provisioner.sizing.throughput import Throughput
from provisioner.vocabulary import Fit
from provisioner.workload.spec import Workload

SCHEMA = "gpuprov.size/1"
GPUS_MAX = 8
"""GPUs of the largest layout where the spec names no ``placement.max_gpus``: one machine of the usual kind."""


@record(frozen=True, slots=True)
class SizedLayout:
    """One layout on one GPU kind."""

    gpu: str
    layout: Layout
    interconnect: str
    footprint: Footprint
    throughput: Throughput
    outlook: Outlook | None = None
    """How it does at work; only of what fits."""
    largest: Mapping[str, int] = field(default_factory=dict)
    """Numbers of the demand at their largest that fits here, all else as asked; 0 where not even 1 does."""
    refusal: str | None = None
    """Why the workload does not run on this GPU whatever its memory; ``None`` where it does."""

    @property
    def holds(self) -> bool:
        """Whether the workload runs here and its whole band fits."""
        return self.refusal is None and self.footprint.fit is Fit.FITS


def size_workload(workload: Workload, catalog: Catalog, *, provider: str | None = None) -> tuple[SizedLayout, ...]:
    """Every layout on every GPU class that the spec allows, smallest GPU memory first.

    Raises:
        KeyedSpecError: an unknown name in the spec, or a model that is not modelled.
    """
    return tuple(sized_layouts(request_for(workload, catalog, provider), catalog))


def sized_layouts(request: Request, catalog: Catalog, *, with_largest: bool = True) -> Iterator[SizedLayout]:
    """The same one after the other for a request that is made already; the largest values only where they are wanted.

    Raises:
        KeyedSpecError: the model cannot be split as asked.
    """
    sizer = Sizer(request)
    kinds = sorted(_kinds(request, catalog).items(), key=lambda item: (item[1][0].memory_usable_bytes or 0, item[0]))
    if kinds and not sizer.layouts(request.requirements.max_gpus or GPUS_MAX):
        raise _no_layout(request)
    for name, (gpu, instance) in kinds:
        yield from _sized(sizer, name, gpu, instance, with_largest=with_largest)


def _words(refusal: Refusal | None) -> str | None:
    """Why a GPU does not run the workload, what it would need first."""
    if refusal is None:
        return None
    return f"needs {refusal.needed}: {refusal.reason}" if refusal.needed else refusal.reason


def _no_layout(request: Request) -> KeyedSpecError:
    """Why no layout is left: what the degrees that the spec asks for contradict."""
    demand = request.demand
    degrees = ("tensor_parallel", "pipeline_parallel")
    asked = {name: value for name in degrees if (value := getattr(demand, name, None))}
    most = request.requirements.max_gpus or GPUS_MAX
    reasons = layout_objections(demand, Layout(**asked)) or (f"the degrees asked for take more than {most} GPUs",)
    key = next((f"inference.{name}" for name in degrees if asked.get(name, 1) > 1), "placement.max_gpus")
    return KeyedSpecError(
        f"the model cannot be split so: {'; '.join(reasons)}",
        key=key,
        remedy=f"write auto, or a degree that divides its heads and layers, on at most {most} GPUs",
    )


def _sized(sizer: Sizer, name: str, gpu: Gpu, instance: InstanceType, *, with_largest: bool) -> Iterator[SizedLayout]:
    request = sizer.request
    accelerator = sizer.accelerator(gpu, instance)
    refusal = runtime(request, instance, gpu) or precision(request, instance, gpu)
    for layout in sizer.layouts(request.requirements.max_gpus or GPUS_MAX):
        link = interconnect_for(instance, layout)
        footprint, speed = sizer.footprint(accelerator, layout), sizer.throughput(accelerator, layout, link)
        outlook = None
        if refusal is None and footprint.fit is not Fit.DOES_NOT_FIT:
            weights = footprint.per_gpu.weights_bytes * layout.tensor_parallel * layout.pipeline_parallel
            around = circumstances_of(request, weights_bytes=weights)
            outlook = outlook_of(request.demand, layout, accelerator, link, throughput=speed, around=around)
        yield SizedLayout(
            gpu=name,
            layout=layout,
            interconnect=link.value,
            footprint=footprint,
            throughput=speed,
            outlook=outlook,
            largest=largest_that_fits(request.demand, layout, accelerator) if with_largest else {},
            refusal=_words(refusal),
        )


def _kinds(request: Request, catalog: Catalog) -> dict[str, tuple[Gpu, InstanceType]]:
    """GPU class -> its card with least memory, and the largest instance type that sells it whole."""
    wanted = request.requirements
    found: dict[str, tuple[Gpu, InstanceType]] = {}
    for instance in catalog.instances.values():
        gpu = catalog.gpus.get(instance.gpu_model or "")
        if gpu is None or gpu.kind != "gpu" or gpu.memory_usable_bytes is None:
            continue
        if instance.cloud not in wanted.clouds or instance.status != "current" or instance.gpu_fraction < 1:
            continue
        named = wanted.gpu_models is None or gpu.model in wanted.gpu_models
        if not named or gpu.model in wanted.excluded_gpu_models:
            continue
        if wanted.instance_types is not None and instance.name not in wanted.instance_types:
            continue
        known = found.get(gpu.gpu_class)
        rank = (-gpu.memory_usable_bytes, instance.gpu_count, instance.name)
        if known is None or rank > (-(known[0].memory_usable_bytes or 0), known[1].gpu_count, known[1].name):
            found[gpu.gpu_class] = (gpu, instance)
    return found


def size_document(sized: tuple[SizedLayout, ...], closest: tuple[str, ...] = ()) -> dict[str, Any]:
    """The contracted object ``gpuprov.size/1``; ``closest`` are the changes that would fit where nothing does."""
    return {
        "schema": SCHEMA,
        "closest": list(closest),
        "layouts": [
            {
                "gpu": each.gpu,
                "tensor_parallel": each.layout.tensor_parallel,
                "pipeline_parallel": each.layout.pipeline_parallel,
                "data_parallel": each.layout.data_parallel,
                "sharding": each.layout.sharding.value,
                "interconnect": each.interconnect,
                "footprint": footprint_document(each.footprint),
                "throughput": throughput_document(each.throughput, each.outlook),
                "fits": each.footprint.fit.value,
                "largest": dict(each.largest),
                "refusal": each.refusal,
            }
            for each in sized
        ],
    }
