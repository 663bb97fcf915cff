"""How many machines the sandbox has room for, by pool of placements."""

from __future__ import annotations

from dataclasses import dataclass
from sqlite3 import Connection

from provisioner.clouds.sandbox import pools
from provisioner.clouds.sandbox.machines import ALIVE
from provisioner.errors import UsageError


@dataclass(frozen=True, slots=True)
class Capacity:
    """Room of a pool: machines that can run at once (``None``: no limit), and how many run."""

    pool: str
    instances: int | None
    used: int


def put(connection: Connection, pool: str, instances: int | None) -> None:
    """Set a pool's room; running machines stay whatever it is.

    Raises:
        UsageError: no pool, or a negative number.
    """
    if instances is not None and instances < 0:
        raise UsageError("capacity is not negative")
    connection.execute(
        "INSERT OR REPLACE INTO capacities (pool, instances) VALUES (?, ?)", (pools.parse(pool), instances)
    )


def clear(connection: Connection) -> None:
    """Forget all limits."""
    connection.execute("DELETE FROM capacities")


def has_room(connection: Connection, key: str, ending: str | None = None) -> bool:
    """Whether one more machine can run at a placement: the most specific pool that matches decides, the latest of equals.

    ``ending`` is the id of a machine that counts as gone.
    """
    limits = _limits(connection)
    pool = _deciding(limits, key)
    if pool is None or limits[pool] is None:
        return True
    return _used(connection, limits, pool, ending) < limits[pool]  # type: ignore[operator]  # None was answered above


def read_all(connection: Connection) -> list[Capacity]:
    """All limits with their use."""
    limits = _limits(connection)
    return [Capacity(pool, instances, _used(connection, limits, pool)) for pool, instances in limits.items()]


def _limits(connection: Connection) -> dict[str, int | None]:
    return {row["pool"]: row["instances"] for row in connection.execute("SELECT * FROM capacities ORDER BY seq")}


def _deciding(limits: dict[str, int | None], key: str) -> str | None:
    fitting = [pool for pool in reversed(limits) if pools.matches(pool, key)]
    return max(fitting, key=pools.specificity, default=None)


def _used(connection: Connection, limits: dict[str, int | None], pool: str, ending: str | None = None) -> int:
    """Machines alive whose deciding pool is this one."""
    keys = connection.execute(
        "SELECT cloud || '/' || region || '/' || zone || '/' || instance_type || '/' || capacity_type AS place"
        " FROM instances WHERE vanished = 0 AND state IN (?, ?) AND id IS NOT ?",
        (*(str(state) for state in ALIVE), ending),
    )
    return sum(_deciding(limits, row["place"]) == pool for row in keys)
