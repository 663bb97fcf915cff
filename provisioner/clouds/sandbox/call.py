"""A call of the cloud's interface while it is carried out."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from sqlite3 import Connection


class Effect(StrEnum):
    """What a call did to the account."""

    NONE = "none"
    CREATED = "created"
    REPLAYED = "replayed"
    """The token had made the object before; it was given back."""
    CHANGED = "changed"
    REMOVED = "removed"


@dataclass(frozen=True, slots=True)
class About:
    """What a call is about, for the journal and for injected errors."""

    operation: str
    place: str | None = None
    """Key of the placement, or cloud and region; ``None`` for calls over everything."""
    token: str | None = None
    object_id: str | None = None


@dataclass(slots=True)
class Call:
    """One call inside its transaction."""

    connection: Connection
    now_us: int
    effect: Effect = Effect.NONE
    object_id: str | None = None

    def note(self, effect: Effect, object_id: str) -> None:
        """Say what the call did, for the journal."""
        self.effect = effect
        self.object_id = object_id
