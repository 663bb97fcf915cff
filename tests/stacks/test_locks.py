"""Our lock, and a hundred kinds of locks that an engine left behind."""

from __future__ import annotations

import itertools
import json
import os
import random
import socket
import subprocess
import sys
from datetime import UTC, datetime, timedelta

import pytest

from provisioner.errors import Locked
from stacks.locks import (
    EngineLock,
    Holder,
    Life,
    StackLock,
    age,
    clear_dead_locks,
    engine_locks,
    explain,
    is_held,
    judge,
    lock_path,
    parse_engine_locks,
    read_holder,
    running_program,
)

NOW = datetime.now(UTC)
HERE = socket.gethostname()
NO_WAIT = timedelta(0)


def silent(_text):
    pass


def ended_pid():
    process = subprocess.Popen([sys.executable, "-c", "pass"])
    process.wait()
    return process.pid


# Our own lock.


def test_a_second_holder_waits_and_is_told(tmp_path):
    path = lock_path(tmp_path, "local", "demo")
    said = []
    with StackLock(path, "up").acquire(NO_WAIT, silent):
        assert is_held(path)
        with pytest.raises(Locked, match=rf"in use by `gpuprov up` of .* on {HERE} \(pid {os.getpid()}\)"):
            StackLock(path, "down").acquire(timedelta(seconds=0.3), said.append)
    assert len(said) == 1
    assert said[0].startswith("waiting for `gpuprov up`")
    assert not is_held(path)
    with StackLock(path, "down").acquire(NO_WAIT, silent) as lock:
        assert lock.previous is None


def test_other_stacks_are_free(tmp_path):
    with StackLock(lock_path(tmp_path, "local", "a"), "up").acquire(NO_WAIT, silent):
        StackLock(lock_path(tmp_path, "local", "b"), "up").acquire(NO_WAIT, silent).release()
        StackLock(lock_path(tmp_path, "other", "a"), "up").acquire(NO_WAIT, silent).release()


def test_a_killed_holder_frees_the_lock_and_is_remembered(tmp_path):
    path = lock_path(tmp_path, "local", "demo")
    code = (
        "import sys,os,signal;from pathlib import Path;from datetime import timedelta;from stacks.locks import StackLock;"
        f"lock=StackLock(Path({str(path)!r}),'up').acquire(timedelta(0),print);lock.note_engine(4242);"
        "os.kill(os.getpid(),signal.SIGKILL)"
    )
    victim = subprocess.run([sys.executable, "-c", code], check=False)
    assert victim.returncode == -9
    assert not is_held(path)
    with StackLock(path, "up").acquire(NO_WAIT, silent) as lock:
        assert lock.previous is not None
        assert lock.previous.engine_pids == (4242,)
        assert lock.previous.command == "up"


def test_a_child_with_the_descriptor_keeps_the_lock_after_its_parent(tmp_path):
    """The plugin of a killed `up` may still wait for a create: nobody else may start one."""
    path = lock_path(tmp_path, "local", "demo")
    lock = StackLock(path, "up").acquire(NO_WAIT, silent)
    plugin = subprocess.Popen(["cat"], stdin=subprocess.PIPE, pass_fds=(lock.descriptor,))
    os.close(lock.descriptor)  # what the kernel does to a killed parent
    assert is_held(path)
    plugin.communicate(timeout=10)
    assert not is_held(path)


def test_the_holder_file_says_who(tmp_path):
    path = lock_path(tmp_path, "local", "demo")
    with StackLock(path, "down").acquire(NO_WAIT, silent) as lock:
        lock.note_engine(1)
        lock.note_engine(2)
        holder = read_holder(path)
        assert holder is not None
        assert (holder.pid, holder.command, holder.engine_pids) == (os.getpid(), "down", (1, 2))
    assert read_holder(path) is None
    assert read_holder(tmp_path / "nowhere") is None


# The engine's locks: every combination of owner, host, age and form.

PROGRAMS = {"gone": None, "engine": "pulumi", "other": "bash", "unknown": ""}
HOSTS = {"here": HERE, "elsewhere": "ci-runner-7"}
AGES = {
    "young": timedelta(seconds=1),
    "old": timedelta(days=400),
    "ahead": timedelta(hours=-5),
    "now": timedelta(0),
}
EXPECTED = {
    ("gone", "here"): Life.DEAD,
    ("other", "here"): Life.DEAD,
    ("engine", "here"): Life.ALIVE,
    ("unknown", "here"): Life.ALIVE,
}
VARIANTS = list(itertools.product(PROGRAMS, HOSTS, AGES, ("file", "remote-ours", "remote-unknown", "remote-other-pid")))


@pytest.mark.parametrize(("program", "host", "how_old", "where"), VARIANTS)
def test_e19_a_lock_is_dead_only_with_proof(program, host, how_old, where):
    lock = EngineLock("ana", HOSTS[host], 4711, NOW - AGES[how_old])
    known = (4711,) if where == "remote-ours" else (99,)
    ours = None if where == "remote-unknown" else Holder(1, HERE, "ana", "up", NOW, known)
    life = judge(
        lock,
        host=HERE,
        program_of=lambda pid: PROGRAMS[program] if pid == 4711 else "other",
        ours=ours,
        is_remote=where != "file",
    )
    expected = EXPECTED.get((program, host), Life.ELSEWHERE)
    if where in ("remote-unknown", "remote-other-pid"):
        expected = Life.ELSEWHERE
    assert life is expected


def test_there_are_at_least_a_hundred_variants():
    assert len(VARIANTS) >= 100


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[]",
        "null",
        '{"pid": "12"}',
        '{"pid": true, "hostname": "h"}',
        '{"pid": -1, "hostname": "h"}',
        '{"pid": 1}',
        '{"hostname": "h", "timestamp": "yesterday"}',
    ],
)
def test_an_unreadable_lock_is_explained_and_stays(tmp_path, text):
    path = write_lock(tmp_path, "a", text)
    (remaining,) = clear_dead_locks(tmp_path, "demo", pytest.fail)
    assert judge(remaining) is Life.UNKNOWN
    assert path.exists()
    assert "unreadable" in str(explain("demo", [remaining]))


def test_dead_locks_go_with_one_line_each_and_the_rest_stays(tmp_path):
    draw = random.Random(7)
    dead, kept = [], []
    for number in range(60):
        pid, host, goes = draw.choice(
            [
                (ended_pid() if number < 3 else 2**22 + number, HERE, True),
                (os.getppid(), "elsewhere", False),
                (1, "elsewhere", False),
            ]
        )
        at = NOW - timedelta(seconds=draw.uniform(-1e4, 1e7))
        path = write_lock(tmp_path, f"{number:03}", json.dumps(lock_content(pid, host, at)))
        path.with_name(f"{path.name}.attrs").write_text("{}")
        (dead if goes else kept).append(path)
    said = []
    remaining = clear_dead_locks(tmp_path, "demo", said.append)
    assert dead
    assert kept
    assert len(said) == len(dead)
    assert {lock.path for lock in remaining} == set(kept)
    assert not any(path.exists() or path.with_name(f"{path.name}.attrs").exists() for path in dead)
    assert all(path.exists() for path in kept)


def test_a_live_engine_is_never_broken(tmp_path):
    """A process that is called like the engine holds the lock."""
    engine = tmp_path / "pulumi"
    engine.symlink_to("/bin/cat")
    with subprocess.Popen([engine], stdin=subprocess.PIPE) as process:
        path = write_lock(tmp_path, "a", json.dumps(lock_content(process.pid, HERE, NOW)))
        (remaining,) = clear_dead_locks(tmp_path, "demo", pytest.fail)
        assert judge(remaining) is Life.ALIVE
        assert path.exists()
    assert clear_dead_locks(tmp_path, "demo", silent) == ()
    assert not path.exists()


def test_a_zombie_is_dead():
    process = subprocess.Popen([sys.executable, "-c", "pass"])
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
    assert running_program(process.pid) is None
    process.wait()
    assert running_program(process.pid) is None
    assert running_program(2**40) is None
    assert running_program(os.getpid())


def test_e19_the_refusal_names_owner_and_age():
    lock = EngineLock("ana", "laptop", 17, NOW - timedelta(hours=3))
    text = str(explain("demo", [lock]))
    assert "ana on laptop (pid 17), 3h old" in text
    assert "gpuprov unlock demo" in text


def test_e19_locks_of_a_remote_backend_are_read_from_the_refusal():
    text = (
        "error: the stack is currently locked by 2 lock(s). Either wait for the other process(es) to end or delete the lock "
        "file with `pulumi cancel`.\n"
        "  s3://state/.pulumi/locks/organization/gpuprov/demo/1f.json: created by ana b@laptop.local (pid 17) at 2026-11-30T12:00:00Z\n"
        "  s3://state/.pulumi/locks/organization/gpuprov/demo/2f.json: created by ci@runner (pid 9) at 2026-11-30T12:00:00+01:00"
    )
    first, second = parse_engine_locks(text)
    assert (first.user, first.host, first.pid) == ("ana b", "laptop.local", 17)
    assert second.at == datetime(2026, 11, 30, 11, tzinfo=UTC)
    assert parse_engine_locks("all is well") == ()


def test_times_of_the_engine_have_nine_digits(tmp_path):
    write_lock(tmp_path, "a", '{"pid":1,"username":"u","hostname":"h","timestamp":"2026-11-30T15:23:54.372994736Z"}')
    (lock,) = engine_locks(tmp_path, "demo")
    assert lock.at == datetime(2026, 11, 30, 15, 23, 54, 372994, tzinfo=UTC)


@pytest.mark.parametrize(
    ("ago", "text"),
    [(5, "5s"), (150, "2m"), (7300, "2h"), (86_400 * 3, "3d"), (-4000, "66m ahead of this clock")],
)
def test_ages(ago, text):
    assert age(NOW - timedelta(seconds=ago), NOW) == text


def test_unknown_age():
    assert age(None) == "unknown time"


def write_lock(directory, name, text):
    folder = directory / ".pulumi" / "locks" / "organization" / "gpuprov" / "demo"
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{name}.json"
    path.write_text(text)
    return path


def lock_content(pid, host, at):
    return {"pid": pid, "username": "ana", "hostname": host, "timestamp": at.isoformat()}
