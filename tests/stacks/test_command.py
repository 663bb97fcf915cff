"""The engine as a process: signals, lock, output, environment. A shell script plays the engine."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import time
from datetime import timedelta

import pytest
from pulumi.automation import CommandError

from provisioner.errors import Cancelled
from stacks.command import EngineCommand, Interrupts
from stacks.locks import StackLock, is_held

ENVIRONMENT = {"PATH": os.environ["PATH"], "GREETING": "hello"}


@pytest.fixture
def engine(tmp_path):
    def make(script):
        path = tmp_path / "pulumi"
        path.write_text(f"#!/bin/sh\n{textwrap.dedent(script)}")
        path.chmod(0o755)
        return path

    return make


def command(path, **options):
    return EngineCommand(path, "3.274.1", ENVIRONMENT, **options)


def test_output_comes_back_and_the_environment_is_whole(engine, tmp_path):
    lines = []
    path = engine('echo "$GREETING $EXTRA"; echo "${HOME-none}"; echo oops >&2; head -c 1 | wc -c')
    result = command(path).run(["x"], str(tmp_path), {"EXTRA": "you"}, on_output=lines.append)
    assert result.stdout.splitlines() == ["hello you", "none", "0"]
    assert lines == result.stdout.splitlines()
    assert result.stderr == "oops"


def test_a_failure_keeps_both_outputs(engine, tmp_path):
    with pytest.raises(CommandError) as caught:
        command(engine("echo out; echo err >&2; exit 3")).run(["up"], str(tmp_path), {})
    assert "out" in str(caught.value)
    assert "err" in str(caught.value)


def test_the_version_is_not_asked_for(engine):
    assert str(command(engine("exit 1")).version) == "3.274.1"


def test_the_engine_holds_the_lock_with_us(engine, tmp_path):
    path = tmp_path / "locks" / "demo.lock"
    lock = StackLock(path, "up").acquire(timedelta(0), print)
    seen = []
    runner = command(
        engine(f"echo $(readlink /proc/$$/fd/{lock.descriptor})"), lock_descriptor=lock.descriptor, on_start=seen.append
    )
    assert runner.run(["up"], str(tmp_path), {}).stdout == str(path)
    assert len(seen) == 1
    lock.release()
    assert not is_held(path)


PROGRAM = """
import os, signal, sys, threading, time
from pathlib import Path
from provisioner.errors import Cancelled
from stacks.command import EngineCommand, Interrupts
said = []
with Interrupts(said.append) as interrupts:
    runner = EngineCommand(Path(sys.argv[1]), "3.274.1", {"PATH": os.environ["PATH"]}, interrupts=interrupts)
    print("started", flush=True)
    try:
        runner.run(["up"], "/", {})
    except Exception as error:
        print(type(error).__name__, flush=True)
    print(len(said), interrupts.count, flush=True)
"""

TRAPPING = """
    trap 'echo "INT" >> {log}; count=$((count+1)); [ $count -ge {stop_at} ] && exit 1' INT
    count=0
    echo ready >> {log}
    while :; do sleep 0.05; done
"""


def run_and_signal(engine, tmp_path, numbers, stop_at=1):
    log = tmp_path / "log"
    path = engine(TRAPPING.format(log=log, stop_at=stop_at))
    with subprocess.Popen(
        [sys.executable, "-c", PROGRAM, str(path)], stdout=subprocess.PIPE, text=True, start_new_session=True
    ) as process:
        until(lambda: log.exists() and "ready" in log.read_text())
        for sent, number in enumerate(numbers):
            until(lambda sent=sent: log.read_text().count("INT") >= min(sent, 2))
            process.send_signal(number)
        output = process.communicate(timeout=20)[0].split("\n")
    return log.read_text().count("INT"), output


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_one_signal_asks_the_engine_once_to_stop(engine, tmp_path, number):
    seen, output = run_and_signal(engine, tmp_path, [number])
    assert seen == 1
    assert output[1:3] == ["CommandError", "1 1"]


def test_a_terminals_interrupt_reaches_the_engine_once(engine, tmp_path):
    """Ctrl-C goes to the whole foreground group; the engine is in a group of its own and gets ours alone."""
    log = tmp_path / "log"
    path = engine(TRAPPING.format(log=log, stop_at=2))
    with subprocess.Popen(
        [sys.executable, "-c", PROGRAM, str(path)], stdout=subprocess.PIPE, text=True, start_new_session=True
    ) as process:
        until(lambda: log.exists() and "ready" in log.read_text())
        os.killpg(process.pid, signal.SIGINT)
        until(lambda: "INT" in log.read_text())
        time.sleep(0.3)
        assert log.read_text().count("INT") == 1
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=20)


def test_a_third_signal_ends_an_engine_that_does_not_stop(engine, tmp_path):
    seen, output = run_and_signal(engine, tmp_path, [signal.SIGINT] * 3, stop_at=99)
    assert seen == 2
    assert output[1:3] == ["CommandError", "1 3"]


def test_a_signal_without_an_engine_cancels_at_once():
    with Interrupts(pytest.fail) as interrupts, pytest.raises(Cancelled, match="SIGTERM"):
        signal.raise_signal(signal.SIGTERM)
    assert interrupts.count == 1


def test_handlers_are_given_back():
    before = signal.getsignal(signal.SIGTERM)
    with Interrupts(print):
        assert signal.getsignal(signal.SIGTERM) != before
    assert signal.getsignal(signal.SIGTERM) == before


def test_after_a_signal_no_engine_starts(engine, tmp_path):
    interrupts = Interrupts(print)
    interrupts.count = 1
    with pytest.raises(Cancelled):
        command(engine("touch started"), interrupts=interrupts).run(["up"], str(tmp_path), {})
    assert not (tmp_path / "started").exists()


def until(condition, limit_s=20):
    end = time.monotonic() + limit_s
    while not condition():
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.02)


def test_a_signal_while_the_engine_starts_reaches_it_once():
    said = []
    with Interrupts(said.append) as interrupts:

        def start():
            signal.raise_signal(signal.SIGINT)
            return subprocess.Popen(["sleep", "60"])

        assert interrupts.run(start) == -signal.SIGINT
    assert len(said) == 1
    assert interrupts.count == 1
