"""Where gpuprov keeps its things on this host, unless ``GPUPROV_HOME`` or ``--home`` says otherwise."""

from __future__ import annotations

import os
import sys
from pathlib import Path


def default_home() -> Path:
    """The platform's user data folder for gpuprov."""
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Application Support" / "gpuprov"
    base = os.environ.get("XDG_DATA_HOME")
    return (Path(base) if base else Path.home() / ".local" / "share") / "gpuprov"
