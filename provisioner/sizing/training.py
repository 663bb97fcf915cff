"""Footprint of a training on its fullest GPU: states, activations, loss, optimizer step, allocator and context.

peak = fixed + max(forward and backward, optimizer step), where fixed = weights + optimizer state (+ gradients that live
through the step).
"""

from __future__ import annotations

from dataclasses import dataclass

from provisioner.errors import UsageError
from provisioner.sizing.accelerator import Accelerator
from provisioner.sizing.demand import TrainingDemand
from provisioner.sizing.footprint import Assumption, Footprint, MemoryTerms
from provisioner.sizing.layout import Layout
from provisioner.sizing.lora import adapter_elements, adapter_params, target_names
from provisioner.sizing.quantisation import LINEAR_PARTS, bits_of
from provisioner.sizing.shapes import ModelShape
from provisioner.sizing.training_activations import (
    EAGER_WORKING_BYTES,
    SELECTIVE_SHARE,
    eager_bytes_per_token,
    norm_elements,
    stack_elements,
    widest_layer_elements,
)
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
from provisioner.vocabulary import Attention, Sharding, TrainingMethod

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
BACKWARD_WORKING = 1.15
"""Working set of a recomputed layer with its gradients over what the layer stores (Llama-3-8B: 32.5 against 28)."""
GATHERED_UNITS = 1
"""Layers that a sharded run holds gathered beside embedding and head (Llama-3-8B LoRA over 2 and 4 GPUs: 2.37 GiB)."""
ERROR_SHARE = 0.10
"""Band of a training footprint, low and high (activations and allocator)."""


@dataclass(frozen=True, slots=True)
class TrainingBytes:
    """Bytes of a training on its fullest GPU, tensors only."""

    weights: float
    gradients: float
    optimizer: float
    activations: float
    """Forward and backward peak: stored activations with the loss or a layer's working set, gathered layers, copies."""
    step: float
    peak: float
    """Largest sum that is alive at once."""


def training_footprint(demand: TrainingDemand, layout: Layout, accelerator: Accelerator) -> Footprint:
    """Bytes of the fullest rank of a training.

    Raises:
        UsageError: the demand is not possible (lengths below 1, unknown format or adapter targets).
    """
    if demand.sequence_tokens < 1 or demand.micro_batch < 1:
        raise UsageError("sequence_tokens and micro_batch must be 1 or more")
    recipe = recipe_for(demand, layout, accelerator)
    tensors = training_bytes(recipe)
    meter = meters(recipe, tensors.peak)
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


def meters(recipe: Recipe, peak: float) -> Meters:
    """Meters of a run whose tensors peak at ``peak``."""
    gpus = recipe.data_parallel * recipe.tensor_parallel * recipe.pipeline_parallel
    context = CONTEXT_BYTES + (NCCL_BYTES if gpus > 1 else 0)
    is_fsdp = recipe.sharding is Sharding.FSDP and gpus > 1
    reserved = peak * (1 + recipe.reserved_share)
    needed = peak * (1 + (ALLOCATOR_SHARE_FSDP if is_fsdp else ALLOCATOR_SHARE)) + context
    error = ERROR_SHARE * needed
    return Meters(reserved, reserved + context, needed, needed - error, needed + error)


def training_bytes(recipe: Recipe) -> TrainingBytes:
    """Tensor bytes of a recipe on its fullest rank."""
    model = recipe.model
    ranks = model.params_total / _fullest_params(recipe)
    is_full = recipe.method is TrainingMethod.FULL
    base = 0.0 if is_full else frozen_bytes(model, recipe.base_weights, recipe.wide_bytes)
    trained = model.params_total if is_full else adapter_params(model, recipe.lora_rank, recipe.lora_targets)
    trained += 0 if is_full else recipe.extra_trained_params
    weights = (base + trained * recipe.weight_bytes) / ranks
    gradients = trained * recipe.gradient_bytes / ranks
    optimizer = trained * (recipe.master_bytes + recipe.state_bytes) / ranks
    step = trained * recipe.step_bytes / ranks
    shards = recipe.data_parallel
    if recipe.sharding in SHARDED_WEIGHTS:
        weights /= shards
    if recipe.sharding in SHARDED_GRADIENTS:
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
    forward = _forward_bytes(recipe)
    gathered = _gathered_bytes(recipe)
    copies = 2.0 * model.params_total / ranks if recipe.autocast and recipe.sharding not in SHARDED_WEIGHTS else 0.0
    kept = gradients if recipe.persistent_gradients else 0.0
    activations = forward + gathered + copies
    backward_end = gradients + gathered + _layer_bytes(recipe)
    peak = weights + optimizer + max(activations + kept, backward_end, gradients + step)
    return TrainingBytes(weights, gradients, optimizer, activations, step, peak)


def _fullest_params(recipe: Recipe) -> float:
    """Parameters on the fullest rank of tensor and pipeline parallelism: a pipeline's ends hold embedding and head."""
    model = recipe.model
    stages = recipe.pipeline_parallel
    if stages == 1:
        return model.params_total / recipe.tensor_parallel
    ends = max(model.embedding_params, model.head_params)
    layers = model.params_total - model.embedding_params - model.head_params
    return (layers / stages + ends) / recipe.tensor_parallel


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


def _layer_bytes(recipe: Recipe) -> float:
    """Working set of one layer in the backward pass, with the dequantised copy of its largest matrix."""
    model = recipe.model
    repeats = recipe.attention is not Attention.FLASH
    # Four-bit kernels keep the input of each product, frozen 16-bit layers do not.
    frozen = recipe.method is TrainingMethod.LORA
    elements = widest_layer_elements(model, repeats_kv=repeats, frozen=frozen)
    per_token = elements * recipe.compute_bytes * BACKWARD_WORKING / recipe.tensor_parallel
    if recipe.attention is Attention.EAGER:
        scores = eager_bytes_per_token(model, recipe.sequence_tokens, EAGER_WORKING_BYTES)
        per_token += scores / recipe.tensor_parallel
    copy = 0.0
    if recipe.method is not TrainingMethod.FULL:
        names = target_names(recipe.lora_targets, model)
        per_token += max(adapter_elements(kind, names) for kind in model.kinds) * recipe.compute_bytes
    if recipe.method is TrainingMethod.QLORA:
        copy = 2.0 * max(m.params for kind in model.kinds for m in kind.mixer.matrices + kind.mlp.matrices)
    return recipe.tokens * per_token + copy


def _forward_bytes(recipe: Recipe) -> float:
    """Stored activations at the end of the forward pass, with the loss or one layer's working set, whichever is larger."""
    model = recipe.model
    tokens = recipe.tokens
    repeats = recipe.attention is not Attention.FLASH
    # Four-bit kernels keep the input of each product, frozen 16-bit layers do not.
    frozen = recipe.method is TrainingMethod.LORA
    # A pipeline's first stage keeps as many micro-batches in flight as there are stages: all layers' worth.
    width = recipe.checkpoint_bytes or recipe.compute_bytes
    checkpoints = model.num_layers * model.hidden_size * width * tokens
    checkpoints /= recipe.tensor_parallel if recipe.sequence_parallel else 1
    elements = stack_elements(model, repeats_kv=repeats, frozen=frozen)
    elements -= 0.0 if recipe.fp32_norms else norm_elements(model)
    everything = elements * recipe.compute_bytes * tokens / recipe.tensor_parallel
    if recipe.method is not TrainingMethod.FULL:
        names = target_names(recipe.lora_targets, model)
        added = sum(n * adapter_elements(kind, names) for n, kind in zip(model.counts, model.kinds, strict=True))
        everything += added * recipe.compute_bytes * tokens / recipe.tensor_parallel
    if recipe.attention is Attention.EAGER:
        scores = eager_bytes_per_token(model, recipe.sequence_tokens)
        everything += model.num_layers * tokens * scores / recipe.tensor_parallel
    stored = {
        "none": everything,
        "full": checkpoints,
        "selective": max(checkpoints, SELECTIVE_SHARE * everything),
    }[recipe.checkpointing]
    loss = tokens * model.vocab_size * recipe.loss_bytes / recipe.tensor_parallel
    if recipe.pipeline_parallel > 1:
        return stored + _layer_bytes(recipe)
    return stored + max(loss, _layer_bytes(recipe) if recipe.checkpointing != "none" else 0.0)


def _gathered_bytes(recipe: Recipe) -> float:
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
        return GATHERED_UNITS * layer * width + ends * recipe.compute_bytes
    if recipe.sharding in DEEPSPEED and recipe.method is TrainingMethod.FULL:
        # Two reduce buckets of 5e8 16-bit elements by default, never more than the rank's own gradients.
        return min(2 * 5e8, _fullest_params(recipe)) * 2.0
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
