"""Plans say how their choice does at work, and copies follow the rate that keeps the targets."""

from __future__ import annotations

import json

import pytest

from provisioner.planner.documents import plan_json
from provisioner.planner.outlooks import KEYS, read_outlook

PINNED = {"instance_types": ["g6e.xlarge"]}


def test_copies_are_the_asked_rate_over_what_one_takes(serve, plan_of):
    plan = plan_of(serve(inference={"concurrency": 16, "targets": {"requests_per_second": 12}}, placement=PINNED))
    steady, copies = plan.outlook.steady, plan.choice.layout.replicas
    assert (copies - 1) * steady.largest_requests_per_s < 12 <= copies * steady.largest_requests_per_s * 1.001
    assert steady.asked_requests_per_s == pytest.approx(12 / copies, rel=1e-3)
    assert steady.asked_time_to_first_token_s < 10


def test_a_tighter_target_takes_more_copies(serve, plan_of):
    def copies(**targets):
        asked = {"requests_per_second": 12, **targets}
        plan = plan_of(serve(inference={"concurrency": 16, "targets": asked}, placement=PINNED))
        return plan.choice.layout.replicas

    assert copies(time_to_first_token="400ms") > copies()
    assert copies(time_to_first_token="30s") == copies()


def test_documents_hold_the_outlook_of_each_task(serve, finetune, plan_of):
    for workload, given in (
        (serve(), {"steady_state", "limits", "start_up"}),
        (finetune(), {"limits", "start_up", "storage_demand"}),
    ):
        throughput = json.loads(plan_json(plan_of(workload)))["throughput"]
        assert {key for key in KEYS if throughput[key]} == given
        assert throughput["limits"]["remedies"][0]["gain"] >= throughput["limits"]["remedies"][-1]["gain"]
        assert throughput["start_up"]["low_s"] < throughput["start_up"]["usual_s"] < throughput["start_up"]["high_s"]


def test_plans_saved_without_an_outlook_are_read():
    assert read_outlook({"low": 1.0}) is None


def test_the_checkpoint_interval_sets_the_rate_of_storage(finetune, plan_of):
    def rate(every):
        plan = plan_of(finetune(training={"method": "full", "checkpoint": {"every": every, "resumable": True}}))
        return plan.outlook.storage.checkpoint_bytes_per_s

    assert rate("10m") == pytest.approx(3 * rate("30m"), rel=0.01)
