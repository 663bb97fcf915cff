"""More of what EC2 documents, held by the bare SDK: dry runs, interfaces, ways out, offerings, ends that may be repeated."""

from __future__ import annotations

import boto3
import pytest
from botocore.config import Config

from tests.clouds.aws.test_emulator import ENDS, LAUNCH, REGION, SPOT, launch, refused, state
from tests.fakes.ec2_behaviours import documented


@pytest.fixture
def fake(aws_rig):
    return aws_rig.fake


@pytest.fixture
def ec2(fake):
    return boto3.client("ec2", region_name=REGION, config=Config(retries={"total_max_attempts": 1}))


@documented("dry-run", "dry-run-rights")
def test_a_dry_run_answers_412_and_makes_nothing(ec2, fake):
    assert refused(launch, ec2=ec2, DryRun=True) == ("DryRunOperation", 412)
    fake.inject("RunInstances", "UnauthorizedOperation")
    assert refused(launch, ec2=ec2, DryRun=True) == ("UnauthorizedOperation", 403)
    assert ec2.describe_instances()["Reservations"] == []


@documented("interface-ends")
def test_the_interface_that_a_launch_makes_ends_with_its_machine(ec2):
    made = launch(ec2)["InstanceId"]
    (before,) = ec2.describe_network_interfaces()["NetworkInterfaces"]
    assert before["Attachment"]["InstanceId"] == made
    ec2.terminate_instances(InstanceIds=[made])
    assert ec2.describe_network_interfaces()["NetworkInterfaces"] == []


@documented("vpc-way-out")
def test_a_default_vpc_has_one_way_out_however_often_it_is_asked(ec2):
    def ways():
        tables = ec2.describe_route_tables()["RouteTables"]
        return [r["GatewayId"] for table in tables for r in table["Routes"] if r["DestinationCidrBlock"] == "0.0.0.0/0"]

    (first,) = ways()
    assert first.startswith("igw-")
    assert ways() == [first]


@documented("subnet-addresses")
def test_default_subnets_give_public_addresses_and_count_them(ec2):
    launch(ec2)
    subnets = ec2.describe_subnets(Filters=[{"Name": "default-for-az", "Values": ["true"]}])["Subnets"]
    assert all(one["MapPublicIpOnLaunch"] for one in subnets)
    assert len({one["AvailableIpAddressCount"] for one in subnets}) == 2  # one of them has given an address away


@documented("offerings-zone-id")
def test_offerings_are_told_by_zone_id(ec2):
    found = ec2.describe_instance_type_offerings(
        LocationType="availability-zone-id", Filters=[{"Name": "instance-type", "Values": ["p4d.24xlarge"]}]
    )["InstanceTypeOfferings"]
    assert found
    assert all(one["Location"].startswith("use1-az") for one in found)


@documented("end-again", "spot-closed")
def test_an_end_may_be_repeated_and_closes_a_one_time_request(ec2):
    made = launch(ec2, **SPOT, **ENDS)
    for _ in range(2):
        ec2.terminate_instances(InstanceIds=[made["InstanceId"]])
    assert state(ec2, made["InstanceId"]) == "terminated"
    (request,) = ec2.describe_spot_instance_requests()["SpotInstanceRequests"]
    assert request["State"] == "closed"


@documented("stop-reason")
def test_a_stop_says_when_and_by_whom(ec2):
    made = launch(ec2)["InstanceId"]
    ec2.stop_instances(InstanceIds=[made])
    ((machine,),) = [one["Instances"] for one in ec2.describe_instances(InstanceIds=[made])["Reservations"]]
    assert machine["StateTransitionReason"].startswith("User initiated (")
    assert machine["StateReason"]["Code"] == "Client.UserInitiatedShutdown"


@documented("batch-fails")
def test_one_unknown_id_fails_the_whole_call(ec2):
    made = launch(ec2)["InstanceId"]
    ids = [made, "i-0ffffffffffffffff"]
    assert refused(ec2.terminate_instances, InstanceIds=ids)[0] == "InvalidInstanceID.NotFound"
    assert state(ec2, made) == "running"


@documented("region-own")
def test_a_region_is_an_account_of_its_own(ec2):
    launch(ec2)
    away = boto3.client("ec2", region_name="eu-west-1")
    assert away.describe_instances()["Reservations"] == []


@documented("volume-unknown")
def test_unknown_disks_groups_and_requests_have_codes_of_their_own(ec2):
    assert refused(ec2.delete_volume, VolumeId="vol-0ffffffffffffffff")[0] == "InvalidVolume.NotFound"
    assert refused(ec2.delete_security_group, GroupId="sg-0ffffffffffffffff")[0] == "InvalidGroup.NotFound"
    code, _ = refused(ec2.cancel_spot_instance_requests, SpotInstanceRequestIds=["sir-0"])
    assert code == "InvalidSpotInstanceRequestID.NotFound"


@documented("block-room", "block-market", "reservation-filter", "reservation-back")
def test_a_block_takes_as_many_machines_as_it_has_places(ec2, fake):
    """Source: EC2 user guide, "Launch instances using Capacity Blocks"; API reference, DescribeCapacityReservations."""
    block = {"CapacityReservationId": "cr-1", "InstanceType": "p5.48xlarge", "ReservationType": "capacity-block"}
    fake.rules.reservations = [{**block, "State": "active", "TotalInstanceCount": 1, "region": REGION}]
    inside = {
        "InstanceType": "p5.48xlarge",
        "InstanceMarketOptions": {"MarketType": "capacity-block"},
        "CapacityReservationSpecification": {"CapacityReservationTarget": {"CapacityReservationId": "cr-1"}},
    }

    def room():
        return ec2.describe_capacity_reservations()["CapacityReservations"][0]["AvailableInstanceCount"]

    assert room() == 1
    made = launch(ec2, **inside)
    assert (made["InstanceLifecycle"], made["CapacityReservationId"], room()) == ("capacity-block", "cr-1", 0)
    assert refused(ec2.run_instances, **{**LAUNCH, **inside})[0] == "ReservationCapacityExceeded"
    assert refused(ec2.run_instances, **{**LAUNCH, **inside, "InstanceMarketOptions": {"MarketType": "spot"}})[0] == (
        "InvalidParameterValue"
    )
    ec2.terminate_instances(InstanceIds=[made["InstanceId"]])
    assert room() == 1
    by_type = [{"Name": "reservation-type", "Values": ["capacity-block"]}]
    assert refused(ec2.describe_capacity_reservations, Filters=by_type)[0] == "InvalidParameterValue"


@documented("gp3-included", "gp3-limits", "volume-one-change")
def test_gp3_has_what_is_asked_for_within_its_limits_and_one_change_at_a_time(ec2, fake):
    """Source: EC2 API reference, CreateVolume and ModifyVolume; EBS user guide, "General Purpose SSD volumes"."""
    ebs = {"VolumeSize": 100, "VolumeType": "gp3", "Iops": 4000, "Throughput": 1000}
    made = launch(ec2, BlockDeviceMappings=[{"DeviceName": "/dev/sda1", "Ebs": ebs}])
    (root,) = ec2.describe_volumes(Filters=[{"Name": "attachment.instance-id", "Values": [made["InstanceId"]]}])[
        "Volumes"
    ]
    assert (root["Iops"], root["Throughput"]) == (4000, 1000)
    plain = {"AvailabilityZone": f"{REGION}a", "Size": 10, "VolumeType": "gp3"}
    disk = ec2.create_volume(**plain)
    assert (disk["Iops"], disk["Throughput"]) == (3000, 125)
    for wrong in ({"Iops": 80_001}, {"Throughput": 2001}, {"Iops": 6000}, {"Throughput": 800}):
        assert refused(ec2.create_volume, **plain, **wrong)[0].startswith("InvalidParameter")
    fake.rules.modifying_s = 60.0
    ec2.modify_volume(VolumeId=disk["VolumeId"], Throughput=500)
    assert refused(ec2.modify_volume, VolumeId=disk["VolumeId"], Size=20)[0] == "IncorrectModificationState"


@documented("status-running")
def test_the_status_of_running_machines_is_told_and_of_others_on_request(ec2, fake):
    made = launch(ec2)["InstanceId"]
    fake.rules.health[made] = {"SystemStatus": "impaired"}
    (status,) = ec2.describe_instance_status(InstanceIds=[made])["InstanceStatuses"]
    assert (status["SystemStatus"]["Status"], status["InstanceStatus"]["Status"]) == ("impaired", "ok")
    ec2.stop_instances(InstanceIds=[made])
    assert ec2.describe_instance_status(InstanceIds=[made])["InstanceStatuses"] == []
    assert len(ec2.describe_instance_status(InstanceIds=[made], IncludeAllInstances=True)["InstanceStatuses"]) == 1
    code, _ = refused(ec2.describe_instance_status, InstanceIds=["i-0ffffffffffffffff"])
    assert code == "InvalidInstanceID.NotFound"
