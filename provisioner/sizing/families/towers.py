"""Vision towers in front of language models: parameters counted from their section of the config.

A tower is a stack of plain transformer blocks, a patch embedding, a position table and a projector; each family differs in
the projector. Source: the model classes of Hugging Face transformers 5.24.
"""

from __future__ import annotations

from provisioner.sizing.families.fields import Fields
from provisioner.sizing.shapes import ImageLayout, ImageRule, Tower


def _blocks(
    layers: int, hidden: int, width: int, *, gated: bool = False, bias: bool = True, norm_width: int = 2
) -> int:
    """Parameters of plain blocks: four attention projections, an MLP, two norms."""
    matrices = 4 * hidden * hidden + (3 if gated else 2) * hidden * width
    biases = (4 * hidden + hidden + (2 if gated else 1) * width) if bias else 0
    return layers * (matrices + biases + 2 * norm_width * hidden)


def qwen_tower(fields: Fields, text_hidden: int) -> Tower:
    """Qwen-VL's tower: blocks, a learned position grid, mergers of 2 x 2 patches (one more for each deep-stacked level)."""
    hidden = fields.need("hidden_size", "embed_dim")
    layers = fields.need("depth", "num_hidden_layers")
    width = fields.maybe("intermediate_size") or 4 * hidden
    patch = fields.number("patch_size", 16)
    merge = fields.number("spatial_merge_size", 2)
    output = fields.maybe("out_hidden_size") or text_hidden
    wide = hidden * merge * merge
    patch_embedding = fields.number("in_channels", 3) * fields.number("temporal_patch_size", 2) * patch**2 * hidden
    merger = wide * wide + wide + wide * output + output
    levels = len(fields.words("deepstack_visual_indexes"))
    params = (
        _blocks(layers, hidden, width, gated=fields.family == "qwen2_5_vl")
        + patch_embedding
        + hidden
        + fields.number("num_position_embeddings", 0) * hidden
        + merger
        + 2 * hidden
        + levels * (merger + 2 * wide)
    )
    is_older = fields.family in ("qwen2_vl", "qwen2_5_vl")
    rule = ImageRule(
        ImageLayout.GRID,
        "image processor of Qwen-VL (smart_resize); preprocessor_config.json of the published models",
        extra_tokens=2,
        least_pixels=56 * 56 if is_older else 65_536,
        most_pixels=16_384 * (patch * merge) ** 2,
        levels=1 + levels,
    )
    return Tower("image", params, layers, hidden, width, patch, merge, rule)


def gemma4_tower(fields: Fields, text_hidden: int) -> Tower:
    """Gemma 4's tower: gated blocks with four norms and per-head norms, pooled, then one projection."""
    hidden = fields.need("hidden_size")
    layers = fields.need("num_hidden_layers")
    width = fields.need("intermediate_size")
    patch = fields.number("patch_size", 16)
    head_dim = fields.number("head_dim", 64)
    block = 4 * hidden * hidden + 3 * hidden * width + 4 * hidden + 2 * head_dim
    positions = 2 * fields.number("position_embedding_size", 0) * hidden
    params = layers * block + 3 * patch**2 * hidden + positions + 2 * hidden + hidden * text_hidden
    pooling = fields.number("pooling_kernel_size", 3)
    tokens = fields.number("default_output_length", 280)
    rule = ImageRule(
        ImageLayout.FIXED,
        "vision_config.default_output_length of Gemma 4",
        extra_tokens=2,
        tokens=tokens,
        patches=tokens * pooling**2,
    )
    return Tower("image", params, layers, hidden, width, patch, pooling, rule)


GEMMA3_IMAGE_TOKENS = 256


def siglip_tower(fields: Fields, text_hidden: int) -> Tower:
    """SigLIP as Gemma 3 uses it: plain blocks, learned positions, average pooling, one projection."""
    hidden = fields.need("hidden_size")
    layers = fields.need("num_hidden_layers")
    width = fields.need("intermediate_size")
    patch = fields.number("patch_size", 14)
    positions = (fields.number("image_size", 896) // patch) ** 2
    embedding = (3 * patch**2 + 1 + positions) * hidden
    params = _blocks(layers, hidden, width) + embedding + 2 * hidden + hidden * (text_hidden + 1)
    rule = ImageRule(
        ImageLayout.FIXED,
        "Gemma 3 pools every image to 256 tokens (transformers Gemma3Processor, image_seq_length)",
        extra_tokens=4,
        tokens=GEMMA3_IMAGE_TOKENS,
        patches=positions,
    )
    return Tower("image", params, layers, hidden, width, patch, 4, rule)


def pixtral_tower(fields: Fields, text_hidden: int, merge: int) -> Tower:
    """Pixtral's tower: gated blocks without biases, rotary positions, a merger and a two-layer projector."""
    hidden = fields.need("hidden_size")
    layers = fields.need("num_hidden_layers")
    width = fields.need("intermediate_size")
    patch = fields.number("patch_size", 14)
    block = _blocks(layers, hidden, width, gated=True, bias=False, norm_width=1)
    projector = hidden * merge**2 * hidden + hidden + hidden * text_hidden + text_hidden**2
    params = block + 3 * patch**2 * hidden + hidden + projector
    rule = ImageRule(
        ImageLayout.ROWS,
        "Pixtral's processor: longest side image_size, one break token a row (transformers PixtralProcessor)",
        tile_side=fields.number("image_size", 1540),
    )
    return Tower("image", params, layers, hidden, width, patch, merge, rule)


def kimi_tower(fields: Fields) -> Tower:
    """Kimi's MoonViT: blocks, a learned position grid, a two-layer merger of 2 x 2 patches."""
    hidden = fields.need("vt_hidden_size")
    layers = fields.need("vt_num_hidden_layers")
    width = fields.need("vt_intermediate_size")
    patch = fields.number("patch_size", 14)
    text_hidden = fields.need("text_hidden_size")
    wide = fields.number("mm_hidden_size", hidden) * 4
    grid = fields.number("init_pos_emb_height", 64) * fields.number("init_pos_emb_width", 64)
    bias = fields.flag("linear_bias", default=True)
    params = (
        _blocks(layers, hidden, width, bias=bias)
        + (3 * patch**2 + 1) * hidden
        + grid * hidden
        + 2 * hidden
        + wide * wide
        + wide
        + wide * text_hidden
        + text_hidden
        + 2 * hidden
    )
    rule = ImageRule(
        ImageLayout.GRID,
        "MoonViT's processor: at most in_patch_limit patches (moonshotai Kimi-K2.5 preprocessor_config.json)",
        extra_tokens=3,
        most_pixels=16_384 * patch**2,
    )
    return Tower("image", params, layers, hidden, width, patch, 2, rule)


def clip_tower(fields: Fields, text_hidden: int, projector_width: int, merge: int) -> Tower:
    """A CLIP-style tower with rotary positions, a two-layer projector and a two-layer patch merger."""
    hidden = fields.need("hidden_size")
    layers = fields.need("num_hidden_layers")
    width = fields.need("intermediate_size")
    patch = fields.number("patch_size", 14)
    projector = hidden * projector_width + projector_width + projector_width * text_hidden + text_hidden
    merger = merge**2 * text_hidden * projector_width + projector_width + projector_width * text_hidden + text_hidden
    params = _blocks(layers, hidden, width) + 6 * patch**2 * hidden + 4 * hidden + projector + merger
    rule = ImageRule(
        ImageLayout.GRID,
        "images up to vision_config.image_size squared at their own size; an assumption from the rotary tower",
        extra_tokens=2,
        most_pixels=fields.number("image_size", 2016) ** 2,
    )
    return Tower("image", params, layers, hidden, width, patch, merge, rule)


def mllama_tower(fields: Fields, text_hidden: int) -> Tower:
    """Llama 3.2's tower: local and gated global blocks, tile and position tables, one projection of stacked features."""
    hidden = fields.need("hidden_size")
    layers = fields.need("num_hidden_layers") + fields.number("num_global_layers", 8)
    width = fields.need("intermediate_size")
    patch = fields.number("patch_size", 14)
    tiles = fields.number("max_num_tiles", 4)
    side = fields.number("image_size", 448) // patch
    ratios = 9
    positions = (side**2 + 1) * hidden * (1 + ratios * tiles) + 2 * ratios * tiles * hidden
    block = layers * (4 * hidden * hidden + 2 * hidden * width + width + hidden + 4 * hidden)
    stacked = fields.number("vision_output_dim", 7680)
    projector = stacked * text_hidden + text_hidden
    params = block + 3 * patch**2 * hidden + positions + 5 * hidden + projector
    rule = ImageRule(
        ImageLayout.CROSS,
        "Llama 3.2 Vision: tiles of image_size, each with a class token, in cross-attention (transformers MllamaProcessor)",
        extra_tokens=1,
        tokens=side**2 + 1,
        patches=side**2 + 1,
        tile_side=side * patch,
        tiles_most=tiles,
    )
    return Tower("image", params, layers, hidden, width, patch, images=rule)


def llama4_tower(fields: Fields, text_hidden: int) -> Tower:
    """Llama 4's tower: blocks with biases, pixel shuffle of 2 x 2, a two-layer adapter and a projection.

    The published sizes stand in where the config has no vision section (meta-llama/Llama-4-Scout-17B-16E config.json).
    """
    hidden = fields.number("hidden_size", 1408)
    layers = fields.number("num_hidden_layers", 34)
    width = fields.number("intermediate_size", 5632)
    patch = fields.number("patch_size", 14)
    side = fields.number("image_size", 336) // patch
    adapter = fields.number("projector_output_dim", 4096)
    positions = (side**2 + 1) * hidden
    projector = 4 * hidden * adapter + adapter * adapter + adapter * text_hidden
    params = _blocks(layers, hidden, width) + 3 * patch**2 * hidden + positions + 5 * hidden + projector
    rule = ImageRule(
        ImageLayout.TILES,
        "Llama 4: tiles of image_size, at most 16, a global view and a separator each (transformers Llama4Processor)",
        extra_tokens=3,
        tokens=side**2 // 4 + 1,
        patches=side**2,
        tile_side=side * patch,
        tiles_most=16,
    )
    return Tower("image", params, layers, hidden, width, patch, 2, rule)


PHI_LAYERS, PHI_HIDDEN, PHI_WIDTH, PHI_PATCH, PHI_SIDE = 24, 1024, 4096, 14, 24
"""CLIP ViT-L/14 at 336 pixels, which Phi-3 Vision's config names and does not spell out (openai/clip-vit-large-patch14-336)."""


def phi3_tower(text_hidden: int) -> Tower:
    """Phi-3 Vision's tower: CLIP, pairs of 2 x 2 patches, a two-layer projector."""
    positions = (PHI_SIDE**2 + 1) * PHI_HIDDEN
    wide = 4 * PHI_HIDDEN
    projector = wide * text_hidden + text_hidden + text_hidden**2 + text_hidden + 2 * wide
    embedding = 3 * PHI_PATCH**2 * PHI_HIDDEN + PHI_HIDDEN + positions + 4 * PHI_HIDDEN
    rule = ImageRule(
        ImageLayout.TILES,
        "Phi-3 Vision: tiles of 336 pixels with 144 tokens and a separator a row, a global view (processing_phi3_v.py)",
        extra_tokens=1,
        tokens=12 * 12 + 12,
        patches=PHI_SIDE**2,
        tile_side=PHI_SIDE * PHI_PATCH,
        tiles_most=16,
    )
    params = _blocks(PHI_LAYERS, PHI_HIDDEN, PHI_WIDTH) + embedding + projector
    return Tower("image", params, PHI_LAYERS, PHI_HIDDEN, PHI_WIDTH, PHI_PATCH, 2, rule)
