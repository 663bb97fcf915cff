"""The file: shared, durable, versioned, and refused by name where it is not ours."""

from __future__ import annotations

import os
import sqlite3
import threading

import pytest

from provisioner.clouds.sandbox import schema
from provisioner.clouds.sandbox.store import FILE_NAME, Store, next_number, read_setting, write_setting
from provisioner.errors import CloudError


@pytest.fixture
def store(home):
    made = Store(home / FILE_NAME)
    yield made
    made.close()


def test_nothing_is_opened_before_the_first_transaction(home):
    Store(home / "deeper" / FILE_NAME)
    assert not (home / "deeper").exists()


def test_the_folder_and_the_file_are_made_with_their_version(home):
    store = Store(home / "deeper" / FILE_NAME)
    with store.transaction():
        pass
    store.close()
    connection = sqlite3.connect(home / "deeper" / FILE_NAME)
    assert connection.execute("PRAGMA user_version").fetchone() == (schema.VERSION,)
    assert connection.execute("PRAGMA application_id").fetchone() == (schema.APPLICATION_ID,)
    assert connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)
    connection.close()


def test_an_exception_undoes_the_transaction(store):
    with store.transaction() as connection:
        write_setting(connection, "kept", "1")

    def interrupted() -> None:
        with store.transaction() as connection:
            write_setting(connection, "kept", "2")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    with store.transaction() as connection:
        assert read_setting(connection, "kept", "none") == "1"


def test_a_file_of_version_1_gets_what_it_lacks_and_keeps_what_it_has(home):
    path = home / FILE_NAME
    connection = sqlite3.connect(path)
    old = {
        "instances": schema.TABLES["instances"].replace(
            ",\n        root_iops INTEGER, root_mib_per_s INTEGER, node TEXT", ""
        ),
        "volumes": schema.TABLES["volumes"].replace(", iops INTEGER, mib_per_s INTEGER, speed_rate TEXT", ""),
    }
    for name, columns in (schema.TABLES | old).items():
        if name != "health":
            connection.execute(f"CREATE TABLE {name} ({columns})")
    connection.execute("INSERT INTO settings VALUES ('kept', 'yes')")
    connection.execute(
        "INSERT INTO volumes (id, cloud, region, zone, name, size_bytes, tags, created_us, visible_us)"
        " VALUES ('vol-1', 'aws', 'us-east-1', 'use1-az1', 'd', 1, '{}', 0, 0)"
    )
    connection.execute(f"PRAGMA application_id={schema.APPLICATION_ID}")
    connection.execute("PRAGMA user_version=1")
    connection.commit()
    connection.close()
    with Store(path).transaction() as opened:
        columns = {
            table: {row["name"] for row in opened.execute(f"PRAGMA table_info({table})")} for table in schema.TABLES
        }
        assert opened.execute("PRAGMA user_version").fetchone()[0] == schema.VERSION
        assert opened.execute("SELECT value FROM settings WHERE key = 'kept'").fetchone()["value"] == "yes"
        assert opened.execute("SELECT speed_rate FROM volumes").fetchone()["speed_rate"] == "0"
    fresh = home / "fresh"
    with Store(fresh / FILE_NAME).transaction() as opened:
        for table, found in columns.items():
            assert {row["name"] for row in opened.execute(f"PRAGMA table_info({table})")} == found


def test_a_newer_file_is_refused_by_name_and_left_alone(home, store):
    with store.transaction() as connection:
        write_setting(connection, "kept", "1")
    store.close()
    connection = sqlite3.connect(home / FILE_NAME)
    connection.execute(f"PRAGMA user_version={schema.VERSION + 6}")
    connection.close()
    with pytest.raises(CloudError, match=f"{FILE_NAME} has schema version {schema.VERSION + 6}"), store.transaction():
        pass
    connection = sqlite3.connect(home / FILE_NAME)
    assert connection.execute("SELECT value FROM settings WHERE key = 'kept'").fetchone() == ("1",)
    connection.close()


def test_another_sqlite_file_is_refused_by_name_and_left_alone(home, store):
    connection = sqlite3.connect(home / FILE_NAME)
    connection.execute("CREATE TABLE photos (name TEXT)")
    connection.close()
    with (
        pytest.raises(CloudError, match=f"{FILE_NAME} is a SQLite file but not a gpuprov sandbox"),
        store.transaction(),
    ):
        pass
    connection = sqlite3.connect(home / FILE_NAME)
    assert connection.execute("SELECT name FROM sqlite_master").fetchall() == [("photos",)]
    assert connection.execute("PRAGMA journal_mode").fetchone() == ("delete",)
    connection.close()


@pytest.mark.parametrize("content", [b"not a database at all " * 100, b"SQLite format 3\x00" + b"\xff" * 5000])
def test_a_damaged_file_is_a_cloud_error_that_names_it(home, store, content):
    (home / FILE_NAME).write_bytes(content)
    with pytest.raises(CloudError, match=f"{FILE_NAME} is damaged") as caught, store.transaction():
        pass
    assert "sandbox reset --yes" in str(caught.value)
    assert (home / FILE_NAME).read_bytes() == content


def test_damage_inside_a_table_is_a_cloud_error_that_names_it(home, store):
    with store.transaction() as connection:
        for number in range(2000):
            write_setting(connection, f"key-{number:06}", "x" * 100)
    store.close()
    content = bytearray((home / FILE_NAME).read_bytes())
    content[4096:] = b"\xa5" * (len(content) - 4096)
    (home / FILE_NAME).write_bytes(content)
    with pytest.raises(CloudError, match=f"{FILE_NAME} is damaged"), store.transaction() as connection:
        connection.execute("SELECT count(*), max(value) FROM settings").fetchone()


def test_an_empty_file_is_a_fresh_sandbox(home, store):
    (home / FILE_NAME).touch()
    with store.transaction() as connection:
        assert connection.execute("SELECT count(*) FROM instances").fetchone()[0] == 0


def test_a_folder_in_place_of_the_file_is_a_cloud_error(home, store):
    (home / FILE_NAME).mkdir()
    with pytest.raises(CloudError, match=f"{FILE_NAME} cannot be opened"), store.transaction():
        pass


def test_a_home_that_is_a_file_names_itself(home):
    (home / "taken").write_text("")
    with pytest.raises((CloudError, OSError), match="taken"), Store(home / "taken" / FILE_NAME).transaction():
        pass


def test_a_deleted_file_is_made_again(home, store):
    with store.transaction() as connection:
        write_setting(connection, "kept", "1")
    for path in home.iterdir():
        path.unlink()
    with store.transaction() as connection:
        assert read_setting(connection, "kept", "none") == "none"


def test_remove_takes_the_side_files_too(home, store):
    with store.transaction() as connection:
        write_setting(connection, "kept", "1")
    store.remove()
    assert list(home.iterdir()) == []


def test_a_forked_child_opens_the_file_for_itself(home, store):
    with store.transaction() as connection:
        write_setting(connection, "writer", "parent")
    child = os.fork()
    if child == 0:
        with store.transaction() as connection:
            write_setting(connection, "writer", "child")
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    with store.transaction() as connection:
        assert read_setting(connection, "writer", "none") == "child"
        write_setting(connection, "writer", "parent again")


def test_threads_share_a_store(store):
    numbers: list[int] = []

    def take() -> None:
        for _ in range(20):
            with store.transaction() as connection:
                numbers.append(next_number(connection, "test"))

    threads = [threading.Thread(target=take) for _ in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(numbers) == list(range(400))


def test_a_lock_held_for_too_long_is_throttling(home, store, monkeypatch):
    from provisioner.clouds.sandbox import store as module
    from provisioner.errors import Throttled

    with store.transaction():
        pass
    monkeypatch.setattr(module, "BUSY_TIMEOUT_S", 0.01)
    other = Store(home / FILE_NAME)
    with store.transaction(), pytest.raises(Throttled, match="locked by other processes"), other.transaction():
        pass
    other.close()


def test_a_fresh_file_that_another_process_is_preparing_is_waited_for(home, store):
    connection = sqlite3.connect(home / FILE_NAME, isolation_level=None, check_same_thread=False)
    connection.execute("BEGIN EXCLUSIVE")
    timer = threading.Timer(0.1, lambda: connection.execute("COMMIT"))
    timer.start()
    with store.transaction() as ours:
        write_setting(ours, "kept", "1")
    timer.join()
    connection.close()


def test_a_file_that_stays_locked_while_it_is_prepared_is_throttling(home, store, monkeypatch):
    from provisioner.clouds.sandbox import store as module
    from provisioner.errors import Throttled

    monkeypatch.setattr(module, "BUSY_TIMEOUT_S", 0.01)
    connection = sqlite3.connect(home / FILE_NAME, isolation_level=None)
    connection.execute("BEGIN EXCLUSIVE")
    with pytest.raises(Throttled), store.transaction():
        pass
    connection.close()


def test_tables_that_cannot_be_made_leave_an_empty_file(home, store, monkeypatch):
    def fail(connection: sqlite3.Connection) -> None:
        connection.execute("CREATE TABLE settings (key TEXT)")
        raise KeyboardInterrupt

    with monkeypatch.context() as broken:
        broken.setattr(schema, "create", fail)
        with pytest.raises(KeyboardInterrupt), store.transaction():
            pass
    with store.transaction() as connection:
        write_setting(connection, "kept", "1")


def test_a_mistake_of_ours_is_not_dressed_up(store):
    with pytest.raises(sqlite3.OperationalError, match="no such table"), store.transaction() as connection:
        connection.execute("SELECT * FROM no_such_thing")


@pytest.mark.parametrize("reads_before", [0, 1, 2])
def test_a_file_that_another_process_makes_between_two_reads_is_no_foreign_file(home, monkeypatch, reads_before):
    home.mkdir(parents=True, exist_ok=True)
    reads = []

    class Raced(sqlite3.Connection):
        def execute(self, statement, *arguments):
            if len(reads) == reads_before and (statement.startswith("PRAGMA") or "sqlite_master" in statement):
                other = Store(home / FILE_NAME)
                monkeypatch.undo()
                with other.transaction():
                    pass
                other.close()
            reads.append(statement)
            return super().execute(statement, *arguments)

    connect = sqlite3.connect
    monkeypatch.setattr(sqlite3, "connect", lambda *a, **k: connect(*a, factory=Raced, **k))
    store = Store(home / FILE_NAME)
    with store.transaction() as connection:
        assert read_setting(connection, "anything", "none") == "none"
    store.close()
