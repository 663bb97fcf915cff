"""The longest context of a model: from its config, its rotary scaling, and the corrected index."""

from __future__ import annotations

import pytest

from provisioner.sizing.families.context import context_limit
from provisioner.sizing.models import find_model, shape_from_config

LLAMA = {
    "model_type": "llama",
    "hidden_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "intermediate_size": 128,
    "vocab_size": 256,
    "max_position_embeddings": 4096,
}
YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32768}


@pytest.mark.parametrize(
    ("stated", "config", "tokens"),
    [
        (None, {"rope_scaling": YARN}, None),
        (4096, {}, 4096),
        (4096, {"rope_scaling": None}, 4096),
        (4096, {"rope_scaling": {"type": "linear", "factor": 8}}, 32768),
        (4096, {"rope_scaling": {"rope_type": "dynamic", "factor": 2.0}}, 8192),
        (32768, {"rope_scaling": YARN}, 131072),
        (131072, {"rope_scaling": YARN}, 131072),
        (163840, {"rope_scaling": {"type": "yarn", "factor": 40, "original_max_position_embeddings": 4096}}, 163840),
        (131072, {"rope_scaling": {"rope_type": "llama3", "factor": 8.0, "original_max_position_embeddings": 8192}}, 131072),
        (131072, {"rope_scaling": {"type": "longrope", "factor": 32}}, 131072),
        (32768, {"rope_scaling": {"type": "mrope", "mrope_section": [16, 24, 24]}}, 32768),
        (4096, {"rope_parameters": {"rope_type": "default", "rope_theta": 10000.0}}, 4096),
        (4096, {"rope_parameters": {"full_attention": YARN, "sliding_attention": {"rope_type": "default"}}}, 131072),
        (131072, {"model_type": "gemma3_text", "rope_scaling": {"rope_type": "linear", "factor": 8.0}}, 131072),
        (4096, {"rope_scaling": {"type": "linear", "factor": True}}, 4096),
        (4096, {"rope_scaling": {"type": "linear", "factor": float("inf")}}, 4096),
        (4096, {"rope_scaling": "yarn"}, 4096),
    ],
)  # fmt: skip
def test_scaling_stretches_what_is_stated(stated, config, tokens):
    assert context_limit(stated, config) == tokens


def test_a_config_of_the_users_own_is_stretched():
    scaled = LLAMA | {"rope_scaling": {"type": "linear", "factor": 8.0}}
    assert shape_from_config(LLAMA, "own").max_context_tokens == 4096
    assert shape_from_config(scaled, "own").max_context_tokens == 32768


@pytest.mark.parametrize(
    ("model", "tokens"),
    [
        ("meta-llama/Llama-2-7b-hf", 4096),
        ("meta-llama/Llama-2-70b-hf", 4096),
        ("google/gemma-7b", 8192),
        ("codellama/CodeLlama-13b-Instruct-hf", 16384),
        ("togethercomputer/LLaMA-2-7B-32K", 32768),
        ("mistralai/Mistral-7B-Instruct-v0.1", 32768),
        ("meta-llama/Llama-3.1-8B-Instruct", 131072),
        ("deepseek-ai/DeepSeek-V3", 163840),
        ("openai/gpt-oss-20b", 131072),
    ],
)
def test_bundled_models_have_their_published_limit(model, tokens):
    assert find_model(model).max_context_tokens == tokens
