"""What stock moto lacks of gp3: speeds in RunInstances, what is included, limits, and one change of a disk at a time.

Source: EC2 API reference, CreateVolume, EbsBlockDevice and ModifyVolume; EBS user guide, "General Purpose SSD volumes".
"""

from __future__ import annotations

import time
from typing import Any

from moto.ec2.models import elastic_block_store as disks
from moto.ec2.responses import EC2Response

from tests.fakes.aws_rules import RULES, backend, patch, refuse

IOPS = (3_000, 80_000)
MIB_PER_S = (125, 2_000)
IOPS_PER_GIB = 500
IOPS_PER_MIB_PER_S = 4


def _check(size_gib: int, iops: int, mib_per_s: int) -> None:
    for name, value, (low, high) in (("iops", iops, IOPS), ("throughput", mib_per_s, MIB_PER_S)):
        if not low <= value <= high:
            raise refuse("InvalidParameterValue", f"Volume {name} of {value} is not in the range {low} - {high}")
    if iops > max(IOPS[0], size_gib * IOPS_PER_GIB):
        raise refuse("InvalidParameterCombination", "Iops to volume size ratio is too high; maximum is 500")
    if mib_per_s * IOPS_PER_MIB_PER_S > iops:
        raise refuse("InvalidParameterCombination", "Throughput (MiBps) to iops ratio is too high; maximum is 0.250000")


def _create(original: Any) -> Any:
    def create_volume(self: Any, size: Any, zone_name: Any, *rest: Any, **more: Any) -> Any:
        if more.get("volume_type") == "gp3":
            more["iops"] = int(more.get("iops") or IOPS[0])
            more["throughput"] = int(more.get("throughput") or MIB_PER_S[0])
            if size is not None:
                _check(int(size), more["iops"], more["throughput"])
        return original(self, size, zone_name, *rest, **more)

    return create_volume


def _modify(original: Any) -> Any:
    def modify_volume(self: Any, volume_id: str, *rest: Any, **more: Any) -> Any:
        volume = self.get_volume(volume_id)
        if time.monotonic() < getattr(volume, "modified_until", 0.0):
            raise refuse("IncorrectModificationState", f"{volume_id} is already being modified")
        sent = dict(zip(("target_size", "target_volume_type", "target_iops", "target_throughput"), rest, strict=False))
        sent = {**sent, **more}
        if volume.volume_type == "gp3":
            size, iops, speed = (sent.get(f"target_{name}") for name in ("size", "iops", "throughput"))
            _check(int(size or volume.size), int(iops or volume.iops), int(speed or volume.throughput))
        changed = original(self, volume_id, *rest, **more)
        volume.iops, volume.throughput = (v and int(v) for v in (volume.iops, volume.throughput))
        volume.modified_until = time.monotonic() + RULES.modifying_s
        return changed

    return modify_volume


def _run(original: Any) -> Any:
    def run_instances(self: Any) -> Any:
        wanted = {one["DeviceName"]: one.get("Ebs", {}) for one in self._get_param("BlockDeviceMappings", [])}
        for ebs in wanted.values():
            if ebs.get("VolumeType") == "gp3":
                _check(int(ebs["VolumeSize"]), int(ebs.get("Iops", IOPS[0])), int(ebs.get("Throughput", MIB_PER_S[0])))
        answer = original(self)
        for one in answer.result.instances:
            for device, ebs in wanted.items():
                mapping = one.block_device_mapping.get(device)
                if mapping is not None and ebs.get("VolumeType") == "gp3":
                    volume = backend(self.region).volumes[mapping.volume_id]
                    volume.iops = int(ebs.get("Iops", IOPS[0]))
                    volume.throughput = int(ebs.get("Throughput", MIB_PER_S[0]))
        return answer

    return run_instances


patch(disks.EBSBackend, "create_volume", _create)
patch(disks.EBSBackend, "modify_volume", _modify)
patch(EC2Response, "run_instances", _run)
