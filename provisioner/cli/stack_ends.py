"""What ``down`` does between parsing and printing."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta

import click

from provisioner.cli import stack_options as options
from provisioner.cli.settings import say
from stacks.clouds import cloud_of
from stacks.deploy import Session
from stacks.documents import down_document
from stacks.inventory import describe, look
from stacks.outcome import Changes
from stacks.state import StackState
from stacks.teardown import DownFailed, Ended, data_disks, end_stack, failed, name_disk

DEFAULT_PROVIDER = "sandbox"


@dataclass(frozen=True, slots=True)
class Consent:
    """What the caller has agreed to."""

    yes: bool
    keep_data: bool


def run_down(stack: str, backend: str | None, lock_wait: timedelta, form: str, *, consent: Consent) -> None:
    """Name what ends, ask, end it, and print what is left.

    Raises:
        UsageError: there is no such stack.
        GpuprovError: something could not be ended; it is named.
    """
    provider = DEFAULT_PROVIDER
    try:
        options.require_consent(yes=consent.yes)
        site = options.open_site(backend)
        name = options.checked_name(stack)
        provider = site.existing(name).provider or DEFAULT_PROVIDER
        watch, _ = options.screen()
        with Session(site, name, "down", watch, lock_wait) as session:
            ended = _end(session, provider, consent)
    except DownFailed as failure:
        raise options.documented(failure.error, down_document(failure.ended), form) from failure
    except Exception as error:
        ours = options.classified(error)
        raise options.documented(ours, down_document(Ended(stack, provider)), form) from error
    if form == "json":
        options.emit(down_document(ended))
    else:
        _print(ended)


def _end(session: Session, provider: str, consent: Consent) -> Ended:
    """Ask and end, under the lock: whatever fails now says what is left."""
    state = session.site.existing(session.stack)
    try:
        _ask(session, state, provider, consent)
        return end_stack(session, state, provider, keep_data=consent.keep_data)
    except DownFailed:
        raise
    except Exception as error:
        raise failed(session, provider, options.classified(error), Changes()) from error


def _ask(session: Session, state: StackState, provider: str, consent: Consent) -> None:
    """Name everything that ends, data disks with their size, before the question."""
    standing = look(cloud_of(state, provider, session.site.home), (state.stack_id,), state.regions)
    disks = data_disks(standing)
    for entry in standing.billing:
        if entry not in disks and entry.kind == "instance":
            say(f"ends: {describe(entry)}")
    for disk in disks:
        say(f"{'keeps' if consent.keep_data else 'deletes'} data disk {name_disk(disk)}")
    options.confirm(f"End stack {session.stack!r}?", yes=consent.yes)


def _print(ended: Ended) -> None:
    if ended.is_removed:
        click.echo(f"stack {ended.stack}: ended and removed; nothing of it bills")
        return
    total = ended.standing.price_usd_per_hour if ended.standing is not None else None
    click.echo(f"stack {ended.stack}: the machine has ended; kept {len(ended.kept)} data disk(s)")
    for disk in ended.kept:
        click.echo(f"  {name_disk(disk)}")
    if total is not None:
        from provisioner.units import format_usd

        click.echo(f"  they cost {format_usd(total, 4)}/h; `gpuprov down {ended.stack}` deletes them")
