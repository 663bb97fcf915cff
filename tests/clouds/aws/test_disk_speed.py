"""Speeds of gp3 disks on EC2: in the create calls, echoed, changed in place by one call, and never a diff for ever."""

from __future__ import annotations

import pytest

from provisioner.errors import Rejected
from provisioner.units import GIB, DiskSpeed
from tests.clouds.aws.test_launches import DATA, AwsEngine
from tests.fakes import aws_rules
from tests.fakes.mini_engine import program

FAST, FASTER = {"iops": 4000, "throughput": 1000}, {"iops": 8000, "throughput": 2000}


@pytest.fixture
def mini(aws_rig, home):
    return AwsEngine(aws_rig.cloud, home)


def speeds():
    """Of all disks in the account: root first."""
    found = sorted(aws_rules.backend("us-east-1").volumes.values(), key=lambda one: one.size)
    return [(one.iops, one.throughput) for one in found]


def test_speeds_are_part_of_the_create_calls_and_a_second_up_changes_nothing(mini, aws_rig):
    wanted = program(disks={"data": 500 * GIB}, rootSpeed=FAST, speed=FASTER)
    mini.up(wanted)
    (call,) = aws_rig.fake.of("RunInstances")
    assert call.parameters["BlockDeviceMapping.1.Ebs.Iops"] == "4000"
    assert call.parameters["BlockDeviceMapping.1.Ebs.Throughput"] == "1000"
    (made,) = aws_rig.fake.of("CreateVolume")
    assert (made.parameters["Iops"], made.parameters["Throughput"]) == ("8000", "2000")
    assert speeds() == [(4000, 1000), (8000, 2000)]
    assert {step for _, step in mini.up(wanted)} <= {"same", "update"}
    for _ in range(2):
        assert {step for _, step in mini.up(wanted)} == {"same"}
    assert mini.outputs("gpu")["rootSpeed"] == FAST
    assert mini.outputs("data")["speed"] == FASTER
    assert aws_rig.fake.of("ModifyVolume") == []


def test_without_speeds_nothing_is_said_and_nothing_changes(mini, aws_rig):
    for _ in range(3):
        steps = mini.up(program(disks=DATA))
    assert {step for _, step in steps} == {"same"}
    (call,) = aws_rig.fake.of("RunInstances")
    assert not any("Iops" in key or "Throughput" in key for key in call.parameters)
    assert "speed" not in mini.outputs("data")
    assert speeds() == [(3000, 125), (3000, 125)]


def test_speeds_change_in_place_and_go_back_to_what_is_included(mini, aws_rig):
    mini.up(program(disks={"data": 500 * GIB}))
    machine = mini.outputs("gpu")["instanceId"]
    for root, data, expected in (
        (FAST, None, [(4000, 1000), (3000, 125)]),
        (FAST, FASTER, [(4000, 1000), (8000, 2000)]),
        (FASTER, FASTER, [(8000, 2000), (8000, 2000)]),
        (None, None, [(3000, 125), (3000, 125)]),
    ):
        more = {key: speed for key, speed in (("rootSpeed", root), ("speed", data)) if speed is not None}
        before = len(aws_rig.fake.of("ModifyVolume"))
        mini.up(program(disks={"data": 500 * GIB}, **more))
        assert speeds() == expected
        assert 1 <= len(aws_rig.fake.of("ModifyVolume")) - before <= 2
        assert {step for _, step in mini.up(program(disks={"data": 500 * GIB}, **more))} == {"same"}
    assert mini.outputs("gpu")["instanceId"] == machine
    assert len(aws_rig.fake.of("RunInstances")) == 1


def test_a_disk_that_grows_and_gets_faster_is_changed_by_one_call(mini, aws_rig):
    """EC2 takes no second change of a disk before the first is through."""
    aws_rig.fake.rules.modifying_s = 60.0
    mini.up(program(disks={"data": 100 * GIB}))
    mini.up(program(disks={"data": 500 * GIB}, speed=FASTER))
    (call,) = aws_rig.fake.of("ModifyVolume")
    sent = {key: call.parameters[key] for key in ("Size", "Iops", "Throughput")}
    assert sent == {"Size": "500", "Iops": "8000", "Throughput": "2000"}
    mini.up(program(disks={"data": 500 * GIB}, speed=FASTER))
    with pytest.raises(Exception, match="already being modified"):
        mini.up(program(disks={"data": 500 * GIB}, speed=FAST))


def test_a_speed_that_somebody_changed_is_drift_and_is_put_back(mini):
    wanted = program(disks={"data": 500 * GIB}, speed=FASTER)
    mini.up(wanted)
    mini.up(wanted)
    volume = next(one for one in aws_rules.backend("us-east-1").volumes.values() if one.size == 500)
    volume.iops, volume.throughput = 16_000, 1000
    mini.refresh()
    assert mini.outputs("data")["speed"] == {"iops": 16_000, "throughput": 1000}
    assert ("data", "update") in mini.up(wanted)
    assert (volume.iops, volume.throughput) == (8000, 2000)
    assert {step for _, step in mini.up(wanted)} == {"same"}


@pytest.mark.parametrize(
    ("speed", "reason"),
    [
        (DiskSpeed(80_001, 125), "80001 IOPS are out of range"),
        (DiskSpeed(3000, 800), "800 MiB/s need 3200 IOPS"),
        (DiskSpeed(9000, 2001), "2001 MiB/s are out of range"),
    ],
)
def test_a_speed_that_no_disk_has_is_refused_before_any_call(aws_rig, speed, reason):
    for ask in (
        lambda: aws_rig.cloud.create_volume(aws_rig.volume(speed=speed)),
        lambda: aws_rig.cloud.create_instance(aws_rig.request(root_speed=speed)),
    ):
        with pytest.raises(Rejected, match=reason):
            ask()
    assert aws_rig.fake.of("CreateVolume") == aws_rig.fake.of("RunInstances") == []
