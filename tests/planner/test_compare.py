"""Two plans side by side."""

from __future__ import annotations

from decimal import Decimal

import pytest

from provisioner.planner.compare import PARTS, Difference, compare_plans, comparison_document
from provisioner.report.comparison import summarise_comparison


@pytest.fixture(scope="module")
def pair(plan_of, serve):
    return plan_of(serve()), plan_of(serve(inference={"context_tokens": 65536}))


def test_a_plan_is_the_same_as_itself(pair) -> None:
    assert compare_plans(pair[0], pair[0]) == ()
    assert summarise_comparison((pair[0], pair[0]), ("a", "b")).verdict == "the same plan"


def test_every_difference_is_what_the_plans_say(pair) -> None:
    a, b = pair
    found = {(each.part, each.name): each for each in compare_plans(a, b)}
    cache = found["memory", "kv_cache_bytes"]
    assert (cache.a, cache.b) == (a.footprint.per_gpu.kv_cache_bytes, b.footprint.per_gpu.kv_cache_bytes)
    assert cache.ratio == pytest.approx(8, rel=0.01)
    total = found["bill", "total_usd_per_month"]
    assert (Decimal(total.a), Decimal(total.b)) == (a.cost.total_usd_per_month, b.cost.total_usd_per_month)
    assert ("memory", "weights_bytes") not in found
    assert [each.part for each in compare_plans(a, b)] == sorted((part for part, _ in found), key=PARTS.index)


def test_the_other_way_round_swaps_the_sides(pair) -> None:
    there, back = compare_plans(*pair), compare_plans(*reversed(pair))
    assert [(one.part, one.name, one.b, one.a) for one in there] == list(back)


def test_a_plan_that_fits_nowhere_can_be_compared(pair, plan_of, serve) -> None:
    nowhere = plan_of(serve(placement={"gpus": ["T4"], "max_gpus": 1}))
    found = {each.name: each for each in compare_plans(pair[0], nowhere)}
    assert (found["verdict"].a, found["verdict"].b) == ("fits", "nothing-fits")
    assert found["instance_type"].b is None
    assert found["total_usd_per_month"].ratio is None
    assert summarise_comparison((pair[0], nowhere), ("a", "b")).sections


@pytest.mark.parametrize(
    ("difference", "ratio"),
    [
        (Difference("bill", "run_usd", "2.00", "3.00"), 1.5),
        (Difference("bill", "run_usd", "0", "3.00"), None),
        (Difference("bill", "run_usd", None, "3.00"), None),
        (Difference("speed", "bound_by", "compute", "interconnect"), None),
        (Difference("choice", "instances", 1, 2), None),
        (Difference("choice", "price_usd_per_hour", "2", "1"), 0.5),
    ],
)
def test_ratios_are_of_known_numbers(difference: Difference, ratio: float | None) -> None:
    assert difference.ratio == ratio


def test_the_document_names_its_sides(pair) -> None:
    document = comparison_document(pair, ("a.yaml", "b.yaml"))
    assert document["schema"] == "gpuprov.plan-comparison/1"
    assert (document["a"]["source"], document["b"]["source"]) == ("a.yaml", "b.yaml")
    assert document["a"]["workload"]["digest"] == pair[0].workload_digest
    assert len(document["differences"]) == len(compare_plans(*pair))
