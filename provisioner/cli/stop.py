"""``gpuprov stop``: stop the machine of a stack."""

from __future__ import annotations

from datetime import timedelta

import click

from provisioner.cli import stack_options as options


@click.command("stop")
@click.argument("stack")
@options.backend_option
@options.lock_wait_option
@options.format_option
def command(stack: str, *, backend: str | None, lock_wait: timedelta, form: str) -> None:
    """Stop the machine of STACK; its disks stay, and cost on."""
    from provisioner.cli import stack_verbs

    stack_verbs.run_verb("stop", stack, backend, lock_wait, form)
