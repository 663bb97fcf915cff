"""The benchmark of the ranking looks at as many offers as it says, and at the same choice."""

from __future__ import annotations

from pathlib import Path

from benchmarks.ranking_speed import EXAMPLES, Replicated, time_ranking
from provisioner.catalog.snapshot import load_catalog
from provisioner.planner.candidates import Sizer
from provisioner.planner.request import request_for
from provisioner.planner.search import Market, search
from provisioner.workload.load import load


def test_offers_grow_with_the_copies_and_the_choice_stays() -> None:
    base = load_catalog(Path("bundled"))
    once, thrice = Replicated(base, 1), Replicated(base, 3)
    assert thrice.offers_seen() == 3 * once.offers_seen()
    request = request_for(load(EXAMPLES / "llama-3.1-8b-chat" / "workload.yaml").workload, base)
    sizer = Sizer(request)
    few, many = (search(request, Market(catalog), sizer).candidates for catalog in (once, thrice))
    assert len(many) == 3 * len(few)
    assert many[0].offer.instance.name == few[0].offer.instance.name
    timing = time_ranking(request, once, once.offers_seen(), repeats=1)
    assert timing.offers == once.offers_seen()
    assert timing.ms > 0
