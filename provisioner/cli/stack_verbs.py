"""``refresh``, ``stop`` and ``start``: one verb on a stack that exists, and the state after it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import TYPE_CHECKING

import click

from provisioner.cli import stack_options as options
from provisioner.errors import GpuprovError
from stacks import power
from stacks.clouds import cloud_of
from stacks.deploy import Session
from stacks.documents import power_of, refresh_document
from stacks.inventory import account, ask
from stacks.outcome import Outcome
from stacks.progress import drift_lines
from stacks.state import StackState

if TYPE_CHECKING:
    from stacks.site import Site

DEFAULT_PROVIDER = "sandbox"


def _refresh(session: Session, state: StackState, provider: str) -> Outcome:
    del state
    return session.refresh(provider)


VERBS: Mapping[str, Callable[[Session, StackState, str], Outcome]] = {
    "refresh": _refresh,
    "stop": power.stop_machine,
    "start": power.start_machine,
}


def run_verb(verb: str, stack: str, backend: str | None, lock_wait: timedelta, form: str) -> None:
    """Do it, and show what the cloud showed.

    Raises:
        UsageError: there is no such stack.
        GpuprovError: the cloud or the engine refused; the message says what exists and what it costs.
    """
    options.cancel_on_signals()
    site = options.open_site(backend)
    name = options.checked_name(stack)
    provider = site.existing(name).provider or DEFAULT_PROVIDER
    watch, progress = options.screen()
    progress.is_on = False
    with Session(site, name, verb, watch, lock_wait) as session:
        try:
            outcome = power.require_settled(VERBS[verb](session, site.existing(name), provider))
        except Exception as error:
            raise _accounted(options.classified(error), site, name, provider) from error
        state = session.state()
    if form == "json":
        options.emit(refresh_document(verb, name, outcome, state))
        return
    for line in drift_lines(outcome) or ["  no difference between the state and the cloud"]:
        click.echo(line)
    click.echo(f"stack {name}: {power_of(state)}")


def _accounted(error: GpuprovError, site: Site, name: str, provider: str) -> GpuprovError:
    state = site.read(name)
    standing = ask(cloud_of(state, provider, site.home), state)
    return account(error, standing, state, name)
