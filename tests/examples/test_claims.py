"""What each example's README claims, held against its plan: the claim itself, not the bytes."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from pathlib import Path

import pytest

from provisioner.catalog.snapshot import Catalog, load_catalog
from provisioner.planner.decide import make_plan
from provisioner.planner.plan import Cost, Plan, PlannedOffer
from provisioner.sizing.footprint import MemoryTerms
from provisioner.units import GIB
from provisioner.workload.load import load

EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.fixture(scope="module")
def catalog() -> Catalog:
    return load_catalog()


@pytest.fixture(scope="module")
def plan_of(catalog: Catalog) -> Callable[..., Plan]:
    """The plan of an example, with what-if changes."""
    return lambda name, *changes: make_plan(load(EXAMPLES / name / "workload.yaml", changes).workload, catalog)


def parts(plan: Plan) -> tuple[PlannedOffer, MemoryTerms, Cost]:
    assert plan.verdict == "fits"
    assert plan.choice is not None
    assert plan.footprint is not None
    assert plan.cost is not None
    return plan.choice, plan.footprint.per_gpu, plan.cost


def card_gb(catalog: Catalog, offer: PlannedOffer) -> float:
    """Nominal memory of the card, as buyers name it: a share of it for a fraction."""
    gpu = next(gpu for gpu in catalog.gpus.values() if gpu.gpu_class == offer.gpu)
    return gpu.memory_nominal_bytes / GIB * min(1.0, offer.gpus_per_instance)


def is_one_card(offer: PlannedOffer) -> bool:
    return (offer.instances, offer.layout.gpus, offer.interconnect) == (1, 1, "none")


def test_int4_13b_on_one_24_gb_card(plan_of, catalog) -> None:
    offer, terms, _ = parts(plan_of("int4-13b-on-24gb"))
    assert is_one_card(offer)
    assert 22 <= card_gb(catalog, offer) <= 24
    assert terms.weights_bytes < 8 * GIB
    small = plan_of("int4-13b-on-24gb", "placement.gpus=[T4]", "placement.max_gpus=1")
    assert small.verdict != "fits"


def test_mid_size_bf16_on_one_48_gb_card(plan_of, catalog) -> None:
    offer, terms, _ = parts(plan_of("mid-size-bf16-on-48gb"))
    assert is_one_card(offer)
    assert 44 <= card_gb(catalog, offer) <= 48
    assert terms.weights_bytes > 24 * 10**9


def test_70b_on_the_80_gb_class(plan_of, catalog) -> None:
    offer, terms, _ = parts(plan_of("llama-70b-chat"))
    assert card_gb(catalog, offer) >= 80
    assert terms.weights_bytes * offer.layout.gpus_per_replica > 60 * GIB


def test_long_context_cache_equals_the_weights(plan_of, catalog) -> None:
    offer, terms, _ = parts(plan_of("long-context-chat"))
    assert 0.9 <= terms.kv_cache_bytes / terms.weights_bytes <= 1.2
    assert is_one_card(offer)
    smaller, _, cost = parts(plan_of("long-context-chat", "inference.context_tokens=4096"))
    assert card_gb(catalog, smaller) <= 24 < card_gb(catalog, offer)
    assert cost.total_usd_per_month is not None


def test_qlora_on_one_24_to_48_gb_card(plan_of, catalog) -> None:
    offer, terms, _ = parts(plan_of("qlora-8b-finetune"))
    assert is_one_card(offer)
    assert 22 <= card_gb(catalog, offer) <= 48
    assert terms.optimizer_bytes < terms.weights_bytes / 10


def test_full_finetuning_on_an_nvlink_node(plan_of) -> None:
    offer, terms, _ = parts(plan_of("full-finetune-nvlink"))
    assert (offer.instances, offer.interconnect) == (1, "nvlink")
    assert offer.layout.gpus > 1
    assert terms.optimizer_bytes > terms.weights_bytes
    assert plan_of("full-finetune-nvlink", "placement.max_gpus=1").verdict != "fits"


def test_four_nodes_on_reserved_capacity_with_a_fabric_and_shared_files(plan_of) -> None:
    plan = plan_of("pretrain-four-nodes")
    offer, terms, _ = parts(plan)
    assert (offer.instances, offer.layout.gpus, offer.interconnect) == (4, 32, "nvlink")
    assert offer.capacity_type in ("reserved", "capacity-block", "flex-start")
    assert any("EFA" in reason or "GPUDirect" in reason for reason in offer.reasons)
    assert {item.kind for item in plan.storage} >= {"root", "shared"}
    assert terms.optimizer_bytes < 130 * 10**9 / 32
    assert plan_of("pretrain-four-nodes", "placement.max_gpus=16").verdict != "fits"
    on_demand = parts(plan_of("pretrain-four-nodes", "placement.capacity=on-demand"))
    assert on_demand[0].instances == 4
    assert on_demand[2].run_usd is not None


@pytest.mark.parametrize("name", ["image-batch-on-spot", "video-batch-on-spot", "music", "speech-to-text"])
def test_batches_take_spot_and_a_lost_machine_costs_little(plan_of, name) -> None:
    offer, _, cost = parts(plan_of(name))
    assert offer.capacity_type == "spot"
    assert is_one_card(offer)
    steady = parts(plan_of(name, "placement.capacity=on-demand"))[2]
    ours, theirs = (one.run_usd or one.total_usd_per_month for one in (cost, steady))
    assert ours is not None
    assert theirs is not None
    assert ours < theirs


def test_batches_of_known_speed_have_a_length_and_a_cost(plan_of) -> None:
    for name in ("image-batch-on-spot", "video-batch-on-spot"):
        cost = parts(plan_of(name))[2]
        assert cost.run_usd is not None
        assert cost.run_hours is not None
    double = parts(plan_of("video-batch-on-spot", "inference.total=1000 clips"))[2]
    once = parts(plan_of("video-batch-on-spot"))[2]
    assert double.run_hours == pytest.approx(2 * once.run_hours, rel=0.02)


def test_music_says_that_its_length_is_unknown(plan_of, catalog) -> None:
    plan = plan_of("music")
    offer, _, cost = parts(plan)
    assert card_gb(catalog, offer) <= 24
    assert cost.run_usd is None
    assert any("no speed is predicted" in warning for warning in plan.warnings)


def test_speech_fills_its_card_with_cache(plan_of, catalog) -> None:
    plan = plan_of("speech-to-text")
    offer, terms, _ = parts(plan)
    assert card_gb(catalog, offer) <= 24
    assert (terms.kv_cache_bytes or 0) > 2 * terms.weights_bytes
    assert plan.largest["batch"] > 16


def test_latency_buys_bandwidth_and_keeps_the_price_limit(plan_of) -> None:
    fast, cheap = plan_of("latency-endpoint"), plan_of("latency-endpoint", "optimize=cost")
    offer, _, _ = parts(fast)
    assert offer.price_usd_per_hour is not None
    assert offer.price_usd_per_hour * offer.instances <= Decimal(8)
    assert offer.capacity_type == "on-demand"
    assert fast.throughput is not None
    assert cheap.throughput is not None
    assert fast.throughput.tokens_per_s_per_request > cheap.throughput.tokens_per_s_per_request
    assert parts(fast)[2].total_usd_per_month > parts(cheap)[2].total_usd_per_month


def test_bursty_pays_for_its_hours_and_its_stopped_disks(plan_of) -> None:
    offer, _, cost = parts(plan_of("bursty-endpoint"))
    steady = parts(plan_of("bursty-endpoint", "lifecycle.pattern=steady", "lifecycle.hours_per_month=730"))[2]
    assert offer.capacity_type == "on-demand"
    assert cost.hours_per_month == 80
    assert cost.total_usd_per_month < steady.total_usd_per_month / 5
    assert cost.stopped_usd_per_month is not None
    assert 0 < cost.stopped_usd_per_month < cost.total_usd_per_month


def test_images_are_part_of_the_context_and_the_tower_of_the_weights(plan_of) -> None:
    offer, terms, _ = parts(plan_of("image-and-text"))
    assert is_one_card(offer)
    assert terms.weights_bytes > 2 * 8.5e9 * 0.98
    longer = plan_of("image-and-text", "inference.context_tokens=32768")
    assert parts(longer)[1].kv_cache_bytes == pytest.approx(2 * terms.kv_cache_bytes, rel=0.01)
