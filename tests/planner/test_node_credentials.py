"""What a machine could not read at its start for want of credentials."""

from __future__ import annotations

from typing import Any

import pytest

from provisioner.catalog.snapshot import Catalog
from provisioner.planner.decide import make_plan
from provisioner.planner.node_credentials import remedy, unmet_needs, words
from provisioner.workload.spec import Workload

IMAGE = "vllm/vllm-openai@sha256:" + "0" * 64
PRIVATE = "123456789012.dkr.ecr.us-east-1.amazonaws.com/engine@sha256:" + "0" * 64
SECRET = {"HF_TOKEN": {"secret": "aws-secretsmanager:hf"}}


def workload(run: Any = None, *, profile: bool = False, **model: Any) -> Workload:
    document: dict[str, Any] = {
        "version": 1,
        "name": "chat",
        "task": "serve",
        "model": {"id": "meta-llama/Llama-3.1-8B-Instruct", **model},
        "placement": {"clouds": ["aws"], "regions": ["us-east-1"], "gpus": ["L40S"]},
    }
    document |= {"run": run} if run is not None else {}
    document |= {"aws": {"instance_profile": "gpu"}} if profile else {}
    return Workload.from_document(document)


def command(**more: Any) -> dict[str, Any]:
    return {"image": IMAGE, "command": ["serve"], **more}


@pytest.mark.parametrize(
    ("spec", "cloud", "keys"),
    [
        (workload(command()), "aws", []),
        (workload(command(), source="hf://a/b@main"), "aws", []),
        (workload("auto", source="s3://bucket/llama"), "aws", ["model.source"]),
        (workload("auto", adapters=["s3://bucket/lora"]), "aws", ["model.adapters"]),
        (workload(command(data="s3://bucket/set")), "aws", ["run.data"]),
        (workload(command(env=SECRET)), "aws", ["run.env.HF_TOKEN"]),
        (workload(command(image=PRIVATE)), "aws", ["run.image"]),
        (workload(command(env=SECRET), profile=True), "aws", []),
        (workload(source="s3://bucket/llama"), "aws", []),  # nothing is fetched without run
        (workload("auto", profile=True, source="gs://bucket/llama"), "aws", ["model.source"]),
        (workload(command(env=SECRET), profile=True), "gcp", ["run.env.HF_TOKEN"]),
        (workload("auto", source="gs://bucket/llama"), "gcp", []),
    ],
)
def test_keys_that_need_credentials(spec: Workload, cloud: str, keys: list[str]) -> None:
    assert [need.key for need in unmet_needs(spec, cloud)] == keys


def test_the_words_name_the_keys_and_what_mends_them() -> None:
    needs = unmet_needs(workload(command(env=SECRET), source="s3://bucket/llama"), "aws")
    assert words(needs, "aws").startswith("run.env.HF_TOKEN and model.source are read at the start of the machine")
    assert "aws.instance_profile" in remedy(needs, "aws")
    other = unmet_needs(workload("auto", profile=True, source="gs://bucket/llama"), "aws")
    assert "no credentials of gcp" in words(other, "aws")
    assert "leave aws out of placement.clouds" in remedy(other, "aws")


def test_a_plan_warns_of_it(catalog: Catalog) -> None:
    silent = make_plan(workload(command(env=SECRET), profile=True), catalog)
    warned = make_plan(workload(command(env=SECRET)), catalog)
    (added,) = [line for line in warned.warnings if line not in silent.warnings]
    assert added.startswith(
        "run.env.HF_TOKEN is read at the start of the machine, and aws.instance_profile is not given"
    )
    assert added.endswith("name an instance profile whose role may read them in aws.instance_profile")
