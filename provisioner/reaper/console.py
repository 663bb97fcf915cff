"""What a machine's watcher writes on its serial console: one JSON object a line, among the lines of others."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

_BEGINS = '{"gpuprov"'


def said(line: str) -> Mapping[str, Any] | None:
    """What the watcher says in a line; ``None`` for a line of others, or one that the console's buffer has cut."""
    start = line.find(_BEGINS)
    if start < 0:
        return None
    try:
        found = json.loads(line[start:])
    except ValueError:
        return None
    return found if isinstance(found, dict) else None
