"""Offers and price sources as JSON documents and as tables for people."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from provisioner.catalog.listings import Listing
from provisioner.catalog.offers import ExcludedOffer, Offer
from provisioner.catalog.price_sources import PriceSource
from provisioner.catalog.snapshot import Catalog
from provisioner.units import decimal_string, format_gib

if TYPE_CHECKING:
    from rich.table import Table

_PIPE_WIDTH = 160
"""Columns of a table that does not go to a terminal."""


def offers_document(
    catalog: Catalog, offers: Sequence[Offer], excluded: Sequence[ExcludedOffer], total: int
) -> dict[str, Any]:
    """``gpuprov.offers/1``: the offers shown, how many match, and those kept out with their codes where asked for."""
    return {
        "schema": "gpuprov.offers/1",
        "catalog": {"digest": catalog.digest, "as_of": catalog.as_of},
        "total": total,
        "offers": [_offer(catalog, offer) for offer in offers],
        "excluded": [{**_offer(catalog, one.offer), "codes": list(one.codes)} for one in excluded],
    }


def prices_document(catalog: Catalog, sources: Sequence[PriceSource]) -> dict[str, Any]:
    """``gpuprov.prices/1``: where prices come from, with their dates and no ages."""
    return {
        "schema": "gpuprov.prices/1",
        "catalog": {"digest": catalog.digest, "as_of": catalog.as_of},
        "sources": [
            {
                "cloud": one.cloud,
                "kind": one.kind,
                "source": one.source,
                "title": one.title,
                "as_of": one.as_of,
                "rows": one.rows,
            }
            for one in sources
        ],
    }


def listings_document(catalog: Catalog, listings: Sequence[Listing], total: int) -> dict[str, Any]:
    """``gpuprov.listings/1``: other providers' prices per GPU-hour, never chosen by a plan."""
    return {
        "schema": "gpuprov.listings/1",
        "catalog": {"digest": catalog.digest, "as_of": catalog.as_of},
        "total": total,
        "listings": [
            {
                "provider": one.provider,
                "gpu": catalog.gpus[one.gpu_model].gpu_class,
                "gpu_model": one.gpu_model,
                "name_as_listed": one.name_as_listed,
                "gpus": one.gpu_count,
                "region": None if one.region == "*" else one.region,
                "purchase_model": one.purchase_model,
                "price_usd_per_gpu_hour": decimal_string(one.price_usd_per_gpu_hour),
                "price_as_of": one.as_of,
                "price_source": one.source,
                "confidence": one.confidence,
                "suspect": list(one.suspect),
            }
            for one in listings
        ],
    }


def listings_table(catalog: Catalog, listings: Iterable[Listing]) -> Table:
    """Other providers' prices as a table, cheapest first."""
    table = _table("provider", "GPU", "GPUs", "region", "bought as", "USD/GPU-h", "price of", "remarks")
    for one in listings:
        table.add_row(
            one.provider,
            catalog.gpus[one.gpu_model].gpu_class,
            str(one.gpu_count),
            "unknown" if one.region == "*" else one.region,
            one.purchase_model.replace("_", "-"),
            f"{one.price_usd_per_gpu_hour:.4f}",
            one.as_of,
            ", ".join(one.suspect),
        )
    return table


def _offer(catalog: Catalog, offer: Offer) -> dict[str, Any]:
    instance = offer.instance
    gpu = catalog.gpus.get(instance.gpu_model) if instance.gpu_model else None
    return {
        "cloud": offer.cloud,
        "region": offer.region,
        "zone": offer.zone,
        "instance_type": instance.name,
        "gpu": gpu.gpu_class if gpu else None,
        "gpu_model": instance.gpu_model,
        "gpus_per_instance": gpus_per_instance(offer),
        "gpu_memory_nominal_bytes": instance.gpu_memory_nominal_bytes,
        "gpu_memory_api_bytes": instance.gpu_memory_api_bytes,
        "gpu_memory_usable_bytes": instance.gpu_memory_usable_bytes,
        "vcpu": instance.vcpu,
        "ram_bytes": instance.ram_bytes,
        "capacity_type": str(offer.capacity_type),
        "price_usd_per_hour": None if offer.price_usd_per_hour is None else decimal_string(offer.price_usd_per_hour),
        "price_as_of": offer.price_as_of,
        "price_source": offer.price_source,
        "suspect": list(offer.suspect),
    }


def gpus_per_instance(offer: Offer) -> int | float:
    """Devices, or the share of one GPU of a fractional type."""
    fraction = offer.instance.gpu_fraction
    return offer.instance.gpu_count if fraction in (0, 1) else fraction


def offers_table(catalog: Catalog, offers: Iterable[Offer], excluded: Iterable[ExcludedOffer]) -> Table:
    """Offers as a table, cheapest first, then those kept out."""
    rows = [(offer, ", ".join(offer.suspect)) for offer in offers]
    rows += [(one.offer, f"kept out: {', '.join(one.codes)}") for one in excluded]
    table = _table(
        "cloud", "region", "zone", "instance type", "GPU", "usable/GPU", "capacity", "USD/h", "price of", "remarks"
    )
    for offer, remarks in rows:
        instance = offer.instance
        gpu = catalog.gpus[instance.gpu_model].gpu_class if instance.gpu_model else "none"
        usable = instance.gpu_memory_usable_bytes
        table.add_row(
            offer.cloud,
            offer.region,
            offer.zone or "unknown",
            instance.name,
            f"{gpus_per_instance(offer)} x {gpu}",
            format_gib(usable) if usable else "unknown",
            str(offer.capacity_type),
            "unknown" if offer.price_usd_per_hour is None else f"{offer.price_usd_per_hour:.4f}",
            offer.price_as_of or "unknown",
            remarks,
        )
    return table


def prices_table(sources: Iterable[PriceSource]) -> Table:
    """Price sources as a table."""
    table = _table("cloud", "kind", "source", "newest row of", "rows", "title")
    for one in sources:
        table.add_row(one.cloud, one.kind, one.source, one.as_of, str(one.rows), one.title)
    return table


def print_table(table: Table, *, color: bool) -> None:
    """Write a table to standard output, as wide as its terminal."""
    from rich.console import Console

    console = Console(no_color=not color, highlight=False)
    if not console.is_terminal:
        console.width = max(console.width, _PIPE_WIDTH)
    console.print(table)


def _table(*columns: str) -> Table:
    from rich.table import Table

    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in columns:
        right = column in ("USD/h", "USD/GPU-h", "rows", "usable/GPU")
        table.add_column(column, justify="right" if right else "left", overflow="fold")
    return table
