"""Spot arithmetic: hazard, stretch, lost work, break-even."""

from __future__ import annotations

import math
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from provisioner.planner.spot import (
    UNKNOWN_INTERRUPTIONS_PER_HOUR,
    SpotRisk,
    breakeven_per_hour,
    interruption_rate,
    intolerance,
    lost_hours,
)
from provisioner.sizing.start_up import start_up
from provisioner.units import HOURS_PER_MONTH
from provisioner.vocabulary import Engine


def test_rate_of_a_band_is_its_middle():
    assert interruption_rate((0.05, 0.1)) == pytest.approx(0.075)
    assert interruption_rate(None) is None


def test_hazard_gives_back_the_monthly_share():
    hazard = SpotRisk(0.2, 1.0).interruptions_per_hour
    assert 1 - math.exp(-hazard * HOURS_PER_MONTH) == pytest.approx(0.2)


def test_unknown_rate_is_ranked_pessimistically():
    unknown = SpotRisk(None, 1.0)
    assert unknown.interruptions_per_hour == UNKNOWN_INTERRUPTIONS_PER_HOUR
    assert unknown.stretch(1) > SpotRisk(0.6, 1.0).stretch(1)


def test_stretch_ends_where_work_never_does():
    assert SpotRisk(None, 24.0).stretch(1) == math.inf
    assert SpotRisk(None, 12.0).stretch(1) == pytest.approx(2.0)
    assert SpotRisk(None, 12.0).stretch(2) == math.inf


@given(st.floats(0.0, 0.9), st.floats(0.01, 5), st.integers(1, 8))
def test_stretch_grows_with_rate_loss_and_machines(rate, lost, machines):
    risk = SpotRisk(rate, lost)
    assert risk.stretch(machines) >= 1
    assert SpotRisk(min(rate + 0.05, 0.95), lost).stretch(machines) >= risk.stretch(machines)
    assert SpotRisk(rate, lost * 1.1).stretch(machines) >= risk.stretch(machines)
    assert risk.stretch(machines + 1) >= risk.stretch(machines)


@given(st.integers(1, 99), st.floats(0.1, 5))
def test_breakeven_is_where_spot_costs_the_same(percent, lost):
    rate = breakeven_per_hour(Decimal(percent), Decimal(100), lost)
    assert rate is not None
    assert float(rate) == pytest.approx((1 - percent / 100) / lost, rel=0.005)


def test_no_breakeven_where_spot_is_dear():
    assert breakeven_per_hour(Decimal(1), Decimal(1), 1.0) is None
    assert breakeven_per_hour(Decimal(2), Decimal(1), 1.0) is None


def test_lost_work_is_half_an_interval_and_a_restart(finetune, serve):
    every = finetune(training={"checkpoint": {"every": "2h", "resumable": True}})
    unnamed = finetune(training={"checkpoint": {"resumable": True}})
    restart = lost_hours(serve(), 0, Engine.VLLM)
    assert restart == pytest.approx(start_up(0, Engine.VLLM).usual_s / 3600)
    assert lost_hours(every, 0, Engine.VLLM) == pytest.approx(1.0 + restart)
    assert lost_hours(unnamed, 0, Engine.VLLM) == pytest.approx(0.5 + restart)
    assert lost_hours(serve(), 10**12, Engine.VLLM) > lost_hours(serve(), 10**11, Engine.VLLM) > restart


def test_who_tolerates_an_interruption(serve, batch, finetune):
    assert "nothing to resume from" in intolerance(serve())
    assert intolerance(batch()) is None
    assert "no resumable checkpoint" in intolerance(finetune())
    assert "no resumable checkpoint" in intolerance(finetune(training={"checkpoint": {"every": "1h"}}))
    assert intolerance(finetune(training={"checkpoint": {"resumable": True}})) is None
