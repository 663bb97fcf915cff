"""``gpuprov reap``: idle, over-age and forgotten machines of an account."""

from __future__ import annotations

import os
from datetime import timedelta
from pathlib import Path
from time import sleep
from typing import TYPE_CHECKING

import click

from provisioner.cli import stack_options as options
from provisioner.cli.settings import current, say, warn
from provisioner.errors import CloudError

if TYPE_CHECKING:
    from provisioner.clouds.cloud import Cloud
    from provisioner.reaper.sweep import Limits, Sweep


@click.command("reap")
@click.option("--yes", "-y", is_flag=True, help="Mark and end; without it nothing is changed.")
@options.cloud_option
@click.option("--watch", is_flag=True, help="Sweep again and again, until interrupted.")
@click.option(
    "--every", metavar="DURATION", callback=options.read_duration, default="1m", show_default=True, help="With --watch."
)
@click.option("--report", is_flag=True, help="Also list GPU machines that are not ours; they are only read.")
@click.option("--notify", metavar="URL", help="Send each new mark there as JSON.")
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
    options.cancel_on_signals()
    from provisioner.reaper.sweep import Limits
    from stacks.clouds import open_cloud

    account = open_cloud(options.chosen_cloud(cloud) or "sandbox", current().home)
    limits = Limits(max_count, max_share / 100)
    while True:
        done = _sweep(account, limits, yes=yes, report=report, notify=notify, form=form)
        if not watch:
            break
        sleep(every.total_seconds())
    failed = [outcome for outcome in done.outcomes if outcome.error is not None]
    if failed:
        first = failed[0]
        raise CloudError(
            f"{len(failed)} machines could not be handled, {first.verdict.machine.id} first: {first.error}",
            remedy="run it again; what was done is done",
        )


def _sweep(account: Cloud, limits: Limits, *, yes: bool, report: bool, notify: str | None, form: str) -> Sweep:
    from provisioner.reaper.sweep import marked, sweep
    from stacks import reaping

    done = sweep(reaping.CloudInventory(account), limits, dry=not yes)
    foreign = account.list_others() if report else []
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
    if form == "json":
        options.emit(reaping.document(done, foreign, account.provider))
        return done
    for line in reaping.lines(done) or [f"{len(done.outcomes)} machines, none idle, over age or stopped too long"]:
        click.echo(line)
    for entry in foreign:
        kind = entry.extra.get("instance_type", "")
        click.echo(f"not ours: {entry.id} ({kind}) {entry.state} in {entry.cloud} {entry.region}")
    _say_total(done, yes=yes)
    return done


def _say_total(done: Sweep, *, yes: bool) -> None:
    from provisioner.units import format_usd

    def price(amount: object) -> str:
        from decimal import Decimal

        return f"{format_usd(amount, 4)}/h" if isinstance(amount, Decimal) else "an unknown price"

    if done.idle_usd_per_hour != 0:
        say(f"saved {price(done.saved_usd_per_hour)} now; all that is marked costs {price(done.idle_usd_per_hour)}")
    if not yes:
        say("dry run: nothing was changed; --yes marks, and ends what is due")
