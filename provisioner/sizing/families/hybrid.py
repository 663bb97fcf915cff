"""Families that mix attention with recurrences or skip it: Qwen3-Next and 3.5, Nemotron-H, Kimi Linear, Nemotron-NAS.

Source: the model classes of Hugging Face transformers 5.24 and of the model repositories; state sizes as in vLLM's
``mamba_utils`` (recurrent state per head, convolution tail of kernel - 1 columns).
"""

from __future__ import annotations

from typing import Any

from provisioner.errors import UsageError
from provisioner.sizing.families.assemble import assemble, layer_count
from provisioner.sizing.families.attention import (
    dense_mlp,
    expert_mlp,
    grouped_attention,
    latent_attention,
    mlp_matrices,
)
from provisioner.sizing.families.fields import Fields
from provisioner.sizing.families.towers import kimi_tower, qwen_tower
from provisioner.sizing.shapes import Layer, Matrix, Mixer, Mlp, ModelShape, Split, StateCache


def read_qwen_hybrid(fields: Fields) -> ModelShape:
    """Qwen3-Next and Qwen3.5: three gated delta-rule layers to one gated full-attention layer, dense or routed MLP."""
    text = fields.child("text_config") if "text_config" in fields.config else fields
    layers = layer_count(text, "num_hidden_layers")
    hidden = text.need("hidden_size")
    mlp = _qwen_mlp(text, hidden)
    head_dim = text.need("head_dim")
    full = grouped_attention(
        hidden,
        text.need("num_attention_heads"),
        text.need("num_key_value_heads"),
        head_dim,
        extra_vectors=2 * head_dim,
        gated=text.flag("attn_output_gate", default=True),
    )
    linear = _delta_rule(text, hidden)
    kinds = text.words("layer_types")
    every = text.number("full_attention_interval", 4) or 4
    blocks = {True: Layer(full, mlp, 2 * hidden), False: Layer(linear, mlp, 2 * hidden)}
    pattern = [
        kinds[index] == "full_attention" if len(kinds) == layers else (index + 1) % every == 0
        for index in range(layers)
    ]
    return assemble(
        text,
        [blocks[is_full] for is_full in pattern],
        hidden=hidden,
        vocabulary=text.need("vocab_size"),
        tied=fields.flag("tie_word_embeddings", default=text.flag("tie_word_embeddings", default=False)),
        final_norm=hidden,
        context=text.maybe("max_position_embeddings"),
        towers=(qwen_tower(fields.child("vision_config"), hidden),) if fields.config.get("vision_config") else (),
        draft_layers=text.maybe("mtp_num_hidden_layers", "num_nextn_predict_layers") or 0,
        top=fields,
    )


def _qwen_mlp(text: Fields, hidden: int) -> Mlp:
    experts = text.maybe("num_experts") or 0
    if not experts:
        return dense_mlp(hidden, text.need("intermediate_size"))
    return expert_mlp(
        hidden,
        text.need("moe_intermediate_size"),
        experts,
        text.need("num_experts_per_tok"),
        shared_width=text.need("shared_expert_intermediate_size"),
        shared_gate=True,
    )


def _delta_rule(text: Fields, hidden: int) -> Mixer:
    """Gated delta-rule layer: state of value heads x key x value sizes, a short convolution over queries, keys and values."""
    key_heads = text.need("linear_num_key_heads")
    value_heads = text.need("linear_num_value_heads")
    key_dim = text.need("linear_key_head_dim")
    value_dim = text.need("linear_value_head_dim")
    kernel = text.number("linear_conv_kernel_dim", 4)
    keys = key_heads * key_dim
    values = value_heads * value_dim
    channels = 2 * keys + values
    return Mixer(
        kind="linear",
        heads=value_heads,
        head_dim=key_dim,
        value_dim=value_dim,
        matrices=(
            Matrix("in_proj_qkvz", hidden, channels + values),
            Matrix("in_proj_ba", hidden, 2 * value_heads),
            Matrix("out_proj", values, hidden, Split.ROW),
        ),
        vector_params=channels * kernel + 2 * value_heads + value_dim,
        caches=(StateCache(value_heads, value_heads * key_dim * value_dim, channels * (kernel - 1)),),
    )


def read_nemotron_h(fields: Fields) -> ModelShape:
    """Nemotron-H: one mixer or one MLP per layer (M = Mamba-2, * = attention, E = experts, - = MLP)."""
    pattern = _nemotron_pattern(fields)
    hidden = fields.need("hidden_size")
    made = {symbol: _nemotron_layer(fields, symbol, hidden) for symbol in sorted(set(pattern))}
    return assemble(
        fields,
        [made[symbol] for symbol in pattern],
        hidden=hidden,
        vocabulary=fields.need("vocab_size"),
        tied=fields.flag("tie_word_embeddings", default=False),
        final_norm=hidden,
        context=fields.maybe("max_position_embeddings"),
    )


_NEMOTRON_SYMBOLS = {"mamba": "M", "attention": "*", "moe": "E", "mlp": "-"}


def _nemotron_pattern(fields: Fields) -> str:
    """One symbol a layer, from the compact text of older configs or the list of newer ones."""
    pattern = str(fields.config.get("hybrid_override_pattern") or "")
    if not pattern:
        words = fields.words("layers_block_type")
        unknown = sorted(set(words) - set(_NEMOTRON_SYMBOLS))
        if unknown:
            raise UsageError(f"{fields.model_id}: layers_block_type has {', '.join(unknown)}, which is not modelled")
        pattern = "".join(_NEMOTRON_SYMBOLS[word] for word in words)
    if not pattern:
        fields.missing.append("hybrid_override_pattern or layers_block_type")
    return pattern


def _nemotron_layer(fields: Fields, symbol: str, hidden: int) -> Layer:
    nothing = Mixer("none")
    if symbol == "M":
        return Layer(_mamba2(fields, hidden), Mlp(), hidden)
    if symbol == "*":
        heads = fields.need("num_attention_heads")
        mixer = grouped_attention(
            hidden, heads, fields.need("num_key_value_heads"), fields.maybe("head_dim") or hidden // heads
        )
        return Layer(mixer, Mlp(), hidden)
    if symbol == "-":
        return Layer(nothing, dense_mlp(hidden, fields.need("intermediate_size"), gated=False), hidden)
    if symbol == "E":
        return Layer(nothing, _nemotron_experts(fields, hidden), hidden)
    raise UsageError(
        f"{fields.model_id}: hybrid_override_pattern has {symbol!r}, which is not modelled (M, *, - and E are)"
    )


def _nemotron_experts(fields: Fields, hidden: int) -> Mlp:
    experts = fields.need("n_routed_experts")
    latent = fields.maybe("moe_latent_size") or hidden
    projections = (
        ()
        if latent == hidden
        else (
            Matrix("latent_down", hidden, latent, Split.NONE),
            Matrix("latent_up", latent, hidden, Split.NONE),
        )
    )
    shared = mlp_matrices(hidden, fields.need("moe_shared_expert_intermediate_size"), gated=False)
    return Mlp(
        matrices=(*shared, *projections),
        expert_matrices=mlp_matrices(latent, fields.need("moe_intermediate_size"), gated=False),
        experts=experts,
        experts_per_token=fields.need("num_experts_per_tok"),
        router_params=hidden * experts,
        vector_params=experts,
    )


def _mamba2(fields: Fields, hidden: int) -> Mixer:
    """Mamba-2: state of heads x head size x state size, a convolution over the inner width and the group vectors."""
    heads = fields.need("mamba_num_heads", "mamba_n_heads")
    head_dim = fields.need("mamba_head_dim", "mamba_d_head")
    groups = fields.need("n_groups", "mamba_n_groups")
    state = fields.need("ssm_state_size", "mamba_d_state")
    kernel = fields.number("conv_kernel", 4)
    inner = heads * head_dim
    channels = inner + 2 * groups * state
    return Mixer(
        kind="mamba",
        heads=heads,
        head_dim=head_dim,
        value_dim=state,
        matrices=(
            Matrix("in_proj", hidden, inner + channels + heads),
            Matrix("out_proj", inner, hidden, Split.ROW),
        ),
        vector_params=channels * (kernel + 1) + 3 * heads + inner,
        caches=(StateCache(heads, inner * state, channels * (kernel - 1)),),
    )


def read_kimi_linear(fields: Fields) -> ModelShape:
    """Kimi Linear (Kimi K3): three delta-attention layers to one latent-attention layer, routed experts in a narrower space."""
    text = fields.child("text_config") if "text_config" in fields.config else fields
    layers = layer_count(text, "num_hidden_layers")
    hidden = text.need("hidden_size")
    linear = text.child("linear_attn_config")
    full_layers = set(linear.words("full_attn_layers"))
    heads = text.need("num_attention_heads")
    value_dim = text.need("v_head_dim")
    gate = (Matrix("g_proj", hidden, heads * value_dim),) if text.flag("mla_use_output_gate", default=False) else ()
    latent = latent_attention(
        hidden,
        heads,
        query_rank=text.maybe("q_lora_rank") or 0,
        latent=text.need("kv_lora_rank"),
        nope=text.need("qk_nope_head_dim"),
        rope=text.need("qk_rope_head_dim"),
        value_dim=value_dim,
        extra=gate,
    )
    delta = _kimi_delta(linear, hidden)
    dense = dense_mlp(hidden, text.need("intermediate_size"))
    routed = _kimi_experts(text, hidden)
    first_dense = text.number("first_k_dense_replace", 0)
    made: dict[tuple[bool, bool], Layer] = {}
    blocks = []
    for index in range(layers):
        key = (str(index + 1) in full_layers, index >= first_dense)
        made.setdefault(key, Layer(latent if key[0] else delta, routed if key[1] else dense, 2 * hidden))
        blocks.append(made[key])
    return assemble(
        text,
        blocks,
        hidden=hidden,
        vocabulary=text.need("vocab_size"),
        tied=text.flag("tie_word_embeddings", default=False),
        final_norm=hidden,
        context=text.maybe("max_position_embeddings"),
        towers=(kimi_tower(fields.child("vision_config")),) if fields.config.get("vision_config") else (),
        top=fields,
    )


def _kimi_experts(text: Fields, hidden: int) -> Mlp:
    experts = text.need("num_experts", "n_routed_experts")
    width = text.need("moe_intermediate_size")
    latent = text.maybe("routed_expert_hidden_size") or hidden
    projections = (
        ()
        if latent == hidden
        else (
            Matrix("latent_down", hidden, latent, Split.NONE),
            Matrix("latent_up", latent, hidden, Split.NONE),
        )
    )
    shared = mlp_matrices(hidden, width * text.number("num_shared_experts", 0))
    return Mlp(
        matrices=(*shared, *projections),
        expert_matrices=mlp_matrices(latent, width),
        experts=experts,
        experts_per_token=text.need("num_experts_per_token", "num_experts_per_tok"),
        router_params=hidden * experts,
        vector_params=experts + latent,
    )


def _kimi_delta(linear: Fields, hidden: int) -> Mixer:
    """Kimi delta attention: queries, keys and values of equal size, low-rank or full gates, state per head."""
    heads = linear.need("num_heads")
    head_dim = linear.need("head_dim")
    kernel = linear.number("short_conv_kernel_size", 4)
    width = heads * head_dim
    full_rank = linear.flag("use_full_rank_gate", default=False)
    gate = (
        (Matrix("g_proj", hidden, width),)
        if full_rank
        else (Matrix("g_a_proj", hidden, head_dim, Split.NONE), Matrix("g_b_proj", head_dim, width))
    )
    return Mixer(
        kind="linear",
        heads=heads,
        head_dim=head_dim,
        value_dim=head_dim,
        matrices=(
            Matrix("qkv_proj", hidden, 3 * width),
            Matrix("f_a_proj", hidden, head_dim, Split.NONE),
            Matrix("f_b_proj", head_dim, width),
            Matrix("b_proj", hidden, heads),
            *gate,
            Matrix("o_proj", width, hidden, Split.ROW),
        ),
        vector_params=3 * width * kernel + 2 * width + head_dim,
        caches=(StateCache(heads, width * head_dim, 3 * width * (kernel - 1)),),
    )


def read_nemotron_nas(fields: Fields) -> ModelShape:
    """Nemotron-NAS (DeciLM): each block states its own head grouping and MLP width, or that it skips one of them."""
    hidden = fields.need("hidden_size")
    heads = fields.need("num_attention_heads")
    blocks = fields.config.get("block_configs")
    if not isinstance(blocks, list) or not blocks:
        fields.missing.append("block_configs")
        blocks = []
    fields.require_divisible("hidden_size", hidden, "num_attention_heads", heads)
    layers = [_nas_layer(block, hidden, heads, fields.model_id) for block in blocks]
    return assemble(
        fields,
        layers,
        hidden=hidden,
        vocabulary=fields.need("vocab_size"),
        tied=fields.flag("tie_word_embeddings", default=False),
        final_norm=hidden,
        context=fields.maybe("max_position_embeddings"),
    )


def _nas_layer(block: Any, hidden: int, heads: int, model_id: str) -> Layer:
    attention, mlp = dict(block.get("attention") or {}), dict(block.get("ffn") or {})
    norms = 0
    mixer, feed = Mixer("none"), Mlp()
    if attention.get("replace_with_linear") or mlp.get("replace_with_linear"):
        raise UsageError(f"{model_id}: block_configs with replace_with_linear are not modelled")
    if not attention.get("no_op"):
        group = int(attention.get("n_heads_in_group") or 1)
        mixer = grouped_attention(hidden, heads, heads // group, hidden // heads)
        norms += hidden
    if not mlp.get("no_op"):
        width = int(2 * float(mlp.get("ffn_mult") or 0) * hidden / 3)
        feed = dense_mlp(hidden, -(-width // 256) * 256)
        norms += hidden
    return Layer(mixer, feed, norms)
