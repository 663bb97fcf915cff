"""The last look before a machine that serves is ended: stop taking requests, look, close the door, look again.

A request that came before the door was closed shows in the last look and cancels the end; one that comes later is refused at
once, never taken and then dropped. Python 3.9 and its standard library only.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

RunTool = Callable[[list[str]], Any]


class Gate:
    """New connections to the serving ports: open, unready, closed."""

    def __init__(self, ports: tuple[int, ...], flag: Path, run: RunTool) -> None:
        """Name the ports, the file whose presence means "not ready", and what runs a tool."""
        self.ports = ports
        self.flag = flag
        self._run = run

    def unready(self) -> None:
        """Let readiness probes fail: balancers stop sending."""
        self.flag.parent.mkdir(parents=True, exist_ok=True)
        self.flag.write_text("draining\n")

    def close(self) -> bool:
        """Refuse new connections; whether that worked for every port. Those that are open stay."""
        done = [self._rule("-I", port) for port in self.ports]
        return all(done)

    def open(self) -> None:
        """Take requests again."""
        for port in self.ports:
            self._rule("-D", port)
        self.flag.unlink(missing_ok=True)

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
