"""Cases of the hardware rules."""

from __future__ import annotations

from typing import Any

from policies.facts import UNKNOWN, PlacementFacts
from tests.policies.builders import TRAINING, candidate, gcp, machine, placement
from tests.policies.cases.common import NOT_KNOWN, Cases

T4 = candidate(instance_type="g4dn.xlarge")
V100 = candidate(instance_type="p3.2xlarge")
FLASH = {"training.attention": "flash"}
IMAGE = "projects/deeplearning-platform-release/global/images/common-cu128-ubuntu-2204-nvidia-{}-v20261101"


def cuda(image: Any, least: Any) -> PlacementFacts:
    return placement(candidate(cuda_least=least), container=image)


HARDWARE = {
    "gpu-runtime": Cases(
        passes=(placement(), placement(T4), placement(candidate(), candidate(key="failover[1]"))),
        fails=tuple(
            placement(candidate(instance_type=name, refusals={"runtime": "neuron devices need a runtime of their own"}))
            for name in ("inf2.xlarge", "trn1.2xlarge", "dl1.24xlarge")
        ),
        boundary=(
            placement(candidate(refusals={"precision": "no bf16"})),
            placement(candidate(refusals={"runtime": "no build"})),
        ),
        unknowns=(placement(NOT_KNOWN), placement(workload=UNKNOWN)),
    ),
    "gpu-formats": Cases(
        passes=(placement(), placement(candidate(instance_type="g6e.xlarge")), placement(V100)),
        fails=tuple(
            placement(candidate(instance_type=name, refusals={"precision": "it has no bf16"}))
            for name in ("p3.2xlarge", "g4dn.xlarge", "g3.16xlarge")
        ),
        boundary=(
            placement(candidate(refusals={"runtime": "no build"})),
            placement(candidate(refusals={"precision": "no FP8"})),
        ),
        unknowns=(placement(NOT_KNOWN),),
    ),
    "flash-attention": Cases(
        passes=tuple(
            placement(candidate(instance_type=name), base=TRAINING, changes=FLASH)
            for name in ("g6.xlarge", "g5.xlarge", "p5.48xlarge")
        ),
        fails=tuple(
            placement(candidate(instance_type=name), base=TRAINING, changes=FLASH)
            for name in ("g4dn.xlarge", "p3.2xlarge", "g3.16xlarge")
        ),
        boundary=(
            placement(candidate(instance_type="p4d.24xlarge"), base=TRAINING, changes=FLASH),
            placement(candidate(instance_type="g4dn.xlarge"), base=TRAINING, changes=FLASH),
        ),
        unknowns=(
            placement(NOT_KNOWN, base=TRAINING, changes=FLASH),
            placement(workload=UNKNOWN),
        ),
    ),
    "engine-capability": Cases(
        passes=(placement(), placement(V100), placement(T4, changes={"inference.engine": "sglang"})),
        fails=(
            placement(candidate(instance_type="g3.16xlarge")),
            placement(V100, changes={"inference.engine": "sglang"}),
            placement(T4, changes={"inference.engine": "tensorrt-llm"}),
        ),
        boundary=(
            placement(candidate(instance_type="p4d.24xlarge"), changes={"inference.engine": "tensorrt-llm"}),
            placement(T4, changes={"inference.engine": "tensorrt-llm"}),
        ),
        unknowns=(
            placement(NOT_KNOWN),
            placement(workload=UNKNOWN),
            placement(shape=UNKNOWN, changes={"inference.engine": ...}),
        ),
    ),
    "host-maintenance": Cases(
        passes=(gcp(), gcp(instance_type="a2-highgpu-1g"), gcp(has_gpu=UNKNOWN)),
        fails=(
            gcp(on_host_maintenance="MIGRATE"),
            gcp(on_host_maintenance=None),
            gcp(on_host_maintenance="terminate"),
            gcp(on_host_maintenance="TERMINATE", has_gpu=False, instance_type="e2-standard-4"),
        ),
        boundary=(gcp(on_host_maintenance="TERMINATE"), gcp(on_host_maintenance="MIGRATE")),
        unknowns=(
            gcp(on_host_maintenance=UNKNOWN),
            gcp(on_host_maintenance="MIGRATE", has_gpu=UNKNOWN),
            gcp(on_host_maintenance="TERMINATE", has_gpu=False, instance_type="e2-micro", capacity_type=UNKNOWN),
            gcp(on_host_maintenance=UNKNOWN, has_gpu=False, instance_type="e2-micro"),
            gcp(on_host_maintenance="TERMINATE", has_gpu=False, instance_type=UNKNOWN),
        ),
    ),
    "container-cuda": Cases(
        passes=(
            cuda("nvidia/cuda:12.8.1-runtime-ubuntu22.04", (12, 8)),
            cuda("acme/serve:2.1-cu129", (12, 8)),
            cuda("ghcr.io/acme/trainer:cuda12.9-py312", (12, 8)),
            cuda("acme/cuda-13.0:latest", (12, 9)),
            cuda("acme/serve:cu118", None),
        ),
        fails=(
            cuda("nvidia/cuda:11.4.3-runtime@sha256:" + "a" * 64, (12, 8)),
            cuda("acme/serve:2.1-cu118", (12, 8)),
            cuda("acme/serve:torch2.7.1-cuda11.8-cudnn9", (12, 8)),
            cuda("acme/serve:cuda_12.6", (12, 8)),
        ),
        boundary=(cuda("acme/serve:cu128", (12, 8)), cuda("acme/serve:cu127", (12, 8))),
        unknowns=(
            cuda(UNKNOWN, (12, 8)),
            cuda("acme/serve:cu118", UNKNOWN),
            placement(container="acme/serve:cu118", candidates=UNKNOWN),
        ),
    ),
    "image-driver": Cases(
        passes=(
            machine(image=IMAGE.format(570), driver_branches=(570, None)),
            machine(image=IMAGE.format(580), driver_branches=(570, 580)),
            machine(image="ubuntu-accelerator-2404-amd64-with-nvidia-580", driver_branches=(None, 580)),
        ),
        fails=(
            machine(image=IMAGE.format(535), driver_branches=(570, None)),
            machine(image=IMAGE.format(595), driver_branches=(None, 580)),
            machine(image="acme-nvidia-driver-550", driver_branches=(580, None)),
        ),
        boundary=(
            machine(image=IMAGE.format(580), driver_branches=(None, 580)),
            machine(image=IMAGE.format(581), driver_branches=(None, 580)),
        ),
        unknowns=(
            machine(image=UNKNOWN, driver_branches=(570, None)),
            machine(image=IMAGE.format(535), driver_branches=UNKNOWN),
        ),
    ),
}
