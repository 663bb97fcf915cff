"""Plans of many workloads, each reviewed once: tasks, kinds of models, clouds and objectives.

A spec in ``specs`` says in its first lines why its plan is right; ``plans`` holds what the plan said, rounded so that only a
change worth a look shows. ``make golden`` renews them and shows the difference.
"""

from __future__ import annotations

import difflib
import json
import os
import re
from pathlib import Path
from typing import Any

import pytest

from provisioner.catalog.snapshot import Catalog, load_catalog
from provisioner.planner.decide import make_plan
from provisioner.planner.explain import group_rejections
from provisioner.planner.plan import Alternative, Cost, Plan, PlannedOffer
from provisioner.units import GIB
from provisioner.workload.load import load

HERE = Path(__file__).parent
NAMES = sorted(path.stem for path in (HERE / "specs").glob("*.yaml"))
UPDATE = os.environ.get("GPUPROV_UPDATE_GOLDEN") == "1"
"""Read at import: tests run without the caller's GPUPROV variables."""
ALTERNATIVES_SHOWN = 3
DIGITS = 2
NUMBER = re.compile(r"\b\d[\d.]*\b")


@pytest.fixture(scope="module")
def catalog() -> Catalog:
    return load_catalog()


def spec(name: str) -> Path:
    return HERE / "specs" / f"{name}.yaml"


def outline(plan: Plan) -> dict[str, Any]:
    """What a reviewer looks at, numbers rounded to what a prediction is good for."""
    found: dict[str, Any] = {"verdict": plan.verdict}
    if plan.choice is not None and plan.footprint is not None and plan.throughput is not None and plan.cost is not None:
        speed = plan.throughput
        found |= {
            "choice": _offer(plan.choice),
            "layout": _layout(plan.choice),
            "gib": f"{plan.footprint.per_gpu.total_bytes / GIB:.0f} of {plan.footprint.usable_bytes / GIB:.0f}",
            "rate": _short(speed.decode_tokens_per_s_per_replica or speed.train_tokens_per_s or speed.images_per_s),
            "bound_by": speed.bound_by,
            "bill": _bill(plan.cost),
            "alternatives": [_alternative(each) for each in plan.alternatives[:ALTERNATIVES_SHOWN]],
        }
    found["refused_by"] = [group.filter for group in group_rejections(plan.rejections)]
    found["closest"] = [NUMBER.sub("N", text.partition(": ")[0]) for text in plan.closest]
    return found


def _offer(offer: PlannedOffer) -> str:
    count = f"{offer.instances} x " if offer.instances > 1 else ""
    gpus = f"{offer.gpus_per_instance:g} x {offer.gpu}"
    return f"{count}{offer.instance_type} ({gpus}), {offer.cloud} {offer.region}, {offer.capacity_type}"


def _layout(offer: PlannedOffer) -> str:
    layout = offer.layout
    degrees = f"TP{layout.tensor_parallel} PP{layout.pipeline_parallel} DP{layout.data_parallel} x{layout.replicas}"
    return f"{degrees} {layout.sharding} over {offer.interconnect}"


def _alternative(each: Alternative) -> str:
    return f"{each.offer.instances} x {each.offer.instance_type}, {each.offer.capacity_type}"


def _bill(cost: Cost) -> str:
    if cost.run_usd is not None:
        return f"{_short(float(cost.run_usd))} USD a run of {_short(cost.run_hours)} h"
    return f"{_short(float(cost.total_usd_per_month)) if cost.total_usd_per_month is not None else None} USD a month"


def _short(value: float | None) -> str | None:
    return None if value is None else f"{float(f'{value:.{DIGITS}g}'):,g}"


def test_there_are_enough_of_every_kind() -> None:
    """Tasks x kinds of models x clouds x objectives, as far as each makes sense."""
    assert len(NAMES) >= 40
    documents = [load(spec(name)).workload for name in NAMES]
    assert {str(one.task) for one in documents} == {"serve", "batch", "finetune", "pretrain"}
    assert {str(one.optimize) for one in documents} == {"cost", "throughput", "latency"}
    assert {tuple(one.placement.clouds or ()) for one in documents} >= {("aws",), ("gcp",), ("aws", "gcp")}
    assert {one.placement.capacity for one in documents} >= {"auto", "spot", "on-demand", "reserved"}


@pytest.mark.parametrize("name", NAMES)
def test_each_says_why_it_is_right(name: str) -> None:
    text = spec(name).read_text(encoding="utf-8")
    assert text.startswith("# Right because: ")
    assert f"\nname: {name}\n" in text


@pytest.mark.parametrize("name", NAMES)
def test_golden_plan(name: str, catalog: Catalog) -> None:
    path = HERE / "plans" / f"{name}.json"
    text = json.dumps(outline(make_plan(load(spec(name)).workload, catalog)), indent=1, ensure_ascii=False) + "\n"
    if UPDATE:
        path.write_text(text, encoding="utf-8")
    expected = path.read_text(encoding="utf-8")
    changes = difflib.unified_diff(expected.splitlines(), text.splitlines(), "reviewed", "planned", lineterm="", n=1)
    assert text == expected, "\n".join(changes) + "\n`make golden` renews the plans and shows what changed"


def test_no_plan_is_left_without_its_spec() -> None:
    assert sorted(path.stem for path in (HERE / "plans").glob("*.json")) == NAMES
