"""A plan as the file of another tool: the target's document under a head that says what it came from."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from provisioner.export import dstack, karpenter, pulumi_yaml, skypilot
from provisioner.export.job import ExportJob, job_of
from provisioner.planner.plan import Plan
from provisioner.workload.spec import Workload


@dataclass(frozen=True, slots=True)
class Target:
    """Another tool: how its documents are made, and how the file is used."""

    documents: Callable[[ExportJob], dict[str, Any] | list[dict[str, Any]]]
    notes: Callable[[ExportJob], list[str]]
    usage: str


TARGETS: Mapping[str, Target] = {
    "skypilot": Target(skypilot.task, skypilot.notes, "sky launch FILE"),
    "dstack": Target(dstack.configuration, dstack.notes, "dstack apply -f FILE"),
    "karpenter": Target(karpenter.manifests, karpenter.notes, "kubectl apply -f FILE"),
    "pulumi-yaml": Target(pulumi_yaml.project, pulumi_yaml.notes, "pulumi up, with FILE as Pulumi.yaml"),
}


@dataclass(frozen=True, slots=True)
class Exported:
    """A file for another tool, and what it leaves to do."""

    text: str
    notes: tuple[str, ...]


def export_plan(plan: Plan, workload: Workload, target: str) -> Exported:
    """The plan for ``target``; equal plans give equal bytes.

    Raises:
        NothingFits: the plan has no choice.
        UsageError: the target can't say what the plan says; the remedy names the key to change.
    """
    import yaml

    job = job_of(plan, workload)
    tool = TARGETS[target]
    made = tool.documents(job)
    documents = made if isinstance(made, list) else [made]
    notes = tuple(tool.notes(job))
    body = yaml.safe_dump_all(
        documents, sort_keys=False, allow_unicode=True, width=120, explicit_start=len(documents) > 1
    )
    return Exported(f"{_head(job, tool, notes)}{body}", notes)


def _head(job: ExportJob, tool: Target, notes: tuple[str, ...]) -> str:
    choice = job.choice
    price = "unknown price" if choice.price_usd_per_hour is None else f"{choice.price_usd_per_hour} USD/h each"
    dated = f" of {choice.price_as_of}" if choice.price_as_of else ""
    machines = f"{choice.instances} x {choice.instance_type} ({job.gpu_count} x {choice.gpu})"
    lines = [
        f"{job.name}: {machines}, {choice.cloud} {choice.region}, {choice.capacity_type}, {price}{dated}",
        f"made by gpuprov export from spec {job.plan.workload_digest} and catalog {job.plan.catalog_digest}",
        f"use: {tool.usage}",
        *(f"note: {note}" for note in notes),
    ]
    return "".join(f"# {line}\n" for line in lines)
