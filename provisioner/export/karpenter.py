"""Karpenter objects for AWS: a node class, a node pool of the plan's offers, and the Deployment or Job that runs on it.

Source: the custom resources ``karpenter.sh/v1`` and ``karpenter.k8s.aws/v1``.
"""

from __future__ import annotations

from math import ceil
from typing import Any

from provisioner.errors import UsageError
from provisioner.export.job import ExportJob, general_notes

AMI_ALIAS = "al2023@latest"
NEVER = "Never"
TAINT = {"key": "nvidia.com/gpu", "value": "true", "effect": "NoSchedule"}
SERVING_IMAGES = {
    "vllm": "vllm/vllm-openai",
    "sglang.launch_server": "lmsysorg/sglang",
    "trtllm-serve": "nvcr.io/nvidia/tensorrt-llm/release",
    "llama-server": "ghcr.io/ggml-org/llama.cpp",
}
"""Publisher's image of an engine by the word that starts it; the version is the user's to pin."""


def manifests(job: ExportJob) -> list[dict[str, Any]]:
    """Node class, node pool and workload, in the order in which they are applied.

    Raises:
        UsageError: the plan is not on AWS, holds a share of a GPU, or is bought in a way that a node pool can't ask for.
    """
    if job.choice.cloud != "aws":
        raise UsageError(
            f"the plan is on {job.choice.cloud}, and Karpenter's node class is made for AWS here",
            remedy="set placement.clouds to [aws], or give --cloud aws",
        )
    if not isinstance(job.gpu_count, int):
        raise UsageError(
            f"a pod asks for whole GPUs, and {job.choice.instance_type} has {job.gpu_count} of one",
            remedy="name whole GPUs in placement.gpus or placement.instance_types",
        )
    if job.choice.capacity_type == "flex-start":
        raise UsageError("EC2 has no flex-start capacity", remedy="set placement.capacity to another word")
    return [_node_class(job), _node_pool(job), _workload(job)]


def notes(job: ExportJob) -> list[str]:
    """What the manifests do not say, and what they leave to fill in."""
    lines = [
        *general_notes(job),
        "spec.role and the discovery tag of the node class are names of your cluster: karpenter.sh/discovery: CLUSTER",
        f"amiSelectorTerms is {AMI_ALIAS}: pin a version before production",
        "the cluster needs the NVIDIA device plugin for nvidia.com/gpu",
    ]
    if job.image is None and job.argv:
        lines.append("the image is the publisher's without a version: pin it by digest")
    if job.secrets:
        lines.append(f"make a Secret {job.name} with the keys {', '.join(job.secrets)}")
    if job.workload.storage.data is not None:
        lines.append("storage.data is part of the node's disk there; claim a persistent volume to keep it")
    return lines


def _node_class(job: ExportJob) -> dict[str, Any]:
    spec: dict[str, Any] = {
        "amiSelectorTerms": [{"alias": AMI_ALIAS}],
        "role": "KarpenterNodeRole-CLUSTER",
        "subnetSelectorTerms": [{"tags": {"karpenter.sh/discovery": "CLUSTER"}}],
        "securityGroupSelectorTerms": [{"tags": {"karpenter.sh/discovery": "CLUSTER"}}],
        "blockDeviceMappings": [
            {
                "deviceName": "/dev/xvda",
                "ebs": {
                    "volumeSize": f"{job.disk_gib}Gi",
                    "volumeType": "gp3",
                    "encrypted": True,
                    "deleteOnTermination": True,
                },
            }
        ],
        "metadataOptions": {"httpEndpoint": "enabled", "httpTokens": "required", "httpPutResponseHopLimit": 1},
        "tags": {"workload": job.name} | {str(key): str(value) for key, value in job.workload.tags.items()},
    }
    if job.choice.capacity_type in ("reserved", "capacity-block"):
        spec["capacityReservationSelectorTerms"] = [{"tags": {"workload": job.name}}]
    return {
        "apiVersion": "karpenter.k8s.aws/v1",
        "kind": "EC2NodeClass",
        "metadata": {"name": job.name},
        "spec": spec,
    }


def _node_pool(job: ExportJob) -> dict[str, Any]:
    capacity = "reserved" if job.choice.capacity_type == "capacity-block" else str(job.choice.capacity_type)
    offers = [offer for offer in job.offers if offer.cloud == "aws" and offer.region == job.choice.region]
    alike = [offer for offer in offers if offer.gpus_per_instance == job.choice.gpus_per_instance]
    requirements = [
        _requirement("node.kubernetes.io/instance-type", [offer.instance_type for offer in alike]),
        _requirement("karpenter.sh/capacity-type", [capacity]),
        _requirement("topology.kubernetes.io/region", [job.choice.region]),
    ]
    zones = [offer.zone for offer in alike if offer.zone is not None]
    if zones and all(offer.zone is not None for offer in alike):
        requirements.append(_requirement("topology.k8s.aws/zone-id", zones))
    idle = f"{ceil(job.idle_after.total_seconds())}s" if job.idle_after is not None else NEVER
    lifetime = f"{ceil(job.max_lifetime.total_seconds())}s" if job.max_lifetime is not None else NEVER
    total = int(job.gpu_count) * job.choice.instances
    return {
        "apiVersion": "karpenter.sh/v1",
        "kind": "NodePool",
        "metadata": {"name": job.name},
        "spec": {
            "template": {
                "metadata": {"labels": {"workload": job.name}},
                "spec": {
                    "nodeClassRef": {"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": job.name},
                    "requirements": requirements,
                    "taints": [TAINT],
                    "expireAfter": lifetime,
                },
            },
            "disruption": {"consolidationPolicy": "WhenEmpty", "consolidateAfter": idle},
            "limits": {"nvidia.com/gpu": total},
        },
    }


def _requirement(key: str, values: list[str]) -> dict[str, Any]:
    return {"key": key, "operator": "In", "values": list(dict.fromkeys(values))}


def _workload(job: ExportJob) -> dict[str, Any]:
    serves = str(job.workload.task) == "serve"
    pod: dict[str, Any] = {
        "metadata": {"labels": {"workload": job.name}},
        "spec": {
            "nodeSelector": {"workload": job.name},
            "tolerations": [{"key": TAINT["key"], "operator": "Exists", "effect": TAINT["effect"]}],
            "containers": [_container(job)],
        },
    }
    metadata = {"name": job.name, "labels": {"workload": job.name}}
    if serves:
        spec: dict[str, Any] = {
            "replicas": job.choice.instances,
            "selector": {"matchLabels": {"workload": job.name}},
            "template": pod,
        }
        return {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": metadata, "spec": spec}
    pod["spec"]["restartPolicy"] = "OnFailure"
    spec = {
        "completions": job.choice.instances,
        "parallelism": job.choice.instances,
        "backoffLimit": 3,
        "template": pod,
    }
    if job.choice.instances > 1:
        spec["completionMode"] = "Indexed"
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": spec}


def _container(job: ExportJob) -> dict[str, Any]:
    image = job.image or next((SERVING_IMAGES[word] for word in job.argv if word in SERVING_IMAGES), "IMAGE")
    container: dict[str, Any] = {"name": "workload", "image": image}
    if job.argv:
        container["command"] = list(job.argv)
    variables: list[dict[str, Any]] = [{"name": key, "value": value} for key, value in job.env.items()]
    variables += [{"name": key, "valueFrom": {"secretKeyRef": {"name": job.name, "key": key}}} for key in job.secrets]
    if variables:
        container["env"] = variables
    if job.ports:
        container["ports"] = [{"containerPort": port} for port in job.ports]
        container["readinessProbe"] = {"httpGet": {"path": job.ready_path, "port": job.ports[0]}, "periodSeconds": 10}
    container["resources"] = {"limits": {"nvidia.com/gpu": job.gpu_count}}
    return container
