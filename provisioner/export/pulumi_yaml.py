"""An ordinary Pulumi project in YAML: the same three kinds of resources that ``up`` makes, for the stock ``pulumi`` program.

The resources are the contract of the provider (``gpuprov:index:*``); the project needs ``pulumi-resource-gpuprov`` on PATH.
"""

from __future__ import annotations

from typing import Any

from provisioner.errors import UsageError
from provisioner.export.job import ExportJob
from provisioner.planner.machine_facts import node_document, predicted_lifetime
from provisioner.planner.plan import PlannedOffer

FACTS = ("stackId", "generation", "createdAt", "expiresAt", "image", "owner", "avoid")
"""Outputs of a launch that the machine is made from."""
DISK_KINDS = ("data", "checkpoints")


def project(job: ExportJob) -> dict[str, Any]:
    """The document of a ``Pulumi.yaml``.

    Raises:
        UsageError: the plan needs several machines, which one ``GpuInstance`` is not, or the image that ``up`` looks up.
    """
    if job.workload.run == "auto":
        raise UsageError(
            "`run: auto` takes the image that `gpuprov up` looks up, and a file has none",
            remedy="state it: run: {image: NAME@sha256:…, command: [...], ports: [...]}",
        )
    if job.choice.instances != 1:
        raise UsageError(
            f"the plan needs {job.choice.instances} machines, and a project has one GpuInstance",
            remedy="allow larger instance types, or fewer replicas",
        )
    common: dict[str, Any] = {"workload": "${workload}", "offers": "${offers}"}
    root = next((item.size_bytes for item in job.plan.storage if item.kind == "root"), None)
    if root is not None:
        common["rootVolume"] = root
    disks = [item for item in job.plan.storage if item.kind in DISK_KINDS]
    resources: dict[str, Any] = {"launch": {"type": "gpuprov:index:Launch", "properties": common | {"node": "${node}"}}}
    for item in disks:
        properties = {"stackId": "${launch.stackId}", "name": item.name, "size": item.size_bytes} | {
            key: common[key] for key in ("offers", "workload")
        }
        resources[item.name] = {"type": "gpuprov:index:Volume", "properties": properties}
    machine = common | {
        "launch": {fact: f"${{launch.{fact}}}" for fact in FACTS},
        "volumes": [{"name": f"${{{item.name}.name}}", "size": f"${{{item.name}.size}}"} for item in disks],
        "tags": {str(key): str(value) for key, value in job.workload.tags.items()},
        "power": "running",
        "node": "${node}",
    }
    offers = [offer for offer in job.offers if offer.instances == 1]
    resources["instance"] = {"type": "gpuprov:index:GpuInstance", "properties": machine}
    return {
        "name": job.name,
        "runtime": "yaml",
        "variables": {
            "workload": _escaped(_bounded(job)),
            "offers": [_offer(offer) for offer in offers],
            "node": _escaped(node_document(job.plan, {offer.key for offer in offers})),
        },
        "resources": resources,
        "outputs": {
            "instanceId": "${instance.instanceId}",
            "publicIp": "${instance.publicIp}",
            "expiresAt": "${instance.expiresAt}",
        },
    }


def notes(job: ExportJob) -> list[str]:
    """What to know before the first ``pulumi up``."""
    del job
    return [
        "needs pulumi-resource-gpuprov on PATH (it comes with gpuprov), and GPUPROV_CLOUD to say where the plan is carried out",
        '`pulumi up` asks no policy by itself: add --policy-pack "$(which gpuprov-policy)"',
    ]


def _bounded(job: ExportJob) -> dict[str, Any]:
    """The spec with the lifetime that ``up`` would give: a run longer than the provider's default would be cut short."""
    document = job.workload.to_document()
    predicted = predicted_lifetime(job.workload, job.plan)
    if predicted is not None:
        document["lifecycle"] = {**document.get("lifecycle", {}), "max_lifetime": predicted}
    return document


def _offer(offer: PlannedOffer) -> dict[str, Any]:
    place = {"cloud": offer.cloud, "region": offer.region} | ({"zone": offer.zone} if offer.zone is not None else {})
    return place | {"instanceType": offer.instance_type, "capacityType": str(offer.capacity_type)}


def _escaped(value: Any) -> Any:
    """A value whose text the YAML language does not read as an expression: ``${`` is written ``$${``."""
    if isinstance(value, dict):
        return {key: _escaped(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_escaped(item) for item in value]
    return value.replace("${", "$${") if isinstance(value, str) else value
