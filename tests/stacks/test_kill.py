"""A sample of the kills of `make proof-kill`."""

from __future__ import annotations

import pytest

from tests.stacks.kill import Blow, strike, undisturbed_s

SAMPLE = (
    Blow(0, "caller", True, 0.40, "start"),
    Blow(1, "group", True, 0.15, "end"),
    Blow(2, "everything", True, 0.50, "start"),
    Blow(3, "everything", True, 0.30, "end"),
    Blow(4, "caller", False, 0.35, "start"),
)


@pytest.fixture(scope="module")
def whole_s(tmp_path_factory):
    return undisturbed_s(tmp_path_factory.mktemp("whole") / "home", runs=1)


@pytest.mark.engine
@pytest.mark.slow
@pytest.mark.parametrize("blow", SAMPLE, ids=lambda blow: f"{blow.mode}-{blow.share}")
def test_l13_e1_a_killed_up_is_taken_over_and_ended(tmp_path, whole_s, blow):
    wound = strike(tmp_path / "killed", blow, whole_s)
    assert wound.machines_at_once <= 1
    assert wound.machines_after_up == 1, wound.messages
    assert wound.bills_after_down == ()
    assert wound.is_healed, wound.messages
