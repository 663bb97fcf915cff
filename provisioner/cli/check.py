"""``gpuprov check``: judge specs, plans, previews, states and Terraform plans by the policy rules."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click

from policies.config import load_policy
from policies.day import today_utc
from policies.formats.render import MODULES, OF_SUFFIX, append_step_summary, render
from policies.run import Checked, Order, require_paths, rules_json, rules_text, run_check
from provisioner.catalog.snapshot import Catalog, load_catalog
from provisioner.cli.failure import DocumentedFailure
from provisioner.cli.settings import current, default_cloud, say, warn
from provisioner.errors import UsageError
from provisioner.planner.decide import make_plan

if TYPE_CHECKING:
    from provisioner.planner.plan import Plan
    from provisioner.workload.spec import Workload

FILE = click.Path(path_type=Path, dir_okay=False)


@click.command("check")
@click.argument("paths", nargs=-1, type=click.Path(path_type=Path))
@click.option("--stack", metavar="NAME", help="Judge specs as they would be applied to this live stack.")
@click.option(
    "--format", "form", type=click.Choice(tuple(MODULES)), help="Default text, or what the suffix of -o says."
)
@click.option("-o", "--output", type=FILE, help="Write the report to a file.")
@click.option("--policy", type=FILE, help="Policy file; else gpuprov-policy.yaml beside the path or above it.")
@click.option("--waivers", type=FILE, help="File of waivers.")
@click.option("--baseline", type=FILE, help="Findings that were there before: only others fail.")
@click.option("--write-baseline", is_flag=True, help="Write what is found now to the --baseline file.")
@click.option("--catalog", "directory", type=click.Path(path_type=Path, file_okay=False), help="Catalog CSV files.")
@click.option("--list-rules", is_flag=True, help="Show all rules (text or json) and end.")
def command(
    paths: tuple[Path, ...],
    *,
    stack: str | None,
    form: str | None,
    output: Path | None,
    policy: Path | None,
    waivers: Path | None,
    baseline: Path | None,
    write_baseline: bool,
    directory: Path | None,
    list_rules: bool,
) -> None:
    """Judge PATHS: workload specs, saved plans, Pulumi previews and states, Terraform plans. Offline."""
    form = form or OF_SUFFIX.get(output.suffix if output else "", "text")
    if list_rules:
        rules = load_policy(policy).rules
        _write(rules_json(rules) if form == "json" else rules_text(rules), output)
        return
    if write_baseline and baseline is None:
        raise UsageError("--write-baseline has no file to write", remedy="add --baseline FILE")
    order = Order(require_paths(paths), policy, waivers, baseline, write_baseline)
    catalog = load_catalog(directory)
    checked = run_check(order, catalog, today=today_utc(), planner=_planner(catalog, stack))
    _write(render(checked.report, form), output)
    _say_beside(checked, form)
    if error := checked.report.verdict.error():
        raise DocumentedFailure(error)


def _planner(catalog: Catalog, stack: str | None) -> Callable[[Workload], Plan]:
    if stack is None:
        return partial(make_plan, catalog=catalog, provider=default_cloud())
    from stacks.site import Site
    from stacks.sticky import plan_for_stack

    state = Site(current().home, None, lambda _: None).existing(stack)
    return partial(plan_for_stack, catalog=catalog, state=state, provider=state.provider)


def _write(text: str, output: Path | None) -> None:
    if output is None:
        sys.stdout.write(text)
    else:
        output.write_text(text, encoding="utf-8")


def _say_beside(checked: Checked, form: str) -> None:
    """Warnings of specs, files that were skipped, and GitHub's step summary."""
    for warning in checked.warnings:
        warn(warning)
    if checked.report.skipped:
        say(f"{checked.report.skipped} other files skipped")
    if checked.report.left_out:
        say(f"not looked into: {', '.join(checked.report.left_out)}")
    summary = os.environ.get("GITHUB_STEP_SUMMARY")
    if form == "github" and summary:
        append_step_summary(checked.report, Path(summary))
