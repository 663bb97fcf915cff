"""Tag keys on everything that bills, and their spelling as GCP labels (CONTRACTS section 8)."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import UTC, datetime

PREFIX = "gpuprov:"
STACK_ID = "gpuprov:stack-id"
"""Random, made once, committed to the state before anything billable: the identity in tokens, adoption and gc."""
STACK = "gpuprov:stack"
RESOURCE = "gpuprov:resource"
GENERATION = "gpuprov:generation"
OWNER = "gpuprov:owner"
EXPIRES_AT = "gpuprov:expires-at"
IDLE_AFTER = "gpuprov:idle-after"
TERMINATE_AFTER = "gpuprov:terminate-after"
SPEC_DIGEST = "gpuprov:spec-digest"
IDLE_THEN = "gpuprov:idle-then"
"""`stop` or `terminate`, on machines whose spec says which."""
RUN_DIGEST = "gpuprov:run-digest"
"""What a machine's user data starts (``stacks.provider.rerun``); ``none`` for a bare machine. Absent: made before it was written."""

REQUIRED = (STACK_ID, STACK, RESOURCE, GENERATION, OWNER, EXPIRES_AT, IDLE_AFTER, TERMINATE_AFTER, SPEC_DIGEST)
NONE = "none"
"""Value of ``expires-at``, ``idle-after`` and ``terminate-after`` where there is no such limit."""

WORKLOAD = "gpuprov:workload"
"""On other people's resources: path of the workload spec, relative to their project."""

LEASE_UNTIL = "gpuprov-lease-until"

_LABEL_OTHER = re.compile(r"[^a-z0-9_-]")
_DIGEST = re.compile(r"(?:sha256:)?([0-9a-f]{64})")
_TIME = re.compile(r"\d{4}-\d{2}-\d{2}T\d{2}:\d{2}:\d{2}Z")
_LABEL_LENGTH_MAX = 63


def format_time(moment: datetime) -> str:
    """RFC 3339 text of an aware moment, in UTC with whole seconds: ``2026-11-30T14:15:45Z``."""
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def parse_time(text: str) -> datetime | None:
    """The aware moment of a tag value, or ``None`` for ``none``.

    Raises:
        ValueError: neither ``none`` nor an RFC 3339 time with a zone.
    """
    if text == NONE:
        return None
    moment = datetime.fromisoformat(text)
    if moment.tzinfo is None:
        raise ValueError(f"{text!r} has no time zone")
    return moment


def gcp_labels(tags: Mapping[str, str]) -> dict[str, str]:
    """The same facts as GCP labels: ``-`` for ``:``, lower case, times as ``20261130t141545z``, digests cut to 32 hex."""
    return {_label(key.replace(":", "-")): _label(_label_value(value)) for key, value in tags.items()}


def _label_value(value: str) -> str:
    if digest := _DIGEST.fullmatch(value):
        return digest[1][:32]
    if _TIME.fullmatch(value):
        return value.replace("-", "").replace(":", "")
    return value


def _label(text: str) -> str:
    return _LABEL_OTHER.sub("_", text.lower())[:_LABEL_LENGTH_MAX]
