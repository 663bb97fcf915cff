"""Plans as a whole: determinism, failover, alternatives, capacity, warnings, and the law of requirements."""

from __future__ import annotations

import json
from decimal import Decimal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from provisioner.catalog.snapshot import load_catalog
from provisioner.planner.decide import FAILOVER_MAX, FAILOVER_ON_DEMAND, FAILOVER_PER_TYPE_MAX, make_plan
from provisioner.planner.documents import plan_document, plan_json
from provisioner.workload.spec import Workload

CATALOG = load_catalog()
LLAMA_70B = {"id": "meta-llama/Llama-3.1-70B-Instruct"}


def test_same_spec_and_catalog_give_the_same_bytes(serve):
    first = plan_json(make_plan(serve(), CATALOG))
    assert plan_json(make_plan(Workload.from_document(serve().to_document()), load_catalog())) == first


def test_failover_starts_with_the_choice_and_repeats_nothing(serve, plan_of):
    plan = plan_of(serve())
    assert plan.failover[0].key == plan.choice.key
    keys = [offer.key for offer in plan.failover]
    assert len(set(keys)) == len(keys) <= FAILOVER_MAX
    assert {offer.layout for offer in plan.failover} == {plan.choice.layout}
    assert {offer.instances for offer in plan.failover} == {plan.choice.instances}
    per_type = [offer.instance_type for offer in plan.failover]
    assert len(set(per_type)) > 1
    assert per_type[:FAILOVER_PER_TYPE_MAX].count(plan.choice.instance_type) <= FAILOVER_PER_TYPE_MAX


def test_a_pin_may_fill_its_failover_alone(serve, plan_of):
    plan = plan_of(serve(inference={"concurrency": 1}, placement={"instance_types": ["g5.2xlarge"]}))
    assert FAILOVER_PER_TYPE_MAX < len(plan.failover) <= FAILOVER_MAX


def test_spot_ends_in_on_demand(batch, plan_of):
    plan = plan_of(batch(inference={"total": "500M tokens"}, placement={"gpus": ["L40S"]}))
    kinds = [offer.capacity_type for offer in plan.failover]
    assert kinds[0] == "spot"
    assert kinds[-FAILOVER_ON_DEMAND:] == ["on-demand"] * FAILOVER_ON_DEMAND
    assert "on-demand" not in kinds[:-FAILOVER_ON_DEMAND]
    explicit = plan_of(batch(placement={"gpus": ["L40S"], "capacity": "spot"}))
    assert {offer.capacity_type for offer in explicit.failover} == {"spot"}


def test_alternatives_are_other_instance_types_with_footprint_and_bill(serve, plan_of):
    plan = plan_of(serve())
    names = [each.offer.instance_type for each in plan.alternatives]
    assert plan.choice.instance_type not in names
    assert len(set(names)) == len(names) == 10
    for each in plan.alternatives:
        assert each.footprint.headroom_bytes >= 0
        assert each.cost.total_usd_per_month > 0
    document = plan_document(plan)["alternatives"][0]
    assert {"cloud", "price_usd_per_hour", "layout", "footprint", "cost"} <= set(document)


def test_endpoint_is_on_demand(serve, plan_of):
    plan = plan_of(serve())
    assert plan.choice.capacity_type == "on-demand"
    assert any("nothing to resume from" in reason for reason in plan.choice.reasons)


def test_batch_takes_spot_and_says_up_to_where(batch, plan_of):
    plan = plan_of(batch(inference={"total": "500M tokens"}, placement={"gpus": ["L40S"]}))
    assert plan.choice.capacity_type == "spot"
    assert any("it saves" in reason and "interruptions an hour" in reason for reason in plan.choice.reasons)
    assert plan.cost.spot.breakeven > 0
    assert plan.cost.run_usd is not None


def test_training_takes_spot_only_if_it_resumes(finetune, plan_of):
    placement = {"gpus": ["L40S"]}
    assert plan_of(finetune(placement=placement)).choice.capacity_type == "on-demand"
    resumable = finetune(placement=placement, training={"checkpoint": {"every": "30m", "resumable": True}})
    assert plan_of(resumable).choice.capacity_type == "spot"
    assert plan_of(finetune(placement=placement | {"capacity": "spot"})).choice.capacity_type == "spot"


def test_pretraining_is_no_serving(finetune, plan_of):
    plan = plan_of(finetune(task="pretrain", training={"method": "full"}))
    assert plan.throughput.train_tokens_per_s > 0
    assert plan.footprint.per_gpu.optimizer_bytes > 0
    assert plan.launch_argv[:2] == ("torchrun", "--standalone")


def test_optimize_visibly_changes_the_pick(serve, plan_of):
    picks = {
        objective: plan_of(serve(optimize=objective, placement={"max_price": "12 USD/h"}))
        for objective in ("cost", "throughput", "latency")
    }
    assert picks["cost"].cost.total_usd_per_month < picks["throughput"].cost.total_usd_per_month
    assert (
        picks["throughput"].throughput.decode_tokens_per_s_per_replica
        > picks["cost"].throughput.decode_tokens_per_s_per_replica
    )
    assert picks["latency"].throughput.tokens_per_s_per_request > picks["cost"].throughput.tokens_per_s_per_request


def test_targets_move_the_pick_up(serve, plan_of):
    slow = plan_of(serve(inference={"concurrency": 1}))
    wanted = slow.throughput.tokens_per_s_per_request * 2
    fast = plan_of(serve(inference={"concurrency": 1, "targets": {"tokens_per_second_per_request": wanted}}))
    assert fast.throughput.tokens_per_s_per_request >= wanted * 0.999
    assert fast.cost.total_usd_per_month > slow.cost.total_usd_per_month


def test_replicas_follow_the_request_rate(serve, plan_of):
    plan = plan_of(serve(inference={"targets": {"requests_per_second": 5}}))
    assert plan.choice.layout.replicas > 1
    assert plan.cost.compute_usd_per_hour == plan.choice.price_usd_per_hour * plan.choice.instances


def test_pin_is_kept(serve, plan_of):
    plan = plan_of(serve(inference={"concurrency": 1}, placement={"instance_types": ["g5.2xlarge"]}))
    assert {offer.instance_type for offer in plan.failover} == {"g5.2xlarge"}
    assert plan.alternatives == ()


def test_tight_host_memory_is_a_warning(serve, plan_of):
    """M22: 15 GiB of weights on a 16 GiB host."""
    plan = plan_of(serve(inference={"concurrency": 1}, placement={"instance_types": ["g5.xlarge"]}))
    assert any("1.2 x the weights" in warning for warning in plan.warnings)
    roomy = plan_of(serve(inference={"concurrency": 1}, placement={"instance_types": ["g5.2xlarge"]}))
    assert not any("1.2 x the weights" in warning for warning in roomy.warnings)


def test_fraction_of_a_gpu_is_said(serve, plan_of):
    plan = plan_of(serve(placement={"instance_types": ["g4-standard-24"]}))
    assert plan.choice.gpus_per_instance == 0.5
    assert any("vGPU driver" in warning for warning in plan.warnings)


@pytest.mark.parametrize(
    ("sections", "words"),
    [
        ({"model": {"weights": "int4-awq"}}, "come from a checkpoint in that format"),
        ({"model": {"weights": "fp8"}, "placement": {"gpus": ["A100-40GB"]}}, "has no FP8 units"),
        ({"inference": {"replicas": "2..4"}}, "planned and priced for 2"),
        ({"placement": {"regions": ["eu-central-1"]}}, "reference region was taken"),
        ({"inference": {"context_tokens": 200_000, "concurrency": 1}}, "RoPE override"),
    ],
)
def test_warnings(serve, plan_of, sections, words):
    assert any(words in warning for warning in plan_of(serve(**sections)).warnings)


@pytest.mark.parametrize(("sequence", "said"), [(2048, False), (4096, True)])
def test_a_training_beyond_the_models_positions_says_so(finetune, plan_of, sequence, said):
    model = {"id": "TinyLlama/TinyLlama-1.1B-Chat-v1.0"}
    warnings = plan_of(finetune(model=model, training={"sequence_tokens": sequence})).warnings
    assert any("stretch its RoPE" in warning for warning in warnings) is said


def test_batch_without_an_amount_of_work_says_so(batch, plan_of):
    plan = plan_of(batch(placement={"deadline": "10h"}))
    assert plan.cost.run_usd is None
    assert any("the deadline is unchecked" in warning for warning in plan.warnings)
    assert plan.choice.capacity_type == "on-demand"


def test_no_age_and_no_clock_in_a_plan(serve, plan_of):
    text = json.dumps(plan_document(plan_of(serve())))
    assert "days old" not in text


def test_provider_narrows_the_plan(serve, plan_of):
    assert plan_of(serve(), provider="aws").choice.cloud == "aws"
    assert plan_of(serve(), provider="gcp").choice.cloud == "gcp"
    assert plan_of(serve(), provider="sandbox") == plan_of(serve())


def test_nothing_fits_is_a_normal_answer(serve, plan_of):
    plan = plan_of(serve(model=LLAMA_70B, placement={"gpus": ["L4"], "max_gpus": 1}))
    assert (plan.verdict, plan.choice, plan.footprint, plan.cost) == ("nothing-fits", None, None, None)
    assert plan.closest
    assert plan.rejections


def test_max_price_and_budget_bound_the_bill(serve, plan_of):
    plan = plan_of(serve(optimize="throughput", placement={"max_price": "3 USD/h"}))
    assert plan.cost.compute_usd_per_hour <= 3
    plan = plan_of(serve(optimize="throughput", placement={"budget": "1500 USD/month"}))
    assert plan.cost.total_usd_per_month <= 1500


REQUIREMENTS = {
    "clouds": ["aws"],
    "regions": ["us-east-1", "us-central1"],
    "gpus": ["L40S", "H100", "A100-80GB"],
    "max_gpus": 4,
    "max_price": "9 USD/h",
    "budget": "4000 USD/month",
}


@settings(max_examples=25)
@given(st.sets(st.sampled_from(sorted(REQUIREMENTS))), st.sampled_from(["8B", "70B"]))
def test_removing_a_requirement_never_ends_a_fit(kept, size):
    document = {
        "version": 1,
        "name": "case",
        "task": "serve",
        "model": {"id": f"meta-llama/Llama-3.1-{size}-Instruct"},
        "inference": {"context_tokens": 8192, "concurrency": 4},
    }

    def fits(keys) -> bool:
        spec = Workload.from_document(document | {"placement": {key: REQUIREMENTS[key] for key in sorted(keys)}})
        return make_plan(spec, CATALOG).choice is not None

    if fits(kept):
        for key in sorted(kept):
            assert fits(kept - {key}), f"removing {key} ended the fit"


def test_price_of_the_choice_carries_its_date(serve, plan_of):
    choice = plan_of(serve()).choice
    assert choice.price_as_of.startswith("20")
    assert isinstance(choice.price_usd_per_hour, Decimal)
