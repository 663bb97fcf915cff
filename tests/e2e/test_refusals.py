"""What `up` refuses, and that nothing was made by then."""

from __future__ import annotations

import json

import pytest

from stacks.apply import Order, decide
from stacks.deploy import Session, Watch
from stacks.program import offer_inputs
from stacks.site import Site

pytestmark = [pytest.mark.engine]
SMALL = "placement: {instance_types: [g4dn.xlarge]}"
PINNED = "placement: {instance_types: [g6e.xlarge], regions: [us-east-1], clouds: [aws]}"


def nothing_was_made(bench):
    assert bench.creates() == []
    assert bench.run("status", "--format", "json").document["stacks"] == []


def test_without_yes_and_terminal_nothing_begins(bench):
    for command in (("up", str(bench.spec)), ("down", "demo")):
        answer = bench.run(*command)
        assert answer.code == 2
        assert "add --yes" in answer.err
    assert not (bench.home / "state").exists()


def test_a_pin_that_cannot_hold_is_six_with_the_plan(make_bench):
    bench = make_bench(extra=SMALL)
    answer = bench.up()
    assert answer.code == 6
    assert answer.document["choice"] is None
    assert answer.document["error"]["code"] == 6
    nothing_was_made(bench)


def test_an_undersized_saved_plan_is_five(bench, tmp_path):
    path = tmp_path / "plan.json"
    document = json.loads(bench.run("plan", str(bench.spec), "--format", "json").out)
    small = {
        **document["choice"],
        "cloud": "aws",
        "region": "us-east-1",
        "zone": None,
        "instance_type": "g4dn.xlarge",
        "gpu": "T4",
    }
    document["choice"] = small
    document["failover"] = [small]
    path.write_text(json.dumps(document))
    answer = bench.up("--plan", str(path))
    assert answer.code == 5, answer.err
    assert answer.document["error"]["kind"] == "policy"
    assert answer.document["changes"]["create"] == 0
    nothing_was_made(bench)


def test_a_plan_of_another_spec_is_two(bench, make_bench, tmp_path):
    path = tmp_path / "plan.json"
    path.write_text(bench.run("plan", str(bench.spec), "--format", "json").out)
    other = make_bench(extra="inference: {concurrency: 8}".replace("inference", "optimize: cost #"))
    other.spec.write_text(other.spec.read_text().replace("concurrency: 4", "concurrency: 8"))
    answer = other.up("--plan", str(path))
    assert answer.code == 2
    assert "another spec" in answer.err
    nothing_was_made(other)


def test_every_refusal_before_the_start_is_a_document_of_its_own(bench, tmp_path):
    path = tmp_path / "plan.json"
    for content in ("", "[]", "{}", "no json"):
        path.write_text(content)
        answer = bench.up("--plan", str(path))
        assert answer.code == 2
        assert answer.document["schema"] == "gpuprov.up/1"
        assert answer.document["error"]["code"] == 2
    assert bench.up("--plan", str(tmp_path / "none.json")).document["error"]["kind"] == "usage"
    for name in ("Demo", "-demo", "a_b", "x" * 42):
        assert bench.up(f"--stack={name}").document["error"]["code"] == 2
    bench.spec.write_text(bench.spec.read_text().replace("task: serve", "task: serv"))
    wrong = bench.up()
    assert wrong.code == 2
    assert wrong.document["error"]["where"].endswith("workload.yaml:3:7")
    assert wrong.document["stack"] is None
    nothing_was_made(bench)


def test_clouds_of_a_later_step_are_refused(bench):
    answer = bench.up("--cloud", "gcp")
    assert answer.code == 2
    assert "later step" in answer.err


def test_an_unknown_stack_is_two(bench):
    for verb in ("stop", "start", "refresh", "unlock", "status"):
        answer = bench.run(verb, "demmo")
        assert answer.code == 2
        assert "there is no stack 'demmo'" in answer.err


@pytest.mark.slow
def test_the_engine_stops_what_the_gate_would_have_stopped(bench, tmp_path, monkeypatch):
    """The pack in the engine is a gate of its own: inputs that bypass ours are stopped before anything is created."""
    from dataclasses import replace

    from provisioner.catalog.snapshot import load_catalog
    from provisioner.workload.load import load

    monkeypatch.chdir(tmp_path)
    bench.spec.write_text(bench.spec.read_text().replace("concurrency: 4", "concurrency: 16"))
    site = Site(bench.home, None, print)
    workload = load(bench.spec).workload
    decision = decide(Order(workload, load_catalog(), bench.spec, "demo", "sandbox"), site)
    small = replace(decision.plan.choice, cloud="aws", region="us-east-1", zone=None, instance_type="g6.xlarge")
    inputs = replace(decision.inputs, offers=(offer_inputs(small),))
    with Session(site, "demo", "up", Watch(print)) as session:
        session.ensure("sandbox")
        for run in (session.preview, session.update):
            outcome = run(inputs, "sandbox")
            assert outcome.failure is not None
            assert outcome.failure.exit_code == 5, outcome.failure
            assert "under-sized" in {violation.rule for violation in outcome.violations}
    assert bench.creates() == []


@pytest.mark.slow
def test_sold_out_everywhere_is_seven_with_every_attempt(make_bench):
    bench = make_bench(extra=f'{PINNED}\nrun: {{command: ["true"]}}')
    bench.sandbox("capacity", "set", "*/*/*/*/*", "0")
    answer = bench.up()
    assert answer.code == 7, answer.err
    document = answer.document
    assert document["error"]["kind"] == "capacity"
    assert len(document["attempts"]) >= 2
    assert {attempt["outcome"] for attempt in document["attempts"]} == {"capacity"}
    assert "nothing of the stack bills" in answer.err
    assert bench.machines() == []
    assert bench.down().code == 0


@pytest.mark.slow
def test_sold_out_at_first_goes_on_to_the_next_offer(make_bench):
    bench = make_bench(extra=PINNED)
    offers = json.loads(bench.run("plan", str(bench.spec), "--format", "json").out)["failover"]
    for offer in offers[:2]:
        bench.controls.set_capacity(f"aws/{offer['region']}/{offer['zone']}/{offer['instance_type']}/*", 0)
    answer = bench.up()
    assert answer.code == 0, answer.err
    assert [attempt["outcome"] for attempt in answer.document["attempts"]] == ["capacity", "capacity", "created"]
    assert answer.document["outputs"]["zone"] == offers[2]["zone"]
    assert "capacity" in answer.err
    assert bench.down().code == 0


@pytest.mark.slow
def test_quota_alone_is_ten(make_bench):
    bench = make_bench(extra=PINNED)
    bench.sandbox("quota", "set", "aws/*/g6e.xlarge", "0")
    answer = bench.up()
    assert answer.code == 10, answer.err
    assert answer.document["error"]["kind"] == "quota"
    assert bench.machines() == []
    assert bench.down().code == 0


@pytest.mark.slow
def test_l15_expired_credentials_on_down_remove_nothing_from_the_state(bench):
    assert bench.up().code == 0
    machine = bench.machines()[0].id
    bench.sandbox("errors", "inject", "credentials", "--on", "terminate_instance", "--always")
    answer = bench.down()
    assert answer.code == 3, answer.err
    assert answer.document["error"]["kind"] == "credentials"
    assert answer.document["removed"] is False
    assert machine in answer.err
    status = bench.run("status", "demo", "--format", "json").document
    assert status["stacks"][0]["outputs"]["instance_id"] == machine
    bench.sandbox("errors", "clear")
    assert bench.down().code == 0
    assert bench.running_bill() == []
