"""Prices per GPU-hour that other providers publish: a read-only comparison, joined to no instance type and never chosen."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal

from provisioner.catalog.cells import split_codes
from provisioner.catalog.files import CatalogFiles


@dataclass(frozen=True, slots=True)
class Listing:
    """One row of prices_per_gpu.csv."""

    provider: str
    gpu_model: str
    name_as_listed: str
    gpu_count: int
    region: str
    """``*`` where the provider does not say."""
    purchase_model: str
    price_usd_per_gpu_hour: Decimal
    interconnect: str
    source: str
    as_of: str
    confidence: str
    suspect: tuple[str, ...]


def read_listings(files: CatalogFiles) -> tuple[Listing, ...]:
    """All listings, cheapest first."""
    rows = files.rows(
        "prices_per_gpu.csv",
        *("provider", "gpu_model", "gpu_name_as_listed", "gpu_count", "region", "purchase_model"),
        *("price_usd_per_gpu_hour", "interconnect", "source", "as_of", "confidence", "suspect_reason"),
    )
    listings = [
        Listing(
            provider=provider,
            gpu_model=model,
            name_as_listed=name,
            gpu_count=int(count),
            region=region,
            purchase_model=purchase,
            price_usd_per_gpu_hour=Decimal(price),
            interconnect=link,
            source=source,
            as_of=as_of,
            confidence=confidence,
            suspect=split_codes(codes),
        )
        for provider, model, name, count, region, purchase, price, link, source, as_of, confidence, codes in rows
    ]
    return tuple(sorted(listings, key=lambda one: (one.price_usd_per_gpu_hour, one.provider, one.name_as_listed)))
