"""The edge that every call passes: latency, the world brought up to date, injected errors, the journal.

A call without latency is one transaction. One with latency writes its line into the journal before it waits, so that a
call whose process is killed meanwhile shows as unfinished; its effect is one transaction before or after the wait.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from sqlite3 import Connection
from typing import Generic, TypeVar

from provisioner.clouds.sandbox import clock, faults, journal, latencies, power
from provisioner.clouds.sandbox.call import About, Call
from provisioner.clouds.sandbox.errors import AFTER_EFFECT, injected
from provisioner.clouds.sandbox.store import Store
from provisioner.errors import GpuprovError

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class _Answer(Generic[T]):
    """What goes back to the caller: one value, or an error."""

    values: tuple[T, ...] = ()
    error: GpuprovError | None = None

    @property
    def outcome(self) -> str:
        return journal.OK if self.error is None else self.error.kind

    def give(self) -> T:
        if self.error is not None:
            raise self.error
        return self.values[0]


@dataclass(frozen=True, slots=True)
class Api:
    """Carries out calls on one sandbox file."""

    store: Store
    host: clock.Host

    def now(self) -> datetime:
        """The sandbox's time."""
        with self.store.transaction() as connection:
            return clock.from_us(clock.now_us(connection, self.host))

    def perform(self, about: About, act: Callable[[Call], T]) -> T:
        """The result of a call, after its latency.

        Raises:
            GpuprovError: what the sandbox refuses, or what was injected.
        """
        with self.store.transaction() as connection:
            latency = latencies.of_operation(connection, about.operation)
            number = journal.begin(connection, about, clock.now_us(connection, self.host))
            waits = latency.blocks_s > 0
            late = waits and latency.record_at == latencies.RECORD_AT_END
            answer = None if late else self._carry_out(connection, number, about, act)
            if answer is not None and not waits:
                journal.finish(connection, number, answer.outcome)
        if waits:
            self.host.sleep(latency.blocks_s)
        if answer is not None and not waits:
            return answer.give()
        with self.store.transaction() as connection:
            answer = answer or self._carry_out(connection, number, about, act)
            journal.finish(connection, number, answer.outcome)
        return answer.give()

    def _carry_out(self, connection: Connection, number: int, about: About, act: Callable[[Call], T]) -> _Answer[T]:
        """Do what the call asks; a refusal leaves nothing of it behind."""
        call = Call(connection, clock.now_us(connection, self.host))
        power.settle(connection, call.now_us)
        fault = faults.take(connection, about.operation, about.place)
        if fault is not None and fault != AFTER_EFFECT:
            return _Answer(error=injected(fault, about.operation))
        connection.execute("SAVEPOINT act")
        answer: _Answer[T]
        try:
            answer = _Answer(values=(act(call),))
        except GpuprovError as error:
            connection.execute("ROLLBACK TO act")
            answer = _Answer(error=error)
        else:
            journal.note_effect(connection, number, call)
        connection.execute("RELEASE act")
        return _Answer(error=injected(fault, about.operation)) if fault is not None else answer
