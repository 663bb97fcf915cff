"""Older decoder families: GPT-2, GPT-NeoX, GPT-J, OPT, BLOOM, Falcon, MPT, SantaCoder, Phi-1, ChatGLM.

Source: the model classes of Hugging Face transformers 5.24, whose parameter counts the bundled index holds.
"""

from __future__ import annotations

from collections.abc import Callable

from provisioner.sizing.families.assemble import assemble, layer_count
from provisioner.sizing.families.attention import dense_mlp, grouped_attention
from provisioner.sizing.families.fields import Fields
from provisioner.sizing.shapes import Layer, ModelShape

DEFAULT_POSITIONS = 1024
"""Rows of the position table where the config is silent (class default of GPT-2 and its kin)."""


def _shape(
    fields: Fields,
    *,
    hidden: int,
    heads: int,
    width: int,
    kv_heads: int | None = None,
    qkv_bias: bool = True,
    output_bias: bool = True,
    mlp_bias: bool = True,
    norms: int = 2,
    norm_width: int = 2,
    tied: bool = True,
    positions: int = 0,
    embedding_extra: int = 0,
    head_bias: bool = False,
    final_norm: bool = True,
) -> ModelShape:
    """A stack of equal blocks with an ungated MLP."""
    fields.require_divisible("hidden size", hidden, "attention heads", heads)
    mixer = grouped_attention(
        hidden, heads, kv_heads or heads, hidden // heads, qkv_bias=qkv_bias, output_bias=output_bias
    )
    layer = Layer(mixer, dense_mlp(hidden, width, gated=False, bias=mlp_bias), norms * norm_width * hidden)
    return assemble(
        fields,
        [layer] * layer_count(fields, "num_hidden_layers", "n_layer", "num_layers", "n_layers"),
        hidden=hidden,
        vocabulary=fields.need("vocab_size"),
        tied=tied,
        embedding_extra=positions * hidden + embedding_extra,
        head_bias=head_bias,
        final_norm=norm_width * hidden if final_norm else 0,
        context=fields.maybe("max_position_embeddings", "n_positions", "n_ctx", "max_seq_len", "seq_length"),
    )


def read_gpt2(fields: Fields) -> ModelShape:
    """GPT-2 and its kin: learned positions, tied, biases everywhere."""
    hidden = fields.need("n_embd", "hidden_size")
    width = fields.maybe("n_inner") or 4 * hidden
    multi_query = fields.family == "gpt_bigcode" and fields.flag("multi_query", default=True)
    return _shape(
        fields,
        hidden=hidden,
        heads=fields.need("n_head", "num_attention_heads"),
        kv_heads=1 if multi_query else None,
        width=width,
        positions=fields.number("n_positions", fields.number("n_ctx", DEFAULT_POSITIONS)),
    )


def read_gpt_neox(fields: Fields) -> ModelShape:
    """GPT-NeoX and Pythia: biases everywhere, untied."""
    bias = fields.flag("attention_bias", default=True)
    return _shape(
        fields,
        hidden=fields.need("hidden_size"),
        heads=fields.need("num_attention_heads"),
        width=fields.need("intermediate_size"),
        qkv_bias=bias,
        output_bias=bias,
        tied=fields.flag("tie_word_embeddings", default=False),
    )


def read_gptj(fields: Fields) -> ModelShape:
    """GPT-J: one norm for attention and MLP, no attention bias, head with bias."""
    hidden = fields.need("n_embd")
    return _shape(
        fields,
        hidden=hidden,
        heads=fields.need("n_head"),
        width=fields.maybe("n_inner") or 4 * hidden,
        qkv_bias=False,
        output_bias=False,
        norms=1,
        tied=False,
        head_bias=True,
    )


def read_opt(fields: Fields) -> ModelShape:
    """OPT: learned positions with two spare rows, biases everywhere, tied; the 350M one embeds into a narrower space."""
    hidden = fields.need("hidden_size")
    vocabulary = fields.need("vocab_size")
    narrow = fields.maybe("word_embed_proj_dim") or hidden
    extra = 0 if narrow == hidden else narrow * vocabulary + 2 * narrow * hidden - hidden * vocabulary
    return _shape(
        fields,
        hidden=hidden,
        heads=fields.need("num_attention_heads"),
        width=fields.need("ffn_dim"),
        positions=fields.need("max_position_embeddings") + 2,
        embedding_extra=extra,
        final_norm=fields.flag("do_layer_norm_before", default=True),
    )


def read_bloom(fields: Fields) -> ModelShape:
    """BLOOM: linear biases instead of positions, a norm after the embedding, tied."""
    hidden = fields.need("hidden_size", "n_embed")
    return _shape(
        fields,
        hidden=hidden,
        heads=fields.need("num_attention_heads", "n_head"),
        width=4 * hidden,
        embedding_extra=2 * hidden,
    )


def read_falcon(fields: Fields) -> ModelShape:
    """Falcon: multi-query or grouped attention, parallel blocks, tied."""
    hidden = fields.need("hidden_size")
    heads = fields.need("num_attention_heads", "n_head")
    new = fields.flag("new_decoder_architecture", default=False)
    kv_heads = fields.maybe("num_kv_heads", "num_key_value_heads", "n_head_kv") if new else None
    if kv_heads is None:
        kv_heads = 1 if fields.flag("multi_query", default=True) else heads
    bias = fields.flag("bias", default=False)
    norms = 2 if new or not fields.flag("parallel_attn", default=True) else 1
    return _shape(
        fields,
        hidden=hidden,
        heads=heads,
        kv_heads=kv_heads,
        width=fields.maybe("ffn_hidden_size", "intermediate_size") or 4 * hidden,
        qkv_bias=bias,
        output_bias=bias,
        mlp_bias=bias,
        norms=norms,
        tied=fields.flag("tie_word_embeddings", default=True),
    )


def read_mpt(fields: Fields) -> ModelShape:
    """MPT: no biases, norms without bias, tied; learned positions unless ALiBi is on."""
    hidden = fields.need("d_model")
    attention = fields.config.get("attn_config")
    alibi = isinstance(attention, dict) and bool(attention.get("alibi"))
    bias = not fields.flag("no_bias", default=True)
    return _shape(
        fields,
        hidden=hidden,
        heads=fields.need("n_heads"),
        width=fields.number("expansion_ratio", 4) * hidden,
        qkv_bias=bias,
        output_bias=bias,
        mlp_bias=bias,
        norm_width=2 if bias else 1,
        positions=0 if alibi else fields.number("max_seq_len", 2048),
        tied=fields.flag("tie_word_embeddings", default=True),
    )


def read_phi(fields: Fields) -> ModelShape:
    """Phi-1 and Phi-2: one norm for attention and MLP, biases everywhere, untied head with bias."""
    hidden = fields.need("n_embd", "hidden_size")
    return _shape(
        fields,
        hidden=hidden,
        heads=fields.need("n_head", "num_attention_heads"),
        kv_heads=fields.maybe("n_head_kv", "num_key_value_heads"),
        width=fields.maybe("n_inner", "intermediate_size") or 4 * hidden,
        norms=1,
        tied=False,
        head_bias=True,
    )


def read_chatglm(fields: Fields) -> ModelShape:
    """ChatGLM: the first with biases everywhere and shared embeddings, later ones with the Llama block and grouped attention."""
    if fields.maybe("multi_query_group_num"):
        return _read_chatglm2(fields)
    return _shape(
        fields,
        hidden=fields.need("hidden_size"),
        heads=fields.need("num_attention_heads"),
        width=fields.need("inner_hidden_size"),
    )


def _read_chatglm2(fields: Fields) -> ModelShape:
    """ChatGLM2 and 3, GLM-4-9B of 2024: gated MLP, grouped attention with a bias on its inputs, untied."""
    hidden = fields.need("hidden_size")
    mixer = grouped_attention(
        hidden,
        fields.need("num_attention_heads"),
        fields.need("multi_query_group_num"),
        fields.need("kv_channels"),
        qkv_bias=fields.flag("add_qkv_bias", default=True),
    )
    layer = Layer(mixer, dense_mlp(hidden, fields.need("ffn_hidden_size")), 2 * hidden)
    return assemble(
        fields,
        [layer] * layer_count(fields, "num_layers", "num_hidden_layers"),
        hidden=hidden,
        vocabulary=fields.need("padded_vocab_size", "vocab_size"),
        tied=fields.flag("tie_word_embeddings", default=False),
        final_norm=hidden,
        context=fields.maybe("seq_length", "max_position_embeddings"),
    )


READERS: dict[str, Callable[[Fields], ModelShape]] = {
    "gpt2": read_gpt2,
    "gpt_bigcode": read_gpt2,
    "gpt_neox": read_gpt_neox,
    "gptj": read_gptj,
    "opt": read_opt,
    "bloom": read_bloom,
    "falcon": read_falcon,
    "mpt": read_mpt,
    "phi": read_phi,
    "phi-msft": read_phi,
    "chatglm": read_chatglm,
}
