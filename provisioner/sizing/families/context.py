"""The longest context that a config.json allows: its position table, stretched where its rotary embedding is."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

_UNSTRETCHED = ("default", "mrope", "su", "longrope", "llama3")
"""Kinds whose config states the stretched length already, or that stretch nothing."""
_FACTOR_MAX = 1e4
"""Above any published factor (64); a larger one, or infinity, is a broken config."""


def context_limit(stated: int | None, config: Mapping[str, Any]) -> int | None:
    """Tokens that an engine allows: ``stated`` positions times the factor of the rotary scaling, ``None`` where none are stated.

    YaRN counts from the length that the model was first trained on, where the config says it. Text sections of multimodal
    configs hold their own scaling; Gemma 3 states the stretched length.

    Source: vllm-project/vllm ``vllm/config/model.py`` (how ``max_model_len`` is derived).
    """
    if stated is None or str(config.get("model_type", "")).startswith("gemma3"):
        return stated
    return max((_stretched(stated, scaling) for scaling in _scalings(config)), default=stated)


def _scalings(config: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """Scaling sections: one for all layers, or one per kind of layer."""
    for name in ("rope_scaling", "rope_parameters"):
        section = config.get(name)
        if isinstance(section, Mapping):
            parts = [part for part in section.values() if isinstance(part, Mapping)]
            yield from parts or [section]


def _stretched(stated: int, scaling: Mapping[str, Any]) -> int:
    kind, factor = scaling.get("rope_type", scaling.get("type", "default")), scaling.get("factor", 1)
    is_number = isinstance(factor, (int, float)) and not isinstance(factor, bool)
    if kind in _UNSTRETCHED or not is_number or not 1 <= factor <= _FACTOR_MAX:
        return stated
    first = scaling.get("original_max_position_embeddings") if kind == "yarn" else None
    return int((first if isinstance(first, int) else stated) * factor)
