"""The call journal: what create call of a slot is in flight on this host, and what became of the last one.

It closes the seconds in which nothing else knows of a machine: the call has been made, the response is lost or the process
killed, and the cloud does not show the machine yet. One locked file a slot, written before and after each create call. Whoever
wants to create, delete or sweep takes the lock first, and so waits for a call that outlived its engine.

It is a hint, not the truth: without it (another host, a wiped home) creates wait out the cloud's visibility window instead.
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from datetime import datetime
from enum import StrEnum
from pathlib import Path
from typing import Any

from provisioner import tags
from provisioner.clouds.cloud import Placement
from provisioner.errors import Locked, UsageError
from provisioner.vocabulary import CapacityType
from stacks.provider.lifeline import Lifeline

_FOLDER = "calls"
_FLAGS = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC
_POLL_S = 0.1
_WAIT_S = 15 * 60.0
"""Longest wait for a call of another process; longer than any cloud lets a create call hang."""


class Stage(StrEnum):
    """What is known of the last create call."""

    CALLING = "calling"
    """Begun, and no answer noted: it may have taken effect."""
    REFUSED = "refused"
    """The cloud said no: nothing was made."""
    MADE = "made"
    """The cloud said yes; the object may not be visible yet."""
    SEEN = "seen"
    """The object was visible: if it is not now, it is gone."""


@dataclass(frozen=True, slots=True)
class Note:
    """The last create call of a slot."""

    kind: str
    """``instance`` or ``volume``."""
    stage: Stage
    placement: Placement
    generation: int
    round_number: int
    at: datetime
    object_id: str | None = None

    def moved(self, stage: Stage, at: datetime, object_id: str | None = None) -> Note:
        """The same call, further on."""
        return replace(self, stage=stage, at=at, object_id=object_id or self.object_id)

    def to_document(self) -> dict[str, Any]:
        """The note as JSON."""
        place = self.placement
        return {
            "kind": self.kind,
            "stage": self.stage.value,
            "placement": [place.cloud, place.region, place.zone, place.instance_type, place.capacity_type.value],
            "generation": self.generation,
            "round": self.round_number,
            "at": tags.format_time(self.at),
            "object_id": self.object_id,
        }

    @classmethod
    def from_document(cls, document: Mapping[str, Any]) -> Note:
        """A note read back; raises ``KeyError``, ``TypeError`` or ``ValueError`` for anything else."""
        cloud, region, zone, instance_type, capacity_type = document["placement"]
        at = tags.parse_time(document["at"])
        if at is None:
            raise ValueError("a note has a time")
        return cls(
            kind=str(document["kind"]),
            stage=Stage(document["stage"]),
            placement=Placement(cloud, region, zone, instance_type, CapacityType(capacity_type)),
            generation=int(document["generation"]),
            round_number=int(document["round"]),
            at=at,
            object_id=document.get("object_id"),
        )


class Journal:
    """The call journal of one slot, while its lock is held."""

    def __init__(self, path: Path, descriptor: int) -> None:
        self._path = path
        self._descriptor = descriptor

    def read(self) -> Note | None:
        """The last call, or ``None`` where this host knows of none."""
        os.lseek(self._descriptor, 0, os.SEEK_SET)
        return _parse(os.read(self._descriptor, 65536))

    def write(self, note: Note) -> None:
        """Write the note down for good, before the call goes out.

        Raises:
            UsageError: it cannot be written; then no call may go out.
        """
        try:
            self._put(note)
        except OSError as error:
            raise UsageError(
                f"{self._path}: {error.strerror}; nothing was made",
                remedy="make room there, or set GPUPROV_HOME to a folder that can be written",
            ) from error

    def amend(self, note: Note) -> None:
        """Write down what came of the call.

        A full disk must not take away the machine that was just made: without the note, later runs go by its tags.
        """
        with suppress(OSError):
            self._put(note)

    def _put(self, note: Note) -> None:
        text = json.dumps(note.to_document(), ensure_ascii=False).encode()
        # In place: a rename would leave the lock on a file that nobody opens any more. A torn write reads as no note.
        os.ftruncate(self._descriptor, 0)
        os.pwrite(self._descriptor, text, 0)
        os.fsync(self._descriptor)

    def forget(self) -> None:
        """Remove the file: nothing of the slot is left."""
        self._path.unlink(missing_ok=True)


def slot_path(home: Path, stack_id: str, kind: str, resource: str) -> Path:
    """Where the journal of a slot lies."""
    name = hashlib.sha256(f"{kind}\n{resource}".encode("utf-8", "surrogatepass")).hexdigest()[:16]
    return _folder(home, stack_id) / f"{name}.json"


@contextmanager
def hold(path: Path, lifeline: Lifeline) -> Iterator[Journal]:
    """The journal of a slot, locked against every other process of this host.

    Raises:
        Locked: another process kept it for 15 minutes.
        Cancelled: the engine went away while waiting.
        UsageError: the folder cannot be written.
    """
    descriptor = _lock(path, lifeline)
    try:
        yield Journal(path, descriptor)
    finally:
        os.close(descriptor)


def peek(path: Path) -> Note | None:
    """The last call of a slot without taking the lock; it may be in flight."""
    try:
        return _parse(path.read_bytes())
    except OSError:
        return None


def paths(home: Path, stack_id: str) -> tuple[Path, ...]:
    """Journals of all slots of a stack that this host knows."""
    return tuple(sorted(_folder(home, stack_id).glob("*.json")))


def forget_stack(home: Path, stack_id: str) -> None:
    """Remove the stack's folder once its journals are gone."""
    try:
        _folder(home, stack_id).rmdir()
    except OSError as error:
        if error.errno not in (errno.ENOENT, errno.ENOTEMPTY, errno.EEXIST):
            raise


def _folder(home: Path, stack_id: str) -> Path:
    return home / _FOLDER / hashlib.sha256(stack_id.encode("utf-8", "surrogatepass")).hexdigest()[:32]


def _lock(path: Path, lifeline: Lifeline) -> int:
    waited_s = 0.0
    while True:
        descriptor = _open(path)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(descriptor)
        else:
            if _is_current(path, descriptor):
                return descriptor
            os.close(descriptor)  # its holder removed the file while we waited
            continue
        if waited_s >= _WAIT_S:
            raise Locked(
                f"another process has held {path} for {_WAIT_S / 60:.0f} min",
                remedy="an earlier run still waits for a call of the cloud: let it end, or end that process",
            )
        lifeline.sleep(_POLL_S)
        waited_s += _POLL_S


def _open(path: Path) -> int:
    try:
        try:
            return os.open(path, _FLAGS, 0o600)
        except FileNotFoundError:  # the folder: the file itself is made
            path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            return os.open(path, _FLAGS, 0o600)
    except OSError as error:
        raise UsageError(
            f"{path}: {error.strerror}", remedy="set GPUPROV_HOME to a folder that can be written"
        ) from None


def _is_current(path: Path, descriptor: int) -> bool:
    try:
        return os.path.samestat(path.stat(), os.fstat(descriptor))
    except FileNotFoundError:
        return False


def _parse(content: bytes) -> Note | None:
    try:
        return Note.from_document(json.loads(content))
    except (ValueError, KeyError, TypeError):
        return None
