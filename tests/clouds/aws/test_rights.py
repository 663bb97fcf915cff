"""The least rights: each policy allows exactly the calls that its purpose really makes."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta

import boto3
import pytest

from provisioner.cli.main import run
from provisioner.clouds.aws import rights
from provisioner.clouds.aws.cloud import AwsCloud
from provisioner.clouds.aws.settings import AwsSettings
from provisioner.units import GIB, DiskSpeed
from provisioner.vocabulary import CapacityType
from tests.fakes import aws_rules

IAM_NAMES = {"monitoring": "cloudwatch"}
"""CloudWatch's calls are signed under another name than IAM gives its rights."""
MAKING_STRAYS = {"ec2:AllocateAddress", "ec2:CreateNetworkInterface", "ec2:CreateSnapshot", "ec2:CreateVolume"}
FREE = {"sts:GetCallerIdentity"}
"""Allowed to everybody."""


def made(fake):
    """The calls so far as IAM names them."""
    return {f"{IAM_NAMES.get(call.service, call.service)}:{call.operation}" for call in fake.calls} - FREE


def life(rig, cloud, key, **request):
    """Everything that ``up``, ``stop``, ``start`` and ``down`` do with one machine."""
    place = request.get("placement", rig.here)
    image = cloud.resolve_image(place)
    group = cloud.ensure_security_group(place, rig.request(image=image).tags, ["203.0.113.7/32"], [8000])
    cloud.ensure_security_group(place, rig.request(image=image).tags, [], [])
    machine = cloud.create_instance(rig.request(key, image=image, security_group=group, **request))
    volume = cloud.create_volume(rig.volume(key, zone=machine.placement.zone))
    cloud.attach_volume(place, machine.id, volume.id)
    cloud.grow_volume(place, volume.id, 600 * GIB)
    cloud.set_root_speed(place, machine.id, DiskSpeed(3000, 250))
    cloud.set_tags(place, machine.id, {"Name": "chat of ana"})
    if place.capacity_type is not CapacityType.SPOT:
        cloud.set_shutdown(place, machine.id, stops=True)
    assert cloud.stop_refusal(place, machine.id) is None
    cloud.stop_instance(place, machine.id)
    cloud.set_user_data(place, machine.id, "#cloud-config\n{}\n")
    cloud.start_instance(place, machine.id)
    cloud.terminate_instance(place, machine.id)
    cloud.delete_volume(place, volume.id)
    cloud.delete_security_group(place, group)
    cloud.list_objects()
    cloud.read_console(place, machine.id)
    cloud.read_health(place, machine.id)


def make_strays(rig):
    """One of each kind that only ``gc`` looks for, made by somebody else: (kind, id)."""
    ec2 = boto3.client("ec2", region_name="us-east-1")
    subnet = next(iter(aws_rules.backend("us-east-1").get_default_subnets().values())).id
    tags = [{"Key": key, "Value": value} for key, value in rig.request().tags.items()]

    def tagged(kind):
        return [{"ResourceType": kind, "Tags": tags}]

    interface = ec2.create_network_interface(SubnetId=subnet, TagSpecifications=tagged("network-interface"))
    address = ec2.allocate_address(Domain="vpc", TagSpecifications=tagged("elastic-ip"))
    zone = aws_rules.zone_of_subnet("us-east-1", subnet)
    volume = ec2.create_volume(AvailabilityZone=zone, Size=1)["VolumeId"]
    snapshot = ec2.create_snapshot(VolumeId=volume, TagSpecifications=tagged("snapshot"))
    ec2.close()
    return [
        ("network-interface", interface["NetworkInterface"]["NetworkInterfaceId"]),
        ("address", address["AllocationId"]),
        ("snapshot", snapshot["SnapshotId"]),
    ]


def test_gc_finds_what_carries_our_tags_and_no_command_makes(aws_rig):
    found = dict(make_strays(aws_rig))
    seen = {entry.kind: entry for entry in aws_rig.cloud.survey_with_strays().objects}
    assert {kind: entry.id for kind, entry in seen.items()} == found
    assert seen["snapshot"].extra["size_bytes"] == str(GIB)
    assert seen["snapshot"].price_usd_per_hour is None  # unknown, and not nothing
    assert seen["address"].price_usd_per_hour == "0.005"
    assert aws_rig.cloud.list_objects() == []  # no stack is kept from its end by them
    for kind, object_id in found.items():
        aws_rig.cloud.end_stray("us-east-1", kind, object_id)
    aws_rig.cloud.end_stray("us-east-1", "network-interface", found["network-interface"])
    assert aws_rig.cloud.survey_with_strays().objects == ()


def made_ready(cloud, place):
    """What ``up`` looks at before it makes anything."""
    assert all(one.error is None for one in cloud.preflight((place,), 100 * GIB))


def test_up_is_allowed_what_it_calls_and_nothing_more(aws_rig):
    fake = aws_rig.fake
    fake.quotas["us-east-1", "L-DB2E81BA"] = 64.0
    made_ready(aws_rig.cloud, aws_rig.here)
    life(aws_rig, aws_rig.cloud, "token-1")
    life(aws_rig, aws_rig.cloud, "token-2", placement=aws_rig.spot, stop_on_shutdown=True)
    subnet = next(
        one.id
        for one in aws_rules.backend("us-east-1").get_default_subnets().values()
        if one.availability_zone_id == aws_rig.here.zone
    )
    life(aws_rig, AwsCloud(AwsSettings(subnets=(subnet,))), "token-3")
    assert made(fake) == set(rights.PURPOSES["up"]) - {"ec2:DescribeCapacityReservations"}


@pytest.mark.parametrize(
    ("purpose", "calls"),
    [
        ("status", ("read_console", "read_health")),
        ("reap", ("read_console", "read_signals", "set_tags", "stop_instance", "terminate_instance")),
        ("gc", ("terminate_instance", "delete_volume", "delete_security_group")),
    ],
)
def test_looking_and_ending_need_no_right_to_make(aws_rig, purpose, calls):
    machine = aws_rig.running(placement=aws_rig.spot, stop_on_shutdown=True)
    volume = aws_rig.cloud.create_volume(aws_rig.volume())
    group = aws_rig.cloud.ensure_security_group(aws_rig.here, {"gpuprov:stack-id": "another"}, [], [])
    ids = {"delete_volume": volume.id, "delete_security_group": group}
    aws_rig.fake.calls.clear()
    cloud = AwsCloud()
    cloud.list_objects()
    cloud.identity()
    more = {"set_tags": ({"gpuprov-reap-for": "idle"},), "read_signals": (datetime.now(UTC) - timedelta(hours=1),)}
    for call in calls:
        getattr(cloud, call)(aws_rig.spot, ids.get(call, machine.id), *more.get(call, ()))
    if purpose == "gc":
        cloud.survey_with_strays()
        for kind, object_id in make_strays(aws_rig):
            cloud.end_stray("us-east-1", kind, object_id)
    assert made(aws_rig.fake) - MAKING_STRAYS == set(rights.PURPOSES[purpose])


def test_plan_needs_nothing_and_the_documents_can_be_attached():
    found = rights.policies()
    assert found.pop("plan") is None
    for purpose, document in found.items():
        allowed = {action for statement in document["Statement"] for action in statement["Action"]}
        assert allowed == set(rights.PURPOSES[purpose])
        names = [statement["Sid"] for statement in document["Statement"]]
        assert len(names) == len(set(names))
        assert all(name.isalnum() for name in names)
        assert len(json.dumps(document, separators=(",", ":"))) < 6144  # IAM's limit for a managed policy


def test_whatever_ends_or_changes_is_bound_to_our_tag():
    ending = {*rights.CHANGE, *rights.POWER, *rights.END, *rights.SWEEP}
    for document in rights.policies().values():
        for statement in document["Statement"] if document else ():
            if ending & set(statement["Action"]):
                assert statement["Condition"] == {"Null": {"aws:ResourceTag/gpuprov:stack-id": "false"}}
            if statement["Sid"].endswith("Tagged"):
                assert statement["Condition"] == {"Null": {"aws:RequestTag/gpuprov:stack-id": "false"}}


def test_doctor_prints_them(capsys):
    assert run(["doctor", "--print-iam", "aws"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["schema"] == "gpuprov.iam/1"
    assert set(document["policies"]) == {"plan", "status", "up", "reap", "gc"}
    assert set(document["options"]) == {"aws.instance_profile", "aws.kms_key"}
