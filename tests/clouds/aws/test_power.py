"""Stop, start and end on EC2: what markets and states allow, and what is cancelled first."""

from __future__ import annotations

import time
from dataclasses import replace

import pytest

from provisioner.clouds.aws.power import Power
from provisioner.clouds.cloud import InstanceState
from provisioner.errors import Ambiguous, CapacityError, CredentialsError, QuotaError, Rejected, Throttled
from provisioner.vocabulary import CapacityType
from tests.fakes import aws_limits, aws_rules

REGION = "us-east-1"


def state_of(rig, machine):
    return rig.cloud.get_instance(machine.placement, machine.id).state


def test_a_machine_that_was_stopped_and_started_is_as_old_as_before(aws_rig):
    made = aws_rig.running()
    aws_rig.cloud.stop_instance(aws_rig.here, made.id)
    aws_rules.machine(REGION, made.id).launch_time = made.created_at.replace(year=made.created_at.year + 1)
    aws_rig.cloud.start_instance(aws_rig.here, made.id)
    assert aws_rig.cloud.get_instance(aws_rig.here, made.id).created_at == made.created_at


def test_transitions_are_shown_while_they_last(aws_rig):
    aws_rig.fake.rules.boot_s = aws_rig.fake.rules.ending_s = 60.0
    made = aws_rig.running()
    assert state_of(aws_rig, made) is InstanceState.PENDING
    with pytest.raises(Rejected, match="IncorrectInstanceState"):
        aws_rig.cloud.stop_instance(aws_rig.here, made.id)
    aws_rig.cloud.terminate_instance(aws_rig.here, made.id)
    assert state_of(aws_rig, made) is InstanceState.TERMINATING
    aws_rig.cloud.terminate_instance(aws_rig.here, made.id)
    assert len(aws_rig.fake.of("TerminateInstances")) == 1


def test_a_stopping_machine_is_not_started(aws_rig):
    made = aws_rig.running()
    aws_rig.fake.rules.ending_s = 60.0
    assert aws_rig.cloud.stop_instance(aws_rig.here, made.id).state is InstanceState.STOPPING
    with pytest.raises(Rejected, match="only a stopped one can be started"):
        aws_rig.cloud.start_instance(aws_rig.here, made.id)


def test_a_start_without_capacity_leaves_the_machine_stopped_and_is_asked_once(aws_rig):
    made = aws_rig.running()
    aws_rig.cloud.stop_instance(aws_rig.here, made.id)
    aws_rig.fake.inject("StartInstances", "InsufficientInstanceCapacity", times=9)
    with pytest.raises(CapacityError):
        aws_rig.cloud.start_instance(aws_rig.here, made.id)
    assert len(aws_rig.fake.of("StartInstances")) == 1
    assert state_of(aws_rig, made) is InstanceState.STOPPED
    assert len(aws_rig.fake.of("RunInstances")) == 1


def test_a_start_without_quota_names_the_quota(aws_rig):
    made = aws_rig.running()
    aws_rig.cloud.stop_instance(aws_rig.here, made.id)
    aws_rig.fake.inject("StartInstances", "VcpuLimitExceeded", message="your current vCPU limit of 0 allows")
    with pytest.raises(QuotaError, match=r"quota L-DB2E81BA .* need 4 vCPU, have 0"):
        aws_rig.cloud.start_instance(aws_rig.here, made.id)


def test_a_throttled_start_is_tried_again_a_few_times(aws_rig):
    made = aws_rig.running()
    aws_rig.cloud.stop_instance(aws_rig.here, made.id)
    pauses = []
    power = Power(aws_rig.cloud._instances, pauses.append)
    aws_rig.fake.inject("StartInstances", "RequestLimitExceeded", times=2)
    assert power.start(aws_rig.here, made.id).state is InstanceState.PENDING
    assert len(pauses) == 2
    assert pauses == sorted(pauses)
    aws_rig.cloud.stop_instance(aws_rig.here, made.id)
    aws_rig.fake.inject("StartInstances", "RequestLimitExceeded", times=9)
    with pytest.raises(Throttled):
        power.start(aws_rig.here, made.id)
    assert len(pauses) == 5


def test_an_interrupted_spot_machine_is_shown_as_taken_back(aws_rig):
    made = aws_rig.running(placement=aws_rig.spot)
    aws_rules.interrupt(REGION, made.id)
    seen = aws_rig.cloud.get_instance(aws_rig.spot, made.id)
    assert seen.state is InstanceState.INTERRUPTED
    assert seen.state.is_gone
    assert "taken back" in seen.console[0]
    assert aws_rig.cloud.list_objects() == []


def test_e16_a_persistent_spot_machine_stops_and_starts_and_its_request_is_cancelled_before_its_end(aws_rig):
    made = aws_rig.running(placement=aws_rig.spot, stop_on_shutdown=True)
    aws_rig.cloud.stop_instance(aws_rig.spot, made.id)
    assert state_of(aws_rig, made) is InstanceState.STOPPED
    aws_rig.cloud.start_instance(aws_rig.spot, made.id)
    aws_rig.cloud.terminate_instance(aws_rig.spot, made.id)
    order = [call.operation for call in aws_rig.fake.calls]
    assert order.index("CancelSpotInstanceRequests") < order.index("TerminateInstances")
    for _ in range(24):
        aws_limits.pass_time(3600)
        assert [one.id for one in aws_rules.backend(REGION).all_instances() if one._state.name != "terminated"] == []
    assert aws_rig.fake.rules.relaunched == []


def test_e16_a_request_that_cannot_be_cancelled_keeps_its_machine(aws_rig):
    made = aws_rig.running(placement=aws_rig.spot, stop_on_shutdown=True)
    aws_rig.fake.inject("CancelSpotInstanceRequests", "UnauthorizedOperation", times=9)
    with pytest.raises(CredentialsError):
        aws_rig.cloud.terminate_instance(aws_rig.spot, made.id)
    assert aws_rig.fake.of("TerminateInstances") == []


def test_a_persistent_request_that_lost_its_machine_is_listed_and_ended(aws_rig):
    made = aws_rig.running(placement=aws_rig.spot, stop_on_shutdown=True)
    aws_rules.terminate(REGION, made.id)
    (request,) = aws_rig.fake.rules.spot_requests.values()
    request["State"], request["InstanceId"] = "open", None
    (left,) = aws_rig.cloud.list_objects()
    assert (left.kind, left.id, left.price_usd_per_hour) == ("spot-request", request["SpotInstanceRequestId"], None)
    aws_rig.cloud.terminate_instance(aws_rig.spot, left.id)
    assert aws_rig.cloud.list_objects() == []


def test_a_machine_that_a_persistent_request_started_anew_is_listed_and_ended_though_it_has_no_tags(aws_rig):
    made = aws_rig.running(placement=aws_rig.spot, stop_on_shutdown=True)
    aws_rules.terminate(REGION, made.id)
    (request,) = aws_rig.fake.rules.spot_requests.values()
    ghost = request["InstanceId"]
    assert ghost != made.id
    assert aws_rules.machine(REGION, ghost)._state.name == "running"
    (left,) = aws_rig.cloud.list_objects()
    assert (left.kind, left.extra["started"]) == ("spot-request", ghost)
    aws_rig.cloud.terminate_instance(aws_rig.spot, left.id)
    assert aws_rules.machine(REGION, ghost)._state.name == "terminated"
    assert aws_rig.cloud.list_objects() == []
    assert len(aws_rig.fake.rules.relaunched) == 1


def test_the_end_of_a_machine_that_somebody_ended_ends_what_its_request_started(aws_rig):
    made = aws_rig.running(placement=aws_rig.spot, stop_on_shutdown=True)
    aws_rules.terminate(REGION, made.id)
    (request,) = aws_rig.fake.rules.spot_requests.values()
    aws_rig.cloud.terminate_instance(aws_rig.spot, made.id)
    assert request["State"] == "cancelled"
    assert aws_rules.machine(REGION, request["InstanceId"])._state.name == "terminated"


def test_a_machine_started_anew_that_may_not_be_ended_is_named(aws_rig):
    made = aws_rig.running(placement=aws_rig.spot, stop_on_shutdown=True)
    aws_rules.terminate(REGION, made.id)
    (request,) = aws_rig.fake.rules.spot_requests.values()
    aws_rig.fake.inject("TerminateInstances", "UnauthorizedOperation", times=9)
    with pytest.raises(CredentialsError, match=request["InstanceId"]):
        aws_rig.cloud.terminate_instance(aws_rig.spot, made.id)


def test_the_request_of_a_machine_that_does_not_show_yet_is_cancelled_before_its_end(aws_rig):
    aws_rig.fake.rules.visibility_s = 60.0
    made = aws_rig.running(placement=aws_rig.spot, stop_on_shutdown=True)
    aws_rig.cloud.terminate_instance(aws_rig.spot, made.id)
    (request,) = aws_rig.fake.rules.spot_requests.values()
    assert request["State"] == "cancelled"


def test_a_request_whose_machine_does_not_show_yet_is_not_listed_as_one_that_lost_it(aws_rig):
    aws_rig.running(placement=aws_rig.spot, stop_on_shutdown=True)
    assert [entry.kind for entry in aws_rig.cloud.list_objects()] == ["instance", "volume", "ip"]
    for one in aws_rules.backend(REGION).all_instances():
        one.visible_at = time.monotonic() + 60
    assert not [entry for entry in aws_rig.cloud.list_objects() if entry.kind == "spot-request"]


def test_a_machine_that_was_taken_back_and_stopped_waits_for_its_pool(aws_rig):
    made = aws_rig.running(placement=aws_rig.spot, stop_on_shutdown=True)
    aws_rules.interrupt_and_stop(REGION, made.id)
    assert state_of(aws_rig, made) is InstanceState.STOPPED
    with pytest.raises(CapacityError, match="EC2 itself starts it again") as refusal:
        aws_rig.cloud.start_instance(aws_rig.spot, made.id)
    assert refusal.value.exit_code == 7
    assert state_of(aws_rig, made) is InstanceState.STOPPED


def test_a_capacity_block_machine_is_not_stopped(aws_rig):
    place = replace(aws_rig.here, instance_type="p5.48xlarge", capacity_type=CapacityType.CAPACITY_BLOCK)
    aws_rig.fake.rules.reservations.append(
        {
            "CapacityReservationId": "cr-1",
            "InstanceType": "p5.48xlarge",
            "ReservationType": "capacity-block",
            "State": "active",
            "AvailabilityZoneId": place.zone,
            "TotalInstanceCount": 1,
            "region": REGION,
        }
    )
    made = aws_rig.running(placement=place, image="ami-0d1a000000000001")
    with pytest.raises(Rejected, match="cannot be stopped"):
        aws_rig.cloud.stop_instance(place, made.id)


def test_a_protected_machine_is_named_and_kept(aws_rig):
    made = aws_rig.running()
    aws_rules.machine(REGION, made.id).disable_api_termination = True
    with pytest.raises(Rejected, match="OperationNotPermitted") as refusal:
        aws_rig.cloud.terminate_instance(aws_rig.here, made.id)
    assert "protect" in refusal.value.remedy
    assert state_of(aws_rig, made) is InstanceState.RUNNING


def test_a_lost_answer_to_an_end_is_not_taken_for_an_end(aws_rig):
    made = aws_rig.running()
    aws_rig.fake.inject("TerminateInstances", do="reset", times=9)
    with pytest.raises(Ambiguous):
        aws_rig.cloud.terminate_instance(aws_rig.here, made.id)
    assert state_of(aws_rig, made) is InstanceState.RUNNING
