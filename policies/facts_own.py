"""Our own Pulumi resources as facts: the workload and every offer that a ``GpuInstance`` may end up on."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from policies.facts import UNKNOWN, Known, OfferedFacts, Source, Subject, Unknown, steps
from policies.facts_spec import sized_workload, spec_facts, workload_of
from policies.json_value import Value
from policies.placement import Place, Placer
from provisioner.errors import Position
from provisioner.planner.requirements import KeyedSpecError
from provisioner.records import record
from provisioner.units import GIB, parse_bytes
from provisioner.workload.spec import Workload

INSTANCE_RESOURCE = "gpuprov:index:GpuInstance"
ROOT_VOLUME_BYTES = 100 * GIB
"""What the provider takes where no root volume is stated."""


@record(frozen=True, slots=True)
class Holder:
    """Where a resource was found."""

    name: str
    path: str
    source: Source
    locate: Callable[[tuple[str | int, ...]], Position]


def instance_subjects(inputs: Value, holder: Holder, placer: Placer) -> list[Subject]:
    """The subjects of a ``GpuInstance``; a footprint that it may state is not looked at.

    Raises:
        SpecError: its workload is known and no valid spec.
    """

    def locate(key: str) -> Position:
        path = steps(key)
        own = path and path[0] in ("offers", "rootVolume", "rootSpeed", "volumes", "tags")
        return holder.locate(path if own else ("workload", *path))

    document = UNKNOWN if inputs.is_unknown else inputs.child("workload").value
    workload, unknown_keys = (UNKNOWN, frozenset()) if document is None else workload_of(document)
    sized = sized_workload(workload, unknown_keys)
    name = workload.name if not isinstance(workload, Unknown) else holder.name
    spec = spec_facts(
        workload,
        path=holder.path,
        source=holder.source,
        locate=locate,
        name=name,
        unknown_keys=unknown_keys,
        tags=inputs.child("tags").table(),
    )
    placed = OfferedFacts(
        name=name,
        path=holder.path,
        source=holder.source,
        tags=spec.tags,
        locate=locate,
        workload=sized,
        shape=_shape(sized, placer),
        candidates=_candidates(inputs, sized, placer),
        container=spec.read("run.image"),
        command=spec.read("run.command"),
        pinned=True,
        suggest=lambda: None if isinstance(sized, Unknown) else placer.suggestion(sized),
    )
    return [spec, placed]


def _shape(workload: Known[Workload], placer: Placer) -> Any:
    if isinstance(workload, Unknown):
        return UNKNOWN
    try:
        return placer.shape(workload)
    except KeyedSpecError as error:
        error.where = error.where or error.key
        raise


def _candidates(inputs: Value, workload: Known[Workload], placer: Placer) -> Known[tuple[Any, ...]]:
    offers = inputs.child("offers").items()
    if isinstance(offers, Unknown) or any(offer.is_unknown for offer in offers) or not offers:
        return UNKNOWN
    disk_bytes = _disk_bytes(inputs)
    return tuple(
        placer.candidate(workload, _place(f"offers[{index}]", offer, disk_bytes)) for index, offer in enumerate(offers)
    )


def _place(key: str, offer: Value, disk_bytes: Known[int | None]) -> Place:
    cloud, kind = offer.child("cloud").text(), offer.child("instanceType").text()
    return Place(
        key=key,
        cloud=UNKNOWN if cloud is None else cloud,
        instance_type=UNKNOWN if kind is None else kind,
        region=offer.child("region").text(),
        zone=offer.child("zone").text(),
        capacity_type=offer.child("capacityType").text(),
        disk_bytes=disk_bytes,
    )


def _disk_bytes(inputs: Value) -> Known[int | None]:
    """Root disk and data disks together."""
    volumes = inputs.child("volumes").items()
    if isinstance(volumes, Unknown):
        return UNKNOWN
    sizes = [_size(inputs.child("rootVolume"), ROOT_VOLUME_BYTES), *(_size(item.child("size"), 0) for item in volumes)]
    known = [size for size in sizes if not isinstance(size, Unknown)]
    return sum(known) if len(known) == len(sizes) else UNKNOWN


def _size(value: Value, default: int) -> Known[int]:
    if value.is_absent:
        return default
    if isinstance(value.value, str):
        try:
            return parse_bytes(value.value)
        except ValueError:
            return UNKNOWN
    size = value.whole()
    return default if size is None else size
