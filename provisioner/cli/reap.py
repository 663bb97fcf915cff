"""``gpuprov reap``: idle, over-age and forgotten machines of an account."""

from __future__ import annotations

import os
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from time import sleep
from typing import TYPE_CHECKING

import click

from provisioner.cli import stack_options as options
from provisioner.cli.failure import DocumentedFailure, error_document
from provisioner.cli.settings import current, default_cloud, say, warn
from provisioner.errors import CloudError, GpuprovError, UsageError

if TYPE_CHECKING:
    from decimal import Decimal

    from provisioner.clouds.cloud import BillableObject, Cloud
    from provisioner.reaper.sweep import Limits, Sweep


SHORTEST_PAUSE = timedelta(seconds=1)


def _http_address(context: click.Context, parameter: click.Parameter, value: str | None) -> str | None:
    """An address that is refused before anything is marked, and not when the marks are to be sent."""
    if value is not None and not value.startswith(("https://", "http://")):
        raise click.BadParameter(f"{value!r} is no http address; give one that takes JSON by POST", context, parameter)
    return value


@click.command("reap")
@click.option("--yes", "-y", is_flag=True, help="Mark and end; without it nothing is changed.")
@options.cloud_option
@click.option("--watch", is_flag=True, help="Sweep again and again, until interrupted; JSON is one document a sweep.")
@click.option(
    "--every", metavar="DURATION", callback=options.read_duration, default="1m", show_default=True, help="With --watch."
)
@click.option("--report", is_flag=True, help="Also list GPU machines that are not ours; they are only read.")
@click.option("--notify", metavar="URL", callback=_http_address, help="Send each new mark there as JSON.")
@click.option("--max-count", type=click.IntRange(1), default=20, show_default=True, help="Most machines a sweep.")
@click.option(
    "--max-share", type=click.IntRange(1, 100), default=50, show_default=True, help="Most of all machines, in percent."
)
@options.format_option
def command(
    *,
    yes: bool,
    cloud: str | None,
    watch: bool,
    every: timedelta,
    report: bool,
    notify: str | None,
    max_count: int,
    max_share: int,
    form: str,
) -> None:
    """Find machines that are idle, over age or stopped too long: mark, wait a grace, look again, stop or terminate."""
    if every < SHORTEST_PAUSE:
        raise UsageError("--every is shorter than a second", remedy="write it as 1m")
    options.cancel_on_signals()
    from provisioner.reaper.sweep import Limits
    from stacks.clouds import open_cloud

    account = open_cloud(cloud or default_cloud(), current().home)
    limits = Limits(max_count, max_share / 100)
    while True:
        try:
            unlisted = _sweep(account, limits, yes=yes, report=report, notify=notify, form=form)
        except GpuprovError as error:
            # One that watches outlives a bad minute of the cloud; missing rights stay missing, and end it.
            if not watch or error.exit_code != CloudError.exit_code:
                raise
            warn(f"this sweep has failed, the next comes: {error}")
        else:
            if unlisted is not None and not watch:
                raise DocumentedFailure(unlisted) if form == "json" else unlisted
            if unlisted is not None:  # denied by policy it stays so, and the others are watched on
                warn(str(unlisted))
        if not watch:
            return
        sleep(every.total_seconds())


def _sweep(
    account: Cloud, limits: Limits, *, yes: bool, report: bool, notify: str | None, form: str
) -> GpuprovError | None:
    """One sweep, told in whole; what is to be said of regions that do not answer, in JSON with the document already.

    Raises:
        GpuprovError: the account cannot be listed, or a machine could not be handled.
    """
    from provisioner.reaper.sweep import marked, sweep
    from stacks import reaping
    from stacks.clouds import error_of_unlisted, survey_others

    inventory = reaping.CloudInventory(account)
    done = sweep(inventory, limits, dry=not yes)
    others = survey_others(account) if report else None
    foreign = others.objects if others is not None else ()
    missing = {**inventory.unlisted, **(others.unlisted if others is not None else {})}
    marks = marked(done.outcomes)
    if notify and marks:
        try:
            reaping.notify(notify, marks)
        except OSError as error:
            warn(f"the marks could not be sent to {notify}: {error}")
    summary = os.environ.get("GITHUB_STEP_SUMMARY")
    if summary and marks:
        with Path(summary).open("a", encoding="utf-8") as page:
            page.write("".join(f"- {reaping.announcement(mark)}\n" for mark in marks))
    failure = done.error()
    unlisted = error_of_unlisted(missing)
    document = reaping.document(done, foreign, account.provider, missing)
    if form == "table":
        _print(done, foreign, yes=yes)
    elif failure is None:
        options.emit({**document, "error": error_document(unlisted)} if unlisted is not None else document)
    if failure is not None:
        raise options.documented(failure, document, form)
    return unlisted


def _print(done: Sweep, foreign: Sequence[BillableObject], *, yes: bool) -> None:
    from stacks import reaping

    for line in reaping.lines(done) or [f"{_machines(len(done.outcomes))}, none idle, over age or stopped too long"]:
        click.echo(line)
    for entry in foreign:
        kind = entry.extra.get("instance_type", "")
        click.echo(f"not ours: {entry.id} ({kind}) {entry.state} in {entry.cloud} {entry.region}")
    _say_total(done, yes=yes)


def _say_total(done: Sweep, *, yes: bool) -> None:
    if done.idle_usd_per_hour != 0:
        say(f"saved {_price(done.saved_usd_per_hour)} now; all that is marked costs {_price(done.idle_usd_per_hour)}")
    if not yes:
        say("dry run: nothing was changed; --yes marks, and ends what is due")


def _machines(count: int) -> str:
    return f"{count} machine{'' if count == 1 else 's'}"


def _price(amount: Decimal | None) -> str:
    from provisioner.units import format_usd

    return "an unknown price" if amount is None else f"{format_usd(amount, 4)}/h"
