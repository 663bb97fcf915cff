"""Footprint of training the denoiser of an image or video pipeline, in full or with low-rank adapters."""

from __future__ import annotations

from provisioner.errors import UsageError
from provisioner.sizing.accelerator import Accelerator
from provisioner.sizing.demand import DiffusionTrainingDemand
from provisioner.sizing.diffusion import UNET_BYTES_PER_LATENT, latent_tokens
from provisioner.sizing.footprint import Assumption, Footprint, MemoryTerms
from provisioner.sizing.layout import Layout
from provisioner.sizing.pipelines import CORES
from provisioner.sizing.quantisation import bits_of
from provisioner.sizing.training_recipe import (
    FOLLOWS_PARAMETERS,
    FOREACH,
    SHARDED_GRADIENTS,
    SHARDED_STATES,
    SHARDED_WEIGHTS,
    STATE_BYTES,
)
from provisioner.units import GIB, MIB
from provisioner.vocabulary import Sharding, TrainingMethod, TrainingPrecision

UNET_TRAINING = 6.4
UNET_TRAINING_CHECKPOINTED = 3.0
"""Activations of a U-Net in training over its inference working set: SD-1.4 at batch 8 and 512 px takes 13.7 GB beside states
without and 6.4 GB with checkpointing (huggingface/peft README)."""
BLOCK_ELEMENTS = 34
"""Elements per token and unit of width that a transformer block stores for its backward pass."""
WORKING_ELEMENTS = 60
ADAPTER_MATRICES = 8
"""Matrices of width x width equivalents per block that adapters sit on (attention and MLP of a block)."""
CONTEXT_BYTES = 600 * MIB
NCCL_BYTES = 1400 * MIB
ALLOCATOR_SHARE = 0.06
ERROR_SHARE = 0.15


def diffusion_training_footprint(
    demand: DiffusionTrainingDemand, layout: Layout, accelerator: Accelerator
) -> Footprint:
    """Bytes of a training step on the fullest GPU; frozen parts (encoders, VAE) stay resident.

    Raises:
        UsageError: the pipeline has no denoiser.
    """
    model = demand.model
    core = model.params_active
    if not core or not any(part.role in CORES for part in model.components):
        raise UsageError(f"{model.id} has no denoiser to train")
    frozen = sum(part.params for part in model.components if part.role not in CORES) * 2.0
    frozen *= demand.keeps_frozen_parts
    is_full = demand.method is TrainingMethod.FULL
    trained = core if is_full else adapter_params(demand)
    width = 2.0 if demand.precision is TrainingPrecision.BF16 and is_full else 4.0
    state = STATE_BYTES[demand.optimizer]
    if width == 2.0 and demand.optimizer in FOLLOWS_PARAMETERS:
        state /= 2
    base = 0.0 if is_full else core * _base_bits(demand) / 8
    shards = layout.data_parallel
    weights = frozen + (base + trained * width) / (shards if layout.sharding in SHARDED_WEIGHTS else 1)
    gradients = trained * width / (shards if layout.sharding in SHARDED_GRADIENTS else 1)
    gradients *= 2 if layout.sharding is Sharding.DDP else 1
    optimizer = trained * state / (shards if layout.sharding in SHARDED_STATES else 1)
    step = trained * width / (shards if layout.sharding in SHARDED_STATES else 1)
    activations = activation_bytes(demand)
    temporaries = step if demand.optimizer in FOREACH else 0.0
    peak = weights + optimizer + max(activations, gradients + temporaries)
    overhead = ALLOCATOR_SHARE * peak + CONTEXT_BYTES + (NCCL_BYTES if layout.gpus_per_replica > 1 else 0)
    total = peak + overhead
    error = ERROR_SHARE * activations + 0.03 * total + 0.2 * GIB
    return Footprint(
        per_gpu=MemoryTerms(
            weights_bytes=round(weights),
            kv_cache_bytes=None,
            activation_bytes=round(max(activations, peak - weights - optimizer - gradients)),
            gradient_bytes=round(gradients),
            optimizer_bytes=round(optimizer),
            overhead_bytes=round(overhead),
            total_bytes=round(total),
            low_bytes=round(total - error),
            high_bytes=round(total + error),
        ),
        usable_bytes=accelerator.memory_usable_bytes,
        allocated_bytes=round(peak),
        reserved_bytes=round(peak * (1 + ALLOCATOR_SHARE)),
        device_bytes=round(total),
        assumptions=(
            Assumption("frozen parts", "resident in 16 bit", "encoders and VAE of the bundled list"),
            Assumption("activations", "by blocks and width, or by latent pixels", "huggingface/peft README"),
            Assumption("usable memory", f"{accelerator.memory_usable_bytes} B", accelerator.memory_usable_basis),
        ),
    )


def _base_bits(demand: DiffusionTrainingDemand) -> float:
    """Bits of the frozen denoiser."""
    if demand.method is TrainingMethod.QLORA:
        return bits_of("nf4-double" if demand.weights in ("auto", "nf4") else demand.weights)
    return 16.0 if demand.weights == "auto" else bits_of(demand.weights)


def adapter_params(demand: DiffusionTrainingDemand) -> int:
    """Parameters of adapters on the denoiser's linear layers."""
    model = demand.model
    if model.core_width is None or model.core_depth is None:
        # A U-Net's attention layers: about 0.1 % of its weights per rank of 4 (SD-1.5: 0.8 M of 860 M).
        return round(model.params_active * 0.001 * demand.lora_rank / 4)
    return 2 * demand.lora_rank * model.core_width * ADAPTER_MATRICES * model.core_depth


def activation_bytes(demand: DiffusionTrainingDemand) -> float:
    """Stored activations and working set of one micro-batch."""
    model = demand.model
    tokens = demand.micro_batch * latent_tokens(model, demand.width, demand.height, demand.frames)
    if model.core_width is None or model.core_depth is None:
        factor = UNET_TRAINING_CHECKPOINTED if demand.gradient_checkpointing else UNET_TRAINING
        return tokens * UNET_BYTES_PER_LATENT * factor
    tokens += demand.micro_batch * model.geometry.text_tokens
    unit = tokens * model.core_width * 2.0
    if demand.gradient_checkpointing:
        return unit * (model.core_depth + WORKING_ELEMENTS)
    return unit * model.core_depth * BLOCK_ELEMENTS
