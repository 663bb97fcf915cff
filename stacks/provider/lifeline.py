"""The plugin lives as long as its engine: what ends it, and what it still does then.

The engine gives each plugin a pipe as standard input and never writes to it, so its end is the engine's end, a killed one
included; a plugin whose engine was killed would otherwise stay for ever (plugins run in a process group of their own).
From then on no create call starts, waiting stops, the calls in flight are waited for, and the process ends.
"""

from __future__ import annotations

import os
import stat
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from provisioner.errors import Cancelled

_PARENT_POLL_S = 1.0
"""A second look, for an engine whose pipe some other process inherited; it costs one system call a second."""


class Lifeline:
    """Whether the engine still wants anything, and how many operations run for it."""

    def __init__(self) -> None:
        self._closing = threading.Event()
        self._reason = ""
        self._idle = threading.Condition()
        self._active = 0

    @property
    def is_closing(self) -> bool:
        """Whether nothing new may start."""
        return self._closing.is_set()

    def close(self, reason: str) -> None:
        """Let nothing new start; the first reason stays."""
        if not self._closing.is_set():
            self._reason = reason
            self._closing.set()

    def check(self) -> None:
        """Refuse to go on where the engine is gone or asked to stop; called right before each call that makes something.

        Raises:
            Cancelled: nothing new may start.
        """
        if self._closing.is_set():
            raise Cancelled(self._reason, remedy="run the command again: it finds what was made and goes on from there")

    def sleep(self, seconds: float) -> None:
        """Wait, but not beyond the end of the engine.

        Raises:
            Cancelled: the engine is gone or asked to stop.
        """
        self._closing.wait(seconds)
        self.check()

    @contextmanager
    def operation(self) -> Iterator[None]:
        """Mark an operation that the end of the process must wait for."""
        with self._idle:
            self._active += 1
        try:
            yield
        finally:
            with self._idle:
                self._active -= 1
                self._idle.notify_all()

    def wait_until_idle(self) -> None:
        """Return when no operation runs any more."""
        with self._idle:
            self._idle.wait_for(lambda: self._active == 0)


def watch(lifeline: Lifeline, *, end: Callable[[], None], descriptor: int | None = None) -> None:
    """Close the lifeline, wait for the calls in flight and call ``end`` once the engine is gone.

    Args:
        lifeline: what to close.
        end: ends the process; called on a thread.
        descriptor: the pipe from the engine, standard input by default.
    """

    def finish(reason: str) -> None:
        lifeline.close(reason)
        lifeline.wait_until_idle()
        end()

    pipe = 0 if descriptor is None else descriptor
    if _is_pipe(pipe):
        threading.Thread(target=_watch_pipe, args=(pipe, finish), name="engine-pipe", daemon=True).start()
    threading.Thread(target=_watch_parent, args=(os.getppid(), finish), name="engine-process", daemon=True).start()


def _watch_pipe(descriptor: int, finish: Callable[[str], None]) -> None:
    while _read(descriptor):
        pass
    finish("the engine is gone")


def _read(descriptor: int) -> bytes:
    try:
        return os.read(descriptor, 4096)
    except OSError:
        return b""  # a broken pipe is an ended one


def _watch_parent(parent: int, finish: Callable[[str], None]) -> None:
    pause = threading.Event()
    while os.getppid() == parent:
        pause.wait(_PARENT_POLL_S)
    finish("the engine's process is gone")


def _is_pipe(descriptor: int) -> bool:
    """A terminal or ``/dev/null`` says nothing about an engine (a plugin that was started by hand)."""
    try:
        mode = os.fstat(descriptor).st_mode
    except OSError:
        return False
    return stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode)
