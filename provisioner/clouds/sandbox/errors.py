"""Every error that the sandbox raises: refusals worded like the two clouds', injected ones, and SQLite's own.

The message begins with the code that EC2 or Compute Engine gives in the same case, so that a log of a rehearsal reads like
one of the real thing. Source of the codes: the EC2 API reference (error codes) and the Compute Engine troubleshooting pages.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path

from provisioner.clouds.cloud import Placement
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

_CODES = {
    "capacity": ("InsufficientInstanceCapacity", "ZONE_RESOURCE_POOL_EXHAUSTED"),
    "quota": ("VcpuLimitExceeded", "QUOTA_EXCEEDED"),
    "unsupported": ("Unsupported", "UNSUPPORTED_OPERATION"),
    "unknown-type": ("InvalidInstanceType.NotFound", "invalid"),
    "bad-value": ("InvalidParameterValue", "invalid"),
    "bad-state": ("IncorrectInstanceState", "resourceNotReady"),
    "in-use": ("VolumeInUse", "resourceInUseByAnotherResource"),
    "group-in-use": ("DependencyViolation", "resourceInUseByAnotherResource"),
    "no-instance": ("InvalidInstanceID.NotFound", "notFound"),
    "no-volume": ("InvalidVolume.NotFound", "notFound"),
    "no-group": ("InvalidGroup.NotFound", "notFound"),
    "zone-mismatch": ("InvalidVolume.ZoneMismatch", "invalid"),
    "name-taken": ("InvalidParameterValue", "alreadyExists"),
    "mismatch": ("IdempotentParameterMismatch", "IdempotentParameterMismatch"),
    "spent": ("IdempotentInstanceTerminated", "IdempotentInstanceTerminated"),
}


def code(case: str, cloud: str) -> str:
    """The code that AWS or GCP answers with in a case."""
    aws, gcp = _CODES[case]
    return gcp if cloud == "gcp" else aws


def rejected(case: str, cloud: str, message: str, remedy: str | None = None) -> Rejected:
    """A request that the cloud calls invalid."""
    return Rejected(f"{code(case, cloud)}: {message}", remedy=remedy)


def not_found(case: str, cloud: str, object_id: str) -> NotFound:
    """An object that no longer exists, or never did."""
    return NotFound(f"{code(case, cloud)}: there is no {object_id}")


def out_of_capacity(placement: Placement, *, zones: tuple[str, ...]) -> CapacityError:
    """No capacity in any of the zones that the request allows."""
    return CapacityError(
        f"{code('capacity', placement.cloud)}: no {placement.capacity_type} capacity for {placement.instance_type}"
        f" in {', '.join(zones)} now",
        remedy="try the next offer, or `gpuprov sandbox capacity show`",
    )


def out_of_quota(cloud: str, region: str, quota: str, *, need: Fraction, have: Fraction, used: Fraction) -> QuotaError:
    """A quota that is too small, with the figures that a request for more needs."""
    return QuotaError(
        f"{code('quota', cloud)}: quota {quota} in {region} is too small: need {units(need)}, have {units(have)},"
        f" used {units(used)}",
        remedy=f"ask for a larger {quota}, or `gpuprov sandbox quota set {cloud}/{region}/{quota} {units(used + need)}`",
    )


def units(amount: Fraction) -> str:
    """Quota units as people write them: ``8`` or ``0.25``."""
    return str(amount.numerator) if amount.denominator == 1 else f"{float(amount):g}"


def token_mismatch(cloud: str, token: str, object_id: str) -> TokenMismatch:
    """A token that came before with other parameters."""
    return TokenMismatch(
        f"{code('mismatch', cloud)}: token {token} made {object_id} with other parameters",
        remedy="this is a bug in the caller: the same token must come with the same request",
    )


def token_spent(cloud: str, token: str, object_id: str) -> TokenSpent:
    """A token whose object is gone."""
    return TokenSpent(f"{code('spent', cloud)}: token {token} made {object_id}, which no longer exists")


INJECTED: dict[str, Callable[[str], GpuprovError]] = {
    "throttle": lambda where: Throttled(f"RequestLimitExceeded: too many requests ({where})"),
    "ambiguous-before": lambda where: Ambiguous(f"connection reset before the request was taken ({where})"),
    "ambiguous-after": lambda where: Ambiguous(f"connection reset after the request was carried out ({where})"),
    "internal": lambda where: Ambiguous(f"InternalError: the service failed ({where})"),
    "capacity": lambda where: CapacityError(f"InsufficientInstanceCapacity: no capacity now ({where})"),
    "quota": lambda where: QuotaError(f"VcpuLimitExceeded: the quota is too small ({where})"),
    "credentials": lambda where: CredentialsError(f"ExpiredToken: the credentials have expired ({where})"),
    "rejected": lambda where: Rejected(f"InvalidParameterValue: the request is invalid ({where})"),
    "not-found": lambda where: NotFound(f"InvalidInstanceID.NotFound: no such object ({where})"),
}
"""Errors that `sandbox errors inject` can put in front of a call. Only ``ambiguous-after`` carries the call out first."""

AFTER_EFFECT = "ambiguous-after"


def injected(kind: str, operation: str) -> GpuprovError:
    """The error of an injected fault, with the way to lift it."""
    error = INJECTED[kind](f"injected into {operation}")
    error.remedy = "it was put there on purpose: `gpuprov sandbox errors clear` takes it away"
    return error


def newer_schema(path: Path, version: int, known: int) -> CloudError:
    """A sandbox file that a newer gpuprov wrote."""
    return CloudError(
        f"the sandbox file {path} has schema version {version}; this gpuprov knows up to {known}",
        remedy="use the gpuprov that wrote it, or another --home",
    )


def foreign_file(path: Path) -> CloudError:
    """A SQLite file that is no sandbox."""
    return CloudError(
        f"{path} is a SQLite file but not a gpuprov sandbox", remedy="move it away, or use another --home"
    )


class DamagedFile(CloudError):
    """The sandbox file cannot be read as a SQLite database any more."""


def translate_sqlite(error: sqlite3.Error, path: Path) -> CloudError | None:
    """One of our errors for what SQLite reports about the file; ``None`` for anything else, which is a bug of ours.

    Source: https://www.sqlite.org/rescode.html (the low byte is the primary result code).
    """
    primary = getattr(error, "sqlite_errorcode", 0) & 0xFF
    if primary in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
        return Throttled(
            f"the sandbox file {path} was locked by other processes for too long", remedy="run the command again"
        )
    if primary in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB):
        return DamagedFile(
            f"the sandbox file {path} is damaged: {error}",
            remedy="restore it, or start afresh with `gpuprov sandbox reset --yes`",
        )
    if primary in (
        sqlite3.SQLITE_CANTOPEN,
        sqlite3.SQLITE_PERM,
        sqlite3.SQLITE_READONLY,
        sqlite3.SQLITE_IOERR,
        sqlite3.SQLITE_FULL,
        sqlite3.SQLITE_AUTH,
    ):
        return CloudError(
            f"the sandbox file {path} cannot be opened or written: {error}",
            remedy="check the folder's permissions and free space, or use another --home",
        )
    return None
