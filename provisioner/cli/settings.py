"""Global options and environment of one invocation."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from pathlib import Path

import click

from provisioner.errors import UsageError
from provisioner.home import default_home

__all__ = ["PROVIDERS", "Settings", "current", "default_cloud", "default_home", "say", "warn"]

PROVIDERS = ("sandbox", "aws", "gcp")


@dataclass(frozen=True, slots=True)
class Settings:
    """What the global options and the environment say."""

    home: Path
    quiet: bool = False
    color: bool = True

    @property
    def use_color(self) -> bool:
        """Colours only on a terminal that wants them."""
        return self.color and not os.environ.get("NO_COLOR") and sys.stderr.isatty()


def default_cloud() -> str:
    """``--cloud`` where it is not given: ``GPUPROV_CLOUD``, else ``sandbox``."""
    cloud = os.environ.get("GPUPROV_CLOUD") or "sandbox"
    if cloud not in PROVIDERS:
        raise UsageError(f"GPUPROV_CLOUD is {cloud!r}", remedy=f"set it to one of {', '.join(PROVIDERS)}")
    return cloud


def current() -> Settings:
    """Settings of the running command."""
    settings = click.get_current_context().find_object(Settings)
    if settings is None:
        return Settings(home=default_home())
    return settings


def say(text: str) -> None:
    """A line for people on standard error; JSON has standard output for itself."""
    if not current().quiet:
        click.echo(text, err=True)


def warn(text: str) -> None:
    """A warning for people on standard error, also with ``--quiet``."""
    click.echo(f"warning: {text}", err=True)
