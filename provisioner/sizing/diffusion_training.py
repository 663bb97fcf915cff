"""Footprint of training the denoiser of a pipeline or the core of an audio model, in full or with low-rank adapters."""

from __future__ import annotations

from provisioner.errors import UsageError
from provisioner.sizing.accelerator import Accelerator
from provisioner.sizing.audio_training import audio_activation_bytes, trained_parts
from provisioner.sizing.constants import Constants
from provisioner.sizing.demand import DiffusionTrainingDemand
from provisioner.sizing.diffusion import FRAMES_AT_ONCE, TILE_FRAMES, decoder_pixel_bytes, latent_tokens
from provisioner.sizing.footprint import Assumption, Footprint, MemoryTerms
from provisioner.sizing.layout import Layout
from provisioner.sizing.lora import denoiser_adapter_params
from provisioner.sizing.pipelines import CORES, DECODERS
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

STORES_ALL = ("UVit2DModel",)
"""Denoisers whose checkpointing has no effect: their wrapper does not take the arguments that it is called with (diffusers
models/unets/uvit_2d.py), and aMUSEd's published batches grow as without it."""
WORKING_ELEMENTS = 60
"""Elements per token and unit of width of one recomputed block with its gradients."""
ENCODE_SHARE = 0.5
"""Working set of a VAE's encoder over its decoder's: half the channels at full resolution."""
CONTEXT_BYTES = 600 * MIB
NCCL_BYTES = 1400 * MIB
ALLOCATOR_SHARE = 0.06
ERROR_SHARE = 0.25
ERROR_SHARE_TOTAL = 0.10
"""Half width of the band, of activations and of everything."""


def diffusion_training_footprint(
    demand: DiffusionTrainingDemand, layout: Layout, accelerator: Accelerator
) -> Footprint:
    """Bytes of a training step on the fullest GPU; frozen parts (encoders, VAE) stay resident.

    Raises:
        UsageError: the pipeline has no denoiser.
    """
    model = demand.model
    core = sum(part.params for part in trained_parts(model))
    if not core:
        raise UsageError(f"{model.id} has no network to train")
    is_full = demand.method is TrainingMethod.FULL and demand.trained_params is None
    trained = demand.trained_params or (core if is_full else adapter_params(demand))
    width = 2.0 if demand.precision is TrainingPrecision.BF16 and is_full else 4.0
    state = STATE_BYTES[demand.optimizer]
    if width == 2.0 and demand.optimizer in FOLLOWS_PARAMETERS:
        state /= 2
    base = 0.0 if is_full else core * _base_bits(demand) / 8
    shards = layout.data_parallel
    weights = _frozen_bytes(demand) + (base + trained * width) / (shards if layout.sharding in SHARDED_WEIGHTS else 1)
    gradients = trained * width / (shards if layout.sharding in SHARDED_GRADIENTS else 1)
    gradients *= 2 if layout.sharding is Sharding.DDP else 1
    spread = 0.0 if demand.host_states else 1 / (shards if layout.sharding in SHARDED_STATES else 1)
    optimizer = trained * state * spread
    step = trained * width * spread
    wide = trained if is_full and width > 2 else core if not is_full and _base_bits(demand) > 16 else 0
    # Autocast keeps a 16-bit copy of fp32 weights while the pass runs.
    copies = 2.0 * wide if demand.precision is not TrainingPrecision.FP32 else 0.0
    activations = max(activation_bytes(demand) + copies, encode_bytes(demand))
    activations += gradients if demand.accumulates_gradients else 0.0
    temporaries = step if demand.optimizer in FOREACH else 0.0
    peak = weights + optimizer + max(activations, gradients + temporaries)
    overhead = ALLOCATOR_SHARE * peak + CONTEXT_BYTES + (NCCL_BYTES if layout.gpus_per_replica > 1 else 0)
    total = peak + overhead
    error = ERROR_SHARE * activations + ERROR_SHARE_TOTAL * total + 0.2 * GIB
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


def _frozen_bytes(demand: DiffusionTrainingDemand) -> float:
    """Bytes of encoders and VAE that stay on the GPU."""
    if not demand.keeps_frozen_parts:
        return 0.0
    learning = trained_parts(demand.model)
    parts = [part for part in demand.model.components if part not in learning and part.role not in CORES]
    return sum(part.params * (_vae_bits(demand) if part.role in DECODERS else 16.0) / 8 for part in parts)


def _vae_bits(demand: DiffusionTrainingDemand) -> float:
    """Training scripts keep the VAE of a mixed run in fp32, where 16 bit overflows."""
    return 16.0 if demand.precision is TrainingPrecision.BF16 else 32.0


def encode_bytes(demand: DiffusionTrainingDemand) -> float:
    """Working set of the VAE that encodes a micro-batch in the same step: about half of decoding as many pixels."""
    part = next((part for part in demand.model.components if part.role == "vae"), None)
    if part is None or not demand.keeps_frozen_parts:
        return 0.0
    per_pixel = ENCODE_SHARE * decoder_pixel_bytes(part) * _vae_bits(demand) / 16
    frames = min(demand.frames, FRAMES_AT_ONCE.get(part.class_name, TILE_FRAMES))
    return demand.micro_batch * demand.width * demand.height * frames * per_pixel


def _base_bits(demand: DiffusionTrainingDemand) -> float:
    """Bits of the frozen denoiser."""
    if demand.method is TrainingMethod.QLORA:
        return bits_of("nf4-double" if demand.weights in ("auto", "nf4") else demand.weights)
    return 16.0 if demand.weights == "auto" else bits_of(demand.weights)


def adapter_params(demand: DiffusionTrainingDemand) -> int:
    """Parameters of adapters on the denoiser's linear layers."""
    return denoiser_adapter_params(demand.model, demand.lora_rank)


def activation_bytes(demand: DiffusionTrainingDemand) -> float:
    """Stored activations and working set of one micro-batch."""
    model = demand.model
    if demand.seconds:
        factor = Constants.unet_checkpointed_factor if demand.gradient_checkpointing else Constants.unet_stored_factor
        return audio_activation_bytes(demand, Constants.unet_latent_bytes * factor)
    tokens = demand.micro_batch * latent_tokens(model, demand.width, demand.height, demand.frames)
    checkpoints = bool(demand.gradient_checkpointing)
    checkpoints = checkpoints and not any(part.class_name in STORES_ALL for part in model.components)
    if model.core_width is None or model.core_depth is None:
        factor = Constants.unet_checkpointed_factor if checkpoints else Constants.unet_stored_factor
        return tokens * Constants.unet_latent_bytes * factor
    tokens += demand.micro_batch * model.geometry.text_tokens
    unit = tokens * model.core_width * 2.0
    if checkpoints:
        return unit * (model.core_depth + WORKING_ELEMENTS)
    return unit * model.core_depth * Constants.block_elements
