"""Steady state of one serving copy: places in memory, the rate that passes, what a request waits."""

from __future__ import annotations

from dataclasses import replace

import pytest

from provisioner.sizing.layout import Layout
from provisioner.sizing.speed import ServingSpeed
from provisioner.sizing.steady_state import BUSIEST, SteadyState, requests_in_memory, steady_state
from provisioner.sizing.throughput import Targets
from provisioner.vocabulary import Interconnect

LLAMA = "meta-llama/Llama-3.1-8B-Instruct"


@pytest.fixture
def demand(serving):
    return serving(LLAMA, concurrency=32, input_tokens=1000, output_tokens=200)


def state_of(demand, card, **changes):
    return steady_state(demand, Layout(), card, Interconnect.NONE, **changes)


def test_the_largest_rate_is_all_places_over_their_stay(demand, gpu):
    state = state_of(demand, gpu("L40S"))
    pace = ServingSpeed(demand, Layout(), gpu("L40S"), Interconnect.NONE).pace(32)
    assert state.largest_rate == pytest.approx(32 / (200 * pace.round_s))
    assert state.tokens_per_s == pytest.approx(200 * state.largest_rate)
    assert state.rate_within(Targets()) == pytest.approx(BUSIEST * state.largest_rate)


def test_little_law_joins_rate_and_requests_at_once(demand, gpu):
    """Requests at once = rate x their stay: between two sized points only as near as a straight line is."""
    state = state_of(demand, gpu("L40S"))
    for share in (0.3, 0.6, 0.9):
        seen = state.waiting(share * state.largest_rate)
        assert share * 32 * 0.3 < seen.running <= 32


def test_an_idle_copy_answers_after_the_prompt(demand, gpu):
    state = state_of(demand, gpu("L40S"))
    seen = state.waiting(1e-6)
    assert seen.first_token_s == pytest.approx(state.prompt_s + state.paces[0].token_s / 2, rel=1e-3)
    assert seen.running < 0.01


def test_a_full_copy_makes_requests_wait_for_a_place(demand, gpu):
    state = state_of(demand, gpu("L40S"))
    near, full = (state.waiting(share * state.largest_rate) for share in (0.9, 0.999))
    assert full.first_token_s > 10 * near.first_token_s


def test_no_rate_keeps_an_impossible_target(demand, gpu):
    state = state_of(demand, gpu("L40S"))
    assert state.rate_within(Targets(first_token_s=state.prompt_s / 2)) == 0
    assert state.rate_within(Targets(tokens_per_s=10_000)) == 0


def test_memory_allows_more_than_was_asked(demand, gpu):
    held = requests_in_memory(demand, Layout(), gpu("L40S"))
    assert 10 < held < 60
    asked, full = state_of(replace(demand, concurrency=4), gpu("L40S")), state_of(demand, gpu("L40S"), limit=held)
    assert full.largest_rate > 2 * asked.largest_rate
    assert full.limit == held


def test_unknown_speed_has_no_steady_state(demand, gpu):
    blind = replace(gpu("L40S"), flop_per_s={})
    assert state_of(demand, blind) is None
    with pytest.raises(ValueError, match="matrix rate of L40S"):
        SteadyState(ServingSpeed(demand, Layout(), blind, Interconnect.NONE), 4)
