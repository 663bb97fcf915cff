"""What EC2 documents and the emulated account does, each with its source; a conformance test names those that it proves.

``docs/reliability.md`` states how many there are.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeVar

F = TypeVar("F", bound=Callable[..., object])

_IDEMPOTENCY = 'EC2 developer guide, "Ensuring idempotency in Amazon EC2 API requests"'
_ERRORS = 'EC2 developer guide, "Error codes for the Amazon EC2 API"'
_CONSISTENCY = 'EC2 developer guide, "Eventual consistency in the Amazon EC2 API"'
_RUN = "EC2 API reference, RunInstances"
_SPOT = 'EC2 user guide, "Spot Instance requests" and "Spot Instance request states"'
_LIFECYCLE = 'EC2 user guide, "Amazon EC2 instance state changes"'
_STOP = 'EC2 user guide, "Stop and start Amazon EC2 instances"'
_VOLUMES = 'EBS user guide, "Amazon EBS volume lifecycle"'
_BLOCKS = 'EC2 user guide, "Launch instances using Capacity Blocks"'
_RESERVATIONS = 'EC2 user guide, "Launch instances into an existing Capacity Reservation"'
_REPORTED = "reports: galaxyproject/cloudman#64, nib-health-funds/hammertime#29, runs-on/runs-on#29"

BEHAVIOURS: Mapping[str, tuple[str, str]] = {
    "token-repeats": ("the same token and parameters give the first machine again", _IDEMPOTENCY),
    "token-mismatch": ("the same token with other parameters is IdempotentParameterMismatch", _IDEMPOTENCY),
    "token-region": ("a token holds in its region", _IDEMPOTENCY),
    "token-terminated": (
        "the token of a terminated machine is IdempotentInstanceTerminated",
        f"{_ERRORS}; boto/boto3#4406",
    ),
    "token-unused": ("a refused call does not use its token up", _IDEMPOTENCY),
    "token-length": ("a token has at most 64 ASCII characters", _IDEMPOTENCY),
    "token-volume": ("CreateVolume keeps tokens as RunInstances does", _IDEMPOTENCY),
    "filter-token": ("machines are found by their token", "EC2 API reference, DescribeInstances, filter client-token"),
    "capacity-500": ("a want of capacity is HTTP 500, and an SDK with its defaults repeats the call", _REPORTED),
    "capacity-pool": ("capacity is that of a type in a zone", f"{_ERRORS}, InsufficientInstanceCapacity"),
    "unsupported-zone": ("a type that a zone does not offer is Unsupported", f"{_ERRORS}, Unsupported"),
    "offerings-zone-id": ("offerings are told by zone id", "EC2 API reference, DescribeInstanceTypeOfferings"),
    "zone-letters": ("letters of zones differ between accounts, ids do not", 'RAM user guide, "Availability Zone IDs"'),
    "dry-run": ("a dry run answers DryRunOperation with 412 and makes nothing", "EC2 API reference, common parameters"),
    "dry-run-rights": ("a dry run without the right is UnauthorizedOperation with 403", "EC2 API reference, common parameters"),
    "image-unknown": ("an unknown image is InvalidAMIID.NotFound", _ERRORS),
    "type-unknown": ("an unknown type is InvalidInstanceType", f"{_ERRORS}, InvalidInstanceType; as moto 5.2.5 spells it"),
    "group-unknown": ("an unknown group is InvalidGroup.NotFound", _ERRORS),
    "subnet-unknown": ("an unknown subnet is InvalidSubnetID.NotFound", _ERRORS),
    "volume-unknown": ("an unknown volume is InvalidVolume.NotFound", _ERRORS),
    "request-unknown": ("an unknown spot request is InvalidSpotInstanceRequestID.NotFound", _ERRORS),
    "user-data": ("user data has at most 16 KB before base64", 'EC2 user guide, "Run commands when you launch"'),
    "user-data-back": ("user data is given back as it was sent", "EC2 API reference, DescribeInstanceAttribute"),
    "metadata-options": ("metadata options of the launch are told", "EC2 API reference, InstanceMetadataOptionsResponse"),
    "tags-of-launch": ("tags of the create call are on machine, disks and interface at once", f"{_RUN}, TagSpecification"),
    "tags-fifty": ("a fifty-first tag is TagLimitExceeded", 'EC2 user guide, "Tag your Amazon EC2 resources"'),
    "tags-spot-only": ("a spot request cannot be tagged by a launch that makes none", f"{_RUN}, TagSpecification"),
    "spot-stop-behaviour": ("a one-time spot machine cannot have shutdown behaviour stop", "ansible/ansible#63246"),
    "spot-request-made": ("a spot launch makes an active request with its type and tags", _SPOT),
    "spot-one-time-stop": ("a one-time spot machine cannot be stopped", 'EC2 user guide, "Stop a Spot Instance"'),
    "spot-persistent-stop": ("a persistent one can, and its request is disabled until it starts", _SPOT),
    "spot-closed": ("the request of a one-time machine that ended is closed", _SPOT),
    "spot-relaunch": ("a persistent request whose machine ended opens again and starts another, untagged", _SPOT),
    "spot-cancelled": ("a cancelled request starts none, and leaves its machine running", 'EC2 user guide, "Cancel a Spot Instance request"'),
    "spot-interrupted": ("a machine that was taken back says Server.SpotInstanceTermination", "EC2 API reference, StateReason"),
    "spot-price": ("a limit below the market's price is SpotMaxPriceTooLow", _ERRORS),
    "quota-on-demand": ("more vCPUs than the family's quota are VcpuLimitExceeded", 'EC2 user guide, "On-Demand Instance quotas"'),
    "quota-spot": ("spot has a quota of its own: MaxSpotInstanceCountExceeded", 'EC2 user guide, "Spot Instance quotas"'),
    "quota-freed": ("stopped and ended machines take no quota", 'EC2 user guide, "On-Demand Instance quotas"'),
    "states-take-time": ("a machine is pending and shutting-down before it is what it becomes", _LIFECYCLE),
    "state-wrong": ("a pending machine cannot be stopped: IncorrectInstanceState", _ERRORS),
    "no-second-life": ("a terminated machine does not start again", _LIFECYCLE),
    "end-again": ("an end may be repeated", "EC2 API reference, TerminateInstances"),
    "ends-by-itself": ("a shutdown from inside does what the launch said", f"{_RUN}, InstanceInitiatedShutdownBehavior"),
    "shutdown-changes": ("what a shutdown from inside does is changed while a machine runs or is stopped", 'EC2 user guide, "Change instance initiated shutdown behavior"'),
    "shutdown-spot": ("attributes that protect or keep a machine are refused for one-time spot: UnsupportedOperation", "cloud-custodian/cloud-custodian#2083"),
    "inside-reason": ("a shutdown from inside is told apart from a call", "EC2 API reference, StateReason"),
    "spot-resumed": ("a persistent machine that was taken back is started by EC2 alone, with its disks", 'EC2 user guide, "Behavior of Spot Instance interruptions"'),
    "spot-cancelled-stop": ("a machine whose request is cancelled cannot be stopped", 'EC2 user guide, "Stop a Spot Instance"'),
    "protection": ("a protected machine is not terminated: OperationNotPermitted", 'EC2 user guide, "Change instance termination protection"'),
    "stop-reason": ("a stop says when and by whom", "EC2 API reference, StateReason"),
    "stop-address": ("a stop gives the public address back and keeps the private one", _STOP),
    "batch-fails": ("one unknown id fails the whole call", "EC2 API reference, TerminateInstances"),
    "young-hidden": ("a young machine does not show, and cannot be named", _CONSISTENCY),
    "region-own": ("regions hold their own objects", 'EC2 user guide, "Regions and Zones"'),
    "region-closed": ("regions say whether the account may use them", "EC2 API reference, DescribeRegions"),
    "pages": ("a list goes on with its token, and ids exclude a page size", 'EC2 developer guide, "Pagination"'),
    "status": ("status checks are told of running machines, of others on request", "EC2 API reference, DescribeInstanceStatus"),
    "volume-zone": ("a volume attaches in its own zone", _VOLUMES),
    "volume-one-machine": ("a volume in use attaches to no second machine: VolumeInUse", _ERRORS),
    "volume-device": ("a device name is used once", 'EC2 user guide, "Device names for volumes"'),
    "volume-in-use": ("an attached volume is not deleted: VolumeInUse", _ERRORS),
    "volume-grows": ("a volume does not shrink", "EC2 API reference, ModifyVolume"),
    "volume-changes": ("a volume is changed four times in 24 hours", "EC2 API reference, ModifyVolume, 2026"),
    "volume-survives": ("an attached data volume is available after its machine", _VOLUMES),
    "gp3-included": ("a gp3 volume has 3,000 IOPS and 125 MiB/s unless it is asked for more", "EC2 API reference, CreateVolume"),
    "gp3-limits": ("gp3 ends at 80,000 IOPS, 2,000 MiB/s, 500 IOPS per GiB and 0.25 MiB/s per IOPS", "EC2 API reference, EbsBlockDevice; EBS user guide"),
    "volume-one-change": ("a volume that is being modified takes no other change", "EC2 API reference, ModifyVolume"),
    "status-running": ("DescribeInstanceStatus lists running machines alone unless all are asked for", "EC2 API reference, DescribeInstanceStatus"),
    "volume-ends": ("a volume with DeleteOnTermination ends with its machine", 'EC2 user guide, "Preserve data when an instance is terminated"'),
    "volume-encrypted": ("a volume says that it is encrypted", "EC2 API reference, Volume"),
    "interface-ends": ("the interface that a launch makes ends with its machine", "EC2 API reference, InstanceNetworkInterfaceAttachment"),
    "group-once": ("a group's name is used once in a VPC: InvalidGroup.Duplicate", _ERRORS),
    "group-in-use": ("a group in use is not deleted: DependencyViolation", _ERRORS),
    "vpc-way-out": ("a default VPC has one way out", 'VPC user guide, "Default VPCs"'),
    "subnet-addresses": ("default subnets give public addresses and count the free ones", 'VPC user guide, "Default subnets"'),
    "block-room": ("a capacity block takes as many machines as it has places", _BLOCKS),
    "block-market": ("a block is used by its own market type alone", _BLOCKS),
    "reservation-filter": ("DescribeCapacityReservations knows no filter by type of reservation", "EC2 API reference, DescribeCapacityReservations"),
    "reservation-back": ("a machine that ends gives its place back", _RESERVATIONS),
    "expired": ("expired credentials are refused by every call", f"{_ERRORS}, RequestExpired; STS, ExpiredToken"),
    "throttled": ("too many calls are RequestLimitExceeded with 503, which an SDK repeats", 'EC2 developer guide, "Request throttling"'),
    "answer-lost": ("a connection may end after the effect, and the effect stays", 'AWS SDKs guide, "Retry behavior"'),
    "quota-readable": ("a quota is told where the account may read it", "Service Quotas API reference, GetServiceQuota"),
    "image-parameter": ("deep learning images are named by public parameters", 'Deep Learning AMIs guide, "Find a DLAMI ID"'),
}  # fmt: skip
"""Key -> what is documented, and where."""


def documented(*keys: str) -> Callable[[F], F]:
    """Mark a test as the proof of some behaviours."""
    if unknown := set(keys) - BEHAVIOURS.keys():
        raise KeyError(f"no documented behaviour: {sorted(unknown)}")

    def mark(test: F) -> F:
        test.proves = keys  # type: ignore[attr-defined]
        return test

    return mark
