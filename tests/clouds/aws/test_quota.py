"""Quotas read before a create: figures and the command that asks for more; unknown refuses nothing."""

from __future__ import annotations

from dataclasses import replace

import pytest

from provisioner.clouds.aws.cloud import AwsCloud
from provisioner.errors import QuotaError

ON_DEMAND_G = ("us-east-1", "L-DB2E81BA")
SPOT_G = ("us-east-1", "L-3819A6DF")
ON_DEMAND_P = ("us-east-1", "L-417A185B")
IMAGE = "ami-0d1a000000000001"


def test_c1_a_quota_that_is_too_small_costs_no_create_call_and_tells_the_figures(aws_rig):
    place = replace(aws_rig.here, instance_type="p5.48xlarge")
    aws_rig.fake.quotas[ON_DEMAND_P] = 96.0
    for number in range(4):  # 16 vCPUs each
        aws_rig.running(f"used-{number}", placement=replace(aws_rig.here, instance_type="p5.4xlarge"), image=IMAGE)
    calls = len(aws_rig.fake.of("RunInstances"))
    with pytest.raises(QuotaError) as refusal:
        aws_rig.cloud.create_instance(aws_rig.request(placement=place, image=IMAGE))
    assert refusal.value.exit_code == 10
    assert "quota L-417A185B (Running On-Demand P instances) in us-east-1" in refusal.value.message
    assert "need 192 vCPU, have 96, used 64" in refusal.value.message
    assert "--quota-code L-417A185B --desired-value 256 --region us-east-1" in refusal.value.remedy
    assert len(aws_rig.fake.of("RunInstances")) == calls


def test_c2_a_quota_above_zero_and_below_the_need_is_too_small(aws_rig):
    aws_rig.fake.quotas[ON_DEMAND_G] = 8.0
    place = replace(aws_rig.here, instance_type="g6.12xlarge")
    with pytest.raises(QuotaError, match="need 48 vCPU, have 8, used 0"):
        aws_rig.cloud.create_instance(aws_rig.request(placement=place))


def test_c3_spot_and_on_demand_have_a_quota_each_and_do_not_take_from_one_another(aws_rig):
    aws_rig.fake.quotas[ON_DEMAND_G] = 0.0
    aws_rig.fake.quotas[SPOT_G] = 4.0
    aws_rig.cloud.create_instance(aws_rig.request(placement=aws_rig.spot))
    with pytest.raises(QuotaError, match=r"L-DB2E81BA \(Running On-Demand G and VT instances\) .*on-demand: need 4"):
        aws_rig.cloud.create_instance(aws_rig.request("token-2"))
    with pytest.raises(
        QuotaError, match=r"L-3819A6DF \(All G and VT Spot Instance Requests\) .*spot: need 4 vCPU, have 4, used 4"
    ):
        aws_rig.cloud.create_instance(aws_rig.request("token-3", placement=aws_rig.spot))


def test_a_machine_that_ends_first_counts_as_free(aws_rig):
    aws_rig.fake.quotas[ON_DEMAND_G] = 4.0
    aws_rig.cloud.check_room(aws_rig.here)
    old = aws_rig.cloud.create_instance(aws_rig.request())
    with pytest.raises(QuotaError, match="need 4 vCPU, have 4, used 4"):
        aws_rig.cloud.check_room(aws_rig.here)
    aws_rig.cloud.check_room(aws_rig.here, ending=old.id)
    assert len(aws_rig.fake.of("RunInstances")) == 1


def test_a_quota_that_just_suffices_is_enough(aws_rig):
    aws_rig.fake.quotas[ON_DEMAND_G] = 8.0
    aws_rig.cloud.create_instance(aws_rig.request("token-1"))
    aws_rig.cloud.create_instance(aws_rig.request("token-2"))
    with pytest.raises(QuotaError, match="have 8, used 8"):
        aws_rig.cloud.create_instance(aws_rig.request("token-3"))


def test_without_rights_to_read_it_ec2_itself_is_asked(aws_rig):
    aws_rig.cloud.create_instance(aws_rig.request())
    assert len(aws_rig.fake.of("RunInstances")) == 1
    text = "You have requested more vCPU capacity than your current vCPU limit of 8 allows for the instance bucket"
    aws_rig.fake.inject("RunInstances", "VcpuLimitExceeded", message=text)
    with pytest.raises(QuotaError) as refusal:
        aws_rig.cloud.create_instance(aws_rig.request("token-2"))
    assert "VcpuLimitExceeded" in refusal.value.message
    assert "quota L-DB2E81BA" in refusal.value.message
    assert "need 4 vCPU, have 8" in refusal.value.message
    assert "--desired-value 12" in refusal.value.remedy


def test_a_machine_that_the_token_made_is_given_back_whatever_the_quota(aws_rig):
    request = aws_rig.request()
    made = aws_rig.cloud.create_instance(request)
    aws_rig.fake.quotas[ON_DEMAND_G] = 4.0
    assert AwsCloud().create_instance(request).id == made.id
    aws_rig.fake.quotas[ON_DEMAND_G] = 0.0
    assert AwsCloud().create_instance(request).id == made.id


def test_a_call_that_may_have_taken_effect_is_made_again_whatever_the_quota(aws_rig):
    request = aws_rig.request()
    aws_rig.fake.rules.visibility_s = 60.0
    aws_rig.fake.inject("RunInstances", do="lost")
    with pytest.raises(Exception, match="no answer"):
        aws_rig.cloud.create_instance(request)
    aws_rig.fake.quotas[ON_DEMAND_G] = 0.0
    assert aws_rig.cloud.create_instance(request).token == request.token


def test_a_walk_over_the_zones_of_a_region_reads_figures_once(aws_rig):
    aws_rig.fake.quotas[ON_DEMAND_G] = 0.0
    for number, zone in enumerate(("use1-az1", "use1-az2", "use1-az4", "use1-az5")):
        with pytest.raises(QuotaError):
            aws_rig.cloud.create_instance(
                aws_rig.request(f"token-{number}", placement=replace(aws_rig.here, zone=zone))
            )
    assert len(aws_rig.fake.of("GetServiceQuota")) == 1
    assert aws_rig.fake.of("RunInstances") == []


def test_types_that_no_catalog_knows_count_by_their_family(aws_rig):
    from tests.fakes import aws_rules

    made = aws_rig.running("token-0")
    aws_rules.machine("us-east-1", made.id).instance_type = "g99.huge"
    aws_rules.machine("us-east-1", made.id).cpu_options = {"CoreCount": 8, "ThreadsPerCore": 2}
    aws_rig.fake.quotas[ON_DEMAND_G] = 16.0
    with pytest.raises(QuotaError, match="used 16"):
        AwsCloud().create_instance(aws_rig.request("token-1"))
