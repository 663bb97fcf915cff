"""A spec as a JSON document, and the digest of that document."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel

from provisioner.workload.keys import kind_of


def part_document(part: BaseModel) -> dict[str, Any]:
    """Keys and values of a part of a spec, defaults included; absent and empty ones are left out."""
    document: dict[str, Any] = {}
    for key in type(part).model_fields:
        value = getattr(part, key)
        if value is None or value in ((), {}):
            continue
        written = part_document(value) if isinstance(value, BaseModel) else _written(part, key, value)
        if written != {}:
            document[key] = written
    return document


def _written(part: BaseModel, key: str, value: Any) -> Any:
    kind = kind_of(type(part), key)
    return value if kind is None else kind.write(value)


def document_digest(document: Mapping[str, Any]) -> str:
    """``sha256:`` and the hex hash of the document as canonical JSON (sorted keys, no spaces, UTF-8)."""
    text = json.dumps(document, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    return f"sha256:{hashlib.sha256(text.encode('utf-8')).hexdigest()}"
