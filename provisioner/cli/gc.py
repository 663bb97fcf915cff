"""``gpuprov gc``: what carries our tags and nothing here references."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from provisioner.cli import stack_options as options
from provisioner.cli.settings import current, default_cloud, say

if TYPE_CHECKING:
    from stacks.sweep import Swept


@click.command("gc")
@click.option("--yes", "-y", is_flag=True, help="Remove what may be removed; without it nothing is touched.")
@click.option(
    "--stack-id", "stack_ids", metavar="ID", multiple=True, help="Only objects of this stack-id, foreign or not."
)
@options.cloud_option
@options.backend_option
@options.format_option
def command(*, yes: bool, stack_ids: tuple[str, ...], cloud: str | None, backend: str | None, form: str) -> None:
    """List what carries gpuprov's tags in a cloud and no stack of this backend holds; with --yes, remove what is ours.

    Ours is what this backend made and no longer holds (unlocked, older than 15 minutes), what runs an hour past its
    expires-at, and what is stopped an hour past its terminate-after. All else is foreign: --stack-id names it.
    """
    options.cancel_on_signals()
    from stacks.clouds import open_cloud
    from stacks.sweep import document, sweep

    site = options.open_site(backend)
    swept = sweep(site, open_cloud(cloud or default_cloud(), current().home), yes=yes, stack_ids=stack_ids, say=say)
    error = swept.error()
    if form == "json" and error is None:
        options.emit(document(swept))
    elif form == "table":
        _print(swept)
    if error is not None:
        raise options.documented(error, document(swept), form)


def _print(swept: Swept) -> None:
    from stacks.inventory import describe

    if not swept.fates:
        click.echo("nothing to remove" if not swept.unlisted else "nothing to remove in what could be listed")
    for fate in swept.fates:
        one = fate.judgement
        word = "removed" if fate.is_removed else one.verdict.value
        click.echo(
            f"{word:<16}  {describe(one.entry)}  (stack-id {one.entry.tags.get('gpuprov:stack-id', 'none')}; {one.reason})"
        )
    if swept.is_dry and any(fate.judgement.verdict.is_removable for fate in swept.fates):
        click.echo("nothing was touched: `gpuprov gc --yes` removes what is not foreign, unknown or in progress")
