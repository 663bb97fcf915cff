"""Capacity that was bought ahead: which block or reservation a machine goes into, and why not another."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from provisioner.clouds.aws.cloud import AwsCloud
from provisioner.errors import CapacityError, Rejected
from provisioner.vocabulary import CapacityType
from stacks.preflight import refusal
from stacks.provider.session import ProviderFailure
from tests.clouds.aws.test_launches import AwsEngine, living
from tests.clouds.conftest import read_catalog_once
from tests.fakes.mini_engine import offer, program

KIND = "p5.48xlarge"
TARGET = "CapacityReservationSpecification.CapacityReservationTarget.CapacityReservationId"
PREFERENCE = "CapacityReservationSpecification.CapacityReservationPreference"


def block(number, zone, places, **changes):
    return {
        "CapacityReservationId": f"cr-{number:017x}",
        "InstanceType": KIND,
        "ReservationType": "capacity-block",
        "State": "active",
        "AvailabilityZoneId": zone,
        "TotalInstanceCount": places,
        "region": "us-east-1",
        **changes,
    }


def reservation(number, zone, places, criteria="open", **changes):
    return block(
        number, zone, places, ReservationType="default", InstanceType="g6.xlarge", InstanceMatchCriteria=criteria
    ) | dict(changes)


def hours(count):
    return datetime.now(UTC) + timedelta(hours=count)


@pytest.fixture
def place(aws_rig):
    return replace(aws_rig.here, instance_type=KIND, capacity_type=CapacityType.CAPACITY_BLOCK)


@pytest.fixture
def request_of(aws_rig, place):
    image = aws_rig.cloud.resolve_image(aws_rig.here)
    return lambda number, **changes: aws_rig.request(f"token-{number}", placement=place, image=image, **changes)


def targets(rig):
    """Of the calls that had an effect."""
    return [call.parameters.get(TARGET) for call in rig.fake.of("RunInstances")]


def blocks_of_c17(zone):
    return [block(1, zone, 1), block(2, zone, 3), block(3, "use1-az6", 9)]


def test_c17_two_blocks_of_one_and_three_hold_four_machines(aws_rig, place, request_of):
    first, second, _ = aws_rig.fake.rules.reservations = blocks_of_c17(place.zone)
    made = [aws_rig.cloud.create_instance(request_of(number)) for number in range(4)]
    assert {one.placement for one in made} == {place}
    assert targets(aws_rig) == [first["CapacityReservationId"], *[second["CapacityReservationId"]] * 3]
    again = aws_rig.cloud.create_instance(request_of(0))
    assert again.id == made[0].id
    with pytest.raises(CapacityError) as full:
        aws_rig.cloud.create_instance(request_of(9))
    for text in ("0001 is full (1 in use)", "0002 is full (3 in use)", "0003 is in use1-az6"):
        assert text in full.value.message
    assert len(aws_rig.fake.of("RunInstances")) == 5


def test_c17_machines_of_several_processes_at_once_share_the_blocks(aws_rig, place, request_of):
    """Each process reads the blocks before any of them calls, so that all but one choose a block that is full by then."""
    aws_rig.fake.rules.reservations = blocks_of_c17(place.zone)
    clouds = [AwsCloud(catalog=read_catalog_once) for _ in range(4)]
    shown = clouds[0]._instances.reservations.targets(place)
    with pytest.MonkeyPatch.context() as patch, ThreadPoolExecutor(4) as pool:
        patch.setattr("provisioner.clouds.aws.reservations.Reservations.targets", lambda *_: list(shown))
        made = list(pool.map(lambda n: clouds[n].create_instance(request_of(n)), range(4)))
    assert len({one.id for one in made}) == 4
    used = [one.capacity_reservation_id for one in living()]
    assert sorted(used.count(name) for name in set(used)) == [1, 3]


def test_c17_four_stacks_are_placed_and_a_fifth_is_told_why_not(aws_rig, home, place):
    aws_rig.fake.rules.reservations = blocks_of_c17(place.zone)
    pinned = {"name": "chat", "task": "serve", "aws": {"image": aws_rig.cloud.resolve_image(aws_rig.here)}}
    wanted = program(workload=pinned, offers=[offer(place.zone, kind=KIND, capacity="capacity-block")])
    engines = [AwsEngine(aws_rig.cloud, home / str(number)) for number in range(5)]
    for engine in engines[:4]:
        engine.up(wanted)
        assert {step for _, step in engine.up(wanted)} == {"same"}
    assert len(living()) == 4
    with pytest.raises(ProviderFailure) as failure:
        engines[4].up(wanted)
    assert type(failure.value.cause) is CapacityError
    assert "is full" in failure.value.attempts[0].message
    assert len(living()) == 4
    assert {one.lifecycle for one in living()} == {"capacity-block"}


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        (
            {"State": "scheduled", "StartDate": datetime(2031, 5, 6, 11, 30, tzinfo=UTC)},
            "starts at 2031-05-06 11:30 UTC",
        ),
        ({"State": "payment-pending", "StartDate": datetime(2031, 5, 6, 11, 30, tzinfo=UTC)}, "is not paid yet"),
        ({"StartDate": datetime(2031, 5, 6, 11, 30, tzinfo=UTC)}, "starts at 2031-05-06 11:30 UTC"),
        (
            {"State": "expired", "EndDate": datetime(2026, 1, 2, 11, 30, tzinfo=UTC)},
            "is expired since 2026-01-02 11:30 UTC",
        ),
        ({"EndDate": datetime(2026, 1, 2, 11, 30, tzinfo=UTC)}, "ended at 2026-01-02 11:30 UTC"),
        ({"State": "cancelled"}, "is cancelled"),
        ({"State": "unavailable"}, "is unavailable"),
        ({"TotalInstanceCount": 0}, "is full"),
    ],
)
def test_c17_a_block_that_cannot_be_used_is_skipped_with_its_reason(aws_rig, place, request_of, changes, reason):
    unusable, good = block(1, place.zone, 2, **changes), block(2, place.zone, 1)
    aws_rig.fake.rules.reservations = [unusable]
    with pytest.raises(CapacityError) as refused:
        aws_rig.cloud.create_instance(request_of(1))
    assert f"{unusable['CapacityReservationId']} {reason}" in refused.value.message
    starts = "StartDate" in changes and changes.get("State") in ("scheduled", "payment-pending")
    assert ("from 2031-05-06 11:30 UTC on" in refused.value.remedy) is starts
    assert aws_rig.fake.of("RunInstances") == []
    aws_rig.fake.rules.reservations = [unusable, good]
    aws_rig.cloud.create_instance(request_of(1))
    assert targets(aws_rig) == [good["CapacityReservationId"]]


def test_c17_a_block_that_is_about_to_end_takes_no_new_machine(aws_rig, place, request_of):
    aws_rig.fake.rules.reservations = [
        block(1, place.zone, 2, EndDate=hours(0.4)),
        block(2, place.zone, 1, EndDate=hours(9)),
    ]
    aws_rig.cloud.create_instance(request_of(1))
    assert targets(aws_rig) == [f"cr-{2:017x}"]
    with pytest.raises(CapacityError, match="takes its machines away 30 min before"):
        aws_rig.cloud.create_instance(request_of(2))


def test_c17_the_block_that_ends_first_is_filled_first(aws_rig, place, request_of):
    aws_rig.fake.rules.reservations = [
        block(1, place.zone, 1, EndDate=hours(90)),
        block(2, place.zone, 1, EndDate=hours(9)),
    ]
    for number in (1, 2):
        aws_rig.cloud.create_instance(request_of(number))
    assert targets(aws_rig) == [f"cr-{2:017x}", f"cr-{1:017x}"]


def test_c17_a_full_block_is_never_left_for_capacity_that_is_paid_on_demand(aws_rig, home, place):
    aws_rig.fake.rules.reservations = [block(1, place.zone, 0)]
    pinned = {"name": "chat", "task": "serve", "aws": {"image": aws_rig.cloud.resolve_image(aws_rig.here)}}
    engine = AwsEngine(aws_rig.cloud, home)
    with pytest.raises(ProviderFailure):
        engine.up(program(workload=pinned, offers=[offer(place.zone, kind=KIND, capacity="capacity-block")]))
    assert aws_rig.fake.of("RunInstances") == []
    assert living() == []


def test_c17_a_block_in_the_future_is_said_before_anything_is_made(aws_rig, place):
    start = datetime(2031, 5, 6, 11, 30, tzinfo=UTC)
    aws_rig.fake.rules.reservations = [block(1, place.zone, 2, State="scheduled", StartDate=start)]
    found = aws_rig.cloud.preflight((place,), 100 * 2**30)
    refused = refusal(found, (place,))
    assert type(refused) is CapacityError
    assert "starts at 2031-05-06 11:30 UTC" in refused.message
    with pytest.raises(CapacityError, match="starts at 2031-05-06"):
        aws_rig.cloud.check_room(place)


def test_the_place_of_a_machine_that_ends_counts_as_free(aws_rig, place, request_of):
    aws_rig.fake.rules.reservations = [block(1, place.zone, 1)]
    made = aws_rig.cloud.create_instance(request_of(1))
    with pytest.raises(CapacityError, match="is full"):
        aws_rig.cloud.check_room(place)
    aws_rig.cloud.check_room(place, ending=made.id)


def test_reserved_capacity_is_asked_for_and_never_paid_on_demand(aws_rig):
    reserved = replace(aws_rig.here, capacity_type=CapacityType.RESERVED)
    with pytest.raises(CapacityError, match="the account has none of this type"):
        aws_rig.cloud.create_instance(aws_rig.request(placement=reserved))
    assert aws_rig.fake.of("RunInstances") == []
    aws_rig.fake.rules.reservations = [reservation(1, reserved.zone, 1)]
    made = aws_rig.cloud.create_instance(aws_rig.request(placement=reserved))
    (call,) = aws_rig.fake.of("RunInstances")
    assert call.parameters[PREFERENCE] == "capacity-reservations-only"
    assert TARGET not in call.parameters
    assert made.placement == reserved
    assert aws_rig.cloud.create_instance(aws_rig.request(placement=reserved)).id == made.id


def test_c17_targeted_reservations_are_named_one_after_the_other(aws_rig):
    reserved = replace(aws_rig.here, capacity_type=CapacityType.RESERVED)
    aws_rig.fake.rules.reservations = [
        reservation(1, reserved.zone, 1, "targeted"),
        reservation(2, reserved.zone, 1, "targeted"),
        reservation(3, "use1-az6", 5),
    ]
    made = [aws_rig.cloud.create_instance(aws_rig.request(f"token-{n}", placement=reserved)) for n in range(2)]
    assert targets(aws_rig) == [f"cr-{1:017x}", f"cr-{2:017x}"]
    assert {one.placement for one in made} == {reserved}
    assert aws_rig.cloud.create_instance(aws_rig.request("token-0", placement=reserved)).id == made[0].id
    with pytest.raises(CapacityError, match="is full"):
        aws_rig.cloud.create_instance(aws_rig.request("token-2", placement=reserved))


def test_other_refusals_of_a_block_stop_at_once(aws_rig, place, request_of):
    aws_rig.fake.rules.reservations = blocks_of_c17(place.zone)
    for code, kind in (("InvalidParameterValue", Rejected), ("InsufficientInstanceCapacity", CapacityError)):
        before = len(aws_rig.fake.of("RunInstances"))
        aws_rig.fake.inject("RunInstances", code)
        with pytest.raises(kind):
            aws_rig.cloud.create_instance(request_of(code))
        assert len(aws_rig.fake.of("RunInstances")) == before + 1
