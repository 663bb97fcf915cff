"""Images in a request: tokens by each family's own rule, the tower's working memory, cross-attention."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from provisioner.sizing.estimate import estimate_footprint
from provisioner.sizing.layout import Layout
from provisioner.sizing.models import find_model, known_models, shape_from_config
from provisioner.sizing.multimodal import image_cost, image_tower, largest_pixels
from provisioner.vocabulary import Engine

MEGAPIXEL = 1024 * 1024


def cost(model, pixels):
    tower = image_tower(find_model(model) if isinstance(model, str) else model)
    assert tower is not None
    return image_cost(tower, pixels)


@pytest.mark.parametrize(
    ("model", "pixels", "tokens", "patches"),
    [
        # 1024 / 32 = 32 merged patches a side, and two marks.
        ("Qwen/Qwen3-VL-8B-Instruct", MEGAPIXEL, 32 * 32 + 2, 64 * 64),
        ("Qwen/Qwen3.5-27B", MEGAPIXEL, 32 * 32 + 2, 64 * 64),
        # Below the least of 65,536 pixels an image is enlarged to it: 8 x 8.
        ("Qwen/Qwen3-VL-8B-Instruct", 100, 8 * 8 + 2, 16 * 16),
        ("Qwen/Qwen3-VL-8B-Instruct", 10**9, 16_384 + 2, 65_536),
        # Always 256 of 896 x 896, with marks and line breaks around.
        ("google/gemma-3-12b-it", 64, 260, 4096),
        ("google/gemma-3-12b-it", 10**8, 260, 4096),
        ("google/gemma-4-26B-A4B", MEGAPIXEL, 282, 2520),
        # 1024 / 28 = 37 rows with a break token each.
        ("mistralai/Ministral-3-3B-2512", MEGAPIXEL, 37 * 38, 74 * 74),
        # The longest side is 1540: 55 rows.
        ("mistralai/Ministral-3-3B-2512", 10**8, 55 * 56, 110 * 110),
        # 4 x 4 tiles of 336, and the whole image: 17 x 145 tokens.
        ("meta-llama/Llama-4-Scout-17B-16E-Instruct", MEGAPIXEL, 17 * 145 + 3, 17 * 576),
        ("meta-llama/Llama-4-Scout-17B-16E-Instruct", 336 * 336, 145 + 3, 576),
        # 4 x 4 tiles of 336 again, 144 tokens and a row of separators each.
        ("microsoft/Phi-3.5-vision-instruct", MEGAPIXEL, 17 * 156 + 1, 17 * 576),
        # Kimi: 1024 / 28 = 37.
        ("moonshotai/Kimi-K2.5", MEGAPIXEL, 37 * 37 + 3, 74 * 74),
    ],
)
def test_tokens_and_patches_of_each_family(model, pixels, tokens, patches):
    found = cost(model, pixels)
    assert (found.tokens, found.patches, found.cross_tokens) == (tokens, patches, 0)


def test_cross_attention_takes_one_token_and_keeps_tiles():
    found = cost("meta-llama/Llama-3.2-11B-Vision", MEGAPIXEL)
    assert (found.tokens, found.cross_tokens) == (1, 4 * (32 * 32 + 1))
    assert cost("meta-llama/Llama-3.2-11B-Vision", 448 * 448).cross_tokens == 32 * 32 + 1


@pytest.mark.parametrize("family", ["qwen2_vl", "qwen2_5_vl"])
def test_older_qwen_vision(family):
    config = {
        "model_type": family,
        "hidden_size": 3584,
        "intermediate_size": 18944,
        "num_hidden_layers": 28,
        "num_attention_heads": 28,
        "num_key_value_heads": 4,
        "vocab_size": 152064,
        "vision_config": {
            "depth": 32,
            "embed_dim": 1280,
            "hidden_size": 1280,
            "patch_size": 14,
            "spatial_merge_size": 2,
        },
    }
    assert cost(shape_from_config(config, "x"), 1008 * 1008).tokens == 36 * 36 + 2
    limited = {
        **config,
        "gpuprov_preprocessor": {"max_pixels": 28 * 28 * 1280},
        "gpuprov_checkpoint": {"id": "x", "files": 0},
    }
    assert cost(shape_from_config(limited, "x"), 10**8).tokens <= 1280 + 2 + 36


def test_every_bundled_tower_has_a_rule():
    for known in known_models():
        assert known.shape is not None
        for tower in known.shape.towers:
            assert tower.images is not None, known.id
            found = image_cost(tower, MEGAPIXEL)
            assert 0 < found.tokens < 20_000, known.id
            assert found.patches > 0
            assert largest_pixels(tower) > 0


TOWERS = sorted({each.shape.family: each.id for each in known_models() if each.shape and each.shape.towers}.values())


@given(st.sampled_from(TOWERS), st.integers(1, 10**8), st.integers(0, 10**8))
def test_larger_images_never_cost_less(model, pixels, more):
    small, large = cost(model, pixels), cost(model, pixels + more)
    assert large.tokens >= small.tokens
    assert large.patches >= small.patches
    assert large.cross_tokens >= small.cross_tokens


def test_images_need_working_memory(serving, gpu):
    card = gpu("H100-SXM-80GB")
    plain = serving("Qwen/Qwen3-VL-8B-Instruct", context_tokens=32_768)
    text = estimate_footprint(plain, Layout(), card).per_gpu
    one = estimate_footprint(replace(plain, images=1, image_pixels=MEGAPIXEL), Layout(), card).per_gpu
    assert one.activation_bytes > text.activation_bytes
    assert one.kv_cache_bytes == text.kv_cache_bytes
    none = estimate_footprint(replace(plain, images=0), Layout(), card).per_gpu
    assert none.total_bytes == text.total_bytes


def test_generate_holds_the_images_of_all_requests(serving, gpu):
    card = gpu("H100-SXM-80GB")
    few = serving(
        "google/gemma-3-4b-it",
        engine=Engine.TRANSFORMERS,
        engine_version=None,
        images=1,
        image_pixels=MEGAPIXEL,
        concurrency=1,
    )
    many = replace(few, images=16, concurrency=8)
    more = estimate_footprint(many, Layout(), card).per_gpu.activation_bytes
    assert more > 20 * estimate_footprint(few, Layout(), card).per_gpu.activation_bytes


def test_cross_attention_caches_images_not_text(serving, gpu):
    card = gpu("H100-SXM-80GB")
    unsaid = serving("meta-llama/Llama-3.2-11B-Vision", context_tokens=65_536)
    per_gpu = [
        estimate_footprint(demand, Layout(), card).per_gpu.kv_cache_bytes
        for demand in (replace(unsaid, images=0), replace(unsaid, images=1, image_pixels=MEGAPIXEL), unsaid)
    ]
    assert per_gpu[0] < per_gpu[1] < per_gpu[2]
    # 8 layers of 8 heads of 128, keys and values, 16 bit, 4,100 positions in blocks of 16.
    assert per_gpu[1] - per_gpu[0] == 8 * 2 * 8 * 128 * 2 * 4112
