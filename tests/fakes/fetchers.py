"""A price fetcher in memory, and regions of a catalog to refresh."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from provisioner.catalog.fetched import (
    OFFERINGS,
    ON_DEMAND,
    QUOTAS,
    SPOT,
    PriceQuote,
    RegionFacts,
    Score,
    Scores,
    SourceRow,
)
from provisioner.errors import GpuprovError

SOURCE = SourceRow("stub_prices", "prices of a test", "memory", "1")


@dataclass
class MemoryFetcher:
    """Gives the facts it was made with; an error instead of facts is raised."""

    outcomes: Mapping[str, RegionFacts | GpuprovError]
    cloud: str = "aws"
    sources: Sequence[SourceRow] = (SOURCE,)
    refusal: GpuprovError | None = None
    scores: Scores | GpuprovError = field(default_factory=Scores)
    asked: list[str] = field(default_factory=list)

    def regions(self) -> tuple[str, ...]:
        if self.refusal:
            raise self.refusal
        return tuple(self.outcomes)

    def fetch(self, region: str) -> RegionFacts:
        self.asked.append(region)
        outcome = self.outcomes[region]
        if isinstance(outcome, GpuprovError):
            raise outcome
        return outcome

    def placement_scores(self, regions: Sequence[str]) -> Scores:
        if isinstance(self.scores, GpuprovError):
            raise self.scores
        return replace(self.scores, found=tuple(one for one in self.scores.found if one.region in regions))


def score(region: str, zone: str, name: str, value: int) -> Score:
    return Score(region, zone, name, value)


def facts(
    region: str,
    on_demand: Mapping[str, str] | None = None,
    spot: Mapping[tuple[str, str], str] | None = None,
    offerings: Sequence[tuple[str, str]] | None = None,
    quotas: Sequence[tuple[str, str]] | None = None,
) -> RegionFacts:
    """Facts of an AWS region: type -> price, (zone, type) -> spot price."""
    return RegionFacts(
        region=region,
        prices={
            ON_DEMAND: tuple(PriceQuote(name, "*", price) for name, price in (on_demand or {}).items()),
            SPOT: tuple(PriceQuote(name, zone, price) for (zone, name), price in (spot or {}).items()),
        },
        sources=dict.fromkeys((ON_DEMAND, SPOT, OFFERINGS, QUOTAS), SOURCE.source),
        offerings=None if offerings is None else tuple(offerings),
        quotas=None if quotas is None else tuple(quotas),
    )
