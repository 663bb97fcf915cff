"""Families with multi-head latent attention: DeepSeek-V2 and V3, Kimi-K2, GLM-4.7-Flash, GLM-5, with or without a sparse index.

Source: the model classes of Hugging Face transformers 5.24; cache widths as in vLLM's MLA attention backends.
"""

from __future__ import annotations

from provisioner.sizing.families.assemble import assemble, layer_count
from provisioner.sizing.families.attention import dense_mlp, expert_mlp, latent_attention
from provisioner.sizing.families.fields import Fields
from provisioner.sizing.families.towers import kimi_tower
from provisioner.sizing.shapes import Layer, Matrix, Mixer, Mlp, ModelShape, Split, TokenCache, Tower

INDEX_BYTES_PER_ELEMENT = 132 / 128
"""Index keys are stored as FP8 with one fp32 scale per 128, whatever the cache dtype (vLLM sparse attention indexer)."""


def read_latent(fields: Fields, *, top: Fields | None = None, towers: tuple[Tower, ...] = ()) -> ModelShape:
    """A DeepSeek-like shape."""
    layers = layer_count(fields, "num_hidden_layers")
    hidden = fields.need("hidden_size")
    routed, dense = _mlps(fields, hidden)
    first_dense = fields.number("first_k_dense_replace", 0)
    full = _mixer(fields, hidden, indexed=bool(fields.maybe("index_head_dim")))
    kinds = fields.words("indexer_types")
    shared = _mixer(fields, hidden, indexed=False) if "shared" in kinds else full
    blocks: list[Layer] = []
    made: dict[tuple[int, int], Layer] = {}
    for index in range(layers):
        mixer = shared if index < len(kinds) and kinds[index] == "shared" else full
        mlp = routed if routed and index >= first_dense else dense
        key = (id(mixer), id(mlp))
        made.setdefault(key, Layer(mixer, mlp, 2 * hidden))
        blocks.append(made[key])
    return assemble(
        fields,
        blocks,
        hidden=hidden,
        vocabulary=fields.need("vocab_size"),
        tied=fields.flag("tie_word_embeddings", default=False),
        final_norm=hidden,
        context=fields.maybe("max_position_embeddings"),
        towers=towers,
        draft_layers=fields.maybe("num_nextn_predict_layers") or 0,
        top=top,
    )


def read_kimi_k25(fields: Fields) -> ModelShape:
    """Kimi K2.5 and later: a DeepSeek-V3 block with a vision tower."""
    towers = (kimi_tower(fields.child("vision_config")),) if fields.config.get("vision_config") else ()
    return read_latent(fields.child("text_config"), top=fields, towers=towers)


def _mixer(fields: Fields, hidden: int, *, indexed: bool) -> Mixer:
    query_rank = fields.maybe("q_lora_rank") or 0
    index: tuple[Matrix, ...] = ()
    cache = None
    extra = 0
    if indexed:
        width = fields.need("index_head_dim")
        heads = fields.need("index_n_heads")
        index = (
            Matrix("index_q", query_rank or hidden, heads * width, Split.NONE),
            Matrix("index_k", hidden, width, Split.NONE),
            Matrix("index_weights", hidden, heads, Split.NONE),
        )
        cache = TokenCache(1, width, fixed_bytes_per_element=INDEX_BYTES_PER_ELEMENT)
        extra = 2 * width
    return latent_attention(
        hidden,
        fields.need("num_attention_heads"),
        query_rank=query_rank,
        latent=fields.need("kv_lora_rank"),
        nope=fields.need("qk_nope_head_dim"),
        rope=fields.need("qk_rope_head_dim"),
        value_dim=fields.need("v_head_dim"),
        index=index,
        index_cache=cache,
        extra_vectors=extra,
    )


def _mlps(fields: Fields, hidden: int) -> tuple[Mlp | None, Mlp]:
    """Routed MLP (``None`` in a dense model) and dense MLP."""
    dense = dense_mlp(hidden, fields.need("intermediate_size"))
    experts = fields.maybe("n_routed_experts") or 0
    if not experts:
        return None, dense
    width = fields.need("moe_intermediate_size")
    routed = expert_mlp(
        hidden,
        width,
        experts,
        fields.need("num_experts_per_tok"),
        shared_width=width * (fields.maybe("n_shared_experts") or 0),
        router_bias=fields.config.get("topk_method", "noaux_tc") == "noaux_tc",
    )
    return routed, dense
