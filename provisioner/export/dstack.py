"""A dstack configuration: a service, a task, or without any command a bare machine, held to the plan's instance types.

Source: ``dstack/_internal/core/models`` of dstack 0.22 (configurations, profiles, resources).
"""

from __future__ import annotations

import shlex
from math import ceil
from typing import Any

from provisioner.errors import UsageError
from provisioner.export.job import ExportJob, general_notes

GPUS = {
    "A100-40GB": "A100",
    "A100-80GB": "A100",
    "V100-16GB": "V100",
    "V100-32GB": "V100",
}
"""GPU class -> dstack's name, where they differ; memory tells the sizes of one name apart."""
MEMORY = {"A100-40GB": "40GB", "A100-80GB": "80GB", "V100-16GB": "16GB", "V100-32GB": "32GB"}
"""GPU class -> memory in dstack's words, for names of two sizes."""


def configuration(job: ExportJob) -> dict[str, Any]:
    """The document of a dstack service or task.

    Raises:
        UsageError: the plan holds a share of a GPU, or buys capacity that a configuration can't ask for.
    """
    if not isinstance(job.gpu_count, int):
        raise UsageError(
            f"dstack counts whole GPUs, and {job.choice.instance_type} has {job.gpu_count} of one",
            remedy="name whole GPUs in placement.gpus or placement.instance_types",
        )
    if job.choice.capacity_type not in ("on-demand", "spot"):
        raise UsageError(
            f"a dstack configuration cannot ask for {job.choice.capacity_type} capacity",
            remedy="set placement.capacity to on-demand or spot",
        )
    kind = _kind(job)
    document: dict[str, Any] = {"type": kind, "name": job.name}
    if job.image is not None:
        document["image"] = job.image
    env = [f"{key}={value}" for key, value in job.env.items()] + list(job.secrets)
    if env:
        document["env"] = env
    if job.argv:
        document["commands"] = [shlex.join(job.argv)]
    if kind == "service":
        document |= {"port": job.ports[0], "replicas": max(1, min(job.choice.instances, job.choice.layout.replicas))}
        document["probes"] = [{"type": "http", "url": job.ready_path}]
    elif kind == "task":
        if job.ports:
            document["ports"] = list(job.ports)
        document["nodes"] = job.choice.instances
    return document | {"resources": _resources(job)} | _profile(job)


def _kind(job: ExportJob) -> str:
    """A service answers on a port; a task ends by itself; a dev environment waits for the commands of a person."""
    if not job.argv and job.image is None:
        return "dev-environment"
    return "service" if str(job.workload.task) == "serve" and job.ports else "task"


def notes(job: ExportJob) -> list[str]:
    """What the configuration does not say."""
    lines = general_notes(job)
    if job.secrets:
        lines.append(
            f"set in the environment of `dstack apply`, or as secrets of the project: {', '.join(job.secrets)}"
        )
    if job.workload.storage.data is not None:
        lines.append("storage.data is part of the machine's disk there; name a volume under `volumes` to keep it")
    return lines


def _resources(job: ExportJob) -> dict[str, Any]:
    gpu: dict[str, Any] = {
        "name": GPUS.get(job.choice.gpu, job.choice.gpu.replace("RTX-PRO-", "RTXPRO")),
        "count": job.gpu_count,
    }
    if job.choice.gpu in MEMORY:
        gpu["memory"] = MEMORY[job.choice.gpu]
    return {"gpu": gpu, "disk": f"{job.disk_gib}GB.."}


def _profile(job: ExportJob) -> dict[str, Any]:
    """Where and how the machine is bought: every offer of the plan with as many GPUs of the same kind as the choice."""
    alike = [
        offer
        for offer in job.offers
        if (offer.gpu, offer.gpus_per_instance, offer.capacity_type)
        == (job.choice.gpu, job.choice.gpus_per_instance, job.choice.capacity_type)
    ]
    profile: dict[str, Any] = {
        "backends": _distinct([offer.cloud for offer in alike]),
        "regions": _distinct([offer.region for offer in alike]),
        "instance_types": _distinct([offer.instance_type.partition("+")[0] for offer in alike]),
        "spot_policy": job.choice.capacity_type,
    }
    if (limit := job.workload.placement.max_price) is not None:
        profile["max_price"] = float(limit.amount_usd / job.choice.instances)
    if job.max_lifetime is not None:
        profile["max_duration"] = f"{ceil(job.max_lifetime.total_seconds())}s"
    if job.idle_after is not None:
        profile["idle_duration"] = f"{ceil(job.idle_after.total_seconds())}s"
    return profile


def _distinct(names: list[str]) -> list[str]:
    return list(dict.fromkeys(names))
