"""``gpuprov logs``: what a stack's machine says on its serial console."""

from __future__ import annotations

import click

from provisioner.cli import stack_options as options
from provisioner.errors import NotFound


@click.command("logs")
@click.argument("stack")
@click.option("--lines", type=click.IntRange(1, 10_000), default=100, show_default=True, help="The last so many.")
@options.backend_option
@options.format_option
def command(stack: str, *, lines: int, backend: str | None, form: str) -> None:
    """Show the last lines of the machine of STACK, also for some time after its end; no port is opened for it."""
    from stacks import own_machine
    from stacks.clouds import cloud_of

    site = options.open_site(backend)
    state = site.existing(options.checked_name(stack))
    if not state.outputs.get("instanceId"):
        raise NotFound(f"stack {stack!r} has no machine", remedy="`gpuprov up` makes one")
    cloud = cloud_of(state, state.provider or "sandbox", site.home)
    instance_id = str(state.outputs["instanceId"])
    shown = cloud.read_console(own_machine.placement_of(state.outputs), instance_id)[-lines:]
    if form == "json":
        options.emit({"schema": "gpuprov.logs/1", "stack": stack, "instance_id": instance_id, "lines": list(shown)})
        return
    for line in shown:
        click.echo(line)
