"""Laws of the order of candidates."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from provisioner.catalog.instances import InstanceType
from provisioner.catalog.offers import Lot
from provisioner.catalog.snapshot import load_catalog
from provisioner.planner.account import Terms
from provisioner.planner.candidates import Arrangement
from provisioner.planner.ranking import NEAR_EQUAL_COST, SPAN_SURCHARGE, SPEED_WORTH, Candidate, rank_candidates
from provisioner.sizing.footprint import Footprint, MemoryTerms
from provisioner.sizing.layout import Layout
from provisioner.sizing.throughput import Throughput
from provisioner.vocabulary import CapacityType, Interconnect, Objective

CATALOG = load_catalog()
INSTANCE = CATALOG.instances["aws", "g6.xlarge"]
GPU = CATALOG.gpus["L4"]
TERMS = MemoryTerms(1, 1, 1, None, None, 1, 4, 4, 4)
FOOTPRINT = Footprint(TERMS, 8, 4, 4, 4)


def candidate(
    usd: float | None, rate: float | None = 100.0, gpus: int = 1, name: str = "a", *, complete: bool = True
) -> Candidate:
    """A candidate of which only cost, rate, GPUs and name matter."""
    instance: InstanceType = replace(INSTANCE, name=name, gpu_count=gpus)
    price = Decimal(str(usd)) if usd is not None else None
    arrangement = Arrangement(
        instance=instance,
        gpu=GPU,
        accelerator=None,  # type: ignore[arg-type]
        layout=Layout(tensor_parallel=gpus),
        instances=1,
        interconnect=Interconnect.NONE,
        footprint=FOOTPRINT,
        throughput=Throughput(
            decode_tokens_per_s_per_replica=rate, tokens_per_s_per_request=rate, time_to_first_token_s=0.1
        ),
    )
    offer = Lot(instance, "us-east-1", ("use1-az1",), CapacityType.ON_DEMAND, price, "2026-07-20", "test")
    terms = Terms(
        compute=price,
        on_demand=None,
        address=Decimal(0),
        storage=Decimal(0),
        lasting=Decimal(0),
        egress=Decimal(0),
        run_hours=None,
        month_hours=1.0,
        tokens_per_hour=rate,
        is_endpoint=True,
        can_stop=True,
        risk=None,
        stretch=1.0,
        stand_ins=() if complete else ("storage",),
    )
    return Candidate(arrangement, offer, terms)


COSTS = st.floats(1, 1000).map(lambda value: round(value, 4))
RATES = st.one_of(st.none(), st.floats(1, 1000))
CANDIDATES = st.lists(
    st.tuples(COSTS, RATES, st.sampled_from([1, 2, 4, 8]), st.booleans()), min_size=1, max_size=12
).map(
    lambda rows: [
        candidate(usd, rate, gpus, f"t{index}", complete=done) for index, (usd, rate, gpus, done) in enumerate(rows)
    ]
)
OBJECTIVES = st.sampled_from(list(Objective))


@given(CANDIDATES, OBJECTIVES, st.randoms())
def test_input_order_does_not_matter(candidates, objective, random):
    shuffled = list(candidates)
    random.shuffle(shuffled)
    assert rank_candidates(candidates, objective) == rank_candidates(shuffled, objective)


@given(CANDIDATES, OBJECTIVES)
def test_ranking_keeps_every_candidate(candidates, objective):
    ranked = rank_candidates(candidates, objective)
    assert sorted(one.offer.instance.name for one in ranked) == sorted(one.offer.instance.name for one in candidates)


@given(CANDIDATES, OBJECTIVES, st.data())
def test_a_dominated_offer_never_changes_the_choice(candidates, objective, data):
    model = data.draw(st.sampled_from(candidates))
    usd = model.terms.ranking_usd * data.draw(st.floats(1.0, 3.0))
    rate = model.rate * data.draw(st.floats(0.1, 1.0)) or None
    gpus = model.arrangement.layout.gpus_per_replica * data.draw(st.sampled_from([1, 2]))
    worse = candidate(usd, rate, gpus, "zz", complete=False)
    before = rank_candidates(candidates, objective)[0]
    assert rank_candidates([*candidates, worse], objective)[0] == before


@given(CANDIDATES, OBJECTIVES, st.data())
def test_the_same_offer_for_less_comes_first(candidates, objective, data):
    model = data.draw(st.sampled_from(candidates))
    gpus = model.arrangement.layout.gpus_per_replica
    cheaper = candidate(model.terms.ranking_usd * 0.9, model.rate or None, gpus, model.offer.instance.name)
    ranked = rank_candidates([*candidates, cheaper], objective)
    assert ranked.index(cheaper) < ranked.index(model)


@given(CANDIDATES)
def test_the_choice_is_the_cheapest_within_the_stated_tolerances(candidates):
    best = rank_candidates(candidates, Objective.COST)[0]
    cheapest = min(one.terms.ranking_usd for one in candidates)
    assert best.terms.ranking_usd <= cheapest * (1 + NEAR_EQUAL_COST) * (1 + SPAN_SURCHARGE) ** 3 * (1 + 1e-9)


@given(CANDIDATES)
def test_under_a_stated_limit_throughput_takes_the_fastest_within_five_percent(candidates):
    best = rank_candidates(candidates, Objective.THROUGHPUT, is_limited=True)[0]
    assert best.rate >= max(one.rate for one in candidates) * 0.95


@given(CANDIDATES, st.sampled_from([Objective.THROUGHPUT, Objective.LATENCY]))
def test_without_a_limit_speed_is_bought_while_it_is_worth_its_money(candidates, objective):
    """No other candidate is faster for a bill that rises by less than the square of its speed."""
    best = rank_candidates(candidates, objective)[0]
    for other in candidates:
        if best.rate and other.rate > best.rate:
            assert other.score_usd / best.score_usd >= (other.rate / best.rate) ** SPEED_WORTH / 1.05 / (1 + 1e-9)


def first(*candidates: Candidate, objective: Objective = Objective.COST) -> str:
    return rank_candidates(candidates, objective)[0].offer.instance.name


def test_cheaper_wins():
    assert first(candidate(100, name="dear"), candidate(90, name="cheap")) == "cheap"


def test_speed_decides_between_near_equal_bills():
    assert first(candidate(100, 100, name="slow"), candidate(104, 200, name="fast")) == "fast"
    assert first(candidate(100, 100, name="slow"), candidate(106, 200, name="fast")) == "slow"


def test_one_gpu_unless_clearly_dearer():
    """Two GPUs must be 8 % cheaper (and beyond the 5 % of near-equals) to win over one."""
    assert first(candidate(100, gpus=1, name="one"), candidate(94, gpus=2, name="two")) == "one"
    assert first(candidate(100, gpus=1, name="one"), candidate(85, gpus=2, name="two")) == "two"
    assert first(candidate(100, gpus=1, name="one"), candidate(82, gpus=8, name="eight")) == "one"


def test_objectives_change_the_pick():
    offers = (candidate(10, 50, name="small"), candidate(100, 400, name="big"))
    assert first(*offers) == "small"
    assert first(*offers, objective=Objective.THROUGHPUT) == "big"
    assert first(*offers, objective=Objective.LATENCY) == "big"


def test_twice_the_speed_may_cost_four_times_as_much():
    slow, fast = candidate(100, 100, name="slow"), 200
    assert first(slow, candidate(370, fast, name="fast"), objective=Objective.LATENCY) == "fast"
    assert first(slow, candidate(440, fast, name="fast"), objective=Objective.LATENCY) == "slow"
    limited = rank_candidates([slow, candidate(440, fast, name="fast")], Objective.LATENCY, is_limited=True)
    assert limited[0].offer.instance.name == "fast"


@pytest.mark.parametrize("is_limited", [False, True])
def test_cost_decides_between_near_equal_rates(is_limited):
    offers = [candidate(10, 97, name="cheap"), candidate(20, 100, name="dear")]
    assert rank_candidates(offers, Objective.THROUGHPUT, is_limited=is_limited)[0].offer.instance.name == "cheap"


@pytest.mark.parametrize("objective", [Objective.THROUGHPUT, Objective.LATENCY])
def test_unknown_rate_comes_last_by_rate(objective):
    assert first(candidate(1, None, name="unknown"), candidate(100, 1, name="known"), objective=objective) == "known"


def test_unknown_price_comes_last():
    ranked = rank_candidates([candidate(None, 900, name="unknown"), candidate(500, 1, name="known")], Objective.COST)
    assert [one.offer.instance.name for one in ranked] == ["known", "unknown"]


def test_ties_by_complete_bill_then_fewer_gpus_then_name():
    whole, partial = candidate(100, name="z"), candidate(100, name="a", complete=False)
    assert first(whole, partial) == "z"
    assert first(candidate(100, name="b"), candidate(100, name="a")) == "a"
