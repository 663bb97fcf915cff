"""What is printed about a plan, before any form is chosen."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal

import pytest

from provisioner.report.bill import ending_note
from provisioner.report.summary import BAR_CELLS, bar, gpus, headline, largest_text, summarise


def section(plan, title, *, explain=False):
    return next((one for one in summarise(plan, explain=explain).sections if one.title == title), None)


def test_headline_has_offer_price_and_date(plans):
    text = headline(plans["serve"])
    choice = plans["serve"].choice
    for part in (choice.instance_type, choice.region, "on-demand", f"price of {choice.price_as_of}"):
        assert part in text
    assert headline(plans["copies"]).startswith("3 x ")
    assert headline(plans["nothing"]) == "nothing fits under the requirements"


def test_memory_rows_are_the_terms_of_the_footprint(plans):
    rows = {row[0]: row for row in section(plans["serve"], "Memory per GPU").rows}
    assert {"weights", "KV cache", "activations", "overhead", "need", "headroom"} == set(rows)
    assert {"gradients", "optimizer"} <= {row[0] for row in section(plans["training"], "Memory per GPU").rows}
    assert section(plans["nothing"], "Memory per GPU") is None


@pytest.mark.parametrize(
    ("share", "cells"), [(0.0, 0), (0.0001, 1), (0.5, BAR_CELLS // 2), (1.0, BAR_CELLS), (3.0, BAR_CELLS), (-1.0, 0)]
)
def test_bar(share, cells):
    assert len(bar(share)) == cells


def test_bill_has_a_run_where_there_is_one(plans):
    assert any(row[0].startswith("one run") for row in section(plans["training"], "Bill").rows)
    assert not any(row[0].startswith("one run") for row in section(plans["serve"], "Bill").rows)
    spot = {row[0] for row in section(plans["spot"], "Bill").rows}
    assert {"machines interrupted in a month", "expected rework", "stays cheaper up to, interruptions an hour"} <= spot


def test_unknown_amounts_are_words(plans):
    plan = plans["serve"]
    blind = replace(plan, cost=replace(plan.cost, total_usd_per_month=None, storage_usd_per_month=None))
    rows = dict(section(blind, "Bill").rows)
    assert rows["disks, a month"] == "unknown"
    assert next(value for name, value in rows.items() if name.startswith("total")) == "unknown"


def test_endless_machine_shows_its_price_a_day(plans):
    plan = plans["serve"]
    priced = replace(plan, cost=replace(plan.cost, compute_usd_per_hour=Decimal(2)))
    assert ending_note(priced) == "no idle limit and no lifetime: $48.00 a day until it is stopped"
    spec = {**plan.workload_spec, "lifecycle": {"idle": {"after": "30m"}}}
    bounded = replace(priced, workload_spec=spec)
    assert (
        ending_note(bounded) == "stops after 30 min idle: a day without work costs $1.00 of compute instead of $48.00"
    )
    assert ending_note(plans["spot"]).startswith("ends after 60 min idle")
    assert ending_note(plans["nothing"]) is None


@pytest.mark.parametrize(
    ("market", "cloud", "then", "words"),
    [
        ("on-demand", "aws", None, "stops (and ends 7d later) after"),
        ("on-demand", "aws", "terminate", "ends after"),
        ("spot", "aws", None, "ends after"),
        ("spot", "aws", "stop", "stops (and ends 7d later) after"),
        ("spot", "gcp", None, "ends after"),
        ("capacity-block", "aws", "stop", "ends after"),
    ],
)
def test_the_note_says_whether_an_idle_machine_stops_or_ends(plans, market, cloud, then, words):
    plan = plans["training"]
    idle = {"after": "30m"} | ({"then": then} if then else {})
    lifecycle = {"idle": idle, "stopped": {"terminate_after": "7d"}, "max_lifetime": "12h"}
    other = replace(
        plan,
        choice=replace(plan.choice, capacity_type=market, cloud=cloud),
        workload_spec={**plan.workload_spec, "lifecycle": lifecycle},
    )
    note = ending_note(other)
    assert note.startswith(words)
    assert ", and 12h after its start at the latest:" in note


def test_a_run_of_predicted_length_shows_its_lifetime(plans):
    plan = replace(plans["training"], cost=replace(plans["training"].cost, run_hours=1.501))
    assert ", and 181m after its start at the latest:" in ending_note(plan)  # twice 90.06 min, up to a whole minute


def test_short_lists_say_how_many_are_left(plans):
    short, whole = (
        section(plans["serve"], "Tried in this order"),
        section(plans["serve"], "Tried in this order", explain=True),
    )
    assert len(short.rows) == 5
    assert short.note == f"and {len(whole.rows) - 5} more (--explain)"
    assert len(whole.rows) == len(plans["serve"].failover)
    assert whole.note is None


def test_assumptions_only_in_explain(plans):
    assert section(plans["serve"], "Assumptions") is None
    assert section(plans["serve"], "Assumptions", explain=True).rows


def test_rejections_are_about_ten_lines(plan):
    rows = section(plan, "Not chosen").rows
    assert 1 <= len(rows) <= 10


def test_gpus_in_words(plans):
    choice = plans["serve"].choice
    assert gpus(replace(choice, gpus_per_instance=0.25, gpu="L4")).startswith("0.25 x L4")
    assert "copies 3" in gpus(plans["copies"].choice)


def test_every_row_has_the_width_of_its_table(plan):
    for one in summarise(plan, explain=True).sections:
        assert {len(row) for row in one.rows} == {len(one.header) or len(one.rows[0])}


def test_how_far_a_choice_goes_says_that_it_is_judged_by_the_upper_end() -> None:
    assert largest_text({"concurrency": 37}) == (
        "all else as asked, the upper end of the prediction leaves room for 37 requests at once"
    )
    assert largest_text({"concurrency": 0}) == ""
