"""Weight formats with their true bits, and what a published checkpoint keeps wide.

Bits include scales and zero points. A format says nothing about which parts of a model it covers: that is
``Quantisation.formats`` for a published checkpoint, or ``default_parts`` for a format asked for in a spec.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from provisioner.errors import UsageError
from provisioner.records import record

BITS_PER_WEIGHT: Mapping[str, float] = {
    "fp32": 32.0,
    "bf16": 16.0,
    "fp16": 16.0,
    "fp8": 8.0,
    "fp8-block": 8.0 + 32 / (128 * 128),
    "mxfp8": 8.0 + 8 / 32,
    "int8": 8.0,
    "int8-gptq": 8.0 + (16 + 8) / 128,
    "int4-awq": 4.0 + (16 + 4) / 128,
    "int4-gptq": 4.0 + (16 + 4) / 128,
    "int4-group32": 4.0 + 16 / 32,
    "int4-group64": 4.0 + (16 + 4) / 64,
    "fp6": 6.0,
    "nf4": 4.0 + 32 / 64,
    "nf4-double": 4.0 + 8 / 64 + 32 / (64 * 256),
    "mxfp4": 4.0 + 8 / 32,
    "nvfp4": 4.0 + 8 / 16,
}
"""Bits per weight of each format, with scales.

Per-channel scales (one fp32 for a row of thousands) are below 0.01 bit and left out. Block FP8 has one fp32 per 128 x 128;
AWQ and GPTQ one fp16 scale and one 4-bit zero per 128 weights; nf4 one fp32 per 64, which double quantisation shrinks to one
byte per 64 and one fp32 per 16,384 (bitsandbytes); MXFP4 and MXFP8 one byte per 32 (OCP microscaling formats 1.0); NVFP4
one FP8 per 16 (NVIDIA Model Optimizer).
"""

GGUF_BITS_PER_WEIGHT: Mapping[str, float] = {
    "f32": 32.0,
    "f16": 16.0,
    "bf16": 16.0,
    "q8_0": 8.51,
    "q6_k": 6.57,
    "q5_k": 5.70,
    "q5_k_m": 5.70,
    "q5_k_s": 5.57,
    "q5_1": 6.04,
    "q5_0": 5.57,
    "q4_k": 4.90,
    "q4_k_m": 4.90,
    "q4_k_s": 4.67,
    "q4_1": 5.10,
    "q4_0": 4.64,
    "iq4_nl": 4.66,
    "iq4_xs": 4.43,
    "q3_k_l": 4.31,
    "q3_k": 4.00,
    "q3_k_m": 4.00,
    "q3_k_s": 3.65,
    "iq3_m": 3.75,
    "iq3_s": 3.66,
    "iq3_xs": 3.50,
    "iq3_xxs": 3.25,
    "q2_k": 3.17,
    "q2_k_s": 2.97,
    "iq2_m": 2.93,
    "iq2_s": 2.74,
    "iq2_xs": 2.59,
    "iq2_xxs": 2.38,
    "iq1_m": 2.15,
    "iq1_s": 2.01,
    "mxfp4": 4.25,
    "mxfp4_moe": 8.51,
    "nvfp4": 4.5,
    "tq2_0": 2.52,
    "tq1_0": 2.19,
    "q2_0": 2.25,
    "q1_0": 1.13,
}
"""Average bits per weight of a whole GGUF file, embedding and head included; names without a size are aliases of ``_m``.

Source: file sizes that llama.cpp's ``quantize --help`` states for an 8.03 B parameter model, and the table of bits per weight of
Llama-3.1-8B in its tools/quantize README. Ternary types (1.69 and 2.06 bits) keep the embedding in four and the head in six.
"""
GGUF_PART_BITS: Mapping[str, Mapping[str, float]] = {"mxfp4_moe": {"expert": 4.25}}
"""Parts of a GGUF type that are stored in other bits than its average says: MXFP4 for experts, eight bits for the rest."""

LINEAR_PARTS = ("attention", "linear-attention", "mlp", "expert", "shared-expert")
"""What a quantiser of linear layers covers; embeddings, head, norms, routers and towers stay wide."""


@record(frozen=True, slots=True)
class Quantisation:
    """What a published checkpoint quantises: (part, format) pairs; parts that are not named stay at the published width."""

    method: str
    formats: tuple[tuple[str, str], ...]
    kv_dtype: str | None = None
    """``fp8`` where the checkpoint asks for an FP8 cache."""

    def format_of(self, part: str) -> str | None:
        """Format of a part, ``None`` where it stays wide."""
        return dict(self.formats).get(part)


def bits_of(weight_format: str) -> float:
    """Bits per weight of a format word or ``gguf-<type>``.

    Raises:
        UsageError: the format is not known.
    """
    if weight_format.startswith("gguf-"):
        bits = GGUF_BITS_PER_WEIGHT.get(weight_format[5:].lower())
        known: Iterable[str] = (f"gguf-{name}" for name in GGUF_BITS_PER_WEIGHT)
    else:
        bits = BITS_PER_WEIGHT.get(weight_format)
        known = BITS_PER_WEIGHT
    if bits is None:
        raise UsageError(f"weight format {weight_format!r} is not known", remedy=f"use one of {', '.join(known)}")
    return bits


def read_quantisation(config: Mapping[str, Any], *, is_moe: bool, is_latent: bool) -> Quantisation | None:
    """Quantisation section of a config.json, or ``None`` where the checkpoint is not quantised.

    Raises:
        UsageError: the method is not known, by name.
    """
    section = config.get("quantization_config") or (config.get("text_config") or {}).get("quantization_config")
    if not section:
        return None
    if "parts" in section:
        return Quantisation(str(section["method"]), tuple(sorted(section["parts"].items())), section.get("kv_dtype"))
    method = _method(section)
    formats = _named_layers(section)
    if not formats:
        formats = _by_method(method, section, is_moe=is_moe, is_latent=is_latent)
        if config.get("expert_dtype") == "fp4":
            # DeepSeek-V4 stores its routed experts as FP4 beside block-FP8 linear layers.
            formats["expert"] = "mxfp4"
    kept = _kept_parts(section)
    pairs = tuple(sorted((part, name) for part, name in formats.items() if part not in kept))
    return Quantisation(method, pairs, _kv_dtype(section))


def condense(config: Mapping[str, Any], *, is_moe: bool, is_latent: bool) -> dict[str, Any] | None:
    """The quantisation section in the short form that ``read_quantisation`` reads back, for the bundled index."""
    found = read_quantisation(config, is_moe=is_moe, is_latent=is_latent)
    if found is None:
        return None
    return {"method": found.method, "parts": dict(found.formats), "kv_dtype": found.kv_dtype}


def _method(section: Mapping[str, Any]) -> str:
    return str(section.get("quant_method") or section.get("quant_algo") or "unknown").lower()


def _kv_dtype(section: Mapping[str, Any]) -> str | None:
    scheme = section.get("kv_cache_scheme") or section.get("kv_cache_quant_algo")
    if isinstance(scheme, Mapping):
        return "fp8" if scheme.get("num_bits") == 8 else None
    return "fp8" if isinstance(scheme, str) and scheme.upper() == "FP8" else None


def _by_method(method: str, section: Mapping[str, Any], *, is_moe: bool, is_latent: bool) -> dict[str, str]:
    """Formats by method and structure, for checkpoints that do not list their layers."""
    weights = _weight_group(section)
    experts_only = ("expert",)
    parts: tuple[str, ...]
    if method == "mxfp4":
        return dict.fromkeys(experts_only, "mxfp4")
    if method == "fp8" or (method in ("modelopt", "compressed-tensors") and weights.get("num_bits") == 8):
        return dict.fromkeys(LINEAR_PARTS, "fp8-block" if section.get("weight_block_size") else "fp8")
    if method in ("awq", "gptq", "auto-round", "bitsandbytes", "hqq", "gguf"):
        parts = (*LINEAR_PARTS, "head") if section.get("lm_head") is True else LINEAR_PARTS
        return dict.fromkeys(parts, _integer_format(method, section))
    if method == "fbgemm_fp8":
        return dict.fromkeys(("mlp", "expert", "shared-expert"), "fp8")
    if method in ("modelopt", "compressed-tensors"):
        parts = LINEAR_PARTS
        if not _excluded_names(section) and method == "modelopt":
            # Recipes of NVIDIA quantise experts, or the MLP of dense models, and keep attention wide (checkpoint sizes of
            # Gemma-4-26B 17.5 GiB and 31B 31.0 GiB).
            parts = experts_only if is_moe else ("mlp",)
        elif is_moe and is_latent:
            parts = experts_only
        return dict.fromkeys(parts, _four_bit_format(section, weights))
    raise UsageError(
        f"quantization_config.quant_method {method!r} is not modelled",
        remedy="state model.weights in the spec (fp8, int8, int4-awq, int4-gptq, nf4, mxfp4, nvfp4)",
    )


def _integer_format(method: str, section: Mapping[str, Any]) -> str:
    if method == "bitsandbytes":
        if section.get("load_in_8bit"):
            return "int8"
        return "nf4-double" if section.get("bnb_4bit_use_double_quant") else "nf4"
    bits = int(section.get("bits", section.get("w_bit", 4)))
    if bits == 8:
        return "int8-gptq"
    group = section.get("group_size", section.get("q_group_size"))
    if group in (32, 64):
        return f"int4-group{group}"
    return "int4-awq" if method == "awq" else "int4-gptq"


def _weight_group(section: Mapping[str, Any]) -> Mapping[str, Any]:
    for group in (section.get("config_groups") or {}).values():
        weights = group.get("weights") or {}
        if weights:
            return dict(weights)
    algorithm = str(section.get("quant_algo") or "").upper()
    return {"num_bits": 8} if algorithm == "FP8" else {}


def _four_bit_format(section: Mapping[str, Any], weights: Mapping[str, Any]) -> str:
    if weights.get("type") == "float" or str(section.get("quant_algo") or "").upper() == "NVFP4":
        return "mxfp4" if weights.get("group_size") == 32 else "nvfp4"
    return "int4-group32" if weights.get("group_size") == 32 else "int4-gptq"


_PART_PATTERNS = (
    ("head", re.compile(r"(^|\.)(lm_head|output|embed_out)(\.|$)")),
    ("embedding", re.compile(r"embed_tokens|wte|word_embeddings")),
    ("tower", re.compile(r"vision|visual|image|audio|multi_modal|mm_projector|vit")),
    ("draft", re.compile(r"(^|\.)mtp(\.|$)|nextn")),
    ("shared-expert", re.compile(r"shared_expert|shared_mlp")),
    ("router", re.compile(r"(\.|^)(router|gate|shared_expert_gate)(\.|$)")),
    ("expert", re.compile(r"\.experts(\.|$)")),
    ("linear-attention", re.compile(r"linear_attn|mamba|mixer|ssm")),
    ("attention", re.compile(r"self_attn|attention|(^|\.)attn")),
    ("mlp", re.compile(r"(\.|^)(mlp|ffn|feed_forward|block_sparse_moe)(\.|$)")),
)
"""Layer names of checkpoints -> part; the first match counts."""

_ALGORITHMS = {"NVFP4": "nvfp4", "FP8": "fp8", "MXFP8": "mxfp8", "MXFP4": "mxfp4", "W4A16_NVFP4": "nvfp4"}


def _part_of(name: str) -> str | None:
    return next((part for part, pattern in _PART_PATTERNS if pattern.search(name)), None)


def _named_layers(section: Mapping[str, Any]) -> dict[str, str]:
    """Formats of a mixed checkpoint that lists its layers; a part takes the format of its first listed layer."""
    formats: dict[str, str] = {}
    for name, layer in (section.get("quantized_layers") or {}).items():
        part = _part_of(name)
        algorithm = _ALGORITHMS.get(str(layer.get("quant_algo")).upper())
        if part and algorithm:
            formats.setdefault(part, algorithm)
    if not formats:
        formats = _grouped_layers(section)
    if formats and section.get("weight_block_size"):
        # A block-FP8 checkpoint whose experts were requantised: what is not listed stays block FP8.
        formats = {**dict.fromkeys(LINEAR_PARTS, "fp8-block"), **formats}
    return formats


def _grouped_layers(section: Mapping[str, Any]) -> dict[str, str]:
    formats: dict[str, str] = {}
    groups = [group for group in (section.get("config_groups") or {}).values() if _is_listed(group.get("targets"))]
    for group in groups:
        weights = group.get("weights") or {}
        name = "fp8" if weights.get("num_bits") == 8 else _four_bit_format(section, weights)
        for target in group["targets"]:
            part = _part_of(target)
            if part:
                formats.setdefault(part, name)
    return formats


def _is_listed(targets: object) -> bool:
    return isinstance(targets, list) and any("." in str(target) for target in targets)


def _kept_parts(section: Mapping[str, Any]) -> set[str]:
    """Parts that the checkpoint says it leaves wide: by a list of modules that name whole parts."""
    kept: set[str] = set()
    for name in _excluded_names(section):
        text = str(name).removeprefix("re:")
        if "norm" in text or text.endswith(("bias", "indexers_proj", "weights_proj")):
            continue
        part = _whole_part(text)
        if part:
            kept.add(part)
    return kept


def _excluded_names(section: Mapping[str, Any]) -> tuple[str, ...]:
    keys = ("modules_to_not_convert", "ignore", "exclude_modules", "llm_int8_skip_modules", "skip_modules")
    names = next((section[key] for key in keys if section.get(key)), ())
    return tuple(map(str, names)) if isinstance(names, (list, tuple)) else ()


_WHOLE_PARTS = (
    ("attention", re.compile(r"self_attn\*?$|self_attn\.\*|attention\*?$")),
    ("linear-attention", re.compile(r"(linear_attn|mamba|mixer)\*?$|linear_attn\.\*")),
    ("shared-expert", re.compile(r"shared_experts?\*?$|shared_experts?\.\*")),
    ("expert", re.compile(r"\.experts\*?$")),
    ("mlp", re.compile(r"layers\.\*\.mlp\*?$")),
)


def _whole_part(text: str) -> str | None:
    """The part that a name excludes as a whole; a name of a single layer's matrix excludes none."""
    if re.search(r"layers\.\d+\.", text) and not text.startswith(("*", "re")):
        return None
    return next((part for part, pattern in _WHOLE_PARTS if pattern.search(text)), None)
