from __future__ import annotations

import errno
import os
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from provisioner.clouds.cloud import Placement
from provisioner.errors import Cancelled, Locked, UsageError
from provisioner.vocabulary import CapacityType
from stacks.provider import journal
from stacks.provider.journal import Note, Stage
from tests.fakes.cloud import CallRecord, Clock, ClockedLifeline
from tests.fakes.mini_engine import engine, program

PLACE = Placement("aws", "us-east-1", None, "g6.xlarge", CapacityType.SPOT)
NOTE = Note("instance", Stage.CALLING, PLACE, 3, 1, datetime(2026, 11, 30, 12, tzinfo=UTC))


@pytest.fixture
def lifeline() -> ClockedLifeline:
    return ClockedLifeline(Clock())


def test_a_note_is_read_back(home: Path, lifeline: ClockedLifeline) -> None:
    path = journal.slot_path(home, "stack", "instance", "gpu")
    assert journal.peek(path) is None
    with journal.hold(path, lifeline) as calls:
        assert calls.read() is None
        calls.write(NOTE)
        made = NOTE.moved(Stage.MADE, NOTE.at + timedelta(seconds=2), "i-1")
        calls.write(made)
        assert calls.read() == made
        calls.write(NOTE)  # shorter than the one before
        assert calls.read() == NOTE
    assert journal.peek(path) == NOTE
    assert path.stat().st_mode & 0o777 == 0o600
    assert journal.paths(home, "stack") == (path,)
    assert journal.paths(home, "another") == ()


def test_no_call_goes_out_without_its_note_and_no_answer_is_lost_with_it(
    home: Path, lifeline: ClockedLifeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    with journal.hold(journal.slot_path(home, "stack", "instance", "gpu"), lifeline) as calls:
        calls.write(NOTE)
        monkeypatch.setattr(os, "pwrite", full)
        with pytest.raises(UsageError, match="No space left on device; nothing was made"):
            calls.write(NOTE)
        calls.amend(NOTE.moved(Stage.MADE, NOTE.at, "i-1"))
        assert calls.read() is None


def test_a_machine_is_kept_where_the_disk_fills_up_while_it_is_made(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mini = engine(home)

    def full(*_: object) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    def fills_up(call: CallRecord) -> None:
        if call.operation == "create_instance":
            monkeypatch.setattr(os, "pwrite", full)

    mini.cloud.on_call = fills_up
    mini.up(program())
    assert [machine.id for machine in mini.cloud.living] == [mini.outputs("gpu")["instanceId"]]


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b'{"kind": "instance"}', b"\xff\xfe", b"null"])
def test_a_torn_note_is_no_note(home: Path, lifeline: ClockedLifeline, content: bytes) -> None:
    path = journal.slot_path(home, "stack", "instance", "gpu")
    with journal.hold(path, lifeline) as calls:
        path.write_bytes(content)
        assert calls.read() is None


def test_forgetting_leaves_no_file(home: Path, lifeline: ClockedLifeline) -> None:
    path = journal.slot_path(home, "stack", "instance", "gpu")
    with journal.hold(path, lifeline) as calls:
        calls.write(NOTE)
        calls.forget()
    assert journal.paths(home, "stack") == ()
    journal.forget_stack(home, "stack")
    journal.forget_stack(home, "stack")
    assert not path.parent.exists()


_HOLDER = """
import sys, time
from pathlib import Path
from stacks.provider import journal
from stacks.provider.lifeline import Lifeline
with journal.hold(Path(sys.argv[1]), Lifeline()) as calls:
    print("held", flush=True)
    sys.stdin.readline()
    if sys.argv[2] == "forget":
        calls.forget()
"""


@pytest.mark.parametrize("ending", ["forget", "keep", "kill"])
def test_a_lock_of_another_process_is_waited_for(home: Path, ending: str) -> None:
    path = journal.slot_path(home, "stack", "instance", "gpu")
    pipe = subprocess.PIPE
    with subprocess.Popen([sys.executable, "-c", _HOLDER, str(path), ending], stdin=pipe, stdout=pipe) as holder:
        assert holder.stdout is not None
        assert holder.stdin is not None
        assert holder.stdout.readline() == b"held\n"

        class Releasing(ClockedLifeline):
            def sleep(self, seconds: float) -> None:
                if ending == "kill":
                    holder.kill()
                elif not holder.stdin.closed:  # type: ignore[union-attr]
                    holder.stdin.close()  # type: ignore[union-attr]
                holder.wait()
                super().sleep(seconds)

        lifeline = Releasing(Clock())
        with journal.hold(path, lifeline) as calls:
            assert calls.read() is None
            assert path.exists()  # the lock is on the file that the next one will open


def test_a_lock_that_is_never_released_ends_the_wait(home: Path, lifeline: ClockedLifeline) -> None:
    path = journal.slot_path(home, "stack", "instance", "gpu")
    with journal.hold(path, lifeline):
        with pytest.raises(Locked, match="15 min"), journal.hold(path, lifeline):
            pass
        lifeline.close("the engine is gone")
        with pytest.raises(Cancelled), journal.hold(path, lifeline):
            pass


def test_a_home_that_is_no_folder_is_a_usage_error(home: Path, lifeline: ClockedLifeline) -> None:
    (home / "file").write_text("")
    with pytest.raises(UsageError, match="GPUPROV_HOME"), journal.hold(home / "file" / "y.json", lifeline):
        pass
