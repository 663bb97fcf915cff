"""What a training of a speech, music or sound model keeps: trained networks, and activations by positions and width.

Recognition trains encoder and decoder; generation trains its language model or denoiser, with codec and encoders frozen. No
published table of such runs names its settings in full: the figures rest on the blocks' dimensions, as for denoisers. Whisper-small
with 16 samples a step is published as fitting a 16 GB card (Hugging Face blog fine-tune-whisper).
"""

from __future__ import annotations

import math

from provisioner.sizing.audio import CODEC_BYTES_PER_SECOND, DECODER_TOKENS, ENCODER_POSITIONS, WINDOW_SECONDS
from provisioner.sizing.demand import DiffusionTrainingDemand
from provisioner.sizing.pipelines import CORES, SPEECH_TO_TEXT, Component, PipelineShape
from provisioner.vocabulary import TrainingPrecision

SPEECH_CORES = (*CORES, "encoder")
"""Networks of a recogniser that learn together."""
STORED_ELEMENTS = 34
"""Elements per position and unit of width that a block of a transformer stores (Megatron's count without attention scores)."""
WORKING_ELEMENTS = 60
"""The same for one recomputed block with its gradients."""
LOSS_BYTES = 14
"""Bytes per position and vocabulary entry of the default loss."""
SPEECH_VOCABULARY = 51_866
CODEC_VOCABULARY = 4 * 2048
"""Entries of four codebooks (EnCodec at 32 kHz, MusicGen)."""
LATENT_ROWS = 16
"""Latent pixels per step of a U-Net over spectrograms: 64 mel bands, a VAE of factor 4 (AudioLDM 2)."""
BLOCK_WEIGHTS = 12
"""Weights of a block in squares of its width: four of attention, eight of the MLP."""


def trained_parts(model: PipelineShape) -> tuple[Component, ...]:
    """Networks that learn: all of a recogniser, else the largest core (the others take their turn in runs of their own)."""
    if model.modality == SPEECH_TO_TEXT:
        return tuple(part for part in model.components if part.role in SPEECH_CORES)
    cores = [part for part in model.components if part.role in CORES]
    return (max(cores, key=lambda part: part.params),) if cores else ()


def audio_activation_bytes(demand: DiffusionTrainingDemand, unet_latent_bytes: float) -> float:
    """Stored activations, one block's working set or the loss, and what the codec holds while it encodes.

    ``unet_latent_bytes`` are those of a U-Net per latent pixel.
    """
    model = demand.model
    width = 4.0 if demand.precision is TrainingPrecision.FP32 else 2.0
    codec = demand.micro_batch * demand.seconds * CODEC_BYTES_PER_SECOND if _has_codec(demand) else 0.0
    if model.modality == SPEECH_TO_TEXT:
        return _speech_bytes(demand, width)
    positions = demand.micro_batch * (demand.seconds * (model.geometry.latent_rate_hz or 50))
    if model.core_width is None or model.core_depth is None:
        return max(positions * LATENT_ROWS * unet_latent_bytes, codec)
    positions += demand.micro_batch * model.geometry.text_tokens
    is_language = any(part.role == "language_model" for part in model.components)
    loss = positions * CODEC_VOCABULARY * LOSS_BYTES if is_language else 0.0
    return max(_blocks(demand, positions, model.core_depth, width, loss), codec)


def _has_codec(demand: DiffusionTrainingDemand) -> bool:
    """Whether sound is encoded in the same step: by a codec, or by the VAE of a latent model."""
    return demand.keeps_frozen_parts and any(part.role in ("codec", "vae") for part in demand.model.components)


def encoder_depth(model: PipelineShape) -> int:
    """Blocks of a recogniser's encoder: its weights over those of one block."""
    width = model.core_width or 1
    params = sum(part.params for part in model.components if part.role == "encoder")
    return round(params / (BLOCK_WEIGHTS * width * width))


def _speech_bytes(demand: DiffusionTrainingDemand, width: float) -> float:
    model = demand.model
    windows = demand.micro_batch * math.ceil(demand.seconds / WINDOW_SECONDS)
    heard, written = windows * ENCODER_POSITIONS, windows * DECODER_TOKENS
    loss = written * SPEECH_VOCABULARY * LOSS_BYTES
    decoder = _blocks(demand, written, model.core_depth or 1, width, loss)
    return decoder + _blocks(demand, heard, encoder_depth(model), width, 0.0)


def _blocks(demand: DiffusionTrainingDemand, positions: float, depth: int, width: float, loss: float) -> float:
    """A stack's stored activations with its loss, or with one block's working set where blocks are recomputed."""
    unit = positions * (demand.model.core_width or 1024) * width
    if demand.gradient_checkpointing is True:
        return unit * depth + max(loss, unit * WORKING_ELEMENTS)
    return unit * depth * STORED_ELEMENTS + loss
