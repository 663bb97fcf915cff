"""Two at once, Ctrl-C, locks that were left, and things that the state lost."""

from __future__ import annotations

import json
import os
import signal
import socket
import time
from datetime import timedelta

import pytest

from provisioner import tags
from provisioner.clouds.cloud import VolumeRequest
from provisioner.clouds.sandbox.latencies import Latency
from stacks.state import stack_file

pytestmark = [pytest.mark.engine, pytest.mark.slow]


def slow_create(bench, seconds):
    bench.controls.set_latency(Latency("create", timedelta(seconds=seconds), "start"))


def wait_for(condition, limit_s=60):
    end = time.monotonic() + limit_s
    while not condition():
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.05)


def test_l5_two_ups_at_once_make_one_machine(bench):
    slow_create(bench, 1)
    first, second = (bench.start("up", str(bench.spec), "--yes", "--format", "json") for _ in range(2))
    answers = [process.communicate(timeout=120) for process in (first, second)]
    assert (first.returncode, second.returncode) == (0, 0), answers
    created = sorted(json.loads(out)["changes"]["create"] for out, _ in answers)
    assert created == [0, 3]
    assert sum("waiting for `gpuprov up`" in err for _, err in answers) == 1
    assert bench.most_machines_at_once() == 1
    assert len(bench.machines()) == 1
    assert bench.down().code == 0


def test_l5_a_command_that_will_not_wait_is_told_who_holds_the_stack(bench):
    slow_create(bench, 6)  # long enough for the other command to start on a busy host
    process = bench.start("up", str(bench.spec), "--yes")
    wait_for(bench.creates)
    answer = bench.down("--lock-wait", "0s")
    process.communicate(timeout=120)
    assert (answer.code, process.returncode) == (4, 0)
    assert answer.document["error"]["kind"] == "locked"
    assert f"(pid {process.pid})" in answer.err
    (machine,) = bench.machines()
    assert machine.tags[tags.OWNER]
    status = bench.run("status", bench.name, "--format", "json").document["stacks"][0]
    assert status["outputs"]["instance_id"] == machine.id
    assert bench.down().code == 0
    assert bench.running_bill() == []


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_l6_one_signal_stops_cleanly_and_says_what_exists(bench, number):
    slow_create(bench, 2)
    process = bench.start("up", str(bench.spec), "--yes", "--format", "json")
    wait_for(bench.creates)
    os.killpg(process.pid, number)
    out, err = process.communicate(timeout=120)
    assert process.returncode == 8, err
    document = json.loads(out)
    assert document["schema"] == "gpuprov.up/1"
    assert document["error"]["kind"] == "cancelled"
    assert "stopping" in err
    # The call in flight was let finish, so the machine is there, in the state, and named with its price.
    (machine,) = bench.machines()
    assert machine.id in err
    assert "/h in all" in err
    again = bench.up()
    assert again.code == 0, again.err
    assert [entry.id for entry in bench.machines()] == [machine.id]
    assert bench.down().code == 0
    assert bench.running_bill() == []


def test_e19_a_dead_engines_lock_is_cleared_with_one_line_and_a_foreign_one_is_explained(bench):
    assert bench.up().code == 0
    folder = bench.home / "state" / ".pulumi" / "locks" / "organization" / "gpuprov" / "demo"
    folder.mkdir(parents=True, exist_ok=True)

    def leave(host, pid):
        content = {"pid": pid, "username": "ana", "hostname": host, "timestamp": "2026-01-01T00:00:00Z"}
        (folder / f"{host}.json").write_text(json.dumps(content))

    leave(socket.gethostname(), 2**22 + 1)
    answer = bench.up()
    assert answer.code == 0, answer.err
    assert answer.err.count("cleared the engine's lock") == 1

    leave("another-host", 12)
    for refused in (bench.up(), bench.down()):
        assert refused.code == 4
        assert refused.document["error"]["kind"] == "locked"
        assert "ana on another-host (pid 12)" in refused.err
        assert "gpuprov unlock demo" in refused.err
    unlocked = bench.run("unlock", "demo")
    assert unlocked.code == 0
    assert "ana on another-host" in unlocked.out
    assert "not locked" in bench.run("unlock", "demo").out
    assert bench.down().code == 0


def test_down_ends_what_the_state_has_lost(bench):
    outputs = bench.up().document["outputs"]
    (machine,) = bench.machines()
    stray = bench.cloud.create_volume(
        VolumeRequest(
            "stray-token", "stray", outputs["region"], outputs["zone"], 2**30, dict(machine.tags), outputs["cloud"]
        )
    )
    foreign = bench.cloud.create_volume(
        VolumeRequest(
            "foreign-token",
            "foreign",
            outputs["region"],
            outputs["zone"],
            2**30,
            {**machine.tags, tags.STACK_ID: "0" * 32},
            outputs["cloud"],
        )
    )
    wait_for(lambda: {stray.id, foreign.id} <= {entry.id for entry in bench.cloud.list_objects()})
    noted = bench.run("status", "demo")
    assert f"not in the state: volume {stray.id}" in noted.out
    answer = bench.down()
    assert answer.code == 0, answer.err
    assert f"ending what the state did not hold: volume {stray.id}" in answer.err
    # The same stack name, another identity: not ours to end.
    assert bench.running_bill() == [foreign.id]


def test_a_signal_before_anything_was_made_leaves_nothing(bench):
    process = bench.start("up", str(bench.spec), "--yes", "--format", "json")
    wait_for((bench.home / "state" / ".pulumi" / "stacks").exists)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=120)
    assert process.returncode == 8, err
    assert json.loads(out)["error"]["code"] == 8
    assert bench.creates() == []
    assert bench.run("status", "--format", "json").document["stacks"] == []


def test_a_stack_keeps_its_provider_and_its_passphrase(bench):
    assert bench.up().code == 0
    passphrase = bench.home / "state" / "passphrase"
    kept = passphrase.read_text()
    passphrase.unlink()
    lost = bench.up()
    assert lost.code == 2
    assert "passphrase is gone" in lost.err
    passphrase.write_text(kept)
    path = stack_file(bench.home / "state", "demo")
    path.write_text(
        path.read_text()
        .replace('"provider":"sandbox"', '"provider":"gcp"')
        .replace('"cloud":"sandbox"', '"cloud":"gcp"')
    )
    answer = bench.up("--cloud", "sandbox")
    assert answer.code == 2
    assert "was made on gcp, not on sandbox" in answer.err
    assert len(bench.machines()) == 1
