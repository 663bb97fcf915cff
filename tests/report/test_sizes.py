"""Sized layouts as text: layouts in a few letters, bars of memory, rates."""

from __future__ import annotations

from dataclasses import replace

import pytest

from provisioner.planner.sizes import SizedLayout
from provisioner.report.sizes import BAR_CELLS, bar, layout_text, rate_text, short_count, shown_layouts
from provisioner.sizing.footprint import Footprint, MemoryTerms
from provisioner.sizing.layout import Layout
from provisioner.sizing.throughput import Throughput
from provisioner.vocabulary import Sharding

ALONE = Layout()
UNKNOWN = Throughput()


def sized(layout=ALONE, weights=12, cache=6, usable=24, speed=UNKNOWN) -> SizedLayout:
    total = weights + cache
    terms = MemoryTerms(weights, cache, 0, None, None, 0, total, total, total)
    return SizedLayout("L4", layout, "none", Footprint(terms, usable, total, total, total), speed, None)


@pytest.mark.parametrize(
    ("layout", "text"),
    [
        (Layout(), "1 GPU"),
        (Layout(4), "TP4"),
        (Layout(4, 2), "TP4 PP2"),
        (Layout(data_parallel=8, sharding=Sharding.FSDP), "FSDP x8"),
    ],
)
def test_layouts_in_a_few_letters(layout, text):
    assert layout_text(sized(layout)) == text


def test_a_bar_shows_what_fills_memory():
    assert bar(sized()) == "W" * 12 + "K" * 6 + " " * 6 + "|"
    full = bar(sized(weights=24, cache=6))
    assert full == "W" * BAR_CELLS + "|" + "K" * 6
    assert len(bar(sized(weights=500))) == BAR_CELLS * 3 // 2 + 1


def test_the_main_rate_or_a_dash():
    assert rate_text(sized()) == "-"
    assert rate_text(sized(speed=Throughput(decode_tokens_per_s_per_replica=1234.5))) == "1,234"
    assert rate_text(sized(speed=Throughput(images_per_s=0.137))) == "0.14"


@pytest.mark.parametrize(
    ("number", "text"),
    [
        (0, "0"),
        (9, "9"),
        (3680, "3,680"),
        (9999, "9,999"),
        (10_000, "10k"),
        (110_832, "110k"),
        (1_250_000, "1.2M"),
        (10**9, "1G"),
    ],
)
def test_counts_in_few_characters_never_promise_more(number, text):
    assert short_count(number) == text


def test_a_narrower_bar_keeps_its_shares():
    assert bar(sized(), 8) == "WWWWKK  |"
    assert bar(sized(weights=500), 8) == "W" * 8 + "|" + "W" * 4
    assert bar(sized(weights=3, cache=1, usable=10_000), 8) == "W       |"


def test_a_gpu_that_does_not_run_it_has_one_line():
    refused = [replace(sized(Layout(degree)), gpu="T4", refusal="no bf16") for degree in (1, 2, 4)]
    running = [sized(Layout(degree)) for degree in (1, 2)]
    assert shown_layouts([*refused, *running]) == [refused[0], *running]
