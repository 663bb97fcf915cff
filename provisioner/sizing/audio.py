"""Footprint of audio models: speech recognition, speech and music generation.

Recognition encodes 30-second windows and decodes with cross-attention to them. Generation is either a language model over
codec tokens, or a diffusion transformer over latent frames; a codec or vocoder makes the sound at the end.
"""

from __future__ import annotations

from provisioner.sizing.accelerator import Accelerator
from provisioner.sizing.demand import AudioDemand
from provisioner.sizing.footprint import Assumption, Footprint, MemoryTerms
from provisioner.sizing.layout import Layout
from provisioner.sizing.pipelines import SPEECH_TO_TEXT
from provisioner.sizing.quantisation import bits_of
from provisioner.units import GIB, MIB

ENCODER_POSITIONS = 1500
"""Positions of a 30-second window after Whisper's convolutions."""
WINDOW_SECONDS = 30
DECODER_TOKENS = 448
ENCODER_ELEMENTS = 14
"""Elements per position and unit of width at the widest block of an encoder (four-fold MLP, queries, keys, values)."""
CODEC_BYTES_PER_SECOND = 24 * MIB
"""Working set of a codec or vocoder per second of sound and piece: 32,000 samples x 64 channels x 4 B x 3. An assumption."""
CONTEXT_BYTES = 550 * MIB
ALLOCATOR_SHARE = 0.05
ERROR_SHARE = 0.25
"""Band of working sets: no measured rows of audio models are published with their settings."""


def audio_footprint(demand: AudioDemand, layout: Layout, accelerator: Accelerator) -> Footprint:
    """Bytes of an audio model on one GPU for a batch of pieces."""
    del layout
    model = demand.model
    weights = sum(part.params * _bits(demand, part.dtype) / 8 for part in model.components)
    cache = cache_bytes(demand)
    working = working_bytes(demand)
    tensors = weights + cache + working
    overhead = CONTEXT_BYTES + ALLOCATOR_SHARE * tensors
    total = tensors + overhead
    error = ERROR_SHARE * (working + 0.1 * cache) + 0.02 * weights + 0.1 * GIB
    fraction = demand.gpu_memory_fraction or 1.0
    return Footprint(
        per_gpu=MemoryTerms(
            weights_bytes=round(weights),
            kv_cache_bytes=round(cache),
            activation_bytes=round(working),
            gradient_bytes=None,
            optimizer_bytes=None,
            overhead_bytes=round(overhead),
            total_bytes=round(total),
            low_bytes=round(total - error),
            high_bytes=round(total + error),
        ),
        usable_bytes=round(accelerator.memory_usable_bytes * fraction),
        allocated_bytes=round(tensors),
        reserved_bytes=round(tensors * (1 + ALLOCATOR_SHARE)),
        device_bytes=round(total),
        assumptions=(
            Assumption("beams", str(demand.beams), "engine default"),
            Assumption("piece", f"{demand.seconds:g} s", "inference.audio, or the model's usual length"),
            Assumption("usable memory", f"{accelerator.memory_usable_bytes} B", accelerator.memory_usable_basis),
        ),
    )


def _bits(demand: AudioDemand, published: str) -> float:
    """16 bit unless the spec says otherwise: engines for speech convert fp32 checkpoints."""
    return min(bits_of(published), 16.0) if demand.weights == "auto" else bits_of(demand.weights)


def cache_bytes(demand: AudioDemand) -> float:
    """Keys and values of the decoder: to the encoder once per piece, of its own tokens once per beam."""
    model = demand.model
    width, depth = model.core_width or 0, model.core_depth or 0
    per_token = 2 * depth * width * 2
    if model.modality == SPEECH_TO_TEXT:
        return float(per_token * demand.batch * (ENCODER_POSITIONS + DECODER_TOKENS * demand.beams))
    if not any(part.role == "language_model" for part in model.components):
        return 0.0
    samples = demand.batch * (2 if model.guidance == "batched" else 1)
    return samples * per_token * (demand.seconds * (model.geometry.latent_rate_hz or 50) + model.geometry.text_tokens)


def working_bytes(demand: AudioDemand) -> float:
    """Largest working set of encoder, core and codec."""
    model = demand.model
    width = model.core_width or 1024
    if model.modality == SPEECH_TO_TEXT:
        return float(demand.batch * ENCODER_POSITIONS * width * ENCODER_ELEMENTS * 2)
    samples = demand.batch * (2 if model.guidance == "batched" else 1)
    frames = demand.seconds * (model.geometry.latent_rate_hz or 50)
    core = samples * (frames + model.geometry.text_tokens) * width * ENCODER_ELEMENTS * 2
    codec = demand.batch * demand.seconds * CODEC_BYTES_PER_SECOND
    return float(max(core, codec))
