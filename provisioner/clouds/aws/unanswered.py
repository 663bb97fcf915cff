"""Failures of the SDK that got no answer, or did not even ask: configuration, credentials, network, its own installation.

The table goes by the names of botocore's classes and of their bases, so it needs no SDK to be read; a test walks all classes
that botocore has.

Source: botocore 1.44.8, ``botocore/exceptions.py``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from provisioner.errors import Ambiguous, CloudError, CredentialsError, GpuprovError, Rejected, Throttled


@dataclass(frozen=True, slots=True)
class Cause:
    """What a kind of failure means; ``{profile}`` in the remedy is the option that names the profile."""

    error: type[GpuprovError]
    says: str
    """Begins the message; empty where the SDK's own text is enough."""
    remedy: str


_SSO = Cause(CredentialsError, "the SSO session has expired or does not exist", "run `aws sso login{profile}`")
_LOGIN = Cause(CredentialsError, "the login session has expired or does not exist", "run `aws login{profile}`")
_PROFILE = Cause(
    CredentialsError, "", "correct aws.profile in the spec or AWS_PROFILE; `aws configure list-profiles` lists them"
)
_NONE = Cause(
    CredentialsError,
    "no AWS credentials",
    "run `aws sso login{profile}` or `aws configure{profile}`, or set AWS_PROFILE",
)
_MACHINE = Cause(
    CredentialsError,
    "the credentials of this machine's own role cannot be read",
    "give the machine an instance profile or the container a role, or set AWS_PROFILE",
)
_MFA = Cause(
    CredentialsError,
    "the profile asks for an MFA code",
    "run `aws sts get-caller-identity{profile}` and enter the code: the session that it keeps is used for an hour",
)
_SETTINGS = Cause(CredentialsError, "", "correct your AWS configuration (~/.aws/config and the variables AWS_*)")
_REQUEST = Cause(
    Rejected, "the SDK refuses the request", "correct the spec; it would be refused in the same way everywhere"
)
_NETWORK = Cause(
    Ambiguous,
    "no answer from AWS",
    "check the network and proxy, then run the command again: it repeats the same call",
)
_TLS = Cause(
    Ambiguous,
    "no answer from AWS",
    "check the clock and the certificates (AWS_CA_BUNDLE, where a proxy signs with its own), then run the command again",
)
_PROXY = Cause(Ambiguous, "no answer from AWS", "check HTTPS_PROXY and NO_PROXY, then run the command again")
_BUSY = Cause(Throttled, "", "nothing happened: run the command again in a minute")
_INSTALLATION = Cause(
    CloudError, "the AWS SDK is not whole", "install it again: `pip install --force-reinstall boto3 botocore`"
)
_OTHER = Cause(CloudError, "", "see the message")


def _table(groups: Iterable[tuple[Cause, tuple[str, ...]]]) -> Mapping[str, Cause]:
    return MappingProxyType({name: cause for cause, names in groups for name in names})


TABLE = _table(
    (
        (_SSO, ("SSOError", "TokenRetrievalError")),
        (_LOGIN, ("LoginError",)),
        (_PROFILE, ("ProfileNotFound",)),
        (
            _NONE,
            (
                "CredentialRetrievalError",
                "NoAuthTokenError",
                "NoCredentialsError",
                "PartialCredentialsError",
                "UnknownCredentialError",
            ),
        ),
        (_MACHINE, ("MetadataRetrievalError",)),
        (_MFA, ("RefreshWithMFAUnsupportedError",)),
        (
            _SETTINGS,
            (
                "BaseEndpointResolverError",
                "ConfigNotFound",
                "ConfigParseError",
                "EndpointProviderError",
                "InvalidChecksumConfigError",
                "InvalidConfigError",
                "InvalidDefaultsMode",
                "InvalidEndpointConfigurationError",
                "InvalidEndpointDiscoveryConfigurationError",
                "InvalidHostLabelError",
                "InvalidIMDSEndpointError",
                "InvalidIMDSEndpointModeError",
                "InvalidProxiesConfigError",
                "InvalidRegionError",
                "InvalidRetryConfigurationError",
                "InvalidSTSRegionalEndpointsConfigError",
                "MissingDependencyException",
                "ServiceNotInRegionError",
                "UnknownRegionError",
                "UnknownSignatureVersionError",
                "UnknownTokenProviderError",
                "UnsupportedServiceProtocolsError",
                "UnsupportedSignatureVersionError",
            ),
        ),
        (_REQUEST, ("MissingParametersError", "ParamValidationError", "ValidationError")),
        (
            _NETWORK,
            (
                "AwsChunkedWrapperError",
                "ChecksumError",
                "ConnectionError",
                "FlexibleChecksumError",
                "HTTPClientError",
                "IncompleteReadError",
                "UnseekableStreamError",
            ),
        ),
        (_TLS, ("SSLError",)),
        (_PROXY, ("ProxyConnectionError",)),
        (_BUSY, ("CapacityNotAvailableError",)),
        (_INSTALLATION, ("ApiVersionNotFoundError", "DataNotFoundError", "UnknownServiceStyle")),
    )
)
"""Name of a class of botocore -> what it and the classes below it mean, unless those have a row of their own."""


def cause_of(error: BaseException) -> Cause:
    """What a failure means; those that the table does not have stop with their text."""
    return next((TABLE[kind.__name__] for kind in type(error).__mro__ if kind.__name__ in TABLE), _OTHER)


def explain(error: BaseException, text: str, *, where: str, profile: str | None) -> GpuprovError:
    """Our error for a failure of the SDK.

    Args:
        error: what botocore raised.
        text: its message in one line.
        where: which call it was.
        profile: the profile that was named, for the line that mends it.
    """
    cause = cause_of(error)
    says = f"{type(error).__name__}" if cause is _OTHER else cause.says
    option = f" --profile {profile}" if profile else ""
    return cause.error(f"{says}: {text}" if says else text, where=where, remedy=cause.remedy.format(profile=option))


def overdue(text: str, *, where: str) -> GpuprovError:
    """Our error where the other side holds a call without an answer, or gives it by drops."""
    return _NETWORK.error(f"{_NETWORK.says}: {text}", where=where, remedy=_NETWORK.remedy)


def misconfigured(error: Exception, text: str, *, where: str) -> CredentialsError:
    """Our error for what the SDK stumbles over while it reads the configuration, before it asks anything."""
    return CredentialsError(
        f"the AWS configuration does not work: {type(error).__name__}: {text}", where=where, remedy=_SETTINGS.remedy
    )


def needs_code(where: str, profile: str | None) -> CredentialsError:
    """Our error where the SDK would ask a person for an MFA code."""
    option = f" --profile {profile}" if profile else ""
    return CredentialsError(_MFA.says, where=where, remedy=_MFA.remedy.format(profile=option))
