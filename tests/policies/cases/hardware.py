"""Cases of the hardware rules."""

from __future__ import annotations

from policies.facts import UNKNOWN
from tests.policies.builders import TRAINING, candidate, gcp, placement
from tests.policies.cases.common import NOT_KNOWN, Cases

T4 = candidate(instance_type="g4dn.xlarge")
V100 = candidate(instance_type="p3.2xlarge")
FLASH = {"training.attention": "flash"}
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
        ),
        boundary=(gcp(on_host_maintenance="TERMINATE"), gcp(on_host_maintenance="MIGRATE")),
        unknowns=(gcp(on_host_maintenance=UNKNOWN), gcp(on_host_maintenance="MIGRATE", has_gpu=UNKNOWN)),
    ),
}
