"""Plans in the words of other tools: what each file says, what it refuses, and what it owns up to leaving out."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from provisioner.catalog.snapshot import Catalog, load_catalog
from provisioner.errors import NothingFits, UsageError
from provisioner.export.text import TARGETS, Exported, export_plan
from provisioner.planner.decide import make_plan
from provisioner.workload.load import load
from provisioner.workload.spec import Workload
from stacks.program import inputs_of_plan

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = sorted(path.parent.name for path in ROOT.glob("examples/*/workload.yaml"))
SERVE: dict[str, Any] = {
    "version": 1,
    "name": "chat",
    "task": "serve",
    "model": {"id": "meta-llama/Llama-3.1-8B-Instruct"},
    "inference": {"engine": "vllm@0.19", "context_tokens": 8192, "concurrency": 1},
    "placement": {"clouds": ["aws"], "gpus": ["L4"]},
}


@pytest.fixture(scope="module")
def catalog() -> Catalog:
    return load_catalog()


def exported(catalog: Catalog, target: str, **keys: Any) -> Exported:
    workload = Workload.from_document(SERVE | keys)
    return export_plan(make_plan(workload, catalog), workload, target)


def document(text: str) -> Any:
    documents = list(yaml.safe_load_all(text))
    return documents[0] if len(documents) == 1 else documents


def run(**keys: Any) -> dict[str, Any]:
    return {"run": {"command": ["python", "serve.py"], "ports": [9000], **keys}}


def values(node: Any) -> Iterator[Any]:
    if isinstance(node, dict):
        for value in node.values():
            yield from values(value)
    elif isinstance(node, list):
        for value in node:
            yield from values(value)
    else:
        yield node


@pytest.mark.parametrize("example", EXAMPLES)
def test_every_example_is_exported_or_refused_with_a_remedy(catalog: Catalog, example: str) -> None:
    workload = load(ROOT / "examples" / example / "workload.yaml").workload
    plan = make_plan(workload, catalog)
    assert plan.choice is not None
    remedies = []
    for target in TARGETS:
        try:
            made = export_plan(plan, workload, target)
        except UsageError as error:
            remedies.append(error.remedy)
        else:
            says_the_choice(made, plan.choice.instance_type)
            assert export_plan(plan, workload, target) == made
    assert all(remedies)
    assert len(remedies) < len(TARGETS)


def says_the_choice(made: Exported, instance_type: str) -> None:
    assert instance_type in made.text
    assert instance_type.partition("+")[0] in set(values(document(made.text)))
    for note in made.notes:
        assert f"# note: {note}\n" in made.text


def test_a_sky_task_tries_the_offers_in_the_order_of_the_plan(catalog: Catalog) -> None:
    task = document(exported(catalog, "skypilot", lifecycle={"idle": {"after": "30m", "then": "terminate"}}).text)
    first = task["resources"]["ordered"][0]
    assert first == {
        "infra": "aws/us-east-1",
        "instance_type": "g6.xlarge",
        "accelerators": {"L4": 1},
        "use_spot": False,
    }
    assert task["resources"]["autostop"] == {"idle_minutes": 30, "down": True}
    assert task["setup"] == "pip install 'vllm==0.19.*'\n"
    assert "--max-model-len 8192" in task["run"]


def test_a_sky_service_keeps_one_copy_a_machine(catalog: Catalog) -> None:
    keys = {"inference": SERVE["inference"] | {"replicas": 3}, "placement": {"instance_types": ["g6.xlarge"]}}
    task = document(exported(catalog, "skypilot", **keys).text)
    assert task["service"] == {"readiness_probe": "/health", "replicas": 3}
    assert task["num_nodes"] == 1


def test_secrets_are_named_and_never_valued(catalog: Catalog) -> None:
    keys = run(env={"HF_TOKEN": {"secret": "aws-secretsmanager:hf"}, "MODE": "fast"})
    sky = document(exported(catalog, "skypilot", **keys).text)
    assert sky["secrets"] == {"HF_TOKEN": None}
    assert sky["envs"] == {"MODE": "fast"}
    assert sky["run"] == "python serve.py\n"
    assert "setup" not in sky
    dstack = document(exported(catalog, "dstack", **keys).text)
    assert dstack["env"] == ["MODE=fast", "HF_TOKEN"]
    pod = document(exported(catalog, "karpenter", **keys).text)[2]["spec"]["template"]["spec"]
    assert pod["containers"][0]["env"][1]["valueFrom"] == {"secretKeyRef": {"name": "chat", "key": "HF_TOKEN"}}
    for target in TARGETS:
        assert any("HF_TOKEN" in note for note in exported(catalog, target, **keys).notes) or target == "pulumi-yaml"


def test_a_dstack_service_answers_on_the_port_of_the_spec(catalog: Catalog) -> None:
    service = document(exported(catalog, "dstack", **run(ready={"path": "/up", "port": 9000})).text)
    assert (service["type"], service["port"], service["spot_policy"]) == ("service", 9000, "on-demand")
    assert service["probes"] == [{"type": "http", "url": "/up"}]
    assert service["resources"]["gpu"] == {"name": "L4", "count": 1}
    assert "g6.xlarge" in service["instance_types"]


def test_two_sizes_of_one_gpu_are_told_apart_in_dstack(catalog: Catalog) -> None:
    service = document(exported(catalog, "dstack", placement={"gpus": ["A100-80GB"]}).text)
    assert service["resources"]["gpu"]["name"] == "A100"
    assert service["resources"]["gpu"]["memory"] == "80GB"


def test_without_a_command_dstack_gets_a_bare_machine(catalog: Catalog) -> None:
    keys = {"task": "finetune", "inference": None, "training": {"method": "qlora", "sequence_tokens": 2048}}
    workload = Workload.from_document({key: value for key, value in (SERVE | keys).items() if value is not None})
    made = export_plan(make_plan(workload, catalog), workload, "dstack")
    assert document(made.text)["type"] == "dev-environment"
    assert any("run.command" in note for note in made.notes)


def test_karpenter_pools_hold_the_plan_and_its_ends(catalog: Catalog) -> None:
    node_class, pool, workload = document(
        exported(catalog, "karpenter", lifecycle={"max_lifetime": "12h", "idle": {"after": "20m"}}).text
    )
    assert node_class["spec"]["metadataOptions"]["httpTokens"] == "required"
    assert node_class["spec"]["blockDeviceMappings"][0]["ebs"]["encrypted"] is True
    requirements = {entry["key"]: entry["values"] for entry in pool["spec"]["template"]["spec"]["requirements"]}
    assert requirements["node.kubernetes.io/instance-type"][0] == "g6.xlarge"
    assert requirements["karpenter.sh/capacity-type"] == ["on-demand"]
    assert pool["spec"]["template"]["spec"]["expireAfter"] == "43200s"
    assert pool["spec"]["disruption"]["consolidateAfter"] == "1200s"
    assert pool["spec"]["limits"] == {"nvidia.com/gpu": 1}
    assert workload["kind"] == "Deployment"


def test_a_steady_endpoint_never_expires_in_karpenter(catalog: Catalog) -> None:
    pool = document(exported(catalog, "karpenter").text)[1]
    assert pool["spec"]["template"]["spec"]["expireAfter"] == "Never"
    assert pool["spec"]["disruption"]["consolidateAfter"] == "Never"


@pytest.mark.parametrize(
    ("target", "placement", "key"),
    [
        ("karpenter", {"clouds": ["gcp"]}, "placement.clouds"),
        ("karpenter", {"instance_types": ["g6f.4xlarge"]}, "placement.gpus"),
        ("dstack", {"instance_types": ["g6f.4xlarge"]}, "placement.gpus"),
    ],
)
def test_what_a_target_cannot_say_is_refused(catalog: Catalog, target: str, placement: Any, key: str) -> None:
    model = {"id": "Qwen/Qwen2.5-0.5B-Instruct"}
    with pytest.raises(UsageError) as refused:
        exported(catalog, target, placement=placement, model=model)
    assert key in (refused.value.remedy or "")


def test_limits_that_nobody_watches_there_are_said(catalog: Catalog) -> None:
    keys = {
        "lifecycle": {"max_spend": "200 USD"},
        "placement": {"clouds": ["aws"], "gpus": ["L4"], "budget": "5000 USD/month"},
    }
    for target in ("skypilot", "dstack", "karpenter"):
        notes = " ".join(exported(catalog, target, **keys).notes)
        assert "max_spend" in notes
        assert "budget" in notes


def test_nothing_fits_is_the_plan_s_own_error(catalog: Catalog) -> None:
    with pytest.raises(NothingFits):
        exported(catalog, "skypilot", model={"id": "meta-llama/Llama-3.1-405B-Instruct"}, placement={"max_gpus": 1})


def test_expressions_of_pulumi_are_escaped(catalog: Catalog) -> None:
    made = exported(catalog, "pulumi-yaml", **run(command=["sh", "-c", "echo ${HOME}"]))
    assert document(made.text)["variables"]["workload"]["run"]["command"][2] == "echo $${HOME}"


def test_a_pulumi_project_states_what_up_states_for_the_machine(catalog: Catalog) -> None:
    tune: dict[str, Any] = {
        "task": "finetune",
        "inference": None,
        "training": {"method": "lora", "sequence_tokens": 2048, "tokens": "2B"},
    }
    workload = Workload.from_document({key: value for key, value in (SERVE | tune | run()).items() if value})
    plan = make_plan(workload, catalog)
    variables = document(export_plan(plan, workload, "pulumi-yaml").text)["variables"]
    wanted = inputs_of_plan(plan, workload)
    assert plan.cost is not None
    assert plan.cost.run_hours is not None
    assert plan.cost.run_hours > 24  # longer than the provider's own default
    assert variables["workload"] == wanted.workload
    assert variables["node"] == wanted.node
    assert variables["offers"] == list(wanted.offers)


def test_a_pulumi_project_has_no_image_for_run_auto(catalog: Catalog) -> None:
    with pytest.raises(UsageError, match="run: auto"):
        exported(catalog, "pulumi-yaml", run="auto")


@pytest.mark.parametrize(
    ("engine", "image"),
    [
        ("sglang", "lmsysorg/sglang"),
        ("llama.cpp", "ghcr.io/ggml-org/llama.cpp"),
        ("vllm", "vllm/vllm-openai"),
    ],
)
def test_a_planned_server_is_probed_where_its_command_listens(catalog: Catalog, engine: str, image: str) -> None:
    weights = {"weights": "gguf-q4_k_m"} if engine == "llama.cpp" else {}
    keys = {"inference": {**SERVE["inference"], "engine": engine}, "model": {**SERVE["model"], **weights}}
    found = list(values(document(exported(catalog, "karpenter", **keys).text)))
    assert image in found
    assert 8000 in found
    assert not {30000, 8080} & {value for value in found if isinstance(value, int)}


def test_a_script_of_ones_own_is_not_taken_for_a_server(catalog: Catalog) -> None:
    text = exported(catalog, "karpenter", run={"command": ["python", "serve.py"]}).text
    assert "sglang" not in text
    assert "30000" not in text
