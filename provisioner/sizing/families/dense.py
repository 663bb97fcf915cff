"""Decoder families with the Llama block: rotary attention, RMS or layer norms, gated or plain MLP, dense or routed.

Source: the model classes of Hugging Face transformers 5.24, whose parameter counts the bundled index holds.
"""

from __future__ import annotations

from provisioner.records import record
from provisioner.sizing.families.assemble import assemble, layer_count
from provisioner.sizing.families.attention import dense_mlp, expert_mlp, grouped_attention
from provisioner.sizing.families.fields import Fields
from provisioner.sizing.shapes import Layer, Mixer, Mlp, ModelShape, Tower


@record(frozen=True, slots=True)
class Traits:
    """How a family departs from Llama's block; ``None`` for a bias means: as ``attention_bias`` says, default no."""

    qkv_bias: bool | None = None
    output_bias: bool | None = None
    mlp_bias: bool | None = None
    gated: bool = True
    norms: int = 2
    norm_width: int = 1
    """2 where norms have a bias beside the weight, 0 where they have no parameters."""
    query_norm: str = "none"
    """``head`` (one of head_dim for all), ``heads`` (one each) or ``full`` (over the whole projection)."""
    tied: bool = False
    window: str = "config"
    """``config`` (``sliding_window`` wherever it is stated), ``switch`` (only where ``use_sliding_window`` is true), or ``none``."""
    mlp_width_divisor: int = 1
    router_bias: bool = False


FAMILIES = {
    "llama": Traits(),
    "mistral": Traits(),
    "ministral3": Traits(),
    "mixtral": Traits(),
    "phi3": Traits(),
    "phi3_v": Traits(),
    "phimoe": Traits(norm_width=2),
    "baichuan": Traits(),
    "internlm": Traits(qkv_bias=True, output_bias=True),
    "internlm2": Traits(),
    "internlm3": Traits(),
    "orion": Traits(norm_width=2),
    "qwen": Traits(qkv_bias=True, output_bias=False, mlp_width_divisor=2),
    "qwen2": Traits(qkv_bias=True, output_bias=False, window="switch"),
    "qwen2_moe": Traits(qkv_bias=True, output_bias=False, window="switch"),
    "qwen2_vl": Traits(qkv_bias=True, output_bias=False, window="switch"),
    "qwen2_5_vl": Traits(qkv_bias=True, output_bias=False, window="switch"),
    "mimo": Traits(qkv_bias=True, output_bias=False, window="switch"),
    "qwen3": Traits(query_norm="head", window="switch"),
    "qwen3_moe": Traits(query_norm="head", window="switch"),
    "qwen3_vl": Traits(query_norm="head", window="switch"),
    "qwen3_vl_moe": Traits(query_norm="head", window="switch"),
    "gemma": Traits(tied=True),
    "granite": Traits(tied=True),
    "granitemoe": Traits(tied=True),
    "exaone4": Traits(query_norm="head"),
    "glm": Traits(qkv_bias=True, output_bias=False),
    "glm4": Traits(qkv_bias=True, output_bias=False, norms=4),
    "glm4_moe": Traits(output_bias=False, router_bias=True),
    "smollm3": Traits(tied=True, window="switch"),
    "seed_oss": Traits(output_bias=False),
    "olmo": Traits(norm_width=0),
    "olmo2": Traits(query_norm="full"),
    "olmo3": Traits(query_norm="full"),
    "olmoe": Traits(query_norm="full"),
    "cohere": Traits(norms=1, query_norm="heads-optional", tied=True),
    "cohere2": Traits(norms=1, tied=True),
    "stablelm": Traits(norm_width=2, query_norm="none"),
    "starcoder2": Traits(qkv_bias=True, output_bias=True, mlp_bias=True, gated=False, norm_width=2, tied=True),
    "minimax_m2": Traits(query_norm="full", router_bias=True),
    "nemotron": Traits(gated=False, norm_width=2),
}


def read_dense(fields: Fields, *, top: Fields | None = None, towers: tuple[Tower, ...] = ()) -> ModelShape:
    """A shape of one of ``FAMILIES``."""
    family = fields.family.removesuffix("_text")
    traits = FAMILIES[family]
    layers = layer_count(fields, "num_hidden_layers", "n_layer", "num_layers")
    hidden = fields.need("hidden_size", "d_model")
    norm_unit = hidden * traits.norm_width
    norms = traits.norms
    if family == "stablelm" and fields.flag("use_parallel_residual", default=False):
        norms = 1
    windows = _windows(fields, traits, layers)
    mixers = {window: _mixer(fields, traits, hidden, window) for window in set(windows)}
    mlps = _mlps(fields, traits, hidden, layers)
    cache: dict[tuple[int | None, int], Layer] = {}
    blocks = []
    for window, mlp in zip(windows, mlps, strict=True):
        key = (window, id(mlp))
        if key not in cache:
            cache[key] = Layer(mixers[window], mlp, norms * norm_unit)
        blocks.append(cache[key])
    tied = fields.flag("tie_word_embeddings", default=traits.tied)
    if top is not None and "tie_word_embeddings" in top.config and "tie_word_embeddings" not in fields.config:
        tied = top.flag("tie_word_embeddings", default=traits.tied)
    return assemble(
        fields,
        blocks,
        hidden=hidden,
        vocabulary=fields.need("vocab_size", "padded_vocab_size"),
        tied=tied,
        final_norm=norm_unit,
        context=fields.maybe("max_position_embeddings", "max_sequence_length", "seq_length", "n_positions"),
        towers=towers,
        draft_layers=fields.maybe("num_nextn_predict_layers", "mtp_num_hidden_layers") or 0,
        top=top,
    )


def _mixer(fields: Fields, traits: Traits, hidden: int, window: int | None) -> Mixer:
    heads = fields.need("num_attention_heads", "n_head")
    kv_heads = fields.maybe("num_key_value_heads", "num_kv_heads") or heads
    fields.require_divisible("num_attention_heads", heads, "num_key_value_heads", kv_heads)
    head_dim = fields.maybe("head_dim", "kv_channels")
    if head_dim is None:
        fields.require_divisible("hidden_size", hidden, "num_attention_heads", heads)
        head_dim = hidden // heads
    stated = fields.flag("attention_bias", default=False) or fields.flag("use_qkv_bias", default=False)
    return grouped_attention(
        hidden,
        heads,
        kv_heads,
        head_dim,
        window=window,
        qkv_bias=stated if traits.qkv_bias is None else traits.qkv_bias,
        output_bias=fields.flag("attention_out_bias", default=False)
        or (fields.flag("attention_bias", default=False) if traits.output_bias is None else traits.output_bias),
        extra_vectors=_query_norm(fields, traits, heads, kv_heads, head_dim),
    )


def _query_norm(fields: Fields, traits: Traits, heads: int, kv_heads: int, head_dim: int) -> int:
    if traits.query_norm == "head":
        return 2 * head_dim
    if traits.query_norm == "full":
        return (heads + kv_heads) * head_dim
    wanted = fields.flag("use_qk_norm", default=False) or fields.flag("qk_layernorm", default=False)
    if not wanted:
        return 0
    return (heads + kv_heads) * head_dim if traits.query_norm == "heads-optional" else 2 * head_dim


def _windows(fields: Fields, traits: Traits, layers: int) -> list[int | None]:
    """Window of each layer, ``None`` for full attention."""
    window = fields.maybe("sliding_window")
    kinds = fields.words("layer_types")
    if not window or (traits.window == "switch" and not fields.flag("use_sliding_window", default=False)):
        return [None] * layers
    if len(kinds) == layers:
        return [window if kind == "sliding_attention" else None for kind in kinds]
    if traits.window == "switch":
        full = fields.number("max_window_layers", layers)
        return [window if index >= full else None for index in range(layers)]
    if fields.family == "cohere2":
        every = fields.number("sliding_window_pattern", 4)
        return [None if (index + 1) % every == 0 else window for index in range(layers)]
    limit = fields.maybe("max_position_embeddings")
    return [None if limit and window >= limit else window] * layers


def _mlps(fields: Fields, traits: Traits, hidden: int, layers: int) -> list[Mlp]:
    """MLP of each layer: dense, or routed where the config says so."""
    experts = fields.maybe("num_experts", "num_local_experts", "n_routed_experts", "moe_num_experts") or 0
    bias = fields.flag("mlp_bias", default=False) if traits.mlp_bias is None else traits.mlp_bias
    if not experts:
        width = fields.need("intermediate_size", "ffn_hidden_size") // traits.mlp_width_divisor
        return [dense_mlp(hidden, width, gated=traits.gated, bias=bias)] * layers
    routed = _routed(fields, traits, hidden, experts)
    first_dense = fields.number("first_k_dense_replace", 0)
    step = fields.number("decoder_sparse_step", 1) or 1
    stated = fields.config.get("mlp_only_layers")
    dense_layers = set(stated) if isinstance(stated, list) else set()
    choices = [
        index >= first_dense and index not in dense_layers and (index + 1) % step == 0 for index in range(layers)
    ]
    if all(choices):
        return [routed] * layers
    dense = dense_mlp(hidden, fields.need("intermediate_size"), gated=traits.gated, bias=bias)
    return [routed if is_routed else dense for is_routed in choices]


def _routed(fields: Fields, traits: Traits, hidden: int, experts: int) -> Mlp:
    width = fields.need("moe_intermediate_size", "intermediate_size")
    shared = fields.maybe("shared_expert_intermediate_size") or (fields.maybe("n_shared_experts") or 0) * width
    return expert_mlp(
        hidden,
        width,
        experts,
        fields.need("num_experts_per_tok", "experts_per_token", "top_k_experts", "moe_topk"),
        shared_width=shared,
        gated=traits.gated,
        router_bias=traits.router_bias,
        shared_gate=bool(fields.maybe("shared_expert_intermediate_size")),
    )
