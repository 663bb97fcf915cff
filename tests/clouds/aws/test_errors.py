"""The table of AWS error codes: each row gives its class, and what is not in it stops with its raw text."""

from __future__ import annotations

import pytest
from botocore import exceptions as sdk
from botocore.exceptions import ClientError
from botocore.parsers import ResponseParserError

from provisioner import errors
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
