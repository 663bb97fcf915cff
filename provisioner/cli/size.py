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
    from provisioner.planner.sizes import size_document, size_workload
    from provisioner.workload.load import load

    loaded = load(spec)
    for warning in loaded.warnings:
        warn(warning)
    with located(loaded):
        sized = size_workload(loaded.workload, load_catalog(directory), provider=default_cloud())
    if not sized:
        raise UsageError("no GPU kind of the catalog is left by the placement of the spec", where=str(spec))
    if form == "json":
        click.echo(json.dumps(size_document(sized), indent=2, ensure_ascii=False))
        return
    from provisioner.report.sizes import print_sizes

    print_sizes(sized, color=current().color)
    first = sized[0].footprint
    for assumption in first.assumptions:
        say(f"{assumption.name}: {assumption.value} ({assumption.source})")
