"""What ``up`` tells people at its end: what it costs, and the ways out that there are."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from provisioner.cli.stack_orders import print_result
from provisioner.clouds.cloud import BillableObject
from stacks.apply import Applied
from stacks.inventory import Standing
from stacks.outcome import Changes
from stacks.state import GPU_INSTANCE, ResourceState, StackState

NOW = datetime(2026, 11, 30, tzinfo=UTC)


def told(capsys, price, capacity="on-demand", request_type=None):
    outputs = {"instanceId": "i-1", "capacityType": capacity, "volumeIds": ["vol-1"]}
    machine = ResourceState("urn::instance", GPU_INSTANCE, "i-1", {}, outputs)
    extra = {"capacity_type": capacity, **({} if request_type is None else {"spot_request": request_type})}
    entry = BillableObject("aws", "instance", "i-1", "us-east-1", "use1-az1", "running", {}, price, NOW, extra)
    print_result(
        Applied("demo", changes=Changes(create=1), state=StackState("demo", (machine,)), standing=Standing((entry,)))
    )
    return capsys.readouterr().out


def test_the_price_is_told(capsys):
    out = told(capsys, "0.80")
    assert "stack demo: 1 created" in out
    assert "$0.8000/h for the machine" in out
    assert "$0.8000/h now, $584.00 a month if it runs on" in out


def test_a_price_that_is_not_known_is_told_as_such(capsys):
    out = told(capsys, None)
    assert "unknown for the machine" in out
    assert "unknown: it bills all the same" in out


@pytest.mark.parametrize(
    ("capacity", "request_type", "pauses"),
    [
        ("on-demand", None, True),
        ("reserved", None, True),
        ("spot", "persistent", True),
        ("spot", "cancelled", False),
        ("spot", "one-time", False),
        ("capacity-block", None, False),
    ],
)
def test_a_stop_is_offered_where_there_is_one(capsys, capacity, request_type, pauses):
    out = told(capsys, "0.80", capacity, request_type)
    assert "gpuprov down demo" in out
    assert ("gpuprov stop demo" in out) is pauses
