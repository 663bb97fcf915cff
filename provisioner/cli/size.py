"""``gpuprov size``: memory footprint and throughput per GPU layout; no prices."""

from __future__ import annotations

import json
from pathlib import Path

import click

from provisioner.cli.located import located
from provisioner.cli.settings import current, default_cloud, say, warn
from provisioner.errors import UsageError


@click.command("size")
@click.argument("spec", type=click.Path(path_type=Path))
@click.option("--format", "form", type=click.Choice(["table", "json"]), default="table")
@click.option(
    "--catalog", "directory", type=click.Path(path_type=Path, file_okay=False), help="Directory of catalog CSV files."
)
def command(spec: Path, *, form: str, directory: Path | None) -> None:
    """Size the workload of SPEC on every GPU kind that it allows: bytes per GPU by term, verdict, predicted speed."""
    from provisioner.catalog.snapshot import load_catalog
    from provisioner.planner.notes import model_warnings
    from provisioner.planner.request import request_for
    from provisioner.planner.size_changes import size_changes
    from provisioner.planner.sizes import size_document, sized_layouts
    from provisioner.workload.load import load

    loaded = load(spec)
    for warning in loaded.warnings:
        warn(warning)
    catalog = load_catalog(directory)
    with located(loaded):
        request = request_for(loaded.workload, catalog, default_cloud())
        sized = tuple(sized_layouts(request, catalog))
    for warning in model_warnings(request):
        warn(warning)
    if not sized:
        raise UsageError("no GPU kind of the catalog is left by the placement of the spec", where=str(spec))
    closest = size_changes(request, sized, catalog)
    if form == "json":
        click.echo(json.dumps(size_document(sized, closest), indent=2, ensure_ascii=False))
        return
    from provisioner.report.sizes import print_sizes

    print_sizes(sized, closest, color=current().color)
    first = sized[0].footprint
    for assumption in first.assumptions:
        say(f"{assumption.name}: {assumption.value} ({assumption.source})")
