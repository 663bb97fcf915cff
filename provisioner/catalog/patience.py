"""Patience with a cloud that says "not now": bounded retries, each after a random wait that may grow (full jitter)."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from provisioner.errors import Ambiguous, Throttled

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Patience:
    """How often a reading call is made again, and how long is waited before it.

    Only calls that change nothing may be retried like this. ``sleep`` and ``draw`` (a number from 0 to 1) are injected by
    tests. Waits are drawn between 0 and twice the wait before, so that many clients do not come back at once.

    Source: full jitter, Marc Brooker, "Exponential Backoff And Jitter", AWS Architecture Blog, 2015.
    """

    attempts: int = 6
    first_wait_s: float = 0.5
    longest_wait_s: float = 20.0
    sleep: Callable[[float], None] = time.sleep
    draw: Callable[[], float] = random.random

    def call(self, action: Callable[[], T]) -> T:
        """The answer of ``action``; the error of the last attempt where none succeeded.

        Raises:
            Throttled: still too many requests after all attempts.
            Ambiguous: still no answer after all attempts.
        """
        for attempt in range(self.attempts - 1):
            try:
                return action()
            except (Throttled, Ambiguous):
                self.sleep(self.wait_s(attempt))
        return action()

    def wait_s(self, attempt: int) -> float:
        """Seconds before the call after attempt number ``attempt`` (from 0)."""
        return min(self.longest_wait_s, self.first_wait_s * 2.0**attempt) * self.draw()
