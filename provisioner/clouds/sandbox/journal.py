"""The journal of calls: what came in, when, from which process, what it did and how it was answered."""

from __future__ import annotations

import os
from dataclasses import dataclass
from sqlite3 import Connection

from provisioner.clouds.sandbox.call import About, Call, Effect

UNFINISHED = "unfinished"
"""Outcome of a call that was never answered: it is still waiting, or its process was killed."""

OK = "ok"

KEPT = 100_000
"""Calls that are kept; a poller must not fill the disk."""
_TRIM_EVERY = 1000


@dataclass(frozen=True, slots=True)
class Entry:
    """One call of the journal."""

    id: int
    at_us: int
    operation: str
    place: str | None
    token: str | None
    object_id: str | None
    outcome: str
    """``ok``, ``unfinished``, or the kind of the error that was answered."""
    effect: Effect
    pid: int


def begin(connection: Connection, about: About, at_us: int) -> int:
    """Note that a call came in.

    Returns:
        Number of the entry.
    """
    cursor = connection.execute(
        "INSERT INTO calls (at_us, operation, place, token, object_id, outcome, effect, pid) VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
        (at_us, about.operation, about.place, about.token, about.object_id, UNFINISHED, str(Effect.NONE), os.getpid()),
    )
    number = int(cursor.lastrowid or 0)
    if number % _TRIM_EVERY == 0:
        connection.execute("DELETE FROM calls WHERE id <= ?", (number - KEPT,))
    return number


def note_effect(connection: Connection, number: int, call: Call) -> None:
    """Note what a call did."""
    if call.effect is not Effect.NONE:
        connection.execute(
            "UPDATE calls SET effect = ?, object_id = ? WHERE id = ?", (str(call.effect), call.object_id, number)
        )


def finish(connection: Connection, number: int, outcome: str) -> None:
    """Note how a call was answered."""
    connection.execute("UPDATE calls SET outcome = ? WHERE id = ?", (outcome, number))


def read(connection: Connection, *, after: int = 0, operation: str | None = None) -> list[Entry]:
    """Calls in the order in which they came in.

    Args:
        connection: inside a transaction.
        after: number of the last call that is not wanted.
        operation: only calls of this operation.
    """
    rows = connection.execute(
        "SELECT * FROM calls WHERE id > ? AND (? IS NULL OR operation = ?) ORDER BY id", (after, operation, operation)
    )
    return [
        Entry(
            id=row["id"],
            at_us=row["at_us"],
            operation=row["operation"],
            place=row["place"],
            token=row["token"],
            object_id=row["object_id"],
            outcome=row["outcome"],
            effect=Effect(row["effect"]),
            pid=row["pid"],
        )
        for row in rows
    ]
