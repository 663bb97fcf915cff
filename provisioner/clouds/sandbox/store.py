"""The sandbox's file: one SQLite database that several processes share.

Every transaction takes the write lock at its start, so that what it read cannot change before it writes; waiting for the
lock is SQLite's busy handler. The write-ahead log makes each commit whole or absent whatever happens to the process; with
``synchronous=NORMAL`` a commit survives the death of the process at any moment, and a power cut may lose the last commits
but never damages the file. Source: https://www.sqlite.org/wal.html and https://www.sqlite.org/pragma.html#pragma_synchronous
"""

from __future__ import annotations

import os
import sqlite3
import threading
import time
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from provisioner.clouds.sandbox import schema
from provisioner.clouds.sandbox.errors import foreign_file, newer_schema, translate_sqlite

FILE_NAME = "sandbox.sqlite"
BUSY_TIMEOUT_S = 60.0
"""How long a call waits for other processes. One transaction takes about a millisecond, so this is thousands of them."""
_WAL_RETRY_S = 0.005


class Store:
    """Transactions on one sandbox file; nothing is opened before the first one. Safe to share between threads."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock = threading.RLock()
        self._connection: sqlite3.Connection | None = None
        self._opened_by: tuple[int, int, int] | None = None

    @contextmanager
    def transaction(self) -> Iterator[sqlite3.Connection]:
        """One transaction that holds the write lock; committed at the end, undone by any exception.

        Raises:
            CloudError: the file cannot be opened, is damaged, is no sandbox file, or was written by a newer gpuprov.
            Throttled: other processes held the lock for too long; nothing happened.
        """
        with self._lock:
            try:
                connection = self._open()
                connection.execute("BEGIN IMMEDIATE")
                try:
                    yield connection
                    connection.execute("COMMIT")
                except BaseException:
                    if connection.in_transaction:
                        connection.execute("ROLLBACK")
                    raise
            except sqlite3.Error as error:
                ours = translate_sqlite(error, self.path)
                if ours is None:
                    raise
                raise ours from error

    def close(self) -> None:
        """Close the file; a later transaction opens it again."""
        with self._lock:
            if self._connection is not None and self._opened_by is not None and self._opened_by[0] == os.getpid():
                self._connection.close()
            self._connection = None
            self._opened_by = None

    def remove(self) -> None:
        """Delete the file and its side files; for a file that no transaction can open."""
        with self._lock:
            self.close()
            for suffix in ("", "-wal", "-shm", "-journal"):
                self.path.with_name(self.path.name + suffix).unlink(missing_ok=True)

    def _identity(self) -> tuple[int, int, int] | None:
        """Process and file that a connection is good for: SQLite connections do not survive a fork or a replaced file."""
        try:
            found = self.path.stat()
        except FileNotFoundError:
            return None
        return os.getpid(), found.st_dev, found.st_ino

    def _open(self) -> sqlite3.Connection:
        identity = self._identity()
        if self._connection is not None and identity is not None and self._opened_by == identity:
            return self._connection
        self.close()
        self.path.parent.mkdir(parents=True, exist_ok=True)
        connection = sqlite3.connect(self.path, timeout=BUSY_TIMEOUT_S, isolation_level=None, check_same_thread=False)
        try:
            connection.row_factory = sqlite3.Row
            self._prepare(connection)
        except BaseException:
            connection.close()
            raise
        weakref.finalize(self, _close_in_own_process, connection, os.getpid())
        self._connection = connection
        self._opened_by = self._identity()
        return connection

    def _prepare(self, connection: sqlite3.Connection) -> None:
        if not self._is_current(connection):
            _use_write_ahead_log(connection)
            connection.execute("BEGIN IMMEDIATE")
            try:
                if not self._is_current(connection):
                    (schema.upgrade if self._is_older(connection) else schema.create)(connection)
                connection.execute("COMMIT")
            except BaseException:
                if connection.in_transaction:
                    connection.execute("ROLLBACK")
                raise
        connection.execute("PRAGMA synchronous=NORMAL")

    def _is_older(self, connection: sqlite3.Connection) -> bool:
        """Whether an earlier gpuprov made the file."""
        version = int(connection.execute("PRAGMA user_version").fetchone()[0])
        application = int(connection.execute("PRAGMA application_id").fetchone()[0])
        return application == schema.APPLICATION_ID and 0 < version < schema.VERSION

    def _is_current(self, connection: sqlite3.Connection) -> bool:
        """Whether the file has this version's tables (``False``: it is empty or older). Refuses every other file unchanged."""
        # The tables are counted first: they come with their marks in one transaction, so that whoever sees tables sees the
        # marks after that, also where another process makes them in between.
        tables = int(connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0])
        version = int(connection.execute("PRAGMA user_version").fetchone()[0])
        application = int(connection.execute("PRAGMA application_id").fetchone()[0])
        if application == schema.APPLICATION_ID and version > schema.VERSION:
            raise newer_schema(self.path, version, schema.VERSION)
        if application == schema.APPLICATION_ID and version == schema.VERSION:
            return True
        if tables and not self._is_older(connection):
            raise foreign_file(self.path)
        return False


def _close_in_own_process(connection: sqlite3.Connection, process: int) -> None:
    if os.getpid() == process:
        connection.close()


def _use_write_ahead_log(connection: sqlite3.Connection) -> None:
    """Switch a fresh file to the write-ahead log; SQLite's busy handler does not cover this switch, hence the loop."""
    deadline = time.monotonic() + BUSY_TIMEOUT_S
    while True:
        try:
            connection.execute("PRAGMA journal_mode=WAL")
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY or time.monotonic() > deadline:
                raise
            time.sleep(_WAL_RETRY_S)
        else:
            return


def read_setting(connection: sqlite3.Connection, key: str, default: str) -> str:
    """A stored setting, or the default where none was set."""
    row = connection.execute("SELECT value FROM settings WHERE key = ?", (key,)).fetchone()
    return default if row is None else str(row["value"])


def write_setting(connection: sqlite3.Connection, key: str, value: str) -> None:
    """Store a setting."""
    connection.execute("INSERT OR REPLACE INTO settings (key, value) VALUES (?, ?)", (key, value))


def next_number(connection: sqlite3.Connection, series: str) -> int:
    """The next number of a series, from 0."""
    number = int(read_setting(connection, f"next.{series}", "0"))
    write_setting(connection, f"next.{series}", str(number + 1))
    return number
