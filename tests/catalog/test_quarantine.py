"""The judge of fetched prices: its limits, its exemptions, and what it can never let through."""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from provisioner.catalog.fetched import ON_DEMAND, SPOT, PriceQuote
from provisioner.catalog.instances import InstanceType
from provisioner.catalog.quarantine import Judge, number
from provisioner.catalog.snapshot import Catalog


@pytest.fixture(scope="session")
def instances(catalog: Catalog) -> Mapping[tuple[str, str], InstanceType]:
    return catalog.instances


def judge(instances: Mapping[tuple[str, str], InstanceType], *known: tuple[str, str, str]) -> Judge:
    made = Judge("aws", instances)
    for name, model, price in known:
        made.learn(name, model, price, fetched=False)
    return made


def verdict(made: Judge, name: str, price: str, model: str = ON_DEMAND, on_demand: str | None = None) -> str:
    found = made.judge(PriceQuote(name, "*", price), model, Decimal(on_demand) if on_demand else None)
    assert (found.amount is None) is bool(found.reason)
    return found.reason


L4 = [("g6.xlarge", ON_DEMAND, "0.8"), ("g6.xlarge", ON_DEMAND, "0.9"), ("g6.xlarge", ON_DEMAND, "1.0")]


@pytest.mark.parametrize(
    ("price", "reason"), [("0.179", "far_below_median"), ("0.18", ""), ("4.5", ""), ("4.51", "far_above_median")]
)
def test_p1_five_times_is_the_limit_both_ways(price: str, reason: str, instances) -> None:
    assert verdict(judge(instances, *L4), "g6.xlarge", price) == reason


def test_a_large_host_is_honest_and_a_cheap_one_per_gpu_is_not(instances) -> None:
    made = judge(instances, *L4)
    assert verdict(made, "g6.16xlarge", "4.9") == ""  # one GPU, 64 vCPU: 5 times the GPU's median
    assert verdict(made, "g6.48xlarge", "1.3") == "far_below_median"  # eight GPUs for the price of two


def test_a_gpu_of_which_little_is_known_is_held_against_the_cheapest_known(instances) -> None:
    made = judge(instances, *L4[:2])
    assert verdict(made, "p5.48xlarge", "1.28") == ""  # 0.16 a GPU, a fifth of the cheapest L4
    assert verdict(made, "p5.48xlarge", "1.27") == "far_below_median"
    for _ in range(3):
        made.learn("p5.48xlarge", ON_DEMAND, "55", fetched=True)
    assert verdict(made, "p5.48xlarge", "10") == "far_below_median"  # now others of its kind are the measure


def test_where_nothing_is_known_nothing_is_judged(instances) -> None:
    assert verdict(judge(instances), "g6.xlarge", "0.001") == ""


def test_spot_that_is_next_to_nothing_is_kept_out_whatever_the_others_cost(instances) -> None:
    """P1: a source that says 0.00001 for every machine."""
    made = judge(instances, *L4)
    for _ in range(9):
        made.learn("g6.xlarge", SPOT, "0.00001", fetched=True)
    assert verdict(made, "g6.xlarge", "0.00001", SPOT, "0.8") == "far_below_median"
    assert verdict(made, "g6.xlarge", "0.00001", SPOT) == "far_below_median"  # its usual on-demand price will do
    assert verdict(made, "g6.xlarge", "4.6", SPOT) == "far_above_median"


def test_fetched_prices_do_not_move_the_measure_of_known_ones(instances) -> None:
    made = judge(instances, *L4)
    for _ in range(99):
        made.learn("g6.xlarge", ON_DEMAND, "0.001", fetched=True)
    assert verdict(made, "g6.xlarge", "0.001") == "far_below_median"


def test_spot_is_capped_by_on_demand_and_honest_down_to_nine_percent(instances) -> None:
    made = judge(instances, *((name, SPOT, "0.9") for name, _, _ in L4))
    assert verdict(made, "g6.xlarge", "0.81", SPOT, "0.8") == "spot_above_on_demand"
    assert verdict(made, "g6.xlarge", "0.8", SPOT, "0.8") == ""
    assert verdict(made, "g6.xlarge", "8.2261", SPOT, "8.22609") == ""  # its cap, rounded
    assert verdict(made, "g6.xlarge", "0.072", SPOT, "0.8") == ""
    assert verdict(made, "g6.xlarge", "0.071", SPOT, "0.8") == "far_below_median"


def test_spot_without_any_on_demand_price_is_held_against_its_gpu(instances) -> None:
    made = judge(instances, *((name, SPOT, "0.4") for name, _, _ in L4))
    assert verdict(made, "g6.xlarge", "2.01", SPOT) == "far_above_median"
    assert verdict(made, "g6.xlarge", "2.0", SPOT) == ""
    assert verdict(made, "g6.xlarge", "0.07", SPOT) == "far_below_median"


def test_a_fraction_is_judged_by_the_share_that_it_has(instances) -> None:
    made = judge(instances, *L4)
    assert verdict(made, "g6f.large", "0.202") == ""  # an eighth of an L4
    assert verdict(made, "g6f.large", "0.02") == "far_below_median"


@pytest.mark.parametrize(
    ("price", "model", "on_demand", "reason"),
    [
        ("0", ON_DEMAND, None, "not_positive"),
        ("x", ON_DEMAND, None, "not_a_number"),
        ("0.06", ON_DEMAND, None, "far_below_median"),
        ("1.76", ON_DEMAND, None, "far_above_median"),
        ("0.36", SPOT, "0.35", "spot_above_on_demand"),
        ("0.03", SPOT, "0.35", "far_below_median"),
        ("0.14", SPOT, "0.35", ""),
    ],
)
def test_attached_gpus(price: str, model: str, on_demand: str | None, reason: str, instances) -> None:
    made = judge(instances)
    for each in (ON_DEMAND, SPOT):
        for _ in range(3):
            made.learn_attached("T4", each, "0.35", fetched=False)
    found = made.judge_attached("T4", model, price, Decimal(on_demand) if on_demand else None)
    assert found.reason == reason


@given(text=st.one_of(st.text(max_size=8), st.decimals(allow_nan=True, allow_infinity=True).map(str)))
def test_whatever_a_cloud_writes_only_a_finite_price_above_zero_passes(text: str, instances) -> None:
    made = judge(instances, *L4)
    found = made.judge(PriceQuote("g6.xlarge", "*", text), ON_DEMAND, None)
    if found.amount is not None:
        assert number(text) == found.amount
        assert Decimal("0.18") <= found.amount <= Decimal("4.5")
    else:
        assert found.reason


EXPLAINED = {"spot_above_on_demand", "region_outlier", "no_on_demand_reference", "possible_dws_sku"}
"""Codes of bundled rows that say themselves what the judge would."""


@pytest.mark.parametrize("cloud", ["aws", "gcp"])
def test_no_bundled_price_would_be_kept_out_but_those_that_are_marked(cloud: str, catalog: Catalog) -> None:
    rows = [row for row in catalog._files.records("prices.csv") if row["cloud"] == cloud]
    made = Judge(cloud, catalog.instances)
    listed = {}
    for row in rows:
        made.learn(row["instance_type"], row["purchase_model"], row["price_usd_per_hour"], fetched=False)
        if row["purchase_model"] == ON_DEMAND:
            listed[row["instance_type"], row["region"]] = Decimal(row["price_usd_per_hour"])
    out = []
    for row in rows:
        if row["purchase_model"] not in (ON_DEMAND, SPOT) or EXPLAINED & set(row["suspect_reason"].split(";")):
            continue
        quote = PriceQuote(row["instance_type"], row["zone"], row["price_usd_per_hour"])
        on_demand = listed.get((row["instance_type"], row["region"])) if row["purchase_model"] == SPOT else None
        found = made.judge(quote, row["purchase_model"], on_demand)
        if found.amount is None:
            out.append((row["instance_type"], row["region"], row["purchase_model"], found.reason, found.detail))
    assert out == []
