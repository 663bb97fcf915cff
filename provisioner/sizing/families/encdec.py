"""Encoder-decoder and cross-attending language models: T5, mT5, Llama 3.2 Vision.

Source: the model classes of Hugging Face transformers 5.24.
"""

from __future__ import annotations

from dataclasses import replace

from provisioner.sizing.families.assemble import assemble, layer_count
from provisioner.sizing.families.attention import dense_mlp, grouped_attention
from provisioner.sizing.families.fields import Fields
from provisioner.sizing.families.towers import mllama_tower
from provisioner.sizing.shapes import Layer, Mixer, ModelShape, TokenCache

BUCKETS = 32
"""Relative position buckets of T5, one value a head, in the first block of encoder and decoder."""


def read_t5(fields: Fields) -> ModelShape:
    """T5 v1.1 and mT5: gated MLP, untied head, relative positions."""
    hidden = fields.need("d_model")
    heads = fields.need("num_heads")
    encoder_layers = layer_count(fields, "num_layers")
    decoder_layers = fields.maybe("num_decoder_layers") or encoder_layers
    head_dim = fields.number("d_kv", 64)
    mlp = dense_mlp(hidden, fields.need("d_ff"))
    plain = grouped_attention(hidden, heads, heads, head_dim)
    encoder = Layer(replace(plain, caches=()), mlp, 2 * hidden, is_encoder=True)
    decoder = Layer(_with_cross(plain), mlp, 3 * hidden)
    return assemble(
        fields,
        [encoder] * encoder_layers + [decoder] * decoder_layers,
        hidden=hidden,
        vocabulary=fields.need("vocab_size"),
        tied=fields.flag("tie_word_embeddings", default=False),
        embedding_extra=2 * BUCKETS * heads,
        final_norm=2 * hidden,
        context=fields.maybe("n_positions"),
    )


def _with_cross(plain: Mixer) -> Mixer:
    """Self-attention followed by attention to the encoder, whose keys and values are cached as well."""
    cross = tuple(replace(matrix, name=f"cross_{matrix.name}") for matrix in plain.matrices)
    caches = (*plain.caches, *_cross_caches(plain))
    return replace(plain, matrices=plain.matrices + cross, caches=caches)


def _cross_caches(plain: Mixer) -> tuple[TokenCache, ...]:
    """The caches of a self-attention as those of an attention to the encoder."""
    return tuple(replace(cache, is_cross=True) for cache in plain.caches if isinstance(cache, TokenCache))


def read_mllama(fields: Fields) -> ModelShape:
    """Llama 3.2 Vision: a Llama with cross-attention layers over the image, and a vision tower."""
    text = fields.child("text_config")
    layers = layer_count(text, "num_hidden_layers")
    hidden = text.need("hidden_size")
    heads = text.need("num_attention_heads")
    kv_heads = text.need("num_key_value_heads")
    head_dim = hidden // heads
    cross_layers = set(text.words("cross_attention_layers"))
    mlp = dense_mlp(hidden, text.need("intermediate_size"))
    plain = grouped_attention(hidden, heads, kv_heads, head_dim)
    looking = replace(
        plain,
        vector_params=2 * head_dim + 2,
        caches=_cross_caches(plain),
    )
    self_block, cross_block = Layer(plain, mlp, 2 * hidden), Layer(looking, mlp, 2 * hidden)
    vocabulary = text.need("vocab_size")
    return assemble(
        text,
        [cross_block if str(index) in cross_layers else self_block for index in range(layers)],
        hidden=hidden,
        vocabulary=vocabulary,
        tied=text.flag("tie_word_embeddings", default=False),
        # Eight more rows of the input embedding stand for image tokens.
        embedding_extra=8 * hidden,
        final_norm=hidden,
        context=text.maybe("max_position_embeddings"),
        towers=(mllama_tower(fields.child("vision_config"), hidden),),
        top=fields,
    )
