"""Look, look again, mark, wait, look again, act; within limits, dry unless told otherwise."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import timedelta
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from provisioner import tags
from provisioner.errors import CloudError, CredentialsError, Rejected
from provisioner.reaper import machines
from provisioner.reaper.decision import Cause, Step, can_stop, decide
from provisioner.reaper.evidence import SILENT_AFTER, Evidence, judge
from provisioner.reaper.machines import Observed, Sample
from provisioner.reaper.sweep import Limits, marked, sweep
from provisioner.vocabulary import CapacityType
from tests.reaper.account import QUIET_READING, START, account, machine, quiet

LIMITS = Limits()


def run(found, **changes):
    return sweep(found, changes.get("limits", LIMITS), dry=changes.get("dry", False))


def steps(done):
    return [str(outcome.verdict.step) for outcome in done.outcomes]


def test_a_dry_run_says_and_changes_nothing():
    found = account(machine())
    before = dict(found.held)
    assert steps(run(found, dry=True)) == ["mark"]
    assert found.held == before
    assert found.done == []


def test_an_idle_machine_is_marked_waits_its_grace_and_is_stopped():
    found = account(machine())
    first = run(found)
    assert steps(first) == ["mark"]
    assert [mark.machine.stack for mark in marked(first.outcomes)] == ["stack-0"]
    found.at += timedelta(minutes=5)
    assert steps(run(found)) == ["wait"]
    found.at += timedelta(minutes=6)
    last = run(found)
    assert found.done == [("stop", machine().id)]
    assert last.saved_usd_per_hour == Decimal("0.78")
    kept = found.held[machine().id].tags
    assert kept[machines.REAPED].endswith(" idle")
    assert kept[machines.DUE] == tags.NONE


def test_e26_work_that_arrives_during_the_grace_takes_the_mark_away():
    found = account(machine())
    run(found)
    found.at += timedelta(minutes=11)
    found.seen[machine().id] = Observed(
        [Sample(found.at, {**QUIET_READING, "gpus": [{"utilization": 40.0}]})], holds=True
    )
    assert steps(run(found)) == ["unmark"]
    assert found.done == []
    assert found.held[machine().id].due_at is None


def test_work_between_the_two_readings_of_one_sweep_is_seen():
    found = account(machine())
    run(found)
    found.at += timedelta(minutes=11)
    real, looks = found.observe, []

    def observe(one, since):
        looks.append(one.id)
        return real(one, since) if len(looks) == 1 else quiet(found.at, logins=1)

    found.observe = observe
    assert steps(run(found)) == ["unmark"]
    assert len(looks) == 2
    assert found.done == []


def test_a_keepalive_during_the_grace_holds_it():
    found = account(machine())
    run(found)
    found.write_tags(machine(), {tags.LEASE_UNTIL: tags.format_time(START + timedelta(hours=2))})
    found.at += timedelta(minutes=30)
    assert steps(run(found)) == ["unmark"]


def test_i14_a_stopped_machine_is_terminated_when_its_time_is_up():
    one = machine(state="stopped", stopped_at=START - timedelta(days=6))
    found = account(one)
    assert steps(run(found)) == ["keep"]
    found.at += timedelta(days=1, hours=1)
    assert steps(run(found)) == ["mark"]
    found.at += timedelta(minutes=61)
    run(found)
    assert found.done == [("terminate", one.id)]


def test_e28_a_machine_past_its_lifetime_is_ended_from_outside():
    one = machine(tags={tags.IDLE_AFTER: "none", tags.EXPIRES_AT: tags.format_time(START - timedelta(minutes=20))})
    found = account(one)
    found.seen.clear()
    done = run(found)
    assert done.outcomes[0].verdict.cause is Cause.OVER_AGE
    found.at += timedelta(minutes=11)
    run(found)
    assert found.done == [("stop", one.id)]


@pytest.mark.parametrize(
    "changes",
    [
        {"tags": {machines.KEEP: "true"}},
        {"tags": {tags.IDLE_AFTER: "none"}},
        {"tags": {tags.IDLE_AFTER: "soon"}},
        {"state": "pending"},
        {"created_at": START - timedelta(minutes=10)},
        {"tags": {tags.TERMINATE_AFTER: "none"}, "state": "stopped", "stopped_at": START - timedelta(days=99)},
        {"state": "stopped", "stopped_at": None},
    ],
)
def test_what_is_left_alone(changes):
    assert steps(run(account(machine(**changes)))) == ["keep"]


def test_spot_is_terminated_after_an_hour_of_grace():
    found = account(machine(capacity_type=CapacityType.SPOT))
    done = run(found)
    assert done.outcomes[0].verdict.due_at - START >= timedelta(hours=1)


@given(
    threshold=st.integers(1, 600),
    market=st.sampled_from(list(CapacityType)),
    fraction=st.integers(0, 999_999),
    then=st.sampled_from(["stop", "terminate"]),
)
def test_every_mark_waits_for_its_grace(threshold, market, fraction, then):
    now = START.replace(microsecond=fraction)
    one = machine(capacity_type=market, tags={tags.IDLE_AFTER: f"{threshold}m", tags.IDLE_THEN: then})
    verdict = decide(one, Evidence("idle", timedelta(hours=20), "quiet"), now)
    assert verdict.step is Step.MARK
    grace = (
        timedelta(hours=1)
        if verdict.ending.how == "terminate"
        else min(timedelta(minutes=threshold), timedelta(minutes=10))
    )
    written = tags.parse_time(tags.format_time(verdict.due_at))
    assert written - now >= grace


def test_limits_hold_back_the_cheap_and_never_everything():
    fleet = [machine(n, price_usd_per_hour=Decimal(n + 1)) for n in range(10)]
    found = account(*fleet)
    done = run(found, limits=Limits(count=20, share=0.3))
    assert steps(done).count("mark") == 10
    handled = {outcome.verdict.machine.id for outcome in done.outcomes if outcome.done}
    assert handled == {fleet[n].id for n in (7, 8, 9)}
    assert sum(outcome.held_back for outcome in done.outcomes) == 7
    assert steps(run(account(machine()), limits=Limits(count=1, share=0.01))) == ["mark"]


def test_what_goes_wrong_with_one_machine_does_not_stop_the_others():
    found = account(machine(0), machine(1))
    real = found.observe

    def observe(one, since):
        if one.id == machine(0).id:
            raise CloudError("metrics are down")
        return real(one, since)

    found.observe = observe
    done = run(found)
    assert [outcome.error is not None for outcome in done.outcomes] == [True, False]
    assert steps(done) == ["keep", "mark"]


def test_a_refused_stop_is_told():
    found = account(machine())
    run(found)
    found.at += timedelta(minutes=11)

    def stop(one):
        raise Rejected("cannot be stopped")

    found.stop = stop
    assert run(found).outcomes[0].error.message == "cannot be stopped"


def test_an_unknown_price_makes_the_total_unknown():
    found = account(machine(price_usd_per_hour=None))
    assert run(found, dry=True).idle_usd_per_hour is None


def line(state="quiet", quiet_s=3600, at=START, **more):
    said = {"gpuprov": 1, "at": tags.format_time(at), "state": state, "why": "seen", "quiet_s": quiet_s, **more}
    return f"[   12.3] {json.dumps(said)}"


def test_the_watchers_word_counts_with_the_metrics():
    calm = quiet(START - timedelta(hours=1))
    assert judge(replace(calm, console=(line(),)), START).state == "idle"
    assert judge(replace(calm, console=(line("busy"),)), START).state == "busy"
    assert judge(replace(calm, console=(line("unknown"),)), START).state == "unknown"
    assert judge(replace(calm, console=(line(quiet_s=60),)), START).quiet == timedelta(seconds=60)
    assert judge(Observed(console=(line(idle_after_s=480),)), START).idle_after == timedelta(minutes=8)


def test_a_watcher_that_fell_silent_is_unknown():
    late = START + SILENT_AFTER + timedelta(seconds=1)
    assert judge(Observed(console=(line(),)), late).state == "unknown"
    assert judge(Observed(console=("boot", "nothing of ours", '{"gpuprov": 1, "at": ')), START).state == "unknown"


def test_without_a_gpu_metric_nothing_is_idle():
    reading = {"cpu_percent": 0.5, "network_bytes_per_s": 10}
    points = [Sample(START - timedelta(minutes=5 * n), reading) for n in range(30, -1, -1)]
    assert judge(Observed(points), START).state == "unknown"
    assert judge(Observed(), START).state == "unknown"


def test_a_series_with_a_gap_or_an_end_starts_anew():
    points = [Sample(START - timedelta(minutes=5 * n), QUIET_READING) for n in range(30, -1, -1)]
    assert judge(Observed(points), START).quiet == timedelta(minutes=150)
    assert judge(Observed(points[:10] + points[20:]), START).quiet == timedelta(minutes=50)
    assert judge(Observed(points[:20]), START).state == "unknown"
    lacking = [*points[:-1], Sample(START, {k: v for k, v in QUIET_READING.items() if k != "gpus"})]
    assert judge(Observed(lacking), START).state == "unknown"


def test_a_keepalive_does_not_hold_off_the_end_of_a_lifetime():
    kept = tags.format_time(START + timedelta(hours=2))
    over = tags.format_time(START - timedelta(minutes=20))
    done = run(account(machine(tags={tags.LEASE_UNTIL: kept, tags.EXPIRES_AT: over})))
    assert [outcome.verdict.cause for outcome in done.outcomes] == [Cause.OVER_AGE]


def test_the_failure_of_a_sweep_is_of_the_kind_of_the_first_and_counts_all():
    found = account(machine(0), machine(1), machine(2))

    def refuse(one, since):
        if one.id != machine(2).id:
            raise CredentialsError("no right to read metrics", remedy="grant it")
        return quiet(START)

    found.observe = refuse
    error = run(found).error()
    assert isinstance(error, CredentialsError)
    assert str(error) == f"2 machines could not be handled, {machine(0).id} first: no right to read metrics; grant it"
    assert run(account(machine())).error() is None


@pytest.mark.parametrize(("cannot_stop", "how"), [(False, "stop"), (True, "terminate")])
def test_a_spot_machine_that_was_asked_for_once_ends_though_its_spec_says_stop_by_now(cannot_stop, how):
    marks = {tags.IDLE_AFTER: "30m", tags.IDLE_THEN: "stop"}
    one = machine(capacity_type=CapacityType.SPOT, tags=marks, cannot_stop=cannot_stop)
    verdict = decide(one, Evidence("idle", timedelta(hours=20), "quiet"), START)
    assert verdict.ending.how == how
    assert can_stop(one) == (how == "stop")


@pytest.mark.parametrize(("market", "can"), [("on-demand", True), ("capacity-block", False), (None, False)])
def test_what_can_be_stopped_is_known_by_its_market(market, can):
    assert can_stop(machine(capacity_type=market and CapacityType(market))) == can
