"""What clouds have refused for want of capacity a short while ago, shared by all processes of this host.

One file below gpuprov's home: key of a pool -> until when it is not asked again. An answer holds as far and as long as the
cloud's table of errors says (one pool for minutes, a type in a zone for a day). The sandbox's answers are not kept: what is set
there by hand changes by hand.
"""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path

from provisioner.clouds.cloud import Placement
from provisioner.errors import CapacityError, GpuprovError
from provisioner.tags import format_time, parse_time

_FILE = "unavailable.json"
LOSS_LASTS = timedelta(minutes=10)
"""As long as a refusal for want of capacity: it is the same pool with the same want."""
POOL, TYPE_IN_ZONE = "pool", "type-in-zone"
_SCOPES = (POOL, TYPE_IN_ZONE)
"""Scopes that hold for every account alike; a subnet or a quota is one account's, and is asked about again."""


@dataclass(frozen=True, slots=True)
class Block:
    """A pool that is not asked for a while."""

    until: datetime
    reason: str


@dataclass(frozen=True, slots=True)
class Unavailable:
    """The cache of one home."""

    home: Path

    def block(self, placement: Placement, now: datetime) -> Block | None:
        """Why a placement is not worth asking for yet."""
        held = self._read()
        found = (held.get(_key(placement, scope)) for scope in _SCOPES)
        return next((block for block in found if block is not None and block.until > now), None)

    def note(self, placement: Placement, error: GpuprovError, now: datetime) -> None:
        """Keep a refusal, where the cloud says how far and how long it holds."""
        if error.scope in _SCOPES and error.lasts is not None:
            with suppress(OSError), self._changing(now) as held:  # without it a pool is asked once more
                held[_key(placement, error.scope)] = Block(now + error.lasts, _first_line(error.message))

    def note_loss(self, placement: Placement, now: datetime) -> None:
        """Keep that a pool has just taken a machine back: the next one is asked for elsewhere first."""
        error = CapacityError(f"a {placement.capacity_type} machine was taken back there")
        error.scope, error.lasts = POOL, LOSS_LASTS
        self.note(placement, error, now)

    def forget(self, placement: Placement, now: datetime) -> None:
        """It has room after all."""
        if any(_key(placement, scope) in self._read() for scope in _SCOPES):
            with suppress(OSError), self._changing(now) as held:  # it ends by itself
                for scope in _SCOPES:
                    held.pop(_key(placement, scope), None)

    @property
    def _path(self) -> Path:
        return self.home / _FILE

    def _read(self) -> dict[str, Block]:
        try:
            document = json.loads(self._path.read_bytes())
            return {str(key): _block(entry) for key, entry in document.items()}
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            return {}  # only a hint: without it a pool is asked once more

    @contextmanager
    def _changing(self, now: datetime) -> Iterator[dict[str, Block]]:
        """The cache under its lock; written whole, without what is over."""
        self.home.mkdir(parents=True, exist_ok=True, mode=0o700)
        descriptor = os.open(self.home / f"{_FILE}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            held = self._read()
            yield held
            kept = {
                key: {"until": format_time(block.until), "reason": block.reason}
                for key, block in sorted(held.items())
                if block.until > now
            }
            draft = self.home / f"{_FILE}.{os.getpid()}"
            draft.write_text(json.dumps(kept, ensure_ascii=False, indent=1), encoding="utf-8")
            draft.replace(self._path)
        finally:
            os.close(descriptor)


def _key(placement: Placement, scope: str) -> str:
    market = "*" if scope == TYPE_IN_ZONE else placement.capacity_type.value
    return f"{placement.cloud}/{placement.region}/{placement.zone or '*'}/{placement.instance_type}/{market}"


def _block(entry: Mapping[str, str]) -> Block:
    until = parse_time(entry["until"])
    if until is None:
        raise ValueError("until")
    return Block(until, str(entry["reason"]))


def _first_line(text: str) -> str:
    return text.partition("\n")[0][:200]
