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
from stacks.provider.patience import TRIES, PatientCloud
from tests.fakes.cloud import Clock, ClockedLifeline, FakeCloud

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
