"""What a machine is told at its creation, from a spec and a plan."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from provisioner.clouds.cloud import Placement
from provisioner.errors import Rejected
from provisioner.node.boot import HEAD
from provisioner.vocabulary import CapacityType
from stacks.provider import node
from stacks.provider.inputs import WantedVolume

HERE = Placement("aws", "us-east-1", "use1-az1", "g6.xlarge", CapacityType.ON_DEMAND)
SPEC = {"task": "serve", "lifecycle": {"pattern": "bursty"}, "run": "auto"}
PLAN = {
    "argv": ["vllm", "serve", "m", "--max-model-len", "8192"],
    "startS": 300,
    "idleAfterS": 420,
    "offers": {HERE.key: {"price": "0.80", "gpus": 1}},
}


def test_a_planned_engine_serves_on_its_port_and_has_thrice_its_start():
    config = node.config(SPEC, PLAN, HERE)
    assert config["ports"] == [8000]
    assert config["ready"] == {"path": "/health", "port": 8000}
    assert config["ready_limit_s"] == 900
    assert config["idle_after_s"] == 420
    assert config["lifetime_s"] == 24 * 3600
    assert config["then"] == "stop"
    start = node.start(SPEC, PLAN, ())
    assert (start.entrypoint, start.argv[0]) == ("vllm", "serve")


def test_the_rest_of_a_lifecycle_reaches_the_machine():
    lifecycle = {"max_spend": "8 USD", "lease": "2h", "keep_failed": True, "max_lifetime": "off"}
    lifecycle |= {"idle": {"after": "10m", "then": "terminate", "gpu_only": True}}
    training = {"checkpoint": {"hook": ["./save.sh", "now"]}}
    run = {"command": ["python", "t.py"], "env": {"A": "b", "HF_TOKEN": {"secret": "aws-secretsmanager:hf"}}}
    spec = {"task": "finetune", "lifecycle": lifecycle, "training": training, "run": run}
    config = node.config(spec, {"offers": PLAN["offers"]}, HERE)
    assert config["spend_s"] == 36_000
    assert (config["lease_s"], config["lifetime_s"], config["idle_after_s"]) == (7200, None, 600)
    assert (config["keep_failed"], config["gpu_only"], config["once"], config["then"]) == (
        True,
        True,
        True,
        "terminate",
    )
    assert config["hook"] == ["./save.sh", "now"]
    start = node.start(spec, {}, [WantedVolume("data", 10 * 10**9)])
    assert start.secrets == {"HF_TOKEN": "aws-secretsmanager:hf"}
    assert start.env == {"A": "b"}
    assert start.volumes == {"data": 10 << 30}  # as the cloud makes it: whole GiB
    text = node.boot_data(spec, {"offers": PLAN["offers"]}, HERE, ())
    assert json.loads(text.removeprefix(HEAD))["runcmd"]


def test_e28_a_limit_that_nothing_could_keep_is_refused():
    with pytest.raises(Rejected, match="no known price"):
        node.config({"lifecycle": {"max_spend": "8 USD"}}, {}, HERE)


def test_a_bare_machine_is_watched_for_an_hour_of_quiet():
    config = node.config({"task": "serve", "lifecycle": {"pattern": "bursty"}}, PLAN, HERE)
    assert (config["idle_after_s"], config["run"], config["ready"]) == (3600, False, None)
    assert node.start({"task": "serve"}, PLAN, ()) is None


@pytest.mark.parametrize(
    ("run", "probe"),
    [
        ({"command": ["x"]}, None),
        ({"command": ["x"], "ports": [9000]}, {"port": 9000}),
        ({"command": ["x"], "ready": {"path": "/ok", "port": 7}}, {"path": "/ok", "port": 7}),
    ],
)
def test_probes(run, probe):
    assert node.config({"task": "serve", "run": run}, {}, HERE)["ready"] == probe


def test_a_planned_engine_reads_the_weights_that_were_fetched_from_a_bucket():
    model = {"id": "Qwen/Qwen3-8B", "source": "s3://bucket/weights"}
    plan = {**PLAN, "argv": ["vllm", "serve", "s3://bucket/weights", "--max-model-len", "8192"]}
    start = node.start({**SPEC, "model": model}, plan, ())
    assert start.source == "s3://bucket/weights"
    assert start.argv == ["serve", node.FETCHED, "--max-model-len", "8192", "--served-model-name", "Qwen/Qwen3-8B"]
    own = {**SPEC, "model": model, "run": {"command": ["vllm", "serve", "s3://bucket/weights"]}}
    assert node.start(own, {}, ()).argv == ["vllm", "serve", "s3://bucket/weights"]
    hub = {**SPEC, "model": {"id": "m", "source": "hf://m@main"}}
    assert node.start(hub, PLAN, ()).argv == ["serve", "m", "--max-model-len", "8192"]


def test_the_weights_are_where_the_boot_script_puts_them():
    script = (Path(node.__file__).parents[2] / "provisioner/node/templates/boot.sh").read_text(encoding="utf-8")
    assert f'fetch "$SOURCE" "$R{node.FETCHED}"' in script


def test_a_planned_engine_serves_adapters_that_were_fetched_from_buckets():
    named = ["--lora-modules", "a=s3://bucket/a", "b=my-org/b", "c=gs://bucket/c", "{d=s3://x}"]
    start = node.start(SPEC, {**PLAN, "argv": ["vllm", "serve", "m", *named]}, ())
    assert start.argv == [
        "serve",
        "m",
        "--lora-modules",
        "a=/scratch/adapters/a",
        "b=my-org/b",
        "c=/scratch/adapters/c",
        "{d=s3://x}",
    ]
    assert start.adapters == {"a": "s3://bucket/a", "c": "gs://bucket/c"}
