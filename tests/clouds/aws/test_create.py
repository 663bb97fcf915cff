"""The create call on the wire: what it states, how often it goes out, what a repeat gives."""

from __future__ import annotations

import base64
import gzip
import random
from dataclasses import replace

import pytest

from provisioner.clouds.aws.cloud import AwsCloud
from provisioner.clouds.aws.settings import AwsSettings
from provisioner.errors import (
    Ambiguous,
    CapacityError,
    CloudError,
    CredentialsError,
    QuotaError,
    Rejected,
    Throttled,
)
from provisioner.units import GIB
from provisioner.vocabulary import CapacityType

NEWEST = "ami-0d1a000000000001"


def sent(rig, operation="RunInstances"):
    """The one request of an operation."""
    (call,) = rig.fake.of(operation)
    return call.parameters


def tags_sent(parameters):
    """Kind of object -> its tags, as the request states them."""
    kinds = {}
    number = 1
    while f"TagSpecification.{number}.ResourceType" in parameters:
        head = f"TagSpecification.{number}"
        found, entry = {}, 1
        while f"{head}.Tag.{entry}.Key" in parameters:
            found[parameters[f"{head}.Tag.{entry}.Key"]] = parameters[f"{head}.Tag.{entry}.Value"]
            entry += 1
        kinds[parameters[f"{head}.ResourceType"]] = found
        number += 1
    return kinds


def test_everything_that_bills_is_tagged_in_the_create_call(aws_rig):
    request = aws_rig.request()
    aws_rig.cloud.create_instance(request)
    stated = tags_sent(sent(aws_rig))
    assert set(stated) == {"instance", "volume", "network-interface"}
    for tags in stated.values():
        assert tags == {**request.tags, "Name": request.name}
    assert aws_rig.fake.of("CreateTags") == []


def test_a_spot_request_is_tagged_too_and_asked_for_once(aws_rig):
    request = aws_rig.request(placement=aws_rig.spot)
    made = aws_rig.cloud.create_instance(request)
    parameters = sent(aws_rig)
    assert set(tags_sent(parameters)) == {"instance", "volume", "network-interface", "spot-instances-request"}
    assert parameters["InstanceMarketOptions.SpotOptions.SpotInstanceType"] == "one-time"
    assert parameters["InstanceMarketOptions.SpotOptions.InstanceInterruptionBehavior"] == "terminate"
    assert "InstanceMarketOptions.SpotOptions.MaxPrice" not in parameters  # on-demand is the limit then
    assert parameters["InstanceInitiatedShutdownBehavior"] == "terminate"
    assert made.placement == aws_rig.spot


def test_a_spot_machine_that_may_stop_is_asked_for_persistently(aws_rig):
    aws_rig.cloud.create_instance(aws_rig.request(placement=aws_rig.spot, stop_on_shutdown=True))
    parameters = sent(aws_rig)
    assert parameters["InstanceMarketOptions.SpotOptions.SpotInstanceType"] == "persistent"
    assert parameters["InstanceMarketOptions.SpotOptions.InstanceInterruptionBehavior"] == "stop"
    assert parameters["InstanceInitiatedShutdownBehavior"] == "stop"


def test_metadata_needs_a_token_and_disks_are_encrypted(aws_rig):
    made = aws_rig.cloud.create_instance(aws_rig.request(root_volume_bytes=100 * GIB + 1))
    parameters = sent(aws_rig)
    assert parameters["MetadataOptions.HttpTokens"] == "required"
    assert parameters["MetadataOptions.HttpPutResponseHopLimit"] == "1"
    assert parameters["MetadataOptions.InstanceMetadataTags"] == "enabled"
    assert parameters["BlockDeviceMapping.1.DeviceName"] == "/dev/sda1"
    assert parameters["BlockDeviceMapping.1.Ebs.Encrypted"] == "true"
    assert parameters["BlockDeviceMapping.1.Ebs.DeleteOnTermination"] == "true"
    assert parameters["BlockDeviceMapping.1.Ebs.VolumeType"] == "gp3"
    assert parameters["BlockDeviceMapping.1.Ebs.VolumeSize"] == "101"
    (root,) = [entry for entry in aws_rig.cloud.list_objects() if entry.extra.get("role") == "root"]
    assert root.extra["instance"] == made.id
    assert root.extra["size_bytes"] == str(101 * GIB)


def test_tags_that_metadata_cannot_show_are_kept_out_of_it(aws_rig):
    tags = {**aws_rig.request().tags, "cost centre/unit": "a b"}
    made = aws_rig.cloud.create_instance(aws_rig.request(tags=tags))
    assert sent(aws_rig)["MetadataOptions.InstanceMetadataTags"] == "disabled"
    assert made.tags == tags


def test_zones_are_named_by_id_and_asked_for_by_letter(aws_rig):
    made = aws_rig.cloud.create_instance(aws_rig.request())
    letter = sent(aws_rig)["Placement.AvailabilityZone"]
    assert letter.startswith("us-east-1")
    assert made.placement.zone == aws_rig.here.zone
    open_zone = aws_rig.cloud.create_instance(aws_rig.request("token-2", placement=replace(aws_rig.here, zone=None)))
    assert "Placement.AvailabilityZone" not in aws_rig.fake.of("RunInstances")[1].parameters
    assert open_zone.placement.zone.startswith("use1-az")


def test_the_users_own_objects_are_used(aws_rig):
    from tests.fakes import aws_rules

    subnets = aws_rules.backend("us-east-1").get_default_subnets()
    wanted = next(subnet for subnet in subnets.values() if subnet.availability_zone_id == aws_rig.next_zone.zone)
    settings = AwsSettings(subnets=(wanted.id,), kms_key="alias/ours")
    cloud = AwsCloud(settings)
    made = cloud.create_instance(aws_rig.request(placement=aws_rig.next_zone))
    parameters = sent(aws_rig)
    assert parameters["SubnetId"] == wanted.id
    assert "Placement.AvailabilityZone" not in parameters
    assert parameters["BlockDeviceMapping.1.Ebs.KmsKeyId"] == "alias/ours"
    assert made.placement == aws_rig.next_zone
    with pytest.raises(CapacityError, match=r"no subnet of aws.subnets is in use1-az2"):
        cloud.create_instance(aws_rig.request("token-2"))
    assert len(aws_rig.fake.of("RunInstances")) == 1
    group = cloud.ensure_security_group(aws_rig.next_zone, aws_rig.request().tags, [], [])
    assert group.startswith("sg-")


@pytest.mark.parametrize(
    ("profile", "key"), [("gpu-nodes", "Name"), ("arn:aws:iam::123456789012:instance-profile/gpu-nodes", "Arn")]
)
def test_an_instance_profile_goes_by_name_or_arn(aws_rig, profile, key):
    cloud = AwsCloud(AwsSettings(instance_profile=profile))
    with pytest.raises(Rejected):  # the emulated account has none of that name
        cloud.create_instance(aws_rig.request())
    assert sent(aws_rig)[f"IamInstanceProfile.{key}"] == profile


def test_a_long_start_script_is_packed_and_a_longer_one_refused(aws_rig):
    script = "#!/bin/sh\n" + "echo again\n" * 5000
    aws_rig.cloud.create_instance(aws_rig.request(user_data=script))
    packed = base64.b64decode(sent(aws_rig)["UserData"])
    assert gzip.decompress(packed).decode() == script
    noise = "".join(random.Random(2).choices([chr(letter) for letter in range(33, 127)], k=40_000))
    with pytest.raises(Rejected, match="more than user data on aws takes"):
        aws_rig.cloud.create_instance(aws_rig.request("token-2", user_data=noise))


def test_a_root_disk_smaller_than_its_image_is_refused_before_the_call(aws_rig):
    with pytest.raises(Rejected, match=r"10\.0 GiB is smaller than image ami-0d1a000000000001, which needs 15\.0 GiB"):
        aws_rig.cloud.create_instance(aws_rig.request(root_volume_bytes=10 * GIB))
    assert aws_rig.fake.of("RunInstances") == []


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        ("InsufficientInstanceCapacity", CapacityError),
        ("RequestLimitExceeded", Throttled),
        ("InternalError", Ambiguous),
        ("Unavailable", Ambiguous),
        ("Unsupported", CapacityError),
        ("SpotMaxPriceTooLow", CapacityError),
        ("VcpuLimitExceeded", QuotaError),
        ("MaxSpotInstanceCountExceeded", QuotaError),
        ("UnauthorizedOperation", CredentialsError),
        ("ExpiredToken", CredentialsError),
        ("InvalidParameterValue", Rejected),
        ("InvalidAMIID.NotFound", Rejected),
        ("NeverHeardOf", CloudError),
    ],
)
def test_the_sdk_makes_one_try_whatever_the_answer(aws_rig, code, kind):
    aws_rig.fake.inject("RunInstances", code, times=9)
    with pytest.raises(kind) as refusal:
        aws_rig.cloud.create_instance(aws_rig.request())
    assert type(refusal.value) is kind
    assert code in refusal.value.message
    assert len(aws_rig.fake.of("RunInstances")) == 1
    assert aws_rig.cloud.list_objects() == []


def test_a_lost_answer_is_ambiguous_and_the_same_call_gives_the_machine(aws_rig):
    request = aws_rig.request()
    aws_rig.fake.inject("RunInstances", do="lost")
    with pytest.raises(Ambiguous):
        aws_rig.cloud.create_instance(request)
    (there,) = aws_rig.cloud.find_instances({}, [aws_rig.here])
    assert aws_rig.cloud.create_instance(request).id == there.id
    assert AwsCloud().create_instance(request).id == there.id
    assert len(aws_rig.cloud.find_instances({}, [aws_rig.here])) == 1


def test_a_connection_that_ends_before_the_call_made_nothing(aws_rig):
    aws_rig.fake.inject("RunInstances", do="reset")
    with pytest.raises(Ambiguous):
        aws_rig.cloud.create_instance(aws_rig.request())
    assert aws_rig.cloud.find_instances({}, [aws_rig.here]) == []


def test_equal_requests_are_equal_bytes_in_every_process(aws_rig):
    aws_rig.cloud.create_instance(aws_rig.request())
    tags = dict(reversed(list(aws_rig.request().tags.items())))
    AwsCloud().create_instance(aws_rig.request(tags=tags))
    first, second = aws_rig.fake.of("RunInstances")
    assert first.parameters == second.parameters


def test_a_withdrawn_image_does_not_keep_a_call_from_being_repeated(aws_rig):
    from tests.fakes import aws_rules

    request = aws_rig.request()
    made = aws_rig.cloud.create_instance(request)
    del aws_rules.backend("us-east-1").amis[NEWEST]
    assert AwsCloud().create_instance(request).id == made.id


def test_a_machine_that_does_not_show_yet_is_not_listed(aws_rig):
    aws_rig.fake.rules.visibility_s = 60.0
    request = aws_rig.request()
    made = aws_rig.cloud.create_instance(request)
    assert aws_rig.cloud.get_instance(aws_rig.here, made.id) is None
    assert aws_rig.cloud.find_instances({}, [aws_rig.here]) == []
    assert aws_rig.cloud.create_instance(request).id == made.id


def test_another_markets_word_is_refused(aws_rig):
    with pytest.raises(Rejected, match="flex-start"):
        aws_rig.cloud.create_instance(
            aws_rig.request(placement=replace(aws_rig.here, capacity_type=CapacityType.FLEX_START))
        )
