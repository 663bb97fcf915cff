"""Errors that are put in front of calls on purpose, a given number of times, to rehearse what a caller does then."""

from __future__ import annotations

from dataclasses import dataclass
from fnmatch import fnmatchcase
from sqlite3 import Connection

from provisioner.clouds.sandbox.errors import INJECTED
from provisioner.clouds.sandbox.pools import ANYWHERE, matches
from provisioner.errors import UsageError

OPERATIONS = (
    "resolve_image",
    "create_instance",
    "get_instance",
    "find_instances",
    "start_instance",
    "stop_instance",
    "stop_refusal",
    "set_user_data",
    "set_shutdown",
    "terminate_instance",
    "set_tags",
    "create_volume",
    "find_volumes",
    "get_volume",
    "attach_volume",
    "grow_volume",
    "set_root_speed",
    "delete_volume",
    "ensure_security_group",
    "delete_security_group",
    "inspect",
    "put_right",
    "list_objects",
)
"""Calls that can fail on purpose: all of the cloud's interface that reach the account."""


@dataclass(frozen=True, slots=True)
class Fault:
    """One injected error: the first ``skip`` matching calls pass, the next ``remaining`` fail (``None``: all of them)."""

    kind: str
    operation: str = "*"
    """Name of an operation, or a pattern such as ``create_*``."""
    pool: str = ANYWHERE
    """Pattern of the placements that are hit, as in ``capacity set``."""
    skip: int = 0
    remaining: int | None = 1


def inject(connection: Connection, fault: Fault) -> None:
    """Add an injected error; those added first strike first.

    Raises:
        UsageError: an unknown kind, an operation pattern that matches nothing, or a count below one.
    """
    if fault.kind not in INJECTED:
        raise UsageError(f"there is no error {fault.kind!r}; there are {', '.join(INJECTED)}")
    if not any(fnmatchcase(operation, fault.operation) for operation in OPERATIONS):
        raise UsageError(f"there is no operation {fault.operation!r}; there are {', '.join(OPERATIONS)}")
    if fault.skip < 0 or (fault.remaining is not None and fault.remaining < 1):
        raise UsageError("an error strikes at least once, after zero or more calls that pass")
    connection.execute(
        "INSERT INTO faults (kind, operation, pool, skip, remaining) VALUES (?, ?, ?, ?, ?)",
        (fault.kind, fault.operation, fault.pool, fault.skip, fault.remaining),
    )


def take(connection: Connection, operation: str, place: str | None) -> str | None:
    """Kind of the error that strikes a call now, or ``None``; counts the call for every entry that it passes."""
    for row in connection.execute("SELECT * FROM faults ORDER BY id").fetchall():
        if not fnmatchcase(operation, row["operation"]) or not _hits(row["pool"], place):
            continue
        if row["skip"]:
            connection.execute("UPDATE faults SET skip = skip - 1 WHERE id = ?", (row["id"],))
            continue
        if row["remaining"] is not None:
            connection.execute("UPDATE faults SET remaining = remaining - 1 WHERE id = ?", (row["id"],))
            connection.execute("DELETE FROM faults WHERE id = ? AND remaining <= 0", (row["id"],))
        return str(row["kind"])
    return None


def read_all(connection: Connection) -> list[Fault]:
    """Injected errors that have not struck out yet, in the order in which they strike."""
    rows = connection.execute("SELECT * FROM faults ORDER BY id")
    return [Fault(row["kind"], row["operation"], row["pool"], row["skip"], row["remaining"]) for row in rows]


def clear(connection: Connection) -> None:
    """Forget all injected errors."""
    connection.execute("DELETE FROM faults")


def _hits(pool: str, place: str | None) -> bool:
    """A call without a placement is hit only by errors that hold anywhere."""
    return pool == ANYWHERE or (place is not None and matches(pool, place))
