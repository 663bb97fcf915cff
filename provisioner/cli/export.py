"""``gpuprov export``: the chosen plan for another tool."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from provisioner.catalog.snapshot import load_catalog
from provisioner.cli.located import located
from provisioner.cli.settings import PROVIDERS, default_cloud, say, warn
from provisioner.errors import NothingFits
from provisioner.planner.decide import make_plan
from provisioner.workload.load import load

TARGETS = ("skypilot", "dstack", "karpenter", "pulumi-yaml")


@click.command("export")
@click.argument("spec", type=click.Path(path_type=Path))
@click.option("--to", "target", required=True, type=click.Choice(TARGETS), help="The tool that takes the file.")
@click.option(
    "--set", "overrides", metavar="KEY=VALUE", multiple=True, help="Plan as if the spec said so; may be repeated."
)
@click.option("-o", "--output", type=click.Path(path_type=Path, dir_okay=False), help="Write to a file.")
@click.option(
    "--catalog",
    "directory",
    type=click.Path(path_type=Path, file_okay=False),
    help="Directory of catalog CSV files, or bundled.",
)
@click.option("--cloud", type=click.Choice(PROVIDERS), help="aws and gcp narrow the clouds.")
def command(
    spec: Path,
    *,
    target: str,
    overrides: tuple[str, ...],
    output: Path | None,
    directory: Path | None,
    cloud: str | None,
) -> None:
    """Plan SPEC and write the choice for SkyPilot, dstack, Karpenter or Pulumi. Offline; creates nothing."""
    from provisioner.export.text import export_plan

    loaded = load(spec, overrides)
    for warning in loaded.warnings:
        warn(warning)
    with located(loaded):
        plan = make_plan(loaded.workload, load_catalog(directory), provider=cloud or default_cloud())
        for warning in plan.warnings:
            warn(warning)
        try:
            exported = export_plan(plan, loaded.workload, target)
        except NothingFits as error:
            raise NothingFits(error.message, where=str(loaded.path), remedy=error.remedy) from None
    if output is None:
        sys.stdout.write(exported.text)
    else:
        output.write_text(exported.text, encoding="utf-8")
    for note in exported.notes:
        say(f"note: {note}")
