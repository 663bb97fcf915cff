"""The node's own end in the sandbox: idle, done, failed, spent, without a lease, never ready, and nothing else."""

from __future__ import annotations

import functools
import json
import random
import sqlite3
import threading
from contextlib import ExitStack, closing, contextmanager, suppress
from datetime import timedelta
from itertools import pairwise

import pytest

from provisioner.clouds.cloud import InstanceState
from provisioner.clouds.sandbox import instances
from provisioner.clouds.sandbox.cloud import SandboxCloud
from provisioner.clouds.sandbox.latencies import Latency
from provisioner.clouds.sandbox.store import FILE_NAME
from provisioner.errors import GpuprovError, UsageError
from provisioner.node.boot import Start, user_data
from provisioner.reaper import evidence
from provisioner.tags import format_time
from tests.clouds.conftest import read_catalog_once, sandbox_aws, tags

RUNNING, STOPPED, TERMINATED = InstanceState.RUNNING, InstanceState.STOPPED, InstanceState.TERMINATED
IDLE_S = 1200
BASE = {"idle_after_s": IDLE_S, "idle_tag": "20m", "gpus": 1, "then": "stop"}
SERVER = {**BASE, "run": True, "ports": [8000], "ready": {"path": "/health", "port": 8000}, "ready_limit_s": 900}
JOB = {**BASE, "run": True, "once": True, "hook": ["./save.sh"]}
QUIET = {"gpu_utilization_percent": [0], "cpu_percent": 1, "network_bytes_per_s": 10, "logins": 0}
MINUTE_US = 60 * 10**6


@functools.cache
def _packed(config: str) -> str:
    known = json.loads(config)
    return user_data(known, Start(argv=["serve"]) if known.get("run") else None)


def packed(config) -> str:
    """User data with a configuration of the watcher."""
    return _packed(json.dumps(config, sort_keys=True))


def start(box, config=BASE, key="token-1", *, idle="20m", **changes):
    """A machine of ours that has come up."""
    given = {"tags": {**tags(), "gpuprov:idle-after": idle}, "user_data": packed(config), "stop_on_shutdown": True}
    return box.running(key, **{**given, **changes})


def last_line(box, machine) -> dict:
    """The last word of a machine's watcher."""
    found = evidence.last_line(box.cloud.read_console(machine.placement, machine.id))
    assert found is not None
    return dict(found)


def state(box, machine) -> InstanceState | None:
    seen = box.see(machine)
    return None if seen is None else seen.state


def billed_us(box, machine) -> int:
    """Microseconds that the machine itself has billed."""
    (line,) = [line for line in box.controls.bill().lines if line.id == machine.id]
    return line.billed_us


def keepalive(box, machine, **duration) -> None:
    until = format_time(box.cloud.now() + timedelta(**duration))
    box.cloud.set_tags(machine.placement, machine.id, {"gpuprov-lease-until": until})


@pytest.mark.parametrize(
    ("stops", "market", "end", "act"),
    [
        (True, "here", STOPPED, "stop"),
        (False, "here", TERMINATED, "terminate"),
        (True, "spot", STOPPED, "stop"),
        (False, "spot", TERMINATED, "terminate"),
    ],
)
def test_an_idle_machine_ends_by_itself_and_its_bill_ends_at_that_second(box, stops, market, end, act):
    made = start(box, placement=getattr(box, market), stop_on_shutdown=stops)
    begun = billed_us(box, made)
    box.controls.set_telemetry(made.id, QUIET)
    box.clock.pass_time(seconds=IDLE_S - 1)
    assert state(box, made) is RUNNING
    assert last_line(box, made)["state"] == "quiet"
    assert last_line(box, made)["ends_in_s"] == 1
    box.clock.pass_time(hours=0.5)
    assert state(box, made) is end
    said = last_line(box, made)
    assert (said["state"], said["act"], said["quiet_s"]) == ("idle", act, IDLE_S)
    assert said["sources"] == {
        "gpu": "idle: at most 0 % on 1",
        "cpu_percent": "idle: 1 %",
        "network_bytes_per_s": "idle: 0 KiB/s",
        "logins": "idle: 0 logins",
    }
    assert billed_us(box, made) - begun == IDLE_S * 10**6
    left = {line.kind for line in box.controls.bill(running_only=True).lines}
    assert left == ({"root-volume"} if end is STOPPED else set())


@pytest.mark.parametrize(
    "signals",
    [
        {**QUIET, "gpu_utilization_percent": [3]},
        {**QUIET, "cpu_percent": 4},
        {**QUIET, "logins": 1},
        {**QUIET, "requests_in_flight": 1},
        {**QUIET, "disk_bytes_per_s": 10**6},
        {**QUIET, "gpu_utilization_percent": [None]},
        {**QUIET, "logins": None},
        {**QUIET, "requests_in_flight": None},
        {"cpu_percent": 0, "logins": 0},
        {**QUIET, "gpu_utilization_percent": [0, 0, 0]},
        {},
    ],
    ids=repr,
)
def test_what_works_or_cannot_be_read_is_never_ended(box, signals):
    config = {**BASE, "gpus": 4}
    made = start(box, config)
    if signals:
        box.controls.set_telemetry(made.id, signals)
    box.clock.pass_time(days=90)
    assert state(box, made) is RUNNING


def test_telemetry_that_goes_silent_is_unknown_and_keeps_the_machine(box):
    made = start(box)
    box.controls.set_telemetry(made.id, QUIET)
    box.clock.pass_time(minutes=19)
    box.controls.clear_telemetry(made.id)
    box.clock.pass_time(days=2)
    assert state(box, made) is RUNNING
    assert last_line(box, made)["state"] == "unknown"


def test_work_in_between_begins_the_window_anew(box):
    made = start(box)
    for busy in (0, 50, 0, 50, 0):
        box.controls.set_telemetry(made.id, {**QUIET, "gpu_utilization_percent": [busy]})
        box.clock.pass_time(minutes=19)
    assert state(box, made) is RUNNING
    box.clock.pass_time(minutes=2)
    assert state(box, made) is STOPPED


def test_a_keepalive_holds_off_the_end_and_the_window_begins_after_it(box):
    made = start(box)
    begun = billed_us(box, made)
    box.controls.set_telemetry(made.id, QUIET)
    box.clock.pass_time(minutes=15)
    keepalive(box, made, hours=1)
    assert last_line(box, made)["sources"]["lease_s"] == "busy: kept for 60 min more"
    box.clock.pass_time(days=1)
    assert state(box, made) is STOPPED
    assert billed_us(box, made) - begun == (15 + 60 + 20) * MINUTE_US


def test_an_edit_of_the_window_reaches_a_live_machine(box):
    made = start(box)
    box.controls.set_telemetry(made.id, QUIET)
    box.cloud.set_tags(box.here, made.id, {"gpuprov:idle-after": "none"})
    box.clock.pass_time(days=3)
    assert state(box, made) is RUNNING
    begun = billed_us(box, made)
    box.cloud.set_tags(box.here, made.id, {"gpuprov:idle-after": "soon"})
    assert state(box, made) is RUNNING
    box.cloud.set_tags(box.here, made.id, {"gpuprov:idle-after": "15m"})
    assert state(box, made) is STOPPED
    assert billed_us(box, made) == begun


def test_a_machine_of_somebody_else_has_no_watcher(box):
    made = start(box, user_data="#!/bin/sh\necho theirs\n")
    box.controls.set_telemetry(made.id, QUIET)
    box.clock.pass_time(days=9)
    assert state(box, made) is RUNNING
    with pytest.raises(UsageError, match="not started with a watcher"):
        box.controls.finish(made.id)


def test_a_start_makes_what_was_seen_unknown_again(box):
    made = start(box)
    box.controls.set_telemetry(made.id, QUIET)
    box.clock.pass_time(minutes=21)
    assert state(box, made) is STOPPED
    box.cloud.start_instance(box.here, made.id)
    box.clock.pass_time(days=1)
    assert state(box, made) is RUNNING
    assert last_line(box, made)["state"] == "unknown"
    box.controls.set_telemetry(made.id, {"cpu_percent": 0})
    box.clock.pass_time(days=1)
    assert state(box, made) is RUNNING
    box.controls.set_telemetry(made.id, QUIET)
    box.clock.pass_time(minutes=21)
    assert state(box, made) is STOPPED


def test_a_server_is_ready_after_its_latency_and_busy_until_then(box):
    box.controls.set_latency(Latency("ready", timedelta(minutes=10)))
    made = start(box, SERVER, idle="auto")
    box.controls.set_telemetry(made.id, QUIET)
    assert last_line(box, made)["sources"]["workload"] == "busy: it starts"
    box.clock.pass_time(minutes=10)
    lines = [json.loads(line) for line in box.cloud.read_console(box.here, made.id) if line.startswith("{")]
    assert [line["state"] for line in lines if "after_s" in line] == ["ready"]
    assert lines[-1]["state"] == "quiet"


def test_auto_waits_as_long_as_a_start_that_was_given_a_time(box):
    box.controls.set_latency(Latency("ready", timedelta(minutes=10)))
    made = start(box, {**SERVER, "idle_tag": "auto", "idle_after_s": 1800}, idle="auto")
    begun = box.cloud.now()
    box.controls.set_telemetry(made.id, QUIET)
    box.clock.pass_time(hours=3)
    assert state(box, made) is STOPPED
    assert last_line(box, made)["quiet_s"] == 600
    assert last_line(box, made)["at"] <= format_time(begun + timedelta(minutes=20))


def test_a_server_that_never_answers_ends_whatever_its_sensors_say(box):
    box.controls.set_latency(Latency("ready", timedelta(hours=10)))
    made, kept = start(box, SERVER), start(box, {**SERVER, "keep_failed": True}, "token-2")
    for machine in (made, kept):
        box.controls.set_telemetry(machine.id, {**QUIET, "gpu_utilization_percent": [90]})
    box.clock.pass_time(hours=1)
    assert state(box, made) is STOPPED
    said = last_line(box, made)
    assert (said["state"], said["why"]) == ("never-ready", "not ready after 900 s")
    assert billed_us(box, made) == 900 * 10**6 + 200_000
    assert state(box, kept) is RUNNING


def test_work_that_is_done_ends_the_machine_at_that_moment(box):
    made = start(box, JOB, stop_on_shutdown=False)
    begun = billed_us(box, made)
    done_at = box.controls.finish(made.id, after=timedelta(hours=5), tail=["saved 4 files"])
    assert done_at == box.cloud.now() + timedelta(hours=5)
    box.clock.pass_time(hours=5, minutes=30)
    assert state(box, made) is TERMINATED
    said = last_line(box, made)
    assert (said["state"], said["act"], said["why"], said["hook"]) == ("done", "terminate", "the work is done", "done")
    assert box.see(made).console[-2] == "saved 4 files"
    assert billed_us(box, made) - begun == 5 * 3600 * 10**6


def test_work_that_fails_is_shown_and_ends_the_machine_after_the_window(box):
    made = start(box, JOB)
    box.controls.set_telemetry(made.id, {"gpu_utilization_percent": 97, "cpu_percent": 40})
    begun = billed_us(box, made)
    box.controls.finish(made.id, 1, tail=["CUDA out of memory"])
    assert last_line(box, made)["tail"] == ["CUDA out of memory"]
    assert last_line(box, made)["sources"]["workload"] == "idle: it has failed"
    box.clock.pass_time(hours=3)
    assert state(box, made) is STOPPED
    said = last_line(box, made)
    assert (said["state"], said["tail"]) == ("idle", ["CUDA out of memory"])
    assert billed_us(box, made) - begun == IDLE_S * 10**6


def test_somebody_who_looks_at_the_failure_keeps_the_machine(box):
    made = start(box, JOB)
    box.controls.set_telemetry(made.id, {"gpu_utilization_percent": [97], "logins": 1})
    box.controls.finish(made.id, 137)
    box.clock.pass_time(hours=9)
    assert state(box, made) is RUNNING
    box.controls.set_telemetry(made.id, {"logins": 0})
    box.clock.pass_time(minutes=21)
    assert state(box, made) is STOPPED


def test_what_cannot_end_is_refused(box):
    bare, server, job = start(box), start(box, SERVER, "token-2"), start(box, JOB, "token-3")
    for machine, code, why in ((bare, 0, "bare machine"), (server, 0, "runs a server")):
        with pytest.raises(UsageError, match=why):
            box.controls.finish(machine.id, code)
    with pytest.raises(UsageError, match="ends within"):
        box.controls.finish(job.id, 0, timedelta(seconds=-1))
    box.controls.finish(job.id, 3)
    with pytest.raises(UsageError, match="has ended already, with 3"):
        box.controls.finish(job.id)
    box.cloud.stop_instance(box.here, bare.id)
    box.wait()
    with pytest.raises(UsageError, match="is stopped: nothing runs on it"):
        box.controls.finish(bare.id)


def test_spend_counts_what_has_run_over_all_starts(box):
    made = start(box, {**BASE, "spend_s": 7200, "idle_after_s": None}, idle="none")
    up_us = billed_us(box, made)
    box.clock.pass_time(hours=1)
    box.cloud.stop_instance(box.here, made.id)
    box.clock.pass_time(days=1)
    assert state(box, made) is STOPPED
    box.cloud.start_instance(box.here, made.id)
    box.clock.pass_time(days=1)
    assert state(box, made) is STOPPED
    said = last_line(box, made)
    assert (said["state"], said["why"]) == ("dead-man", "its max_spend is used up after 2.0 h")
    # Two boots of 200 ms and a stop of 100 ms bill too; the switch counts the system's uptime.
    assert abs(billed_us(box, made) - 2 * 3600 * 10**6) <= 500_000 + up_us
    box.cloud.start_instance(box.here, made.id)
    box.clock.pass_time(minutes=9)
    assert state(box, made) is RUNNING
    box.clock.pass_time(minutes=2)
    assert state(box, made) is STOPPED


def test_a_lease_that_is_not_renewed_ends_the_machine(box):
    made = start(box, {**BASE, "lease_s": 3600})
    begun = box.cloud.now()
    box.controls.set_telemetry(made.id, {**QUIET, "gpu_utilization_percent": [90]})
    box.clock.pass_time(minutes=50)
    keepalive(box, made, hours=2)
    box.clock.pass_time(days=1)
    assert state(box, made) is STOPPED
    said = last_line(box, made)
    assert (said["state"], said["why"]) == ("dead-man", "its lease was not renewed")
    assert format_time(begun + timedelta(hours=2, minutes=50)) >= said["at"]
    assert said["at"] >= format_time(begun + timedelta(hours=2, minutes=49))


def test_a_keepalive_is_no_lease_where_none_is_asked_for(box):
    made = start(box, {**BASE, "idle_after_s": None}, idle="none")
    box.controls.set_telemetry(made.id, QUIET)
    keepalive(box, made, hours=1)
    box.clock.pass_time(days=400)
    assert state(box, made) is RUNNING


def test_a_steady_endpoint_never_ends(box):
    made = start(box, {**SERVER, "idle_after_s": None, "idle_tag": "none"}, idle="none")
    box.controls.set_telemetry(made.id, QUIET)
    box.clock.pass_time(days=3650)
    assert state(box, made) is RUNNING
    assert last_line(box, made)["state"] == "idle"


def test_the_earliest_of_several_ends_is_the_one(box):
    config = {**JOB, "lease_s": 7200, "spend_s": 10_000}
    late = {"gpuprov:expires-at": format_time(box.cloud.now() + timedelta(hours=9)), "gpuprov:idle-after": "20m"}
    idle = start(box, config, tags={**tags(), **late})
    done, leased = start(box, config, "token-2"), start(box, config, "token-3")
    spent = start(box, {**config, "spend_s": 600}, "token-4")
    early = {**late, "gpuprov:expires-at": format_time(box.cloud.now() + timedelta(minutes=1))}
    aged = start(box, config, "token-5", tags={**tags(), **early})
    for machine in (idle, spent, aged):
        box.controls.set_telemetry(machine.id, QUIET)
    box.controls.finish(done.id, after=timedelta(minutes=30))
    box.clock.pass_time(days=30)
    ends = [
        (last_line(box, made)["state"], last_line(box, made)["why"][:12]) for made in (idle, done, leased, spent, aged)
    ]
    assert ends == [
        ("idle", "stuck, not f"),
        ("done", "the work is "),
        ("dead-man", "its lease wa"),
        ("dead-man", "its max_spen"),
        ("dead-man", "its lifetime"),
    ]


def test_a_dead_watcher_ends_nothing_and_a_revived_one_ends_what_is_overdue(box):
    soon = format_time(box.cloud.now() + timedelta(hours=1))
    made = start(
        box, {**BASE, "lease_s": 600}, tags={**tags(), "gpuprov:idle-after": "20m", "gpuprov:expires-at": soon}
    )
    box.controls.kill_watcher(made.id)
    box.controls.set_telemetry(made.id, QUIET)
    box.clock.pass_time(days=2)
    assert state(box, made) is RUNNING
    assert not any('"gpuprov"' in line for line in box.cloud.read_console(box.here, made.id))
    before = billed_us(box, made)
    box.controls.heal(made.id)
    assert state(box, made) is STOPPED
    assert billed_us(box, made) == before


def test_a_stop_and_start_brings_a_dead_watcher_back(box):
    made = start(box)
    box.controls.kill_watcher(made.id)
    box.cloud.stop_instance(box.here, made.id)
    box.wait()
    box.cloud.start_instance(box.here, made.id)
    box.wait()
    box.controls.set_telemetry(made.id, QUIET)
    box.clock.pass_time(minutes=21)
    assert state(box, made) is STOPPED


CONFIGS = (
    BASE,
    SERVER,
    JOB,
    {**SERVER, "idle_tag": "auto"},
    {**JOB, "lease_s": 3600},
    {**BASE, "spend_s": 5400},
    {**SERVER, "idle_after_s": None, "idle_tag": "none", "lease_s": 1800},
)


class History:
    """Things that happen to some machines at fixed moments, the same for the same seed, however time passes in between."""

    def __init__(self, box, seed: int) -> None:
        self.box, self.chance = box, random.Random(seed)
        box.controls.set_latency(Latency("ready", timedelta(seconds=self.chance.choice([0.3, 400, 2000]))))
        self.made = []
        for number, config in enumerate(CONFIGS):
            ends = self.chance.choice(
                ["none", format_time(box.cloud.now() + timedelta(hours=self.chance.uniform(1, 6)))]
            )
            own = {**tags(expires_at=ends), "gpuprov:idle-after": config["idle_tag"]}
            place = self.chance.choice([box.here, box.here, box.spot])
            stops = self.chance.random() < 0.7
            self.made.append(start(box, config, f"token-{number}", tags=own, placement=place, stop_on_shutdown=stops))

    def happen(self) -> None:
        """One thing, refused or not: which of them it is depends on the seed alone."""
        made, roll, number = self.chance.choice(self.made), self.chance.randrange(10), self.chance.random()
        box, place = self.box, made.placement
        level = 0 if number < 0.7 else 60
        actions = {
            0: lambda: box.controls.clear_telemetry(made.id),
            1: lambda: keepalive(box, made, minutes=5 + 60 * number),
            2: lambda: box.controls.finish(made.id, number > 0.6, timedelta(minutes=90 * number)),
            3: lambda: box.cloud.start_instance(place, made.id),
            4: lambda: box.cloud.set_tags(place, made.id, {"gpuprov:idle-after": random.Random(number).choice(["5m", "1h", "none"])}),
            5: lambda: box.controls.reclaim(made.id) if number < 0.3 else box.cloud.stop_instance(place, made.id),
            6: lambda: box.controls.kill_watcher(made.id) if number < 0.3 else box.controls.heal(made.id),
        }  # fmt: skip
        sensed = {**QUIET, "gpu_utilization_percent": [level]}
        with suppress(GpuprovError):  # what makes no sense just then is refused, and in each telling alike
            actions.get(roll, lambda: box.controls.set_telemetry(made.id, sensed))()


def books(box) -> list[tuple[object, ...]]:
    """Everything that the file holds of machines."""
    with closing(sqlite3.connect(box.home / FILE_NAME)) as file:
        return [
            row
            for table in ("instances", "spans", "telemetry", "console")
            for row in file.execute(f"SELECT * FROM {table} ORDER BY {ORDER.get(table, 'seq')}")  # noqa: S608 - fixed names
        ]


ORDER = {"console": "instance_id, at_us, seq"}
"""Lines of different machines come in the order in which their machines are looked at."""


@pytest.fixture
def worlds(home, monkeypatch):
    """Makes sandboxes whose ids depend on names alone, so that two of one history are equal to the byte."""
    monkeypatch.setattr(instances, "new_id", lambda cloud, kind, name: f"{kind}-{name}")
    with ExitStack() as opened:
        yield lambda name: opened.enter_context(contextmanager(sandbox_aws)(home / name))


@pytest.mark.parametrize("seed", range(4))
def test_one_jump_of_the_clock_and_many_small_steps_end_alike(worlds, seed):
    told = []
    for name in ("jump", "steps"):
        box, cuts = worlds(name), random.Random(seed + 1000)
        life = History(box, seed)
        for _ in range(14):
            gap_s = life.chance.choice([0, 1, 61.5, 600, 3600, 7 * 3600])
            steps = [gap_s] if name == "jump" else parts(cuts, gap_s)
            for step_s in steps:
                box.clock.pass_time(seconds=step_s)
                if name == "steps":
                    look_at_everything(box, life.made)
            life.happen()
        box.controls.advance_clock(timedelta(days=2))
        rows = books(box)
        told.append([row[1:] if len(row) == 4 else row for row in rows])  # a line's number is of all machines together
    assert told[0] == told[1]


def parts(chance: random.Random, whole_s: float) -> list[float]:
    """A time in parts of whole microseconds."""
    whole_us = round(whole_s * 10**6)
    cuts = sorted(chance.randint(0, whole_us) for _ in range(chance.randint(0, 6)))
    return [(end - begin) / 10**6 for begin, end in pairwise([0, *cuts, whole_us])]


def look_at_everything(box, made) -> None:
    """Reads, twice: none of them may change what follows."""
    for _ in range(2):
        box.cloud.list_objects()
        box.controls.bill()
        for one in made:
            box.cloud.read_console(one.placement, one.id)


def test_several_processes_settle_a_machine_once(worlds):
    told = []
    for name, hands in (("one", 1), ("many", 4)):
        box = worlds(name)
        for number, config in enumerate(CONFIGS):
            made = start(box, config, f"token-{number}", idle=config["idle_tag"])
            box.controls.set_telemetry(made.id, QUIET)
        box.clock.pass_time(hours=9)
        clouds = [SandboxCloud(box.home, host=box.clock.host, catalog=read_catalog_once) for _ in range(hands)]
        threads = [threading.Thread(target=cloud.list_objects) for cloud in clouds]
        for thread in threads:
            thread.start()
        for thread, cloud in zip(threads, clouds, strict=True):
            thread.join()
            cloud.close()
        told.append(books(box))
    assert told[0] == told[1]
    ends = [json.loads(row[3])["state"] for row in told[0] if len(row) == 4 and '"act"' in str(row[3])]
    assert len(ends) == len(CONFIGS)


def test_a_file_of_version_2_keeps_its_ready_machines_ready(box):
    made = start(box, SERVER)
    box.controls.set_telemetry(made.id, {}, console="hello")
    box.cloud.close()
    with closing(sqlite3.connect(box.home / FILE_NAME)) as file:
        file.execute("DELETE FROM console WHERE line LIKE '{%'")
        old = json.dumps({"write_files": [{"content": json.dumps(SERVER)}]})
        file.execute("UPDATE instances SET user_data = ?", (old,))
        file.execute("ALTER TABLE instances DROP COLUMN node")
        file.execute("PRAGMA user_version=2")
        file.commit()
    said = last_line(box, made)
    assert (said["state"], said["at"]) == ("ready", format_time(made.created_at + timedelta(milliseconds=200)))
    box.controls.set_telemetry(made.id, QUIET)
    box.clock.pass_time(days=1)
    assert state(box, made) is RUNNING
