"""One run of the gate over files: policy, waivers and baseline read, files judged, a report made."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import date
from pathlib import Path

from policies.config import load_policy, load_waivers
from policies.files import find_policy, find_root
from policies.formats.report import Report
from policies.gate import judge
from policies.placement import Placer
from policies.registry import RULES
from policies.rule import Rule
from policies.secrets import redact
from policies.selection import Policy
from policies.sources import Reading, read_paths
from provisioner.catalog.snapshot import Catalog
from provisioner.errors import GpuprovError, UsageError
from provisioner.planner.plan import Plan
from provisioner.records import record
from provisioner.workload.spec import Workload

RULES_SCHEMA = "gpuprov.rules/1"


@record(frozen=True, slots=True)
class Order:
    """What is to be judged, and by what. ``policy`` ``None`` looks for gpuprov-policy.yaml beside the first path and above it."""

    paths: tuple[Path, ...]
    policy: Path | None = None
    waivers: Path | None = None
    baseline: Path | None = None
    write_baseline: bool = False


@record(frozen=True, slots=True)
class Checked:
    """A run's report, with what is said beside it."""

    report: Report
    warnings: tuple[str, ...] = ()


def run_check(
    order: Order, catalog: Catalog, *, today: date, planner: Callable[[Workload], Plan] | None = None
) -> Checked:
    """Judge the paths of an order.

    Raises:
        UsageError: a path, spec, policy, waiver or baseline file is wrong, or a rule crashed; secrets are left out of it.
    """
    try:
        return _run(order, catalog, today, planner)
    except GpuprovError as error:
        error.message = redact(error.message)
        error.remedy = redact(error.remedy) if error.remedy else error.remedy
        raise


def _run(order: Order, catalog: Catalog, today: date, planner: Callable[[Workload], Plan] | None) -> Checked:
    policy = policy_of(order, today)
    reading = read_paths(order.paths, Placer(catalog, planner))
    if reading.errors:
        raise _first_error(reading)
    verdict = judge(reading.subjects, policy, today)
    if order.write_baseline and order.baseline is not None:
        from policies.baseline import write_baseline

        write_baseline(order.baseline, verdict)
        verdict = judge(reading.subjects, replace(policy, baseline=_marks(order.baseline)), today)
    report = Report(verdict, policy.root, reading.files, reading.skipped, reading.left_out)
    warnings = [redact(warning) for warning in reading.warnings]
    if policy.baseline and not any(finding.in_baseline for finding in verdict.results):
        warnings.append(
            f"nothing of the baseline {order.baseline} is found any more: remove it, or is it another project's?"
        )
    return Checked(report, tuple(warnings))


def policy_of(order: Order, today: date) -> Policy:
    """The policy of an order: its file, its waivers, its baseline.

    Raises:
        UsageError: one of the files is wrong.
    """
    file = order.policy if order.policy is not None else find_policy(order.paths)
    policy = load_policy(file, today=today)
    waivers = policy.waivers + (
        load_waivers(order.waivers, today=today, rules=policy.rules) if order.waivers is not None else ()
    )
    baseline = _marks(order.baseline) if order.baseline is not None and not order.write_baseline else frozenset()
    return replace(policy, waivers=waivers, baseline=baseline, root=find_root(order.paths))


def _marks(path: Path) -> frozenset[str]:
    from policies.baseline import load_baseline

    return load_baseline(path)


def _first_error(reading: Reading) -> GpuprovError:
    """The first file's error; it names how many other files cannot be judged."""
    first, *others = reading.errors
    if others:
        where = ", ".join(str(error.where) for error in others[:3] if error.where)
        first.message = f"{first.message} (and {len(others)} more files cannot be judged: {where})"
    return first


def rules_text(rules: Sequence[Rule] = RULES) -> str:
    """All rules for people: id, level, severity, title."""
    width = max(len(rule.id) for rule in rules)
    lines = []
    for family in dict.fromkeys(rule.family for rule in rules):
        lines.append(f"{family}:")
        for rule in (rule for rule in rules if rule.family == family):
            hard = "" if rule.waivable else ", cannot be waived"
            lines.append(f"  {rule.id:<{width}}  {rule.level}, {rule.severity}{hard}: {rule.title}")
    return "\n".join(lines) + "\n"


def rules_json(rules: Sequence[Rule] = RULES) -> str:
    """All rules as one document, parameters with their JSON Schema."""
    listed = [
        {
            "id": rule.id,
            "family": rule.family,
            "title": rule.title,
            "rationale": rule.rationale,
            "severity": str(rule.severity),
            "level": str(rule.level),
            "waivable": rule.waivable,
            "docs": rule.docs,
            "parameters": {parameter.name: parameter.schema() for parameter in rule.parameters},
        }
        for rule in rules
    ]
    return json.dumps({"schema": RULES_SCHEMA, "rules": listed}, indent=2, ensure_ascii=False) + "\n"


def require_paths(paths: Sequence[Path]) -> tuple[Path, ...]:
    """The paths of an invocation.

    Raises:
        UsageError: there is none.
    """
    if not paths:
        raise UsageError(
            "nothing to judge: no path is given", remedy="name a spec, a plan or a folder: `gpuprov check .`"
        )
    return tuple(paths)
