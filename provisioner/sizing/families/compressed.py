"""DeepSeek-V4: attention over compressed keys with a short window, shared key and value head, routed experts, hyper-connections.

Source: config fields and the model class of Hugging Face transformers 5.24; the cache layout follows the ratios of the
config (``compress_ratios``: one entry per 4 or per 128 tokens, 0 = window only), one 512-wide entry for keys and values.
"""

from __future__ import annotations

from provisioner.sizing.families.assemble import assemble, layer_count
from provisioner.sizing.families.attention import expert_mlp
from provisioner.sizing.families.fields import Fields
from provisioner.sizing.families.latent import INDEX_BYTES_PER_ELEMENT
from provisioner.sizing.shapes import Cache, Layer, Matrix, Mixer, ModelShape, Split, TokenCache

INDEXED_RATIO = 4
"""Layers that compress four tokens into one pick entries with an index; heavier compression reads all entries."""


def read_deepseek_v4(fields: Fields) -> ModelShape:
    """A DeepSeek-V4 shape."""
    layers = layer_count(fields, "num_hidden_layers")
    hidden = fields.need("hidden_size")
    ratios = [int(word) for word in fields.words("compress_ratios")][:layers]
    if len(ratios) < layers:
        fields.missing.append("compress_ratios")
        ratios = [0] * layers
    width = fields.need("moe_intermediate_size")
    mlp = expert_mlp(
        hidden,
        width,
        fields.need("n_routed_experts"),
        fields.need("num_experts_per_tok"),
        shared_width=width * fields.number("n_shared_experts", 1),
        router_bias=True,
    )
    streams = fields.number("hc_mult", 4)
    # Each of the two halves of a block mixes hc_mult residual streams with a small matrix of its own.
    mixing = 2 * (streams * hidden * (2 + streams) * streams + (2 + streams) * streams + 3)
    made = {ratio: Layer(_mixer(fields, hidden, ratio), mlp, 2 * hidden + mixing) for ratio in sorted(set(ratios))}
    blocks = [made[ratio] for ratio in ratios]
    return assemble(
        fields,
        blocks,
        hidden=hidden,
        vocabulary=fields.need("vocab_size"),
        tied=fields.flag("tie_word_embeddings", default=False),
        final_norm=hidden,
        context=fields.maybe("max_position_embeddings"),
        draft_layers=fields.maybe("num_nextn_predict_layers") or 0,
    )


def _mixer(fields: Fields, hidden: int, ratio: int) -> Mixer:
    heads = fields.need("num_attention_heads")
    head_dim = fields.need("head_dim")
    query_rank = fields.need("q_lora_rank")
    groups = fields.need("o_groups")
    output_rank = fields.need("o_lora_rank")
    fields.require_divisible("num_attention_heads", heads, "o_groups", groups)
    matrices = [
        Matrix("q_a_proj", hidden, query_rank, Split.NONE),
        Matrix("q_b_proj", query_rank, heads * head_dim),
        Matrix("kv_proj", hidden, head_dim, Split.NONE),
        Matrix("o_a_proj", heads * head_dim // groups, groups * output_rank),
        Matrix("o_b_proj", groups * output_rank, hidden, Split.ROW),
    ]
    caches: list[Cache] = [TokenCache(1, head_dim, fields.need("sliding_window"), is_latent=True)]
    if ratio:
        overlap = 2 if ratio == INDEXED_RATIO else 1
        matrices += [
            Matrix("compress_kv", hidden, overlap * head_dim, Split.NONE),
            Matrix("compress_gate", hidden, overlap * head_dim, Split.NONE),
        ]
        caches.append(TokenCache(1, head_dim, tokens_per_entry=ratio, is_latent=True))
    if ratio == INDEXED_RATIO:
        index_dim = fields.need("index_head_dim")
        index_heads = fields.need("index_n_heads")
        matrices += [
            Matrix("index_q", query_rank, index_heads * index_dim, Split.NONE),
            Matrix("index_compress_kv", hidden, 2 * index_dim, Split.NONE),
            Matrix("index_compress_gate", hidden, 2 * index_dim, Split.NONE),
            Matrix("index_weights", hidden, index_heads, Split.NONE),
        ]
        caches.append(TokenCache(1, index_dim, tokens_per_entry=ratio, fixed_bytes_per_element=INDEX_BYTES_PER_ELEMENT))
    return Mixer(
        kind="compressed",
        heads=heads,
        kv_heads=0,
        head_dim=head_dim,
        value_dim=head_dim,
        matrices=tuple(matrices),
        vector_params=query_rank + 2 * head_dim + heads,
        caches=tuple(caches),
    )
