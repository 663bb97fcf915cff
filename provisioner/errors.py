"""The whole exception tree. Each class says what the caller does next, and owns its exit code.

    GpuprovError                     1    unclassified
    ├── UsageError                   2    correct the invocation, spec or policy file
    │   ├── SpecError                     ... at file:line:column
    │   └── EngineMissing                 no Pulumi engine and no way to get one
    ├── CredentialsError             3    log in, or get the right that is missing
    ├── CloudError                   4    the cloud refused or failed
    │   ├── Rejected                      the request is invalid: correct it, do not retry
    │   ├── Locked                        another one holds the stack
    │   ├── Ambiguous                     it may have happened: the same call again, then look by tag
    │   ├── Throttled                     the same call again, later
    │   ├── NotFound                      gone, or not visible yet
    │   ├── TokenMismatch                 own bug: same token, other parameters
    │   └── TokenSpent                    the token's instance is terminated: next generation
    ├── PolicyViolation              5    change the spec, or waive
    ├── NothingFits                  6    no offer can hold the workload under the requirements
    ├── CapacityError                7    next offer
    ├── Cancelled                    8    interrupted by a signal
    ├── TimedOut                     9
    ├── QuotaError                  10    ask for quota; the offer's family is out
    ├── Leaked                      11    something bills that the state does not hold
    └── InternalBug                255

Errors carry objects; the text for people is ``message`` with ``where`` and ``remedy``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from provisioner.records import record

if TYPE_CHECKING:  # every command imports this module, and few need a duration
    from datetime import timedelta


@record(frozen=True, slots=True)
class Position:
    """A place in a file that a person can go to; line and column count from 1."""

    file: str
    line: int = 1
    column: int = 1

    def __str__(self) -> str:
        return f"{self.file}:{self.line}:{self.column}"


class GpuprovError(Exception):
    """Base of all our errors."""

    exit_code = 1
    kind = "error"
    scope: str | None = None
    """How far a cloud's refusal reaches, in a word of the cloud's own table; ``None`` where it does not say."""
    lasts: timedelta | None = None
    """How long it holds, as far as can be said."""

    def __init__(self, message: str, *, where: Position | str | None = None, remedy: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.where = where
        self.remedy = remedy

    def __str__(self) -> str:
        text = f"{self.where}: {self.message}" if self.where else self.message
        return f"{text}; {self.remedy}" if self.remedy else text


class UsageError(GpuprovError):
    """The invocation, a spec or a policy file is wrong."""

    exit_code = 2
    kind = "usage"


class SpecError(UsageError):
    """A workload spec is wrong at a position."""

    kind = "spec"


class EngineMissing(UsageError):
    """There is no Pulumi engine and none of the four ways gave one."""

    kind = "engine-missing"


class CredentialsError(GpuprovError):
    """Credentials are missing or expired, or a right is missing."""

    exit_code = 3
    kind = "credentials"


class CloudError(GpuprovError):
    """The cloud refused or failed."""

    exit_code = 4
    kind = "cloud"


class Rejected(CloudError):
    """The cloud calls the request invalid; another offer would be refused in the same way."""

    kind = "rejected"


class Locked(CloudError):
    """Another process, host or person holds the stack."""

    kind = "locked"


class Ambiguous(CloudError):
    """No answer that tells whether the call took effect (time-out, connection reset, internal error)."""

    kind = "ambiguous"


class Throttled(CloudError):
    """Too many requests; nothing happened."""

    kind = "throttled"


class NotFound(CloudError):
    """The object is gone, or was created so recently that it is not visible yet."""

    kind = "not-found"


class TokenMismatch(CloudError):
    """The token was used before with other parameters: our own bug, never retried with a new token."""

    kind = "token-mismatch"


class TokenSpent(CloudError):
    """The token's instance exists no more; a new generation is needed for a new one."""

    kind = "token-spent"


class PolicyViolation(GpuprovError):
    """A mandatory policy rule failed."""

    exit_code = 5
    kind = "policy"


class NothingFits(GpuprovError):
    """No offer can hold the workload under its requirements."""

    exit_code = 6
    kind = "nothing-fits"


class CapacityError(GpuprovError):
    """The cloud has no capacity for an offer now."""

    exit_code = 7
    kind = "capacity"


class Cancelled(GpuprovError):
    """Stopped by SIGINT or SIGTERM."""

    exit_code = 8
    kind = "cancelled"


class TimedOut(GpuprovError):
    """Something did not finish in its time."""

    exit_code = 9
    kind = "timeout"


class QuotaError(GpuprovError):
    """An account quota is too small for an offer."""

    exit_code = 10
    kind = "quota"


class Leaked(GpuprovError):
    """Something bills that the state does not hold; the message names it."""

    exit_code = 11
    kind = "leaked"


class InternalBug(GpuprovError):
    """A bug of ours."""

    exit_code = 255
    kind = "bug"
