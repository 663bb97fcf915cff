"""``gpuprov start``: start the machine of a stack."""

from __future__ import annotations

from datetime import timedelta

import click

from provisioner.cli import stack_options as options


@click.command("start")
@click.argument("stack")
@options.backend_option
@options.lock_wait_option
@options.format_option
def command(stack: str, *, backend: str | None, lock_wait: timedelta, form: str) -> None:
    """Start the stopped machine of STACK, with a new end of its lifetime; never makes another machine."""
    from provisioner.cli import stack_verbs

    stack_verbs.run_verb("start", stack, backend, lock_wait, form)
