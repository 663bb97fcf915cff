"""Nothing that was sized holds the workload: the smallest changes that would, each verified by sizing with it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from provisioner.catalog.snapshot import Catalog
from provisioner.planner.changes import demand_changes
from provisioner.planner.largest import limits_of
from provisioner.planner.request import Request
from provisioner.planner.sizes import SizedLayout, sized_layouts

CHANGES_MAX = 6
"""Changes named: more would be a list to read, not an answer."""


def size_changes(request: Request, sized: tuple[SizedLayout, ...], catalog: Catalog) -> tuple[str, ...]:
    """Changes in words, the one to make first at the front; empty where something holds the workload as it is."""
    if any(each.holds for each in sized):
        return ()
    found = []
    for text in _texts(request, sized, catalog):
        found.append(text)
        if len(found) == CHANGES_MAX:
            break
    return tuple(found)


def _texts(request: Request, sized: tuple[SizedLayout, ...], catalog: Catalog) -> Iterator[str]:
    wanted = request.requirements
    opened = replace(wanted, gpu_models=None, excluded_gpu_models=frozenset(), instance_types=None, max_gpus=None)
    if opened != wanted:
        open_request = replace(request, requirements=opened)
        holding = _first_that_holds(open_request, catalog)
        if holding is not None:
            yield f"open placement (gpus, exclude_gpus, max_gpus, instance_types): fits on {place(holding)}"
    running = [each for each in sized if each.refusal is None]
    for limit in limits_of(request.demand):
        best = max(running, key=lambda each: each.largest.get(limit.name, 0), default=None)
        if best is not None and best.largest[limit.name] > 0:
            yield f"lower {limit.key} to {best.largest[limit.name]}: fits on {place(best)}"
    for change in demand_changes(request):
        holding = _first_that_holds(change.request, catalog)
        if holding is not None:
            yield f"{change.text}: fits on {place(holding)}"


def _first_that_holds(request: Request, catalog: Catalog) -> SizedLayout | None:
    """The smallest GPU kind, and its smallest layout, that holds a changed request."""
    return next((each for each in sized_layouts(request, catalog, with_largest=False) if each.holds), None)


def place(each: SizedLayout) -> str:
    """A layout in words: ``2 x H100 (TP2)``."""
    layout = each.layout
    count = layout.gpus_per_replica
    degrees = [f"TP{layout.tensor_parallel}"] if layout.tensor_parallel > 1 else []
    degrees += [f"PP{layout.pipeline_parallel}"] if layout.pipeline_parallel > 1 else []
    degrees += [layout.sharding.value] if layout.data_parallel > 1 else []
    return f"{count} x {each.gpu}" + (f" ({' '.join(degrees)})" if degrees else "")
