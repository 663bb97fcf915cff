"""Training tokens per second: operations over the share of the matrix rate that frameworks reach, or the link if slower."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from provisioner.sizing.accelerator import Accelerator
from provisioner.sizing.demand import TrainingDemand
from provisioner.sizing.layout import Layout
from provisioner.sizing.shapes import ModelShape
from provisioner.sizing.speed_profile import speed_profile
from provisioner.sizing.step_time import COMPUTE, LINK, NVLINK_DIRECTIONS, PCIE_BYTES_PER_S, attention_operations
from provisioner.sizing.throughput import Throughput
from provisioner.vocabulary import Interconnect, Sharding, TrainingMethod, TrainingPrecision

BAND = 1.45
"""Factor of the band: model sizes, kernels and frameworks differ by this much on the same GPU."""
BACKWARD = {TrainingMethod.FULL: 3.0, TrainingMethod.LORA: 2.0, TrainingMethod.QLORA: 2.0}
"""Passes through the weights per token: forward, backward to inputs, and backward to weights unless they are frozen."""


@dataclass(frozen=True, slots=True)
class Work:
    """What one GPU does per token."""

    model: ModelShape
    method: TrainingMethod
    sequence_tokens: int
    recomputes: bool
    precision: str
    """``bf16``, ``fp8`` or ``fp4``: what matrix products are computed in."""
    tuned: bool = False
    """A framework tuned to the hardware (Megatron) instead of a general one."""


def token_seconds(work: Work, accelerator: Accelerator) -> float | None:
    """Seconds of one GPU per token, communication left out; ``None`` where its rate is unknown."""
    rates = accelerator.flop_per_s
    rate = rates.get("bf16") or rates.get("fp16")
    if rate is None:
        return None
    table = speed_profile().training
    key = _capability(accelerator, table["dense"])
    share = table["dense"][key] * work.model.hidden_size / (work.model.hidden_size + table["width"])
    share *= _factor(work, rates, table)
    products, attention = operations(work.model, work.sequence_tokens)
    passes = BACKWARD[work.method]
    return float(passes * (products / (rate * share) + attention / (rate * table["attention"][key])))


def _factor(work: Work, rates: Mapping[str, float], table: Mapping[str, Any]) -> float:
    """Everything that moves the share: precision units, experts, recomputation, unpacking, tuning."""
    tuned = table["tuned"]
    factor = tuned["dense"] if work.tuned else 1.0
    if work.precision in ("fp8", "fp4") and "fp8" in rates:
        factor *= tuned["fp8"] if work.tuned else table["fp8"]
    if work.precision == "fp4" and "fp4" in rates and work.tuned:
        factor *= tuned["fp4"] / tuned["fp8"]
    if work.model.is_moe:
        factor *= tuned["moe"] if work.tuned else table["moe"]
    factor *= table["recompute"] if work.recomputes else 1.0
    return float(factor * (table["quantised_base"] if work.method is TrainingMethod.QLORA else 1.0))


def _capability(accelerator: Accelerator, table: Mapping[str, float]) -> str:
    capability = accelerator.compute_capability
    if capability is None:
        return "unknown"
    exact = f"{capability[0]}.{capability[1]}"
    return exact if exact in table else f"{capability[0]}.0" if f"{capability[0]}.0" in table else "unknown"


@lru_cache(maxsize=1024)
def operations(model: ModelShape, sequence_tokens: int) -> tuple[float, float]:
    """Forward operations per token: in matrix products, and in attention over a packed causal sequence."""
    looked_up = 0 if model.tied_embeddings else model.embedding_params
    products = 2.0 * (model.params_active - looked_up - model.tower_params)
    return products, attention_operations(model, sequence_tokens)


def link_seconds(demand: TrainingDemand, layout: Layout, accelerator: Accelerator, link: Interconnect) -> float:
    """Seconds per step that a rank's collectives take when nothing hides them.

    Sharded weights are gathered in the forward and the backward pass and their gradients scattered; replicas add up gradients.
    """
    ranks = layout.data_parallel * layout.tensor_parallel
    if ranks == 1:
        return 0.0
    is_nvlink = link is Interconnect.NVLINK and accelerator.nvlink_bytes_per_s > 0
    speed = speed_profile().links["nvlink" if is_nvlink else "pcie"]
    one_way = accelerator.pcie_bytes_per_s or PCIE_BYTES_PER_S
    if is_nvlink:
        one_way = accelerator.nvlink_bytes_per_s / NVLINK_DIRECTIONS
    share = speed.share / (min(ranks, 8) / 2) ** speed.contention
    is_full = demand.method is TrainingMethod.FULL
    params = float(demand.model.params_total)
    if layout.sharding in (Sharding.FSDP, Sharding.ZERO3):
        size = 2.0 * params * (3 if is_full else 2)
    else:
        size = 2.0 * params * 2 if is_full else 0.0
    return float(size * (ranks - 1) / ranks / (one_way * share))


def training_throughput(
    demand: TrainingDemand, layout: Layout, accelerator: Accelerator, interconnect: Interconnect
) -> Throughput:
    """Training tokens per second of the whole layout; gradients are exchanged once per micro-batch, hidden behind compute."""
    precision = "fp8" if demand.precision is TrainingPrecision.FP8 else "bf16"
    work = Work(demand.model, demand.method, demand.sequence_tokens, bool(demand.gradient_checkpointing), precision)
    seconds = token_seconds(work, accelerator)
    if seconds is None:
        return Throughput()
    tokens = demand.sequence_tokens * demand.micro_batch
    compute = tokens * seconds / (layout.tensor_parallel * layout.pipeline_parallel)
    link = link_seconds(demand, layout, accelerator, interconnect)
    rate = tokens * layout.data_parallel / max(compute, link)
    return Throughput(
        train_tokens_per_s=rate,
        low=rate / BAND,
        high=rate * BAND,
        bound_by=COMPUTE if compute >= link else LINK,
    )
