"""Ids that look like the two clouds' own."""

from __future__ import annotations

import os
import re

_AWS_PREFIXES = {"instance": "i", "volume": "vol", "security-group": "sg"}
_NOT_LABEL = re.compile(r"[^a-z0-9]+")
_GCE_NAME_MAX = 63
_GCE_SUFFIX = 8


def new_id(cloud: str, kind: str, name: str) -> str:
    """A fresh id: ``i-0123456789abcdef0`` on AWS, a resource name made from ``name`` on GCP.

    Source: EC2 long ids have 17 hexadecimal digits; GCE names follow RFC 1035, at most 63 characters.
    """
    if cloud == "aws":
        return f"{_AWS_PREFIXES[kind]}-0{os.urandom(8).hex()}"
    stem = _NOT_LABEL.sub("-", name.lower()).strip("-")
    if not stem or not stem[0].isalpha():
        stem = f"{kind}-{stem}".rstrip("-")
    stem = stem[: _GCE_NAME_MAX - _GCE_SUFFIX - 1].rstrip("-")
    return f"{stem}-{os.urandom(_GCE_SUFFIX // 2).hex()}"
