"""Arithmetic of weights and caches on published configs: sums that were done by hand beforehand."""

from __future__ import annotations

from dataclasses import replace

import pytest

from provisioner.sizing.audio import cache_bytes
from provisioner.sizing.demand import AudioDemand
from provisioner.sizing.kv_cache import stack_cache_bytes, state_cache_bytes
from provisioner.sizing.models import find_model
from provisioner.sizing.pipelines import PipelineShape
from provisioner.sizing.quantisation import Quantisation
from provisioner.sizing.shapes import ModelShape, StateCache, TokenCache
from provisioner.sizing.weights import draft_bytes, total_weight_bytes
from provisioner.units import GIB, MIB


def gib(size: float) -> float:
    return size / GIB


def cache(model: ModelShape, tokens: int, width: float = 2.0, tensor: int = 1) -> float:
    return stack_cache_bytes(model, model.counts, tokens, width, tensor)


def token_bytes(model: ModelShape, tensor: int = 1) -> float:
    """Bytes that one more token of a long context costs on one rank."""
    return (cache(model, 160_000, tensor=tensor) - cache(model, 159_984, tensor=tensor)) / 16


def without_recurrent_state(model: ModelShape) -> ModelShape:
    kinds = []
    for kind in model.kinds:
        kept = tuple(item for item in kind.mixer.caches if isinstance(item, TokenCache))
        kinds.append(replace(kind, mixer=replace(kind.mixer, caches=kept)))
    return replace(model, kinds=tuple(kinds))


def test_q1_a_dense_model_in_16_bit():
    model = find_model("meta-llama/Llama-3.1-8B-Instruct")
    assert gib(total_weight_bytes(model)) == pytest.approx(14.96, abs=0.005)
    assert gib(cache(model, 8192)) == pytest.approx(1.00)
    assert gib(32 * cache(model, 8192)) == pytest.approx(32.0)


def test_q2_fp8_covers_linear_layers_only():
    model = find_model("meta-llama/Meta-Llama-3-70B-Instruct")
    assert gib(total_weight_bytes(model, "fp8")) == pytest.approx(67.67, abs=0.01)
    assert gib(16 * cache(model, 32_768)) == pytest.approx(160)
    assert gib(16 * cache(model, 32_768, width=1.0)) == pytest.approx(80)


def test_q3_all_experts_are_in_memory():
    model = find_model("mistralai/Mixtral-8x7B-Instruct-v0.1")
    assert gib(total_weight_bytes(model)) == pytest.approx(86.99, abs=0.01)
    assert gib(cache(model, 8192)) == pytest.approx(1.00)


def test_q4_latent_attention_stands_whole_on_every_rank():
    model = find_model("deepseek-ai/DeepSeek-V3")
    loaded = total_weight_bytes(model) + draft_bytes(model, "auto", 1)
    # The checkpoint stores embedding and head a second time for its draft layer; engines load them once.
    stored = loaded + 2 * (model.embedding_params + model.head_params)
    assert gib(stored) == pytest.approx(641.3, abs=0.2)
    for tensor in (1, 2, 8):
        assert gib(64 * cache(model, 8192, tensor=tensor)) == pytest.approx(34.31, abs=0.005)


def test_q5_alternating_windows():
    model = find_model("google/gemma-2-27b-it")
    assert gib(total_weight_bytes(model)) == pytest.approx(50.71, abs=0.01)
    assert gib(32 * cache(model, 8192)) == pytest.approx(69.0)


def test_q5b_five_local_layers_to_one_global():
    model = find_model("google/gemma-3-27b-it")
    assert gib(total_weight_bytes(model)) == pytest.approx(51.10, abs=0.01)
    assert gib(total_weight_bytes(replace(model, towers=()))) == pytest.approx(50.31, abs=0.01)
    assert gib(32 * cache(model, 8192)) == pytest.approx(33.0)


def test_q6_weights_of_a_training():
    assert gib(total_weight_bytes(find_model("Qwen/Qwen2.5-7B-Instruct"))) == pytest.approx(14.19, abs=0.005)


def test_q8_to_q10_parts_of_pipelines():
    sizes = {
        "stabilityai/stable-diffusion-xl-base-1.0": 6.46,
        "black-forest-labs/FLUX.1-dev": 31.42,
        "openai/whisper-large-v3": 2.87,
    }
    for name, expected in sizes.items():
        assert gib(2 * find_model(name).params_total) == pytest.approx(expected, abs=0.01), name


def test_q11_mxfp4_experts_and_short_windows():
    model = find_model("openai/gpt-oss-120b")
    assert gib(total_weight_bytes(model)) == pytest.approx(60.77, abs=0.05)
    assert gib(cache(model, 8192)) == pytest.approx(0.286, abs=0.0005)


def test_q12_keys_on_every_fourth_layer_and_a_state_per_sequence():
    model = find_model("Qwen/Qwen3-Next-80B-A3B-Instruct")
    assert gib(total_weight_bytes(model)) == pytest.approx(148.4, abs=0.1)
    tokens_only = without_recurrent_state(model)
    assert gib(cache(tokens_only, 8192)) == pytest.approx(0.1875)
    states = [
        (count, item)
        for count, kind in zip(model.counts, model.kinds, strict=True)
        for item in kind.mixer.caches
        if isinstance(item, StateCache)
    ]
    recurrent = sum(count * 4 * item.recurrent_elements for count, item in states)
    assert gib(recurrent) == pytest.approx(0.0703, abs=0.0005)
    whole = sum(count * state_cache_bytes(item, 1) for count, item in states)
    assert gib(whole - recurrent) == pytest.approx(0.002, abs=0.0005)
    # The state does not depend on the length.
    assert cache(model, 8192) - cache(tokens_only, 8192) == cache(model, 131_072) - cache(tokens_only, 131_072)


def test_key_value_heads_fewer_than_ranks_are_repeated():
    model = find_model("Qwen/Qwen3-235B-A22B")
    assert token_bytes(model, 1) == 192_512
    assert token_bytes(model, 4) == 48_128
    assert token_bytes(model, 8) == 48_128


def test_latent_cache_of_a_small_model():
    assert token_bytes(find_model("deepseek-ai/DeepSeek-V2-Lite")) == 31_104


def test_attention_without_grouping_is_dear():
    assert gib(cache(find_model("microsoft/Phi-3.5-mini-instruct"), 131_072)) == pytest.approx(48.0)
    assert token_bytes(find_model("Qwen/Qwen1.5-72B-Chat")) == 2.5 * MIB


def test_state_of_a_hybrid_with_32_value_heads():
    model = find_model("Qwen/Qwen3.5-9B")
    states = [
        count * 4 * (item.recurrent_elements + item.conv_elements)
        for count, kind in zip(model.counts, model.kinds, strict=True)
        for item in kind.mixer.caches
        if isinstance(item, StateCache)
    ]
    assert sum(states) / MIB == pytest.approx(50.25)


def test_whisper_keeps_the_encoder_once_and_its_own_tokens_per_beam():
    model = find_model("openai/whisper-large-v3")
    assert isinstance(model, PipelineShape)
    one = cache_bytes(AudioDemand(model, "auto", 30.0, batch=1, beams=1))
    five = cache_bytes(AudioDemand(model, "auto", 30.0, batch=1, beams=5))
    assert (five - one) / 4 / MIB == pytest.approx(70)
    assert (one - 70 * MIB) / MIB == pytest.approx(234, abs=0.5)


def test_embeddings_and_heads_stay_wide():
    model = find_model("meta-llama/Llama-3.1-8B-Instruct")
    wide = 2 * (model.embedding_params + model.head_params)
    for word, bits in {"fp8": 8, "int4-awq": 4.15625, "nvfp4": 4.5}.items():
        linear = sum(
            count * (kind.mixer.matrix_params + kind.mlp.matrix_params)
            for count, kind in zip(model.counts, model.kinds, strict=True)
        )
        norms = 2 * (model.params_total - linear - model.embedding_params - model.head_params)
        assert total_weight_bytes(model, word) == pytest.approx(linear * bits / 8 + wide + norms, rel=1e-6)


def test_published_formats_are_read_from_the_checkpoint():
    model = find_model("openai/gpt-oss-20b")
    assert model.quantisation == Quantisation("mxfp4", (("expert", "mxfp4"),))
    assert total_weight_bytes(model) < total_weight_bytes(model, "bf16") / 2.5
