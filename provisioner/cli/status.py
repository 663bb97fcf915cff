"""``gpuprov status``: what exists and what it costs."""

from __future__ import annotations

import click

from provisioner.cli import stack_options as options
from provisioner.cli.settings import current


@click.command("status")
@click.argument("stack", required=False)
@options.backend_option
@options.format_option
def command(stack: str | None, *, backend: str | None, form: str) -> None:
    """Show STACK, or all stacks: what exists in the cloud, its state and its price."""
    from stacks import statuses

    site = options.open_site(backend)
    found = statuses.read_all(site, (options.checked_name(stack),) if stack else None)
    if form == "json":
        options.emit(statuses.document(found))
        return
    from provisioner.report.stacks import print_stacks

    print_stacks(statuses.rows(found), color=current().color)
