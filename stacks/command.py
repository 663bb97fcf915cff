"""The engine as a process of ours: in a group of its own, with the stack's lock in hand, told once when to stop.

``pulumi.automation`` drives it through ``PulumiCommand``; this is that class with four things done differently:

- The engine has its own process group. A terminal's Ctrl-C reaches us alone, and we pass on exactly one signal: a second one
  makes the engine drop the step that it waits for.
- It inherits the descriptor of the stack's lock, and so do its plugins (see ``stacks.locks``).
- Its output goes to files, not pipes. When we are killed it is not killed by a broken pipe in its turn: it ends the step that
  it waits for, writes the state and gives its lock back.
- The environment is the whole one that we made, not a mixture with the caller's.
"""

from __future__ import annotations

import os
import signal
import subprocess
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from tempfile import TemporaryFile
from types import FrameType
from typing import IO, Any, Self

from pulumi.automation import CommandResult, OnOutput, PulumiCommand
from pulumi.automation.errors import create_command_error
from semver import VersionInfo

from provisioner.errors import Cancelled

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_KILL_AT = 3
"""The third signal ends the engine at once: the first asks it to stop, the second to drop what it waits for."""


class Interrupts:
    """Turns signals into one clean stop: the engine is asked to end, and the command ends as cancelled after it.

    A context manager around a whole command. While no engine runs, a signal raises ``Cancelled`` where the command is.
    """

    def __init__(self, notify: Callable[[str], None]) -> None:
        self._notify = notify
        self._engine: subprocess.Popen[bytes] | None = None
        self._is_starting = False
        self._before: dict[int, Any] = {}
        self._sent = 0
        self.count = 0

    def __enter__(self) -> Self:
        # Only the main thread may set handlers; elsewhere the caller has to deal with signals.
        if threading.current_thread() is threading.main_thread():
            self._before = {number: signal.signal(number, self._handle) for number in SIGNALS}
        return self

    def __exit__(self, *exception: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def run(self, start: Callable[[], subprocess.Popen[bytes]]) -> int:
        """Start an engine, pass signals on to it while it runs, and give its exit code."""
        self.check()
        self._is_starting = True
        try:
            self._engine = start()
            self._is_starting = False
            self._pass_on()  # what came while the engine started
            return self._engine.wait()
        finally:
            self._engine = None
            self._is_starting = False

    def check(self) -> None:
        """Raise ``Cancelled`` if a signal came."""
        if self.count:
            raise Cancelled("interrupted")

    def _handle(self, number: int, frame: FrameType | None) -> None:
        del frame
        self.count += 1
        if self._engine is None and not self._is_starting:
            raise Cancelled(f"interrupted by {signal.Signals(number).name}")
        self._pass_on()

    def _pass_on(self) -> None:
        """Give the engine each signal that it has not had yet, once: a second one would make it drop its step."""
        engine = self._engine
        while engine is not None and not self._is_starting and self._sent < self.count:
            self._sent += 1
            if self._sent == 1:
                self._notify("stopping: the engine ends the step that it waits for; once more to drop that step")
            engine.send_signal(signal.SIGINT if self._sent < _KILL_AT else signal.SIGKILL)


class EngineCommand(PulumiCommand):
    """Runs the engine of a path that is known to be good; asks it nothing."""

    def __init__(
        self,
        path: Path,
        version: str,
        environment: Mapping[str, str],
        *,
        interrupts: Interrupts | None = None,
        lock_descriptor: int | None = None,
        on_start: Callable[[int], None] = lambda _pid: None,
    ) -> None:
        # The base class would run `pulumi version` (0.2 s); whoever found the engine knows its version.
        self.command = str(path)
        self.version = VersionInfo.parse(version.removeprefix("v"))
        self._environment = environment
        self._interrupts = interrupts
        self._lock_descriptor = lock_descriptor
        self._on_start = on_start

    def run(
        self,
        args: list[str],
        cwd: str,
        additional_env: Mapping[str, str],
        on_output: OnOutput | None = None,
        on_error: OnOutput | None = None,
    ) -> CommandResult:
        """Run one engine command to its end.

        Raises:
            pulumi.automation.CommandError: it ended with an error.
        """
        environment = {**self._environment, **additional_env}
        environment["PATH"] = os.pathsep.join((str(Path(self.command).parent), environment["PATH"]))
        with TemporaryFile() as output, TemporaryFile() as errors:
            code = self._wait([self.command, "--non-interactive", *args], cwd, environment, (output, errors))
            result = CommandResult(stdout=_text(output, on_output), stderr=_text(errors, on_error), code=code)
        if code != 0:
            raise create_command_error(result)
        return result

    def _wait(
        self, argv: list[str], cwd: str, environment: Mapping[str, str], streams: tuple[IO[bytes], IO[bytes]]
    ) -> int:
        descriptors = () if self._lock_descriptor is None else (self._lock_descriptor,)

        def start() -> subprocess.Popen[bytes]:
            engine = subprocess.Popen(
                argv,
                cwd=cwd,
                env=dict(environment),
                stdin=subprocess.DEVNULL,
                stdout=streams[0],
                stderr=streams[1],
                process_group=0,
                pass_fds=descriptors,
            )
            self._on_start(engine.pid)
            return engine

        return start().wait() if self._interrupts is None else self._interrupts.run(start)


def _text(stream: IO[bytes], listener: OnOutput | None) -> str:
    stream.seek(0)
    text = stream.read().decode("utf-8", errors="replace").rstrip()
    if listener is not None:
        for line in text.splitlines():
            listener(line)
    return text
