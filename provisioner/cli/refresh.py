"""``gpuprov refresh``: read a stack's real state from the cloud."""

from __future__ import annotations

from datetime import timedelta

import click

from provisioner.cli import stack_options as options


@click.command("refresh")
@click.argument("stack")
@options.backend_option
@options.lock_wait_option
@options.format_option
def command(stack: str, *, backend: str | None, lock_wait: timedelta, form: str) -> None:
    """Take what the cloud shows of STACK into its state, and show the difference: stopped, interrupted, vanished."""
    from provisioner.cli import stack_verbs

    stack_verbs.run_verb("refresh", stack, backend, lock_wait, form)
