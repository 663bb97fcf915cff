"""Plans on a terminal."""

from __future__ import annotations

import os
import sys
from typing import IO

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from provisioner.planner.plan import Plan
from provisioner.report.section import Section
from provisioner.report.summary import WHAT_IF, Summary, summarise

WIDTH_WITHOUT_TERMINAL = 120
"""Columns of a log or a pipe, where nothing says how wide the reader is."""
NUMBER_CHARACTERS = 16
"""Longest cell of a column of numbers."""
VERDICT_STYLES = {"fits": "bold green", "borderline": "bold yellow", "nothing-fits": "bold red"}


def print_plan(plan: Plan, explain: bool = False, *, file: IO[str] | None = None, color: bool = True) -> None:
    """Print a plan for a person to ``file`` (standard output); colours only on a terminal, and only where ``color``."""
    console = plan_console(file or sys.stdout, color=color)
    print_summary(console, summarise(plan, explain=explain))


def plan_console(file: IO[str], *, color: bool) -> Console:
    """A console that wraps at the terminal's width, and keeps lines of a pipe readable."""
    width = None if file.isatty() or os.environ.get("COLUMNS") else WIDTH_WITHOUT_TERMINAL
    return Console(
        file=file, width=width, no_color=not color, highlight=False, soft_wrap=False, emoji=False, markup=False
    )


def print_summary(console: Console, summary: Summary) -> None:
    """Headline, reasons, tables, warnings, what would fit."""
    console.print(
        Text.assemble((summary.title, "bold"), "  ", (summary.verdict, VERDICT_STYLES.get(summary.verdict, "bold")))
    )
    console.print(Text(summary.headline))
    _print_list(console, summary.reasons, "-", "")
    for section in summary.sections:
        console.print()
        console.print(Text(section.title, style="bold"))
        console.print(_table(section))
        if section.note:
            console.print(Padding(Text(section.note, style="dim"), (0, 0, 0, 2)))
    if summary.what_if:
        console.print()
        console.print(Text(WHAT_IF, style="bold"))
        _print_list(console, summary.what_if, "-", "")
    if summary.warnings:
        console.print()
        _print_list(console, summary.warnings, "warning:", "yellow")
    if summary.closest:
        console.print()
        console.print(Text("What would fit", style="bold"))
        _print_list(console, summary.closest, "-", "")
    console.print()
    console.print(Text(summary.footer, style="dim"))


def _print_list(console: Console, lines: tuple[str, ...], mark: str, style: str) -> None:
    for line in lines:
        grid = Table.grid(padding=(0, 1))
        grid.add_column(no_wrap=True)
        grid.add_column(overflow="fold")
        grid.add_row(Text(f"  {mark}", style=style), Text(line))
        console.print(grid)


def _is_short(section: Section, index: int) -> bool:
    """Whether a column holds numbers alone: a sentence among them has to wrap."""
    return all(len(row[index]) <= NUMBER_CHARACTERS for row in section.rows)


def _table(section: Section) -> Table:
    table = Table(
        box=SIMPLE_HEAD if section.header else None, show_header=bool(section.header), pad_edge=True, header_style="dim"
    )
    for index in range(len(section.rows[0])):
        header = section.header[index] if section.header else ""
        is_number = index in section.right
        table.add_column(
            header,
            justify="right" if is_number else "left",
            overflow="fold",
            no_wrap=index in section.whole or (is_number and _is_short(section, index)),
        )
    for row in section.rows:
        style = "bold" if row[0] == "need" or row[0].startswith(("total", "one run")) else None
        table.add_row(*(Text(cell) for cell in row), style=style)
    return table
