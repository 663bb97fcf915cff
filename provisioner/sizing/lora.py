"""Low-rank adapters: which matrices they sit on and how many parameters they add."""

from __future__ import annotations

from functools import lru_cache

from provisioner.errors import UsageError
from provisioner.sizing.pipelines import PipelineShape
from provisioner.sizing.shapes import Layer, Matrix, ModelShape

ATTENTION_INPUTS = ("q_proj", "k_proj", "v_proj")
MLP = ("gate_proj", "up_proj", "down_proj")
SPELLINGS = {
    "qkv": ATTENTION_INPUTS,
    "c_attn": ATTENTION_INPUTS,
    "w_pack": ATTENTION_INPUTS,
    "qkv_proj": ATTENTION_INPUTS,
    "query_key_value": ATTENTION_INPUTS,
    "attention": (*ATTENTION_INPUTS, "o_proj"),
    "mlp": MLP,
    "c_proj": ("o_proj", "down_proj"),
    "dense": ("o_proj",),
    "w1": ("gate_proj",),
    "w2": ("up_proj",),
    "gate_up_proj": ("gate_proj", "up_proj"),
    "fc1": ("up_proj",),
    "fc2": ("down_proj",),
    "dense_h_to_4h": ("up_proj",),
    "dense_4h_to_h": ("down_proj",),
    "out_proj": ("out_proj", "o_proj"),
}
"""Names of fused or older modules -> the matrices they stand for."""


@lru_cache(maxsize=256)
def target_names(targets: str | tuple[str, ...], shape: ModelShape) -> frozenset[str] | None:
    """Matrix names of a target list, ``None`` for all linear layers.

    Raises:
        UsageError: a name matches no matrix of the model.
    """
    if targets == "all-linear":
        return None
    words = (targets,) if isinstance(targets, str) else targets
    known = {matrix.name for kind in shape.kinds for matrix in _matrices(kind)}
    names: set[str] = set()
    for word in words:
        expanded = {name for name in SPELLINGS.get(word.lower(), (word,)) if name in known}
        if not expanded:
            raise UsageError(
                f"lora.targets {word!r} is no linear layer of {shape.id}",
                remedy=f"use all-linear or some of {', '.join(sorted(known))}",
            )
        names |= expanded
    return frozenset(names)


def _matrices(kind: Layer) -> tuple[Matrix, ...]:
    return kind.mixer.matrices + kind.mlp.matrices + kind.mlp.expert_matrices


@lru_cache(maxsize=256)
def adapter_params(shape: ModelShape, rank: int, targets: str | tuple[str, ...]) -> int:
    """Parameters of adapters of a rank on all targets: rank x (inputs + outputs) each.

    Routed experts get none with ``all-linear`` (their fused weights are no linear modules); name their matrices to add one per
    expert.
    """
    names = target_names(targets, shape)
    total = 0
    for count, kind in zip(shape.counts, shape.kinds, strict=True):
        for matrix in kind.mixer.matrices + kind.mlp.matrices:
            if names is None or matrix.name in names:
                total += count * rank * (matrix.inputs + matrix.outputs)
        for matrix in kind.mlp.expert_matrices:
            if names is not None and matrix.name in names:
                total += count * kind.mlp.experts * rank * (matrix.inputs + matrix.outputs)
    return total


@lru_cache(maxsize=1024)
def adapter_elements(layer: Layer, names: frozenset[str] | None, *, fused_qkv: bool = False) -> float:
    """Elements per token that low-rank adapters add to what a layer stores.

    An adapter stores a dropped-out copy of its input with a one-byte mask, and part of the output for the sum with the base.
    Where queries, keys and values are one product they share the copy.
    """
    chosen = [m for m in layer.mixer.matrices + layer.mlp.matrices if names is None or m.name in names]
    inputs = sum(m.inputs for m in chosen)
    if fused_qkv:
        shared = [m.inputs for m in chosen if m.name in ATTENTION_INPUTS]
        inputs -= sum(shared) - max(shared, default=0)
    return ADAPTER_INPUTS * inputs + ADAPTER_OUTPUTS * sum(m.outputs for m in chosen)


ADAPTER_INPUTS, ADAPTER_OUTPUTS = 1.5, 0.5
"""A 16-bit copy and a one-byte mask of each input; half of each output."""


@lru_cache(maxsize=1024)
def target_outputs(layer: Layer, names: frozenset[str] | None) -> int:
    """Outputs per token of the matrices of a layer that adapters sit on."""
    return sum(m.outputs for m in layer.mixer.matrices + layer.mlp.matrices if names is None or m.name in names)


ADAPTER_MATRICES = 8
"""Matrices of width x width equivalents per block that adapters sit on (attention and MLP of a block)."""


def denoiser_adapter_params(model: PipelineShape, rank: int) -> int:
    """Parameters of adapters on the linear layers of a pipeline's denoiser."""
    if model.core_width is None or model.core_depth is None:
        # A U-Net's attention layers: about 0.1 % of its weights per rank of 4 (SD-1.5: 0.8 M of 860 M).
        return round(model.params_active * 0.001 * rank / 4)
    return 2 * rank * model.core_width * ADAPTER_MATRICES * model.core_depth
