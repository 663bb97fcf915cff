"""A process that works on a sandbox until it is done or killed: ``create_worker.py HOME MODE PREFIX COUNT``."""

from __future__ import annotations

import sys
from pathlib import Path

from provisioner.clouds.cloud import InstanceRequest, Placement, VolumeRequest
from provisioner.clouds.sandbox.cloud import SandboxCloud
from provisioner.units import GIB
from provisioner.vocabulary import CapacityType

PLACE = Placement("aws", "us-east-1", "use1-az2", "g6.xlarge", CapacityType.ON_DEMAND)


def instance(token: str) -> InstanceRequest:
    tags = {"gpuprov:stack-id": token, "gpuprov:expires-at": "none"}
    return InstanceRequest(token, f"machine-{token}", PLACE, "ami-1", 100 * GIB, tags)


def volume(token: str) -> VolumeRequest:
    tags = {"gpuprov:stack-id": token, "gpuprov:expires-at": "none"}
    return VolumeRequest(token, f"disk-{token}", PLACE.region, PLACE.zone or "", 10 * GIB, tags, PLACE.cloud)


def main(home: str, mode: str, prefix: str, count: str) -> None:
    cloud = SandboxCloud(Path(home))
    cloud.resolve_image(PLACE)  # reads the catalog, so that the race below is about the file
    print("ready", flush=True)
    sys.stdin.readline()
    for number in range(int(count)):
        token = f"{prefix}-{number}" if mode == "own" else f"shared-{number}"
        made = cloud.create_instance(instance(token))
        disk = cloud.create_volume(volume(token))
        print(token, made.id, disk.id, flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
