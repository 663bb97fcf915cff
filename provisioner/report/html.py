"""Plans as one self-contained page: no script, no asset, readable in print and in the dark."""

from __future__ import annotations

from collections.abc import Iterator
from html import escape

from provisioner.planner.plan import Plan
from provisioner.report.section import Section
from provisioner.report.summary import WHAT_IF, memory_section, summarise

STYLE = """
:root { color-scheme: light dark; --line: #d0d7de; --soft: #57606a; --bar: #4c7ebf; --good: #1a7f37; --tight: #9a6700; --bad: #cf222e; }
@media (prefers-color-scheme: dark) {
  :root { --line: #3d444d; --soft: #9198a1; --bar: #6ea3e0; --good: #3fb950; --tight: #d29922; --bad: #f85149; }
}
body { font: 15px/1.5 system-ui, sans-serif; max-width: 62rem; margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.5rem; margin: 0 0 .25rem; }
h2 { font-size: 1.05rem; margin: 2rem 0 .5rem; }
.verdict { font-weight: 600; }
.fits { color: var(--good); } .borderline { color: var(--tight); } .nothing-fits { color: var(--bad); }
.headline { font-size: 1.1rem; }
table { border-collapse: collapse; width: 100%; }
th, td { text-align: left; padding: .3rem .75rem .3rem 0; border-bottom: 1px solid var(--line); vertical-align: top; }
th { color: var(--soft); font-weight: 500; }
.number { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap; }
.bar { background: var(--bar); height: .8rem; min-width: 1px; border-radius: 2px; }
.note, footer { color: var(--soft); font-size: .9rem; }
li { margin: .2rem 0; }
footer { margin-top: 2.5rem; }
"""


def plan_html(plan: Plan, *, explain: bool = False) -> str:
    """The plan as an HTML document with a final newline."""
    summary = summarise(plan, explain=explain)
    memory = memory_section(plan).title
    body = [
        f"<h1>{escape(summary.title)}</h1>",
        f'<p class="headline"><span class="verdict {escape(summary.verdict)}">{escape(summary.verdict)}</span> {escape(summary.headline)}</p>',
        *_list("", summary.reasons),
    ]
    for section in summary.sections:
        body += _section(section, with_bars=bool(memory) and section.title == memory)
    body += _list(WHAT_IF, summary.what_if)
    body += _list("Warnings", summary.warnings)
    body += _list("What would fit", summary.closest)
    body.append(f"<footer>{escape(summary.footer)}</footer>")
    head = f'<meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1"><title>{escape(summary.title)}</title><style>{STYLE}</style>'
    return (
        f'<!doctype html>\n<html lang="en">\n<head>{head}</head>\n<body>\n' + "\n".join(body) + "\n</body>\n</html>\n"
    )


def _section(section: Section, *, with_bars: bool) -> Iterator[str]:
    yield f"<h2>{escape(section.title)}</h2>"
    yield "<table>"
    if section.header:
        yield (
            "<thead><tr>"
            + "".join(_cell("th", cell, index, section) for index, cell in enumerate(section.header))
            + "</tr></thead>"
        )
    yield "<tbody>"
    for row in section.rows:
        cells = [_cell("td", cell, index, section) for index, cell in enumerate(row)]
        if with_bars:
            cells[-1] = f'<td style="width: 45%"><div class="bar" style="width: {escape(row[2])}"></div></td>'
        yield f"<tr>{''.join(cells)}</tr>"
    yield "</tbody></table>"
    if section.note:
        yield f'<p class="note">{escape(section.note).replace(chr(10), "<br>")}</p>'


def _cell(tag: str, text: str, index: int, section: Section) -> str:
    kind = ' class="number"' if index in section.right else ""
    return f"<{tag}{kind}>{escape(text)}</{tag}>"


def _list(title: str, lines: tuple[str, ...]) -> list[str]:
    if not lines:
        return []
    items = "".join(f"<li>{escape(line)}</li>" for line in lines)
    return ([f"<h2>{escape(title)}</h2>"] if title else []) + [f"<ul>{items}</ul>"]
