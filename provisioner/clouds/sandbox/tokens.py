"""Idempotency tokens, scoped by cloud, region and kind of object as EC2 scopes them.

Source: https://docs.aws.amazon.com/ec2/latest/devguide/ec2-api-idempotency.html; since January 2025 the token of a
terminated instance is refused (boto/boto3#4406).
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, fields
from sqlite3 import Connection
from typing import Any

from provisioner.clouds.cloud import InstanceRequest, Placement, VolumeRequest
from provisioner.clouds.sandbox.errors import token_mismatch


@dataclass(frozen=True, slots=True)
class Token:
    """A token in its scope, with the digest of the request that it came with."""

    cloud: str
    region: str
    kind: str
    text: str
    digest: str


def digest_of(request: InstanceRequest | VolumeRequest) -> str:
    """SHA-256 of a request's every byte; the order of its tags does not count."""
    values = {field.name: getattr(request, field.name) for field in fields(request)}
    text = json.dumps(values, sort_keys=True, ensure_ascii=False, separators=(",", ":"), default=_plain)
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def find(connection: Connection, token: Token) -> str | None:
    """Id of the object that a token made, gone or not; ``None`` for a new token.

    Raises:
        TokenMismatch: the token came with another request before.
    """
    row = connection.execute(
        "SELECT digest, object_id FROM tokens WHERE cloud = ? AND region = ? AND kind = ? AND token = ?",
        (token.cloud, token.region, token.kind, token.text),
    ).fetchone()
    if row is None:
        return None
    if row["digest"] != token.digest:
        raise token_mismatch(token.cloud, token.text, row["object_id"])
    return str(row["object_id"])


def remember(connection: Connection, token: Token, object_id: str) -> None:
    """Bind a token to the object that it made."""
    connection.execute(
        "INSERT INTO tokens (cloud, region, kind, token, digest, object_id) VALUES (?, ?, ?, ?, ?, ?)",
        (token.cloud, token.region, token.kind, token.text, token.digest, object_id),
    )


def _plain(value: object) -> Any:
    """JSON form of what a request holds besides plain values."""
    if isinstance(value, Placement):
        return value.key
    if isinstance(value, Mapping):
        return dict(value)
    raise TypeError(f"a request holds a {type(value).__name__}")
