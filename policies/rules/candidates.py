"""The offers that a placement rule judges, without repeats, or the outcome that stands for offers that are not known."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from policies.facts import UNKNOWN, Candidate, Known, PlacementFacts, Unknown
from policies.rule import Outcome, unknown
from provisioner.planner.request import usual_engine
from provisioner.vocabulary import Engine


def candidates_of(facts: PlacementFacts) -> tuple[tuple[Candidate, ...], Outcome | None]:
    """The offers to judge, or the unknown outcome that stands for them."""
    if isinstance(facts.candidates, Unknown):
        message = f"what {facts.name} may run on is not known yet"
        return (), unknown("candidates", message, "write its offers as constants")
    if isinstance(facts.workload, Unknown) and facts.candidates:
        return (), unknown("workload", f"the workload of {facts.name} is not known yet", "write it as constants")
    return facts.candidates, None


def engine_of(facts: PlacementFacts) -> Known[Engine | None]:
    """The engine that serves the workload; ``None`` for a training."""
    if isinstance(facts.workload, Unknown):
        return UNKNOWN
    inference = facts.workload.inference
    if inference is None:
        return None
    if inference.engine is not None:
        return inference.engine.name
    if isinstance(facts.shape, Unknown) or facts.shape is None:
        return UNKNOWN
    return usual_engine(facts.shape)


def machines_of(facts: PlacementFacts) -> tuple[tuple[Candidate, ...], Outcome | None]:
    """The same, one of each kind of machine: twelve zones of one type are one finding."""
    candidates, outcome = candidates_of(facts)
    others = ("region", "capacity_type", "price_usd_per_hour", "price_as_of", "regions_offered", "quota", "breaches")
    return distinct(candidates, *others), outcome


def offers_of(facts: PlacementFacts) -> tuple[tuple[Candidate, ...], Outcome | None]:
    """The same, one of each kind of machine, region and price, whatever the zone."""
    candidates, outcome = candidates_of(facts)
    return distinct(candidates, "price_as_of", "quota"), outcome


def distinct(candidates: tuple[Candidate, ...], *ignored: str) -> tuple[Candidate, ...]:
    """The first of all candidates that differ in nothing but their key, their zone and the ignored fields."""
    blank: dict[str, Any] = dict.fromkeys((*ignored, "zone", "zones_offered"))
    seen: list[Candidate] = []
    kept: list[Candidate] = []
    for candidate in candidates:
        bare = replace(candidate, key="", **blank)
        if bare not in seen:
            seen.append(bare)
            kept.append(candidate)
    return tuple(kept)
