"""Who a cloud object is: tokens, names and tags, each a function of what the state holds (docs/decisions/0004)."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from provisioner import tags
from provisioner.errors import UsageError
from stacks.provider import lifetime

OVERRIDABLE = (tags.OWNER, tags.IDLE_AFTER, tags.TERMINATE_AFTER, tags.SPEC_DIGEST)
"""Our own tags that a program may state itself, because it knows more than the spec says (a resolved ``auto``)."""

_NAME_LENGTH_MAX = 63
"""GCE: ``[a-z]([-a-z0-9]{0,61}[a-z0-9])?``. Source: Compute Engine API, instances.insert, field name."""
_TOKEN_HEX = 48
"""EC2 takes up to 64 ASCII characters. Source: EC2 API reference, "Ensuring idempotency"."""
_TAG_VALUE_LENGTH_MAX = 256
"""EC2's limit on a tag value. Source: EC2 user guide, "Tag restrictions"."""


@dataclass(frozen=True, slots=True)
class Slot:
    """One resource of one stack: the place that at most one machine (or disk) fills."""

    stack_id: str
    stack: str
    resource: str

    @classmethod
    def of(cls, urn: str, stack_id: str, resource: str | None = None) -> Slot:
        """The slot of a resource by its URN, ``urn:pulumi:<stack>::<project>::<types>::<name>``.

        Raises:
            UsageError: no URN.
        """
        parts = urn.split("::", 3)
        if len(parts) != 4 or not parts[0].startswith("urn:pulumi:"):
            raise UsageError(f"{urn!r} is no URN of a resource")
        parents, _, _own_type = parts[2].rpartition("$")
        name = f"{parents}::{parts[3]}" if parents else parts[3]
        return cls(stack_id, parts[0].removeprefix("urn:pulumi:"), resource or name)

    @property
    def tags(self) -> dict[str, str]:
        """The tags that find everything of this slot, whatever its generation; security groups carry no others."""
        return {tags.STACK_ID: self.stack_id, tags.RESOURCE: self.resource}

    def digest(self, *parts: object) -> str:
        """Hex hash of the slot and further parts; JSON keeps ``("a", "bc")`` and ``("ab", "c")`` apart."""
        text = json.dumps([self.stack_id, self.resource, *map(str, parts)], ensure_ascii=False)
        return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()

    def token(self, generation: int, round_number: int, offer: str) -> str:
        """Idempotency token of one create call of a machine."""
        return self.digest("instance", generation, round_number, offer)[:_TOKEN_HEX]

    def volume_token(self, round_number: int, place: str) -> str:
        """Idempotency token of one create call of a data disk; disks have no launch generation."""
        return self.digest("volume", round_number, place)[:_TOKEN_HEX]

    def name(self, *parts: object) -> str:
        """Name of a cloud object: readable, and unique through the hash at its end."""
        return readable_name(self.stack, self.resource, self.digest("name", *parts)[:10])


def readable_name(stack: str, resource: str, suffix: str) -> str:
    """``<stack>-<resource>-<suffix>`` in the letters that every cloud takes, cut in the middle where it is too long."""
    stem = re.sub(r"[^a-z0-9]+", "-", f"{stack}-{resource.rpartition('::')[2]}".lower()).strip("-")
    if not stem or not stem[0].isalpha():
        stem = f"g-{stem}".rstrip("-")
    return f"{stem[: _NAME_LENGTH_MAX - len(suffix) - 1].rstrip('-')}-{suffix}"


def spec_digest(workload: Mapping[str, Any]) -> str:
    """``sha256:`` and hex of the spec as canonical JSON, the same form as ``provisioner.workload.document``."""
    text = json.dumps(workload, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return f"sha256:{hashlib.sha256(text.encode('utf-8', 'surrogatepass')).hexdigest()}"


def object_tags(
    slot: Slot,
    workload: Mapping[str, Any],
    *,
    generation: int,
    expires_at: str,
    owner: str,
    stated: Mapping[str, str] | None = None,
) -> dict[str, str]:
    """All tags of an object that bills (CONTRACTS section 8), the user's own included.

    Args:
        slot: whose it is.
        workload: the spec.
        generation: counts the objects of the slot.
        expires_at: RFC 3339 UTC or ``none``.
        owner: used where the spec names none.
        stated: tags that the program states; our own keys only from ``OVERRIDABLE``.
    """
    own = {
        tags.STACK_ID: slot.stack_id,
        tags.STACK: slot.stack,
        tags.RESOURCE: slot.resource,
        tags.GENERATION: str(generation),
        tags.OWNER: owner_of(workload) or owner,
        tags.EXPIRES_AT: expires_at,
        tags.IDLE_AFTER: lifetime.idle_after(workload),
        tags.TERMINATE_AFTER: lifetime.terminate_after(workload),
        tags.SPEC_DIGEST: spec_digest(workload),
    }
    merged = {**_texts(workload.get("tags")), **(stated or {})}
    users = {key: value for key, value in merged.items() if key not in own or key in OVERRIDABLE}
    return {key: value[:_TAG_VALUE_LENGTH_MAX] for key, value in {**own, **users}.items()}


def owner_of(workload: Mapping[str, Any]) -> str | None:
    """The person or team that a spec names in its tags."""
    named = _texts(workload.get("tags"))
    return named.get("owner") or named.get("team")


def _texts(value: Any) -> dict[str, str]:
    if not isinstance(value, Mapping):
        return {}
    return {str(key): str(entry) for key, entry in value.items() if isinstance(entry, (str, int, float))}
