"""Known models as a table, and one model with its components."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from rich.table import Table
from rich.text import Text

from provisioner.report.tables import plan_console
from provisioner.sizing.components import component_params
from provisioner.sizing.models import KnownModel
from provisioner.sizing.shapes import ModelShape
from provisioner.units import format_gib

BAR_CELLS = 30
WIDE_COLUMNS = 100
ID_COLUMNS = 20


def print_models(known: Sequence[KnownModel], *, color: bool) -> None:
    """Print one line a model; numbers are never cut.

    Where the terminal is narrow the modality is left out and a long id runs over two lines.
    """
    console = plan_console(sys.stdout, color=color)
    is_wide = console.width >= WIDE_COLUMNS
    table = Table(box=None, header_style="dim", pad_edge=False)
    table.add_column("id", overflow="fold", min_width=ID_COLUMNS)
    for name in ("family", "modality") if is_wide else ("family",):
        table.add_column(name, no_wrap=True)
    for name, width in (("parameters", 10), ("active", 7), ("context", 10)):
        table.add_column(name, justify="right", no_wrap=True, min_width=width)
    table.add_column("published as", overflow="fold", min_width=8)
    for each in known:
        cells = [
            each.id,
            each.family,
            *((each.modality,) if is_wide else ()),
            count_text(each.params_total),
            count_text(each.params_active),
            f"{each.max_context_tokens:,}" if each.max_context_tokens else "unknown",
            published_as(each) + (", added" if each.origin == "added" else ""),
        ]
        table.add_row(*cells)
    console.print(table)


def print_model(one: KnownModel, *, color: bool) -> None:
    """Print one model: what it is, and where its parameters are."""
    console = plan_console(sys.stdout, color=color)
    console.print(Text.assemble((one.id, "bold"), f"  {one.family}, {one.modality.replace('_', '-')}, {one.origin}"))
    facts = Table.grid(padding=(0, 2))
    for name, value in _facts(one):
        facts.add_row(Text(name, style="dim"), Text(value))
    console.print(facts)
    if one.shape is None:
        return
    parts = component_params(one.shape)
    whole = sum(parts.values()) or 1
    table = Table(box=None, header_style="dim", pad_edge=False)
    table.add_column("component", no_wrap=True)
    for name in ("parameters", "share"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("")
    for name, params in parts.items():
        share = params / whole
        cells = "\u2588" * max(1, round(share * BAR_CELLS))
        table.add_row(name.replace("_", " "), count_text(params), f"{share:.1%}", cells)
    console.print()
    console.print(table)


def _facts(one: KnownModel) -> list[tuple[str, str]]:
    facts = [("parameters", f"{count_text(one.params_total)} ({one.params_total:,})")]
    if one.params_active != one.params_total:
        facts.append(("active per token", count_text(one.params_active)))
    facts.append(("published as", published_as(one)))
    if one.max_context_tokens:
        facts.append(("context", f"{one.max_context_tokens:,} tokens"))
    if one.shape is not None:
        facts += _shape_facts(one.shape)
    if one.aliases:
        facts.append(("also known as", ", ".join(one.aliases)))
    dated = one.commit or one.as_of
    facts.append(("source", one.source + (f" ({dated})" if dated else "")))
    return facts


def _shape_facts(shape: ModelShape) -> list[tuple[str, str]]:
    facts = []
    if shape.kinds:
        kinds = ", ".join(
            f"{count} {kind.mixer.kind}" for count, kind in zip(shape.counts, shape.kinds, strict=True) if count
        )
        facts.append(("layers", f"{shape.num_layers} ({kinds})"))
    if shape.stored is not None:
        facts.append(("weights", f"{format_gib(shape.stored.total_bytes)} by {shape.stored.source}"))
    return facts


def published_as(one: KnownModel) -> str:
    """The number formats of the published weights: of the parts that are quantised, else of all."""
    if one.quantisation == "none" or one.shape is None or one.shape.quantisation is None:
        return one.weights_dtype
    formats = {name.removesuffix("-block") for _, name in one.shape.quantisation.formats}
    return "+".join(sorted(formats)) or one.quantisation


def count_text(params: int) -> str:
    """Parameters in three digits: ``8.03 B``, ``124 M``."""
    if params >= 999.5e9:
        return f"{params / 1e12:.3g} T"
    return f"{params / 1e9:.3g} B" if params >= 999.5e6 else f"{params / 1e6:.3g} M"
