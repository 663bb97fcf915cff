"""How errors and failover attempts travel from the provider plugin through the engine to the command line.

The engine passes a provider's error on as text, and decorates it. So the plugin ends each text with a mark that survives the
engine (one word, no spaces), and ``deploy`` reads it back and takes it away before a person sees the text::

    no capacity in 3 offers [gpuprov:capacity:eyJhdHRlbXB0cyI6...]

The word after ``gpuprov:`` is the ``kind`` of a class in ``provisioner.errors``; the rest is URL-safe base64 of a JSON object
with ``message``, ``where``, ``remedy`` and ``attempts``. A progress line of the plugin may carry the mark of one attempt
(``[gpuprov:attempt:...]``) in the same way.
"""

from __future__ import annotations

import base64
import binascii
import json
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from provisioner import errors
from provisioner.errors import GpuprovError

MARKS_VARIABLE = "GPUPROV_MARKS"
"""Set to ``1`` by ``deploy`` in the engine's environment: a user of the stock CLI has no use for marks."""

_MARK = re.compile(r"\s*\[gpuprov:(?P<kind>[a-z]+(?:-[a-z]+)*)(?::(?P<payload>(?:[A-Za-z0-9_=-]|\[secret\])*))?\]")
# The engine writes [secret] over whatever equals a secret value, by chance also inside a payload.
_ATTEMPT = "attempt"


@dataclass(frozen=True, slots=True)
class Attempt:
    """One offer that was tried. ``outcome`` is ``created``, ``adopted`` or the kind of the error that it met."""

    offer: str
    """The offer's key: ``aws/us-east-1/use1-az1/g6.xlarge/on-demand``."""
    outcome: str
    message: str = ""

    def to_document(self) -> dict[str, str]:
        """The attempt as it stands in JSON."""
        return {"offer": self.offer, "outcome": self.outcome, "message": self.message}

    @classmethod
    def from_document(cls, document: Mapping[str, Any]) -> Attempt:
        """An attempt read back; absent texts are empty."""
        return cls(
            str(document.get("offer", "")), str(document.get("outcome", "")), str(document.get("message", "") or "")
        )


@dataclass(frozen=True, slots=True)
class Failure:
    """A decoded error: the exception to raise, and the offers that were tried before it."""

    error: GpuprovError
    attempts: tuple[Attempt, ...] = ()


def wants_marks() -> bool:
    """Whether the process that started the engine reads marks."""
    return os.environ.get(MARKS_VARIABLE) == "1"


def encode(error: GpuprovError, attempts: Iterable[Attempt] = ()) -> str:
    """The text that the plugin hands to the engine for an error."""
    payload = {
        "message": error.message,
        "where": str(error.where) if error.where else None,
        "remedy": error.remedy,
        "attempts": [attempt.to_document() for attempt in attempts],
    }
    return f"{error} {_mark(error.kind, payload)}"


def encode_attempt(attempt: Attempt) -> str:
    """The text of a progress line that tells one attempt, for people and for ``decode_attempts``."""
    detail = f": {attempt.message}" if attempt.message else ""
    return f"{attempt.offer}: {attempt.outcome}{detail} {_mark(_ATTEMPT, attempt.to_document())}"


def decode(text: str) -> Failure | None:
    """The first marked error in a text of the engine, or ``None`` where there is none.

    A mark whose payload does not read (the engine may have masked a part of it as a secret) still gives its kind; the
    message is then the text around the mark.
    """
    for kind, payload in _marks(text):
        if kind == _ATTEMPT:
            continue
        message = payload.get("message") or strip(text)
        error = _error_class(kind)(message, where=payload.get("where"), remedy=payload.get("remedy"))
        attempts = tuple(Attempt.from_document(entry) for entry in payload.get("attempts", ()))
        return Failure(error, attempts)
    return None


def decode_attempts(text: str) -> tuple[Attempt, ...]:
    """The attempts that progress marks in a text tell, in order."""
    return tuple(Attempt.from_document(payload) for kind, payload in _marks(text) if kind == _ATTEMPT and payload)


def strip(text: str) -> str:
    """The text for people: without marks."""
    return _MARK.sub("", text).strip()


def _mark(kind: str, payload: Mapping[str, Any]) -> str:
    packed = json.dumps(payload, ensure_ascii=False, separators=(",", ":")).encode()
    return f"[gpuprov:{kind}:{base64.urlsafe_b64encode(packed).decode('ascii')}]"


def _marks(text: str) -> Iterator[tuple[str, dict[str, Any]]]:
    for match in _MARK.finditer(text):
        yield match["kind"], _payload(match["payload"] or "")


def _payload(packed: str) -> dict[str, Any]:
    try:
        document = json.loads(base64.urlsafe_b64decode(packed.encode("ascii")))
    except (binascii.Error, ValueError):
        return {}
    return document if isinstance(document, dict) else {}


def _error_class(kind: str) -> type[GpuprovError]:
    """The class of a kind; a kind that this version does not know is an unclassified error."""
    classes = (value for value in vars(errors).values() if isinstance(value, type))
    return next((c for c in classes if issubclass(c, GpuprovError) and c.kind == kind), GpuprovError)
