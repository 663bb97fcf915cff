"""``gpuprov plan``: size a workload, rank offers, choose."""

from __future__ import annotations

import sys
from datetime import UTC, date, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import click

from provisioner.catalog.freshness import OLD_PRICE_DAYS, age_days
from provisioner.catalog.snapshot import Catalog, load_catalog
from provisioner.cli.failure import DocumentedFailure, error_document
from provisioner.cli.located import located
from provisioner.cli.settings import PROVIDERS, current, default_cloud, warn
from provisioner.errors import NothingFits
from provisioner.planner.decide import make_plan
from provisioner.planner.documents import plan_json
from provisioner.planner.explain import refusal_of
from provisioner.workload.load import Loaded, load

if TYPE_CHECKING:
    from provisioner.planner.plan import Plan

FORMATS = ("table", "json", "markdown", "html")
_FORMAT_OF_SUFFIX = {".json": "json", ".md": "markdown", ".html": "html"}


@click.command("plan")
@click.argument("spec", required=False, type=click.Path(path_type=Path))
@click.option(
    "--explain",
    is_flag=True,
    help="All offers in order, all alternatives, all assumptions, and what would change the answer.",
)
@click.option(
    "--set",
    "overrides",
    metavar="KEY=VALUE",
    multiple=True,
    help="What if: plan as if the spec said so, such as inference.context_tokens=65536; may be repeated.",
)
@click.option(
    "--compare",
    "pair",
    nargs=2,
    metavar="A B",
    type=click.Path(path_type=Path),
    help="Instead of SPEC: what differs between two specs or saved plans (*.json); --set changes B.",
)
@click.option(
    "--stack", metavar="NAME", help="Plan for a live stack: it keeps its place while that satisfies the spec."
)
@click.option("--format", "form", type=click.Choice(FORMATS), help="Default table, or what the suffix of -o says.")
@click.option("-o", "--output", type=click.Path(path_type=Path, dir_okay=False), help="Write to a file.")
@click.option(
    "--catalog",
    "directory",
    type=click.Path(path_type=Path, file_okay=False),
    help="Directory of catalog CSV files, or bundled.",
)
@click.option(
    "--cloud", type=click.Choice(PROVIDERS), help="Where the plan will be carried out; aws and gcp narrow the clouds."
)
def command(
    spec: Path | None,
    *,
    explain: bool,
    overrides: tuple[str, ...],
    pair: tuple[Path, Path] | None,
    stack: str | None,
    form: str | None,
    output: Path | None,
    directory: Path | None,
    cloud: str | None,
) -> None:
    """Size the workload of SPEC, rank offers by the whole bill, and choose. Offline; needs no credentials."""
    _check_sources(spec, pair, stack, explain=explain)
    catalog = load_catalog(directory)
    if catalog.origin.notice:
        warn(catalog.origin.notice)
    if pair is not None:
        from provisioner.cli.plan_compare import compare

        compare(pair, catalog, cloud or default_cloud(), overrides=overrides, form=form, output=output)
    elif spec is not None:
        _plan_one(load(spec, overrides), catalog, stack, cloud, explain=explain, form=form, output=output)


def _check_sources(spec: Path | None, pair: tuple[Path, Path] | None, stack: str | None, *, explain: bool) -> None:
    """Refuse nothing to plan, and options that mean nothing to a comparison."""
    if pair is None and spec is None:
        raise click.UsageError("Missing argument 'SPEC'.")
    if pair is not None and (spec is not None or stack is not None or explain):
        raise click.UsageError("--compare takes the place of SPEC, and goes with neither --stack nor --explain.")


def _plan_one(
    loaded: Loaded,
    catalog: Catalog,
    stack: str | None,
    cloud: str | None,
    *,
    explain: bool,
    form: str | None,
    output: Path | None,
) -> None:
    """Plan one spec and write it.

    Raises:
        DocumentedFailure: nothing fits; the plan is written, and says so.
    """
    for warning in loaded.warnings:
        warn(warning)
    with located(loaded):
        plan = _plan(loaded, catalog, stack, cloud, explain=explain)
    _warn_of_age(plan, datetime.now(UTC).date())
    failure = (
        NothingFits(refusal_of(plan), where=str(loaded.path), remedy=plan.closest[0] if plan.closest else None)
        if plan.choice is None
        else None
    )
    _write(
        plan,
        form or _FORMAT_OF_SUFFIX.get(output.suffix if output else "", "table"),
        output,
        explain=explain,
        failure=failure,
    )
    if failure is not None:
        raise DocumentedFailure(failure)


def _plan(loaded: Loaded, catalog: Catalog, stack: str | None, cloud: str | None, *, explain: bool) -> Plan:
    if stack is None:
        return make_plan(loaded.workload, catalog, provider=cloud or default_cloud(), explain=explain)
    from stacks.site import Site
    from stacks.sticky import plan_for_stack

    state = Site(current().home, None, lambda _: None).existing(stack)
    return plan_for_stack(loaded.workload, catalog, state, provider=cloud or state.provider)


def _warn_of_age(plan: Plan, today: date) -> None:
    """Old prices are said on standard error, never in the plan: it knows no clock."""
    as_of = plan.choice.price_as_of if plan.choice else None
    days = age_days(as_of, today) if as_of else 0
    if days > OLD_PRICE_DAYS:
        warn(f"the price of the choice is of {as_of}, {days} days old; `gpuprov prices refresh` reads new ones")


def _write(plan: Plan, form: str, output: Path | None, *, explain: bool, failure: NothingFits | None) -> None:
    """The plan in one of its forms, to standard output or to a file."""
    if form == "table":
        from provisioner.report.tables import print_plan

        if output is None:
            print_plan(plan, explain, color=current().color)
        else:
            with output.open("w", encoding="utf-8") as file:
                print_plan(plan, explain, file=file, color=False)
        return
    text = _text(plan, form, explain=explain, failure=failure)
    if output is None:
        sys.stdout.write(text)
    else:
        output.write_text(text, encoding="utf-8")


def _text(plan: Plan, form: str, *, explain: bool, failure: NothingFits | None) -> str:
    if form == "json":
        return plan_json(plan, **({"error": error_document(failure)} if failure else {}))
    if form == "markdown":
        from provisioner.report.markdown import plan_markdown

        return plan_markdown(plan, explain=explain)
    from provisioner.report.html import plan_html

    return plan_html(plan, explain=explain)
