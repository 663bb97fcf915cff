"""``gpuprov offers``: priced offers of the catalog, and why others are left out."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING

import click

from provisioner.cli import settings
from provisioner.errors import UsageError
from provisioner.units import parse_money

if TYPE_CHECKING:
    from provisioner.catalog.offers import ExcludedOffer, Offer
    from provisioner.catalog.snapshot import Catalog


def _price_per_hour(text: str | None) -> Decimal | None:
    if text is None:
        return None
    remedy = "write it as 12.50 USD/h"
    try:
        money = parse_money(text)
    except ValueError:
        raise UsageError(f"--max-price {text[:40]!r} is no amount of money in USD", remedy=remedy) from None
    if money.per != "h":
        raise UsageError(f"--max-price {text!r} is not per hour", remedy=remedy)
    return money.amount_usd


@click.command("offers")
@click.option("--gpu", "gpus", multiple=True, help="GPU class, model or alias, such as L4 or H100-SXM; repeatable.")
@click.option("--cloud", "clouds", multiple=True, type=click.Choice(["aws", "gcp"]), help="Repeatable.")
@click.option("--region", "regions", multiple=True, help="Repeatable.")
@click.option("--instance-type", "instance_types", multiple=True, help="Repeatable.")
@click.option(
    "--capacity",
    "capacities",
    multiple=True,
    type=click.Choice(["spot", "on-demand", "reserved", "capacity-block", "flex-start"]),
)
@click.option("--max-price", metavar="PRICE", help="Per instance, such as '12.50 USD/h'.")
@click.option("--limit", type=click.IntRange(min=1), help="Show the cheapest N (default: 20 in a table, all in JSON).")
@click.option("--excluded", "with_excluded", is_flag=True, help="Also show what is kept out, with its codes.")
@click.option("--others", is_flag=True, help="Show other providers' prices per GPU-hour instead, for comparison only.")
@click.option("--format", "output", type=click.Choice(["table", "json"]), default="table")
@click.option(
    "--catalog", "directory", type=click.Path(path_type=Path), help="Directory of catalog CSV files, or bundled."
)
def command(
    *,
    gpus: tuple[str, ...],
    clouds: tuple[str, ...],
    regions: tuple[str, ...],
    instance_types: tuple[str, ...],
    capacities: tuple[str, ...],
    max_price: str | None,
    limit: int | None,
    with_excluded: bool,
    others: bool,
    output: str,
    directory: Path | None,
) -> None:
    """Priced offers of the catalog, cheapest first; an unknown price comes last."""
    from provisioner.catalog.query import make_query, select, select_excluded
    from provisioner.catalog.snapshot import load_catalog
    from provisioner.cli import catalog_documents as documents

    limit_usd = _price_per_hour(max_price)
    catalog = load_catalog(directory)
    if others:
        if clouds or regions or instance_types or capacities or max_price or with_excluded:
            raise UsageError(
                "--others goes with --gpu and --limit alone", remedy="their rows have no instance types to filter by"
            )
        _show_others(catalog, gpus, limit, output)
        return
    query = make_query(
        catalog,
        gpus=gpus,
        clouds=clouds,
        regions=regions,
        instance_types=instance_types,
        capacities=capacities,
        max_price_usd_per_hour=limit_usd,
    )
    found = select(catalog.offers(), query)
    excluded = select_excluded(catalog.excluded_offers(), query)
    shown = found[: limit or (20 if output == "table" else None)]
    shown_excluded = excluded if with_excluded else []
    if output == "json":
        document = documents.offers_document(catalog, shown, shown_excluded, len(found))
        click.echo(json.dumps(document, indent=2, ensure_ascii=False))
    elif shown or shown_excluded:
        documents.print_table(
            documents.offers_table(catalog, shown, shown_excluded), color=settings.current().use_color
        )
    _tell(catalog, shown, len(found), shown_excluded, len(excluded))


def _show_others(catalog: Catalog, gpus: tuple[str, ...], limit: int | None, output: str) -> None:
    """Other providers' published prices, cheapest first. They are read-only: no plan chooses them."""
    from provisioner.cli import catalog_documents as documents

    models = {model for name in gpus for model in catalog.resolve_gpu(name)}
    found = [one for one in catalog.listings() if not gpus or one.gpu_model in models]
    shown = found[: limit or (20 if output == "table" else None)]
    if output == "json":
        document = documents.listings_document(catalog, shown, len(found))
        click.echo(json.dumps(document, indent=2, ensure_ascii=False))
    elif shown:
        documents.print_table(documents.listings_table(catalog, shown), color=settings.current().use_color)
    settings.say("for comparison only: no plan chooses these, and most were copied from a page by hand")
    if len(shown) < len(found):
        settings.say(f"{len(shown)} of {len(found)} listings; --limit {len(found)} shows all")
    for code in sorted({code for one in shown for code in one.suspect}):
        settings.say(f"{code}: {catalog.explain_code(code)}")


def _tell(catalog: Catalog, shown: list[Offer], found: int, shown_excluded: list[ExcludedOffer], excluded: int) -> None:
    """What a person needs beside the rows: how many there are, what the codes mean, how old the prices are."""
    from provisioner.catalog.freshness import describe_offer_ages

    if not found:
        settings.say("no offer matches")
    elif len(shown) < found:
        settings.say(f"{len(shown)} of {found} offers; --limit {found} shows all")
    if excluded and not shown_excluded:
        settings.say(f"{excluded} more are kept out; --excluded shows them with their codes")
    codes = {code for one in shown for code in one.suspect} | {code for one in shown_excluded for code in one.codes}
    for code in sorted(codes):
        settings.say(f"{code}: {catalog.explain_code(code)}")
    for line in describe_offer_ages(shown, datetime.now(UTC).date()):
        settings.say(line)
