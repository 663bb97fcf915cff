"""Plans as JSON, both ways, exactly as contracted."""

from __future__ import annotations

import json
from decimal import Decimal

import pytest

from provisioner.errors import UsageError
from provisioner.planner.documents import plan_document, plan_from_document, plan_json

CHOICE_KEYS = {
    "cloud",
    "region",
    "zone",
    "instance_type",
    "instances",
    "gpu",
    "gpus_per_instance",
    "capacity_type",
    "price_usd_per_hour",
    "price_as_of",
    "interconnect",
    "layout",
    "reasons",
    "supply",
}
PLAN_KEYS = {
    "schema",
    "workload",
    "catalog",
    "verdict",
    "choice",
    "footprint",
    "throughput",
    "cost",
    "storage",
    "launch",
    "failover",
    "alternatives",
    "rejections",
    "warnings",
}


@pytest.fixture
def plans(serve, batch, finetune, plan_of):
    """A plan of every kind."""
    return {
        "serve": plan_of(serve(storage={"data": "1TiB", "egress": "200GB/month"})),
        "fraction": plan_of(serve(placement={"instance_types": ["g4-standard-24"]})),
        "copies": plan_of(serve(inference={"replicas": 3})),
        "spot": plan_of(batch(inference={"total": "500M tokens"}, placement={"gpus": ["L40S"]})),
        "training": plan_of(finetune(training={"method": "full", "checkpoint": {"every": "1h"}})),
        "nothing": plan_of(serve(placement={"gpus": ["T4"]})),
    }


def test_round_trip(plans):
    for name, plan in plans.items():
        text = plan_json(plan)
        again = plan_from_document(json.loads(text))
        assert again == plan, name
        assert plan_json(again) == text, name


def test_contracted_keys(plans):
    document = plan_document(plans["serve"])
    assert set(document) >= PLAN_KEYS
    assert set(document["choice"]) == CHOICE_KEYS
    assert set(document["choice"]["layout"]) >= {"tensor_parallel", "pipeline_parallel", "data_parallel", "replicas"}
    assert {
        "usable_bytes",
        "headroom_bytes",
        "allocated_bytes",
        "reserved_bytes",
        "device_bytes",
        "assumptions",
    } <= set(document["footprint"])
    assert {"low", "high", "bound_by", "images_per_s"} <= set(document["throughput"])
    assert {"interruption_rate", "expected_rework_usd", "breakeven"} <= set(
        plan_document(plans["spot"])["cost"]["spot"]
    )
    assert set(document["workload"]) == {"name", "task", "digest", "spec"}


def test_money_is_a_decimal_string_and_sizes_are_integers(plans):
    for plan in plans.values():
        document = plan_document(plan)
        for key, value in _leaves(document):
            if "usd" in key and not key.endswith("spec"):
                assert value is None or (isinstance(value, str) and Decimal(value) >= 0), key
            if key.endswith("_bytes"):
                assert value is None or type(value) is int, key


def _leaves(node, key=""):
    if isinstance(node, dict):
        for name, value in node.items():
            yield from _leaves(value, name)
    elif isinstance(node, list):
        for value in node:
            yield from _leaves(value, key)
    else:
        yield key, node


def test_unknown_is_null(plans):
    document = plan_document(plans["serve"])
    assert document["cost"]["run_usd"] is None
    assert document["cost"]["spot"] is None
    assert document["footprint"]["per_gpu"]["gradient_bytes"] is None
    nothing = plan_document(plans["nothing"])
    assert nothing["choice"] is None
    assert nothing["footprint"] is None


def test_compute_is_price_times_instances(plans):
    document = plan_document(plans["copies"])
    assert Decimal(document["cost"]["compute_usd_per_hour"]) == 3 * Decimal(document["choice"]["price_usd_per_hour"])


def test_whole_gpus_are_whole_numbers(plans):
    assert plan_document(plans["fraction"])["choice"]["gpus_per_instance"] == 0.5
    whole = plan_document(plans["training"])["choice"]["gpus_per_instance"]
    assert type(whole) is int


def test_extra_keys_come_last(plans):
    document = json.loads(plan_json(plans["nothing"], error={"code": 6}))
    assert list(document)[-1] == "error"
    assert plan_from_document(document) == plans["nothing"]


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (lambda plan: plan.update(schema="gpuprov.size/1"), "this is no plan"),
        (lambda plan: plan.pop("workload"), "lacks the key 'workload'"),
        (lambda plan: plan["choice"].update(price_usd_per_hour=0.8), "decimal string"),
        (lambda plan: plan["choice"].update(price_usd_per_hour="cheap"), "damaged"),
        (lambda plan: plan["choice"].update(instances="one"), "whole number"),
        (lambda plan: plan["choice"]["layout"].update(sharding="sliced"), "damaged"),
        (lambda plan: plan["footprint"].update(per_gpu=[]), "damaged"),
        (lambda plan: plan.update(failover=3), "damaged"),
    ],
)
def test_damaged_documents_are_refused_in_words(plans, damage, words):
    document = json.loads(plan_json(plans["serve"]))
    damage(document)
    with pytest.raises(UsageError, match=words):
        plan_from_document(document)


@pytest.mark.parametrize("document", [[], "plan", None])
def test_other_json_is_no_plan(document):
    with pytest.raises(UsageError, match="this is no plan"):
        plan_from_document(document)
