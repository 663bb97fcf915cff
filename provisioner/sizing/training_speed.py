"""Training tokens per second: operations over the share of the matrix rate that frameworks reach, or the link if slower."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from provisioner.records import record
from provisioner.sizing.accelerator import Accelerator
from provisioner.sizing.demand import TrainingDemand
from provisioner.sizing.layout import Layout
from provisioner.sizing.shapes import ModelShape
from provisioner.sizing.speed_profile import OTHER, SpeedProfile, family_of, speed_profile
from provisioner.sizing.step_time import COMPUTE, LINK, link_rate
from provisioner.sizing.step_work import attention_operations, token_flop
from provisioner.sizing.throughput import Throughput
from provisioner.vocabulary import Interconnect, Sharding, TrainingMethod, TrainingPrecision

BACKWARD: Mapping[TrainingMethod, float] = {
    TrainingMethod.FULL: 3.0,
    TrainingMethod.LORA: 2.0,
    TrainingMethod.QLORA: 2.0,
}
"""Passes through the weights per token: forward, backward to inputs, and backward to weights unless they are frozen."""
EXPERT_EXCHANGES_PER_LAYER = 4
"""Dispatch and combine, forward and backward."""
NETWORK_BYTES_PER_S = 50e9
"""400 Gbit/s a GPU, as machines with eight H100 or B200 have."""
LONG_SEQUENCE = 8192
"""Tokens above which attention rules the time, and predictions are less certain."""
TENSOR_REDUCES_PER_LAYER = 4
"""All-reduces of activations that tensor parallelism adds to a layer: two forward, two backward."""


@record(frozen=True, slots=True)
class Work:
    """What a training does per token, and over how many GPUs it is spread."""

    model: ModelShape
    method: TrainingMethod
    sequence_tokens: int
    recomputes: float
    """Share of the forward pass that checkpointing repeats as the recipe says it: 1 full, 0 none, between for selective."""
    precision: str
    """``bf16``, ``fp8`` or ``fp4``: what matrix products are computed in."""
    tuned: bool = False
    """A framework tuned to the hardware (Megatron) instead of a general one."""
    tensor: int = 1
    stages: int = 1
    expert_ranks: int = 1
    """GPUs that the experts of a layer are spread over; tokens travel to them and back."""
    linked: int = 0
    """GPUs that the link joins; 0 = all. Experts beyond them are reached over the network."""
    micro_batches: int = 0
    """Pieces that a step is cut into for a pipeline; 0 where unknown or many."""


def token_seconds(
    work: Work, accelerator: Accelerator, link: Interconnect = Interconnect.NVLINK, profile: SpeedProfile | None = None
) -> float | None:
    """GPU seconds per token, data-parallel communication left out; ``None`` where the GPU's rate is unknown."""
    rates = accelerator.flop_per_s
    rate = rates.get("bf16") or rates.get("fp16")
    if rate is None:
        return None
    constants = profile or speed_profile()
    table = constants.training
    family = family_of(accelerator.compute_capability)
    reached = rate * table["dense"].get(family, table["dense"][OTHER]) * _factor(work, rates, table)
    model = work.model
    reached *= model.hidden_size / (model.hidden_size + table["width"])
    products, experts, attention = operations(model, work.sequence_tokens)
    products += (table["recurrent"] - 1) * recurrent_operations(model)
    seconds = products / reached + attention / (rate * table["attention"].get(family, table["attention"][OTHER]))
    if experts:
        width = expert_width(model)
        seconds += experts / (reached * table["experts"] * width / (width + table["expert_width"]))
    passes = BACKWARD[work.method] + work.recomputes * table["recompute"]
    fill = 1.0
    if work.stages > 1 and work.micro_batches:
        fill += (work.stages - 1) / work.micro_batches / (table["interleaved"] if work.tuned else 1.0)
    collectives = table["tensor_exposed"] * _tensor_s(work, accelerator, link, constants)
    collectives += table["expert_exposed"] * _expert_s(work, accelerator, link, constants)
    return float(passes * seconds * fill + collectives)


def _tensor_s(work: Work, accelerator: Accelerator, link: Interconnect, profile: SpeedProfile) -> float:
    """GPU seconds per token of the collectives of tensor parallelism, nothing hidden."""
    if work.tensor == 1:
        return 0.0
    name, one_way = link_rate(accelerator, link)
    speed = profile.links[name]
    share = speed.share / (work.tensor / 2) ** speed.contention
    wire_bytes = 2 * (work.tensor - 1) * work.model.hidden_size * 2.0
    return float(TENSOR_REDUCES_PER_LAYER * work.model.num_layers * wire_bytes / (one_way * share))


def _expert_s(work: Work, accelerator: Accelerator, link: Interconnect, profile: SpeedProfile) -> float:
    """GPU seconds per token of sending it to its experts and back, forward and backward, nothing hidden."""
    ranks = work.expert_ranks
    if ranks == 1 or not work.model.is_moe:
        return 0.0
    name, one_way = link_rate(accelerator, link)
    speed = profile.links[name]
    linked = min(ranks, work.linked or ranks)
    copies = max(kind.mlp.experts_per_token for kind in work.model.kinds)
    layers = token_flop(work.model).expert_layers
    sent = EXPERT_EXCHANGES_PER_LAYER * layers * work.model.hidden_size * 2.0
    near = min(copies, linked) * (linked - 1) / ranks
    # A token crosses the network once for each group of linked GPUs that holds one of its experts.
    far = min(copies, ranks / linked) * (1 - linked / ranks)
    return float(sent * (near / (one_way * speed.share) + far / NETWORK_BYTES_PER_S))


@lru_cache(maxsize=1024)
def recurrent_operations(model: ModelShape) -> float:
    """Forward operations per token in the projections of recurrent mixers, whose scans take time beside them."""
    return sum(
        2.0 * count * kind.mixer.matrix_params
        for count, kind in zip(model.counts, model.kinds, strict=True)
        if kind.mixer.kind in ("linear", "mamba")
    )


def _factor(work: Work, rates: Mapping[str, float], table: Mapping[str, Any]) -> float:
    """What moves the share: precision units, a quantised base that is unpacked, tuning."""
    tuned = "tuned" if work.tuned else "general"
    factor = table["tuned"] if work.tuned else 1.0
    if work.precision in ("fp8", "fp4") and "fp8" in rates:
        factor *= table["fp8"][tuned]
    if work.precision == "fp4" and "fp4" in rates:
        factor *= table["fp4"]
    return float(factor * (table["quantised_base"] if work.method is TrainingMethod.QLORA else 1.0))


@lru_cache(maxsize=1024)
def expert_width(model: ModelShape) -> int:
    """Inner width of one routed expert, which sets how large its products are."""
    widths = [matrix.inputs for kind in model.kinds for matrix in kind.mlp.expert_matrices]
    return max(1, min(widths, default=1))


@lru_cache(maxsize=1024)
def operations(model: ModelShape, sequence_tokens: int) -> tuple[float, float, float]:
    """Forward operations per token: dense products with the head, routed experts, attention over a packed sequence."""
    flop = token_flop(model)
    return flop.dense + flop.head, flop.experts, attention_operations(model, sequence_tokens)


def link_seconds(demand: TrainingDemand, layout: Layout, accelerator: Accelerator, link: Interconnect) -> float:
    """Seconds per step that a rank's collectives take when nothing hides them.

    Sharded weights are gathered in the forward and the backward pass and their gradients scattered; replicas add up gradients.
    """
    ranks = layout.data_parallel * layout.tensor_parallel
    if ranks == 1:
        return 0.0
    name, one_way = link_rate(accelerator, link)
    speed = speed_profile().links[name]
    share = speed.share / (min(ranks, 8) / 2) ** speed.contention
    is_full = demand.method is TrainingMethod.FULL
    params = float(demand.model.params_total)
    if layout.sharding in (Sharding.FSDP, Sharding.ZERO3):
        size = 2.0 * params * (3 if is_full else 2)
    else:
        size = 2.0 * params * 2 if is_full else 0.0
    return float(size * (ranks - 1) / ranks / (one_way * share))


def recomputed(checkpointing: bool | str) -> float:
    """Share of the forward pass that gradient checkpointing repeats: attention's part where it is selective."""
    return 0.25 if checkpointing == "selective" else 1.0 if checkpointing else 0.0


def training_throughput(
    demand: TrainingDemand, layout: Layout, accelerator: Accelerator, interconnect: Interconnect
) -> Throughput:
    """Training tokens per second of the whole layout; gradients are exchanged once per micro-batch, hidden behind compute."""
    precision = "fp8" if demand.precision is TrainingPrecision.FP8 else "bf16"
    work = Work(
        demand.model,
        demand.method,
        demand.sequence_tokens,
        recomputed(demand.gradient_checkpointing),
        precision,
        tensor=layout.tensor_parallel,
        stages=layout.pipeline_parallel,
    )
    seconds = token_seconds(work, accelerator, interconnect)
    if seconds is None:
        return Throughput(unknown=f"the 16-bit matrix rate of {accelerator.gpu} is not known")
    tokens = demand.sequence_tokens * demand.micro_batch
    compute = tokens * seconds / (layout.tensor_parallel * layout.pipeline_parallel)
    link = link_seconds(demand, layout, accelerator, interconnect)
    rate = tokens * layout.data_parallel / max(compute, link)
    is_hard = demand.model.is_moe or demand.sequence_tokens > LONG_SEQUENCE
    band = speed_profile().bands["training-experts" if is_hard else "training"]
    return Throughput(
        train_tokens_per_s=rate,
        low=rate / band,
        high=rate * band,
        bound_by=COMPUTE if compute >= link else LINK,
    )
