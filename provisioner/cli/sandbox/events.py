"""``sandbox reclaim``, ``impair``, ``finish``, ``vanish`` and ``clock``: what happens to machines."""

from __future__ import annotations

from datetime import timedelta

import click

from provisioner.cli import settings
from provisioner.cli.groups import CommandGroup
from provisioner.cli.sandbox.output import controls, format_option, length, print_document
from provisioner.clouds.sandbox import health
from provisioner.clouds.sandbox.cloud import SandboxCloud
from provisioner.errors import UsageError
from provisioner.tags import format_time
from provisioner.units import DiskSpeed, format_duration


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


@click.command("impair")
@click.argument("instance_id", metavar="ID")
@click.option("--check", type=click.Choice(sorted(health.CHECKS)), help="Let this status check fail.")
@click.option("--event", type=click.Choice(health.EVENTS), help="Let the cloud announce this event.")
@click.option("--watcher", is_flag=True, help="Let its watcher and dead man's switch fail; `reap` alone ends it then.")
@click.option("--after", metavar="DURATION", type=length, help="When the event begins (default: 24h).")
@click.option("--clear", is_flag=True, help="Let it be well again.")
def impair(
    instance_id: str, check: str | None, event: str | None, *, watcher: bool, after: timedelta | None, clear: bool
) -> None:
    """Let machine ID ail: a failing status check, an event that is announced, a dead watcher; `status` shows it."""
    if [check is not None, event is not None, watcher, clear].count(True) != 1:
        raise UsageError("say one of --check, --event, --watcher and --clear")
    if after is not None and event is None:
        raise UsageError("--after goes with --event")
    if clear:
        controls().heal(instance_id)
        settings.say(f"{instance_id} is well again")
        return
    if watcher:
        controls().kill_watcher(instance_id)
        settings.say(f"{instance_id}: its watcher is dead")
        return
    kind = health.CHECKS[check] if check is not None else str(event)
    controls().impair(instance_id, kind, (after or timedelta(hours=24)) if event is not None else None)
    settings.say(f"{instance_id}: {kind}")


@click.command("finish")
@click.argument("instance_id", metavar="ID")
@click.option(
    "--exit-code", type=click.IntRange(0, 255), default=0, show_default=True, help="What it ends with; 0 is done."
)
@click.option("--after", metavar="DURATION", type=length, help="When (default: now).")
@click.option("--line", "lines", multiple=True, help="One of its last lines; may be repeated.")
@format_option
def finish(instance_id: str, exit_code: int, after: timedelta | None, lines: tuple[str, ...], output: str) -> None:
    """Let the command of the workload on ID end for good: done, or failed after its restarts."""
    moment = controls().finish(instance_id, exit_code, after or timedelta(0), lines)
    if output == "json":
        print_document("finish", id=instance_id, exit_code=exit_code, finished_at=format_time(moment))
        return
    click.echo(f"{instance_id}: its command ends with {exit_code} at {format_time(moment)}")


@click.command("alter")
@click.argument("instance_id", metavar="ID")
@click.option("--instance-type", metavar="TYPE", help="Make it another type, as after a stop, a change and a start.")
@click.option("--shutdown", type=click.Choice(("stop", "terminate")), help="What a shutdown from inside does.")
@click.option("--root-speed", metavar="IOPS:MIBPS", help="Speed of its root disk, such as 6000:500.")
def alter(instance_id: str, instance_type: str | None, shutdown: str | None, root_speed: str | None) -> None:
    """Change machine ID as somebody at the console would, behind gpuprov's back; `refresh` and `preview` show it."""
    if instance_type is None and shutdown is None and root_speed is None:
        raise UsageError("say one of --instance-type, --shutdown and --root-speed")
    controls().alter(
        instance_id,
        instance_type=instance_type,
        stops=None if shutdown is None else shutdown == "stop",
        root_speed=None if root_speed is None else _speed(root_speed),
    )
    settings.say(f"{instance_id} is changed")


def _speed(text: str) -> DiskSpeed:
    iops, _, mib_per_s = text.partition(":")
    if not iops.isdecimal() or not mib_per_s.isdecimal():
        raise UsageError(f"--root-speed is IOPS:MIBPS, not {text!r}", remedy="write it such as 6000:500")
    return DiskSpeed(int(iops), int(mib_per_s))


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
