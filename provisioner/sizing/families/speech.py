"""Whisper: an encoder over 30-second windows of a spectrogram, and a decoder that attends to it.

Source: the model class of Hugging Face transformers 5.24 (``WhisperForConditionalGeneration``, output projection tied).
"""

from __future__ import annotations

from provisioner.sizing.families.fields import Fields, dtype_word
from provisioner.sizing.pipelines import SPEECH_TO_TEXT, Component, Geometry, PipelineShape

WINDOW_SECONDS = 30.0
POSITIONS_HZ = 50.0
"""Encoder positions per second of sound."""


def read_whisper(fields: Fields) -> PipelineShape:
    """The shape of a Whisper config, as the bundled list describes the published ones."""
    width = fields.need("d_model")
    layers, depth = fields.need("encoder_layers"), fields.need("decoder_layers")
    heard, written = fields.number("max_source_positions", 1500), fields.number("max_target_positions", 448)
    vocabulary = fields.need("vocab_size")
    fields.require_divisible("d_model", width, "encoder_attention_heads", fields.need("encoder_attention_heads"))
    fields.require_divisible("d_model", width, "decoder_attention_heads", fields.need("decoder_attention_heads"))
    # Keys have no bias.
    attention = 4 * width * width + 3 * width
    encoder_block = attention + _mlp(width, fields.number("encoder_ffn_dim", 4 * width)) + 4 * width
    decoder_block = 2 * attention + _mlp(width, fields.number("decoder_ffn_dim", 4 * width)) + 6 * width
    convolutions = 3 * width * (fields.number("num_mel_bins", 80) + width) + 2 * width
    encoder = layers * encoder_block + convolutions + heard * width + 2 * width
    decoder = depth * decoder_block + (vocabulary + written) * width + 2 * width
    fields.check()
    dtype = dtype_word(fields.config, "fp32")
    return PipelineShape(
        id=fields.model_id,
        family="whisper",
        modality=SPEECH_TO_TEXT,
        hidden_size=width,
        vocab_size=0,
        kinds=(),
        pattern=(),
        weights_dtype=dtype,
        components=(
            Component("decoder", "decoder", "WhisperDecoder", decoder, dtype),
            Component("encoder", "encoder", "WhisperEncoder", encoder, dtype),
        ),
        geometry=Geometry(text_tokens=written, latent_rate_hz=POSITIONS_HZ, seconds=WINDOW_SECONDS),
        core_width=width,
        core_depth=depth,
    )


def _mlp(width: int, inner: int) -> int:
    return 2 * width * inner + inner + width
