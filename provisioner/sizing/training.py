"""Footprint of a training on its fullest GPU: states, activations, loss, optimizer step, allocator and context.

peak = fixed + max(forward and backward, optimizer step), where fixed = weights + optimizer state (+ gradients that live
through the step).
"""

from __future__ import annotations

from dataclasses import dataclass

from provisioner.errors import UsageError
from provisioner.sizing.accelerator import Accelerator
from provisioner.sizing.constants import Constants
from provisioner.sizing.demand import TrainingDemand
from provisioner.sizing.footprint import Assumption, Footprint, MemoryTerms
from provisioner.sizing.layout import Layout
from provisioner.sizing.lora import adapter_params
from provisioner.sizing.quantisation import LINEAR_PARTS, bits_of
from provisioner.sizing.shapes import ModelShape
from provisioner.sizing.training_pipeline import Stage, forward_bytes, layer_bytes, stage_params, stages_of
from provisioner.sizing.training_recipe import (
    DEEPSPEED,
    SHARDED_GRADIENTS,
    SHARDED_STATES,
    SHARDED_WEIGHTS,
    Recipe,
    recipe_for,
)
from provisioner.sizing.weights import resolve_formats
from provisioner.units import GIB, MIB
from provisioner.vocabulary import Sharding, TrainingMethod

CONTEXT_BYTES = 600 * MIB
"""CUDA context with kernels of a training process on A100 and later (0.47 lazy to 0.92 eager, ml-engineering)."""
NCCL_BYTES = 1400 * MIB
"""Growth of a rank over its first collectives (0.55 before, 2.00 GiB after the first barrier, ml-engineering)."""
ALLOCATOR_SHARE = 0.03
ALLOCATOR_SHARE_FSDP = 0.08
"""Least fragmentation a run can live with: the allocator gives cached blocks back before it fails. On one A100 of 79.2 GiB
74.8 GiB of tensors ran; with FSDP 64.2 ran and 67.6 did not (fms-acceleration scripts/benchmarks/refs), while llm-foundry's
largest batches leave less.
"""
RESERVED_SHARE_FSDP = 0.10
"""Further reserved memory of FSDP, whose gathered layers come and go (same runs, device meter against allocated)."""
BUCKET_ELEMENTS = 5e8
"""Elements of DeepSpeed's reduce bucket by default (``reduce_bucket_size``); two are in flight."""
ERROR_SHARE = 0.10
ERROR_SHARE_WORKING = 0.15
"""Half width of the band: of the whole, and more of what comes and goes in a step. Nine of ten published figures lie within."""


@dataclass(frozen=True, slots=True)
class TrainingBytes:
    """Bytes of a training on its fullest GPU, tensors only."""

    weights: float
    gradients: float
    kept: float
    """Gradients that live through the whole step."""
    optimizer: float
    activations: float
    """Forward and backward peak: stored activations with the loss or a layer's working set, gathered layers, copies."""
    step: float
    peak: float
    """Largest sum that is alive at once."""

    @property
    def working(self) -> float:
        """What comes and goes in a step: the peak without weights, optimizer state and gradients that stay."""
        return max(0.0, self.peak - self.weights - self.optimizer - self.kept)


def training_footprint(demand: TrainingDemand, layout: Layout, accelerator: Accelerator) -> Footprint:
    """Bytes of the fullest rank of a training.

    Raises:
        UsageError: the demand is not possible (lengths below 1, unknown format or adapter targets).
    """
    if demand.sequence_tokens < 1 or demand.micro_batch < 1:
        raise UsageError("sequence_tokens and micro_batch must be 1 or more")
    recipe = recipe_for(demand, layout, accelerator)
    tensors = training_bytes(recipe)
    meter = meters(recipe, tensors)
    total = meter.needed
    overhead = total - tensors.peak
    named = tensors.weights + tensors.gradients + tensors.optimizer + overhead
    # Activations, gradients and step temporaries are not all alive at once: the shown part is what joins the others at a peak.
    shown = max(min(tensors.activations, 1.3 * total - named), tensors.peak - (named - overhead))
    return Footprint(
        per_gpu=MemoryTerms(
            weights_bytes=round(tensors.weights),
            kv_cache_bytes=None,
            activation_bytes=round(max(0.0, shown)),
            gradient_bytes=round(tensors.gradients),
            optimizer_bytes=round(tensors.optimizer),
            overhead_bytes=round(overhead),
            total_bytes=round(total),
            low_bytes=round(meter.low),
            high_bytes=round(meter.high),
        ),
        usable_bytes=accelerator.memory_usable_bytes,
        allocated_bytes=round(tensors.peak),
        reserved_bytes=round(meter.reserved),
        device_bytes=round(meter.device),
        assumptions=_assumptions(recipe, accelerator),
    )


@dataclass(frozen=True, slots=True)
class Meters:
    """Bytes of a run as different instruments show them, and the least it can live with."""

    reserved: float
    device: float
    needed: float
    low: float
    high: float


def meters(recipe: Recipe, tensors: TrainingBytes) -> Meters:
    """Meters of a run: blocks of changing size leave gaps, those of weights and states do not."""
    gpus = recipe.data_parallel * recipe.tensor_parallel * recipe.pipeline_parallel
    context = (recipe.context_bytes or CONTEXT_BYTES) + (NCCL_BYTES if gpus > 1 else 0)
    is_fsdp = recipe.sharding is Sharding.FSDP and gpus > 1
    lost = Constants.reserved_states_share * (tensors.peak - tensors.working)
    lost += Constants.reserved_activations_share * tensors.working
    lost += RESERVED_SHARE_FSDP * tensors.peak if is_fsdp else 0.0
    reserved = tensors.peak + lost
    needed = tensors.peak * (1 + (ALLOCATOR_SHARE_FSDP if is_fsdp else ALLOCATOR_SHARE)) + context
    error = ERROR_SHARE * needed + ERROR_SHARE_WORKING * tensors.working
    return Meters(reserved, reserved + context, needed, needed - error, needed + error)


def training_bytes(recipe: Recipe) -> TrainingBytes:
    """Tensor bytes of a recipe on its fullest rank."""
    return max(stage_bytes(recipe), key=lambda stage: stage.peak)


def stage_bytes(recipe: Recipe) -> tuple[TrainingBytes, ...]:
    """Tensor bytes of a recipe on a rank of each stage that differs, the first one first."""
    return tuple(_stage_bytes(recipe, stage) for stage in stages_of(recipe))


def _stage_bytes(recipe: Recipe, stage: Stage) -> TrainingBytes:
    """Tensor bytes of one pipeline stage on one rank."""
    model = recipe.model
    share = stage_params(recipe, stage) / model.params_total
    is_full = recipe.method is TrainingMethod.FULL
    base = 0.0 if is_full else frozen_bytes(model, recipe.base_weights, recipe.wide_bytes)
    trained = _trained_params(recipe)
    extra = recipe.extra_trained_params * recipe.compute_bytes
    weights = share * (base + trained * recipe.weight_bytes + extra)
    gradients = share * (trained * recipe.gradient_bytes + extra)
    if recipe.layer_gradients:
        gradients /= max(1.0, stage.layers)
    optimizer = share * (trained * (recipe.master_bytes + recipe.state_bytes) + 2 * extra)
    step = share * (trained * recipe.step_bytes + extra)
    shards = recipe.data_parallel
    if recipe.sharding in SHARDED_WEIGHTS:
        weights /= shards
    if recipe.sharding in SHARDED_GRADIENTS and not recipe.unsynced_gradients:
        gradients /= shards
    if recipe.sharding in SHARDED_STATES:
        optimizer /= shards
        step /= shards
    if recipe.sharding is Sharding.DDP and not recipe.bucket_view:
        gradients *= 2
    if recipe.host_states:
        optimizer = step = 0.0
    if recipe.host_weights:
        weights = 0.0
    gathered = _gathered_bytes(recipe, stage)
    copies = 2.0 * model.params_total * share if recipe.autocast and recipe.sharding not in SHARDED_WEIGHTS else 0.0
    kept = gradients if recipe.persistent_gradients else 0.0
    if recipe.embedding_gradient:
        kept += model.embedding_params * recipe.compute_bytes
    activations = forward_bytes(recipe, stage) + gathered + copies
    backward_end = gradients + gathered + layer_bytes(recipe)
    peak = weights + optimizer + max(activations + kept, backward_end, gradients + step)
    return TrainingBytes(weights, gradients, kept, optimizer, activations, step, peak)


def _trained_params(recipe: Recipe) -> int:
    if recipe.trained_params is not None:
        return recipe.trained_params
    if recipe.method is TrainingMethod.FULL:
        return recipe.model.params_total
    return adapter_params(recipe.model, recipe.lora_rank, recipe.lora_targets)


def frozen_bytes(model: ModelShape, word: str, wide_bytes: float) -> float:
    """Bytes of a frozen base: linear layers in the format, the rest at ``wide_bytes`` each."""
    if word in ("bf16", "fp16", "fp32"):
        return model.params_total * bits_of(word) / 8
    if word == "auto":
        formats = resolve_formats(model, word)
        if not formats.bits:
            return model.params_total * formats.wide_bits / 8
        bits = formats.bits
    else:
        bits = dict.fromkeys(LINEAR_PARTS, bits_of(word))
    quantised = 0.0
    total = 0.0
    for count, kind in zip(model.counts, model.kinds, strict=True):
        parts = (
            (kind.mixer.part, kind.mixer.matrix_params),
            (kind.mlp.part, kind.mlp.matrix_params),
            ("expert", kind.mlp.experts * kind.mlp.expert_params),
        )
        for part, params in parts:
            if part in bits:
                quantised += count * params
                total += count * params * bits[part] / 8
    return total + (model.params_total - quantised) * wide_bytes


def _gathered_bytes(recipe: Recipe, stage: Stage) -> float:
    """Full layers that a weight-sharded run holds for a moment, and buckets of gradient sharding."""
    model = recipe.model
    if recipe.sharding in SHARDED_WEIGHTS and recipe.data_parallel > 1:
        layer = max(kind.params for kind in model.kinds) / recipe.tensor_parallel
        ends = (model.embedding_params + model.head_params) / recipe.tensor_parallel
        width = recipe.compute_bytes
        if recipe.gathers_all:
            return model.params_total * width / recipe.tensor_parallel
        if recipe.method is TrainingMethod.QLORA:
            width = bits_of(recipe.base_weights) / 8
        return Constants.gathered_layers * layer * width + ends * recipe.compute_bytes
    if recipe.sharding in DEEPSPEED and recipe.method is TrainingMethod.FULL:
        # Two 16-bit buckets, never more than the rank's own gradients.
        return min(2 * BUCKET_ELEMENTS, stage_params(recipe, stage)) * 2.0
    return 0.0


def _assumptions(recipe: Recipe, accelerator: Accelerator) -> tuple[Assumption, ...]:
    return (
        Assumption("usable memory", f"{accelerator.memory_usable_bytes} B", accelerator.memory_usable_basis),
        Assumption(
            "loss", f"{recipe.loss_bytes:g} B per token and vocabulary entry", "eager cross entropy with an fp32 copy"
        ),
        Assumption("attention", recipe.attention.value, "the spec, or what the GPU has"),
        Assumption(
            "states",
            f"{recipe.weight_bytes + recipe.gradient_bytes + recipe.master_bytes + recipe.state_bytes:g} B per trained"
            f" parameter, {recipe.step_bytes:g} more in the step",
            "precision and optimizer",
        ),
        Assumption(
            "allocator", f"{ALLOCATOR_SHARE:.0%} above tensors", "least fragmentation; cached blocks are given back"
        ),
        Assumption("context", f"{CONTEXT_BYTES / GIB:.2f} GiB", "stas00/ml-engineering training/performance"),
    )
