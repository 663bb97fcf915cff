"""Two plans side by side on a terminal."""

from __future__ import annotations

from decimal import Decimal
from typing import IO

from provisioner.planner.compare import PARTS, Difference, Value, compare_plans
from provisioner.planner.plan import Plan
from provisioner.report.section import Section
from provisioner.report.summary import Summary, headline
from provisioner.report.tables import plan_console, print_summary
from provisioner.units import format_gib, format_usd


def print_comparison(plans: tuple[Plan, Plan], sources: tuple[str, str], *, file: IO[str], color: bool) -> None:
    """Print what differs between two plans for a person."""
    print_summary(plan_console(file, color=color), summarise_comparison(plans, sources))


def summarise_comparison(plans: tuple[Plan, Plan], sources: tuple[str, str]) -> Summary:
    """Both choices in a line each, then a table of the differences of each part."""
    found = compare_plans(*plans)
    count = f"{len(found)} difference" + ("" if len(found) == 1 else "s")
    sections = (
        Section(part.capitalize(), ("", "A", "B", "B per A"), rows, frozenset({1, 2, 3}))
        for part in PARTS
        if (rows := tuple(_row(each) for each in found if each.part == part))
    )
    return Summary(
        title=f"A: {sources[0]}, B: {sources[1]}",
        verdict=count if found else "the same plan",
        headline=f"A: {headline(plans[0])}",
        reasons=(f"B: {headline(plans[1])}",),
        sections=tuple(sections),
        warnings=(),
        closest=(),
        footer=_footer(plans),
    )


def _footer(plans: tuple[Plan, Plan]) -> str:
    a, b = plans
    if a.catalog_digest == b.catalog_digest:
        return f"catalog of {a.catalog_as_of} ({a.catalog_digest[:19]})"
    return f"other catalogs: A of {a.catalog_as_of} ({a.catalog_digest[:19]}), B of {b.catalog_as_of} ({b.catalog_digest[:19]})"


def _row(each: Difference) -> tuple[str, ...]:
    ratio = "" if each.ratio is None else f"{each.ratio:.2f}"
    words = each.name.removesuffix("_bytes").replace("_", " ").replace("usd", "USD")
    return words, _shown(each, each.a), _shown(each, each.b), ratio


def _shown(each: Difference, value: Value) -> str:
    if value is None:
        return "unknown" if each.part in ("speed", "bill") else "none"
    if each.name.endswith("_bytes") and isinstance(value, int):
        return format_gib(value)
    if "usd" in each.name and isinstance(value, str):
        return format_usd(Decimal(value), 4 if each.name == "price_usd_per_hour" else 2)
    return f"{value:,.4g}" if isinstance(value, float) else str(value)
