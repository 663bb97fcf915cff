"""The table of AWS error codes: each row gives its class, and what is not in it stops with its raw text."""

from __future__ import annotations

from string import Formatter

import pytest
from botocore import exceptions as sdk
from botocore.exceptions import ClientError
from botocore.parsers import ResponseParserError

from provisioner import errors
from provisioner.clouds.aws import unanswered
from provisioner.clouds.aws.errors import TABLE, About, Scope, code_of, translate

ABOUT = About("ec2", "RunInstances", "us-east-1", "team")
TAXONOMY = {
    "InsufficientInstanceCapacity": (errors.CapacityError, Scope.POOL),
    "UnfulfillableCapacity": (errors.CapacityError, Scope.POOL),
    "InsufficientHostCapacity": (errors.CapacityError, Scope.RESERVATION),
    "InsufficientReservedInstanceCapacity": (errors.CapacityError, Scope.RESERVATION),
    "ReservationCapacityExceeded": (errors.CapacityError, Scope.RESERVATION),
    "InsufficientVolumeCapacity": (errors.CapacityError, Scope.VOLUME_POOL),
    "InsufficientFreeAddressesInSubnet": (errors.CapacityError, Scope.SUBNET),
    "Unsupported": (errors.CapacityError, Scope.TYPE_IN_ZONE),
    "SpotMaxPriceTooLow": (errors.CapacityError, Scope.POOL),
    "MaxSpotInstanceCountExceeded": (errors.QuotaError, Scope.QUOTA_FAMILY),
    "VcpuLimitExceeded": (errors.QuotaError, Scope.QUOTA_FAMILY),
    "InstanceLimitExceeded": (errors.QuotaError, Scope.QUOTA_FAMILY),
    "PendingVerification": (errors.CredentialsError, Scope.REGION),
    "OptInRequired": (errors.CredentialsError, Scope.REGION),
    "AuthFailure": (errors.CredentialsError, Scope.ACCOUNT),
    "UnauthorizedOperation": (errors.CredentialsError, Scope.ACCOUNT),
    "ExpiredToken": (errors.CredentialsError, Scope.ACCOUNT),
    "RequestLimitExceeded": (errors.Throttled, Scope.CALL),
    "Throttling": (errors.Throttled, Scope.CALL),
    "SlowDown": (errors.Throttled, Scope.CALL),
    "InternalError": (errors.Ambiguous, Scope.CALL),
    "Unavailable": (errors.Ambiguous, Scope.CALL),
    "ServiceUnavailable": (errors.Ambiguous, Scope.CALL),
    "IdempotentParameterMismatch": (errors.TokenMismatch, Scope.REQUEST),
    "IdempotentInstanceTerminated": (errors.TokenSpent, Scope.REQUEST),
    "InvalidInstanceID.NotFound": (errors.NotFound, Scope.OBJECT),
    "InvalidParameterValue": (errors.Rejected, Scope.REQUEST),
    "IncorrectInstanceState": (errors.Rejected, Scope.OBJECT),
    "VolumeInUse": (errors.Rejected, Scope.OBJECT),
    "DependencyViolation": (errors.Rejected, Scope.OBJECT),
}
"""Code -> class and scope, from what EC2 documents; the table must agree."""
CLASSES = (
    errors.CapacityError,
    errors.QuotaError,
    errors.CredentialsError,
    errors.Throttled,
    errors.Ambiguous,
    errors.TokenMismatch,
    errors.TokenSpent,
    errors.NotFound,
    errors.Rejected,
)


def answered(code: str, message: str = "why", status: int = 400) -> ClientError:
    response = {"Error": {"Code": code, "Message": message}, "ResponseMetadata": {"HTTPStatusCode": status}}
    return ClientError(response, "RunInstances")


def test_the_table_is_large_enough():
    assert len(TABLE) >= 32
    assert {meaning.error for meaning in TABLE.values()} == set(CLASSES)


@pytest.mark.parametrize("code", sorted(TABLE))
@pytest.mark.parametrize("status", [400, 500])
def test_each_code_becomes_its_class_whatever_the_status(code, status):
    meaning = TABLE[code]
    error = translate(answered(code, status=status), ABOUT)
    assert type(error) is meaning.error
    assert error.message == f"{code}: why"
    assert error.where == "ec2:RunInstances in us-east-1"
    assert error.remedy
    assert "{" not in error.remedy
    assert meaning.lasts is None or meaning.lasts.total_seconds() >= 60


@pytest.mark.parametrize("code", sorted(TAXONOMY))
def test_the_taxonomy_is_kept(code):
    assert (TABLE[code].error, TABLE[code].scope) == TAXONOMY[code]


def test_c5_an_unknown_code_stops_with_its_raw_text_and_is_no_want_of_capacity():
    error = translate(answered("NeverHeardOf", "something odd"), ABOUT)
    assert type(error) is errors.CloudError
    assert error.message == "NeverHeardOf: something odd"


def test_an_unknown_failure_inside_aws_may_have_taken_effect():
    error = translate(answered("NeverHeardOf", "boom", status=503), ABOUT)
    assert type(error) is errors.Ambiguous
    assert "NeverHeardOf: boom" in error.message


@pytest.mark.parametrize(
    "lost",
    [
        sdk.ConnectionClosedError(endpoint_url="http://x"),
        sdk.ReadTimeoutError(endpoint_url="http://x"),
        sdk.ConnectTimeoutError(endpoint_url="http://x"),
        sdk.EndpointConnectionError(endpoint_url="http://x"),
        ResponseParserError("not XML"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_no_answer_is_ambiguous(lost):
    assert type(translate(lost, ABOUT)) is errors.Ambiguous


@pytest.mark.parametrize(
    ("error", "fix"),
    [
        (sdk.UnauthorizedSSOTokenError(), "aws sso login --profile team"),
        (sdk.SSOTokenLoadError(profile_name="team", error_msg="gone"), "aws sso login --profile team"),
        (sdk.TokenRetrievalError(provider="sso", error_msg="expired"), "aws sso login --profile team"),
        (sdk.NoCredentialsError(), "aws configure --profile team"),
        (sdk.PartialCredentialsError(provider="env", cred_var="AWS_SECRET_ACCESS_KEY"), "AWS_PROFILE"),
        (sdk.ProfileNotFound(profile="team"), "aws configure list-profiles"),
        (sdk.ConfigParseError(path="~/.aws/config"), "~/.aws/config"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_credentials_end_with_the_line_that_mends_them(error, fix):
    ours = translate(error, ABOUT)
    assert type(ours) is errors.CredentialsError
    assert ours.exit_code == 3
    assert fix in ours.remedy


NEVER = ("Stub", "S3", "Outpost", "Waiter", "UnknownClientMethod", "OperationNotPageable", "InvalidDNSName", "Pagination",
         "InvalidExpression", "MD5Unavailable")  # fmt: skip
"""Classes of services and helpers that nothing of ours uses."""


def every_failure_of_the_sdk():
    """One failure of each class of botocore, with its fields filled in."""
    for kind in vars(sdk).values():
        if not (isinstance(kind, type) and issubclass(kind, sdk.BotoCoreError)) or kind is sdk.BotoCoreError:
            continue
        if any(word in kind.__name__ for word in NEVER):
            continue
        fields = [name for _, name, _, _ in Formatter().parse(kind.fmt) if name]
        yield kind(**{"error": "why", **dict.fromkeys(fields, "x")})


@pytest.mark.parametrize("failure", list(every_failure_of_the_sdk()), ids=lambda failure: type(failure).__name__)
def test_no_failure_of_the_sdk_goes_without_a_class_and_a_way_out(failure):
    assert unanswered.cause_of(failure).remedy != "see the message"
    ours = translate(failure, ABOUT)
    assert type(ours) in (
        errors.Ambiguous,
        errors.CloudError,
        errors.CredentialsError,
        errors.Rejected,
        errors.Throttled,
    )
    assert ours.remedy
    assert "{" not in ours.remedy
    assert "\n" not in str(ours)


def test_the_table_of_the_sdk_names_only_classes_that_it_has():
    assert {name for name in unanswered.TABLE if not hasattr(sdk, name)} == set()


@pytest.mark.parametrize(
    ("failure", "remedy"),
    [
        (sdk.SSLError(endpoint_url="https://x", error="self-signed"), "AWS_CA_BUNDLE"),
        (sdk.ProxyConnectionError(proxy_url="http://p"), "HTTPS_PROXY"),
    ],
)
def test_a_way_that_is_blocked_names_what_blocks_it(failure, remedy):
    ours = translate(failure, ABOUT)
    assert type(ours) is errors.Ambiguous
    assert remedy in ours.remedy


def test_a_cut_answer_may_have_taken_effect():
    assert type(translate(sdk.IncompleteReadError(actual_bytes=1, expected_bytes=2), ABOUT)) is errors.Ambiguous


@pytest.mark.parametrize("code", ["AccessDenied", "ForbiddenException", "NeverHeardOf", "ExpiredTokenException"])
def test_a_call_that_the_sdk_makes_for_credentials_is_a_matter_of_credentials(code):
    response = {"Error": {"Code": code, "Message": "no"}, "ResponseMetadata": {"HTTPStatusCode": 403}}
    ours = translate(ClientError(response, "AssumeRole"), ABOUT)
    assert type(ours) is errors.CredentialsError
    assert f"no credentials from AssumeRole: {code}: no" in ours.message
    assert "--profile team" in ours.remedy
    assert "RunInstances" not in ours.remedy
    throttled = {"Error": {"Code": "Throttling", "Message": "slow"}}
    assert type(translate(ClientError(throttled, "GetRoleCredentials"), ABOUT)) is errors.Throttled


def test_a_right_of_another_service_is_named_as_aws_names_it():
    text = (
        "You are not authorized. User: arn:aws:iam::1:user/a is not authorized to perform: iam:PassRole on resource: r"
    )
    assert "ask for the right iam:PassRole in" in translate(answered("UnauthorizedOperation", text), ABOUT).remedy
    barred = f"{text} with an explicit deny in a service control policy"
    assert "organisation" in translate(answered("UnauthorizedOperation", barred), ABOUT).remedy


def test_a_code_with_the_side_at_fault_means_the_same():
    assert type(translate(answered("Server.InsufficientInstanceCapacity"), ABOUT)) is errors.CapacityError
    assert type(translate(answered("Client.VcpuLimitExceeded"), ABOUT)) is errors.QuotaError


def test_a_wrong_clock_is_told():
    for code in ("RequestExpired", "SignatureDoesNotMatch", "RequestTimeTooSkewed", "AuthFailure"):
        assert "clock" in translate(answered(code), ABOUT).remedy


def test_a_missing_right_names_the_call_and_hides_the_encoded_blob():
    text = "You are not authorized to perform this operation. Encoded authorization failure message: AbC" + "x" * 900
    error = translate(answered("UnauthorizedOperation", text, status=403), ABOUT)
    assert error.message == "UnauthorizedOperation: You are not authorized to perform this operation."
    assert "ec2:RunInstances" in error.remedy


def test_a_wrong_parameter_is_refused_and_a_bug_of_ours_stays_one():
    refused = translate(sdk.ParamValidationError(report="Invalid length for parameter ClientToken"), ABOUT)
    assert type(refused) is errors.Rejected
    assert translate(KeyError("ours"), ABOUT) is None


def test_the_code_of_an_error_is_kept_with_its_cause():
    source = answered("VolumeInUse")
    ours = translate(source, ABOUT)
    ours.__cause__ = source
    assert code_of(ours) == "VolumeInUse"
    assert code_of(errors.Rejected("ours")) is None
