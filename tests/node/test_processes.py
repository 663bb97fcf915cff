"""The real watcher as a process: joined into one file, with a fake NVML library and fake tools; kills, clocks, reboot."""

from __future__ import annotations

import gzip
import subprocess
import sys
import time
from pathlib import Path

import pytest

from provisioner.node.bundle import packed_watcher, watcher_source
from tests.fakes import nvml
from tests.node.kills import MODES, real_runs, run


@pytest.mark.parametrize("mode", MODES)
def test_the_machine_ends_within_its_lease_whatever_is_killed(tmp_path, mode):
    ended = run(tmp_path / mode, mode, seed=1)
    assert ended.is_in_time, ended


@pytest.mark.parametrize("step_s", [3600.0, -3600.0, 3.2e8, -3.2e8])
def test_a_step_of_the_clock_neither_ends_nor_disarms(make_rig, step_s):
    rig = make_rig(lifetime_s=200)
    assert not rig.tick()
    rig.pass_time(60, step_s=step_s)
    assert not rig.tick()
    rig.pass_time(120)
    assert rig.tick()


def test_a_new_end_in_the_tag_counts_anew(make_rig):
    rig = make_rig(lifetime_s=200)
    rig.metadata.tags["gpuprov:expires-at"] = "2027-01-15T08:03:20Z"
    assert not rig.tick()
    rig.pass_time(150)
    rig.metadata.tags["gpuprov:expires-at"] = "2027-01-15T08:09:10Z"
    assert not rig.tick()
    rig.pass_time(150)
    assert not rig.tick()
    rig.pass_time(400)
    assert rig.tick()


def test_money_ends_it_over_all_starts(make_rig):
    rig = make_rig(lifetime_s=None, spend_s=300)
    rig.tick()
    for number in range(2):
        rig.pass_time(120)
        rig.metadata.tags["gpuprov:expires-at"] = f"2027-01-15T1{number}:00:00Z"
        assert not rig.tick()
    rig.pass_time(120)
    assert rig.tick()
    assert "max_spend" in rig.lines[-1]["why"]


def test_a_switch_that_does_not_read_is_armed_anew(make_rig):
    rig = make_rig(lifetime_s=100)
    rig.tick()
    (rig.folder / "var/lib/gpuprov/deadman.json").write_text("{")
    rig.pass_time(80)
    assert rig.tick()  # time since boot is what is left to go by


def test_a_shutdown_that_fails_is_tried_again(make_rig):
    rig = make_rig(lifetime_s=10)
    rig.tool("systemctl", "#!/bin/sh\nexit 1\n")
    rig.tool("shutdown", "#!/bin/sh\nexit 1\n")
    assert not rig.tick()
    rig.tool("shutdown", '#!/bin/sh\ntouch "$RIG/off"\n')
    assert rig.tick()


def test_the_watcher_process_reads_a_fake_nvml_and_says_so(make_rig):
    rig = make_rig()
    library = rig.folder / "lib"
    library.mkdir()
    nvml.build(library / "libnvidia-ml.so.1")
    (rig.folder / "smi-fails").touch()
    process = rig.start("watch")
    until = time.monotonic() + 30
    while not rig.lines and time.monotonic() < until:
        time.sleep(0.02)
    process.kill()
    process.wait()
    assert rig.lines[0]["sources"]["gpu"] == "busy: GPU 1 at 97 %"


def test_the_joined_file_is_small_stable_and_needs_nothing():
    source = watcher_source()
    assert source == watcher_source()
    assert "provisioner" not in source
    assert len(gzip.compress(packed_watcher().encode(), 9)) < 13_600


def test_the_packed_file_is_the_same_program(tmp_path: Path) -> None:
    packed = tmp_path / "watcher.py"
    packed.write_text(packed_watcher())
    (tmp_path / "etc/gpuprov").mkdir(parents=True)
    (tmp_path / "etc/gpuprov/node.json").write_text("{}")
    environment = {"GPUPROV_NODE_ROOT": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-S", "-E", str(packed), "nonsense"],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (2, "usage: watcher.py install | watch | tick | renew | leave\n")


def test_the_lease_ends_a_machine_by_the_real_clocks(tmp_path: Path) -> None:
    for ended in real_runs(tmp_path, 1):
        assert ended.is_in_time, ended
