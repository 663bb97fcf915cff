"""``sandbox bill``, ``calls`` and ``reset``: the account's books."""

from __future__ import annotations

import sys

import click

from provisioner.cli import settings
from provisioner.cli.sandbox.output import COUNT_MAX, controls, format_option, print_document, print_table
from provisioner.clouds.sandbox import bill as books
from provisioner.clouds.sandbox.clock import from_us
from provisioner.errors import UsageError
from provisioner.tags import format_time


@click.command("bill")
@click.option("--running", is_flag=True, help="Only what bills right now.")
@click.option("--stack-id", help="Only objects with this gpuprov:stack-id.")
@format_option
def bill(*, running: bool, stack_id: str | None, output: str) -> None:
    """Show what every object has cost and costs now: machines while they run, disks and addresses while they exist."""
    document = books.document(controls().bill(running_only=running, stack_id=stack_id))
    if output == "json":
        print_document("bill", **{key: value for key, value in document.items() if key != "schema"})
        return
    keys = ("id", "kind", "stack", "from", "to", "hours", "usd", "usd_per_hour")
    rows = [[line[key] for key in keys] for line in document["lines"]]
    print_table(
        [key.upper().replace("_", " ") for key in keys],
        rows,
        empty="nothing bills" if running else "nothing ever billed",
    )
    click.echo(f"total {document['total_usd']} USD; now {document['running_usd_per_hour']} USD/h")
    if document["unpriced"]:
        settings.warn(f"without a known price, and in no sum: {', '.join(document['unpriced'])}")


@click.command("calls")
@click.option("--after", type=click.IntRange(0, COUNT_MAX), default=0, help="Only calls after this number.")
@click.option("--operation", help="Only calls of this operation, such as create_instance.")
@format_option
def calls(after: int, operation: str | None, output: str) -> None:
    """Show the journal of calls: what came in, what it did, how it was answered."""
    entries = controls().calls(after=after, operation=operation)
    if output == "json":
        items = [
            {
                "number": entry.id,
                "at": from_us(entry.at_us).isoformat(),
                "operation": entry.operation,
                "place": entry.place,
                "token": entry.token,
                "object": entry.object_id,
                "effect": str(entry.effect),
                "outcome": entry.outcome,
                "pid": entry.pid,
            }
            for entry in entries
        ]
        print_document("calls", calls=items)
        return
    rows = [
        (entry.id, format_time(from_us(entry.at_us)), entry.operation, entry.object_id or entry.place, entry.effect,
         entry.outcome, entry.token, entry.pid)
        for entry in entries
    ]  # fmt: skip
    headers = ("NUMBER", "AT", "OPERATION", "OBJECT OR PLACE", "EFFECT", "OUTCOME", "TOKEN", "PID")
    print_table(headers, rows, empty="no calls yet")


@click.command("reset")
@click.option("--yes", is_flag=True, help="Do not ask.")
def reset(*, yes: bool) -> None:
    """Empty the sandbox: objects, bill, limits, clock, failures and journal."""
    if not yes:
        if not sys.stdin.isatty():
            raise UsageError("emptying the sandbox needs a yes", remedy="add --yes")
        click.confirm("Empty the sandbox?", abort=True, err=True)
    controls().reset()
    settings.say("the sandbox is empty")
