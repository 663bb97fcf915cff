"""The configuration that a machine's user data carries, read back."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from provisioner.node.renew import program_of, wanted_files

_PATH = "etc/gpuprov/node.json"
"""The watcher's ``CONFIG``, as the user data names it."""


def config_of(user_data: str) -> Mapping[str, Any] | None:
    """What the watcher of a machine goes by; ``None`` where the user data is not ours, and no watcher runs."""
    try:
        found = json.loads(wanted_files(program_of(user_data.encode()))[_PATH][0])
    except (ValueError, LookupError):
        return None  # somebody else's user data may be anything
    return found if isinstance(found, dict) else None
