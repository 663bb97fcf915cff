"""``gpuprov down``: end everything of a stack."""

from __future__ import annotations

from datetime import timedelta

import click

from provisioner.cli import stack_options as options


@click.command("down")
@click.argument("stack")
@options.yes_option
@click.option("--keep-data", is_flag=True, help="Keep the data disks, and the stack.")
@options.backend_option
@options.lock_wait_option
@options.format_option
def command(stack: str, *, yes: bool, keep_data: bool, backend: str | None, lock_wait: timedelta, form: str) -> None:
    """End everything of STACK, data disks too: each is named with its size before."""
    options.cancel_on_signals()
    from provisioner.cli import stack_ends

    stack_ends.run_down(stack, backend, lock_wait, form, consent=stack_ends.Consent(yes, keep_data))
