"""Terminal, Markdown and HTML of the same summary."""

from __future__ import annotations

import io
from dataclasses import replace
from html.parser import HTMLParser

import pytest

from provisioner.report.html import plan_html
from provisioner.report.markdown import plan_markdown
from provisioner.report.tables import print_plan

VOID = {"meta", "br", "hr", "img", "link"}


def printed(plan, *, explain=False) -> str:
    stream = io.StringIO()
    print_plan(plan, explain, file=stream, color=False)
    return stream.getvalue()


def test_table_holds_headline_reasons_bill_and_rejections(plan):
    text = printed(plan)
    assert plan.workload_name in text
    assert plan.verdict in text
    assert "Not chosen" in text
    if plan.choice:
        assert plan.choice.instance_type in text
        assert "Memory per GPU" in text
        assert "Bill" in text
    else:
        assert "What would fit" in text
    assert "\x1b[" not in text


def test_explain_says_more(plans):
    assert len(printed(plans["serve"], explain=True)) > len(printed(plans["serve"]))


def test_lines_of_a_pipe_are_bounded(plan):
    assert max(len(line) for line in printed(plan).splitlines()) <= 120


def test_narrow_terminal_loses_nothing(plans, monkeypatch):
    monkeypatch.setenv("COLUMNS", "60")
    text = printed(plans["serve"])
    assert max(len(line) for line in text.splitlines()) <= 60
    assert "headroom" in text


def test_markdown_tables_are_whole(plan):
    text = plan_markdown(plan, explain=True)
    assert text.startswith(f"## {plan.workload_name}".replace("-", "-"))
    assert text.endswith("</sub>\n")
    width = None
    for line in text.splitlines():
        if not line.startswith("|"):
            width = None
            continue
        cells = line.replace("\\|", "").count("|")
        width = width or cells
        assert cells == width, line


def test_markdown_leaves_no_markup_of_others(plans):
    plan = plans["serve"]
    hostile = replace(plan, warnings=("<script>alert(1)</script> | *x* [y](z)\nnext",))
    text = plan_markdown(hostile)
    assert "<script>" not in text
    assert "\\| \\*x\\* \\[y\\](z) next" in text


class Checker(HTMLParser):
    """Counts tags, notes what is not self-contained."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.foreign: list[str] = []
        self.seen: set[str] = set()

    def handle_starttag(self, tag, attrs):
        self.seen.add(tag)
        self.foreign += [f"{tag} {name}" for name, value in attrs if name in ("src", "href") or name.startswith("on")]
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


def test_html_is_one_self_contained_page(plan):
    text = plan_html(plan, explain=True)
    checker = Checker()
    checker.feed(text)
    assert checker.open == []
    assert checker.foreign == []
    assert not {"script", "link", "img", "iframe"} & checker.seen
    assert {"h1", "table", "style", "title"} <= checker.seen
    assert "url(" not in text
    assert "@import" not in text


def test_html_escapes(plans):
    hostile = replace(plans["serve"], workload_name="<b>x</b>", warnings=("<script>alert(1)</script>",))
    text = plan_html(hostile)
    assert "<b>x" not in text
    assert "<script>" not in text


@pytest.mark.parametrize("form", [plan_markdown, plan_html])
def test_forms_are_deterministic(plan, form):
    assert form(plan) == form(plan)
