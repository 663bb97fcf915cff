"""How machines on EC2 are: status checks and announced events, as drift that is told and never acted on."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime

import pytest

from provisioner.clouds.aws.cloud import AwsCloud
from tests.clouds.aws.test_launches import AwsEngine, living
from tests.fakes.mini_engine import program

RETIRES = datetime(2026, 12, 5, 9, 30, tzinfo=UTC)
RETIREMENT = {
    "Code": "instance-retirement",
    "Description": "The instance is running on degraded hardware",
    "NotBefore": RETIRES,
}


@pytest.fixture
def mini(aws_rig, home):
    return AwsEngine(aws_rig.cloud, home)


@pytest.mark.parametrize(
    ("said", "kinds"),
    [
        ({}, []),
        ({"SystemStatus": "impaired"}, ["system-check"]),
        ({"SystemStatus": "impaired", "InstanceStatus": "impaired"}, ["system-check", "instance-check"]),
        ({"AttachedEbsStatus": "impaired"}, ["disk-check"]),
        ({"SystemStatus": "initializing", "InstanceStatus": "insufficient-data"}, []),
        ({"Events": [RETIREMENT]}, ["instance-retirement"]),
        (
            {
                "Events": [
                    {**RETIREMENT, "Description": "[Completed] over"},
                    {**RETIREMENT, "Description": "[Canceled] no"},
                ]
            },
            [],
        ),
    ],
)
def test_checks_and_events_are_read(aws_rig, said, kinds):
    machine = aws_rig.running()
    aws_rig.fake.rules.health[machine.id] = said
    health = aws_rig.cloud.read_health(aws_rig.here, machine.id)
    assert [one.kind for one in health.ailments] == kinds
    assert health.unknown is None
    assert all(one.remedy for one in health.ailments)
    if "instance-retirement" in kinds:
        assert "from 2026-12-05 09:30 UTC on (The instance is running on degraded hardware)" in health.ailments[0].text


def test_an_impaired_machine_is_drift_and_is_left_alone(mini, aws_rig):
    mini.up(program())
    mini.refresh()
    machine = mini.outputs("gpu")["instanceId"]
    assert mini.outputs("gpu")["health"] == "ok"
    aws_rig.fake.rules.health[machine] = {"SystemStatus": "impaired"}
    mini.refresh()
    assert "the host's status check fails" in mini.outputs("gpu")["health"]
    assert "stop and start it" in mini.outputs("gpu")["health"]
    assert {step for _, step in mini.up(program())} == {"same"}
    assert [one.id for one in living()] == [machine]
    aws_rig.fake.rules.health.clear()
    mini.refresh()
    assert mini.outputs("gpu")["health"] == "ok"


def test_without_the_right_it_is_unknown_and_warned_of_once(mini, aws_rig):
    mini.up(program())
    mini.refresh()
    warned = []
    mini.session = replace(mini.session, warn=lambda _urn, text: warned.append(text))
    aws_rig.fake.inject("DescribeInstanceStatus", "UnauthorizedOperation", times=99)
    mini.refresh()
    assert mini.outputs("gpu").get("health") is None
    (text,) = warned
    assert "is impaired is not known" in text
    assert "UnauthorizedOperation" in text
    assert {step for _, step in mini.up(program())} == {"same"}


def test_a_stopped_machine_is_not_asked_about(mini, aws_rig):
    mini.up(program(power="stopped"))
    aws_rig.fake.calls.clear()
    mini.refresh()
    assert aws_rig.fake.of("DescribeInstanceStatus") == []
    assert mini.outputs("gpu").get("health") is None


def test_a_machine_that_ended_a_moment_ago_is_unknown_and_no_error(aws_rig):
    assert AwsCloud().read_health(aws_rig.here, "i-0ffffffffffffffff").unknown is not None
