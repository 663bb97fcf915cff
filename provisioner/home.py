"""Where gpuprov keeps its things on this host, unless ``GPUPROV_HOME`` or ``--home`` says otherwise."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from provisioner.errors import UsageError


def default_home() -> Path:
    """The platform's user data folder for gpuprov.

    Raises:
        UsageError: the user has no home folder (no ``HOME`` and no entry in the password database).
    """
    if sys.platform == "darwin":
        return user_folder("GPUPROV_HOME") / "Library" / "Application Support" / "gpuprov"
    return (xdg_folder("XDG_DATA_HOME") or user_folder("GPUPROV_HOME") / ".local" / "share") / "gpuprov"


def xdg_folder(variable: str) -> Path | None:
    """The folder of an XDG variable; relative ones do not count.

    Source: https://specifications.freedesktop.org/basedir-spec/latest/ ("must be absolute ... should consider the path invalid").
    """
    folder = Path(os.environ.get(variable, ""))
    return folder if folder.is_absolute() else None


def user_folder(variable: str) -> Path:
    """The user's home folder.

    Raises:
        UsageError: there is none, as for a number without a user in a container; ``variable`` is what to set then.
    """
    try:
        return Path.home()
    except RuntimeError:
        raise UsageError("this user has no home folder", remedy=f"set {variable} or HOME to a folder") from None


def default_cache() -> Path:
    """The user's cache folder for gpuprov: what can be read or built again. Never below ``GPUPROV_HOME``.

    Raises:
        UsageError: the user has no home folder (no ``HOME`` and no entry in the password database).
    """
    if sys.platform == "darwin" and xdg_folder("XDG_CACHE_HOME") is None:
        return user_folder("XDG_CACHE_HOME") / "Library" / "Caches" / "gpuprov"
    return (xdg_folder("XDG_CACHE_HOME") or user_folder("XDG_CACHE_HOME") / ".cache") / "gpuprov"
