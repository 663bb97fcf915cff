"""Several processes and threads on one file: nothing is lost, nothing is made twice, a killed one leaves nothing half made."""

from __future__ import annotations

import importlib.util
import random
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from collections import Counter
from contextlib import closing
from pathlib import Path

import pytest

from provisioner.clouds.sandbox.cloud import SandboxCloud
from provisioner.clouds.sandbox.store import FILE_NAME

WORKER = Path(__file__).with_name("create_worker.py")
_spec = importlib.util.spec_from_file_location("sandbox_create_worker", WORKER)
worker = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(worker)


def start(home: Path, mode: str, prefix: str, count: int) -> subprocess.Popen:
    """A worker that waits for its start signal."""
    process = subprocess.Popen(
        [sys.executable, str(WORKER), str(home), mode, prefix, str(count)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout.readline() == "ready\n"
    return process


def release(process: subprocess.Popen) -> None:
    process.stdin.write("go\n")
    process.stdin.flush()


def answers(process: subprocess.Popen) -> list[list[str]]:
    """What a worker had been told by the time it ended."""
    out = process.stdout.read()
    process.wait()
    for stream in (process.stdin, process.stdout):
        stream.close()
    return [line.split() for line in out.splitlines(keepends=True) if line.endswith("\n")]


def assert_whole(home: Path) -> dict[str, str]:
    """Every object in the file is there with all of its parts; gives machines by token."""
    with closing(sqlite3.connect(home / FILE_NAME)) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)
        machines = dict(connection.execute("SELECT token, id FROM instances").fetchall())
        assert len(machines) == connection.execute("SELECT count(*) FROM instances").fetchone()[0]
        tokens = connection.execute("SELECT token, object_id FROM tokens WHERE kind = 'instance'").fetchall()
        assert dict(tokens) == machines
        volumes = [row[0] for row in connection.execute("SELECT id FROM volumes")]
        bound = [row[0] for row in connection.execute("SELECT object_id FROM tokens WHERE kind = 'volume'")]
        assert sorted(bound) == sorted(volumes)
        meters = Counter(connection.execute("SELECT owner_id, kind FROM spans").fetchall())
        expected = [(machine, kind) for machine in machines.values() for kind in ("instance", "ip", "root-volume")]
        assert meters == Counter(expected + [(volume, "volume") for volume in volumes])
        untagged = connection.execute("SELECT count(*) FROM instances WHERE tags NOT LIKE '%gpuprov:stack-id%'")
        assert untagged.fetchone()[0] == 0
    return machines


@pytest.mark.slow
def test_a_process_killed_at_any_moment_leaves_objects_whole_or_not_at_all(home):
    """20 kills, four processes at a time; each answer that came out is in the file, and a replay doubles nothing."""
    seeded = random.Random(20)
    told: dict[str, str] = {}
    for round_number in range(5):
        workers = [start(home, "own", f"r{round_number}w{number}", 10_000) for number in range(4)]
        for process in workers:
            release(process)
        seeded.shuffle(workers)
        for process in workers:
            time.sleep(seeded.uniform(0.0, 0.08))
            process.send_signal(signal.SIGKILL)
        for process in workers:
            told.update({token: machine for token, machine, _ in answers(process)})
            assert process.returncode == -signal.SIGKILL
    machines = assert_whole(home)
    assert told.items() <= machines.items()
    cloud = SandboxCloud(home)
    for token, machine in machines.items():
        assert cloud.create_instance(worker.instance(token)).id == machine
    cloud.close()
    assert assert_whole(home) == machines


@pytest.mark.slow
def test_processes_with_the_same_tokens_make_one_object_each(home):
    workers = [start(home, "shared", f"w{number}", 25) for number in range(6)]
    for process in workers:
        release(process)
    seen = [answers(process) for process in workers]
    assert {process.returncode for process in workers} == {0}
    assert all(one == seen[0] for one in seen)
    assert len(seen[0]) == 25
    assert len(assert_whole(home)) == 25


@pytest.mark.slow
def test_processes_that_open_a_fresh_home_at_once_make_one_file(home):
    workers = [
        subprocess.Popen(
            [sys.executable, str(WORKER), str(home), "own", f"w{number}", "2"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for number in range(20)
    ]
    for process in workers:
        release(process)
    seen = [answers(process) for process in workers]
    assert {process.returncode for process in workers} == {0}
    assert [lines[0] for lines in seen] == [["ready"]] * 20
    assert len(assert_whole(home)) == 40


def test_a_hundred_threads_lose_and_double_nothing(home):
    """Half of the threads share a token with another one; five clouds share the file."""
    clouds = [SandboxCloud(home) for _ in range(5)]
    made: list[tuple[str, str]] = []

    def create(number: int) -> None:
        token = f"token-{number // 2}"
        made.append((token, clouds[number % 5].create_instance(worker.instance(token)).id))

    threads = [threading.Thread(target=create, args=(number,)) for number in range(100)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    machines = assert_whole(home)
    assert len(made) == 100
    assert set(made) == set(machines.items())
    assert len(machines) == 50
    for cloud in clouds:
        cloud.close()


def test_racing_creates_never_exceed_capacity(home):
    from provisioner.errors import CapacityError

    cloud = SandboxCloud(home)
    cloud.controls.set_capacity(worker.PLACE.key, 7)
    outcomes: list[str] = []

    def create(number: int) -> None:
        try:
            cloud.create_instance(worker.instance(f"token-{number}"))
            outcomes.append("made")
        except CapacityError:
            outcomes.append("refused")

    threads = [threading.Thread(target=create, args=(number,)) for number in range(30)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert Counter(outcomes) == {"made": 7, "refused": 23}
    assert len(assert_whole(home)) == 7
    cloud.close()
