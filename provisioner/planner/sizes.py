"""Memory and speed of a workload on every GPU kind and layout, without offers and prices."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from provisioner.catalog.gpus import Gpu
from provisioner.catalog.instances import InstanceType
from provisioner.catalog.snapshot import Catalog
from provisioner.planner.candidates import Sizer
from provisioner.planner.documents import footprint_document, throughput_document
from provisioner.planner.request import Request, interconnect_for, request_for
from provisioner.records import record
from provisioner.sizing.footprint import Footprint
from provisioner.sizing.layout import Layout
from provisioner.sizing.throughput import Throughput
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


def size_workload(workload: Workload, catalog: Catalog, *, provider: str | None = None) -> tuple[SizedLayout, ...]:
    """Every layout on every GPU class that the spec allows, smallest GPU memory first.

    Raises:
        KeyedSpecError: an unknown name in the spec, or a model that is not modelled.
    """
    request = request_for(workload, catalog, provider)
    sizer = Sizer(request)
    kinds = sorted(_kinds(request, catalog).items(), key=lambda item: (item[1][0].memory_usable_bytes or 0, item[0]))
    return tuple(sized for name, (gpu, instance) in kinds for sized in _sized(sizer, name, gpu, instance))


def _sized(sizer: Sizer, name: str, gpu: Gpu, instance: InstanceType) -> Iterator[SizedLayout]:
    accelerator = sizer.accelerator(gpu, instance)
    for layout in sizer.layouts(sizer.request.requirements.max_gpus or GPUS_MAX):
        link = interconnect_for(instance, layout)
        footprint = sizer.footprint(accelerator, layout)
        yield SizedLayout(name, layout, link.value, footprint, sizer.throughput(accelerator, layout, link))


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


def size_document(sized: tuple[SizedLayout, ...]) -> dict[str, Any]:
    """The contracted object ``gpuprov.size/1``."""
    return {
        "schema": SCHEMA,
        "layouts": [
            {
                "gpu": each.gpu,
                "tensor_parallel": each.layout.tensor_parallel,
                "pipeline_parallel": each.layout.pipeline_parallel,
                "data_parallel": each.layout.data_parallel,
                "sharding": each.layout.sharding.value,
                "interconnect": each.interconnect,
                "footprint": footprint_document(each.footprint),
                "throughput": throughput_document(each.throughput),
                "fits": each.footprint.fit.value,
            }
            for each in sized
        ],
    }
