"""``gpuprov unlock``: show who holds a stack, and clear a lock that an engine left."""

from __future__ import annotations

import click

from provisioner.cli import stack_options as options


@click.command("unlock")
@click.argument("stack")
@options.backend_option
@options.format_option
def command(stack: str, *, backend: str | None, form: str) -> None:
    """Clear the lock of STACK after showing its holder. A holder that is alive on this host is never cleared."""
    from stacks.documents import unlock_document
    from stacks.unlocking import unlock

    site = options.open_site(backend)
    name = options.checked_name(stack)
    if name not in site.stacks():
        raise site.unknown(name)
    cleared = unlock(site, name)
    if form == "json":
        options.emit(unlock_document(name, cleared))
        return
    for lock in cleared:
        click.echo(f"cleared: {lock}")
    if not cleared:
        click.echo(f"stack {name} is not locked")
