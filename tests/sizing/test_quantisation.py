"""Formats with their true bits, and what the quantisation sections of configs cover."""

from __future__ import annotations

import pytest

from provisioner.errors import UsageError
from provisioner.sizing.models import find_model
from provisioner.sizing.quantisation import (
    BITS_PER_WEIGHT,
    LINEAR_PARTS,
    bits_of,
    condense,
    read_quantisation,
)
from provisioner.sizing.weights import total_weight_bytes
from provisioner.workload.patterns import GGUF_TYPES


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
        ({"quant_method": "gptq", "bits": 4, "group_size": 32}, "int4-group32"),
        ({"quant_method": "awq", "w_bit": 4, "q_group_size": 64}, "int4-group64"),
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


def test_every_gguf_type_of_a_spec_is_sized():
    shape = find_model("meta-llama/Llama-3.1-8B-Instruct")
    moe = find_model("Qwen/Qwen3-30B-A3B")
    for kind in GGUF_TYPES:
        for model in (shape, moe):
            size = total_weight_bytes(model, f"gguf-{kind}")
            assert model.params_total * 1.1 / 8 < size <= model.params_total * 32.1 / 8, kind


def test_gguf_types_in_the_order_of_their_size():
    names = [
        "q2_k_s",
        "q2_k",
        "q3_k_s",
        "q3_k_m",
        "q3_k_l",
        "q4_0",
        "q4_k_s",
        "q4_k_m",
        "q5_k_s",
        "q5_k_m",
        "q6_k",
        "q8_0",
        "f16",
        "f32",
    ]
    bits = [bits_of(f"gguf-{name}") for name in names]
    assert bits == sorted(bits)
    imatrix = [
        bits_of(f"gguf-iq{name}")
        for name in ["1_s", "1_m", "2_xxs", "2_xs", "2_s", "2_m", "3_xxs", "3_xs", "3_s", "3_m", "4_xs", "4_nl"]
    ]
    assert imatrix == sorted(imatrix)
    for alias in ("q3_k", "q4_k", "q5_k"):
        assert bits_of(f"gguf-{alias}") == bits_of(f"gguf-{alias}_m")


def test_mxfp4_files_keep_eight_bits_beside_the_experts():
    model = find_model("openai/gpt-oss-20b")
    experts = sum(
        n * kind.mlp.experts * kind.mlp.expert_params for n, kind in zip(model.counts, model.kinds, strict=True)
    )
    size = total_weight_bytes(model, "gguf-MXFP4_MOE")
    rest = model.params_total - experts
    assert size == pytest.approx(experts * 4.25 / 8 + rest * 8.51 / 8, rel=0.02)


def test_a_quantised_head_is_read():
    plain = read({"quant_method": "gptq", "bits": 4})
    with_head = read({"quant_method": "gptq", "bits": 4, "lm_head": True})
    assert plain is not None
    assert with_head is not None
    assert plain.format_of("head") is None
    assert with_head.format_of("head") == "int4-gptq"


@pytest.mark.parametrize("key", ["modules_to_not_convert", "llm_int8_skip_modules", "ignore"])
def test_parts_that_stay_wide_under_any_key(key):
    found = read({"quant_method": "bitsandbytes", "load_in_8bit": True, key: ["lm_head", "model.layers.*.self_attn"]})
    assert found is not None
    assert found.format_of("attention") is None
    assert found.format_of("mlp") == "int8"
    assert read({"quant_method": "awq", key: True}) is not None
