"""Sized layouts on a terminal: one line each, with a bar of what fills the GPU and how far the layout goes."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from rich.table import Table
from rich.text import Text

from provisioner.planner.sizes import SizedLayout
from provisioner.report.tables import plan_console
from provisioner.sizing.throughput import main_rate
from provisioner.units import GIB
from provisioner.vocabulary import Fit

BAR_CELLS = 24
BAR_CELLS_LEAST = 8
WIDE_COLUMNS = 105
"""Terminal width from which the band and the rate have room beside the rest."""
STYLES = {Fit.FITS: "green", Fit.BORDERLINE: "yellow", Fit.DOES_NOT_FIT: "red"}
PARTS = (
    ("weights_bytes", "W", "weights"),
    ("kv_cache_bytes", "K", "KV cache"),
    ("gradient_bytes", "G", "gradients"),
    ("optimizer_bytes", "O", "optimizer state"),
    ("activation_bytes", "A", "activations"),
    ("overhead_bytes", ".", "overhead"),
)
LARGEST_WORDS = {
    "context_tokens": "largest context",
    "concurrency": "most requests at once",
    "micro_batch": "largest micro batch",
    "sequence_tokens": "longest sequence",
    "batch": "largest batch",
    "frames": "most frames",
    "seconds": "longest piece in seconds",
}
REFUSED = "does not run"
LIMITS = {"memory-bandwidth": "memory", "compute": "compute", "interconnect": "link", "storage": "storage"}
REMEDIES_SHOWN = 4


def print_sizes(sized: tuple[SizedLayout, ...], closest: Sequence[str] = (), *, color: bool) -> None:
    """Print all layouts, verdicts told apart by word and colour; then what would fit where nothing does."""
    console = plan_console(sys.stdout, color=color)
    is_wide = console.width >= WIDE_COLUMNS
    shown = shown_layouts(sized)
    rows = [_cells(each, is_wide=is_wide) for each in shown]
    header = ("GPU", "layout", "need", *(("band",) if is_wide else ()), "usable", "verdict", "up to")
    header += (unit_of(sized), "limit") if is_wide else ()
    taken = sum(max(len(row[i]) for row in (header, *rows)) + 2 for i in range(len(header)))
    cells = max(BAR_CELLS_LEAST, min(BAR_CELLS, (console.width - taken - 1) * 2 // 3))
    table = Table(box=None, header_style="dim", pad_edge=False, padding=(0, 2, 0, 0))
    numbers = ("need", "band", "usable", unit_of(sized))
    for name in header:
        table.add_column(name, justify="right" if name in numbers else "left", no_wrap=True)
        if name == "usable":
            table.add_column("memory", no_wrap=True)
    for each, row in zip(shown, rows, strict=True):
        at = header.index("usable") + 1
        verdict = Text(row[at], style=STYLES[each.footprint.fit] if each.refusal is None else "red")
        table.add_row(*row[:at], Text(bar(each, cells)), verdict, *row[at + 1 :])
    console.print(table)
    for line in _legend(sized):
        console.print(Text(line, style="dim"))
    if closest:
        console.print()
        console.print(Text("What would fit", style="bold"))
        for text in closest:
            console.print(Text(f"  - {text}"))


def shown_layouts(sized: Sequence[SizedLayout]) -> list[SizedLayout]:
    """All layouts, but one alone of a GPU that does not run the workload at all."""
    refused: set[str] = set()
    shown = []
    for each in sized:
        if each.refusal is None or each.gpu not in refused:
            shown.append(each)
        if each.refusal is not None:
            refused.add(each.gpu)
    return shown


def _cells(each: SizedLayout, *, is_wide: bool) -> tuple[str, ...]:
    """The texts of a line, the bar left out."""
    terms = each.footprint.per_gpu
    need, usable = f"{terms.total_bytes / GIB:.1f}", f"{each.footprint.usable_bytes / GIB:.1f}"
    band = (f"{terms.low_bytes / GIB:.1f}-{terms.high_bytes / GIB:.1f}",) if is_wide else ()
    verdict = REFUSED if each.refusal else each.footprint.fit.value
    limit = LIMITS.get(each.throughput.bound_by or "", "-")
    rate = (rate_text(each), limit) if is_wide else ()
    return (each.gpu, layout_text(each), need, *band, usable, verdict, largest_text(each), *rate)


def _legend(sized: Sequence[SizedLayout]) -> list[str]:
    """What letters and columns mean: those that occur."""
    used = [
        f"{letter} {words}"
        for field, letter, words in PARTS
        if any(getattr(each.footprint.per_gpu, field) for each in sized)
    ]
    lines = [f"GiB per GPU; {'  '.join(used)}  | usable memory ends here"]
    names = list(dict.fromkeys(name for each in sized for name in each.largest))
    if names:
        lines.append(f"up to: {' / '.join(LARGEST_WORDS[name] for name in names)}, each with all else as asked")
    if remedies := remedies_text(sized):
        lines.append(remedies)
    refusals = dict.fromkeys(each.refusal for each in sized if each.refusal)
    lines += [f"{REFUSED}: {reason}" for reason in refusals]
    return lines


def unit_of(sized: Sequence[SizedLayout]) -> str:
    """What the main rate counts."""
    speeds = [each.throughput for each in sized]
    for unit, name in (
        ("images/s", "images_per_s"),
        ("samples/s", "train_samples_per_s"),
        ("x real time", "realtime_factor"),
    ):
        if any(getattr(speed, name) is not None for speed in speeds):
            return unit
    return "tokens/s"


def remedies_text(sized: Sequence[SizedLayout]) -> str | None:
    """What would lift the speed of the first layout that fits, largest gain first; ``None`` where nothing is known."""
    for each in sized:
        diagnosis = each.outlook.diagnosis if each.outlook else None
        if diagnosis is None or not diagnosis.remedies or not each.holds:
            continue
        gains = ", ".join(f"{remedy.words} {remedy.gain:.2f} x" for remedy in diagnosis.remedies[:REMEDIES_SHOWN])
        return f"{each.gpu}, {layout_text(each)}, is bound by {diagnosis.bound_by}; faster with: {gains}"
    return None


def largest_text(each: SizedLayout) -> str:
    """The largest values in a few characters: ``54 / 110k``."""
    return " / ".join(short_count(value) for value in each.largest.values()) if each.refusal is None else "-"


def short_count(number: int) -> str:
    """A count in at most five characters, rounded down: ``3,680``, ``110k``, ``1.2M``."""
    for unit, size in (("G", 10**9), ("M", 10**6), ("k", 10**3)):
        if number >= size and (size > 10**3 or number >= 10_000):
            tenths = number * 10 // size
            return f"{tenths // 10}{unit}" if tenths >= 100 or tenths % 10 == 0 else f"{tenths / 10:.1f}{unit}"
    return f"{number:,}"


def layout_text(each: SizedLayout) -> str:
    """Parallel degrees in a few letters: ``TP2``, ``TP4 PP2``, ``FSDP x8``."""
    layout = each.layout
    parts = [f"TP{layout.tensor_parallel}"] if layout.tensor_parallel > 1 else []
    parts += [f"PP{layout.pipeline_parallel}"] if layout.pipeline_parallel > 1 else []
    parts += [f"{layout.sharding.value.upper()} x{layout.data_parallel}"] if layout.data_parallel > 1 else []
    return " ".join(parts) or "1 GPU"


def bar(each: SizedLayout, width: int = BAR_CELLS) -> str:
    """What fills the GPU, in cells of usable memory; what goes beyond is drawn past the mark, up to half as much again."""
    usable = each.footprint.usable_bytes
    cells = ""
    reached = 0.0
    for field, letter, _ in PARTS:
        size = getattr(each.footprint.per_gpu, field) or 0
        reached += size / usable * width
        cells += letter * max(0, min(round(reached), width * 3 // 2) - len(cells))
    if not cells and reached > 0:
        cells = max(PARTS, key=lambda part: getattr(each.footprint.per_gpu, part[0]) or 0)[1]
    if len(cells) <= width:
        return cells.ljust(width) + "|"
    return cells[:width] + "|" + cells[width:]


RATE_NAMES = {
    "decode_tokens_per_s_per_replica": "tokens/s",
    "train_tokens_per_s": "tokens/s",
    "train_samples_per_s": "samples/s",
    "images_per_s": "images/s",
    "realtime_factor": "sound s/s",
}


def rate_name(sized: Sequence[SizedLayout]) -> str:
    """What the rates of the table count."""
    known = (name for name in RATE_NAMES if any(getattr(each.throughput, name) is not None for each in sized))
    return RATE_NAMES[next(known, "decode_tokens_per_s_per_replica")]


def rate_text(each: SizedLayout) -> str:
    """The task's main rate, or a dash where it is not known."""
    speed = each.throughput
    rate = main_rate(speed)
    return "-" if rate is None else f"{rate:,.0f}" if rate >= 10 else f"{rate:.2g}"
