"""Workload specs as facts: what the spec asks for, and the plan that the planner makes of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

from policies.facts import (
    UNKNOWN,
    Candidate,
    Known,
    OfferedFacts,
    Source,
    SpecFacts,
    Subject,
    Unknown,
    plain_variables,
    value_of,
)
from policies.placement import Placer, place_of
from provisioner.errors import Position, SpecError
from provisioner.planner.judge import OfferFit
from provisioner.planner.plan import Plan
from provisioner.planner.requirements import KeyedSpecError
from provisioner.sizing.layout import Layout
from provisioner.workload.load import Loaded, parse
from provisioner.workload.spec import Workload

UNSIZED_PARTS = ("name", "tags", "run", "access", "aws", "gcp", "lifecycle", "storage.egress", "model.source")
"""Parts of a spec that no footprint depends on."""
PLACEHOLDER = "unknown"
"""Stands for a required text that is not known yet, so that the rest of the spec can be read; rules see it as unknown."""


def spec_subjects(path: Path, content: bytes, shown: str, placer: Placer) -> tuple[list[Subject], Loaded]:
    """The subjects of a spec file.

    Raises:
        SpecError: the file is no valid spec, or names what the catalog does not know.
    """
    loaded = parse(content, path)
    locate = _shown_as(loaded, shown)
    try:
        plan = placer.plan_of_spec(loaded.workload)
        placed = plan_facts(loaded.workload, plan, placer, name=loaded.workload.name, path=shown, locate=locate)
    except KeyedSpecError as error:
        error.where = error.where or locate(error.key)
        raise
    return [spec_facts(loaded.workload, path=shown, source=Source.SPEC, locate=locate), placed], loaded


def _shown_as(loaded: Loaded, shown: str) -> Callable[[str], Position]:
    def locate(key: str) -> Position:
        place = loaded.position(key)
        return Position(shown, place.line, place.column)

    return locate


def spec_facts(
    workload: Known[Workload],
    *,
    path: str,
    source: Source,
    locate: Callable[[str], Position],
    name: str | None = None,
    unknown_keys: frozenset[str] = frozenset(),
    tags: Known[Mapping[str, Known[str]]] = MappingProxyType({}),
) -> SpecFacts:
    """A workload's own words; ``tags`` are further ones that its resource carries."""
    return SpecFacts(
        name=name or (workload.name if not isinstance(workload, Unknown) else "workload"),
        path=path,
        source=source,
        tags=_spec_tags(workload, unknown_keys, tags),
        locate=locate,
        workload=workload,
        unknown_keys=unknown_keys,
    )


def _spec_tags(
    workload: Known[Workload], unknown_keys: frozenset[str], tags: Known[Mapping[str, Known[str]]]
) -> Known[Mapping[str, Known[str]]]:
    if isinstance(workload, Unknown) or isinstance(tags, Unknown) or "tags" in unknown_keys:
        return UNKNOWN
    later = {key.removeprefix("tags."): UNKNOWN for key in unknown_keys if key.startswith("tags.")}
    return {**workload.tags, **later, **tags}


def plan_facts(
    workload: Workload, plan: Plan, placer: Placer, *, name: str, path: str, locate: Callable[[str], Position]
) -> OfferedFacts:
    """A spec with the plan that was made of it just now: its numbers are our own."""
    inference = workload.inference
    degrees = (inference.tensor_parallel, inference.pipeline_parallel) if inference is not None else ("auto", "auto")
    objections: tuple[str, ...] | None = None
    if any(isinstance(degree, int) for degree in degrees):
        tensor, pipeline = (degree if isinstance(degree, int) else 1 for degree in degrees)
        objections = placer.objections(workload, Layout(tensor_parallel=tensor, pipeline_parallel=pipeline))
    facts = OfferedFacts(
        name=name,
        path=path,
        source=Source.SPEC,
        tags=workload.tags,
        locate=locate,
        workload=workload,
        shape=placer.shape(workload),
        plan=plan,
        layout_objections=objections,
        degrees_possible=placer.degrees(workload) if objections else (),
        container=value_of(workload, "run.image"),
        command=value_of(workload, "run.command"),
        env=plain_variables(workload),
        pinned=bool(workload.placement.instance_types),
        suggest=lambda: placer.suggestion(workload),
    )
    return facts if plan.choice is None else _with_choice(facts, workload, plan, placer)


def _with_choice(facts: OfferedFacts, workload: Workload, plan: Plan, placer: Placer) -> OfferedFacts:
    choice, footprint = plan.choice, plan.footprint
    if choice is None or footprint is None:
        return facts
    instance = placer.catalog.instances.get((choice.cloud, choice.instance_type))
    gpu = placer.catalog.gpus.get(instance.gpu_model or "") if instance is not None else None
    fit = OfferFit(footprint.fit, footprint, choice.layout, (), choice.gpu)
    candidate = Candidate(
        key=facts.constraint_key,
        cloud=choice.cloud,
        instance_type=choice.instance_type,
        region=choice.region,
        zone=choice.zone,
        capacity_type=choice.capacity_type,
        instances=choice.instances,
        layout=choice.layout,
        instance=instance,
        gpu=gpu,
        fit=fit,
        planned=placer.planned(workload, instance, gpu, fit),
        quota=placer.quota(instance, place_of("choice", choice)),
        cuda_least=placer.cuda_least(workload, gpu),
        price_usd_per_hour=choice.price_usd_per_hour,
        price_as_of=choice.price_as_of,
    )
    return replace(facts, candidates=(candidate,))


def workload_of(document: Any) -> tuple[Known[Workload], frozenset[str]]:
    """The workload of a document whose leaves may be unknown, and the dotted keys of the unknown ones.

    Raises:
        SpecError: everything is known and it is no valid spec.
    """
    if isinstance(document, Unknown):
        return UNKNOWN, frozenset()
    unknown_keys: set[str] = set()
    stripped = _strip(document, "", unknown_keys)
    if "name" in unknown_keys:
        stripped["name"] = PLACEHOLDER
    if "model.id" in unknown_keys:
        stripped["model"]["id"] = PLACEHOLDER
    try:
        return Workload.from_document(stripped), frozenset(unknown_keys)
    except SpecError:
        if unknown_keys:
            return UNKNOWN, frozenset(unknown_keys)
        raise


def _strip(value: Any, key: str, unknown_keys: set[str]) -> Any:
    """The value without its unknown members; a list with an unknown item is unknown as a whole."""
    if isinstance(value, dict):
        kept = {}
        for name, item in value.items():
            below = f"{key}.{name}" if key else str(name)
            stripped = _strip(item, below, unknown_keys)
            if stripped is UNKNOWN:
                unknown_keys.add(below)
            else:
                kept[name] = stripped
        return kept
    if isinstance(value, list):
        items = [_strip(item, key, unknown_keys) for item in value]
        return UNKNOWN if UNKNOWN in items else items
    return value


def is_sizing(key: str) -> bool:
    """Whether a footprint depends on a dotted key of a spec."""
    return not any(key == part or key.startswith(f"{part}.") for part in UNSIZED_PARTS)


def sized_workload(workload: Known[Workload], unknown_keys: frozenset[str]) -> Known[Workload]:
    """The workload for sizing: unknown as soon as a key that a footprint depends on is."""
    return UNKNOWN if any(is_sizing(key) for key in unknown_keys) else workload
