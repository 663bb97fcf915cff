"""Reports of a choice at work: load, limits with their remedies, the start."""

from __future__ import annotations

from dataclasses import replace

from provisioner.report.html import plan_html
from provisioner.report.markdown import plan_markdown
from provisioner.report.working import REMEDIES_SHOWN, limits_section, load_rows, start_section


def test_serving_shows_load_and_limits(plans):
    rows = dict(load_rows(plans["serve"]))
    assert "requests at once that memory holds as predicted, one copy" in rows
    short, full = (limits_section(plans["serve"], explain=explain) for explain in (False, True))
    assert len(short.rows) == min(REMEDIES_SHOWN, len(full.rows))
    assert "bound by" in short.note
    assert "% " in short.note or "%" in short.note
    for text in (plan_markdown(plans["serve"]), plan_html(plans["serve"])):
        assert "What would make it faster" in text
        assert short.rows[0][0] in text


def test_explain_shows_the_start(plans):
    section = start_section(plans["serve"])
    assert section.rows[-1][0] == "ready"
    assert "idle machine" in section.note
    assert "Start, in seconds" in plan_markdown(plans["serve"], explain=True)
    assert "Start, in seconds" not in plan_markdown(plans["serve"])


def test_a_queue_without_end_is_said(plans):
    outlook = plans["serve"].outlook
    steady = replace(
        outlook.steady,
        asked_requests_per_s=9.0,
        asked_time_to_first_token_s=None,
        asked_tokens_per_s_per_request=None,
    )
    rows = dict(load_rows(replace(plans["serve"], outlook=replace(outlook, steady=steady))))
    assert rows["at 9 requests/s a copy"] == "the queue grows without end"


def test_a_plan_without_outlook_has_no_such_sections(plans):
    bare = replace(plans["serve"], outlook=None)
    assert load_rows(bare) == ()
    assert limits_section(bare, explain=True).rows == ()
    assert start_section(bare).rows == ()
