"""What EC2's words about a machine mean here."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from provisioner.clouds.aws import views
from provisioner.clouds.cloud import End, Ended

AT = datetime(2026, 11, 30, 12, tzinfo=UTC)


def described(code, state="terminated", said="User initiated (2026-11-30 12:00:00 GMT)"):
    return {"State": {"Name": state}, "StateReason": {"Code": code}, "StateTransitionReason": said}


@pytest.mark.parametrize(
    ("code", "how"),
    [
        ("Server.SpotInstanceTermination", End.TAKEN_BACK),
        ("Server.SpotInstanceShutdown", End.TAKEN_BACK),
        ("Client.UserInitiatedShutdown", End.CALLED),
        ("Client.InstanceInitiatedShutdown", End.FROM_INSIDE),
        ("Server.ScheduledStop", End.RETIRED),
        ("Server.InsufficientInstanceCapacity", End.NO_CAPACITY),
        ("Server.InternalError", End.FAILED),
        ("Client.InvalidSnapshot.NotFound", End.FAILED),
    ],
)
@pytest.mark.parametrize("state", ["terminated", "stopped", "shutting-down", "stopping"])
def test_a_state_reason_tells_what_ended_a_machine_and_when(code, how, state):
    assert views.ended(described(code, state)) == Ended(how, AT)


@pytest.mark.parametrize(
    "shown",
    [
        described("Client.UserInitiatedShutdown", "running"),
        described("Server.SpotInstanceShutdown", "pending"),
        described("Server.OfALaterDay"),
        {"State": {"Name": "terminated"}},
    ],
)
def test_what_runs_has_no_end_and_what_ec2_does_not_tell_is_not_guessed(shown):
    assert views.ended(shown) is None


@pytest.mark.parametrize("said", ["", "Server.SpotInstanceTermination: no time", None])
def test_an_end_without_a_time_is_told_without_one(said):
    assert views.ended(described("Server.SpotInstanceTermination", said=said)) == Ended(End.TAKEN_BACK, None)
