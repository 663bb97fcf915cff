"""A SkyPilot task: the plan's offers as an ordered list of resources.

Source: the task YAML of SkyPilot 0.14 (``sky/utils/schemas.py``). Zones of AWS are left out: plans name them by id, SkyPilot by the letter of
an account.
"""

from __future__ import annotations

import shlex
from math import ceil
from typing import Any

from provisioner.errors import UsageError
from provisioner.export.job import ExportJob, general_notes
from provisioner.planner.plan import PlannedOffer

ACCELERATORS = {"A100-40GB": "A100", "V100-16GB": "V100"}
"""GPU class -> SkyPilot's name, where they differ (``sky/catalog``)."""
INSTALL = {"vllm": "vllm", "sglang": "sglang[all]", "tensorrt-llm": "tensorrt-llm"}
"""Engine -> what pip installs where the spec has no image."""
CAPACITY = ("on-demand", "spot")
"""Ways of buying that a task can ask for."""


def task(job: ExportJob) -> dict[str, Any]:
    """The document of a SkyPilot task.

    Raises:
        UsageError: the plan buys capacity in a way that a task can't ask for.
    """
    if job.choice.capacity_type not in CAPACITY:
        raise UsageError(
            f"a SkyPilot task cannot ask for {job.choice.capacity_type} capacity",
            remedy="set placement.capacity to on-demand or spot",
        )
    document: dict[str, Any] = {"name": job.name, "num_nodes": _machines(job)}
    document["resources"] = _resources(job)
    if job.env:
        document["envs"] = job.env
    if job.secrets:
        document["secrets"] = dict.fromkeys(job.secrets)
    if (engine := _engine_to_install(job)) is not None:
        document["setup"] = f"pip install {shlex.quote(engine)}\n"
    if job.argv:
        document["run"] = shlex.join(job.argv) + "\n"
    if _is_service(job):
        document["service"] = {"readiness_probe": job.ready_path, "replicas": job.choice.instances}
    return document


def notes(job: ExportJob) -> list[str]:
    """What the task does not say."""
    lines = general_notes(job)
    if job.workload.storage.data is not None:
        lines.append("storage.data is part of the disk of the cluster there, and ends with it")
    if job.secrets:
        lines.append(f"give the secrets at launch: {' '.join(f'--secret {name}' for name in job.secrets)}")
    if job.max_lifetime is not None:
        lines.append("lifecycle.max_lifetime has no counterpart there: autostop looks at idleness alone")
    if _is_service(job):
        lines.append("`sky serve up` keeps the copies; `sky launch` starts one")
    return lines


def _is_service(job: ExportJob) -> bool:
    """Whether each machine is a copy of its own behind a load balancer."""
    return not job.workload.task.is_training and 1 < job.choice.instances <= job.choice.layout.replicas


def _machines(job: ExportJob) -> int:
    return 1 if _is_service(job) else job.choice.instances


def _resources(job: ExportJob) -> dict[str, Any]:
    common: dict[str, Any] = {"disk_size": job.disk_gib}
    if job.image is not None:
        common["image_id"] = f"docker:{job.image}"
    if job.ports:
        common["ports"] = list(job.ports)
    if job.idle_after is not None:
        stops = job.workload.lifecycle.idle.then != "terminate"
        common["autostop"] = {"idle_minutes": ceil(job.idle_after.total_seconds() / 60), "down": not stops}
    if (limit := job.workload.placement.max_price) is not None:
        common["max_hourly_cost"] = float(limit.amount_usd / job.choice.instances)
    entries: list[dict[str, Any]] = []
    for offer in job.offers:
        if offer.capacity_type in CAPACITY and (entry := _entry(offer)) not in entries:
            entries.append(entry)
    return common | ({"ordered": entries} if len(entries) > 1 else entries[0])


def _entry(offer: PlannedOffer) -> dict[str, Any]:
    place = [offer.cloud, offer.region]
    if offer.cloud != "aws" and offer.zone is not None:
        place.append(offer.zone)
    count = offer.gpus_per_instance
    name = ACCELERATORS.get(offer.gpu, offer.gpu.replace("RTX-PRO-", "RTXPRO"))
    return {
        "infra": "/".join(place),
        "instance_type": offer.instance_type.partition("+")[0],
        "accelerators": {name: int(count) if float(count).is_integer() else count},
        "use_spot": offer.capacity_type == "spot",
    }


def _engine_to_install(job: ExportJob) -> str | None:
    """The package of the planned engine, at the version that was sized; ``None`` with an image or a command of the user's own."""
    inference = job.workload.inference
    if job.image is not None or job.run is not None or inference is None or inference.engine is None:
        return None
    package = INSTALL.get(str(inference.engine.name))
    if package is None or not job.argv:
        return None
    version = inference.engine.version
    return (
        f"{package}=={version}.*"
        if version and version.count(".") == 1
        else package + (f"=={version}" if version else "")
    )
