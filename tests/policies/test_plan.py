"""Saved plans as facts: everything that a plan states is sized and priced again."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import date
from pathlib import Path
from typing import Any

import pytest

from policies.finding import Verdict
from policies.gate import judge
from policies.placement import Placer
from policies.selection import Policy
from policies.sources import read_file
from provisioner.errors import UsageError
from provisioner.planner.documents import plan_document
from tests.policies.builders import catalog, workload

TODAY = date(2026, 11, 30)
Check = Callable[..., Verdict]


@pytest.fixture
def check(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Check:
    """The verdict on a plan of the base spec with some dotted keys of its document changed."""
    monkeypatch.chdir(tmp_path)

    def checker(edits: dict[str, Any] | None = None, changes: dict[str, Any] | None = None) -> Verdict:
        document = json.loads(json.dumps(plan_document(Placer(catalog()).plan(workload(changes)))))
        for key, value in (edits or {}).items():
            place: Any = document
            *above, last = [int(step) if step.isdigit() else step for step in key.split(".")]
            for step in above:
                place = place[step]
            place[last] = value
        Path("plan.json").write_text(json.dumps(document, indent=1))
        return judge(read_file(Path("plan.json"), Placer(catalog()))[0], Policy(), TODAY)

    return checker


def violated(verdict: Verdict) -> set[str]:
    return {finding.rule.id for finding in verdict.violations}


def test_a_plan_as_it_was_made_passes(check: Check) -> None:
    assert not violated(check())


LARGE = {"model.id": "meta-llama/Llama-3.1-70B-Instruct", "placement": {"clouds": ["aws"], "capacity": "on-demand"}}


@pytest.mark.parametrize(
    ("edits", "rule"),
    [
        (
            {"choice.instance_type": "g6.xlarge", "footprint.per_gpu.total_bytes": 1, "footprint.usable_bytes": 2**40},
            "under-sized",
        ),
        ({"choice.instance_type": "g6.xlarge", "verdict": "fits"}, "under-sized"),
        ({"failover.1.instance_type": "g5.xlarge"}, "under-sized"),
        ({"choice.layout.tensor_parallel": 1}, "under-sized"),
        ({"choice.layout.tensor_parallel": 3}, "tensor-parallel-divisible"),
        ({"choice.instance_type": "p9.unheard"}, "under-sized"),
        ({"choice.layout.replicas": 50}, "under-sized"),
        ({"choice.region": "af-south-1", "choice.zone": None}, "region-support"),
        ({"choice.capacity_type": "spot"}, "spot-endpoint"),
        ({"workload.spec.model.id": "meta-llama/Llama-3.1-8B-Instruct"}, "plan-intact"),
        ({"workload.digest": "sha256:" + "0" * 64}, "plan-intact"),
    ],
)
def test_an_edited_plan_is_caught(check: Check, edits: dict[str, Any], rule: str) -> None:
    assert rule in violated(check(edits, LARGE))


def test_a_stated_price_does_not_count(check: Check) -> None:
    edits = {"choice.instance_type": "p5.48xlarge", "choice.price_usd_per_hour": "0.01"}
    assert "price-over-limit" in violated(check(edits))


def advised(verdict: Verdict) -> set[str]:
    return {finding.rule.id for finding in verdict.findings if not finding.is_violation}


@pytest.mark.parametrize(
    ("edits", "words"),
    [
        ({"footprint.per_gpu.total_bytes": 1}, "the plan states 0.0 GiB (1 bytes) as total per GPU"),
        ({"footprint.per_gpu.high_bytes": 2**35}, "high per GPU"),
        ({"footprint.per_gpu.weights_bytes": 5}, "weights per GPU"),
        ({"footprint.usable_bytes": 2**40}, "usable memory per GPU"),
        ({"choice.price_usd_per_hour": "0.01"}, "the plan states 0.01 USD/h as price an hour; computed again it is "),
        ({"choice.price_usd_per_hour": None}, "the plan states nothing as price an hour"),
        ({"cost.compute_usd_per_hour": "0.01"}, "compute an hour"),
        ({"verdict": "borderline"}, "the plan states borderline as verdict; computed again it is fits"),
    ],
)
def test_an_edited_figure_is_said_although_the_offer_still_holds(
    check: Check, edits: dict[str, Any], words: str
) -> None:
    verdict = check(edits)
    assert not violated(verdict)
    found = [finding for finding in verdict.findings if finding.rule.id == "plan-figures"]
    assert any(words in finding.outcome.message for finding in found)
    key = next(iter(edits)).split(".")[-1]
    assert f'"{key}"' in Path("plan.json").read_text().splitlines()[found[0].position.line - 1]


def test_a_plan_of_another_catalog_is_said(check: Check) -> None:
    assert not advised(check()) & {"plan-figures", "plan-catalog"}
    (finding,) = [each for each in check({"catalog.digest": "sha256:0"}).findings if each.rule.id == "plan-catalog"]
    assert "another catalog" in finding.outcome.message


@pytest.mark.parametrize(
    ("edits", "changes"),
    [
        ({"choice.region": "us-west-2", "choice.zone": None}, {"placement.regions": ["us-east-1"]}),
        ({"failover.0.cloud": "gcp"}, {"placement.clouds": ["aws"]}),
        ({"choice.instance_type": "g5.xlarge"}, {"placement.gpus": ["L4", "L40S"]}),
        ({"choice.cloud": "aws", "choice.instance_type": "g5.xlarge"}, {"placement.exclude_gpus": ["A10G"]}),
        ({"choice.instance_type": "g5.xlarge"}, {"placement.instance_types": ["g6.xlarge", "g6e.xlarge"]}),
        ({"choice.instances": 4}, {}),
        ({"choice.instance_type": "p9.unheard"}, {"placement.gpus": ["L4", "L40S"]}),
    ],
)
def test_an_offer_outside_the_placement_is_caught(check: Check, edits: dict[str, Any], changes: dict[str, Any]) -> None:
    assert "placement-kept" not in violated(check(None, changes))
    assert "placement-kept" in violated(check(edits, changes))


EXAMPLES = sorted((Path(__file__).parents[2] / "examples").glob("*/workload.yaml"))


@pytest.mark.parametrize("path", EXAMPLES, ids=[path.parent.name for path in EXAMPLES])
def test_the_figures_of_each_example_come_out_again(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from provisioner.workload.load import load

    plan = Placer(catalog()).plan(load(path).workload)
    monkeypatch.chdir(tmp_path)
    Path("plan.json").write_text(json.dumps(plan_document(plan)))
    verdict = judge(read_file(Path("plan.json"), Placer(catalog()))[0], Policy(), TODAY)
    assert not {finding.rule.id for finding in verdict.findings} & {"plan-figures", "plan-catalog", "plan-intact"}
    assert "placement-kept" not in violated(verdict)


def test_a_plan_of_nothing_is_under_sized(check: Check) -> None:
    changes = {"model.id": "meta-llama/Llama-3.1-70B-Instruct", "placement": {"instance_types": ["g6.xlarge"]}}
    verdict = check(None, changes)
    assert violated(verdict) == {"under-sized"}
    assert "GiB" in verdict.violations[0].outcome.message


def test_findings_point_at_the_offer(check: Check) -> None:
    (finding,) = [
        each
        for each in check({"failover.1.instance_type": "g5.xlarge"}, LARGE).violations
        if each.rule.id == "under-sized"
    ]
    lines = Path("plan.json").read_text().splitlines()
    assert any("g5.xlarge" in line for line in lines[finding.position.line - 1 : finding.position.line + 8])


@pytest.mark.parametrize(
    "edits",
    [
        {"schema": "gpuprov.plan/2"},
        {"choice": 3},
        {"choice.layout": None},
        {"workload.spec": {"version": 1}},
        {"workload.spec.inference.context_tokens": "many"},
        {"workload": None},
        {"failover": 7},
        {"choice.instances": "x"},
        {"choice.instances": 0},
        {"choice.instances": -1},
        {"choice.layout.tensor_parallel": 0},
        {"choice.layout.pipeline_parallel": -2},
        {"choice.layout.data_parallel": 0},
        {"choice.layout.replicas": 0},
        {"choice.price_usd_per_hour": "dear"},
    ],
)
def test_a_damaged_plan_is_refused(check: Check, edits: dict[str, Any]) -> None:
    with pytest.raises(UsageError) as found:
        check(edits)
    assert "plan.json:" in str(found.value.where)
