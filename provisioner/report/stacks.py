"""Stacks for people: one block each, with what exists and what it costs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import click

from provisioner.units import HOURS_PER_MONTH, format_usd


def print_stacks(rows: Sequence[Mapping[str, Any]], *, color: bool) -> None:
    """Print stacks on standard output.

    Args:
        rows: entries with ``stack``, ``provider``, ``state``, ``price`` (USD an hour or ``None``), ``objects`` and ``notes``.
        color: whether a terminal gets colours.
    """
    if not rows:
        click.echo("no stacks; `gpuprov up SPEC` makes one")
    for row in rows:
        name = click.style(row["stack"], bold=True)
        line = f"{name}  {row['state']}  on {row['provider']}  {_price(row['price'])}"
        click.echo(line, color=None if color else False)
        for text in row["objects"]:
            click.echo(f"    {text}")
        for text in row["notes"]:
            click.echo(f"  ! {text}")


def _price(price: Any) -> str:
    if price is None:
        return "price unknown"
    return f"{format_usd(price, 4)}/h ({format_usd(price * HOURS_PER_MONTH)} a month)"
