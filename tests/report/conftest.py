"""Plans of every kind, made once."""

from __future__ import annotations

from typing import Any

import pytest

from provisioner.catalog.snapshot import load_catalog
from provisioner.planner.decide import make_plan
from provisioner.planner.plan import Plan
from provisioner.workload.spec import Workload

BASE: dict[str, Any] = {
    "version": 1,
    "name": "chat",
    "task": "serve",
    "model": {"id": "meta-llama/Llama-3.1-8B-Instruct", "weights": "bf16"},
    "inference": {"engine": "vllm", "context_tokens": 8192, "concurrency": 4},
}
BATCH = BASE | {"task": "batch", "inference": BASE["inference"] | {"total": "500M tokens"}}
TRAINING: dict[str, Any] = {
    "version": 1,
    "name": "tune",
    "task": "finetune",
    "model": {"id": "meta-llama/Llama-3.1-8B-Instruct"},
    "training": {"method": "full", "sequence_tokens": 2048, "tokens": "200M", "checkpoint": {"every": "1h"}},
}
SPECS: dict[str, dict[str, Any]] = {
    "serve": BASE,
    "copies": BASE | {"inference": BASE["inference"] | {"replicas": 3}},
    "spot": BATCH | {"placement": {"gpus": ["L40S"]}},
    "training": TRAINING,
    "nothing": BASE | {"placement": {"gpus": ["T4"]}},
}


@pytest.fixture(scope="session")
def plans() -> dict[str, Plan]:
    catalog = load_catalog()
    return {name: make_plan(Workload.from_document(document), catalog) for name, document in SPECS.items()}


@pytest.fixture(params=sorted(SPECS))
def plan(request: pytest.FixtureRequest, plans: dict[str, Plan]) -> Plan:
    """Each of the plans in turn."""
    return plans[request.param]
