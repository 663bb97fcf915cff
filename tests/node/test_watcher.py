"""The watcher on a made-up machine: each row of the reports on idleness, by its id."""

from __future__ import annotations

import struct
from datetime import UTC, datetime, timedelta
from http.client import BadStatusLine

import pytest

from provisioner.node import bundle, watcher
from provisioner.node.drain import CAUSE_TAG, DRAIN_TAG, OVER_AGE
from provisioner.node.idleness import Rules
from provisioner.node.sensors import Machine
from provisioner.node.watcher import GLANCE_S, HOOK_S
from provisioner.tags import format_time

LAPTOP = "0A0B0C0D"
ACTIVE = "ActiveState=active\nSubState=running\nResult=success\nExecMainCode=0\n"
FINISHED = "ActiveState=inactive\nSubState=dead\nResult=success\nExecMainCode=1\n"
FAILED = "ActiveState=failed\nSubState=failed\nResult=exit-code\nExecMainCode=1\n"
VLLM = (
    'vllm:num_requests_running{{model_name="m"}} {running}\nvllm:num_requests_waiting{{model_name="m"}} {waiting}\n'
    'vllm:generation_tokens_total{{model_name="m"}} {tokens}\nvllm:request_success_total{{reason="stop"}} {requests}\n'
)


def login(bench, *lines: str) -> None:
    """Logins as utmp holds them, each with its terminal."""
    records = [struct.pack("<hxxi32s", 7, 100, line.encode()).ljust(384, b"\0") for line in lines]
    (bench.rig.folder / "run/utmp").write_bytes(b"".join(records))
    for line in lines:
        (bench.rig.folder / "dev" / line).touch()


def serve(bench, **counters: float) -> None:
    """Engine counters as vLLM shows them."""
    values = {"running": 0, "waiting": 0, "tokens": 0, "requests": 0} | counters
    bench.rig.metadata.pages["/metrics"] = VLLM.format(**values)


def serving(make_bench, **config):
    """A machine with a serving port: the metadata service's own, which answers engine pages too."""
    bench = make_bench(ports=[1], **config)
    bench.node.machine.ports = (bench.rig.metadata.port,)
    return bench


def test_an_idle_machine_ends_by_itself_after_its_window_and_says_why(make_bench):
    bench = make_bench()
    states = bench.looks(8)
    assert states[:2] == ["unknown", "quiet"]  # rates need two readings
    assert "off" in states
    assert states.index("off") == 5
    assert bench.rig.is_off
    last = bench.rig.lines[-1]
    assert (last["state"], last["act"]) == ("idle", "terminate")
    assert last["sources"]["gpu"].startswith("idle:")


@pytest.mark.parametrize(
    ("tag", "is_spot", "says"),
    [("stop", False, "stop"), (None, False, "terminate"), ("stop", True, "terminate")],
)
def test_the_end_is_told_as_an_edit_of_idle_then_has_left_it(make_bench, tag, is_spot, says):
    bench = make_bench(spot=is_spot)
    if tag:
        bench.rig.metadata.tags["gpuprov:idle-then"] = tag
    bench.node.end("its time is over", "dead-man")
    assert bench.rig.lines[-1]["act"] == says
    assert bench.rig.is_off


def test_an_end_waits_for_no_metadata_service(make_bench):
    bench = make_bench()
    bench.rig.metadata.is_up = False
    bench.node.end("its time is over", "dead-man")
    assert bench.rig.lines[-1]["act"] == "terminate"
    assert bench.rig.is_off


def test_i1_a_login_that_opens_after_the_watcher_began_counts_on_the_next_look(make_bench):
    bench = make_bench()
    assert bench.looks(4)[-1] == "quiet"
    login(bench, "pts/0")
    bench.rig.flow(connections=((22, LAPTOP),))
    decision = bench.look()
    assert decision.state == "busy"
    assert "logins" in decision.reason


def test_i2_e22_a_notebook_server_without_people_is_idle_and_a_running_cell_is_not(make_bench):
    bench = make_bench()
    bench.rig.gpu(0, watts=110)
    for _ in range(3):
        bench.rig.flow(cpu_us=300_000)  # 0.01 cores
        assert bench.look().state in {"unknown", "quiet"}
    bench.rig.flow(cpu_us=29_000_000)
    assert bench.look().state == "busy"
    for _ in range(4):
        bench.rig.flow(cpu_us=300_000)
        bench.look()
    bench.rig.flow(cpu_us=300_000)
    assert bench.looks(1) == ["off"]


def test_i3_a_hung_training_is_ended_as_stuck_not_as_finished(make_bench):
    bench = make_bench(run=True)
    bench.rig.write("unit", ACTIVE)
    assert "off" in bench.looks(7)
    assert bench.rig.lines[-1]["why"].startswith("stuck, not finished")


def test_i5_one_gpu_of_eight_keeps_the_machine_and_none_does_not(make_bench):
    bench = make_bench(gpus=8)
    bench.rig.gpu(35, *[0] * 7)
    assert set(bench.looks(7)) <= {"busy"}
    bench.rig.gpu(*[0] * 8)
    assert "off" in bench.looks(7)


def test_i6_a_spinning_wait_is_a_suspected_stall_and_neither_busy_nor_idle(make_bench):
    bench = make_bench()
    bench.looks(2)
    bench.rig.gpu(100, watts=72)
    decisions = [bench.look() for _ in range(7)]
    assert {decision.state for decision in decisions} == {"unknown"}
    assert decisions[-1].findings[0].startswith("suspected stall")
    bench.rig.gpu(100, watts=640, traffic=40)
    assert bench.look().state == "busy"


def test_i7_a_reboot_keeps_the_deadline(make_rig):
    rig = make_rig(lifetime_s=300)
    assert not rig.tick()
    rig.pass_time(150)
    assert not rig.tick()
    rig.boot("boot-2")
    assert not rig.tick()
    rig.pass_time(130)
    assert rig.tick()
    assert "lifetime" in rig.lines[-1]["why"]


def test_i10_work_that_starts_a_second_before_the_end_is_not_killed(make_bench):
    bench = make_bench()
    assert bench.looks(5)[-1] == "quiet"
    bench.rig.gpu(80, watts=500)
    assert set(bench.looks(3)) == {"busy"}
    assert not bench.rig.is_off


def test_i11_e27_nothing_outside_and_no_credentials_are_needed(make_rig):
    rig = make_rig(lifetime_s=120, lease_s=90)
    rig.metadata.is_up = False
    assert not rig.tick()
    rig.pass_time(61)
    assert rig.tick()
    assert any(call.startswith("systemctl poweroff") for call in rig.calls)
    assert "AWS_" not in bundle.watcher_source(), "packed, it would show no word"


def test_i15_cpu_work_beside_an_unused_gpu_is_busy_unless_the_spec_says_gpu_only(make_bench):
    bench = make_bench()
    bench.looks(1)
    for _ in range(6):
        bench.rig.flow(cpu_us=24_000_000)
        assert bench.look().state == "busy"
    bench.rules = bench.watch.rules = type(bench.watch.rules)(120, 30, gpu_only=True)
    for _ in range(6):
        bench.rig.flow(cpu_us=24_000_000)
        bench.look()
    assert bench.rig.is_off
    assert "gpu: at most 0 %" in bench.rig.lines[-1]["why"]


def test_an_unused_gpu_beside_a_working_cpu_is_told_after_an_hour(make_bench):
    bench = make_bench()
    for _ in range(123):
        bench.rig.flow(cpu_us=24_000_000)
        decision = bench.look()
    assert any(finding.startswith("GPU unused for") for finding in decision.findings)


def test_e20_e23_hours_of_cpu_work_without_a_gpu_are_busy(make_bench):
    bench = make_bench()
    bench.looks(1)
    states = set()
    for _ in range(20):
        bench.rig.flow(cpu_us=30_000_000)
        states.add(bench.look().state)
    assert states == {"busy"}


def test_e24_mig_and_not_available_are_unknown_not_zero(make_bench):
    bench = make_bench()
    bench.rig.gpu("[N/A]", mig="Enabled")
    assert set(bench.looks(8)) == {"unknown"}
    bench.rig.gpu("[Not Supported]")
    assert set(bench.looks(8)) == {"unknown"}


def test_e26_a_request_between_the_decision_and_the_end_cancels_it(make_bench):
    bench = serving(make_bench)
    serve(bench)
    assert bench.looks(5)[-1] == "quiet"
    pages = bench.rig.metadata.pages
    # The drain's first act lets a request through: its look must see it.
    real = bench.node.machine.read
    reads = []

    def read(at_s):
        reads.append(at_s)
        if len(reads) == 2:
            pages["/metrics"] = VLLM.format(running=1, waiting=0, tokens=5, requests=0)
        return real(at_s)

    bench.node.machine.read = read
    bench.look()
    assert not bench.rig.is_off
    assert bench.rig.lines[-1]["act"] == "cancelled"
    assert not (bench.node.state / "draining").exists()


def test_requests_show_as_tokens_per_second_and_load(make_bench):
    bench = serving(make_bench)
    serve(bench, tokens=1000, requests=1)
    bench.looks(2)
    serve(bench, running=3, waiting=2, tokens=4000, requests=9)
    decision = bench.look()
    assert (decision.running, decision.waiting, decision.tokens_per_s) == (3, 2, 100.0)
    assert decision.state == "busy"
    said = bench.rig.lines[-1]
    assert (said["tokens_per_s"], said["running"], said["waiting"]) == (100.0, 3, 2)


def test_an_engine_that_answers_nonsense_is_unknown(make_bench):
    bench = serving(make_bench)
    serve(bench)
    bench.looks(2)
    bench.rig.metadata.pages["/metrics"] = "vllm:num_requests_running NaN\n"
    assert set(bench.looks(6)) == {"unknown"}


def test_a_server_without_counters_is_judged_by_its_connections(make_bench):
    bench = serving(make_bench)
    port = bench.rig.metadata.port
    bench.rig.flow(connections=((port, LAPTOP),))
    assert set(bench.looks(6)[1:]) == {"busy"}
    bench.rig.flow(connections=((port, "0100007F"),))  # a probe of this machine's own
    assert "off" in bench.looks(7)


def test_an_image_queue_is_read_as_requests(make_bench):
    bench = serving(make_bench)
    bench.rig.metadata.pages["/queue"] = '{"queue_running": [[1]], "queue_pending": [[2], [3]]}'
    decision = [bench.look(), bench.look()][-1]
    assert (decision.running, decision.waiting) == (1, 2)


def test_a_forgotten_login_ends_counting_after_hours_and_a_quiet_one_does_not(make_bench):
    bench = make_bench()
    login(bench, "pts/0")
    bench.rig.flow(connections=((22, LAPTOP),))
    assert set(bench.looks(3)) <= {"busy", "unknown"}
    for _ in range(8):
        bench.look(30)
    assert not bench.rig.is_off
    bench.watch.node.machine.terminals["pts/0"] = (bench.node.machine.terminals["pts/0"][0], -20_000.0)
    assert "off" in bench.looks(7)


def test_a_remote_editor_without_a_terminal_is_a_login(make_bench):
    bench = make_bench()
    bench.rig.flow(connections=((22, LAPTOP),))
    bench.look()
    assert set(bench.looks(6)) == {"busy"}


def test_a_keepalive_holds_the_machine_and_then_lets_go(make_bench):
    bench = make_bench()
    until = datetime.fromtimestamp(bench.rig.metadata.now_s, UTC) + timedelta(minutes=4)
    bench.rig.metadata.tags["gpuprov-lease-until"] = until.isoformat()
    states = []
    for _ in range(22):
        assert not bench.rig.tick()
        states.append(bench.looks(1)[0])
        if states[-1] == "off":
            break
    assert states[6] == "busy"
    assert states[-1] == "off"


def test_a_suspended_machine_starts_its_window_anew(make_bench):
    bench = make_bench()
    bench.looks(4)
    assert bench.look(7200).quiet_s == 0
    assert bench.looks(2) == ["quiet", "quiet"]


def test_work_that_is_done_ends_the_machine_at_once(make_bench):
    bench = make_bench(run=True, once=True, hook=["touch", "saved"], idle_after_s=3600)
    bench.rig.write("unit", ACTIVE)
    bench.look()
    bench.rig.write("unit", FINISHED)
    assert bench.look() is None
    assert bench.rig.lines[-1]["state"] == "done"
    assert bench.rig.lines[-1]["hook"] == "done"
    assert bench.rig.is_off


def test_a_failed_workload_ends_the_machine_after_the_window(make_bench):
    bench = make_bench(run=True, once=True)
    bench.rig.write("unit", FAILED)
    assert bench.looks(7).index("off") == 5
    shown = [line for line in bench.rig.lines if line["state"] in ("quiet", "idle")]
    assert len(shown) >= 2
    assert {tuple(line["tail"]) for line in shown} == {("last line of the workload",)}


def test_a_machine_that_never_answers_is_ended_whatever_its_sensors_say(make_bench):
    bench = make_bench(run=True, ready={"path": "/health", "port": 1}, ready_limit_s=90, idle_after_s=None)
    bench.rig.write("unit", ACTIVE)
    bench.rig.gpu(90, watts=500)
    assert bench.looks(5)[-1] == "off"
    said = bench.rig.lines[-1]
    assert said["state"] == "never-ready"
    assert said["tail"] == ["last line of the workload"]


def test_x4_a_machine_whose_gpu_never_shows_is_ended_at_the_limit_of_its_start(make_bench):
    bench = make_bench(run=True, ready={"path": "/health", "port": 1}, ready_limit_s=90, idle_after_s=None)
    bench.rig.write("smi-fails", "")
    bench.rig.write("unit", FAILED)
    assert bench.looks(5)[-1] == "off"
    assert bench.rig.lines[-1]["state"] == "never-ready"


def test_keep_failed_keeps_it(make_bench):
    bench = make_bench(run=True, ready={"port": 1}, ready_limit_s=90, keep_failed=True)
    bench.rig.write("unit", ACTIVE)
    bench.rig.gpu(90, watts=500)
    assert "off" not in bench.looks(5)


def test_readiness_is_told_once_and_lasts_over_a_killed_watcher(make_bench):
    bench = make_bench(run=True, ready_limit_s=90)
    bench.rig.config["ready"] = {"path": "/health", "port": bench.rig.metadata.port}
    bench.rig.write("unit", ACTIVE)
    assert bench.look().state in {"busy", "unknown"}
    bench.rig.metadata.pages["/health"] = "ok"
    bench.looks(2)
    assert [line["state"] for line in bench.rig.lines].count("ready") == 1
    assert (bench.node.state / "ready").exists()


def test_p18_an_interruption_notice_runs_the_hook_once_within_the_notice(make_bench):
    bench = make_bench(hook=["sh", "-c", "echo run >> $RIG/hook"])
    bench.rig.metadata.action = "terminate"
    bench.looks(3)
    assert (bench.rig.folder / "hook").read_text() == "run\n"
    assert [line.get("hook") for line in bench.rig.lines] == [None, "done"]


def test_an_interruption_during_a_drain_runs_the_hook_at_once_and_once(make_bench, monkeypatch):
    """The drain of a machine whose time is over waits for work in flight, up to longer than the notice lasts."""
    bench = make_bench(hook=["sh", "-c", "echo run >> $RIG/hook"])
    bench.rig.gpu(90, watts=500)
    told_at = iter(["", "", "terminate"])

    def pause() -> None:
        bench.rig.metadata.action = next(told_at)

    monkeypatch.setattr(bench.watch.listener, "pause", pause)
    bench.rig.metadata.tags |= {DRAIN_TAG: format_time(datetime.fromtimestamp(bench.rig.metadata.now_s, UTC))}
    bench.rig.metadata.tags |= {CAUSE_TAG: OVER_AGE}
    bench.watch.glance()
    assert list(told_at) == [], "three pauses, and no more"
    assert (bench.rig.folder / "hook").read_text() == "run\n"
    assert [line["state"] for line in bench.rig.lines] == ["interrupted", "interrupted", "drained"]


def test_x3_a_rebalance_recommendation_alone_drains_nothing(make_bench):
    """Reference: aws/aws-node-termination-handler#141, 21 of 36 machines with a recommendation were never taken back."""
    bench = make_bench(hook=["sh", "-c", "echo run >> $RIG/hook"], idle_after_s=None)
    page = "/latest/meta-data/events/recommendations/rebalance"
    bench.rig.metadata.pages[page] = '{"noticeTime": "2026-11-30T12:00:00Z"}'
    bench.rig.gpu(80, watts=500)
    assert set(bench.looks(6)) <= {"unknown", "busy"}
    assert not (bench.rig.folder / "hook").exists()
    assert not bench.rig.is_off
    assert "interrupted" not in [line["state"] for line in bench.rig.lines]


@pytest.mark.parametrize(("start_s", "waits_s"), [(40, 300), (900, 900), (9000, 3600)])
def test_a_measured_start_takes_the_place_of_the_predicted_one(make_bench, start_s, waits_s):
    bench = make_bench(run=True, idle_tag="auto", idle_after_s=1200, ready_limit_s=99_999)
    bench.rig.config["ready"] = {"path": "/health", "port": bench.rig.metadata.port}
    bench.rig.write("unit", ACTIVE)
    bench.look()
    assert bench.rig.lines[-1]["idle_after_s"] == 1200
    bench.rig.metadata.pages["/health"] = "ok"
    bench.rig.now_s = float(start_s) - 30
    bench.look()
    assert bench.watch.rules.window_s == waits_s
    again = type(bench.watch)(bench.node, Rules(1200.0))
    bench.watch = again
    watcher.watch(bench.node, looks=1)
    assert bench.rig.lines[-1]["idle_after_s"] == waits_s


def test_a_stated_wait_stays_what_it_is(make_bench):
    bench = make_bench(run=True, idle_after_s=1200, ready_limit_s=99_999)
    bench.rig.config["ready"] = {"path": "/health", "port": bench.rig.metadata.port}
    bench.rig.metadata.pages["/health"] = "ok"
    bench.rig.write("unit", ACTIVE)
    bench.look()
    assert bench.watch.rules.window_s == 1200


def test_a_hook_that_hangs_is_cut_at_its_limit(make_bench):
    bench = make_bench(hook=["sleep", "60"])
    assert bench.node.hook(1.0) is False


def test_a_broken_watcher_look_is_told_and_the_next_one_goes_on(make_bench, monkeypatch):

    bench = make_bench()
    calls = []

    def read(self, at_s):
        calls.append(at_s)
        raise RuntimeError("a sensor library broke")

    monkeypatch.setattr(watcher.Machine, "read", read)
    watcher.watch(bench.node, looks=2)
    assert len(calls) == 2
    assert bench.rig.lines[-1]["state"] == "unknown"


def test_the_hook_runs_at_a_shutdown_from_outside_and_not_twice_in_a_row(make_bench):
    bench = make_bench(hook=["sh", "-c", "echo run >> $RIG/hook"])
    bench.node.leave()
    assert bench.rig.lines[-1]["state"] == "leaving"
    assert bench.rig.lines[-1]["hook"] == "done"
    bench.rig.pass_time(60)
    bench.rig.environment()
    bench.node.leave()
    assert (bench.rig.folder / "hook").read_text() == "run\n"
    bench.rig.pass_time(600)
    bench.rig.environment()
    bench.node.leave()
    assert (bench.rig.folder / "hook").read_text() == "run\nrun\n", "that checkpoint is an old one by now"
    bench.rig.boot("boot-2")
    bench.rig.environment()
    bench.node.leave()
    assert (bench.rig.folder / "hook").read_text().count("run") == 3


def test_an_end_by_the_machine_itself_runs_the_hook_once_though_the_system_goes_down_after_it(make_bench):
    bench = make_bench(hook=["sh", "-c", "echo run >> $RIG/hook"])
    bench.node.end("idle", "idle")
    bench.node.leave()
    assert (bench.rig.folder / "hook").read_text() == "run\n"


def asked(bench, value: str, cause: str = "idle") -> list[dict]:
    """Lines that follow a request from outside."""
    before = len(bench.rig.lines)
    bench.rig.metadata.tags.update({"gpuprov-reap-drain": value, "gpuprov-reap-for": cause})
    bench.rig.pass_time(5)
    bench.rig.environment()
    bench.watch.glance()
    return bench.rig.lines[before:]


def hour(bench) -> str:
    """The host's time, which names a request."""
    return datetime.fromtimestamp(bench.rig.metadata.now_s, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def rules_of(bench) -> list[str]:
    """What was done to the door since the watcher began, which opens it."""
    first, *others = [call.split()[1] for call in bench.rig.calls if call.startswith("iptables")]
    assert first == "-D"
    return others


def test_a_request_to_drain_closes_the_door_runs_the_hook_and_is_answered_once(make_bench):
    bench = serving(make_bench, hook=["touch", "saved"], idle_after_s=3600)
    serve(bench)
    bench.looks(4)
    request = hour(bench)
    (said,) = asked(bench, request)
    assert (said["state"], said["request"], said["hook"]) == ("drained", request, "done")
    assert rules_of(bench) == ["-I"]
    assert asked(bench, request) == []
    assert bench.looks(200)[-1] != "off", "who asked ends it; the machine does not do it a second time"


def test_a_request_that_arrives_cancels_the_end_from_outside(make_bench):
    bench = serving(make_bench, idle_after_s=3600)
    serve(bench)
    bench.looks(4)
    serve(bench, requests=1, tokens=40)
    (said,) = asked(bench, hour(bench))
    assert (said["state"], said["act"]) == ("busy", "cancelled")
    assert "-D" in rules_of(bench)
    assert not (bench.node.state / "draining").exists()


def test_a_machine_past_its_time_lets_work_finish_and_is_drained_all_the_same(make_bench):
    bench = serving(make_bench, idle_after_s=3600)
    serve(bench)
    bench.looks(4)
    serve(bench, running=1)
    (said,) = asked(bench, hour(bench), "over-age")
    assert said["state"] == "drained"
    assert rules_of(bench) == ["-I"]


def test_a_door_that_nobody_came_through_opens_again(make_bench):
    bench = serving(make_bench, idle_after_s=3600)
    serve(bench)
    bench.looks(4)
    asked(bench, hour(bench))
    (said,) = asked(bench, "none")
    assert (said["state"], said["why"]) == ("busy", "the end was taken back")
    request = hour(bench)
    asked(bench, request)
    bench.rig.pass_time(900)
    (said,) = asked(bench, request)
    assert said["why"] == "nobody ended the machine"
    assert rules_of(bench) == ["-I", "-D", "-I", "-D"]


def test_a_watcher_that_starts_opens_a_door_that_its_forerunner_had_closed(make_bench):
    bench = serving(make_bench, idle_after_s=3600)
    serve(bench)
    bench.looks(4)
    asked(bench, hour(bench))
    assert (bench.node.state / "draining").exists()
    type(bench.watch)(bench.node, bench.watch.rules)
    assert not (bench.node.state / "draining").exists()


def test_a_notice_between_two_looks_runs_the_hook(make_bench):
    bench = make_bench(hook=["sh", "-c", "echo run >> $RIG/hook"], spot=True)
    bench.look()
    bench.rig.metadata.action = "terminate"
    bench.watch.glance()
    assert (bench.rig.folder / "hook").read_text() == "run\n"
    assert GLANCE_S + HOOK_S < 120 - 10, "EC2 gives two minutes"


def test_an_edit_of_the_idle_time_reaches_a_live_machine_by_its_tag(make_bench):
    bench = make_bench(idle_after_s=120, idle_tag="2m")
    bench.rig.metadata.tags["gpuprov:idle-after"] = "10m"
    bench.watch.glance()
    assert "off" not in bench.looks(15)
    bench.rig.metadata.tags["gpuprov:idle-after"] = "three weeks"
    bench.watch.glance()
    assert bench.watch.after_s == 600
    bench.rig.metadata.tags["gpuprov:idle-after"] = "none"
    bench.watch.glance()
    assert "off" not in bench.looks(30)
    bench.rig.metadata.tags["gpuprov:idle-after"] = "2m"
    bench.watch.glance()
    assert bench.look() is None
    assert bench.rig.is_off


def test_the_idle_time_that_was_predicted_stays_while_the_spec_says_auto(make_bench):
    bench = make_bench(idle_after_s=420, idle_tag="auto")
    bench.rig.metadata.tags["gpuprov:idle-after"] = "auto"
    bench.watch.glance()
    assert bench.watch.after_s == 420


def test_a_request_of_the_life_before_a_stop_is_none(make_bench):
    bench = serving(make_bench, idle_after_s=3600)
    serve(bench)
    bench.looks(4)
    stale = hour(bench)
    bench.rig.pass_time(7200)
    assert asked(bench, stale) == []
    assert rules_of(bench) == []


def test_a_data_disk_that_grew_is_filled_under_the_workload_and_a_failure_is_told(make_bench):
    bench = make_bench()
    rig = bench.rig
    rig.tool("resize2fs", '#!/bin/sh\necho "resize2fs $*" >> "$RIG/calls"\n[ ! -e "$RIG/refuses" ]\n')
    disks = rig.folder / "dev"
    rig.write("proc/mounts", f"{disks}/nvme1n1 /data ext4 rw 0 0\n{disks}/nvme2n1p1 /other ext4 rw 0 0\n")
    links = disks / "disk/by-label"
    links.mkdir(parents=True)
    for number, name in enumerate(("data", "checkpoints"), 1):  # the second is not mounted: the boot script has it
        rig.write(f"dev/nvme{number}n1", "")
        (links / f"gpuprov-{name}").symlink_to(disks / f"nvme{number}n1")
    bench.watch.grow()
    assert [call for call in rig.calls if call.startswith("resize2fs")] == [f"resize2fs {links}/gpuprov-data"]
    assert rig.lines == []
    (rig.folder / "refuses").touch()
    bench.watch.grow()
    assert rig.lines[-1]["why"] == f"{links}/gpuprov-data cannot grow"


def test_a_machine_without_data_disks_grows_nothing(make_bench):
    bench = make_bench()
    bench.watch.grow()
    assert bench.rig.calls == []


def test_a_watcher_that_begins_opens_a_door_that_a_killed_one_left_shut_on_a_full_disk(make_bench):
    bench = make_bench(ports=[8000])
    assert not (bench.node.state / "draining").exists()
    assert any(call.startswith("iptables -D INPUT -p tcp --syn --dport 8000") for call in bench.rig.calls)


def test_the_dead_man_ends_it_though_what_answers_for_the_metadata_service_speaks_no_http(make_bench, monkeypatch):
    bench = make_bench(lifetime_s=100)

    def garbled(*_: object) -> None:
        raise BadStatusLine("\x00")

    monkeypatch.setattr(Machine, "tags", garbled)
    watcher.tick(bench.node)
    assert not bench.rig.is_off
    bench.rig.pass_time(200)
    bench.rig.environment()
    watcher.tick(bench.node)
    assert bench.rig.is_off
