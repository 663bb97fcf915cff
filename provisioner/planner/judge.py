"""The fit of a workload on one named instance type: what the under-sized rule asks, whatever a plan states."""

from __future__ import annotations

from dataclasses import replace

from provisioner.catalog.gpus import Gpu
from provisioner.catalog.instances import InstanceType
from provisioner.catalog.snapshot import Catalog
from provisioner.errors import UsageError
from provisioner.planner.candidates import Sizer
from provisioner.planner.filters import Refusal, memory_known, precision, runtime
from provisioner.planner.request import Request, demand_for, shape_for
from provisioner.planner.requirements import Requirements
from provisioner.records import record
from provisioner.sizing.footprint import Footprint
from provisioner.sizing.layout import Layout
from provisioner.sizing.layouts import layout_objections
from provisioner.units import format_gib
from provisioner.vocabulary import Fit
from provisioner.workload.spec import Workload


@record(frozen=True, slots=True)
class OfferFit:
    """Verdict on one instance type.

    ``footprint`` and ``layout`` are those of the best layout (or of the one asked about); both are ``None`` where nothing
    can be sized. ``objections`` say why it does not run, or runs only just. ``gpu`` is the class name, ``None`` without a GPU.
    """

    fit: Fit
    footprint: Footprint | None
    layout: Layout | None
    objections: tuple[str, ...]
    gpu: str | None


def offer_fit(  # noqa: PLR0917 - the order is that of an offer key, fixed between packages
    workload: Workload, catalog: Catalog, cloud: str, region: str, instance_type: str, layout: Layout | None = None
) -> OfferFit:
    """Whether one instance of the type holds one copy of the workload, by the best layout or by the one given.

    Memory decides, and what keeps the formats asked for from running. Price, place and capacity type are not judged, so that a
    region changes nothing; it is named in the error.

    Raises:
        UsageError: the catalog has no such instance type.
        KeyedSpecError: the model is not known or not modelled.
    """
    instance = catalog.instances.get((cloud, instance_type))
    if instance is None:
        raise UsageError(f"the catalog has no instance type {instance_type!r} of {cloud} (asked for in {region})")
    gpu = catalog.gpus.get(instance.gpu_model or "")
    if gpu is None or instance.gpu_count == 0:
        return OfferFit(Fit.DOES_NOT_FIT, None, None, (f"{instance_type} has no GPU",), None)
    shape = shape_for(workload)
    request = Request(workload, shape, demand_for(workload, shape), Requirements())
    for check in (runtime, memory_known, precision):
        if refusal := check(request, instance, gpu):
            return OfferFit(Fit.DOES_NOT_FIT, None, None, (_sentence(refusal),), gpu.gpu_class)
    sizer = Sizer(request)
    return _best(sizer, instance, gpu) if layout is None else _given(sizer, instance, gpu, layout)


def _best(sizer: Sizer, instance: InstanceType, gpu: Gpu) -> OfferFit:
    """The verdict of the layout that fits best: fits before borderline, then the fewest GPUs."""
    for fit in (Fit.FITS, Fit.BORDERLINE):
        found = next(sizer.arrangements(instance, gpu, (fit,)), None)
        if found is not None:
            return _verdict(found.footprint, replace(found.layout, replicas=1), gpu)
    miss = sizer.closest_miss(instance, gpu)
    if miss is None:
        reason = f"no layout of the model goes on {instance.gpu_count} GPUs"
        return OfferFit(Fit.DOES_NOT_FIT, None, None, (reason,), gpu.gpu_class)
    return _verdict(miss[1], miss[0], gpu)


def _given(sizer: Sizer, instance: InstanceType, gpu: Gpu, layout: Layout) -> OfferFit:
    """The verdict of a layout that a plan states."""
    one = replace(layout, replicas=1)
    objections = list(layout_objections(sizer.request.demand, one))
    inside = one.tensor_parallel if one.data_parallel * one.pipeline_parallel > 1 else one.gpus
    if inside > instance.gpu_count:
        objections.append(f"a copy takes {one.gpus} GPUs, {instance.name} has {instance.gpu_count}")
    if objections:
        return OfferFit(Fit.DOES_NOT_FIT, None, one, tuple(objections), gpu.gpu_class)
    return _verdict(sizer.footprint(sizer.accelerator(gpu, instance), one), one, gpu)


def _verdict(footprint: Footprint, layout: Layout, gpu: Gpu) -> OfferFit:
    terms, usable = footprint.per_gpu, footprint.usable_bytes
    if footprint.fit is Fit.FITS:
        return OfferFit(Fit.FITS, footprint, layout, (), gpu.gpu_class)
    over = "is over" if footprint.fit is Fit.DOES_NOT_FIT else "may be over (high end of the band)"
    need = terms.total_bytes if footprint.fit is Fit.DOES_NOT_FIT else terms.high_bytes
    text = f"the need of {format_gib(need)} per GPU {over} the {format_gib(usable)} usable of {gpu.gpu_class}"
    return OfferFit(footprint.fit, footprint, layout, (text,), gpu.gpu_class)


def _sentence(refusal: Refusal) -> str:
    parts = [refusal.reason]
    if refusal.needed:
        parts.append(f"needed {refusal.needed}")
    if refusal.available:
        parts.append(f"available {refusal.available}")
    return ", ".join(parts)
