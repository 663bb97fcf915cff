"""``unlock``: the one place where a lock of another host may be cleared, because a person says so."""

from __future__ import annotations

from datetime import timedelta

from provisioner.errors import Locked
from stacks.deploy import Session, Watch
from stacks.locks import EngineLock, Life, engine_locks, judge, remove_engine_lock
from stacks.site import Site


def unlock(site: Site, stack: str) -> tuple[EngineLock, ...]:
    """Clear the engine's locks on a stack; none that a living process of this host holds.

    Returns:
        What was cleared.

    Raises:
        Locked: a living process holds the stack; it is named.
    """
    with Session(site, stack, "unlock", Watch(lambda _: None), timedelta(0), clears_locks=False) as session:
        if site.backend.directory is None:
            return session.cancel_remote_lock()
        locks = engine_locks(site.backend.directory, stack)
        alive = [lock for lock in locks if judge(lock) is Life.ALIVE]
        if alive:
            raise Locked(
                f"stack {stack!r} is locked by {'; '.join(map(str, alive))}, which runs on this host",
                remedy="wait for it, or end that process first",
            )
        for lock in locks:
            remove_engine_lock(lock)
        return locks
