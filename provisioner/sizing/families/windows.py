"""Families that mix windowed and full attention: Gemma 2, 3 and 4, gpt-oss, MiMo-V2, Step-3.7, Llama 4.

Source: the model classes of Hugging Face transformers 5.24.
"""

from __future__ import annotations

from provisioner.sizing.families.assemble import assemble, layer_count
from provisioner.sizing.families.attention import dense_mlp, expert_mlp, grouped_attention, mlp_matrices
from provisioner.sizing.families.fields import Fields
from provisioner.sizing.families.towers import gemma4_tower, llama4_tower, siglip_tower
from provisioner.sizing.shapes import ImageLayout, ImageRule, Layer, Mixer, Mlp, ModelShape, Tower


def read_gemma(fields: Fields, *, top: Fields | None = None, towers: tuple[Tower, ...] = ()) -> ModelShape:
    """Gemma 2 (window and full in turn) and Gemma 3 (five windows to one full layer)."""
    layers = layer_count(fields, "num_hidden_layers")
    hidden = fields.need("hidden_size")
    is_third = fields.family.startswith("gemma3")
    kinds = fields.words("layer_types")
    every = fields.number("sliding_window_pattern", 6 if is_third else 2)
    window = fields.need("sliding_window")
    head_dim = fields.number("head_dim", 256)
    mlp = dense_mlp(hidden, fields.need("intermediate_size"))

    def layer(size: int | None) -> Layer:
        mixer = grouped_attention(
            hidden,
            fields.need("num_attention_heads"),
            fields.need("num_key_value_heads"),
            head_dim,
            window=size,
            extra_vectors=2 * head_dim if is_third else 0,
        )
        return Layer(mixer, mlp, 4 * hidden)

    local, full = layer(window), layer(None)
    is_full = [
        kinds[index] == "full_attention" if len(kinds) == layers else (index + 1) % every == 0
        for index in range(layers)
    ]
    return assemble(
        fields,
        [full if whole else local for whole in is_full],
        hidden=hidden,
        vocabulary=fields.need("vocab_size"),
        tied=fields.flag("tie_word_embeddings", default=True),
        final_norm=hidden,
        context=fields.maybe("max_position_embeddings"),
        towers=towers,
        top=top,
    )


def read_gemma3(fields: Fields) -> ModelShape:
    """Gemma 3 with its vision tower."""
    text = fields.child("text_config")
    towers: tuple[Tower, ...] = ()
    if fields.config.get("vision_config"):
        towers = (siglip_tower(fields.child("vision_config"), text.need("hidden_size")),)
    return read_gemma(text, top=fields, towers=towers)


def read_gemma4(fields: Fields) -> ModelShape:
    """Gemma 4: windowed and full layers with head sizes of their own, experts beside a dense MLP, a vision tower."""
    text = fields.child("text_config") if "text_config" in fields.config else fields
    layers = layer_count(text, "num_hidden_layers")
    hidden = text.need("hidden_size")
    kinds = text.words("layer_types")
    mlp = _gemma4_mlp(text, hidden)
    heads = text.need("num_attention_heads")
    shared_from = layers - (text.maybe("num_kv_shared_layers") or 0)
    same = text.flag("attention_k_eq_v", default=False)
    made: dict[tuple[bool, bool], Layer] = {}
    blocks = []
    for index in range(layers):
        whole = index < len(kinds) and kinds[index] == "full_attention"
        key = (whole, index < shared_from)
        if key not in made:
            head_dim = text.number("global_head_dim", text.number("head_dim", 256)) if whole else text.need("head_dim")
            kv_heads = text.need("num_key_value_heads")
            if whole and same:
                kv_heads = text.maybe("num_global_key_value_heads") or kv_heads
            mixer = grouped_attention(
                hidden,
                heads,
                kv_heads,
                head_dim,
                window=None if whole else text.need("sliding_window"),
                extra_vectors=2 * head_dim,
                has_cache=index < shared_from,
                keys_are_values=whole and same,
            )
            norms = 7 if mlp.experts else 4
            made[key] = Layer(mixer, mlp, norms * hidden + 1)
        blocks.append(made[key])
    vision = fields.config.get("vision_config")
    narrow = text.maybe("hidden_size_per_layer_input") or 0
    per_layer = layers * narrow * text.number("vocab_size_per_layer_input", 0) if narrow else 0
    return assemble(
        text,
        blocks,
        hidden=hidden,
        vocabulary=text.need("vocab_size"),
        tied=text.flag("tie_word_embeddings", default=True),
        embedding_extra=per_layer,
        final_norm=hidden,
        context=text.maybe("max_position_embeddings"),
        towers=(gemma4_tower(fields.child("vision_config"), hidden),) if vision else (),
        top=fields,
    )


def _gemma4_mlp(text: Fields, hidden: int) -> Mlp:
    width = text.need("intermediate_size")
    experts = text.maybe("num_experts") or 0
    if not experts or not text.flag("enable_moe_block", default=False):
        return dense_mlp(hidden, width)
    return Mlp(
        matrices=mlp_matrices(hidden, width),
        expert_matrices=mlp_matrices(hidden, text.need("moe_intermediate_size", "expert_intermediate_size")),
        experts=experts,
        experts_per_token=text.need("top_k_experts", "num_experts_per_tok"),
        router_params=hidden * experts,
        vector_params=hidden + experts,
        is_dense_beside_experts=True,
    )


def read_gpt_oss(fields: Fields) -> ModelShape:
    """gpt-oss: window and full layers in turn, sinks, biases everywhere, experts with biases."""
    layers = layer_count(fields, "num_hidden_layers")
    hidden = fields.need("hidden_size")
    heads = fields.need("num_attention_heads")
    mlp = expert_mlp(
        hidden,
        fields.need("intermediate_size"),
        fields.need("num_local_experts", "num_experts"),
        fields.need("num_experts_per_tok", "experts_per_token"),
        router_bias=True,
        expert_bias=True,
    )

    def layer(window: int | None) -> Layer:
        mixer = grouped_attention(
            hidden,
            heads,
            fields.need("num_key_value_heads"),
            fields.need("head_dim"),
            window=window,
            qkv_bias=True,
            output_bias=True,
            extra_vectors=heads,
        )
        return Layer(mixer, mlp, 2 * hidden)

    local, full = layer(fields.need("sliding_window")), layer(None)
    kinds = fields.words("layer_types")
    is_full = [kinds[i] == "full_attention" if len(kinds) == layers else i % 2 == 1 for i in range(layers)]
    return assemble(
        fields,
        [full if whole else local for whole in is_full],
        hidden=hidden,
        vocabulary=fields.need("vocab_size"),
        tied=fields.flag("tie_word_embeddings", default=False),
        final_norm=hidden,
        context=fields.maybe("max_position_embeddings"),
    )


def read_mimo_v2(fields: Fields) -> ModelShape:
    """MiMo-V2: five windowed layers to one full layer, head sizes of their own, values narrower than keys, routed experts."""
    layers = layer_count(fields, "num_hidden_layers")
    hidden = fields.need("hidden_size")
    routed = expert_mlp(
        hidden,
        fields.need("moe_intermediate_size"),
        fields.need("n_routed_experts"),
        fields.need("num_experts_per_tok"),
        router_bias=True,
    )
    dense = dense_mlp(hidden, fields.need("intermediate_size"))
    heads = fields.need("num_attention_heads")
    full = grouped_attention(
        hidden,
        heads,
        fields.need("num_key_value_heads"),
        fields.need("head_dim"),
        value_dim=fields.need("v_head_dim"),
    )
    local_heads = fields.number("swa_num_attention_heads", heads)
    local = grouped_attention(
        hidden,
        local_heads,
        fields.need("swa_num_key_value_heads"),
        fields.need("swa_head_dim"),
        value_dim=fields.need("swa_v_head_dim"),
        window=fields.need("sliding_window"),
        extra_vectors=local_heads,
    )
    pattern = fields.words("hybrid_layer_pattern") or ("0",) * layers
    sparse = fields.words("moe_layer_freq") or ("1",) * layers
    return _mixed(fields, (pattern, sparse), (full, local), (dense, routed))


def _mixed(
    fields: Fields,
    switches: tuple[tuple[str, ...], tuple[str, ...]],
    mixers: tuple[Mixer, Mixer],
    mlps: tuple[Mlp, Mlp],
    towers: tuple[Tower, ...] = (),
) -> ModelShape:
    """Blocks chosen by two 0/1 lists: window or full attention, dense or routed MLP."""
    pattern, sparse = switches
    hidden = fields.need("hidden_size")
    made: dict[tuple[bool, bool], Layer] = {}
    blocks = []
    for index in range(layer_count(fields, "num_hidden_layers")):
        key = (pattern[index : index + 1] == ("1",), sparse[index : index + 1] == ("1",))
        made.setdefault(key, Layer(mixers[key[0]], mlps[key[1]], 2 * hidden))
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
    )


STEP_TOWER_PARAMS = 1_980_000_000
"""Vision tower of Step-3.7 by its class defaults; its config has no vision section (index scope note)."""


STEP_IMAGES = ImageRule(
    ImageLayout.TILES,
    "Step3-VL: tiles of 504 pixels with 81 tokens and a global view (stepfun-ai/Step3 processing_step3.py); an assumption for Step-3.7",
    extra_tokens=3,
    tokens=81 + 2,
    patches=36 * 36,
    tile_side=504,
    tiles_most=6,
)


def read_step(fields: Fields) -> ModelShape:
    """Step-3.7: one full layer to three windowed ones, gated heads, routed experts with one shared expert, a vision tower."""
    layers = layer_count(fields, "num_hidden_layers")
    hidden = fields.need("hidden_size")
    routed = expert_mlp(
        hidden,
        fields.need("moe_intermediate_size"),
        fields.need("num_experts"),
        fields.need("num_experts_per_tok"),
        shared_width=fields.need("share_expert_dim"),
        router_bias=fields.flag("use_moe_router_bias", default=True),
    )
    dense = dense_mlp(hidden, fields.need("intermediate_size"))
    head_dim = fields.need("head_dim")

    def mixer(heads: int, window: int | None) -> Mixer:
        return grouped_attention(
            hidden,
            heads,
            fields.need("num_key_value_heads"),
            head_dim,
            window=window,
            extra_vectors=2 * head_dim + hidden * heads,
        )

    heads = fields.need("num_attention_heads")
    local = mixer(heads, fields.need("sliding_window"))
    full = mixer(heads, None)
    kinds = fields.words("layer_types")
    first = fields.number("first_k_dense_replace", 0)
    pattern = tuple("1" if kinds[i : i + 1] == ("sliding_attention",) else "0" for i in range(layers))
    sparse = tuple("1" if i >= first else "0" for i in range(layers))
    tower = Tower("image", STEP_TOWER_PARAMS, 47, 1536, 8960, 14, 4, STEP_IMAGES)
    return _mixed(fields, (pattern, sparse), (full, local), (dense, routed), (tower,))


def read_llama4(fields: Fields) -> ModelShape:
    """Llama 4: chunked attention in three layers of four, routed experts in every layer or every second, a vision tower."""
    text = fields.child("text_config") if "text_config" in fields.config else fields
    layers = layer_count(text, "num_hidden_layers")
    hidden = text.need("hidden_size")
    head_dim = text.need("head_dim")
    heads = text.need("num_attention_heads")
    kv_heads = text.need("num_key_value_heads")
    width = text.need("intermediate_size")
    routed = expert_mlp(
        hidden, width, text.need("num_local_experts"), text.need("num_experts_per_tok"), shared_width=width
    )
    dense = dense_mlp(hidden, text.number("intermediate_size_mlp", width))
    chunk = text.maybe("attention_chunk_size")
    mixers = (
        grouped_attention(hidden, heads, kv_heads, head_dim),
        grouped_attention(hidden, heads, kv_heads, head_dim, window=chunk),
    )
    step = text.number("interleave_moe_layer_step", 1) or 1
    every = text.number("no_rope_layer_interval", 4) or 4
    made: dict[tuple[bool, bool], Layer] = {}
    blocks = []
    for index in range(layers):
        key = ((index + 1) % every != 0 and chunk is not None, (index + 1) % step == 0)
        made.setdefault(key, Layer(mixers[key[0]], routed if key[1] else dense, 2 * hidden))
        blocks.append(made[key])
    return assemble(
        text,
        blocks,
        hidden=hidden,
        vocabulary=text.need("vocab_size"),
        tied=text.flag("tie_word_embeddings", default=False),
        final_norm=hidden,
        context=text.maybe("max_position_embeddings"),
        towers=(llama4_tower(fields.child("vision_config"), hidden),) if text is not fields else (),
        top=fields,
    )
