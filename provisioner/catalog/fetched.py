"""What a price fetcher gives: the facts of one region as the cloud states them, judged and merged by ``catalog.refresh``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

ON_DEMAND = "on_demand"
SPOT = "spot"
FLEX_START = "flex_start"
CALENDAR = "calendar"
CAPACITY_BLOCK = "capacity_block"
COMMIT_1Y = "commit_1y"
COMMIT_3Y = "commit_3y"
ATTACHED_GPU = "attached_gpu"
OFFERINGS = "offerings"
DISKS = "disks"
QUOTAS = "quotas"
SCORES = "placement_scores"


@dataclass(frozen=True, slots=True)
class PriceQuote:
    """USD per instance-hour as the cloud wrote it; it may be no number at all."""

    instance_type: str
    zone: str
    """AWS zone id, or ``*`` for all zones of the region."""
    price_usd_per_hour: str
    excludes: str = "none"
    """``local_ssd`` where local disks are billed on top."""
    notes: str = ""


@dataclass(frozen=True, slots=True)
class GpuQuote:
    """USD per hour of one GPU that attaches to a host; ``zones`` is ``None`` where no listing was read."""

    gpu_model: str
    purchase_model: str
    price_usd_per_gpu_hour: str
    zones: tuple[str, ...] | None


@dataclass(frozen=True, slots=True)
class DiskQuote:
    """USD per GiB-month of a disk or snapshot service, by its name in storage_capacity_prices.csv."""

    service: str
    price_usd_per_gib_month: str


@dataclass(frozen=True, slots=True)
class SourceRow:
    """A line of sources.csv for what a fetcher reads; its date is that of the refresh."""

    source: str
    title: str
    location: str
    version: str


@dataclass(frozen=True, slots=True)
class RegionFacts:
    """All that was read of one region. What is ``None`` or absent was not read and stays as it is.

    ``prices`` maps a purchase model of prices.csv to every quote of that model in the region: rows of the catalog are replaced
    as a whole by them, on-demand rows one by one.
    """

    region: str
    prices: Mapping[str, tuple[PriceQuote, ...]]
    sources: Mapping[str, str]
    """Kind -> key of ``SourceRow``, several joined with ``;``."""
    gpu_prices: tuple[GpuQuote, ...] | None = None
    disks: tuple[DiskQuote, ...] | None = None
    offerings: tuple[tuple[str, str], ...] | None = None
    """(zone, instance type): all that the region offers of the types that the catalog knows."""
    quotas: tuple[tuple[str, str], ...] | None = None
    """(quota code, limit of this account)."""
    notes: tuple[str, ...] = ()
    """What was left out, and why; for people."""
    confidence: str = "observed"
    """``derived`` where prices are sums of what the cloud states."""


@dataclass(frozen=True, slots=True)
class Score:
    """A spot placement score of one instance type in a zone."""

    region: str
    zone: str
    instance_type: str
    score: int


@dataclass(frozen=True, slots=True)
class Scores:
    """Placement scores of some pools, and what was left out."""

    found: tuple[Score, ...] = ()
    notes: tuple[str, ...] = field(default=())


class PriceFetcher(Protocol):
    """Reads one cloud. Every method may be slow, may be called from several threads, and raises ``GpuprovError``."""

    @property
    def cloud(self) -> str:
        """``aws`` or ``gcp``."""
        ...

    @property
    def sources(self) -> Sequence[SourceRow]:
        """What it reads from."""
        ...

    def regions(self) -> tuple[str, ...]:
        """Regions that this account can read, sorted.

        Raises:
            CredentialsError: there are no valid credentials.
            CloudError: the cloud did not answer.
        """
        ...

    def fetch(self, region: str) -> RegionFacts:
        """Everything of one region, or an error; never a part of it that passes for the whole.

        Raises:
            GpuprovError: something that belongs to a whole could not be read.
        """
        ...

    def placement_scores(self, regions: Sequence[str]) -> Scores:
        """Spot placement scores in these regions, none where the cloud or the account's rights give none."""
        ...
