"""Plans as Markdown, for pull requests."""

from __future__ import annotations

from collections.abc import Iterator

from provisioner.planner.plan import Plan
from provisioner.report.section import Section
from provisioner.report.summary import WHAT_IF, summarise


def plan_markdown(plan: Plan, *, explain: bool = False) -> str:
    """The plan as GitHub-flavoured Markdown with a final newline."""
    summary = summarise(plan, explain=explain)
    lines = [f"## {_inline(summary.title)}: {summary.verdict}", "", _inline(summary.headline), ""]
    lines += [*_list(summary.reasons), ""] if summary.reasons else []
    for section in summary.sections:
        lines += [*_section(section), ""]
    lines += [f"### {WHAT_IF}", "", *_list(summary.what_if), ""] if summary.what_if else []
    lines += ["### Warnings", "", *_list(summary.warnings), ""] if summary.warnings else []
    lines += ["### What would fit", "", *_list(summary.closest), ""] if summary.closest else []
    lines.append(f"<sub>{_inline(summary.footer)}</sub>")
    return "\n".join(lines) + "\n"


def _section(section: Section) -> Iterator[str]:
    yield f"### {_inline(section.title)}"
    yield ""
    columns = len(section.rows[0])
    yield _row(section.header or ("",) * columns)
    yield _row(tuple("---:" if index in section.right else "---" for index in range(columns)), escape=False)
    for row in section.rows:
        yield _row(row)
    if section.note:
        yield ""
        yield _inline(section.note)


def _row(cells: tuple[str, ...], *, escape: bool = True) -> str:
    return f"| {' | '.join(_inline(cell) if escape else cell for cell in cells)} |"


def _list(lines: tuple[str, ...]) -> list[str]:
    return [f"- {_inline(line)}" for line in lines]


def _inline(text: str) -> str:
    """Text that Markdown and HTML leave alone, on one line."""
    plain = " ".join(text.split())
    for character in "\\`*_[]|":
        plain = plain.replace(character, f"\\{character}")
    return plain.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
