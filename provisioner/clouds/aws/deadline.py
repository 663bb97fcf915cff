"""One answer of AWS within a time that is told, whatever the other side does: hangs, or lets its answer drip.

The SDK's time-outs count from byte to byte, and each of its tries has its own. So a call runs in a thread of its own; one that is
over its time is left alone with its connection and never waited for again.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


class Overdue(Exception):
    """There is no whole answer in time; whether the call took effect is not known."""

    def __init__(self, seconds: float) -> None:
        super().__init__(f"no whole answer within {seconds:g} s")


class _Call(threading.Thread):
    """A daemon: a process ends without waiting for one that hangs."""

    def __init__(self, ask: Callable[[], None]) -> None:
        super().__init__(name="aws-call", daemon=True)
        self._ask = ask
        self.error: BaseException | None = None

    def run(self) -> None:
        try:
            self._ask()
        except BaseException as error:  # noqa: BLE001 - whatever it is, it is raised where the answer is waited for
            self.error = error


def within(seconds: float, ask: Callable[[], T]) -> T:
    """What a call answers, or how it fails.

    Raises:
        Overdue: it has done neither in ``seconds``.
    """
    found: list[T] = []
    call = _Call(lambda: found.append(ask()))
    call.start()
    call.join(seconds)
    if call.is_alive():
        raise Overdue(seconds)
    if call.error is not None:
        raise call.error
    return found[0]
