"""Saved plans as facts: what they say of footprints and prices is ignored, every offer in them is sized again."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from policies.facts import OfferedFacts, Source, Subject, constraint_key, steps
from policies.facts_spec import spec_facts
from policies.json_source import JsonSource
from policies.placement import Place, Placer
from provisioner.catalog.snapshot import Catalog
from provisioner.errors import Position, SpecError, UsageError
from provisioner.planner.documents import plan_from_document
from provisioner.planner.plan import Plan, PlannedOffer
from provisioner.planner.requirements import KeyedSpecError
from provisioner.workload.spec import Workload

_PLAN_PARTS = ("choice", "failover", "workload", "verdict", "footprint")


def saved_plan_subjects(source: JsonSource, placer: Placer) -> list[Subject]:
    """The subjects of a saved plan.

    Raises:
        UsageError: the document is no plan, or the spec inside it is none.
    """

    def locate(key: str) -> Position:
        path = steps(key)
        return source.position(path if path and path[0] in _PLAN_PARTS else ("workload", "spec", *path))

    try:
        plan = plan_from_document(source.document)
        workload = Workload.from_document(plan.workload_spec)
        return _subjects(workload, plan, placer, path=source.file, locate=locate)
    except KeyedSpecError as error:
        error.where = error.where or locate(error.key)
        raise
    except SpecError as error:
        where = locate(str(error.where)) if error.where else locate("workload")
        raise UsageError(
            f"the spec inside the plan: {error.message}", where=where, remedy="make the plan again with `gpuprov plan`"
        ) from None
    except UsageError as error:
        raise UsageError(error.message, where=error.where or Position(source.file), remedy=error.remedy) from None


def planned_subjects(workload: Workload, plan: Plan, catalog: Catalog, *, spec: Path | None) -> list[Subject]:
    """The subjects of a plan that is about to be carried out, with places in its spec's file where there is one."""
    locate: Callable[[str], Position] = _spec_places(spec, workload) if spec is not None else lambda _: Position("-")
    path = str(spec) if spec is not None else workload.name
    return _subjects(workload, plan, Placer(catalog), path=path, locate=locate)


def _spec_places(spec: Path, workload: Workload) -> Callable[[str], Position]:
    from provisioner.workload.load import load

    loaded = load(spec)
    constraint = constraint_key(workload)

    def locate(key: str) -> Position:
        return loaded.position(constraint if key.startswith(_PLAN_PARTS) else key)

    return locate


def _subjects(
    workload: Workload, plan: Plan, placer: Placer, *, path: str, locate: Callable[[str], Position]
) -> list[Subject]:
    return [
        spec_facts(workload, path=path, source=Source.PLAN, locate=locate),
        _placement(workload, plan, placer, path=path, locate=locate),
    ]


def _placement(
    workload: Workload, plan: Plan, placer: Placer, *, path: str, locate: Callable[[str], Position]
) -> OfferedFacts:
    offers = [("choice", plan.choice)] if plan.choice is not None else []
    offers += [(f"failover[{index}]", offer) for index, offer in enumerate(plan.failover)]
    layout = plan.choice.layout if plan.choice is not None else None
    objections = placer.objections(workload, layout) if layout is not None else None
    return OfferedFacts(
        name=workload.name,
        path=path,
        source=Source.PLAN,
        tags=workload.tags,
        locate=locate,
        workload=workload,
        shape=placer.shape(workload),
        candidates=tuple(placer.candidate(workload, _place(key, offer)) for key, offer in offers if offer is not None),
        plan=plan if plan.choice is None else None,
        layout_objections=objections,
        degrees_possible=placer.degrees(workload) if objections else (),
        digest_stated=plan.workload_digest,
        digest_found=workload.digest,
        pinned=bool(workload.placement.instance_types),
        suggest=lambda: placer.suggestion(workload),
    )


def _place(key: str, offer: PlannedOffer) -> Place:
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
