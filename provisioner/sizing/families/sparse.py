"""MiniMax-M3: grouped attention that reads chosen blocks of its cache through a small index, routed experts, a vision tower.

Source: config fields and the model class of Hugging Face transformers 5.24.
"""

from __future__ import annotations

from provisioner.sizing.families.assemble import assemble, layer_count
from provisioner.sizing.families.attention import dense_mlp, expert_mlp, grouped_attention
from provisioner.sizing.families.fields import Fields
from provisioner.sizing.families.towers import clip_tower
from provisioner.sizing.shapes import Layer, Matrix, Mixer, ModelShape, Split, TokenCache, Tower


def read_minimax_m3(fields: Fields) -> ModelShape:
    """A MiniMax-M3 shape, text alone or with its tower."""
    text = fields.child("text_config") if "text_config" in fields.config else fields
    layers = layer_count(text, "num_hidden_layers")
    hidden = text.need("hidden_size")
    width = text.need("moe_intermediate_size", "intermediate_size")
    routed = expert_mlp(
        hidden,
        width,
        text.need("num_local_experts"),
        text.need("num_experts_per_tok"),
        shared_width=text.number("shared_intermediate_size", width) * text.number("n_shared_experts", 1),
        router_bias=True,
    )
    dense = dense_mlp(hidden, text.need("dense_intermediate_size"))
    sparse = text.child("sparse_attention_config")
    uses_index = sparse.words("sparse_attention_freq") or ("0",) * layers
    uses_experts = text.words("moe_layer_freq") or ("1",) * layers
    mixers = {word: _mixer(text, sparse, hidden, indexed=word == "1") for word in sorted(set(uses_index))}
    made: dict[tuple[str, str], Layer] = {}
    blocks = []
    for key in zip(uses_index[:layers], uses_experts[:layers], strict=True):
        made.setdefault(key, Layer(mixers[key[0]], routed if key[1] == "1" else dense, 2 * hidden))
        blocks.append(made[key])
    vision = fields.child("vision_config")
    merge = 2
    towers: tuple[Tower, ...] = ()
    if fields.config.get("vision_config"):
        towers = (clip_tower(vision, hidden, fields.number("projector_hidden_size", hidden), merge),)
    return assemble(
        text,
        blocks,
        hidden=hidden,
        vocabulary=text.need("vocab_size"),
        tied=text.flag("tie_word_embeddings", default=False),
        final_norm=hidden,
        context=text.maybe("max_position_embeddings"),
        towers=towers,
        top=fields,
    )


def _mixer(text: Fields, sparse: Fields, hidden: int, *, indexed: bool) -> Mixer:
    head_dim = text.need("head_dim")
    base = grouped_attention(
        hidden,
        text.need("num_attention_heads"),
        text.need("num_key_value_heads"),
        head_dim,
        extra_vectors=2 * head_dim,
    )
    if not indexed:
        return base
    heads = sparse.need("sparse_num_index_heads")
    width = sparse.need("sparse_index_dim")
    index = (
        Matrix("index_q", hidden, heads * width, Split.NONE),
        Matrix("index_k", hidden, width, Split.NONE),
    )
    return Mixer(
        kind=base.kind,
        heads=base.heads,
        kv_heads=base.kv_heads,
        head_dim=head_dim,
        value_dim=head_dim,
        matrices=(*base.matrices, *index),
        vector_params=base.vector_params + 2 * width,
        caches=(*base.caches, TokenCache(1, width)),
    )
