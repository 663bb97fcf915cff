"""``gpuprov sandbox``: drive the sandbox cloud from outside."""

from __future__ import annotations

import click

from provisioner.cli.groups import CommandGroup
from provisioner.cli.sandbox import account, events, faults, limits, signals


@click.group("sandbox", cls=CommandGroup)
def command() -> None:
    """Drive the sandbox cloud: its limits, events, clock, telemetry, failures and bill. Nothing in it is real."""


for _command in (
    limits.capacity,
    limits.quota,
    events.reclaim,
    events.impair,
    events.finish,
    events.alter,
    events.vanish,
    events.clock,
    signals.telemetry,
    account.bill,
    account.calls,
    account.reset,
    faults.errors,
    faults.latency,
):
    command.add_command(_command)
