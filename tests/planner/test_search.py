"""Searches over the real catalog and over stalls: what is kept, what is refused and why. Scenario rows are named."""

from __future__ import annotations

import pytest

from provisioner.planner.candidates import Sizer
from provisioner.planner.search import Market, search
from provisioner.units import GIB
from provisioner.vocabulary import CapacityType, Fit, Interconnect


@pytest.fixture
def found(request_of, catalog):
    """The outcome of a workload on the bundled catalog, or on another."""
    return lambda workload, other=None: search(request_of(workload), Market(other or catalog))


@pytest.fixture
def refusals(found, catalog):
    """Rejections of a workload as (offer, filter) -> rejection."""

    def build(workload, other=None):
        market = Market(other or catalog)
        return {
            (one.offer, one.filter): one
            for one in found(workload, other).ledger.rejections(market.catalog.regions_offering)
        }

    return build


def names(outcome) -> set[str]:
    return {candidate.offer.instance.name for candidate in outcome.candidates}


def test_bf16_below_ampere_is_refused_with_the_reason(refusals, serve):
    """M17."""
    refusal = refusals(serve(model={"weights": "bf16"}))["aws/*/*/g4dn.xlarge/*", "precision"]
    assert "no bf16" in refusal.reason
    assert refusal.needed == "compute capability 8.0"


def test_fp8_experts_are_refused_on_ampere_dense_fp8_is_not(found, refusals, serve):
    """M10."""
    experts = serve(
        model={"id": "deepseek-ai/DeepSeek-V3", "weights": "auto"}, placement={"gpus": ["A100-80GB", "H200"]}
    )
    assert ("aws/*/*/p4de.24xlarge/*", "precision") in refusals(experts)
    dense = serve(model={"weights": "fp8"}, placement={"gpus": ["A100-40GB"]})
    assert "a2-highgpu-1g" in names(found(dense))


def test_sixty_four_heads_never_take_six_gpus(found, serve):
    """M9: 64 query heads and 8 KV heads divide by powers of two, never by 6."""
    outcome = found(serve(model={"id": "Qwen/Qwen2.5-72B-Instruct"}))
    degrees = {candidate.arrangement.layout.tensor_parallel for candidate in outcome.candidates}
    assert degrees <= {1, 2, 4, 8, 16}
    assert 4 in degrees


def test_eight_gpus_of_one_instance_hold_the_largest_model(found, serve):
    """M8: one 8 x H200 instance, never eleven."""
    outcome = found(serve(model={"id": "deepseek-ai/DeepSeek-V3", "weights": "auto"}, placement={"gpus": ["H200"]}))
    best = outcome.candidates[0].arrangement
    assert (best.instances, best.gpus_billed, best.layout.replicas) == (1, 8, 1)


def test_fraction_of_a_gpu_is_not_the_whole(found, serve):
    """M19: g4-standard-6 has an eighth of 96 GB."""
    outcome = found(serve(placement={"gpus": ["RTX-PRO-6000"]}))
    assert "g4-standard-48" in names(outcome)
    assert "g4-standard-6" not in names(outcome)


def test_l4_and_a10g_are_equal(catalog, request_of, serve):
    """M20: both report 22,888 MiB and hold the same models."""
    sizer = Sizer(request_of(serve(inference={"concurrency": 1})))
    usable = {
        name: next(
            sizer.arrangements(catalog.instances["aws", name], catalog.gpus[gpu], (Fit.FITS,))
        ).footprint.usable_bytes
        for name, gpu in (("g6.xlarge", "L4"), ("g5.xlarge", "A10G"))
    }
    assert abs(usable["g6.xlarge"] - usable["g5.xlarge"]) < 0.015 * usable["g5.xlarge"]
    assert max(usable.values()) < 23034 * 2**20


def test_c11_region_without_the_type_names_those_that_have_it(refusals, serve):
    """C11."""
    spec = serve(
        placement={"clouds": ["aws"], "regions": ["eu-west-3"], "gpus": ["H200"]},
        model={"id": "deepseek-ai/DeepSeek-V3", "weights": "auto"},
    )
    refusal = refusals(spec)["aws/*/*/p5en.48xlarge/*", "region"]
    assert "us-east-1" in refusal.available
    assert refusal.needed == "eu-west-3"


def test_c9_zones_that_do_not_offer_a_type_are_never_candidates(found, serve, catalog):
    """C9: only zones of the listing appear."""
    listed: dict[tuple[str, str], set[str | None]] = {}
    for offer in catalog.offers(["aws"]):
        listed.setdefault((offer.instance.name, offer.region), set()).add(offer.zone)
    for candidate in found(serve(placement={"clouds": ["aws"]})).candidates:
        assert set(candidate.offer.zones) <= listed[candidate.offer.instance.name, candidate.offer.region]
        assert None not in candidate.offer.zones


def test_p5_spot_as_dear_as_on_demand_loses(found, refusals, batch, offer, stall):
    """P5."""
    spec = batch(inference={"total": "50M tokens"})
    spot = offer("g6e.xlarge", "1.861", capacity_type=CapacityType.SPOT, zones=("use1-az2",))
    shop = stall(offer("g6e.xlarge", "1.861"), spot)
    assert {one.offer.capacity_type for one in found(spec, shop).candidates} == {CapacityType.ON_DEMAND}
    assert ("aws/*/*/g6e.xlarge/spot", "spot-not-cheaper") in refusals(spec, shop) or (
        "aws/us-east-1/*/g6e.xlarge/spot",
        "spot-not-cheaper",
    ) in refusals(spec, shop)
    cheaper = stall(offer("g6e.xlarge", "1.861"), spot._replace(price_usd_per_hour=spot.price_usd_per_hour / 3))
    assert found(spec, cheaper).candidates[0].offer.capacity_type is CapacityType.SPOT


def test_p2_bundled_local_disks_are_in_the_price(catalog):
    """P2: a3-highgpu-8g with its 16 local disks; list price of the whole machine."""
    price = next(
        o.price_usd_per_hour
        for o in catalog.offers(["gcp"])
        if o.instance.name == "a3-highgpu-8g" and o.region == "us-central1" and o.price_usd_per_hour
    )
    assert 80 < price < 95


@pytest.fixture
def tight_on_l4(serve, catalog, request_of):
    """A workload whose middle fits on one L4, and whose high end does not."""
    instance, gpu = catalog.instances["aws", "g6.xlarge"], catalog.gpus["L4"]
    for context in range(4096, 65536, 512):
        spec = serve(inference={"context_tokens": context, "concurrency": 1})
        sizer = Sizer(request_of(spec))
        if next(sizer.arrangements(instance, gpu, (Fit.BORDERLINE,)), None) is not None:
            return spec
    raise AssertionError("no context is borderline on an L4")


def test_borderline_only_where_nothing_fits(found, refusals, stall, offer, tight_on_l4):
    both = stall(offer("g6.xlarge", "0.10"), offer("g6e.xlarge", "9.00"))
    outcome = found(tight_on_l4, both)
    assert (outcome.fit, names(outcome)) == (Fit.FITS, {"g6e.xlarge"})
    assert "borderline" in refusals(tight_on_l4, both)["aws/*/*/g6.xlarge/*", "memory"].reason
    alone = found(tight_on_l4, stall(offer("g6.xlarge", "0.10")))
    assert (alone.fit, names(alone)) == (Fit.BORDERLINE, {"g6.xlarge"})


def test_a_pin_takes_borderline(plan_of, tight_on_l4):
    document = tight_on_l4.to_document()
    document["placement"] = {**document["placement"], "instance_types": ["g6.xlarge"]}
    plan = plan_of(type(tight_on_l4).from_document(document))
    assert (plan.verdict, plan.choice.instance_type) == ("borderline", "g6.xlarge")
    assert plan.footprint.headroom_bytes >= 0
    assert any(warning.startswith("borderline") for warning in plan.warnings)


def test_unknown_price_only_where_every_price_is_unknown(found, refusals, serve, stall, offer):
    priced, unpriced = offer("g6e.xlarge", "5.00"), offer("g6e.2xlarge", None)
    assert names(found(serve(), stall(priced, unpriced))) == {"g6e.xlarge"}
    assert any(name == "price-unknown" for _, name in refusals(serve(), stall(priced, unpriced)))
    assert names(found(serve(), stall(unpriced))) == {"g6e.2xlarge"}
    limited = serve(placement={"max_price": "9 USD/h"})
    assert found(limited, stall(unpriced)).fit is Fit.DOES_NOT_FIT


def test_copies_go_on_separate_instances_or_are_packed(found, serve, stall, offer):
    spec = serve(inference={"replicas": 4})
    single, quad = offer("g6e.xlarge", "2.00"), offer("g6e.12xlarge", "7.00")
    outcome = found(spec, stall(single, quad))
    by_name = {one.offer.instance.name: one.arrangement for one in outcome.candidates}
    assert (by_name["g6e.xlarge"].instances, by_name["g6e.12xlarge"].instances) == (4, 1)
    assert outcome.candidates[0].offer.instance.name == "g6e.12xlarge"


def test_a_copy_that_spans_gpus_says_over_which_link(found, serve, stall, offer):
    spec = serve(model={"id": "meta-llama/Llama-3.1-70B-Instruct"})
    outcome = found(spec, stall(offer("g6e.12xlarge", "10.00"), offer("p4de.24xlarge", "27.00")))
    links = {one.offer.instance.name: one.arrangement.interconnect for one in outcome.candidates}
    assert links == {"g6e.12xlarge": Interconnect.PCIE, "p4de.24xlarge": Interconnect.NVLINK}


def test_asked_degree_that_no_instance_has(refusals, serve):
    refusal = refusals(serve(inference={"tensor_parallel": 4}))["aws/*/*/g6.xlarge/*", "gpu-count"]
    assert refusal.needed == "tensor_parallel 4"


@pytest.mark.parametrize(
    ("degrees", "reason"),
    [
        ({"tensor_parallel": 3}, "32 attention heads do not divide by tensor_parallel 3"),
        ({"tensor_parallel": 64}, "32 attention heads do not divide by tensor_parallel 64"),
        ({"pipeline_parallel": 33}, "33 pipeline stages for 32 layers"),
    ],
)
def test_degrees_that_the_model_cannot_have_say_so(refusals, serve, degrees, reason):
    """M9: on no instance type, however many GPUs it has."""
    found = refusals(serve(inference=degrees))
    assert found["aws/*/*/p5.48xlarge/*", "layout"].reason == reason
    assert not [key for key in found if key[1] == "gpu-count"]


def test_memory_refusal_has_both_numbers(refusals, serve):
    refusal = refusals(serve(model={"id": "meta-llama/Llama-3.1-70B-Instruct"}))["aws/*/*/g6.xlarge/*", "memory"]
    assert float(refusal.needed.split()[0]) * GIB > float(refusal.available.split()[0]) * GIB


def test_fast_enough_is_not_confused_with_large_enough(refusals, serve):
    """A type that holds the workload but is too slow is refused for its speed, not for its memory."""
    spec = serve(inference={"concurrency": 1, "targets": {"tokens_per_second_per_request": 60}})
    refused = refusals(spec)
    assert ("aws/*/*/g6e.xlarge/*", "tokens-per-second") in refused
    assert ("aws/*/*/g6e.xlarge/*", "memory") not in refused


def test_records_are_bounded(refusals, serve):
    """One record stands for all offers of a type that fall at the same filter."""
    assert len(refusals(serve())) < 600


def test_a_batch_with_auto_replicas_fills_its_machine(batch, plan_of):
    """Copies of a batch share its work: a machine of eight GPUs runs eight of them."""
    spec = {"inference": {"total": "100M tokens"}, "placement": {"instance_types": ["p5.48xlarge"]}}
    one = plan_of(batch(**spec | {"inference": spec["inference"] | {"tensor_parallel": 1}}))
    filled = plan_of(batch(**spec | {"inference": spec["inference"] | {"tensor_parallel": 1, "replicas": "auto"}}))
    assert (one.choice.layout.replicas, filled.choice.layout.replicas) == (1, 8)
    assert filled.choice.instances == 1
    assert filled.cost.run_hours < one.cost.run_hours / 6
    assert any("7 of the 8 GPUs" in text and "inference.replicas: 8" in text for text in one.warnings)
    assert not any("stay idle" in text for text in filled.warnings)
