"""One at a time on a stack: our own lock on this host, and what to do with a lock that an engine left behind.

Our lock is an OS lock (``flock``) on a file below gpuprov's home, taken before any engine call. The engine and its plugins
inherit the descriptor, so the lock outlives a killed ``gpuprov`` for as long as a plugin still finishes a call: the next ``up``
waits for that call instead of racing it. The kernel frees the lock when the last of them has ended; nothing goes stale.

The engine's own lock is a file with user, host, pid and time, without a liveness test. One of a dead process on this host is
removed; any other is explained with owner and age, and never broken.
"""

from __future__ import annotations

import errno
import fcntl
import getpass
import json
import os
import re
import socket
import subprocess
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from provisioner.errors import Locked
from stacks.state import PROJECT

WAIT_DEFAULT = timedelta(minutes=10)
"""How long a second command waits for a first one by itself; a create with failover takes minutes, not hours."""
_POLL_S = 0.1
_CREATED_BY = re.compile(r"created by (?P<user>.*)@(?P<host>\S+) \(pid (?P<pid>\d+)\) at (?P<at>\S+)")


@dataclass(frozen=True, slots=True)
class Holder:
    """Who holds our lock, as the holder wrote it down."""

    pid: int
    host: str
    user: str
    command: str
    since: datetime
    engine_pids: tuple[int, ...] = ()
    """Engines that the holder started: proof that a lock with this host and pid is ours."""

    def __str__(self) -> str:
        return f"`gpuprov {self.command}` of {self.user} on {self.host} (pid {self.pid}) for {age(self.since)}"


class StackLock:
    """The right to change one stack from this host; a context manager."""

    def __init__(self, path: Path, command: str) -> None:
        self._path = path
        self._command = command
        self._descriptor: int | None = None
        self._holder: Holder | None = None
        self.previous: Holder | None = None
        """Who held it last and did not put it back in order: killed, or ended by a crash."""

    @property
    def descriptor(self) -> int:
        """The open lock file, for processes that must keep the lock alive."""
        if self._descriptor is None:
            raise RuntimeError("the lock is not held")
        return self._descriptor

    def acquire(self, wait: timedelta, notify: Callable[[str], None]) -> Self:
        """Take the lock; where another one has it, say so once and wait.

        Raises:
            Locked: still held after ``wait``.
        """
        self._path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            self._wait(descriptor, time.monotonic() + wait.total_seconds(), notify)
        except BaseException:
            os.close(descriptor)
            raise
        self._descriptor = descriptor
        self.previous = read_holder(self._path)
        self._write(
            Holder(os.getpid(), socket.gethostname(), _user(), self._command, datetime.now(UTC)),
        )
        return self

    def note_engine(self, pid: int) -> None:
        """Write down an engine that was started under this lock."""
        if self._holder is not None:
            engine_pids = (*self._holder.engine_pids, pid)
            self._write(
                Holder(
                    self._holder.pid,
                    self._holder.host,
                    self._holder.user,
                    self._command,
                    self._holder.since,
                    engine_pids,
                )
            )

    def release(self) -> None:
        """Give the lock back. The file stays: removing it would let two holders in."""
        if self._descriptor is not None:
            os.ftruncate(self._descriptor, 0)
            os.close(self._descriptor)
            self._descriptor = None
            self._holder = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()

    def _wait(self, descriptor: int, until: float, notify: Callable[[str], None]) -> None:
        said = False
        while not _try_lock(descriptor):
            holder = read_holder(self._path)
            if time.monotonic() >= until:
                raise Locked(
                    f"the stack is in use by {holder or 'another gpuprov'}",
                    remedy="wait for it to end, or end it; `gpuprov unlock` shows who holds a stack",
                )
            if not said:
                notify(f"waiting for {holder or 'another gpuprov'}, which works on this stack")
                said = True
            time.sleep(_POLL_S)

    def _write(self, holder: Holder) -> None:
        text = json.dumps(
            {
                "pid": holder.pid,
                "host": holder.host,
                "user": holder.user,
                "command": holder.command,
                "since": holder.since.isoformat(),
                "engine_pids": holder.engine_pids,
            }
        ).encode()
        os.ftruncate(self.descriptor, 0)
        os.pwrite(self.descriptor, text, 0)
        self._holder = holder


def lock_path(home: Path, backend_key: str, stack: str) -> Path:
    """The lock file of a stack of a backend."""
    return home / "locks" / backend_key / f"{stack}.lock"


def is_held(path: Path) -> bool:
    """Whether somebody holds our lock now."""
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    try:
        return not _try_lock(descriptor)
    finally:
        os.close(descriptor)


def read_holder(path: Path) -> Holder | None:
    """Who wrote the lock file last; ``None`` for an empty or unreadable one (it may be half written just now)."""
    try:
        entry: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        return Holder(
            int(entry["pid"]),
            str(entry["host"]),
            str(entry["user"]),
            str(entry["command"]),
            datetime.fromisoformat(entry["since"]),
            tuple(int(pid) for pid in entry.get("engine_pids", ())),
        )
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _try_lock(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as failure:
        if failure.errno in (errno.EWOULDBLOCK, errno.EACCES):
            return False
        raise
    return True


def _user() -> str:
    try:
        return getpass.getuser()
    except (OSError, KeyError):  # no name for this user id, usual in containers
        return str(os.getuid())


class Life(StrEnum):
    """What is known of a lock's owner."""

    DEAD = "dead"
    ALIVE = "alive"
    ELSEWHERE = "elsewhere"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class EngineLock:
    """A lock that an engine wrote into the backend. ``None`` is what it does not tell."""

    user: str | None
    host: str | None
    pid: int | None
    at: datetime | None
    path: Path | None = None
    """Its file, in a file backend."""

    def __str__(self) -> str:
        if self.host is None or self.pid is None:
            return f"an unreadable lock ({self.path})"
        return f"{self.user or 'somebody'} on {self.host} (pid {self.pid}), {age(self.at)} old"


def engine_locks(directory: Path, stack: str) -> tuple[EngineLock, ...]:
    """The engine's locks on a stack of a file backend, oldest first; there should be at most one."""
    folder = directory / ".pulumi" / "locks" / "organization" / PROJECT / stack
    locks = (lock for path in sorted(folder.glob("*.json")) if (lock := _read_engine_lock(path)) is not None)
    return tuple(sorted(locks, key=lambda lock: lock.at or datetime.min.replace(tzinfo=UTC)))


def parse_engine_locks(text: str) -> tuple[EngineLock, ...]:
    """The locks that an engine's refusal names; the way to see those of a remote backend."""
    return tuple(
        EngineLock(match["user"], match["host"], int(match["pid"]), _moment(match["at"]))
        for match in _CREATED_BY.finditer(text)
    )


def _read_engine_lock(path: Path) -> EngineLock | None:
    try:
        entry = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None  # given back between the listing and the reading
    except (OSError, ValueError):
        return EngineLock(None, None, None, None, path)
    if not isinstance(entry, dict):
        return EngineLock(None, None, None, None, path)
    pid = entry.get("pid")
    host = entry.get("hostname")
    return EngineLock(
        user=str(entry["username"]) if entry.get("username") else None,
        host=str(host) if host else None,
        pid=pid if isinstance(pid, int) and not isinstance(pid, bool) and pid > 0 else None,
        at=_moment(str(entry.get("timestamp", ""))),
        path=path,
    )


def _moment(text: str) -> datetime | None:
    """An RFC 3339 time with any number of fractional digits (Go writes nine)."""
    trimmed = re.sub(r"(\.\d{6})\d+", r"\1", text)
    try:
        moment = datetime.fromisoformat(trimmed)
    except ValueError:
        return None
    return moment if moment.tzinfo else None


def judge(
    lock: EngineLock,
    *,
    host: str | None = None,
    program_of: Callable[[int], str | None] | None = None,
    ours: Holder | None = None,
    is_remote: bool = False,
) -> Life:
    """What is known of a lock's owner. Only ``DEAD`` is proof.

    On a file backend the same host name and a pid that is no engine any more are proof. A remote backend is reached from many
    machines, and runners share host names: there the pid must also be one that we wrote down when we started it.

    Args:
        lock: the lock.
        host: this host's name (default: asked).
        program_of: name of the program that runs under a pid; ``None`` for no such process, ``""`` where it can't be told.
        ours: the previous holder of our own lock, with the engines it started.
        is_remote: whether the lock is in a remote backend.
    """
    if lock.pid is None or lock.host is None:
        return Life.UNKNOWN
    if lock.host != (host or socket.gethostname()):
        return Life.ELSEWHERE
    if is_remote and (ours is None or lock.pid not in ours.engine_pids or ours.host != lock.host):
        return Life.ELSEWHERE
    program = (program_of or running_program)(lock.pid)
    if program is None:
        return Life.DEAD
    # The pid of a dead engine may have been given to another program since.
    return Life.ALIVE if program == "" or "pulumi" in program else Life.DEAD


def running_program(pid: int) -> str | None:
    """Name of the program under a pid; ``None`` for no process or a zombie, ``""`` where it can't be told."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return None
    except PermissionError:
        pass
    except OverflowError:
        return None  # no such pid can exist here
    stat = Path(f"/proc/{pid}/stat")
    if Path("/proc/self/stat").exists():
        try:
            text = stat.read_text(encoding="utf-8", errors="replace")
        except (FileNotFoundError, ProcessLookupError):
            return None
        except OSError:
            return ""
        name, _, rest = text.partition("(")[2].rpartition(")")
        return None if rest.split()[0] in ("Z", "X") else name
    answer = subprocess.run(["ps", "-o", "comm=", "-p", str(pid)], capture_output=True, text=True, check=False)
    return answer.stdout.strip()


def clear_dead_locks(directory: Path, stack: str, notify: Callable[[str], None]) -> tuple[EngineLock, ...]:
    """Remove the engine locks of dead processes of this host, one line each; call it with our own lock held.

    Returns:
        The locks that remain: alive, elsewhere or unreadable.
    """
    remaining = []
    for lock in engine_locks(directory, stack):
        if judge(lock) is Life.DEAD:
            notify(f"cleared the engine's lock of a process that has ended: {lock}")
            remove_engine_lock(lock)
        else:
            remaining.append(lock)
    return tuple(remaining)


def remove_engine_lock(lock: EngineLock) -> None:
    """Remove a lock's file and the attribute file beside it."""
    if lock.path is not None:
        lock.path.unlink(missing_ok=True)
        lock.path.with_name(f"{lock.path.name}.attrs").unlink(missing_ok=True)


def explain(stack: str, locks: Iterable[EngineLock]) -> Locked:
    """The refusal for locks that are not ours to break."""
    owners = "; ".join(str(lock) for lock in locks)
    return Locked(
        f"stack {stack!r} is locked by {owners or 'another engine'}",
        remedy=f"wait for it; if you know that it has ended, `gpuprov unlock {stack}`",
    )


def age(moment: datetime | None, now: datetime | None = None) -> str:
    """How long ago, for people; a moment ahead of this clock says so."""
    if moment is None:
        return "unknown time"
    seconds = round(((now or datetime.now(UTC)) - moment).total_seconds())
    if seconds < 0:
        return f"{_coarse(-seconds)} ahead of this clock"
    return _coarse(seconds)


def _coarse(seconds: int) -> str:
    for size, unit in ((86_400, "d"), (3600, "h"), (60, "m")):
        if seconds >= 2 * size:
            return f"{seconds // size}{unit}"
    return f"{seconds}s"
