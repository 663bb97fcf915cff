"""``gpuprov keepalive``: a lease against idle teardown."""

from __future__ import annotations

from datetime import timedelta

import click

from provisioner.cli import stack_options as options
from provisioner.cli.settings import warn
from provisioner.errors import NotFound, UsageError

LONGEST = timedelta(days=31)


@click.command("keepalive")
@click.argument("stack")
@click.option(
    "--for", "period", metavar="DURATION", callback=options.read_duration, required=True, help="How long, from now: 2h."
)
@options.backend_option
@options.format_option
def command(stack: str, *, period: timedelta, backend: str | None, form: str) -> None:
    """Keep the machine of STACK, idle or not, for a while; its lifetime and what it may spend still end it."""
    from provisioner import tags
    from provisioner.clouds.cloud import InstanceState
    from provisioner.reaper import machines
    from provisioner.reaper.decision import Cause
    from stacks import own_machine
    from stacks.clouds import cloud_of

    if not timedelta(0) < period <= LONGEST:
        raise UsageError(f"--for takes up to {LONGEST.days} days", remedy="write it as 2h or 3d")
    site = options.open_site(backend)
    state = site.existing(options.checked_name(stack))
    cloud = cloud_of(state, state.provider or "sandbox", site.home)
    instance = own_machine.machine_of(state, cloud)
    if instance.state not in (InstanceState.RUNNING, InstanceState.PENDING):
        raise NotFound(f"{instance.id} is {instance.state}: there is nothing to keep", remedy=f"gpuprov start {stack}")
    until = cloud.now() + period
    written = {tags.LEASE_UNTIL: tags.format_time(until)}
    # Only the mark of an idle machine goes: one past its lifetime would win a new grace by it.
    if instance.tags.get(machines.CAUSE) == Cause.IDLE:
        written |= {machines.DUE: tags.NONE, machines.CAUSE: tags.NONE}
    cloud.set_tags(instance.placement, instance.id, written)
    ends = tags.parse_time(instance.tags.get(tags.EXPIRES_AT, tags.NONE))
    if ends is not None and ends < until:
        warn(f"its lifetime ends first, at {tags.format_time(ends)} (lifecycle.max_lifetime)")
    if form == "json":
        options.emit(
            {
                "schema": "gpuprov.keepalive/1",
                "stack": stack,
                "instance_id": instance.id,
                "lease_until": tags.format_time(until),
                "expires_at": instance.tags.get(tags.EXPIRES_AT),
            }
        )
        return
    click.echo(f"stack {stack}: kept until {tags.format_time(until)}")
