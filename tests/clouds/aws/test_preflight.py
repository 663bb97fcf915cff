"""What EC2 tells before anything is made: rights, quotas, offerings, room, and a way out."""

from __future__ import annotations

from dataclasses import replace

import pytest

from provisioner.clouds.aws.cloud import AwsCloud
from provisioner.clouds.aws.settings import AwsSettings
from provisioner.errors import CapacityError, CredentialsError, QuotaError, Rejected, UsageError
from provisioner.units import GIB
from provisioner.vocabulary import CapacityType
from stacks.preflight import refusal
from tests.fakes import aws_rules

MAKING = ("RunInstances", "CreateVolume", "CreateSecurityGroup")


def look(rig, *offers, cloud=None):
    found = (cloud or rig.cloud).preflight(offers or (rig.here,), 100 * GIB)
    assert all(rig.fake.of(operation) == [] for operation in MAKING)  # it only looks
    return found


def errors(found):
    return {one.check: type(one.error) for one in found if one.error is not None}


def subnet_of(rig, place):
    subnets = aws_rules.backend(place.region).get_default_subnets().values()
    return next(one for one in subnets if one.availability_zone_id == place.zone)


def test_an_account_in_order_has_nothing_to_say(aws_rig):
    aws_rig.fake.quotas["us-east-1", "L-DB2E81BA"] = 64.0
    found = look(aws_rig)
    assert errors(found) == {}
    assert [one for one in found if one.unknown] == []
    assert {one.check for one in found} == {"offering", "quota", "subnet", "rights"}


@pytest.mark.parametrize(
    ("bought", "code", "name", "need"),
    [
        ("g6.xlarge on-demand", "L-DB2E81BA", "Running On-Demand G and VT instances", 4),
        ("p5.4xlarge on-demand", "L-417A185B", "Running On-Demand P instances", 16),
        ("g6.xlarge spot", "L-3819A6DF", "All G and VT Spot Instance Requests", 4),
        ("p4d.24xlarge spot", "L-7212CCBC", "All P4, P3 and P2 Spot Instance Requests", 96),
        ("p5.4xlarge spot", "L-C4BD4855", "All P5 Spot Instance Requests", 16),
    ],
)
def test_c1_a_quota_that_is_too_small_is_told_with_its_figures(aws_rig, bought, code, name, need):
    """Of its own family and market alone: the others are zero and refuse nothing."""
    codes = {"L-DB2E81BA", "L-417A185B", "L-3819A6DF", "L-7212CCBC", "L-C4BD4855"}
    kind, market = bought.split()
    place = replace(aws_rig.here, instance_type=kind, capacity_type=CapacityType(market))
    aws_rig.fake.quotas.update({("us-east-1", other): 0.0 for other in codes - {code}})
    aws_rig.fake.quotas["us-east-1", code] = 2.0
    (refused,) = [one for one in look(aws_rig, place) if one.check == "quota" and one.error is not None]
    assert isinstance(refused.error, QuotaError)
    assert (refused.error.exit_code, refused.offer) == (10, place.key)
    assert f"quota {code} ({name}) in us-east-1" in refused.error.message
    assert f"need {need} vCPU, have 2, used 0" in refused.error.message
    asked = f"request-service-quota-increase --service-code ec2 --quota-code {code} --desired-value {need}"
    assert asked in refused.error.remedy
    aws_rig.fake.quotas["us-east-1", code] = float(need)
    roomy = look(aws_rig, place, cloud=AwsCloud())
    assert [one for one in roomy if one.check == "quota" and one.error is not None] == []


def test_a_right_that_is_missing_is_found_by_a_dry_run(aws_rig):
    aws_rig.fake.inject("RunInstances", "UnauthorizedOperation", match={"DryRun": "true"})
    found = look(aws_rig)
    assert errors(found) == {"rights": CredentialsError}
    (rights,) = [one.error for one in found if one.check == "rights"]
    assert "ec2:RunInstances" in rights.remedy
    dry = [call for call in aws_rig.fake.calls if call.parameters.get("DryRun") == "true"]
    assert {call.operation for call in dry} == {"RunInstances", "CreateSecurityGroup"}
    assert any("gpuprov:stack-id" in str(call.parameters) for call in dry)  # a policy may ask for the tag


def test_c9_a_zone_without_the_type_is_refused_and_the_zones_that_have_it_are_named(aws_rig):
    found = look(aws_rig, replace(aws_rig.here, instance_type="p4d.24xlarge", zone="use1-az3"))
    (offering,) = [one.error for one in found if one.check == "offering"]
    assert isinstance(offering, CapacityError)
    assert "p4d.24xlarge is not offered in use1-az3" in offering.message


def test_p13_expired_credentials_end_the_look_with_the_line_that_mends_them(aws_rig):
    aws_rig.fake.inject("*", "ExpiredToken", times=99)
    with pytest.raises(CredentialsError) as failure:
        look(aws_rig)
    assert "aws sso login" in str(failure.value.remedy)


def test_a_region_that_is_not_enabled_is_rejected(aws_rig):
    found = look(aws_rig, replace(aws_rig.here, region=aws_rules.CLOSED_REGION, zone=None))
    assert errors(found) == {"region": Rejected}


def test_a_subnet_without_a_free_address_is_passed_over(aws_rig):
    subnet_of(aws_rig, aws_rig.here)._available_ip_addresses = 0
    found = look(aws_rig)
    assert errors(found) == {"subnet": CapacityError}
    assert "no free address" in next(one.error.message for one in found if one.error is not None)


def test_a_machine_without_a_way_out_could_fetch_nothing(aws_rig):
    aws_rig.fake.rules.closed_vpcs = True
    found = look(aws_rig)
    assert errors(found) == {"way out": UsageError}
    (closed,) = [one.error for one in found if one.error is not None]
    assert "has no route to 0.0.0.0/0" in closed.message
    assert "ssm" in closed.message
    assert "NAT gateway" in closed.remedy


def test_endpoints_are_a_way_out(aws_rig):
    aws_rig.fake.rules.closed_vpcs = True
    model = aws_rules.backend("us-east-1")
    vpc = next(one for one in model.vpcs.values())
    for name in ("ecr.api", "ecr.dkr", "s3", "ssm", "ssmmessages"):
        model.create_vpc_endpoint(vpc.id, f"com.amazonaws.us-east-1.{name}", "Interface", None, [])
    assert errors(look(aws_rig)) == {}


def test_a_public_gateway_needs_a_public_address(aws_rig):
    subnet = subnet_of(aws_rig, aws_rig.here)
    subnet.map_public_ip_on_launch = False
    cloud = AwsCloud(AwsSettings(subnets=(subnet.id,)))
    found = look(aws_rig, cloud=cloud)
    assert errors(found) == {"way out": UsageError}
    assert "gives no public address" in next(one.error.message for one in found if one.error is not None)


def test_what_may_not_be_read_refuses_nothing_and_says_so(aws_rig):
    aws_rig.fake.inject("DescribeRouteTables", "UnauthorizedOperation", times=9)
    found = look(aws_rig)
    assert errors(found) == {}
    assert any("UnauthorizedOperation" in str(one.unknown) for one in found)


@pytest.mark.parametrize("pinned", [None, aws_rules.OLD_IMAGE])
def test_p10_a_root_disk_smaller_than_its_image_is_refused_before_anything_is_made(aws_rig, pinned):
    """P10: the needed size is said; the sizes of public images are 35 to 45 GiB, the emulated ones have 15."""
    cloud = AwsCloud(AwsSettings(image=pinned))
    found = cloud.preflight((aws_rig.here,), 10 * GIB)
    refused = refusal(found, (aws_rig.here,))
    assert type(refused) is Rejected
    assert refused.exit_code == 4
    assert f"10.0 GiB is smaller than image {pinned or aws_rules.IMAGE}, which needs 15.0 GiB" in refused.message
    assert refusal(cloud.preflight((aws_rig.here,), 15 * GIB), (aws_rig.here,)) is None
    assert aws_rig.fake.of("RunInstances") == []
