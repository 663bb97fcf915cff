"""``gpuprov prices``: where prices come from and how old they are."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path

import click

from provisioner.cli import settings


@click.group("prices")
def command() -> None:
    """Prices of the catalog with their dates."""


@command.command("show")
@click.option("--cloud", help="Cloud or provider, such as aws, gcp or runpod (default: all).")
@click.option("--format", "output", type=click.Choice(["table", "json"]), default="table")
@click.option("--catalog", "directory", type=click.Path(path_type=Path), help="Directory of catalog CSV files.")
def show(cloud: str | None, *, output: str, directory: Path | None) -> None:
    """Show each source of prices: what it prices, the date of its newest row, how many rows; ages on standard error."""
    from provisioner.catalog.freshness import describe_age
    from provisioner.catalog.snapshot import load_catalog
    from provisioner.cli import catalog_documents as documents
    from provisioner.errors import UsageError

    catalog = load_catalog(directory)
    sources = catalog.price_sources(cloud)
    if not sources:
        known = ", ".join(sorted({one.cloud for one in catalog.price_sources()}))
        raise UsageError(f"no prices of {cloud!r}", remedy=f"name one of {known}")
    if output == "json":
        click.echo(json.dumps(documents.prices_document(catalog, sources), indent=2, ensure_ascii=False))
    else:
        documents.print_table(documents.prices_table(sources), color=settings.current().use_color)
    today = datetime.now(UTC).date()
    for one in sources:
        settings.say(f"{one.cloud} {one.kind} from {one.source}: {describe_age(one.as_of, today)}")
