from __future__ import annotations

import os
import threading

import pytest

from provisioner.errors import Cancelled
from stacks.provider.lifeline import Lifeline, watch


def test_nothing_starts_after_the_end_and_the_first_reason_stays() -> None:
    lifeline = Lifeline()
    lifeline.check()
    lifeline.sleep(0)
    lifeline.close("the engine is gone")
    lifeline.close("another reason")
    assert lifeline.is_closing
    for act in (lifeline.check, lambda: lifeline.sleep(60)):
        with pytest.raises(Cancelled, match="the engine is gone; run the command again"):
            act()


def test_the_end_of_the_pipe_waits_for_what_runs() -> None:
    lifeline = Lifeline()
    read, write = os.pipe()
    ended, running, release = threading.Event(), threading.Event(), threading.Event()

    def work() -> None:
        with lifeline.operation():
            running.set()
            release.wait(20)

    worker = threading.Thread(target=work)
    worker.start()
    running.wait(20)
    watch(lifeline, end=ended.set, descriptor=read)
    os.write(write, b"the engine never writes, but if it did")
    os.close(write)
    assert lifeline._closing.wait(20)
    assert not ended.wait(0.1)
    release.set()
    assert ended.wait(20)
    worker.join()
    os.close(read)


def test_a_plugin_started_by_hand_is_not_ended_by_an_empty_input() -> None:
    lifeline = Lifeline()
    with open(os.devnull, "rb") as nothing:  # noqa: PTH123
        watch(lifeline, end=lambda: None, descriptor=nothing.fileno())
        assert not lifeline._closing.wait(0.1)
    watch(lifeline, end=lambda: None, descriptor=10**6)
    assert not lifeline._closing.wait(0.1)
