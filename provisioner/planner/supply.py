"""Supply in a plan: which zone first, which offers last, and a word where nothing is likely.

What is known of supply orders attempts; it never refuses an offer. A launch that fails costs seconds, and pools fill and empty
by the hour. So the best-ranked offer stays the first, in its likeliest zone, and after it those known to be scarce come last.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from provisioner.catalog.snapshot import Catalog
from provisioner.planner.plan import PlannedOffer
from provisioner.planner.ranking import Candidate

SCARCE = "scarce"
_ORDER = {"likely": 0, "unknown": 1, SCARCE: 2}


def likeliest_zones_first(catalog: Catalog, candidate: Candidate) -> Candidate:
    """The candidate with its zones in the order of their supply; equal ones as they were."""
    offer = candidate.offer
    if len(offer.zones) == 1:
        return candidate
    zones = tuple(sorted(offer.zones, key=lambda zone: _ORDER[catalog.supply_of(offer, zone).likelihood]))
    return candidate if zones == offer.zones else replace(candidate, offer=offer._replace(zones=zones))


def supply_reason(catalog: Catalog, candidate: Candidate) -> tuple[str, ...]:
    """What is known of the supply of a choice, in a sentence; nothing where nothing is known."""
    found = catalog.supply_of(candidate.offer, candidate.offer.zones[0])
    if found.as_of is None:
        return ()
    return (f"supply {found.likelihood}: {found.reason} ({found.as_of})",)


def supply_warnings(offers: Sequence[PlannedOffer]) -> tuple[str, ...]:
    """A warning where every offer that would be tried is known to be scarce."""
    if not offers or any(offer.supply != SCARCE for offer in offers):
        return ()
    newest = max(offer.supply_as_of or "" for offer in offers)
    count = "the only offer is" if len(offers) == 1 else f"all {len(offers)} offers are"
    ways = "allow more regions, zones or GPUs, reserve capacity, or expect to wait"
    return (f"{count} scarce as of {newest}: {ways}; `gpuprov prices refresh` looks again",)
