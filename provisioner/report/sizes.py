"""Sized layouts on a terminal: one line each, with a bar of what fills the GPU."""

from __future__ import annotations

import sys

from rich.table import Table
from rich.text import Text

from provisioner.planner.sizes import SizedLayout
from provisioner.report.tables import plan_console
from provisioner.units import GIB
from provisioner.vocabulary import Fit

BAR_CELLS = 24
STYLES = {Fit.FITS: "green", Fit.BORDERLINE: "yellow", Fit.DOES_NOT_FIT: "red"}
PARTS = (
    ("weights_bytes", "W"),
    ("kv_cache_bytes", "K"),
    ("gradient_bytes", "G"),
    ("optimizer_bytes", "O"),
    ("activation_bytes", "A"),
    ("overhead_bytes", "."),
)
LEGEND = "W weights  K KV cache  G gradients  O optimizer state  A activations  . overhead  | usable memory ends here"


def print_sizes(sized: tuple[SizedLayout, ...], *, color: bool) -> None:
    """Print all layouts, best verdicts told apart by colour and word."""
    console = plan_console(sys.stdout, color=color)
    table = Table(box=None, header_style="dim", pad_edge=False)
    for name in ("GPU", "layout", "need", "band", "usable", "memory", "verdict", "tokens/s"):
        table.add_column(
            name, justify="right" if name in ("need", "band", "usable", "tokens/s") else "left", no_wrap=True
        )
    for each in sized:
        fit = each.footprint.fit
        terms = each.footprint.per_gpu
        table.add_row(
            each.gpu,
            layout_text(each),
            f"{terms.total_bytes / GIB:.1f}",
            f"{terms.low_bytes / GIB:.1f}-{terms.high_bytes / GIB:.1f}",
            f"{each.footprint.usable_bytes / GIB:.1f}",
            Text(bar(each)),
            Text(fit.value, style=STYLES[fit]),
            rate_text(each),
        )
    console.print(table)
    console.print(Text(f"GiB per GPU; {LEGEND}", style="dim"))


def layout_text(each: SizedLayout) -> str:
    """Parallel degrees in a few letters: ``TP2``, ``TP4 PP2``, ``FSDP x8``."""
    layout = each.layout
    parts = [f"TP{layout.tensor_parallel}"] if layout.tensor_parallel > 1 else []
    parts += [f"PP{layout.pipeline_parallel}"] if layout.pipeline_parallel > 1 else []
    parts += [f"{layout.sharding.value.upper()} x{layout.data_parallel}"] if layout.data_parallel > 1 else []
    return " ".join(parts) or "1 GPU"


def bar(each: SizedLayout) -> str:
    """What fills the GPU, in cells of usable memory; what goes beyond is drawn past the mark, up to half as much again."""
    usable = each.footprint.usable_bytes
    cells = ""
    reached = 0.0
    for field, letter in PARTS:
        size = getattr(each.footprint.per_gpu, field) or 0
        reached += size / usable * BAR_CELLS
        cells += letter * max(0, min(round(reached), BAR_CELLS * 3 // 2) - len(cells))
    if len(cells) <= BAR_CELLS:
        return cells.ljust(BAR_CELLS) + "|"
    return cells[:BAR_CELLS] + "|" + cells[BAR_CELLS:]


def rate_text(each: SizedLayout) -> str:
    """The task's main rate, or a dash where it is not known."""
    speed = each.throughput
    rate = speed.decode_tokens_per_s_per_replica or speed.train_tokens_per_s or speed.images_per_s
    return "-" if rate is None else f"{rate:,.0f}" if rate >= 10 else f"{rate:.2g}"
