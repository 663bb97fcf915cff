"""``gpuprov models``: known models and their shapes."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import click

from provisioner.cli.settings import current, say

if TYPE_CHECKING:
    from provisioner.sizing.models import KnownModel

SCHEMA = "gpuprov.models/1"


@click.command("models")
@click.argument("model", metavar="[ID]", required=False)
@click.option("--format", "form", type=click.Choice(["table", "json"]), default="table")
def command(model: str | None, *, form: str) -> None:
    """All bundled models, or one by id or alias (case does not count; part of an id lists what matches)."""
    from provisioner.sizing.models import known_models

    known = known_models()
    if model is not None:
        known = _matching(model, known)
    if form == "json":
        click.echo(json.dumps(_document(known), indent=2, ensure_ascii=False))
        return
    _print(known)
    say(f"{len(known)} models; a config.json works as well: model: {{config: ./config.json}}")


def _matching(text: str, known: tuple[KnownModel, ...]) -> tuple[KnownModel, ...]:
    """The model that is meant, or all whose id or alias holds the text."""
    from provisioner.errors import UsageError
    from provisioner.sizing.models import find_model

    try:
        wanted = find_model(text).id
    except UsageError:
        part = text.strip().lower()
        found = tuple(each for each in known if any(part in name.lower() for name in (each.id, *each.aliases)))
        if not part or not found:
            raise
        return found
    return tuple(each for each in known if each.id == wanted)


def _document(known: tuple[KnownModel, ...]) -> dict[str, Any]:
    return {"schema": SCHEMA, "models": [asdict(each) | {"aliases": list(each.aliases)} for each in known]}


def _print(known: tuple[KnownModel, ...]) -> None:
    import sys

    from rich.table import Table

    from provisioner.report.tables import plan_console

    table = Table(box=None, header_style="dim", pad_edge=False)
    # Numbers are never cut; a long id runs over two lines where the terminal is narrow.
    table.add_column("id", overflow="fold", min_width=24)
    for name in ("family", "modality"):
        table.add_column(name, no_wrap=True)
    for name, width in (("parameters", 10), ("active", 7), ("context", 10)):
        table.add_column(name, justify="right", no_wrap=True, min_width=width)
    table.add_column("published as", overflow="fold", min_width=8)
    for each in known:
        published = each.weights_dtype if each.quantisation == "none" else each.quantisation
        table.add_row(
            each.id,
            each.family,
            each.modality,
            _billions(each.params_total),
            _billions(each.params_active),
            f"{each.max_context_tokens:,}" if each.max_context_tokens else "unknown",
            published,
        )
    plan_console(sys.stdout, color=current().color).print(table)


def _billions(params: int) -> str:
    return f"{params / 1e9:.3g} B" if params >= 999.5e6 else f"{params / 1e6:.3g} M"
