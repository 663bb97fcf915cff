"""Retries: how often, how long, and for which errors."""

from __future__ import annotations

import pytest

from provisioner.catalog.patience import Patience
from provisioner.errors import Ambiguous, CloudError, CredentialsError, Throttled


class Flaky:
    def __init__(self, *errors: Exception) -> None:
        self.errors = list(errors)
        self.calls = 0

    def __call__(self) -> str:
        self.calls += 1
        if self.errors:
            raise self.errors.pop(0)
        return "answer"


def patient(waits: list[float], draw: float = 1.0, attempts: int = 4) -> Patience:
    return Patience(attempts=attempts, first_wait_s=1.0, longest_wait_s=3.0, sleep=waits.append, draw=lambda: draw)


@pytest.mark.parametrize("kind", [Throttled, Ambiguous])
def test_a_passing_refusal_is_waited_out_with_growing_waits(kind: type[CloudError]) -> None:
    waits: list[float] = []
    call = Flaky(kind("1"), kind("2"), kind("3"))
    assert patient(waits).call(call) == "answer"
    assert call.calls == 4
    assert waits == [1.0, 2.0, 3.0]  # doubled, then at the limit


def test_waits_are_drawn_from_zero_upwards() -> None:
    waits: list[float] = []
    assert patient(waits, draw=0.25).call(Flaky(Throttled("x"), Throttled("x"))) == "answer"
    assert waits == [0.25, 0.5]


def test_it_gives_up_with_the_last_error() -> None:
    waits: list[float] = []
    call = Flaky(*(Throttled(f"no {number}") for number in range(9)))
    with pytest.raises(Throttled, match="no 3"):
        patient(waits).call(call)
    assert call.calls == 4
    assert len(waits) == 3


@pytest.mark.parametrize("error", [CredentialsError("expired"), CloudError("odd"), ValueError("bug")])
def test_what_waiting_does_not_mend_is_raised_at_once(error: Exception) -> None:
    waits: list[float] = []
    with pytest.raises(type(error)):
        patient(waits).call(Flaky(error))
    assert waits == []
