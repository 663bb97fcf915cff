"""What would kill a training of three weeks, or bill a box for a month: hangs, full disks, odd pages, other networks, odd logins."""

from __future__ import annotations

import fcntl
import json
import os
import signal
import socket
import socketserver
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import pytest

from provisioner.node import reach
from provisioner.node.deadman import Limits, Switch, advance, load_switch, newest_switch, save_switch
from provisioner.node.gpu_readings import nvml_gpus
from tests.fakes import nvml
from tests.node.test_watcher import ACTIVE, LAPTOP, serve, serving

OWN, GATEWAY, CONTAINER = "0100000A", "010011AC", "020011AC"
"""10.0.0.1, 172.17.0.1 and 172.17.0.2 as the kernel writes them."""


@contextmanager
def server(answer: bytes, *, trickle_s: float = 0.0) -> Iterator[int]:
    """A port that sends something to whoever connects, all at once or a byte at a time."""

    class Handler(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            self.request.recv(4096)
            try:
                self.request.sendall(answer)
                while trickle_s:
                    time.sleep(trickle_s)
                    self.request.sendall(b"# more\n")
            except OSError:
                return

    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Handler) as made:
        made.daemon_threads = True
        threading.Thread(target=made.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
        yield made.server_address[1]
        made.shutdown()


def sockets(bench, *rows: tuple[str, int, str, str], process: str = "") -> None:
    """TCP sockets of the host, or of the network of a process in a container."""
    lines = [f" {n}: {here}:{port:04X} {there}:C350 {state} 0 0" for n, (here, port, there, state) in enumerate(rows)]
    folder = f"proc/{process}/net" if process else "proc/net"
    bench.rig.write(f"{folder}/tcp", "\n".join(["  sl  local rem st", *lines]) + "\n")


def network_of(bench, process: str, name: str) -> None:
    folder = bench.rig.folder / "proc" / process / "ns"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "net").symlink_to(f"net:[{name}]")


# Hangs.


def test_a_tool_that_ignores_its_kill_is_left_behind_and_not_started_twice(tmp_path, monkeypatch):
    class Stuck(subprocess.Popen):
        """A process in the kernel's hands: no kill ends it."""

        started = 0

        def __init__(self, *arguments, **options):
            type(self).started += 1
            super().__init__(*arguments, **options)

    kill = os.killpg
    monkeypatch.setattr(reach.subprocess, "Popen", Stuck)
    monkeypatch.setattr(reach.os, "killpg", lambda group, number: None)
    monkeypatch.setattr(reach, "_STUCK", {})
    tool = ["sleep", "30"]
    assert reach.run_bounded(tool, 0.1) == (None, "")
    assert reach.run_bounded(tool, 0.1) == (None, "")
    assert Stuck.started == 1
    left = reach._STUCK[tuple(tool)]
    kill(left.pid, signal.SIGKILL)
    left.wait()


def test_what_a_hook_has_started_is_killed_with_it(tmp_path):
    script = 'exec 9>"$0"; flock 9; sleep 300 & wait'
    assert reach.run_bounded(["sh", "-c", script, str(tmp_path / "held")], 0.5) == (None, "")
    with (tmp_path / "held").open("w") as held:
        for _ in range(100):
            with suppress(BlockingIOError):
                fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return
            time.sleep(0.05)
    raise AssertionError("its child lives on")


def test_a_driver_that_hangs_is_unknown_and_takes_no_watcher_along(make_bench, monkeypatch):
    from provisioner.node import sensors

    bench = make_bench(run=True, ready={"path": "/health", "port": 1}, ready_limit_s=150)
    bench.rig.write("unit", ACTIVE)
    bench.node.machine.nvml = "libnvidia-ml.so.1"
    monkeypatch.setattr(sensors, "run_bounded", lambda command, limit_s: (None, ""))
    decision = bench.look()
    assert decision.sources["gpu"] == ("unknown", "no GPU can be read")
    assert "off" in bench.looks(4)
    assert bench.rig.lines[-1]["state"] == "never-ready"


def test_nvml_is_read_by_a_process_of_its_own(tmp_path, make_rig):
    rig = make_rig()
    library = nvml.build(tmp_path / "libnvidia-ml.so.1")
    command = [sys.executable, "-S", "-E", str(rig.folder / "watcher.py"), "gpus"]
    told = subprocess.run([*command, str(library)], capture_output=True, text=True, check=True).stdout
    assert json.loads(told) == nvml_gpus(str(library))
    none = subprocess.run([*command, "libno-such-thing.so.9"], capture_output=True, text=True, check=False)
    assert none.returncode != 0


def test_a_host_without_a_compiler_is_told_what_to_install(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(pytest.fail.Exception, match="apt-get install gcc"):
        nvml.build(tmp_path / "libnvidia-ml.so.1")


def test_a_driver_that_appears_during_the_boot_is_seen(make_bench):
    bench = make_bench(idle_after_s=600)
    (bench.rig.tools / "nvidia-smi").rename(bench.rig.tools / "later")
    assert set(bench.looks(3)) == {"unknown"}
    (bench.rig.tools / "later").rename(bench.rig.tools / "nvidia-smi")
    assert bench.looks(2) == ["quiet", "quiet"]


def test_a_gpu_that_falls_off_the_bus_is_never_idle(make_bench):
    bench = make_bench(gpus=2)
    bench.rig.gpu(0, 0)
    bench.looks(2)
    bench.rig.gpu(0)
    assert set(bench.looks(8)) == {"unknown"}
    bench.rig.write("smi", "Unable to determine the device handle for GPU0000:00:1E.0: GPU is lost\n")
    assert set(bench.looks(8)) == {"unknown"}


@pytest.mark.parametrize("cell", ["[N/A]", "ERR!", "[GPU requires reset]", "[Unknown Error]", "nan", "-1", "101"])
def test_cells_that_are_no_share_are_unknown(make_bench, cell):
    bench = make_bench()
    bench.rig.gpu(cell)
    assert set(bench.looks(7)) == {"unknown"}


# Disks, clocks, switches.


def test_a_full_disk_neither_disarms_nor_kills(make_rig):
    rig = make_rig(lifetime_s=300)
    assert not rig.tick()
    state = rig.folder / "var/lib/gpuprov"
    # A folder in the place of the file: no write can succeed, whoever the test runs as.
    (state / "deadman.json").unlink()
    (state / "deadman.json").mkdir()
    for _ in range(2):
        rig.pass_time(100)
        assert not rig.tick()
    assert not [path for path in state.iterdir() if path.name != "deadman.json"]
    rig.pass_time(80)
    assert rig.tick()


def test_with_no_place_to_write_at_all_time_since_boot_is_what_counts(make_rig):
    rig = make_rig(lifetime_s=300)
    for name in ("var/lib/gpuprov", "run/gpuprov"):
        (rig.folder / name).parent.mkdir(parents=True, exist_ok=True)
        (rig.folder / name).write_text("no folder")
    assert not rig.tick()
    rig.pass_time(200)
    assert not rig.tick()
    rig.pass_time(80)
    assert rig.tick()


def test_an_idle_server_ends_on_a_full_disk_too(make_bench):
    bench = serving(make_bench)
    serve(bench)
    bench.rig.write("var/lib/gpuprov", "no folder")
    assert "off" in bench.looks(7)


def test_a_renewed_end_lasts_on_a_full_disk(make_rig):
    rig = make_rig(lifetime_s=200)
    (rig.folder / "var/lib/gpuprov/deadman.json").mkdir(parents=True)
    rig.metadata.tags["gpuprov:expires-at"] = "2027-01-15T08:03:20Z"
    assert not rig.tick()
    rig.metadata.tags["gpuprov:expires-at"] = "2027-01-15T08:09:10Z"
    assert not rig.tick()
    rig.pass_time(300)
    assert not rig.tick()
    rig.pass_time(300)
    assert rig.tick()


@pytest.mark.parametrize("limits", [Limits(100), Limits(spend_s=100), Limits(lease_s=100)])
def test_a_machine_that_was_stopped_at_its_end_can_be_started_again(limits):
    ended = advance(None, limits, ("boot-1", 130.0), None, None)
    assert ended.ended_by
    started = advance(ended, limits, ("boot-2", 30.0), None, None)
    assert not started.ended_by  # its new end cannot be read yet
    assert not advance(started, limits, ("boot-2", 590.0), None, None).ended_by
    assert advance(started, limits, ("boot-2", 630.0), None, None).ended_by  # nobody renewed anything


def test_a_start_with_a_new_end_lives_until_then(make_rig):
    rig = make_rig(then="stop", lifetime_s=100)
    rig.metadata.tags["gpuprov:expires-at"] = "2027-01-15T08:03:20Z"
    assert not rig.tick()
    rig.pass_time(100)
    assert rig.tick()
    (rig.folder / "off").unlink()
    rig.boot("boot-2")
    rig.metadata.is_up = False  # the network of a boot comes late
    assert not rig.tick()
    rig.metadata.is_up = True
    rig.metadata.tags["gpuprov:expires-at"] = "2027-01-15T12:00:00Z"
    rig.pass_time(3600)
    assert not rig.tick()


def test_an_end_that_a_hung_shutdown_delays_is_not_forgotten_by_the_same_boot():
    ended = Switch("boot-1", 100, 100, 100, 90, ended_by="its lifetime of 90 s is over")
    assert advance(ended, Limits(90), ("boot-1", 130.0), None, None).ended_by


@pytest.mark.parametrize("wrong", ['"x"', "NaN", "Infinity", "null", "[1]", "{}"])
def test_a_switch_with_a_wrong_value_is_none(tmp_path, wrong):
    path = tmp_path / "deadman.json"
    path.write_text(f'{{"boot_id": "b", "at_s": 5.0, "used_s": {wrong}, "total_s": 5.0}}')
    assert load_switch(path) is None


def test_the_copy_that_was_written_last_counts(tmp_path):
    disk, memory = tmp_path / "disk", tmp_path / "memory"
    assert save_switch(disk, Switch("b", 10.0))
    assert newest_switch((disk, memory), "b") == Switch("b", 10.0)
    assert save_switch(memory, Switch("b", 20.0))
    assert newest_switch((disk, memory), "b") == Switch("b", 20.0)
    assert newest_switch((disk, memory), "c") == Switch("b", 10.0)
    assert not save_switch(tmp_path / "disk" / "below", Switch("b", 10.0))


def test_a_configuration_that_is_lost_leaves_the_end_that_is_on_disk(make_rig):
    rig = make_rig(lifetime_s=200)
    assert not rig.tick()
    rig.write("etc/gpuprov/node.json", "")
    rig.pass_time(180)
    assert rig.tick()


def test_a_lease_runs_out_for_the_watcher_where_nothing_ticks_any_more(make_bench):
    bench = make_bench(idle_after_s=60)
    bench.rig.metadata.tags["gpuprov-lease-until"] = "2027-01-15T08:05:00Z"
    bench.rig.tick()
    assert bench.look().sources["lease_s"][0] == "busy"
    assert "off" in bench.looks(16)


def test_a_console_that_takes_nothing_does_not_hold_up_the_end(make_rig):
    rig = make_rig(lifetime_s=10)
    for name in ("ttyS0", "console"):
        (rig.folder / "dev" / name).unlink(missing_ok=True)
        (rig.folder / "dev" / name).symlink_to("/dev/full")
    assert rig.tick()
    assert "its lifetime" in (rig.folder / "stderr").read_text()


def test_a_long_uptime_is_a_number_like_any_other(make_bench):
    bench = make_bench()
    bench.rig.now_s = 40_000_000.0
    bench.rig.network_bytes = bench.rig.disk_bytes = bench.rig.cpu_us = 2**60
    bench.rig.flow()
    assert "off" in bench.looks(8)


def test_counters_that_begin_anew_are_no_work(make_bench):
    bench = make_bench(idle_after_s=600)
    bench.rig.network_bytes = 10**12
    bench.rig.flow()
    bench.looks(2)
    bench.rig.network_bytes = 0
    bench.rig.flow()
    assert bench.looks(2) == ["quiet", "quiet"]


# Pages.


def test_a_page_that_never_ends_is_unknown_and_costs_seconds(make_bench, monkeypatch):
    monkeypatch.setattr(reach, "BODY_TIMEOUT_S", 0.3)
    bench = make_bench(ports=[1])
    with server(b"HTTP/1.0 200 OK\r\n\r\nvllm:num_requests_running 0\n", trickle_s=0.05) as port:
        bench.node.machine.ports = (port,)
        begun = time.monotonic()
        assert bench.look().sources["engine"] == ("unknown", f"counters of :{port} cannot be read")
        assert time.monotonic() - begun < 20


def test_a_page_beyond_the_limit_is_unknown_and_thousands_of_series_are_read(make_bench, monkeypatch):
    bench = serving(make_bench)
    series = "".join(f'other_bucket{{le="{n}"}} {n}\n' for n in range(20_000))
    bench.rig.metadata.pages["/metrics"] = series + "vllm:num_requests_running 2\n"
    assert bench.look().running == 2
    monkeypatch.setattr(reach, "BODY_BYTES_MAX", 10_000)
    assert bench.look().sources["engine"][0] == "unknown"


def test_a_server_that_answers_every_path_with_a_page_is_judged_by_its_connections(make_bench):
    bench = serving(make_bench)
    page = "<!doctype html><title>app</title>"
    bench.rig.metadata.pages |= {"/metrics": page, "/queue": page}
    bench.rig.flow(connections=((bench.rig.metadata.port, LAPTOP),))
    assert set(bench.looks(3)[1:]) == {"busy"}
    bench.rig.flow()
    assert "off" in bench.looks(7)


def test_a_port_that_does_not_speak_http_is_judged_by_its_connections(make_bench):
    bench = make_bench(ports=[1], ready={"path": "/health", "port": 1}, run=True, ready_limit_s=150)
    bench.rig.write("unit", ACTIVE)
    with server(b"SSH-2.0-server\r\n") as port:
        bench.node.machine.ports = (port,)
        bench.rig.config["ready"]["port"] = port
        sockets(bench, (OWN, port, LAPTOP, "01"))
        assert bench.look().sources["connections"] == ("busy", "1 connections")
        assert "off" in bench.looks(5)
    assert bench.rig.lines[-1]["state"] == "never-ready"


def test_of_several_engines_the_busy_one_counts(make_bench):
    bench = serving(make_bench)
    serve(bench)
    with server(b"HTTP/1.0 200 OK\r\n\r\nsglang:num_running_reqs 1\n") as port:
        bench.node.machine.ports += (port,)
        bench.looks(2)
        assert bench.look().reason == f"engine: :{port}: 1 requests run, 0 wait"


# Other networks.


def test_an_engine_on_another_address_than_the_local_one_is_judged_by_its_connections(make_bench):
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        port = unused.getsockname()[1]
    bench = make_bench(ports=[1])
    bench.node.machine.ports = (port,)
    sockets(bench, (OWN, port, LAPTOP, "01"))
    assert bench.look().sources["connections"][0] == "busy"


def test_connections_of_version_6_and_in_its_guise_count(make_bench):
    bench = serving(make_bench)
    port, beyond = bench.rig.metadata.port, "B80D0120000000000000000001000000"
    sockets(bench)
    for remote, count in ((beyond, 1), (f"0000000000000000FFFF0000{LAPTOP}", 1), ("0" * 24 + "01000000", 0)):
        local = f"0000000000000000FFFF0000{OWN}" if remote != beyond else "B80D0120000000000000000002000000"
        bench.rig.write("proc/net/tcp6", f"head\n 0: {local}:{port:04X} {remote}:C350 01 0 0\n")
        assert bench.look().sources["connections"] == ("busy" if count else "idle", f"{count} connections")


def test_a_connection_into_a_container_counts_and_its_neighbours_do_not(make_bench):
    bench = serving(make_bench)
    sockets(bench)
    network_of(bench, "self", "1")
    for process, name in (("100", "1"), ("200", "2"), ("201", "2")):
        network_of(bench, process, name)
    (bench.rig.folder / "proc/201/net").symlink_to("../200/net")
    listens = (CONTAINER, 80, "00000000", "0A")
    sockets(bench, listens, (CONTAINER, 80, LAPTOP, "01"), process="200")
    assert bench.look().sources["connections"] == ("busy", "1 connections")
    outward = (CONTAINER, 50_000, LAPTOP, "01")
    sockets(bench, listens, (CONTAINER, 80, GATEWAY, "01"), (CONTAINER, 80, "030011AC", "01"), outward, process="200")
    assert bench.look().sources["connections"] == ("idle", "0 connections")


# Control groups.


@pytest.mark.parametrize(
    "group",
    [
        "system.slice/docker-0123.scope",
        "docker",
        "machine.slice",
        "system.slice/jupyter.service",
        "system.slice/cron.service",
        "system.slice/run-r12.scope",
        "system.slice/amazon-ssm-agent.service",
        "system.slice/cloud-final.service",
        "kubepods.slice",
        "user.slice",
    ],
)
def test_cpu_work_counts_wherever_people_start_it(make_bench, group):
    bench = make_bench()
    bench.rig.write(f"sys/fs/cgroup/{group}/cpu.stat", "usage_usec 5000000\n")
    bench.looks(2)
    bench.rig.write(f"sys/fs/cgroup/{group}/cpu.stat", "usage_usec 35000000\n")
    decision = bench.look()
    assert (decision.state, decision.sources["cpu_cores"][1]) == ("busy", "1.00 cores")


@pytest.mark.parametrize(
    "name", ["snapd.service", "systemd-journald.service", "unattended-upgrades.service", "dcgm-exporter.service"]
)
def test_cpu_of_the_systems_own_daemons_is_no_evidence(make_bench, name):
    bench = make_bench()
    for used in range(8):
        bench.rig.write(f"sys/fs/cgroup/system.slice/{name}/cpu.stat", f"usage_usec {used * 30_000_000}\n")
        bench.look()
    assert bench.rig.is_off


def test_short_containers_one_after_the_other_are_work(make_bench):
    bench = make_bench()
    bench.looks(1)
    for number in range(6):
        folder = bench.rig.folder / f"sys/fs/cgroup/system.slice/docker-{number}.scope"
        bench.rig.write(f"sys/fs/cgroup/system.slice/docker-{number}.scope/cpu.stat", "usage_usec 20000000\n")
        assert bench.look().state == "busy"
        (folder / "cpu.stat").unlink()
        folder.rmdir()


def test_version_1_of_control_groups_takes_the_whole_machine(make_bench):
    bench = make_bench(idle_after_s=600)
    (bench.rig.folder / "sys/fs/cgroup/cgroup.controllers").unlink()
    states = []
    for used in (0, 3000, 6000, 6001):
        bench.rig.write("proc/stat", f"cpu {used} 0 0 1000 0 0 0 0 0 0\n")
        (bench.rig.folder / "sys/fs/cgroup/cgroup.controllers").unlink(missing_ok=True)
        bench.rig.pass_time(30)
        bench.rig.write("clock", f"{bench.rig.now_s} {bench.rig.wall_s}")
        states.append(bench.watch.look().state)
    assert states == ["unknown", "busy", "busy", "quiet"]


# People.


def test_a_pane_of_tmux_that_no_list_of_logins_names_is_a_person(make_bench):
    bench = make_bench()
    terminal = bench.rig.folder / "dev/pts/4"
    terminal.touch()
    for number in range(7):
        os.utime(terminal, (number, number))
        assert bench.look().state in {"busy", "unknown"}
    assert not bench.rig.is_off


def test_a_remote_editor_beside_a_forgotten_pane_is_a_person(make_bench):
    bench = make_bench()
    (bench.rig.folder / "dev/pts/0").touch()
    bench.rig.write("proc/71/comm", "sshd\n")
    bench.rig.write("proc/71/cmdline", "sshd: ana@notty\0")
    bench.look()
    bench.node.machine.terminals["pts/0"] = (bench.node.machine.terminals["pts/0"][0], -20_000.0)
    assert bench.look().sources["logins"] == ("busy", "1 logins")


def test_scanners_before_their_login_are_nobody(make_bench):
    bench = make_bench()
    bench.rig.flow(connections=((22, LAPTOP), (22, "0B0B0B0B")))
    for number, title in enumerate(("sshd: root [priv]", "sshd-session: unknown [net]")):
        bench.rig.write(f"proc/{80 + number}/comm", "sshd\n")
        bench.rig.write(f"proc/{80 + number}/cmdline", f"{title}\0")
    assert "off" in bench.looks(8)


def test_a_shell_of_session_manager_is_a_person(make_bench):
    bench = make_bench()
    bench.rig.write("proc/91/comm", "ssm-session-wor\n")
    bench.rig.write("proc/91/cmdline", "/usr/bin/ssm-session-worker\0ana-0123\0")
    assert set(bench.looks(7)[1:]) == {"busy"}


# The rest.


def test_a_notice_that_a_sleeping_machine_outlives_is_over(make_bench):
    bench = make_bench(spot=True)
    bench.rig.metadata.action = "hibernate"
    assert bench.looks(2) == ["off", "off"]
    bench.rig.metadata.action = None
    assert "off" in bench.looks(7)
    assert bench.rig.is_off


def test_a_watcher_that_is_started_again_and_again_does_not_wait_for_ever(make_bench):
    bench = make_bench(run=True, ready={"path": "/health", "port": 1}, ready_limit_s=300)
    bench.rig.write("unit", ACTIVE)
    for _ in range(12):
        bench.watch = type(bench.watch)(bench.node, bench.watch.rules)
        bench.look()
    assert bench.rig.lines[-1]["state"] == "never-ready"
