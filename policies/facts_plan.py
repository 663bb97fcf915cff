"""Saved plans as facts: what they say of footprints and prices is ignored, every offer in them is sized again."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from decimal import Decimal
from pathlib import Path

from policies.facts import (
    Candidate,
    Figure,
    OfferedFacts,
    Source,
    Subject,
    Unknown,
    constraint_key,
    plain_variables,
    steps,
    value_of,
)
from policies.facts_spec import spec_facts
from policies.json_source import JsonSource
from policies.placement import Placer, place_of
from provisioner.catalog.snapshot import Catalog
from provisioner.errors import Position, SpecError, UsageError
from provisioner.planner.documents import plan_from_document
from provisioner.planner.judge import OfferFit
from provisioner.planner.plan import Plan
from provisioner.planner.requirements import KeyedSpecError
from provisioner.units import decimal_string, format_gib
from provisioner.workload.spec import Workload

_PLAN_PARTS = ("choice", "failover", "workload", "verdict", "footprint", "cost", "catalog")
_SIZES = ("weights_bytes", "kv_cache_bytes", "activation_bytes", "total_bytes", "low_bytes", "high_bytes")


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
    candidates = tuple(placer.candidate(workload, place_of(key, offer)) for key, offer in offers if offer is not None)
    return OfferedFacts(
        name=workload.name,
        path=path,
        source=Source.PLAN,
        tags=workload.tags,
        locate=locate,
        workload=workload,
        shape=placer.shape(workload),
        candidates=candidates,
        plan=plan if plan.choice is None else None,
        layout_objections=objections,
        degrees_possible=placer.degrees(workload) if objections else (),
        digest_stated=plan.workload_digest,
        digest_found=workload.digest,
        figures=tuple(_figures(plan, candidates[0])) if plan.choice is not None else (),
        catalog_stated=plan.catalog_digest,
        catalog_found=placer.catalog.digest,
        container=value_of(workload, "run.image"),
        command=value_of(workload, "run.command"),
        env=plain_variables(workload),
        pinned=bool(workload.placement.instance_types),
        suggest=lambda: placer.suggestion(workload),
    )


def _figures(plan: Plan, candidate: Candidate) -> Iterator[Figure]:
    """The figures of a plan's choice beside those that come out again."""
    choice, stated, fit = plan.choice, plan.footprint, candidate.fit
    price = candidate.price_usd_per_hour
    if choice is None or isinstance(price, Unknown):
        return
    yield _figure("choice.price_usd_per_hour", "price an hour", _usd(choice.price_usd_per_hour), _usd(price))
    if plan.cost is not None:
        compute = price * choice.instances if price is not None else None
        yield _figure(
            "cost.compute_usd_per_hour", "compute an hour", _usd(plan.cost.compute_usd_per_hour), _usd(compute)
        )
    if stated is None or not isinstance(fit, OfferFit) or fit.footprint is None:
        return
    for name in _SIZES:
        key, words = f"footprint.per_gpu.{name}", f"{name.removesuffix('_bytes').replace('_', ' ')} per GPU"
        yield _figure(key, words, _size(getattr(stated.per_gpu, name)), _size(getattr(fit.footprint.per_gpu, name)))
    usable, found = _size(stated.usable_bytes), _size(fit.footprint.usable_bytes)
    yield _figure("footprint.usable_bytes", "usable memory per GPU", usable, found)
    yield _figure("verdict", "verdict", plan.verdict, str(fit.fit))


def _figure(key: str, name: str, stated: str | None, found: str | None) -> Figure:
    return Figure(key=key, name=name, stated=stated, found=found)


def _usd(amount: Decimal | None) -> str | None:
    return f"{decimal_string(amount)} USD/h" if amount is not None else None


def _size(size_bytes: int | None) -> str | None:
    return f"{format_gib(size_bytes)} ({size_bytes} bytes)" if size_bytes is not None else None
