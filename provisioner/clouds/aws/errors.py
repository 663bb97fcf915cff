"""Every error of the AWS SDK as one of ours, by one table: class, what it says something about, for how long, what to do next.

A code that the table does not have stops the run with its raw text; it is never taken for a lack of capacity. An answer that
does not tell whether the call took effect (time-out, reset, a failure inside AWS) is ``Ambiguous``.

Source: EC2 API reference, "Error codes for the Amazon EC2 API"; InsufficientInstanceCapacity arrives as HTTP 500
(galaxyproject/cloudman#64, runs-on/runs-on#29), so the code counts and not the status; IdempotentInstanceTerminated
(boto/boto3#4406).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum
from types import MappingProxyType
from typing import Any

from provisioner.clouds.aws import unanswered
from provisioner.errors import (
    Ambiguous,
    CapacityError,
    CloudError,
    CredentialsError,
    GpuprovError,
    NotFound,
    QuotaError,
    Rejected,
    Throttled,
    TokenMismatch,
    TokenSpent,
)


class Scope(StrEnum):
    """What an answer says something about: how far another offer must be away to have a chance."""

    POOL = "market, type and zone"
    TYPE_IN_ZONE = "type and zone"
    RESERVATION = "host or reservation"
    VOLUME_POOL = "volume type and zone"
    SUBNET = "subnet"
    QUOTA_FAMILY = "region, market and quota family"
    REGION = "region"
    ACCOUNT = "account"
    REQUEST = "request"
    OBJECT = "object"
    CALL = "call"

    @property
    def short(self) -> str:
        """The scope as errors carry it: ``pool``, ``type-in-zone``, ``quota-family``."""
        return self.name.lower().replace("_", "-")


@dataclass(frozen=True, slots=True)
class Meaning:
    """One row of the table."""

    error: type[GpuprovError]
    scope: Scope
    lasts: timedelta | None
    """How long the answer stays true, as far as can be said; ``None``: until something is changed."""
    next_step: str
    """What a person does; ``{profile}``, ``{region}``, ``{service}`` and ``{operation}`` are filled in."""


@dataclass(frozen=True, slots=True)
class About:
    """The call that an error answers."""

    service: str
    operation: str
    """As the API names it: ``RunInstances``."""
    region: str
    profile: str | None = None

    @property
    def where(self) -> str:
        """For people: ``ec2:RunInstances in us-east-1``; without a service, nothing was called yet."""
        return f"{self.service}:{self.operation} in {self.region}" if self.service else "your AWS configuration"

    def fill(self, text: str) -> str:
        """A text of the table with the facts of this call."""
        option = f" --profile {self.profile}" if self.profile else ""
        return text.format(profile=option, region=self.region, service=self.service, operation=self.operation)


_MINUTES = timedelta(minutes=1)
_HOUR = timedelta(hours=1)
_DAY = timedelta(days=1)

_NEXT_OFFER = "nothing was made; the next offer is tried"
_ASK_QUOTA = (
    "nothing was made; ask for a larger quota: https://console.aws.amazon.com/servicequotas/home?region={region}"
)
_LOG_IN = "log in again: `aws sso login{profile}`, or renew the keys in your environment; then run the command again"
_KEYS = (
    "the keys are not valid in {region}: look with `aws sts get-caller-identity{profile}`, then correct AWS_PROFILE or"
    " the keys (a region that is not enabled, and a host whose clock is wrong, are answered so too)"
)
_CLOCK = "correct this host's clock, or the secret key; look with `aws sts get-caller-identity{profile}`"
_CLOCK_OR_SESSION = (
    "correct this host's clock (it must be right to 5 minutes); if it is right, log in again: `aws sso login{profile}`"
)
_RIGHT = "ask for the right {service}:{operation} in {region}, or use another profile (AWS_PROFILE, or aws.profile in the spec)"
_BARRED = (
    "a policy of your organisation bars it: leave {region} out of placement.regions, or ask those who keep the policy"
)
_ROLE = (
    "look with `aws sts get-caller-identity{profile}`: the profile's role must be assigned to you and trust you, so"
    " correct role_arn or sso_role_name in ~/.aws/config, or take another profile"
)
_SPOT_ROLE = (
    "the first spot machine of an account needs a role once: `aws iam create-service-linked-role --aws-service-name"
    " spot.amazonaws.com{profile}`"
)
_KEY = (
    "enable the key of aws.kms_key in {region}, and let its policy give you (and for spot machines the role"
    " AWSServiceRoleForEC2Spot) kms:CreateGrant"
)
_REPEAT = "it may have happened: run the command again, which repeats the same call with the same token"
_LATER = "nothing happened: run the command again in a minute"
_CORRECT = "correct the spec; the request would be refused in the same way everywhere"
_GONE = "it is gone, or not visible yet: `gpuprov refresh` takes what the cloud shows into the state"


def _row(error: type[GpuprovError], scope: Scope, lasts: timedelta | None, next_step: str) -> Meaning:
    return Meaning(error, scope, lasts, next_step)


_CAPACITY = {
    "InsufficientInstanceCapacity": _row(CapacityError, Scope.POOL, 10 * _MINUTES, _NEXT_OFFER),
    "InsufficientCapacity": _row(CapacityError, Scope.POOL, 10 * _MINUTES, _NEXT_OFFER),
    "UnfulfillableCapacity": _row(CapacityError, Scope.POOL, 10 * _MINUTES, _NEXT_OFFER),
    "InsufficientHostCapacity": _row(CapacityError, Scope.RESERVATION, 10 * _MINUTES, _NEXT_OFFER),
    "InsufficientReservedInstanceCapacity": _row(CapacityError, Scope.RESERVATION, 10 * _MINUTES, _NEXT_OFFER),
    "InsufficientReservedInstancesCapacity": _row(CapacityError, Scope.RESERVATION, 10 * _MINUTES, _NEXT_OFFER),
    "ReservationCapacityExceeded": _row(CapacityError, Scope.RESERVATION, 10 * _MINUTES, _NEXT_OFFER),
    "InvalidCapacityReservationState": _row(CapacityError, Scope.RESERVATION, 10 * _MINUTES, _NEXT_OFFER),
    "InsufficientVolumeCapacity": _row(CapacityError, Scope.VOLUME_POOL, 10 * _MINUTES, _NEXT_OFFER),
    "InsufficientFreeAddressesInSubnet": _row(
        CapacityError, Scope.SUBNET, _HOUR, "free addresses in the subnet, or name another in aws.subnets"
    ),
    "Unsupported": _row(CapacityError, Scope.TYPE_IN_ZONE, _DAY, _NEXT_OFFER),
    "SpotMaxPriceTooLow": _row(CapacityError, Scope.POOL, _HOUR, _NEXT_OFFER),
}
_QUOTA = {
    "VcpuLimitExceeded": _row(QuotaError, Scope.QUOTA_FAMILY, _HOUR, _ASK_QUOTA),
    "InstanceLimitExceeded": _row(QuotaError, Scope.QUOTA_FAMILY, _HOUR, _ASK_QUOTA),
    "MaxSpotInstanceCountExceeded": _row(QuotaError, Scope.QUOTA_FAMILY, _HOUR, _ASK_QUOTA),
    "MaxSpotFleetRequestCountExceeded": _row(QuotaError, Scope.QUOTA_FAMILY, _HOUR, _ASK_QUOTA),
    "VolumeLimitExceeded": _row(QuotaError, Scope.REGION, _HOUR, _ASK_QUOTA),
    "MaxIOPSLimitExceeded": _row(QuotaError, Scope.REGION, _HOUR, _ASK_QUOTA),
    "SecurityGroupLimitExceeded": _row(QuotaError, Scope.REGION, _HOUR, _ASK_QUOTA),
    "NetworkInterfaceLimitExceeded": _row(QuotaError, Scope.REGION, _HOUR, _ASK_QUOTA),
    "ResourceLimitExceeded": _row(QuotaError, Scope.REGION, _HOUR, _ASK_QUOTA),
    "RulesPerSecurityGroupLimitExceeded": _row(
        Rejected, Scope.REQUEST, None, "name fewer networks in access.cidrs, or fewer ports"
    ),
}
_CREDENTIALS = {
    "ExpiredToken": _row(CredentialsError, Scope.ACCOUNT, None, _LOG_IN),
    "ExpiredTokenException": _row(CredentialsError, Scope.ACCOUNT, None, _LOG_IN),
    "RequestExpired": _row(CredentialsError, Scope.ACCOUNT, None, _CLOCK_OR_SESSION),
    "RequestTimeTooSkewed": _row(CredentialsError, Scope.ACCOUNT, None, _CLOCK),
    "RequestInTheFuture": _row(CredentialsError, Scope.ACCOUNT, None, _CLOCK),
    "TokenRefreshRequired": _row(CredentialsError, Scope.ACCOUNT, None, _LOG_IN),
    "UnauthorizedException": _row(CredentialsError, Scope.ACCOUNT, None, _LOG_IN),
    "InvalidClientTokenId": _row(CredentialsError, Scope.ACCOUNT, None, _KEYS),
    "UnrecognizedClientException": _row(CredentialsError, Scope.ACCOUNT, None, _KEYS),
    "InvalidAccessKeyId": _row(CredentialsError, Scope.ACCOUNT, None, _KEYS),
    "AuthFailure": _row(CredentialsError, Scope.ACCOUNT, None, _KEYS),
    "MissingAuthenticationToken": _row(CredentialsError, Scope.ACCOUNT, None, _KEYS),
    "IncompleteSignature": _row(CredentialsError, Scope.ACCOUNT, None, _KEYS),
    "SignatureDoesNotMatch": _row(CredentialsError, Scope.ACCOUNT, None, _CLOCK),
    "InvalidSignatureException": _row(CredentialsError, Scope.ACCOUNT, None, _CLOCK),
    "AuthFailure.ServiceLinkedRoleCreationNotPermitted": _row(CredentialsError, Scope.ACCOUNT, None, _SPOT_ROLE),
    "UnauthorizedOperation": _row(CredentialsError, Scope.ACCOUNT, None, _RIGHT),
    "AccessDenied": _row(CredentialsError, Scope.ACCOUNT, None, _RIGHT),
    "AccessDeniedException": _row(CredentialsError, Scope.ACCOUNT, None, _RIGHT),
    "OptInRequired": _row(
        CredentialsError,
        Scope.REGION,
        None,
        "enable it (`aws account enable-region --region-name {region}{profile}`, or subscribe to the image), or leave"
        " {region} out of placement.regions",
    ),
    "PendingVerification": _row(
        CredentialsError, Scope.REGION, 4 * _HOUR, "AWS still verifies the account for {region}: wait for its e-mail"
    ),
    "Blocked": _row(CredentialsError, Scope.ACCOUNT, None, "AWS has blocked the account: open a support case"),
}
_THROTTLED = {
    code: _row(Throttled, Scope.CALL, _MINUTES, _LATER)
    for code in (
        "RequestLimitExceeded",
        "Throttling",
        "ThrottlingException",
        "ThrottledException",
        "RequestThrottled",
        "RequestThrottledException",
        "SlowDown",
        "TooManyRequestsException",
        "EC2ThrottledException",
        "PriorRequestNotComplete",
        "BandwidthLimitExceeded",
        "ConcurrentTagAccess",
    )
}
_AMBIGUOUS = {
    code: _row(Ambiguous, Scope.CALL, _MINUTES, _REPEAT)
    for code in (
        "InternalError",
        "InternalFailure",
        "InternalServerError",
        "InternalServiceError",
        "Unavailable",
        "ServiceUnavailable",
        "ServiceUnavailableException",
        "RequestTimeout",
        "RequestTimeoutException",
    )
}
_TOKENS = {
    "IdempotentParameterMismatch": _row(
        TokenMismatch,
        Scope.REQUEST,
        None,
        "the token came with another request before: the machine is looked up by its tags",
    ),
    "IdempotentInstanceTerminated": _row(
        TokenSpent, Scope.REQUEST, None, "the token's machine has ended: a new generation makes a new one"
    ),
}
_MISSING = {
    code: _row(NotFound, Scope.OBJECT, None, _GONE)
    for code in (
        "InvalidInstanceID.NotFound",
        "InvalidVolume.NotFound",
        "InvalidGroup.NotFound",
        "InvalidGroupId.NotFound",
        "InvalidSubnetID.NotFound",
        "InvalidVpcID.NotFound",
        "InvalidAMIID.NotFound",
        "InvalidAMIID.Unavailable",
        "InvalidSnapshot.NotFound",
        "InvalidNetworkInterfaceID.NotFound",
        "InvalidAllocationID.NotFound",
        "InvalidSpotInstanceRequestID.NotFound",
        "InvalidCapacityReservationId.NotFound",
        "InvalidAttachment.NotFound",
        "InvalidPermission.NotFound",
        "InvalidID",
        "ParameterNotFound",
        "NoSuchEntity",
        "NoSuchResourceException",
    )
}
_REJECTED = {
    code: _row(Rejected, Scope.REQUEST, None, _CORRECT)
    for code in (
        "InvalidParameterValue",
        "InvalidParameterCombination",
        "InvalidParameterDependency",
        "InvalidParameter",
        "InvalidInput",
        "InvalidRequest",
        "MissingParameter",
        "MissingInput",
        "UnknownParameter",
        "ValidationError",
        "ValidationException",
        "InvalidInstanceType",
        "InvalidInstanceType.NotFound",
        "InvalidZone.NotFound",
        "InvalidAvailabilityZone",
        "InvalidBlockDeviceMapping",
        "InvalidUserData.Malformed",
        "InvalidAMIID.Malformed",
        "InvalidInstanceID.Malformed",
        "InvalidGroupId.Malformed",
        "InvalidParameterValue.Malformed",
        "EncryptedVolumesNotSupported",
        "TagLimitExceeded",
        "InvalidGroup.Duplicate",
        "InvalidPermission.Duplicate",
        "InvalidIamInstanceProfile",
        "UnsupportedOperation",
    )
} | {
    "IncorrectInstanceState": _row(Rejected, Scope.OBJECT, _MINUTES, "wait until its state allows it"),
    "IncorrectState": _row(Rejected, Scope.OBJECT, _MINUTES, "wait until its state allows it"),
    "IncorrectSpotRequestState": _row(Rejected, Scope.OBJECT, _MINUTES, "wait until its state allows it"),
    "InvalidKmsKey.InvalidState": _row(Rejected, Scope.REQUEST, None, _KEY),
    "InvalidKmsKey.NotFound": _row(Rejected, Scope.REQUEST, None, _KEY),
    "CustomerKeyHasBeenRevoked": _row(Rejected, Scope.REQUEST, None, _KEY),
    "AttachmentLimitExceeded": _row(Rejected, Scope.OBJECT, None, "use fewer data disks, or a larger machine"),
    "OperationNotPermitted": _row(
        Rejected,
        Scope.OBJECT,
        None,
        "somebody has protected it: take that away with `aws ec2 modify-instance-attribute --no-disable-api-termination"
        " --instance-id ID --region {region}{profile}` (or --no-disable-api-stop), and run the command again",
    ),
    "TargetNotConnected": _row(Rejected, Scope.OBJECT, _MINUTES, "wait until it is registered with Systems Manager"),
    "VolumeInUse": _row(Rejected, Scope.OBJECT, _MINUTES, "end its machine first"),
    "DependencyViolation": _row(Rejected, Scope.OBJECT, _MINUTES, "end what uses it first"),
    "InvalidVolume.ZoneMismatch": _row(Rejected, Scope.OBJECT, None, "make the machine in the disk's zone"),
    "IncorrectModificationState": _row(
        Rejected, Scope.OBJECT, _HOUR, "a disk can be changed again once its last change is complete"
    ),
    "VolumeModificationRateExceeded": _row(
        Rejected, Scope.OBJECT, _DAY, "a disk can be changed four times in 24 hours: wait, and run the command again"
    ),
    "VPCIdNotSpecified": _row(
        Rejected,
        Scope.REGION,
        None,
        "`aws ec2 create-default-vpc --region {region}{profile}`, or name aws.vpc or aws.subnets",
    ),
    "DefaultVpcDoesNotExist": _row(
        Rejected,
        Scope.REGION,
        None,
        "`aws ec2 create-default-vpc --region {region}{profile}`, or name aws.vpc or aws.subnets",
    ),
}

TABLE: Mapping[str, Meaning] = MappingProxyType(
    _CAPACITY | _QUOTA | _CREDENTIALS | _THROTTLED | _AMBIGUOUS | _TOKENS | _MISSING | _REJECTED
)
"""Error code of AWS -> what it means."""

_SERVER_FAILURE = 500
_ENCODED = re.compile(r"\s*Encoded authorization failure message:.*", re.DOTALL)
_MESSAGE_MAX = 600
_MISSING_RIGHT = re.compile(r"not authorized to perform: ([a-z0-9-]+:[A-Za-z]+)")
_BY_ORGANISATION = "explicit deny in a service control policy"
"""Source: IAM user guide, "Troubleshoot access denied error messages"."""


def translate(error: Exception, about: About) -> GpuprovError | None:
    """Our error for what a call of boto3 raised; ``None`` for what is no answer of AWS but a bug of ours."""
    from botocore.exceptions import BotoCoreError, ClientError  # type: ignore[import-untyped] # botocore ships no types
    from botocore.parsers import ResponseParserError  # type: ignore[import-untyped]

    if isinstance(error, ClientError):
        if about.operation and error.operation_name != about.operation:
            return _without_credentials(_answered(error.response, about), error.operation_name, about)
        return _answered(error.response, about)
    if isinstance(error, ResponseParserError):
        return Ambiguous(f"the answer cannot be read: {_short(str(error))}", where=about.where, remedy=_REPEAT)
    if isinstance(error, BotoCoreError):
        return unanswered.explain(error, _short(str(error)), where=about.where, profile=about.profile)
    return None


def misconfigured(error: Exception, about: About) -> GpuprovError:
    """Our error for anything that boto3 raised while it read the configuration, before it asked AWS anything."""
    return translate(error, about) or unanswered.misconfigured(error, _short(str(error)), where=about.where)


def code_of(error: BaseException | None) -> str | None:
    """The AWS code that one of our errors was made from, where it was."""
    cause = error.__cause__ if error is not None else None
    response: Any = getattr(cause, "response", None)
    return response.get("Error", {}).get("Code") if isinstance(response, dict) else None


def _answered(response: Mapping[str, Any], about: About) -> GpuprovError:
    """The error that AWS itself answered with."""
    code = str(response.get("Error", {}).get("Code") or "unknown")
    text = _short(str(response.get("Error", {}).get("Message") or "no message"))
    # The EC2 API reference lists some codes with the side that is at fault: ``Server.InternalError``.
    meaning = TABLE.get(code) or TABLE.get(code.removeprefix("Server.").removeprefix("Client."))
    if meaning is not None:
        next_step = _way_to_the_right(text, about) if meaning.next_step is _RIGHT else about.fill(meaning.next_step)
        ours = meaning.error(f"{code}: {text}", where=about.where, remedy=next_step)
        ours.scope, ours.lasts = meaning.scope.short, meaning.lasts
        return ours
    status = response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
    if status >= _SERVER_FAILURE:
        return Ambiguous(f"{code}: {text} (HTTP {status})", where=about.where, remedy=_REPEAT)
    return CloudError(
        f"{code}: {text}",
        where=about.where,
        remedy="gpuprov does not know this code, so it stopped: see the EC2 API reference, `Error codes`",
    )


def _way_to_the_right(text: str, about: About) -> str:
    """How to come by a right that is missing: that of another call where AWS says so, such as ``iam:PassRole``."""
    if _BY_ORGANISATION in text:
        return about.fill(_BARRED)
    named = _MISSING_RIGHT.search(text)
    wanted = named[1] if named else f"{about.service}:{about.operation}"
    return about.fill(_RIGHT).replace(f"{about.service}:{about.operation}", wanted)


def _without_credentials(error: GpuprovError, operation: str, about: About) -> GpuprovError:
    """The failure of another call than ours: one that the SDK makes by itself for the credentials of a profile."""
    if isinstance(error, (Ambiguous, Throttled)):
        return error
    step = _LOG_IN if error.message.startswith("Expired") else _ROLE
    return CredentialsError(
        f"no credentials from {operation}: {error.message}", where=about.where, remedy=about.fill(step)
    )


def _short(text: str) -> str:
    """A message in one line, without the blob that only AWS can decode."""
    line = " ".join(_ENCODED.sub("", text).split())
    return line if len(line) <= _MESSAGE_MAX else f"{line[: _MESSAGE_MAX - 1]}…"
