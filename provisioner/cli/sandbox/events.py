"""``sandbox reclaim``, ``vanish`` and ``clock``: what happens to machines from outside."""

from __future__ import annotations

from datetime import timedelta

import click

from provisioner.cli import settings
from provisioner.cli.groups import CommandGroup
from provisioner.cli.sandbox.output import controls, format_option, length, print_document
from provisioner.clouds.sandbox.cloud import SandboxCloud
from provisioner.tags import format_time
from provisioner.units import format_duration


@click.command("reclaim")
@click.argument("instance_id", metavar="ID")
@click.option(
    "--notice", metavar="DURATION", type=length, help="Time until it is taken (default: the cloud's own notice)."
)
@format_option
def reclaim(instance_id: str, notice: timedelta | None, output: str) -> None:
    """Let the cloud take spot machine ID back, after its notice (2 minutes on AWS); `clock advance` makes it quick."""
    moment = controls().reclaim(instance_id, notice)
    if output == "json":
        print_document("reclaim", id=instance_id, reclaimed_at=format_time(moment))
        return
    click.echo(f"{instance_id}: interruption notice given, taken back at {format_time(moment)}")


@click.command("vanish")
@click.argument("object_id", metavar="ID")
def vanish(object_id: str) -> None:
    """Make ID (a machine, a volume or a security group) disappear without a trace, as if deleted from the console."""
    kind = controls().vanish(object_id)
    settings.say(f"{kind} {object_id} has vanished; its bill has ended")


@click.group("clock", cls=CommandGroup)
def clock() -> None:
    """The sandbox's own clock: the host's, plus what it was moved."""


@clock.command("advance")
@click.argument("duration", metavar="DURATION", type=length)
@format_option
def advance(duration: timedelta, output: str) -> None:
    """Move the clock forward by DURATION, such as 2h; lifetimes, notices and the bill follow."""
    controls().advance_clock(duration)
    _print_clock(output)


@clock.command("show")
@format_option
def show_clock(output: str) -> None:
    """Show the sandbox's time and how far it is ahead."""
    _print_clock(output)


def _print_clock(output: str) -> None:
    cloud = SandboxCloud(settings.current().home)
    ahead = cloud.controls.clock_offset()
    if output == "json":
        print_document("clock", now=format_time(cloud.now()), ahead_s=ahead.total_seconds())
        return
    click.echo(f"{format_time(cloud.now())} ({format_duration(ahead)} ahead of this host)")
