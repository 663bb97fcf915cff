"""What EC2 documents and stock moto does not do: held here by the bare SDK, so that the emulator cannot flatter us."""

from __future__ import annotations

import boto3
import pytest
from botocore.config import Config
from botocore.exceptions import ClientError, ConnectionClosedError

from tests.fakes import aws_limits, aws_rules
from tests.fakes.ec2_behaviours import documented

REGION = "us-east-1"
LAUNCH = {"ImageId": aws_rules.IMAGE, "InstanceType": "g6.xlarge", "MinCount": 1, "MaxCount": 1}
SPOT = {"InstanceMarketOptions": {"MarketType": "spot", "SpotOptions": {"SpotInstanceType": "one-time"}}}
ENDS = {"InstanceInitiatedShutdownBehavior": "terminate"}
PERSISTENT = {
    "InstanceMarketOptions": {
        "MarketType": "spot",
        "SpotOptions": {"SpotInstanceType": "persistent", "InstanceInterruptionBehavior": "stop"},
    }
}


@pytest.fixture
def fake(aws_rig):
    return aws_rig.fake


@pytest.fixture
def ec2(fake):
    return boto3.client("ec2", region_name=REGION, config=Config(retries={"total_max_attempts": 1}))


def launch(ec2, **more):
    return ec2.run_instances(**{**LAUNCH, **more})["Instances"][0]


def refused(call, **parameters):
    """The code and the HTTP status of a refusal."""
    with pytest.raises(ClientError) as refusal:
        call(**parameters)
    response = refusal.value.response
    return response["Error"]["Code"], response["ResponseMetadata"]["HTTPStatusCode"]


def state(ec2, instance_id):
    (found,) = ec2.describe_instances(InstanceIds=[instance_id])["Reservations"]
    return found["Instances"][0]["State"]["Name"]


@documented("token-repeats", "token-mismatch")
def test_a_token_makes_one_machine_and_refuses_other_bytes(ec2):
    first = launch(ec2, ClientToken="t")
    assert launch(ec2, ClientToken="t")["InstanceId"] == first["InstanceId"]
    assert refused(ec2.run_instances, **{**LAUNCH, "InstanceType": "g5.xlarge"}, ClientToken="t") == (
        "IdempotentParameterMismatch",
        400,
    )


@documented("token-region")
def test_a_token_is_of_its_region(ec2, fake):
    first = launch(ec2, ClientToken="t")
    west = boto3.client("ec2", region_name="us-west-2")
    assert launch(west, ClientToken="t")["InstanceId"] != first["InstanceId"]


@documented("token-terminated")
def test_a_token_of_an_ended_machine_is_refused(ec2):
    made = launch(ec2, ClientToken="t")
    ec2.terminate_instances(InstanceIds=[made["InstanceId"]])
    assert refused(ec2.run_instances, **LAUNCH, ClientToken="t") == ("IdempotentInstanceTerminated", 400)


@documented("token-unused")
def test_a_refused_call_does_not_use_its_token_up(ec2, fake):
    fake.inject("RunInstances", "InsufficientInstanceCapacity")
    assert refused(ec2.run_instances, **LAUNCH, ClientToken="t") == ("InsufficientInstanceCapacity", 500)
    assert launch(ec2, ClientToken="t")["InstanceId"]


@documented("capacity-500")
def test_a_want_of_capacity_is_http_500_and_the_sdk_repeats_it_unless_told_not_to(ec2, fake):
    fake.capacity["us-east-1a", "g6.xlarge"] = 0
    place = {"Placement": {"AvailabilityZone": "us-east-1a"}}
    assert refused(ec2.run_instances, **LAUNCH, **place) == ("InsufficientInstanceCapacity", 500)
    assert len(fake.of("RunInstances")) == 1
    eager = boto3.client("ec2", region_name=REGION)
    assert refused(eager.run_instances, **LAUNCH, **place)[0] == "InsufficientInstanceCapacity"
    assert len(fake.of("RunInstances")) > 2


@documented("capacity-pool")
def test_capacity_is_counted_by_zone_and_type(ec2, fake):
    fake.capacity["us-east-1a", "g6.xlarge"] = 1
    place = {"Placement": {"AvailabilityZone": "us-east-1a"}}
    launch(ec2, **place)
    assert refused(ec2.run_instances, **LAUNCH, **place)[0] == "InsufficientInstanceCapacity"
    launch(ec2, Placement={"AvailabilityZone": "us-east-1b"})
    launch(ec2, **place, InstanceType="g5.xlarge")


@documented("answer-lost")
def test_a_lost_answer_is_a_connection_that_ends_and_the_effect_stays(ec2, fake):
    fake.inject("RunInstances", do="lost")
    with pytest.raises(ConnectionClosedError):
        launch(ec2)
    assert len(ec2.describe_instances()["Reservations"]) == 1


def test_a_reset_has_no_effect(ec2, fake):
    fake.inject("RunInstances", do="reset")
    with pytest.raises(ConnectionClosedError):
        launch(ec2)
    assert ec2.describe_instances()["Reservations"] == []


@documented("image-unknown", "type-unknown", "group-unknown", "subnet-unknown", "spot-stop-behaviour", "tags-spot-only")
@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"ImageId": "ami-0ffffffffffffffff"}, "InvalidAMIID.NotFound"),
        ({"InstanceType": "g99.huge"}, "InvalidInstanceType.NotFound"),
        ({"SecurityGroupIds": ["sg-0ffffffffffffffff"]}, "InvalidGroup.NotFound"),
        ({"SubnetId": "subnet-0ffffffffffffffff"}, "InvalidSubnetID.NotFound"),
        (SPOT | {"InstanceInitiatedShutdownBehavior": "stop"}, "InvalidParameterCombination"),
        (
            {"TagSpecifications": [{"ResourceType": "spot-instances-request", "Tags": [{"Key": "a", "Value": "b"}]}]},
            "InvalidParameterValue",
        ),
    ],
)
def test_wrong_requests_are_refused(ec2, changes, code):
    assert refused(ec2.run_instances, **{**LAUNCH, **changes}) == (code, 400)


@documented("spot-one-time-stop", "spot-persistent-stop")
def test_a_one_time_spot_machine_is_not_stopped_and_a_persistent_one_is(ec2):
    once = launch(ec2, **SPOT, **ENDS)["InstanceId"]
    assert refused(ec2.stop_instances, InstanceIds=[once])[0] == "UnsupportedOperation"
    kept = launch(ec2, **PERSISTENT)["InstanceId"]
    ec2.stop_instances(InstanceIds=[kept])
    assert state(ec2, kept) == "stopped"

    def word():
        found = ec2.describe_spot_instance_requests()["SpotInstanceRequests"]
        return next(request["State"] for request in found if request["InstanceId"] == kept)

    assert word() == "disabled"
    ec2.start_instances(InstanceIds=[kept])
    assert word() == "active"


@documented("spot-relaunch", "spot-cancelled")
def test_a_persistent_request_that_nobody_cancelled_starts_another_machine(ec2, fake):
    def alive():
        asked = [{"Name": "instance-state-name", "Values": ["pending", "running"]}]
        return [m for r in ec2.describe_instances(Filters=asked)["Reservations"] for m in r["Instances"]]

    tags = [{"ResourceType": "instance", "Tags": [{"Key": "a", "Value": "b"}]}]
    made = launch(ec2, **PERSISTENT, TagSpecifications=tags)
    ec2.terminate_instances(InstanceIds=[made["InstanceId"]])
    (ghost,) = alive()
    assert fake.rules.relaunched == [made["SpotInstanceRequestId"]]
    assert ghost.get("Tags", []) == []
    ec2.cancel_spot_instance_requests(SpotInstanceRequestIds=[made["SpotInstanceRequestId"]])
    assert [one["InstanceId"] for one in alive()] == [ghost["InstanceId"]]
    ec2.terminate_instances(InstanceIds=[ghost["InstanceId"]])
    aws_limits.pass_time(aws_limits.DAY_S)
    assert alive() == []
    fake.rules.spot_requests[made["SpotInstanceRequestId"]]["State"] = "open"  # one that waits for room instead
    aws_limits.pass_time(60)
    assert len(alive()) == 1


@documented("spot-request-made", "request-unknown")
def test_spot_requests_have_ids_types_states_and_tags(ec2):
    tags = [{"Key": "gpuprov:stack-id", "Value": "s"}]
    made = launch(ec2, **SPOT, **ENDS, TagSpecifications=[{"ResourceType": "spot-instances-request", "Tags": tags}])
    (found,) = ec2.describe_spot_instance_requests(SpotInstanceRequestIds=[made["SpotInstanceRequestId"]])[
        "SpotInstanceRequests"
    ]
    assert (found["Type"], found["State"], found["InstanceId"], found["Tags"]) == (
        "one-time",
        "active",
        made["InstanceId"],
        tags,
    )
    assert refused(ec2.describe_spot_instance_requests, SpotInstanceRequestIds=["sir-0"])[0] == (
        "InvalidSpotInstanceRequestID.NotFound"
    )


@documented("no-second-life")
def test_an_ended_machine_does_not_start_again(ec2):
    made = launch(ec2)["InstanceId"]
    ec2.terminate_instances(InstanceIds=[made])
    assert refused(ec2.start_instances, InstanceIds=[made])[0] == "IncorrectInstanceState"
    assert state(ec2, made) == "terminated"
    ec2.terminate_instances(InstanceIds=[made])


@documented("states-take-time", "state-wrong")
def test_transitions_take_their_time(ec2, fake):
    fake.rules.boot_s = fake.rules.ending_s = 60.0
    made = launch(ec2)["InstanceId"]
    assert state(ec2, made) == "pending"
    assert refused(ec2.stop_instances, InstanceIds=[made])[0] == "IncorrectInstanceState"
    ec2.terminate_instances(InstanceIds=[made])
    assert state(ec2, made) == "shutting-down"


@documented("young-hidden")
def test_a_young_machine_does_not_show_and_cannot_be_named(ec2, fake):
    fake.rules.visibility_s = 60.0
    made = launch(ec2)["InstanceId"]
    assert ec2.describe_instances()["Reservations"] == []
    assert refused(ec2.describe_instances, InstanceIds=[made])[0] == "InvalidInstanceID.NotFound"
    assert refused(ec2.terminate_instances, InstanceIds=[made])[0] == "InvalidInstanceID.NotFound"
    tags = [{"Key": "a", "Value": "b"}]
    assert refused(ec2.create_tags, Resources=[made], Tags=tags)[0] == "InvalidInstanceID.NotFound"


@documented(
    "token-volume",
    "volume-zone",
    "volume-device",
    "volume-one-machine",
    "volume-in-use",
    "volume-grows",
    "volume-survives",
)
def test_disks_keep_to_their_zone_their_machine_and_their_size(ec2):
    here = launch(ec2, Placement={"AvailabilityZone": "us-east-1a"})["InstanceId"]
    second = launch(ec2, Placement={"AvailabilityZone": "us-east-1a"})["InstanceId"]
    away = launch(ec2, Placement={"AvailabilityZone": "us-east-1b"})["InstanceId"]
    request = {"AvailabilityZone": "us-east-1a", "Size": 50, "ClientToken": "v"}
    disk = ec2.create_volume(**request)["VolumeId"]
    assert ec2.create_volume(**request)["VolumeId"] == disk
    assert refused(ec2.create_volume, **{**request, "Size": 60})[0] == "IdempotentParameterMismatch"

    def attach(machine, device="/dev/sdf"):
        return {"VolumeId": disk, "InstanceId": machine, "Device": device}

    assert refused(ec2.attach_volume, **attach(away))[0] == "InvalidVolume.ZoneMismatch"
    assert refused(ec2.attach_volume, **attach(here, "/dev/sda1"))[0] == "InvalidParameterValue"
    ec2.attach_volume(**attach(here))
    assert refused(ec2.attach_volume, **attach(second))[0] == "VolumeInUse"
    assert refused(ec2.delete_volume, VolumeId=disk)[0] == "VolumeInUse"
    assert refused(ec2.modify_volume, VolumeId=disk, Size=40)[0] == "InvalidParameterValue"
    ec2.terminate_instances(InstanceIds=[here])
    (left,) = ec2.describe_volumes(VolumeIds=[disk])["Volumes"]
    assert left["State"] == "available"


@documented("volume-ends", "volume-encrypted")
def test_a_disk_says_whether_it_ends_with_its_machine(ec2):
    mapping = {"DeviceName": "/dev/sda1", "Ebs": {"VolumeSize": 50, "DeleteOnTermination": True, "Encrypted": True}}
    made = launch(ec2, BlockDeviceMappings=[mapping])["InstanceId"]
    (root,) = ec2.describe_volumes()["Volumes"]
    assert root["Encrypted"] is True
    assert root["Attachments"][0]["DeleteOnTermination"] is True
    ec2.terminate_instances(InstanceIds=[made])
    assert ec2.describe_volumes()["Volumes"] == []


@documented("group-once", "group-in-use")
def test_a_group_in_use_is_not_deleted(ec2):
    group = ec2.create_security_group(GroupName="g", Description="d")["GroupId"]
    assert refused(ec2.create_security_group, GroupName="g", Description="d")[0] == "InvalidGroup.Duplicate"
    made = launch(ec2, SecurityGroupIds=[group])["InstanceId"]
    assert refused(ec2.delete_security_group, GroupId=group)[0] == "DependencyViolation"
    ec2.terminate_instances(InstanceIds=[made])
    ec2.delete_security_group(GroupId=group)


@documented("filter-token")
def test_machines_are_found_by_their_token(ec2):
    made = launch(ec2, ClientToken="t")["InstanceId"]
    launch(ec2, ClientToken="u")
    asked = [{"Name": "client-token", "Values": ["t"]}]
    (found,) = ec2.describe_instances(Filters=asked)["Reservations"]
    assert found["Instances"][0]["InstanceId"] == made


@documented("region-closed")
def test_regions_say_whether_they_are_enabled(ec2):
    found = {entry["RegionName"]: entry["OptInStatus"] for entry in ec2.describe_regions()["Regions"]}
    assert found[aws_rules.CLOSED_REGION] == "not-opted-in"
    assert set(found) - {aws_rules.CLOSED_REGION} == set(aws_rules.REGIONS)


@documented("quota-readable")
def test_quotas_are_told_only_where_they_may_be_read(fake):
    quotas = boto3.client("service-quotas", region_name=REGION)
    request = {"ServiceCode": "ec2", "QuotaCode": "L-DB2E81BA"}
    assert refused(quotas.get_service_quota, **request)[0] == "AccessDeniedException"
    fake.quotas[REGION, "L-DB2E81BA"] = 64.0
    assert quotas.get_service_quota(**request)["Quota"]["Value"] == 64.0


@documented("image-parameter")
def test_deep_learning_images_are_named_by_parameters_and_exist(ec2):
    path = "/aws/service/deeplearning/ami/x86_64/base-oss-nvidia-driver-gpu-ubuntu-24.04/latest/ami-id"
    image = boto3.client("ssm", region_name=REGION).get_parameter(Name=path)["Parameter"]["Value"]
    (found,) = ec2.describe_images(ImageIds=[image])["Images"]
    assert found["RootDeviceName"] == "/dev/sda1"
