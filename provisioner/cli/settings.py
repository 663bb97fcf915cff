"""Global options and environment of one invocation."""

from __future__ import annotations

import os
import sys
from functools import cached_property
from pathlib import Path

import click

from provisioner.errors import UsageError
from provisioner.home import default_home
from provisioner.records import record

PROVIDERS = ("sandbox", "aws", "gcp")


@record(frozen=True)
class Settings:
    """What the global options and the environment say."""

    chosen_home: Path | None = None
    """``--home`` or ``GPUPROV_HOME``; ``None`` is the platform's folder."""
    quiet: bool = False
    color: bool = True

    @cached_property
    def home(self) -> Path:
        """State, sandbox and engine home, absolute; looked for only when a command needs one: ``plan`` does not."""
        return (self.chosen_home or default_home()).absolute()

    @property
    def use_color(self) -> bool:
        """Colours only on a terminal that wants them."""
        return self.color and not os.environ.get("NO_COLOR") and sys.stderr.isatty()


def checked_home(text: str | None) -> Path | None:
    """The folder that ``--home`` names, existing or not.

    Raises:
        UsageError: it is empty (an unset variable in a script must not mean the current folder), or no folder.
    """
    if text is None:
        return None
    if not text.strip():
        raise UsageError("--home is empty", remedy="name a folder, or leave the option out")
    path = Path(text)
    if path.exists() and not path.is_dir():
        raise UsageError(f"--home {text} is no folder", remedy="name a folder, existing or not")
    return path


def default_cloud() -> str:
    """``--cloud`` where it is not given: ``GPUPROV_CLOUD``, else ``sandbox``.

    Raises:
        UsageError: ``GPUPROV_CLOUD`` is none of the providers.
    """
    cloud = os.environ.get("GPUPROV_CLOUD") or "sandbox"
    if cloud not in PROVIDERS:
        raise UsageError(f"GPUPROV_CLOUD is {cloud!r}", remedy=f"set it to one of {', '.join(PROVIDERS)}")
    return cloud


def current() -> Settings:
    """Settings of the running command."""
    settings = click.get_current_context().find_object(Settings)
    if settings is None:
        return Settings()
    return settings


def say(text: str) -> None:
    """A line for people on standard error; JSON has standard output for itself."""
    if not current().quiet:
        click.echo(text, err=True)


def warn(text: str) -> None:
    """A warning for people on standard error, also with ``--quiet``."""
    click.echo(f"warning: {text}", err=True)
