"""What refusals of single offers mean for the launch: exit codes as contracted."""

from __future__ import annotations

import hashlib
from dataclasses import replace

import pytest

from provisioner.clouds.cloud import Placement, Readiness
from provisioner.errors import CapacityError, CredentialsError, GpuprovError, QuotaError, Rejected, UsageError
from provisioner.vocabulary import CapacityType
from stacks import preflight
from stacks.program import ProgramInputs
from tests.fakes.cloud import FakeCloud

A, B = (Placement("aws", "us-east-1", zone, "g6.xlarge", CapacityType.ON_DEMAND) for zone in ("z1", "z2"))


def refused(*errors: tuple[Placement | None, GpuprovError]) -> GpuprovError | None:
    found = [Readiness("x", place.key if place else None, error) for place, error in errors]
    return preflight.refusal(found, (A, B))


def test_one_offer_that_nothing_refuses_is_enough() -> None:
    assert refused() is None
    assert refused((A, QuotaError("q"))) is None


@pytest.mark.parametrize(
    ("first", "second", "code"),
    [
        (QuotaError("q"), QuotaError("q"), 10),
        (QuotaError("q"), CapacityError("c"), 7),
        (CapacityError("c"), UsageError("u"), 2),
        (QuotaError("q"), Rejected("r"), 4),
    ],
)
def test_the_code_follows_the_precedence(first: GpuprovError, second: GpuprovError, code: int) -> None:
    error = refused((A, first), (B, second))
    assert error is not None
    assert error.exit_code == code


def test_missing_rights_refuse_everything() -> None:
    error = refused((None, CredentialsError("no right")))
    assert error is not None
    assert error.exit_code == 3


def test_a_cloud_that_cannot_tell_refuses_nothing() -> None:
    assert preflight.look(FakeCloud(), (A, B), 1) == []


def test_a_start_that_user_data_cannot_hold_is_refused_before_anything_is_made() -> None:
    words = [hashlib.sha256(str(number).encode()).hexdigest() for number in range(100)]
    offers = tuple(
        {"cloud": cloud, "region": "r", "zone": "z", "instanceType": "t", "capacityType": "on-demand"}
        for cloud in ("gcp", "aws")
    )
    run = {"image": "a@sha256:" + "0" * 64, "command": words}
    inputs = ProgramInputs({"version": 1, "task": "serve", "run": run}, offers)
    error = preflight.script_refusal(inputs)
    assert error is not None
    assert (error.exit_code, error.where) == (2, "run")
    assert "user data on aws" in error.message
    assert preflight.script_refusal(replace(inputs, offers=offers[:1])) is None
    assert preflight.script_refusal(replace(inputs, workload={"version": 1, "task": "serve"})) is None


def test_a_start_that_would_have_no_credentials_is_refused_on_aws_before_anything_is_made() -> None:
    spec = {
        "version": 1,
        "name": "chat",
        "task": "serve",
        "model": {"id": "meta-llama/Llama-3.1-8B-Instruct", "source": "s3://bucket/llama"},
        "run": "auto",
    }
    error = preflight.credentials_refusal(ProgramInputs(spec, ()), "aws")
    assert error is not None
    assert error.exit_code == 2
    assert "model.source" in error.message
    assert "aws.instance_profile" in (error.remedy or "")
    for lets_through in ({"instance_profile": "gpu"}, {"image": "ami-0123456789abcdef0"}):
        assert preflight.credentials_refusal(ProgramInputs({**spec, "aws": lets_through}, ()), "aws") is None
    assert preflight.credentials_refusal(ProgramInputs(spec, ()), "sandbox") is None
