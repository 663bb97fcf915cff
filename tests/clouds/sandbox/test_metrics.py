"""Telemetry samples and the serial console."""

from __future__ import annotations

import json
from datetime import timedelta

import pytest

from provisioner.errors import NotFound, UsageError
from provisioner.node.drain import DRAIN_TAG
from provisioner.tags import format_time


def test_samples_hold_until_the_next_and_keep_what_is_not_named(box):
    made = box.running()
    box.controls.set_telemetry(made.id, {"gpu_utilization_percent": [0, 97.5], "cpu_percent": 3})
    box.clock.pass_time(minutes=5)
    box.controls.set_telemetry(made.id, {"gpu_utilization_percent": [None]})
    box.clock.pass_time(minutes=5)
    first, second = box.controls.telemetry(made.id)
    assert first.signals == {"gpu_utilization_percent": [0, 97.5], "cpu_percent": 3}
    assert second.signals == {"gpu_utilization_percent": [None], "cpu_percent": 3}
    assert second.at - first.at == timedelta(minutes=5)
    assert box.controls.telemetry(made.id, second.at + timedelta(minutes=1)) == [second]
    assert box.controls.telemetry(made.id, second.at - timedelta(minutes=1)) == [first, second]
    assert box.controls.telemetry(made.id, first.at - timedelta(minutes=1)) == [first, second]


def test_one_number_for_the_gpus_is_that_of_each(box):
    made = box.running()
    box.controls.set_telemetry(made.id, {"gpu_utilization_percent": 3, "gpu_power_watts": None})
    (sample,) = box.controls.telemetry(made.id)
    assert sample.signals == {"gpu_utilization_percent": [3], "gpu_power_watts": [None]}


def test_silent_telemetry_has_no_samples(box):
    made = box.running()
    assert box.controls.telemetry(made.id) == []
    box.controls.set_telemetry(made.id, {"cpu_percent": 3})
    box.controls.clear_telemetry(made.id)
    assert box.controls.telemetry(made.id) == []


def test_a_console_line_is_read_with_the_machine(box):
    made = box.running()
    box.controls.set_telemetry(made.id, {}, console='{"decision": "busy"}')
    assert box.see(made).console[-1] == '{"decision": "busy"}'
    assert box.controls.telemetry(made.id) == []


def test_the_console_shows_the_last_hundred_lines(box):
    made = box.running()
    for number in range(120):
        box.controls.set_telemetry(made.id, {}, console=str(number))
    assert box.see(made).console == tuple(str(number) for number in range(20, 120))


@pytest.mark.parametrize(
    "signals",
    [
        {"gpu_utilisation": [3]},
        {"gpu_utilization_percent": -3},
        {"gpu_utilization_percent": []},
        {"gpu_utilization_percent": ["n/a"]},
        {"cpu_percent": "3"},
        {"cpu_percent": True},
        {"cpu_percent": [3]},
        {"cpu_percent": float("nan")},
        {"cpu_percent": float("inf")},
        {"cpu_percent": -1},
        {"cpu_percent": 100.1},
        {"gpu_utilization_percent": [3, 101]},
        {"gpu_power_watts": [float("nan")]},
    ],
    ids=repr,
)
def test_a_signal_that_nobody_could_read_is_refused(box, signals):
    made = box.running()
    with pytest.raises(UsageError):
        box.controls.set_telemetry(made.id, {"logins": 1, **signals})
    assert box.controls.telemetry(made.id) == []


def test_telemetry_of_nothing_is_not_found(box):
    for signals, console in (({"cpu_percent": 3}, None), ({}, "line")):
        with pytest.raises(NotFound):
            box.controls.set_telemetry("i-0ffffffffffffffff", signals, console)
    for call in (box.controls.telemetry, box.controls.clear_telemetry):
        with pytest.raises(NotFound):
            call("i-0ffffffffffffffff")


@pytest.mark.parametrize(("in_flight", "answer"), [(0, "drained"), (2, "busy")])
def test_a_machine_with_a_watcher_answers_a_request_to_drain(box, in_flight, answer):
    made = box.running()
    box.controls.set_telemetry(made.id, {"requests_in_flight": in_flight})
    said = {"gpuprov": 1, "at": format_time(box.cloud.now()), "state": "idle"}
    box.controls.set_telemetry(made.id, {}, console=json.dumps(said))
    request = format_time(box.cloud.now())
    box.cloud.set_tags(made.placement, made.id, {DRAIN_TAG: request})
    last = json.loads(box.cloud.read_console(made.placement, made.id)[-1])
    assert (last["state"], last["request"]) == (answer, request)
    box.cloud.set_tags(made.placement, made.id, {DRAIN_TAG: "none"})
    assert "request" not in box.cloud.read_console(made.placement, made.id)[-1]


def test_a_machine_without_a_watcher_answers_nothing(box):
    made = box.running()
    box.cloud.set_tags(made.placement, made.id, {DRAIN_TAG: format_time(box.cloud.now())})
    assert not any("gpuprov" in line for line in box.cloud.read_console(made.placement, made.id))
