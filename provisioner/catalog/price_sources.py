"""Where prices come from: per source, cloud and kind the newest date and the number of rows."""

from __future__ import annotations

from dataclasses import dataclass

from provisioner.catalog.files import CatalogFiles

_KINDS = (
    ("prices.csv", "cloud", None),
    ("prices_attached_gpu.csv", "cloud", "attached_gpu"),
    ("storage_capacity_prices.csv", "cloud", "storage"),
    ("storage_performance_prices.csv", "cloud", "storage_performance"),
    ("network_prices.csv", "cloud", "network"),
    ("misc_prices.csv", "cloud", "other"),
    ("prices_per_gpu.csv", "provider", "per_gpu"),
)
"""File, the column of the cloud, and the kind; the rows of prices.csv are told apart by purchase model."""


@dataclass(frozen=True, slots=True)
class PriceSource:
    """What one source gives for one cloud and kind of price."""

    cloud: str
    kind: str
    """A purchase model of prices.csv, or ``attached_gpu``, ``storage``, ``storage_performance``, ``network``, ``other``, ``per_gpu``."""
    source: str
    title: str
    as_of: str
    """Newest date among the rows."""
    rows: int


def read_price_sources(files: CatalogFiles, cloud: str | None = None) -> tuple[PriceSource, ...]:
    """All sources of prices, or those of one cloud, ordered by cloud, kind and source."""
    titles = {row[0]: row[1] for row in files.rows("sources.csv", "source", "title")}
    newest: dict[tuple[str, str, str], tuple[str, int]] = {}
    for name, cloud_column, fixed_kind in _KINDS:
        kind_column = "as_of" if fixed_kind else "purchase_model"
        for owner, kind, sources, as_of in files.rows(name, cloud_column, kind_column, "source", "as_of"):
            for source in sources.split(";"):
                key = (owner, fixed_kind or kind, source)
                date, count = newest.get(key, ("", 0))
                newest[key] = (max(date, as_of), count + 1)
    return tuple(
        PriceSource(owner, kind, source, titles.get(source, ""), date, count)
        for (owner, kind, source), (date, count) in sorted(newest.items())
        if cloud in (None, owner)
    )
