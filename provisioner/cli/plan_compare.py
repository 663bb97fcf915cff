"""``gpuprov plan --compare A B``: two plans side by side."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import IO

from provisioner.catalog.snapshot import Catalog
from provisioner.cli.located import located
from provisioner.cli.settings import current, warn
from provisioner.errors import UsageError
from provisioner.planner.compare import comparison_document
from provisioner.planner.decide import make_plan
from provisioner.planner.documents import plan_from_document
from provisioner.planner.plan import Plan
from provisioner.workload.load import load

FORMATS = ("table", "json")


def compare(
    paths: tuple[Path, Path],
    catalog: Catalog,
    cloud: str,
    *,
    overrides: Sequence[str],
    form: str | None,
    output: Path | None,
) -> None:
    """Print what differs between the plans of two specs or saved plans; ``overrides`` change B.

    Raises:
        UsageError: a form that a comparison does not have, a file that is no plan, or changes of a saved plan.
        SpecError: a file that is no spec.
    """
    form = form or ("json" if output is not None and output.suffix == ".json" else "table")
    if form not in FORMATS:
        raise UsageError(f"a comparison has no form {form}", remedy=f"take {' or '.join(FORMATS)}")
    plans = (_plan_of(paths[0], (), catalog, cloud), _plan_of(paths[1], overrides, catalog, cloud))
    names = (str(paths[0]), " ".join([str(paths[1]), *(f"--set {each}" for each in overrides)]))
    if output is not None:
        with output.open("w", encoding="utf-8") as file:
            _write(plans, names, form, file, color=False)
    else:
        _write(plans, names, form, sys.stdout, color=current().color)


def _write(plans: tuple[Plan, Plan], names: tuple[str, str], form: str, file: IO[str], *, color: bool) -> None:
    if form == "json":
        file.write(json.dumps(comparison_document(plans, names), indent=2, ensure_ascii=False) + "\n")
        return
    from provisioner.report.comparison import print_comparison  # rich only where a table is printed

    print_comparison(plans, names, file=file, color=color)


def _plan_of(path: Path, overrides: Sequence[str], catalog: Catalog, cloud: str) -> Plan:
    """The plan that a JSON file holds, or that a spec gives."""
    if path.suffix == ".json":
        if overrides:
            raise UsageError("--set cannot change a saved plan", where=str(path), remedy="name its spec as B")
        return _saved_plan(path)
    loaded = load(path, overrides)
    for warning in loaded.warnings:
        warn(warning)
    with located(loaded):
        return make_plan(loaded.workload, catalog, provider=cloud)


def _saved_plan(path: Path) -> Plan:
    try:
        return plan_from_document(json.loads(path.read_bytes()))
    except OSError as error:
        raise UsageError(f"cannot read the plan: {error.strerror}", where=str(path)) from None
    except ValueError as error:
        raise UsageError(f"this is no JSON: {error}", where=str(path), remedy="save a plan with -o plan.json") from None
    except UsageError as error:
        error.where = error.where or str(path)
        raise
