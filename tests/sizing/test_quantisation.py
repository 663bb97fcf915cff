"""Formats with their true bits, and what the quantisation sections of configs cover."""

from __future__ import annotations

import pytest

from provisioner.errors import UsageError
from provisioner.sizing.quantisation import (
    BITS_PER_WEIGHT,
    LINEAR_PARTS,
    bits_of,
    condense,
    read_quantisation,
)


def read(section, *, is_moe=False, is_latent=False, **config):
    return read_quantisation({"quantization_config": section, **config}, is_moe=is_moe, is_latent=is_latent)


@pytest.mark.parametrize(
    ("word", "bits"),
    [
        ("bf16", 16),
        ("fp8", 8),
        ("nf4", 4.5),
        ("nf4-double", 4.127),
        ("mxfp4", 4.25),
        ("nvfp4", 4.5),
        ("int4-awq", 4.156),
        ("gguf-q4_k_m", 4.9),
        ("gguf-Q8_0", 8.51),
    ],
)
def test_bits_hold_scales(word, bits):
    assert bits_of(word) == pytest.approx(bits, abs=0.001)


@pytest.mark.parametrize("word", ["int3", "gguf-q9", "", "FP8"])
def test_unknown_formats_are_refused_with_the_known(word):
    with pytest.raises(UsageError) as caught:
        bits_of(word)
    assert "use one of" in str(caught.value.remedy)


def test_every_format_has_bits_between_one_and_32():
    assert all(1 < bits <= 32 for bits in BITS_PER_WEIGHT.values())


def test_wide_checkpoints_have_none():
    assert read_quantisation({}, is_moe=False, is_latent=False) is None


@pytest.mark.parametrize(
    ("section", "name"),
    [
        ({"quant_method": "awq", "bits": 4, "group_size": 128}, "int4-awq"),
        ({"quant_method": "gptq", "bits": 4}, "int4-gptq"),
        ({"quant_method": "gptq", "bits": 8}, "int8-gptq"),
        ({"quant_method": "bitsandbytes", "load_in_4bit": True}, "nf4"),
        ({"quant_method": "bitsandbytes", "load_in_4bit": True, "bnb_4bit_use_double_quant": True}, "nf4-double"),
        ({"quant_method": "bitsandbytes", "load_in_8bit": True}, "int8"),
        ({"quant_method": "fp8", "weight_block_size": [128, 128]}, "fp8-block"),
        ({"quant_method": "fp8"}, "fp8"),
        (
            {
                "quant_method": "compressed-tensors",
                "config_groups": {"g": {"weights": {"num_bits": 8, "type": "float"}}},
            },
            "fp8",
        ),
        (
            {"quant_method": "compressed-tensors", "config_groups": {"g": {"weights": {"num_bits": 4, "type": "int"}}}},
            "int4-gptq",
        ),
    ],
)
def test_methods_that_cover_all_linear_layers(section, name):
    found = read(section)
    assert found is not None
    assert dict(found.formats) == dict.fromkeys(LINEAR_PARTS, name)


def test_mxfp4_covers_experts_alone():
    found = read({"quant_method": "mxfp4"}, is_moe=True)
    assert found is not None
    assert dict(found.formats) == {"expert": "mxfp4"}


def test_parts_on_the_list_of_exceptions_stay_wide():
    found = read(
        {"quant_method": "fp8", "modules_to_not_convert": ["lm_head", "re:.*self_attn", "model.layers.3.mlp.down_proj"]}
    )
    assert found is not None
    assert found.format_of("attention") is None
    # A single layer's matrix does not make a part wide.
    assert found.format_of("mlp") == "fp8"


def test_mixed_checkpoints_list_their_layers():
    found = read(
        {
            "quant_method": "modelopt",
            "quant_algo": "MIXED_PRECISION",
            "quantized_layers": {
                "model.layers.0.self_attn.q_proj": {"quant_algo": "FP8"},
                "model.layers.0.mlp.experts.0.up_proj": {"quant_algo": "NVFP4"},
            },
        },
        is_moe=True,
    )
    assert found is not None
    assert dict(found.formats) == {"attention": "fp8", "expert": "nvfp4"}


def test_a_narrow_cache_is_asked_for():
    group = {"g": {"weights": {"num_bits": 4, "type": "float", "group_size": 16}}}
    found = read(
        {"quant_method": "modelopt", "config_groups": group, "kv_cache_scheme": {"num_bits": 8, "type": "float"}}
    )
    assert found is not None
    assert found.kv_dtype == "fp8"


def test_unknown_methods_are_refused_by_name():
    with pytest.raises(UsageError, match="'aqlm'"):
        read({"quant_method": "aqlm"})


def test_the_short_form_reads_back_equal():
    section = {"quant_method": "fp8", "weight_block_size": [128, 128], "modules_to_not_convert": ["lm_head"]}
    config = {"quantization_config": section}
    short = condense(config, is_moe=True, is_latent=True)
    assert short is not None
    again = read_quantisation({"quantization_config": short}, is_moe=True, is_latent=True)
    assert again == read_quantisation(config, is_moe=True, is_latent=True)
