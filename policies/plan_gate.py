"""The gate before ``up``: a plan that is about to be carried out."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from policies.config import load_policy
from policies.day import today_utc
from policies.facts_plan import planned_subjects
from policies.files import find_policy, find_root
from policies.finding import Verdict
from policies.gate import judge
from policies.selection import Policy
from provisioner.catalog.snapshot import Catalog
from provisioner.planner.plan import Plan
from provisioner.workload.spec import Workload


def judge_plan(workload: Workload, plan: Plan, catalog: Catalog, *, spec: Path | None = None) -> Verdict:
    """What the gate says of a plan that is about to be carried out: ``up`` asks before anything is created.

    Every offer that the plan may use is sized again. ``spec`` is the file that the workload came from: it gives positions, and
    the policy file beside it (or in a folder above it) applies.

    Raises:
        UsageError: the policy file is wrong, or a rule crashed.
    """
    policy = Policy() if spec is None else replace(load_policy(find_policy([spec])), root=find_root([spec]))
    return judge(planned_subjects(workload, plan, catalog, spec=spec), policy, today_utc())
