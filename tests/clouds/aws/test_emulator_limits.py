"""Limits that EC2 documents, held by the bare SDK; and that the list of behaviours is whole."""

from __future__ import annotations

import base64
import re
from pathlib import Path

import boto3
import pytest
from botocore.config import Config

from provisioner.clouds.aws.cloud import AwsCloud
from provisioner.clouds.aws.errors import TABLE
from tests.clouds.aws import test_emulator, test_emulator_edges
from tests.clouds.aws.test_emulator import ENDS, LAUNCH, PERSISTENT, REGION, SPOT, launch, refused, state
from tests.clouds.conftest import read_catalog_once
from tests.fakes import aws_limits, aws_rules
from tests.fakes.ec2_behaviours import BEHAVIOURS, documented

HERE = {"Placement": {"AvailabilityZone": "us-east-1a"}}


@pytest.fixture
def fake(aws_rig):
    return aws_rig.fake


@pytest.fixture
def ec2(fake):
    return boto3.client("ec2", region_name=REGION, config=Config(retries={"total_max_attempts": 1}))


def machine(ec2, instance_id):
    (found,) = ec2.describe_instances(InstanceIds=[instance_id])["Reservations"]
    return found["Instances"][0]


@documented("token-length")
def test_a_token_has_at_most_64_characters(ec2):
    assert refused(ec2.run_instances, **LAUNCH, ClientToken="t" * 65)[0] == "InvalidParameterValue"
    assert launch(ec2, ClientToken="t" * 64)["ClientToken"] == "t" * 64


@documented("unsupported-zone")
def test_a_zone_that_does_not_offer_the_type_says_so(ec2):
    offered = ec2.describe_instance_type_offerings(
        LocationType="availability-zone", Filters=[{"Name": "instance-type", "Values": ["p4d.24xlarge"]}]
    )["InstanceTypeOfferings"]
    letters = {zone["ZoneName"] for zone in ec2.describe_availability_zones()["AvailabilityZones"]}
    without = min(letters - {entry["Location"] for entry in offered})
    asked = {**LAUNCH, "InstanceType": "p4d.24xlarge", "Placement": {"AvailabilityZone": without}}
    assert refused(ec2.run_instances, **asked) == ("Unsupported", 400)


@documented("zone-letters")
def test_c10_letters_are_the_accounts_own_and_zones_are_found_by_their_ids(ec2, fake, aws_rig):
    """This account has no us-east-1b, and its us-east-1a is another place than that of others."""
    own = {"use1-az1": "us-east-1a", "use1-az2": "us-east-1c", "use1-az4": "us-east-1d"}
    fake.rules.zone_letters[REGION] = own
    shown = ec2.describe_availability_zones()["AvailabilityZones"]
    assert {zone["ZoneId"]: zone["ZoneName"] for zone in shown} == own
    cloud = AwsCloud(catalog=read_catalog_once)
    made = cloud.create_instance(aws_rig.request())
    assert made.placement.zone == aws_rig.here.zone == "use1-az2"
    (sent,) = fake.of("RunInstances")
    assert sent.parameters["Placement.AvailabilityZone"] == "us-east-1c"


@documented("user-data", "user-data-back")
def test_user_data_has_at_most_16_kb(ec2):
    assert refused(ec2.run_instances, **LAUNCH, UserData="x" * 16_385) == ("InvalidParameterValue", 400)
    made = launch(ec2, UserData="x" * 16_384)["InstanceId"]
    kept = ec2.describe_instance_attribute(InstanceId=made, Attribute="userData")["UserData"]["Value"]
    assert base64.b64decode(kept) == b"x" * 16_384


@documented("metadata-options", "tags-of-launch")
def test_options_and_tags_of_the_create_call_are_there_at_once(ec2):
    options = {"HttpTokens": "required", "HttpPutResponseHopLimit": 1, "HttpEndpoint": "enabled"}
    kinds = ("instance", "volume", "network-interface")
    tags = [{"Key": "gpuprov:stack-id", "Value": "s"}]
    specifications = [{"ResourceType": kind, "Tags": tags} for kind in kinds]
    made = launch(ec2, MetadataOptions=options, TagSpecifications=specifications)["InstanceId"]
    shown = machine(ec2, made)
    assert options.items() <= shown["MetadataOptions"].items()
    assert shown["Tags"] == tags
    (volume,) = ec2.describe_volumes()["Volumes"]
    (interface,) = ec2.describe_network_interfaces()["NetworkInterfaces"]
    assert volume["Tags"] == interface["TagSet"] == tags


@documented("tags-fifty")
def test_a_machine_has_at_most_fifty_tags(ec2):
    made = launch(ec2)["InstanceId"]
    tags = [{"Key": f"k{number}", "Value": "v"} for number in range(51)]
    assert refused(ec2.create_tags, Resources=[made], Tags=tags)[0] == "TagLimitExceeded"
    ec2.create_tags(Resources=[made], Tags=tags[:50])
    assert len(machine(ec2, made)["Tags"]) == 50


@documented("spot-interrupted")
def test_a_machine_that_was_taken_back_says_so(ec2):
    made = launch(ec2, **SPOT, **ENDS)["InstanceId"]
    aws_rules.interrupt(REGION, made)
    shown = machine(ec2, made)
    assert (shown["State"]["Name"], shown["StateReason"]["Code"]) == ("terminated", "Server.SpotInstanceTermination")


@documented("spot-price")
def test_a_limit_below_the_price_of_the_market_is_refused(ec2, fake):
    fake.rules.spot_prices["us-east-1a", "g6.xlarge"] = 0.31

    def asked(limit):
        options = {"MarketType": "spot", "SpotOptions": {"SpotInstanceType": "one-time", "MaxPrice": limit}}
        return {**LAUNCH, **HERE, **ENDS, "InstanceMarketOptions": options}

    assert refused(ec2.run_instances, **asked("0.30")) == ("SpotMaxPriceTooLow", 400)
    assert ec2.run_instances(**asked("0.31"))["Instances"]


@documented("quota-on-demand", "quota-spot", "quota-freed")
def test_quotas_are_by_family_and_market_and_of_what_runs(ec2, fake):
    fake.quotas[REGION, "L-DB2E81BA"], fake.quotas[REGION, "L-3819A6DF"] = 8.0, 4.0
    first, second = (launch(ec2)["InstanceId"] for _ in range(2))
    assert refused(ec2.run_instances, **LAUNCH) == ("VcpuLimitExceeded", 400)
    launch(ec2, **SPOT, **ENDS)
    assert refused(ec2.run_instances, **LAUNCH, **SPOT, **ENDS) == ("MaxSpotInstanceCountExceeded", 400)
    launch(ec2, InstanceType="p5.4xlarge")
    ec2.stop_instances(InstanceIds=[first])
    third = launch(ec2)["InstanceId"]
    assert refused(ec2.run_instances, **LAUNCH)[0] == "VcpuLimitExceeded"
    ec2.terminate_instances(InstanceIds=[second, third])
    launch(ec2)


@documented("ends-by-itself", "inside-reason")
@pytest.mark.parametrize(("behaviour", "becomes"), [("stop", "stopped"), ("terminate", "terminated")])
def test_a_shutdown_from_inside_does_what_the_launch_said(ec2, behaviour, becomes):
    made = launch(ec2, InstanceInitiatedShutdownBehavior=behaviour)["InstanceId"]
    aws_limits.shut_down(REGION, made)
    assert state(ec2, made) == becomes
    assert machine(ec2, made)["StateReason"]["Code"] == "Client.InstanceInitiatedShutdown"


@documented("spot-resumed", "spot-cancelled-stop")
def test_a_persistent_machine_that_was_taken_back_is_started_by_ec2_alone(ec2):
    made = launch(ec2, **PERSISTENT)
    ids = [made["InstanceId"]]
    aws_rules.interrupt_and_stop(REGION, ids[0])
    assert machine(ec2, ids[0])["StateReason"]["Code"] == "Server.SpotInstanceShutdown"
    assert refused(ec2.start_instances, InstanceIds=ids)[0] == "IncorrectSpotRequestState"
    aws_rules.resume(REGION, ids[0])
    assert state(ec2, ids[0]) == "running"
    assert machine(ec2, ids[0])["BlockDeviceMappings"] == made["BlockDeviceMappings"]
    ec2.cancel_spot_instance_requests(SpotInstanceRequestIds=[made["SpotInstanceRequestId"]])
    assert refused(ec2.stop_instances, InstanceIds=ids)[0] == "UnsupportedOperation"


@documented("shutdown-changes")
@pytest.mark.parametrize("is_stopped", [False, True])
def test_what_a_shutdown_does_is_changed_on_a_machine_that_runs_and_on_one_that_is_stopped(ec2, is_stopped):
    made = launch(ec2, InstanceInitiatedShutdownBehavior="stop")["InstanceId"]
    if is_stopped:
        ec2.stop_instances(InstanceIds=[made])
    told = {"InstanceId": made, "InstanceInitiatedShutdownBehavior": {"Value": "terminate"}}
    ec2.modify_instance_attribute(**told)
    ec2.modify_instance_attribute(**told)
    if is_stopped:
        ec2.start_instances(InstanceIds=[made])
    aws_limits.shut_down(REGION, made)
    assert state(ec2, made) == "terminated"
    assert refused(ec2.modify_instance_attribute, **told)[0] == "IncorrectInstanceState"


@documented("shutdown-spot")
def test_a_one_time_spot_machine_is_not_told_to_stop(ec2):
    made = launch(ec2, **SPOT, **ENDS)["InstanceId"]
    told = {"InstanceId": made, "InstanceInitiatedShutdownBehavior": {"Value": "stop"}}
    assert refused(ec2.modify_instance_attribute, **told) == ("UnsupportedOperation", 400)


@documented("protection")
def test_a_protected_machine_is_not_terminated(ec2):
    made = launch(ec2)["InstanceId"]
    ec2.modify_instance_attribute(InstanceId=made, DisableApiTermination={"Value": True})
    assert refused(ec2.terminate_instances, InstanceIds=[made])[0] == "OperationNotPermitted"
    assert state(ec2, made) == "running"


@documented("stop-address")
def test_a_stop_gives_the_public_address_back_and_keeps_the_private_one(ec2):
    made = launch(ec2)["InstanceId"]
    before = machine(ec2, made)
    assert before["PublicIpAddress"]
    ec2.stop_instances(InstanceIds=[made])
    after = machine(ec2, made)
    assert "PublicIpAddress" not in after
    assert after["PrivateIpAddress"] == before["PrivateIpAddress"]


@documented("pages")
def test_a_list_goes_on_with_its_token(ec2):
    made = {launch(ec2)["InstanceId"] for _ in range(7)}
    first = ec2.describe_instances(MaxResults=5)
    rest = ec2.describe_instances(MaxResults=5, NextToken=first["NextToken"])
    pages = [[one["Instances"][0]["InstanceId"] for one in page["Reservations"]] for page in (first, rest)]
    assert [len(page) for page in pages] == [5, 2]
    assert set(pages[0]) | set(pages[1]) == made
    assert "NextToken" not in rest
    code, _ = refused(ec2.describe_instances, InstanceIds=[min(made)], MaxResults=5)
    assert code == "InvalidParameterCombination"


@documented("status")
def test_status_checks_are_of_running_machines(ec2):
    runs, stopped = launch(ec2)["InstanceId"], launch(ec2)["InstanceId"]
    ec2.stop_instances(InstanceIds=[stopped])
    (shown,) = ec2.describe_instance_status()["InstanceStatuses"]
    assert (shown["InstanceId"], shown["InstanceStatus"]["Status"], shown["SystemStatus"]["Status"]) == (
        runs,
        "ok",
        "ok",
    )
    everything = ec2.describe_instance_status(IncludeAllInstances=True)["InstanceStatuses"]
    assert {one["InstanceId"] for one in everything} == {runs, stopped}


@documented("volume-changes")
def test_a_volume_is_changed_four_times_a_day(ec2):
    made = ec2.create_volume(AvailabilityZone="us-east-1a", Size=10)["VolumeId"]
    for size in range(11, 15):
        ec2.modify_volume(VolumeId=made, Size=size)
    assert refused(ec2.modify_volume, VolumeId=made, Size=15)[0] == "VolumeModificationRateExceeded"
    aws_limits.pass_time(aws_limits.DAY_S)
    ec2.modify_volume(VolumeId=made, Size=15)


@documented("expired")
@pytest.mark.parametrize("code", ["RequestExpired", "ExpiredToken"])
def test_expired_credentials_are_refused_by_every_call(ec2, fake, code):
    fake.inject("*", code, times=9)
    for call in (ec2.describe_instances, ec2.describe_regions):
        assert refused(call) == (code, 400)
    assert refused(ec2.run_instances, **LAUNCH) == (code, 400)
    assert fake.rules.spot_requests == {}


@documented("throttled")
def test_throttling_is_503_and_an_sdk_waits_it_out(ec2, fake):
    fake.inject("DescribeInstances", "RequestLimitExceeded")
    assert refused(ec2.describe_instances) == ("RequestLimitExceeded", 503)
    fake.inject("DescribeInstances", "RequestLimitExceeded")
    patient = boto3.client("ec2", region_name=REGION)
    assert patient.describe_instances()["Reservations"] == []
    assert len(fake.of("DescribeInstances")) == 3


def test_every_documented_behaviour_has_its_proof_and_the_pages_say_how_many_there_are():
    modules = (vars(test_emulator), vars(test_emulator_edges), globals())
    proved = {key for names in modules for test in names.values() for key in getattr(test, "proves", ())}
    assert proved == set(BEHAVIOURS)
    assert len(BEHAVIOURS) >= 40
    assert all(words and source for words, source in BEHAVIOURS.values())
    page = (Path(__file__).parents[3] / "docs" / "reliability.md").read_text(encoding="utf-8")
    assert re.search(rf"\b{len(BEHAVIOURS)} documented behaviours of EC2", page)


@pytest.mark.parametrize(
    "code", ["Unsupported", "SpotMaxPriceTooLow", "MaxSpotInstanceCountExceeded", "VcpuLimitExceeded", "RequestExpired"]
)
def test_what_it_refuses_with_is_known_to_the_table(code):
    assert code in TABLE
