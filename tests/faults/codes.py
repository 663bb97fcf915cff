"""The answers that a call may get instead of a success, each made into our error by the product's own table."""

from __future__ import annotations

import functools

from botocore.exceptions import ClientError, ConnectionClosedError, ReadTimeoutError

from provisioner.clouds.aws.errors import About, translate
from provisioner.errors import GpuprovError

NO_ANSWER = ("timeout", "connection-reset")
"""Not codes: the connection ends, or nothing comes."""
UNKNOWN = "NobodyHasSeenThisCode"

CODES = (
    "InsufficientInstanceCapacity",
    "UnfulfillableCapacity",
    "InsufficientHostCapacity",
    "InsufficientReservedInstanceCapacity",
    "ReservationCapacityExceeded",
    "InsufficientVolumeCapacity",
    "InsufficientFreeAddressesInSubnet",
    "Unsupported",
    "SpotMaxPriceTooLow",
    "MaxSpotInstanceCountExceeded",
    "VcpuLimitExceeded",
    "InstanceLimitExceeded",
    "PendingVerification",
    "OptInRequired",
    "AuthFailure",
    "UnauthorizedOperation",
    "ExpiredToken",
    "RequestLimitExceeded",
    "Throttling",
    "SlowDown",
    "InternalError",
    "Unavailable",
    "ServiceUnavailable",
    "IdempotentParameterMismatch",
    "IdempotentInstanceTerminated",
    "InvalidInstanceID.NotFound",
    "InvalidParameterValue",
    "IncorrectInstanceState",
    "VolumeInUse",
    "DependencyViolation",
    "OperationNotPermitted",
    UNKNOWN,
    *NO_ANSWER,
)
"""Every EC2 code of the project's error taxonomy, what the network adds, and one that nobody knows."""

_STATUS = {"InsufficientInstanceCapacity": 500, "InternalError": 500, "Unavailable": 503, "ServiceUnavailable": 503}


def error_of(code: str, operation: str = "RunInstances") -> GpuprovError:
    """Our error for an answer; a new object each time, since callers attach causes."""
    ours = translate(_foreign(code, operation), About("ec2", operation, "us-east-1"))
    assert ours is not None
    return ours


@functools.cache
def _foreign(code: str, operation: str) -> Exception:
    if code == "timeout":
        return ReadTimeoutError(endpoint_url="https://ec2.us-east-1.amazonaws.com")
    if code == "connection-reset":
        return ConnectionClosedError(endpoint_url="https://ec2.us-east-1.amazonaws.com")
    response = {
        "Error": {"Code": code, "Message": "injected"},
        "ResponseMetadata": {"HTTPStatusCode": _STATUS.get(code, 400)},
    }
    return ClientError(response, operation)
