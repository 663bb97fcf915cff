"""What the stack commands share: options, the screen, the one JSON document."""

from __future__ import annotations

import json
import signal
import sys
import threading
from collections.abc import Callable, Mapping
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

import click

from provisioner.cli.failure import DocumentedFailure, error_document, translate
from provisioner.cli.settings import PROVIDERS, current, default_cloud, say
from provisioner.errors import Cancelled, GpuprovError, UsageError
from provisioner.units import parse_duration

if TYPE_CHECKING:
    from stacks.deploy import Watch
    from stacks.progress import Progress
    from stacks.site import Site

Function = TypeVar("Function", bound=Callable[..., Any])
NAME = r"[a-z]([a-z0-9-]{0,39}[a-z0-9])?"

format_option = click.option(
    "--format", "form", type=click.Choice(("table", "json")), default="table", show_default=True, help="How to print."
)
backend_option = click.option("--backend", metavar="URL", help="Pulumi backend: file://, s3://, gs://, https:// …")
yes_option = click.option("--yes", "-y", is_flag=True, help="Do not ask.")
cloud_option = click.option(
    "--cloud", type=click.Choice(PROVIDERS), help="Where to carry the plan out; default GPUPROV_CLOUD, else sandbox."
)


def read_duration(context: click.Context, parameter: click.Parameter, value: str) -> timedelta:
    """A duration of the command line, such as ``2h``."""
    try:
        return parse_duration(value)
    except ValueError as error:
        raise click.BadParameter(str(error), context, parameter) from None


lock_wait_option = click.option(
    "--lock-wait",
    metavar="DURATION",
    callback=read_duration,
    default="10m",
    show_default=True,
    help="How long to wait for another command on the same stack.",
)


def open_site(backend: str | None) -> Site:
    """Where stacks live, by the global options."""
    from stacks.site import Site

    return Site(current().home, backend, say)


def chosen_cloud(option: str | None) -> str | None:
    """``--cloud``, else ``GPUPROV_CLOUD``, else ``None``: the stack's own, or the sandbox."""
    import os

    return option or (default_cloud() if os.environ.get("GPUPROV_CLOUD") else None)


def checked_name(name: str) -> str:
    """A stack's name as contracted.

    Raises:
        UsageError: it has another form.
    """
    import re

    if re.fullmatch(NAME, name) is None:
        raise UsageError(
            f"{name!r} is no name of a stack", remedy="use a-z, 0-9 and -, from a letter, 41 characters at most"
        )
    return name


def screen() -> tuple[Watch, Progress]:
    """Who is told what while the engine works: standard error, unless ``--quiet``."""
    from stacks.deploy import Watch
    from stacks.progress import Progress

    quiet = current().quiet

    def tell(text: str) -> None:  # called from the engine's event thread too, where there is no click context
        if not quiet:
            click.echo(text, err=True)

    progress = Progress(tell)
    return Watch(tell, progress.step, progress.detail), progress


def cancel_on_signals() -> None:
    """Let a signal end the running command as cancelled, from here to its end, with a message and a document of its own."""

    def cancel(number: int, _frame: object) -> None:
        raise Cancelled(f"interrupted by {signal.Signals(number).name}; nothing was changed")

    if threading.current_thread() is threading.main_thread():
        context = click.get_current_context()
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            context.call_on_close(partial(signal.signal, number, signal.signal(number, cancel)))


def require_consent(*, yes: bool) -> None:
    """Refuse early where nobody can answer the question that comes later.

    Raises:
        UsageError: no ``--yes`` and no terminal.
    """
    if not yes and not sys.stdin.isatty():
        raise UsageError("standard input is no terminal, so nobody can confirm", remedy="add --yes")


def confirm(question: str, *, yes: bool) -> None:
    """Ask, unless ``--yes`` answered already.

    Raises:
        Cancelled: the answer is no.
    """
    if not yes and not click.confirm(question, err=True):
        raise Cancelled("not confirmed; nothing was changed")


def emit(document: Mapping[str, Any]) -> None:
    """One JSON document, alone on standard output."""
    click.echo(json.dumps(document, indent=2, ensure_ascii=False))


def classified(error: Exception) -> GpuprovError:
    """Any failure of a command that has begun as one of ours: a full disk and a bug, too, must say what exists now.

    Raises:
        BrokenPipeError: the reader went away; there is nobody to tell.
    """
    if isinstance(error, BrokenPipeError):
        raise error
    return translate(error)


def documented(error: GpuprovError, document: Mapping[str, Any], form: str) -> GpuprovError:
    """The error to raise after a command has begun: with JSON, its own document is printed here with the error in it."""
    if form != "json":
        return error
    emit({**document, "error": error_document(error)})
    return DocumentedFailure(error)
