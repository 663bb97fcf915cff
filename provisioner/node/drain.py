"""The last look before a machine that serves is ended: stop taking requests, look, close the door, look again.

A request that came before the door was closed shows in the last look and cancels the end; one that comes later is refused at
once, never taken and then dropped. The same where the end is asked for from outside: ``Listener``. Python 3.9 and its standard
library only.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from provisioner.node.deadman import moment

RunTool = Callable[[list[str]], Any]
DRAIN_TAG = "gpuprov-reap-drain"
"""Asks the node to drain, since the machine is about to be ended from outside; ``none`` takes that back. Its value names the
request, and the node's answer repeats it."""
CAUSE_TAG = "gpuprov-reap-for"
OVER_AGE = "over-age"
HOLD_S = 600.0
"""Longest wait behind a closed door for an end that was asked for."""
HURRY_S = 60.0
"""Longest wait for requests in flight, and run of the hook, where somebody outside waits."""


class Gate:
    """New connections to the serving ports: open, unready, closed."""

    def __init__(self, ports: tuple[int, ...], flag: Path, run: RunTool) -> None:
        """Name the ports, the file whose presence means "not ready", and what runs a tool."""
        self.ports = ports
        self.flag = flag
        self._run = run
        self.is_shut = False

    def unready(self) -> None:
        """Let readiness probes fail: balancers stop sending."""
        with suppress(OSError):  # a full disk must not keep an idle machine: the door is closed all the same
            self.flag.parent.mkdir(parents=True, exist_ok=True)
            self.flag.write_text("draining\n")

    def close(self) -> bool:
        """Refuse new connections; whether that worked for every port. Those that are open stay.

        A door that is shut is left as it is: of two rules, opening would take one away.
        """
        if not self.is_shut:
            done = [self._rule("-I", port) for port in self.ports]
            self.is_shut = all(done)
        return self.is_shut

    def open(self) -> None:
        """Take requests again."""
        for port in self.ports:
            self._rule("-D", port)
        self.is_shut = False
        with suppress(OSError):  # not there, or a disk that cannot be written any more
            self.flag.unlink()

    def _rule(self, verb: str, port: int) -> bool:
        refuse = ["-p", "tcp", "--syn", "--dport", str(port), "-j", "REJECT", "--reject-with", "tcp-reset"]
        return self._run(["iptables", verb, "INPUT", *refuse]) is not None


def drain(gate: Any, is_quiet: Callable[[], bool], pause: Callable[[], Any]) -> bool:
    """Whether the machine may end now; the gate is closed then, and open again where work arrived.

    Without ports there is nothing to close, and one more look is enough.
    """
    if not gate.ports:
        return is_quiet()
    gate.unready()
    pause()
    if is_quiet() and gate.close() and is_quiet():
        return True
    gate.open()
    return False


@dataclass
class Listener:
    """Answers requests to drain, each once: ``drained`` with the door closed, or ``cancelled`` with the door open."""

    gate: Any
    is_calm: Callable[[], bool]
    """Whether nothing works, by a look of its own."""
    pause: Callable[[], Any]
    hook: Callable[[float], Any]
    say: Callable[..., None]
    asked: str = ""
    closed_at_s: float | None = None

    def hear(self, tags: Mapping[str, str], now_s: float, wall_s: float) -> None:
        """Act on the tags of this moment.

        Args:
            tags: the machine's.
            now_s: monotonic seconds.
            wall_s: the host's time; a request of another hour is of the machine's life before a stop.
        """
        request = tags.get(DRAIN_TAG) or "none"
        asked_at_s = moment(request)
        if asked_at_s is None or abs(wall_s - asked_at_s) > 2 * HOLD_S:
            self._reopen("the end was taken back")
            self.asked = ""
        elif request != self.asked:
            self.asked = request
            self._answer(request, tags.get(CAUSE_TAG) == OVER_AGE, now_s)
        elif self.closed_at_s is not None and now_s - self.closed_at_s > HOLD_S:
            self._reopen("nobody ended the machine")

    def _answer(self, request: str, must_end: bool, now_s: float) -> None:
        if must_end:  # its time is over: work in flight delays the end, and does not cancel it
            self.gate.unready()
            self.gate.close()
            for _ in range(10):
                if self.is_calm():
                    break
                self.pause()
        elif not drain(self.gate, self.is_calm, self.pause):
            self.say(state="busy", act="cancelled", request=request, why="work arrived before the end from outside")
            return
        self.closed_at_s = now_s
        worked = self.hook(HURRY_S)
        more = {} if worked is None else {"hook": "done" if worked else "failed"}
        self.say(state="drained", request=request, why="asked for from outside", **more)

    def _reopen(self, why: str) -> None:
        if self.closed_at_s is not None:
            self.closed_at_s = None
            self.gate.open()
            self.say(state="busy", act="cancelled", request=self.asked, why=why)
