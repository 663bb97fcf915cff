"""Demands, GPUs and footprints that the sizing tests share."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from benchmarks.rows import accelerator_of
from provisioner.sizing.accelerator import Accelerator
from provisioner.sizing.demand import ServingDemand, TrainingDemand
from provisioner.sizing.models import find_model
from provisioner.vocabulary import (
    Engine,
    Optimizer,
    TrainingMethod,
    TrainingPrecision,
)

GpuByName = Callable[[str], Accelerator]


@pytest.fixture(scope="session")
def gpu() -> GpuByName:
    """A GPU of the bundled catalog by its everyday name."""

    def find(name: str) -> Accelerator:
        accelerator = accelerator_of(name, None)
        assert accelerator is not None, name
        return accelerator

    return find


@pytest.fixture(scope="session")
def serving() -> Callable[..., ServingDemand]:
    """A serving demand with usual values for what a test leaves out."""

    def make(model: Any, **changes: Any) -> ServingDemand:
        values: dict[str, Any] = {
            "model": find_model(model) if isinstance(model, str) else model,
            "weights": "auto",
            "engine": Engine.VLLM,
            "engine_version": "0.19",
            "context_tokens": 8192,
            "concurrency": 1,
        }
        return ServingDemand(**{**values, **changes})

    return make


@pytest.fixture(scope="session")
def training() -> Callable[..., TrainingDemand]:
    """A training demand with usual values for what a test leaves out."""

    def make(model: Any, **changes: Any) -> TrainingDemand:
        values: dict[str, Any] = {
            "model": find_model(model) if isinstance(model, str) else model,
            "weights": "auto",
            "method": TrainingMethod.FULL,
            "precision": TrainingPrecision.BF16_MIXED,
            "optimizer": Optimizer.ADAMW,
            "sequence_tokens": 2048,
            "micro_batch": 1,
            "gradient_checkpointing": True,
            "attention": None,
        }
        return TrainingDemand(**{**values, **changes})

    return make
