"""``sandbox errors`` and ``latency``: rehearse what goes wrong, and how slowly."""

from __future__ import annotations

from datetime import timedelta

import click

from provisioner.cli import settings
from provisioner.cli.groups import CommandGroup
from provisioner.cli.sandbox.output import COUNT_MAX, controls, format_option, length, print_document, print_table
from provisioner.clouds.sandbox.errors import INJECTED
from provisioner.clouds.sandbox.faults import Fault
from provisioner.clouds.sandbox.latencies import RECORD_AT_END, RECORD_AT_START, Latency, names
from provisioner.clouds.sandbox.pools import ANYWHERE, parse
from provisioner.units import format_duration


@click.group("errors", cls=CommandGroup)
def errors() -> None:
    """Errors that strike coming calls on purpose."""


@errors.command("inject")
@click.argument("kind", type=click.Choice(sorted(INJECTED)))
@click.option(
    "--on", "operation", default="*", help="Operation or pattern, such as create_instance (default: any call)."
)
@click.option("--at", "pool", default=ANYWHERE, help="Pool of placements, as in `capacity set` (default: anywhere).")
@click.option("--count", type=click.IntRange(1, COUNT_MAX), default=1, help="How many calls it strikes (default: 1).")
@click.option("--always", is_flag=True, help="It strikes until `errors clear`.")
@click.option("--skip", type=click.IntRange(0, COUNT_MAX), default=0, help="Let so many matching calls pass first.")
def inject(kind: str, operation: str, pool: str, *, count: int, always: bool, skip: int) -> None:
    """Let coming calls fail with KIND.

    Nothing happens in the account, except with `ambiguous-after`: the call is carried out and its answer is lost.
    """
    controls().inject(Fault(kind, operation, parse(pool), skip, None if always else count))
    settings.say(f"{kind} will strike {'every call' if always else f'{count} call(s)'} of {operation} at {pool}")


@errors.command("show")
@format_option
def show_errors(output: str) -> None:
    """Show the errors that are still to strike."""
    found = controls().faults()
    if output == "json":
        items = [
            {"kind": one.kind, "on": one.operation, "at": one.pool, "skip": one.skip, "remaining": one.remaining}
            for one in found
        ]
        print_document("faults", errors=items)
        return
    rows = [
        (one.kind, one.operation, one.pool, one.skip, "always" if one.remaining is None else one.remaining)
        for one in found
    ]
    print_table(("KIND", "ON", "AT", "SKIP", "REMAINING"), rows, empty="no errors are injected")


@errors.command("clear")
def clear_errors() -> None:
    """Forget all injected errors."""
    controls().clear_faults()
    settings.say("no errors are injected")


@click.group("latency", cls=CommandGroup)
def latency() -> None:
    """How long calls block, changes take, and lists lag behind."""


@latency.command("set")
@click.argument("name", type=click.Choice(names()))
@click.argument("duration", metavar="DURATION", type=length)
@click.option(
    "--record-at",
    type=click.Choice([RECORD_AT_START, RECORD_AT_END]),
    default=RECORD_AT_START,
    help="Whether a slow call takes effect before its wait (its answer can be lost) or after it.",
)
def set_latency(name: str, duration: timedelta, record_at: str) -> None:
    """Let NAME take DURATION: a call (create, ...), a change (boot, ...), or the visibility of new objects."""
    kept = controls().set_latency(Latency(name, duration, record_at))
    settings.say(f"latency of {kept.name}: {format_duration(kept.duration)}")


@latency.command("show")
@format_option
def show_latency(output: str) -> None:
    """Show all latencies."""
    found = controls().latencies()
    if output == "json":
        items = [{"name": one.name, "seconds": one.blocks_s, "record_at": one.record_at} for one in found]
        print_document("latency", latencies=items)
        return
    rows = [(one.name, format_duration(one.duration), one.record_at) for one in found]
    print_table(("NAME", "DURATION", "RECORD AT"), rows, empty="no latencies")
