"""Lists over all regions: whole or an error, ours only, priced by the catalog."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from provisioner import tags as tag_keys
from provisioner.clouds.aws.cloud import AwsCloud
from provisioner.errors import Ambiguous, CredentialsError, NotFound, Rejected
from provisioner.reaper.decision import decide
from provisioner.reaper.evidence import Evidence
from provisioner.tags import parse_time
from provisioner.units import GIB
from stacks.reaping import read_machine
from tests.fakes import aws_rules

WEST = "us-west-2"


def west(rig):
    return replace(rig.here, region=WEST, zone="usw2-az1")


def test_all_enabled_regions_are_listed(aws_rig):
    here = aws_rig.running()
    there = aws_rig.running("token-2", placement=west(aws_rig))
    machines = [entry for entry in aws_rig.cloud.list_objects() if entry.kind == "instance"]
    assert {(entry.region, entry.id) for entry in machines} == {("us-east-1", here.id), (WEST, there.id)}
    asked = {call.region for call in aws_rig.fake.of("DescribeVolumes")}
    assert asked == set(aws_rules.REGIONS)


@pytest.mark.parametrize("operation", ["DescribeInstances", "DescribeVolumes", "DescribeSecurityGroups"])
def test_a_region_that_does_not_answer_is_an_error_that_names_it(aws_rig, operation):
    aws_rig.running()
    aws_rig.fake.inject(operation, "UnauthorizedOperation", times=99, region=WEST)
    with pytest.raises(CredentialsError, match=f"{WEST} could not be listed"):
        aws_rig.cloud.list_objects()


def test_a_second_page_that_fails_fails_the_list(aws_rig):
    aws_rig.fake.inject("DescribeInstances", do="reset", times=99, region=WEST)
    with pytest.raises(Ambiguous, match=WEST):
        aws_rig.cloud.find_instances({}, [aws_rig.here, west(aws_rig)])


def test_what_is_not_ours_is_never_shown(aws_rig):
    foreign = {"Name": "demo-instance-0123456789", "gpuprov:stack": "chat"}
    aws_rig.cloud.create_instance(aws_rig.request(tags=foreign))
    assert aws_rig.cloud.find_instances({}, [aws_rig.here]) == []
    assert aws_rig.cloud.list_objects() == []


def test_regions_that_nothing_can_start_in_hold_nothing(aws_rig):
    closed = replace(aws_rig.here, region=aws_rules.CLOSED_REGION, zone=None)
    assert aws_rig.cloud.find_instances({}, [closed]) == []
    with pytest.raises(Rejected, match="does not exist or is not enabled"):
        aws_rig.cloud.resolve_image(closed)
    assert {call.region for call in aws_rig.fake.calls} <= {"us-east-1"}


def test_a_stopped_machine_costs_its_disks(aws_rig):
    made = aws_rig.running()
    aws_rig.cloud.stop_instance(aws_rig.here, made.id)
    prices = {entry.extra.get("role", entry.kind): entry.price_usd_per_hour for entry in aws_rig.cloud.list_objects()}
    assert prices["instance"] == "0"
    assert float(prices["root"]) > 0


def test_a_root_disk_that_its_machine_left_behind_stands_for_itself(aws_rig):
    made = aws_rig.running()
    aws_rules.machine("us-east-1", made.id).block_device_mapping["/dev/sda1"].delete_on_termination = False
    aws_rules.terminate("us-east-1", made.id)
    (left,) = aws_rig.cloud.list_objects()
    assert (left.kind, left.state) == ("volume", "available")
    assert "instance" not in left.extra
    aws_rig.cloud.delete_volume(aws_rig.here, left.id)
    assert aws_rig.cloud.list_objects() == []


def test_values_with_wildcards_match_only_themselves(aws_rig):
    tags = {**aws_rig.request().tags, "gpuprov:resource": "a*c?"}
    made = aws_rig.cloud.create_instance(aws_rig.request(tags=tags))
    aws_rig.cloud.create_instance(aws_rig.request("token-2", tags={**tags, "gpuprov:resource": "abcd"}))
    found = aws_rig.cloud.find_instances({"gpuprov:resource": "a*c?"}, [aws_rig.here])
    assert [machine.id for machine in found] == [made.id]


def test_a_users_own_name_is_kept_beside_ours(aws_rig):
    tags = {**aws_rig.request().tags, "Name": "chat of ana"}
    made = aws_rig.cloud.create_instance(aws_rig.request(tags=tags))
    assert (made.name, made.tags) == ("machine-token-1", tags)
    plain = aws_rig.cloud.create_instance(aws_rig.request("token-2"))
    aws_rig.cloud.set_tags(aws_rig.here, plain.id, {"Name": "renamed"})
    seen = aws_rig.cloud.get_instance(aws_rig.here, plain.id)
    assert (seen.name, seen.tags["Name"]) == ("machine-token-2", "renamed")
    aws_rig.cloud.set_tags(aws_rig.here, plain.id, {"Name": "renamed again"})
    seen = aws_rig.cloud.get_instance(aws_rig.here, plain.id)
    assert (seen.name, seen.tags["Name"]) == ("machine-token-2", "renamed again")


def test_who_we_are(aws_rig):
    assert "account 123456789012, 3 regions enabled" in aws_rig.cloud.identity()


def test_an_opened_cloud_asks_nothing_until_it_must(aws_rig):
    AwsCloud()
    assert aws_rig.fake.calls == []


def test_disks_are_encrypted_whole_gib_and_wait_until_they_are_made(aws_rig):
    made = aws_rig.cloud.create_volume(aws_rig.volume(size_bytes=50 * GIB + 1))
    (call,) = aws_rig.fake.of("CreateVolume")
    assert call.parameters["Encrypted"] == "true"
    assert call.parameters["VolumeType"] == "gp3"
    assert call.parameters["ClientToken"] == "volume-1"
    assert made.size_bytes == 51 * GIB
    with pytest.raises(Rejected):
        aws_rig.cloud.create_volume(aws_rig.volume("volume-2", size_bytes=0))
    with pytest.raises(NotFound):
        aws_rig.cloud.grow_volume(aws_rig.here, "vol-0ffffffffffffffff", 60 * GIB)


def test_a_disk_that_could_not_be_made_is_told_and_not_attached(aws_rig, monkeypatch):
    machine, disk = aws_rig.running(), aws_rig.cloud.create_volume(aws_rig.volume())
    made = type(aws_rules.backend("us-east-1").volumes[disk.id])
    monkeypatch.setattr(made, "status", property(lambda _: "error"))
    with pytest.raises(Rejected, match=r"could not make .*aws.kms_key"):
        aws_rig.cloud.attach_volume(aws_rig.here, machine.id, disk.id)
    assert aws_rig.fake.of("AttachVolume") == []
    aws_rig.cloud.delete_volume(aws_rig.here, disk.id)


def test_a_survey_tells_the_regions_that_do_not_answer(aws_rig):
    aws_rig.running()
    aws_rig.fake.inject("DescribeInstances", "UnauthorizedOperation", region="eu-west-1", times=9)
    seen = aws_rig.cloud.survey()
    assert {entry.region for entry in seen.objects} == {"us-east-1"}
    assert list(seen.unlisted) == ["eu-west-1"]
    assert isinstance(seen.unlisted["eu-west-1"], CredentialsError)


def test_a_stopped_machine_says_since_when(aws_rig):
    made = aws_rig.running()
    aws_rig.cloud.stop_instance(aws_rig.here, made.id)
    (machine,) = [entry for entry in aws_rig.cloud.list_objects() if entry.kind == "instance"]
    assert abs((aws_rig.cloud.now() - parse_time(machine.extra["stopped_at"])).total_seconds()) < 120


def test_a_spot_machine_tells_whether_its_request_allows_a_stop(aws_rig):
    once = aws_rig.running(placement=aws_rig.spot)
    kept = aws_rig.running(placement=aws_rig.spot, stop_on_shutdown=True, token="another", name="another")
    bought = aws_rig.running(token="third", name="third")
    told = {
        entry.id: entry.extra.get("spot_request") for entry in aws_rig.cloud.list_objects() if entry.kind == "instance"
    }
    assert told == {once.id: "one-time", kept.id: "persistent", bought.id: None}
    aws_rig.cloud.stop_instance(aws_rig.spot, kept.id)
    (entry,) = [entry for entry in aws_rig.cloud.list_objects() if entry.id == kept.id]
    assert (entry.state, entry.extra["spot_request"]) == ("stopped", "persistent")


def test_a_machine_whose_request_somebody_has_cancelled_says_so_and_is_not_asked_to_stop(aws_rig):
    made = aws_rig.running(placement=aws_rig.spot, stop_on_shutdown=True)
    (request,) = aws_rig.fake.rules.spot_requests.values()
    request["State"] = "cancelled"
    (entry,) = [entry for entry in aws_rig.cloud.list_objects() if entry.kind == "instance"]
    assert (entry.state, entry.extra["spot_request"]) == ("running", "cancelled")
    with pytest.raises(Rejected, match="its spot request is cancelled, so it can only be ended"):
        aws_rig.cloud.stop_instance(aws_rig.spot, made.id)
    assert aws_rig.fake.of("StopInstances") == []


def test_an_idle_spot_machine_is_stopped_only_where_its_own_request_allows_it(aws_rig):
    marks = {**aws_rig.request().tags, tag_keys.IDLE_AFTER: "30m", tag_keys.IDLE_THEN: "stop"}
    once = aws_rig.running(placement=aws_rig.spot, tags=marks)
    kept = aws_rig.running(placement=aws_rig.spot, stop_on_shutdown=True, token="another", name="another", tags=marks)
    listed = {entry.id: entry for entry in aws_rig.cloud.list_objects() if entry.kind == "instance"}
    idle = Evidence("idle", timedelta(hours=20), "quiet")
    how = {id_: decide(read_machine(entry), idle, entry.created_at).ending.how for id_, entry in listed.items()}
    assert how == {once.id: "terminate", kept.id: "stop"}
