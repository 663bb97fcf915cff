"""Injected errors, slow calls, and the journal that shows what callers did about them."""

from __future__ import annotations

import os
from datetime import timedelta

import pytest

from provisioner.clouds.cloud import Terms
from provisioner.clouds.sandbox import journal
from provisioner.clouds.sandbox.api import Api
from provisioner.clouds.sandbox.call import About, Call, Effect
from provisioner.clouds.sandbox.clock import Host
from provisioner.clouds.sandbox.cloud import SandboxCloud
from provisioner.clouds.sandbox.errors import INJECTED
from provisioner.clouds.sandbox.faults import OPERATIONS, Fault
from provisioner.clouds.sandbox.journal import UNFINISHED
from provisioner.clouds.sandbox.latencies import Latency
from provisioner.clouds.sandbox.store import FILE_NAME, Store, read_setting, write_setting
from provisioner.errors import (
    Ambiguous,
    CapacityError,
    CredentialsError,
    NotFound,
    QuotaError,
    Rejected,
    Throttled,
    UsageError,
)
from provisioner.units import DiskSpeed

KINDS = {
    "throttle": Throttled,
    "ambiguous-before": Ambiguous,
    "ambiguous-after": Ambiguous,
    "internal": Ambiguous,
    "capacity": CapacityError,
    "quota": QuotaError,
    "credentials": CredentialsError,
    "rejected": Rejected,
    "not-found": NotFound,
}


def calls(box, operation: str) -> list[tuple[str, str]]:
    return [(call.outcome, str(call.effect)) for call in box.controls.calls(operation=operation)]


@pytest.mark.parametrize("kind", sorted(INJECTED))
def test_an_error_strikes_once_and_the_same_call_then_succeeds(box, kind):
    request = box.request()
    box.controls.inject(Fault(kind, "create_instance"))
    with pytest.raises(KINDS[kind]) as caught:
        box.cloud.create_instance(request)
    assert type(caught.value) is KINDS[kind]
    assert "gpuprov sandbox errors clear" in str(caught.value)
    made = 3 if kind == "ambiguous-after" else 0
    assert len(box.controls.bill().lines) == made
    again = box.cloud.create_instance(request)
    box.wait()
    assert [machine.id for machine in box.cloud.find_instances({}, [box.here])] == [again.id]
    effects = (
        [("ambiguous", "created"), ("ok", "replayed")] if made else [(KINDS[kind].kind, "none"), ("ok", "created")]
    )
    assert calls(box, "create_instance") == effects
    assert box.controls.faults() == []


def test_every_kind_is_expected_here():
    assert set(KINDS) == set(INJECTED)


def test_count_skip_and_always(box):
    box.controls.inject(Fault("throttle", "get_instance", skip=1, remaining=2))
    outcomes = []
    for _ in range(5):
        try:
            box.cloud.get_instance(box.here, "i-0")
            outcomes.append("ok")
        except Throttled:
            outcomes.append("throttled")
    assert outcomes == ["ok", "throttled", "throttled", "ok", "ok"]
    box.controls.inject(Fault("credentials", "*", remaining=None))
    for _ in range(4):
        with pytest.raises(CredentialsError):
            box.cloud.list_objects()
    box.controls.clear_faults()
    assert box.cloud.list_objects() == []


def test_errors_strike_in_the_order_in_which_they_were_injected(box):
    for kind in ("throttle", "internal", "capacity"):
        box.controls.inject(Fault(kind, "create_*"))
    seen = []
    for _ in range(3):
        with pytest.raises((Throttled, Ambiguous, CapacityError)) as caught:
            box.cloud.create_instance(box.request())
        seen.append(type(caught.value))
    assert seen == [Throttled, Ambiguous, CapacityError]


def test_an_error_bound_to_a_pool_leaves_other_places_and_calls_without_place_alone(box):
    box.controls.inject(Fault("capacity", "*", pool="aws/*/use1-az2/*/*", remaining=None))
    with pytest.raises(CapacityError):
        box.cloud.create_instance(box.request(image="ami-1"))
    box.cloud.create_instance(box.request(placement=box.next_zone))
    assert box.cloud.find_instances({}, []) == []


def test_a_lost_answer_of_a_refused_call_is_lost_all_the_same(box):
    box.controls.set_capacity("*/*/*/*/*", 0)
    box.controls.inject(Fault("ambiguous-after", "create_instance"))
    with pytest.raises(Ambiguous):
        box.cloud.create_instance(box.request())
    assert calls(box, "create_instance") == [("ambiguous", "none")]


def test_a_refused_call_leaves_nothing_of_it_behind(home):
    """Also what was written before the refusal is undone; the journal keeps the call."""
    store = Store(home / FILE_NAME)
    api = Api(store, Host())

    def act(call: Call) -> None:
        write_setting(call.connection, "half", "done")
        call.note(Effect.CREATED, "i-0")
        raise Rejected("no")

    with pytest.raises(Rejected):
        api.perform(About("create_instance"), act)
    with store.transaction() as connection:
        assert read_setting(connection, "half", "nothing") == "nothing"
        (entry,) = journal.read(connection)
    assert (entry.outcome, str(entry.effect), entry.object_id) == ("rejected", "none", None)
    store.close()


@pytest.mark.parametrize("operation", OPERATIONS)
def test_every_operation_can_fail(box, operation):
    machine = box.running()
    volume = box.cloud.create_volume(box.volume())
    arguments = {
        "resolve_image": (box.here,),
        "create_instance": (box.request("token-2", image="ami-1"),),
        "get_instance": (box.here, machine.id),
        "find_instances": ({}, [box.here]),
        "inspect": (box.here, machine.id, Terms()),
        "put_right": (box.here, machine.id, Terms()),
        "set_tags": (box.here, machine.id, {"a": "b"}),
        "create_volume": (box.volume("volume-2"),),
        "find_volumes": ({}, [box.here]),
        "get_volume": (box.here, volume.id),
        "attach_volume": (box.here, machine.id, volume.id),
        "grow_volume": (box.here, volume.id, 2**45),
        "set_root_speed": (box.here, machine.id, DiskSpeed(3000, 250)),
        "delete_volume": (box.here, volume.id),
        "ensure_security_group": (box.here, {"a": "b"}, [], []),
        "delete_security_group": (box.here, "sg-0"),
        "list_objects": (),
        "set_user_data": (box.here, machine.id, "#cloud-config\n{}\n"),
    }.get(operation, (box.here, machine.id))
    named = {"set_shutdown": {"stops": True}}.get(operation, {})
    if operation == "set_user_data":
        box.cloud.stop_instance(box.here, machine.id)
        box.wait()
    before = box.controls.bill()
    box.controls.inject(Fault("internal", operation))
    with pytest.raises(Ambiguous, match=operation):
        getattr(box.cloud, operation)(*arguments, **named)
    assert box.controls.bill() == before
    getattr(box.cloud, operation)(*arguments, **named)


@pytest.mark.parametrize(
    "fault",
    [
        Fault("earthquake"),
        Fault("throttle", "create_world"),
        Fault("throttle", skip=-1),
        Fault("throttle", remaining=0),
    ],
)
def test_an_error_that_could_never_strike_is_refused(box, fault):
    with pytest.raises(UsageError):
        box.controls.inject(fault)
    assert box.controls.faults() == []


def _observer(box, seen: list):
    """A cloud on the same file whose host looks at the file while a call sleeps."""

    def sleep(seconds: float) -> None:
        states = [(call.outcome, str(call.effect)) for call in box.controls.calls(operation="create_instance")]
        seen.append((seconds, len(box.controls.bill().lines), states))

    return SandboxCloud(box.home, host=Host(now=box.clock.now, sleep=sleep))


def test_a_slow_create_is_recorded_at_its_start(box):
    seen: list = []
    request = box.request()
    box.controls.set_latency(Latency("create", timedelta(seconds=5)))
    slow = _observer(box, seen)
    made = slow.create_instance(request)
    slow.close()
    assert seen == [(5.0, 3, [(UNFINISHED, "created")])]
    assert calls(box, "create_instance") == [("ok", "created")]
    assert box.controls.bill().lines[0].id == made.id


def test_a_slow_create_is_recorded_at_its_end_where_asked(box):
    seen: list = []
    request = box.request()
    box.controls.set_latency(Latency("create", timedelta(seconds=5), record_at="end"))
    slow = _observer(box, seen)
    slow.create_instance(request)
    slow.close()
    assert seen == [(5.0, 0, [(UNFINISHED, "none")])]
    assert calls(box, "create_instance") == [("ok", "created")]


@pytest.mark.parametrize(("record_at", "lines", "effect"), [("start", 3, "created"), ("end", 0, "none")])
def test_a_call_interrupted_while_it_waits_stays_unfinished(box, record_at, lines, effect):
    def interrupt(seconds: float) -> None:
        raise KeyboardInterrupt

    request = box.request()
    box.controls.set_latency(Latency("create", timedelta(seconds=5), record_at=record_at))
    slow = SandboxCloud(box.home, host=Host(now=box.clock.now, sleep=interrupt))
    with pytest.raises(KeyboardInterrupt):
        slow.create_instance(request)
    slow.close()
    assert len(box.controls.bill().lines) == lines
    assert calls(box, "create_instance") == [(UNFINISHED, effect)]


def test_latencies_belong_to_their_calls(box):
    for name, seconds in (("create", 1), ("volume", 2), ("start", 3), ("stop", 4), ("terminate", 5), ("read", 6)):
        box.controls.set_latency(Latency(name, timedelta(seconds=seconds)))
    box.controls.set_latency(Latency("other", timedelta(seconds=7)))
    request = box.request()
    box.clock.sleeps.clear()
    made = box.cloud.create_instance(request)
    box.cloud.create_volume(box.volume())
    box.cloud.stop_instance(box.here, made.id)
    box.cloud.start_instance(box.here, made.id)
    box.cloud.find_instances({}, [])
    box.cloud.set_tags(box.here, made.id, {"a": "b"})
    box.cloud.terminate_instance(box.here, made.id)
    assert box.clock.sleeps == [1, 2, 4, 3, 6, 7, 5]


@pytest.mark.parametrize(
    "latency",
    [
        Latency("warp", timedelta(0)),
        Latency("create", timedelta(seconds=-1)),
        Latency("create", timedelta(days=31)),
        Latency("boot", timedelta.max),
        Latency("create", timedelta(0), record_at="never"),
    ],
)
def test_a_latency_that_makes_no_sense_is_refused(box, latency):
    with pytest.raises(UsageError):
        box.controls.set_latency(latency)


def test_defaults_let_a_demo_run_without_waiting(box):
    assert all(latency.duration <= timedelta(seconds=0.5) for latency in box.controls.latencies())
    assert all(latency.duration == timedelta(0) for latency in box.controls.latencies() if latency.name == "create")


def test_the_journal_tells_who_called_what(box):
    request = box.request()
    made = box.cloud.create_instance(request)
    box.cloud.create_instance(request)
    box.cloud.terminate_instance(box.here, made.id)
    box.cloud.terminate_instance(box.here, made.id)
    seen = box.controls.calls(after=1)
    assert [(call.operation, str(call.effect), call.object_id) for call in seen] == [
        ("create_instance", "created", made.id),
        ("create_instance", "replayed", made.id),
        ("terminate_instance", "removed", made.id),
        ("terminate_instance", "none", made.id),
    ]
    assert {call.pid for call in seen} == {os.getpid()}
    assert seen[0].token == request.token
    assert seen[0].place == box.here.key


def test_the_journal_is_bounded(box, monkeypatch):
    monkeypatch.setattr(journal, "KEPT", 5)
    monkeypatch.setattr(journal, "_TRIM_EVERY", 10)
    for _ in range(20):
        box.cloud.list_objects()
    assert [call.id for call in box.controls.calls()] == [16, 17, 18, 19, 20]
