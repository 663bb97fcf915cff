"""``gpuprov prices``: where prices come from and how old they are, and reading them anew."""

from __future__ import annotations

import json
import os
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import click

from provisioner.cli import settings
from provisioner.cli.groups import CommandGroup
from provisioner.errors import UsageError

if TYPE_CHECKING:
    from provisioner.catalog.fetched import PriceFetcher
    from provisioner.catalog.refresh import Refreshed
    from provisioner.catalog.snapshot import Catalog

CLOUDS = ("aws", "gcp")
_SHOWN = 10
"""Rows kept out that are shown to people; JSON has all."""


@click.group("prices", cls=CommandGroup)
def command() -> None:
    """Prices of the catalog with their dates."""


@command.command("show")
@click.option("--cloud", help="Cloud or provider, such as aws, gcp or runpod (default: all).")
@click.option("--format", "output", type=click.Choice(["table", "json"]), default="table")
@click.option(
    "--catalog", "directory", type=click.Path(path_type=Path), help="Directory of catalog CSV files, or bundled."
)
def show(cloud: str | None, *, output: str, directory: Path | None) -> None:
    """Show each source of prices: what it prices, the date of its newest row, how many rows; ages on standard error."""
    from provisioner.catalog.freshness import describe_age
    from provisioner.catalog.snapshot import load_catalog
    from provisioner.cli import catalog_documents as documents
    from provisioner.cli import refresh_documents

    catalog = load_catalog(directory)
    sources = catalog.price_sources(cloud)
    if not sources:
        known = ", ".join(sorted({one.cloud for one in catalog.price_sources()}))
        raise UsageError(f"no prices of {cloud!r}", remedy=f"name one of {known}")
    kept_out = refresh_documents.quarantine_of(catalog)
    if output == "json":
        document = documents.prices_document(catalog, sources) | refresh_documents.origin_document(catalog, kept_out)
        click.echo(json.dumps(document, indent=2, ensure_ascii=False))
    else:
        documents.print_table(documents.prices_table(sources), color=settings.current().use_color)
    now = datetime.now(UTC)
    for one in sources:
        settings.say(f"{one.cloud} {one.kind} from {one.source}: {describe_age(one.as_of, now.date())}")
    for line in (*refresh_documents.origin_lines(catalog, now), *refresh_documents.quarantine_lines(kept_out, _SHOWN)):
        settings.say(line)


@command.command("refresh")
@click.option("--cloud", type=click.Choice(CLOUDS), help="Only this cloud (default: both).")
@click.option(
    "--region", "regions", multiple=True, help="Only this region; repeatable (default: all that the account has)."
)
@click.option("--format", "output", type=click.Choice(["table", "json"]), default="table")
def refresh(cloud: str | None, *, regions: tuple[str, ...], output: str) -> None:
    """Read prices, offerings and quotas from the clouds into the user's cache.

    A region that cannot be read keeps its prices and their dates. Nothing changes where nothing can be read.
    """
    from provisioner.catalog.refresh import refresh as refresh_catalog
    from provisioner.catalog.snapshot import BUNDLED_NAME, load_catalog
    from provisioner.cli import refresh_documents

    bundled = load_catalog(Path(BUNDLED_NAME))
    fetchers = [_fetcher(name, bundled) for name in ([cloud] if cloud else CLOUDS)]
    done = refresh_catalog(fetchers, datetime.now(UTC), settings.say, regions=regions)
    if output == "json":
        click.echo(json.dumps(refresh_documents.refreshed_document(done), indent=2, ensure_ascii=False))
    _tell(done)


def _fetcher(cloud: str, catalog: Catalog) -> PriceFetcher:
    if cloud == "aws":
        from provisioner.clouds.aws.prices import AwsPrices

        return AwsPrices(catalog)
    from provisioner.clouds.gcp.prices import GcpPrices

    return GcpPrices(catalog)


def _tell(done: Refreshed) -> None:
    """What a person needs to know: what was read, what was kept out, what failed."""
    from provisioner.catalog.snapshot import ENVIRONMENT
    from provisioner.cli import refresh_documents

    for line in (*done.notes, *refresh_documents.quarantine_lines(done.quarantined, _SHOWN)):
        settings.say(line)
    settings.say(refresh_documents.refreshed_line(done))
    if done.failures:
        settings.warn(refresh_documents.failure_line(done))
    if os.environ.get(ENVIRONMENT):
        settings.warn(f"{ENVIRONMENT} is set: other commands go on reading {os.environ[ENVIRONMENT]}")
