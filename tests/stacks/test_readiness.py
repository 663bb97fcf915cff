"""Waiting for a workload that answers: by its watcher's word, within three times the predicted start."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from types import SimpleNamespace

import pytest

from provisioner.clouds.cloud import InstanceState
from provisioner.errors import TimedOut
from stacks import readiness
from stacks.documents import outputs_document
from stacks.state import GPU_INSTANCE, ResourceState, StackState

BOOT = '{"gpuprov": 1, "state": "boot", "why": "pulls the image"}'
READY = '{"gpuprov": 1, "at": "2026-11-30T12:00:00Z", "state": "ready"}'


def stack(**lifecycle):
    workload = {"task": "serve", "run": {"command": ["x"], "ports": [8000]}, "lifecycle": lifecycle}
    outputs = {"cloud": "aws", "region": "r", "zone": "z", "instanceType": "g6.xlarge", "capacityType": "on-demand"}
    outputs |= {"instanceId": "i-1", "power": "running", "privateIp": "10.0.0.7", "publicIp": "198.18.0.1"}
    return StackState("s", (ResourceState("u::m", GPU_INSTANCE, "i-1", {"workload": workload}, outputs),))


class Cloud:
    """One machine whose console grows and whose clock moves with each pause."""

    def __init__(self, *console, state=InstanceState.RUNNING):
        self.lines = list(console)
        self.shown = 0
        self.state = state
        self.at = datetime(2026, 11, 30, tzinfo=UTC)
        self.ended = []

    def now(self):
        return self.at

    def read_console(self, place, instance_id):
        self.shown += 1
        return tuple(self.lines[: self.shown])

    def get_instance(self, place, instance_id):
        return SimpleNamespace(state=self.state)

    def terminate_instance(self, place, instance_id):
        self.ended.append(instance_id)

    def pause(self, seconds):
        self.at += timedelta(seconds=max(seconds, 60))


def test_it_returns_when_the_watcher_says_so_and_tells_the_steps():
    cloud, told = Cloud("kernel", BOOT, READY), []
    readiness.wait(cloud, stack(), readiness.probe_of(stack()), told.append, cloud.pause)
    assert told == ["pulls the image"]
    assert cloud.ended == []


def test_x4_a_machine_that_never_answers_is_ended_with_its_last_lines():
    cloud, probe = Cloud("kernel", BOOT), replace(readiness.probe_of(stack()), price_usd_per_hour=Decimal("3.6"))
    with pytest.raises(TimedOut, match="it was ended; last lines: kernel") as raised:
        readiness.wait(cloud, stack(), probe, lambda text: None, cloud.pause)
    assert raised.value.exit_code == 9
    waited_s = (cloud.at - datetime(2026, 11, 30, tzinfo=UTC)).total_seconds()
    assert f"which cost ${waited_s / 1000:.4f};" in raised.value.message
    assert cloud.ended == ["i-1"]


@pytest.mark.parametrize(
    ("run", "asked", "shown"),
    [
        ({"command": ["x"], "ports": [8000]}, True, True),
        ({"command": ["x"], "ports": [8000]}, False, False),
        ({"command": ["x"], "ports": [8000]}, None, None),  # an `up` that was cut off: nobody has seen it answer
        (None, None, True),  # a bare machine runs: that is all there is to tell
    ],
)
def test_a_workload_that_nobody_has_seen_answer_is_not_shown_as_ready(run, asked, shown):
    whole = stack()
    machine = whole.resources[0]
    inputs = {"workload": {"task": "serve", **({"run": run} if run else {})}}
    state = replace(whole, resources=(replace(machine, inputs=inputs, outputs={**machine.outputs, "ready": True}),))
    assert outputs_document(state, asked)["ready"] is shown


def test_keep_failed_keeps_it_and_a_dead_one_is_not_waited_for():
    cloud = Cloud(BOOT)
    with pytest.raises(TimedOut, match="is kept"):
        readiness.wait(cloud, stack(), readiness.probe_of(stack(keep_failed=True)), lambda text: None, cloud.pause)
    assert cloud.ended == []
    gone = Cloud(BOOT, state=InstanceState.TERMINATED)
    with pytest.raises(TimedOut, match="it is gone"):
        readiness.wait(gone, stack(), readiness.probe_of(stack()), lambda text: None, gone.pause)


@pytest.mark.parametrize(
    ("lines", "ready"),
    [
        ((), False),
        ((READY,), True),
        ((READY, BOOT), False),
        ((BOOT, READY, '{"gpuprov": 1, "state": "busy"}', "x"), True),
    ],
)
def test_the_last_start_counts(lines, ready):
    assert readiness.is_ready(lines) is ready


def test_an_endpoint_is_private_unless_somebody_may_come():
    assert readiness.endpoint_of(stack()) == "http://10.0.0.7:8000"
    state = stack()
    state.instance.inputs["workload"]["access"] = {"cidrs": ["203.0.113.7/32"]}
    assert readiness.endpoint_of(state) == "http://198.18.0.1:8000"
    state.instance.outputs["power"] = "stopped"
    assert readiness.endpoint_of(state) is None
