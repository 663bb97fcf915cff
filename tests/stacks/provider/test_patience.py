from __future__ import annotations

import pytest

from provisioner.clouds.cloud import Placement
from provisioner.errors import (
    Ambiguous,
    Cancelled,
    CapacityError,
    CloudError,
    CredentialsError,
    GpuprovError,
    QuotaError,
    Throttled,
    TokenSpent,
)
from provisioner.vocabulary import CapacityType
from stacks.provider.patience import PATIENCE_S, TRIES, PatientCloud
from tests.fakes.cloud import CallRecord, Clock, ClockedLifeline, FakeCloud

PLACE = Placement("aws", "us-east-1", "a", "g6.xlarge", CapacityType.SPOT)


def ask(*errors: GpuprovError) -> tuple[FakeCloud, PatientCloud]:
    clock = Clock()
    cloud = FakeCloud(clock=clock)
    cloud.errors["start_instance"].extend((False, error) for error in errors)
    return cloud, PatientCloud(cloud, ClockedLifeline(clock))


@pytest.mark.parametrize("error", [Ambiguous("lost"), Throttled("slow down")])
def test_the_same_call_goes_out_again(error: GpuprovError) -> None:
    cloud, patient = ask(*[error] * (TRIES - 1), CapacityError("full"))
    before = cloud.clock.now
    with pytest.raises(CapacityError):
        patient.start_instance(PLACE, "i-1")
    assert cloud.count("start_instance") == TRIES
    assert 3 < (cloud.clock.now - before).total_seconds() < 30


def test_it_gives_up_with_what_is_true() -> None:
    for errors, raised in (
        ([Throttled("t")] * TRIES, Throttled),
        ([Ambiguous("a")] * TRIES, Ambiguous),
        ([Ambiguous("a"), *[Throttled("t")] * TRIES], Ambiguous),
        ([Ambiguous("a"), CredentialsError("c")], Ambiguous),
        ([CredentialsError("c")], CredentialsError),
    ):
        with pytest.raises(raised):
            ask(*errors)[1].start_instance(PLACE, "i-1")


def test_nothing_is_made_after_the_end_and_reading_still_works() -> None:
    cloud, patient = ask()
    patient.lifeline.close("the engine is gone")
    with pytest.raises(Cancelled):
        patient.start_instance(PLACE, "i-1")
    with pytest.raises(Cancelled):
        patient.ensure_security_group(PLACE, {"a": "b"}, (), ())
    assert cloud.calls == []
    assert patient.find_instances({}, [PLACE]) == []
    patient.terminate_instance(PLACE, "i-1")


def test_an_end_in_the_middle_stops_the_tries() -> None:
    cloud, patient = ask(Throttled("t"), Throttled("t"))
    cloud.on_call = lambda _: patient.lifeline.close("the engine is gone")
    with pytest.raises(Cancelled):
        patient.start_instance(PLACE, "i-1")
    assert cloud.count("start_instance") == 1


@pytest.mark.parametrize("error", [CapacityError("full"), QuotaError("used up"), TokenSpent("spent")])
def test_a_refusal_of_a_reading_is_none_of_the_offer(error: GpuprovError) -> None:
    cloud, patient = ask()
    reads = {
        "find_instances": lambda: patient.find_instances({}, [PLACE]),
        "get_instance": lambda: patient.get_instance(PLACE, "i-1"),
        "find_volumes": lambda: patient.find_volumes({}, [PLACE]),
        "list_objects": patient.list_objects,
    }
    for operation, read in reads.items():
        cloud.errors[operation].append((False, error))
        with pytest.raises(CloudError, match=error.message) as told:
            read()
        assert not isinstance(told.value, (CapacityError, QuotaError, TokenSpent))


@pytest.mark.parametrize(("takes_s", "tries"), [(0.0, TRIES), (25.0, 3), (60.0, 1), (600.0, 1)])
def test_a_reading_that_takes_long_is_not_asked_again_and_again(takes_s: float, tries: int) -> None:
    """The longest time of one answer is the cloud's own to keep: times do not multiply."""
    clock = Clock()
    cloud = FakeCloud(clock=clock)
    passed = [0.0]

    def hang(_call: CallRecord) -> None:
        passed[0] += takes_s

    cloud.on_call = hang
    patient = PatientCloud(cloud, ClockedLifeline(clock), clock_s=lambda: passed[0])
    for error in (Ambiguous("lost"), Throttled("slow down")):
        passed[0] = 0.0
        cloud.errors["get_instance"].extend([(False, error)] * TRIES)
        before = cloud.count("get_instance")
        with pytest.raises(type(error)):
            patient.get_instance(PLACE, "i-1")
        assert cloud.count("get_instance") - before == tries
        assert passed[0] <= PATIENCE_S + takes_s
        cloud.errors.clear()


def test_what_makes_something_is_asked_to_the_end() -> None:
    cloud, _ = ask(*[Ambiguous("lost")] * TRIES)
    passed = [0.0]

    def hang(_call: CallRecord) -> None:
        passed[0] += 600.0

    cloud.on_call = hang
    patient = PatientCloud(cloud, ClockedLifeline(cloud.clock), clock_s=lambda: passed[0])
    with pytest.raises(Ambiguous):
        patient.start_instance(PLACE, "i-1")
    assert cloud.count("start_instance") == TRIES
