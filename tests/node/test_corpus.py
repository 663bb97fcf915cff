"""The corpus of labelled traces: busy ones live, idle ones are found, blind ones are unknown (a sample; `make proof-idle`)."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from provisioner.node.idleness import UNKNOWN, Memory, Rules, decide
from tests.fakes.traces import BUSY, FAULTS, IDLE, PERIOD_S, THRESHOLD_S, Look, busy_trace, fault_trace, idle_trace

RULES = Rules(THRESHOLD_S, PERIOD_S)


def ended_at(looks: Iterable[Look], rules: Rules = RULES) -> float | None:
    """When the machine would be ended."""
    memory = Memory()
    for look in looks:
        memory, decision = decide(memory, look.at_s, look.reading, rules)
        if decision.is_due:
            return look.at_s
    return None


def test_the_corpus_is_as_wide_as_asked():
    assert len(BUSY) >= 24
    assert len(IDLE) >= 10
    assert len(FAULTS) >= 8


@pytest.mark.parametrize("name", BUSY)
def test_a_busy_phase_is_never_ended(name):
    assert [ended_at(busy_trace(name, seed)) for seed in range(3)] == [None] * 3


@pytest.mark.parametrize("name", IDLE)
def test_an_idle_shape_is_found_in_time(name):
    for seed in range(3):
        looks = list(idle_trace(name, seed))
        idle_since_s = next(look.at_s for look in looks if not look.is_busy)
        at_s = ended_at(looks)
        assert at_s is not None
        assert THRESHOLD_S <= at_s - idle_since_s <= THRESHOLD_S + 2 * PERIOD_S


@pytest.mark.parametrize("name", FAULTS)
def test_a_blind_sensor_is_unknown_and_never_idle(name):
    memory = Memory()
    for look in fault_trace(name, 1):
        memory, decision = decide(memory, look.at_s, look.reading, RULES)
        assert decision.state in {UNKNOWN, "busy"}
