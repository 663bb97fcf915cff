"""A served model from `up` to idle to reaped and back, with the real engine on the sandbox."""

from __future__ import annotations

import json

import pytest

from tests.e2e.bench import Bench

pytestmark = [pytest.mark.engine, pytest.mark.slow]
EXTRA = "lifecycle: {pattern: bursty, max_spend: 90 USD, idle: {after: 20m}}\nrun: auto\n"


def test_a_quiet_stack_is_reaped_shows_so_and_comes_back(tmp_path):
    bench = Bench(tmp_path / "bench", extra=EXTRA)
    made = bench.up()
    assert made.code == 0, made.err
    outputs = made.document["outputs"]
    assert outputs["ready"] is True
    assert outputs["endpoint"].endswith(":8000")
    assert bench.up().document["changes"]["same"] >= 2
    machine = outputs["instance_id"]
    bench.sandbox("impair", machine, "--watcher")  # else it would end by itself first
    bench.sandbox("telemetry", "set", machine, "gpu_utilization_percent=[0]", "cpu_percent=1", "logins=0")
    said = {"gpuprov": 1, "at": "2000-01-01T00:00:00Z", "state": "ready"}
    assert json.dumps(said)[:12] in bench.run("logs", bench.name).out
    bench.sandbox("clock", "advance", "15m")
    assert bench.run("keepalive", bench.name, "--for", "1h").code == 0
    bench.sandbox("clock", "advance", "30m")
    steps = [entry["step"] for entry in bench.run("reap", "--yes", "--format", "json").document["objects"]]
    assert steps == ["keep"]
    bench.sandbox("clock", "advance", "40m")
    bench.run("reap", "--yes")
    bench.sandbox("clock", "advance", "11m")
    done = bench.run("reap", "--yes", "--format", "json").document
    assert done["objects"][0]["done"] is True
    bench.sandbox("clock", "advance", "1m")
    status = bench.run("status", bench.name, "--format", "json").document["stacks"][0]
    assert status["state"] == "reaped"
    again = bench.up()
    assert again.code == 0, again.err
    assert again.document["outputs"]["instance_id"] == machine
    assert again.document["outputs"]["ready"] is True
    assert bench.down().code == 0


def test_a_quiet_stack_ends_by_itself_shows_so_and_comes_back(tmp_path):
    bench = Bench(tmp_path / "bench", extra=EXTRA)
    made = bench.up()
    assert made.code == 0, made.err
    machine = made.document["outputs"]["instance_id"]
    bench.sandbox("telemetry", "set", bench.name, "gpu_utilization_percent=0", "cpu_percent=1", "logins=0")
    bench.sandbox("clock", "advance", "15m")
    assert bench.run("keepalive", bench.name, "--for", "1h").code == 0
    bench.sandbox("clock", "advance", "79m")
    live = bench.run("status", bench.name, "--format", "json").document["stacks"][0]
    assert (live["state"], live["last_decision"]["state"]) == ("running", "quiet")
    assert "unless it works" in live["notes"][0]
    bench.sandbox("clock", "advance", "2m")
    ended = bench.run("status", bench.name, "--format", "json").document["stacks"][0]
    assert ended["state"] == "reaped"
    assert "ended by itself" in ended["notes"][0]
    assert "quiet for 20 min (gpu: at most 0 %" in ended["notes"][0]
    assert ended["last_decision"]["sources"]["cpu_percent"] == "idle: 1 %"
    assert {line.kind for line in bench.controls.bill(running_only=True).lines} == {"root-volume"}
    billed = next(line.billed_us for line in bench.controls.bill().lines if line.id == machine)
    again = bench.up()
    assert again.code == 0, again.err
    assert again.document["outputs"]["instance_id"] == machine
    assert again.document["outputs"]["ready"] is True
    # From the start to the telemetry and to the keepalive pass seconds of the host's own.
    assert 95 * 60 <= billed / 1e6 <= 95 * 60 + 120
    bench.sandbox("clock", "advance", "2h")  # nothing is known of it since: unknown is busy
    assert bench.run("status", bench.name, "--format", "json").document["stacks"][0]["state"] == "running"
    assert bench.down().code == 0
    assert bench.running_bill() == []
    assert bench.run("gc", "--format", "json").document["objects"] == []


def test_a_job_that_is_done_is_gone_and_its_stack_shows_why(tmp_path):
    spec = """\
version: 1
name: tune
task: finetune
model: {id: meta-llama/Llama-3.1-8B-Instruct}
training: {method: qlora, sequence_tokens: 1024, tokens: 5M}
lifecycle: {idle: {then: terminate}, max_lifetime: 40h}
run: {image: "pytorch/pytorch@sha256:%s", command: [python, train.py]}
"""
    bench = Bench(tmp_path / "bench", name="tune", spec=spec % ("0" * 64))
    made = bench.up()
    assert made.code == 0, made.err
    bench.sandbox("finish", "tune", "--after", "3h", "--line", "saved the adapter")
    bench.sandbox("clock", "advance", "30h")
    ended = bench.run("status", "tune", "--format", "json").document["stacks"][0]
    assert ended["state"] == "reaped"
    assert "the work is done" in ended["notes"][0]
    assert bench.running_bill() == []
    machine = made.document["outputs"]["instance_id"]
    billed = next(line.billed_us for line in bench.controls.bill().lines if line.id == machine)
    assert 3 * 3600 <= billed / 1e6 <= 3 * 3600 + 120
    assert bench.down().code == 0


def test_a_workload_that_never_answers_is_nine_and_ends(tmp_path):
    bench = Bench(tmp_path / "bench", extra='run: {command: ["serve"], ports: [9000]}')
    bench.sandbox("latency", "set", "ready", "10h")
    process = bench.start("up", str(bench.spec), "--yes", "--format", "json")
    while not bench.machines():
        assert process.poll() is None
    while process.poll() is None:
        bench.sandbox("clock", "advance", "10m")
    out, err = process.communicate()
    assert process.returncode == 9, err
    assert "was not ready" in json.loads(out)["error"]["message"]
    bench.sandbox("clock", "advance", "10m")
    assert bench.running_bill() == []
    assert bench.down().code == 0
