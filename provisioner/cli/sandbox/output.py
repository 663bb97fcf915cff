"""How the sandbox's commands print: one JSON document, or a plain table that no terminal width cuts."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import click

from provisioner.cli import settings
from provisioner.clouds.sandbox.cloud import SandboxCloud
from provisioner.clouds.sandbox.controls import Controls
from provisioner.errors import UsageError
from provisioner.units import parse_duration

COUNT_MAX = 999_999_999
"""Largest count that the sandbox's commands take: more than any account has, and safe in every column of its file."""
_COUNT = re.compile(r"[0-9]{1,9}")

format_option = click.option(
    "--format", "output", type=click.Choice(["table", "json"]), default="table", help="Table for people, or JSON."
)


def length(text: str) -> timedelta:
    """The duration of an argument such as ``90s``, ``15m`` or ``2h``; click calls this for each.

    Raises:
        UsageError: no duration.
    """
    try:
        return parse_duration(text)
    except ValueError as error:
        raise UsageError(str(error)) from error


def controls() -> Controls:
    """Controls of the sandbox in the invocation's home."""
    return SandboxCloud(settings.current().home).controls


def print_document(kind: str, **content: Any) -> None:
    """Print one JSON document."""
    click.echo(json.dumps({"schema": f"gpuprov.{kind}/1", **content}, indent=2, ensure_ascii=False))


def print_table(headers: Sequence[str], rows: Sequence[Sequence[object]], *, empty: str) -> None:
    """Print aligned columns; without rows, say on standard error that there is nothing.

    Args:
        headers: one a column.
        rows: cells; ``None`` is shown as a dash.
        empty: what to say where there are no rows.
    """
    if not rows:
        settings.say(empty)
        return
    texts = [[*headers], *(["-" if cell is None else str(cell) for cell in row] for row in rows)]
    widths = [max(len(line[column]) for line in texts) for column in range(len(headers))]
    for line in texts:
        click.echo("  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip())


def count_or_unlimited(text: str) -> int | None:
    """A whole number, or ``None`` for ``unlimited``.

    Raises:
        UsageError: neither.
    """
    if text == "unlimited":
        return None
    if not _COUNT.fullmatch(text):
        raise UsageError(f"{text[:40]!r} is no count", remedy=f"write a whole number up to {COUNT_MAX}, or unlimited")
    return int(text)
