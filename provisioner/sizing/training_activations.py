"""Activations of a training step: what a layer stores for its backward pass, and the loss.

Counts are per token, in elements of the compute type unless a name says bytes. A layer with flash attention stores about
5 x hidden + 2 x query + 2 x key-value + 4 x intermediate, with fp32 copies in its norms.

Source: stas00/ml-engineering @744d01e training/performance (one layer's measured activations of five models) and the term list
of vramcalc 0.1.2; the counts give 27.5 hidden-size tensors for Llama-3.1-8B (28 measured), 24.3 for SmolLM2-360M (24).
"""

from __future__ import annotations

from functools import lru_cache

from provisioner.sizing.shapes import Layer, Mlp, ModelShape

NORM_ELEMENTS = 2
"""Each RMS or layer norm stores an fp32 copy of its input, two elements of the compute type."""
EAGER_BYTES_PER_SCORE = 6
"""Bytes per attention score that eager attention stores: fp32 softmax and its 16-bit copy."""
FUSED_BYTES_PER_SCORE = 5
FUSED_WORKING_BYTES = 9
"""The same with a fused softmax: two 16-bit tensors and a dropout mask (arXiv 2205.05198); two gradients more in the backward
pass of one layer."""


def frozen_elements(layer: Layer, hidden: int) -> float:
    """Elements per token that a layer need not store where its weights are frozen: inputs kept only for weight gradients.

    These are the normed inputs of attention and MLP, and the input of the down projection.
    """
    attends = 0 if layer.mixer.kind == "none" else hidden
    return attends + (hidden + layer.mlp.width if layer.mlp.width else 0)


@lru_cache(maxsize=4096)
def layer_elements(layer: Layer, hidden: int, *, repeats_kv: bool = False, frozen: bool = False) -> float:
    """Elements per token that one layer stores for its backward pass (fp32 copies counted as two)."""
    mixer = layer.mixer
    total = -frozen_elements(layer, hidden) if frozen else 0.0
    if mixer.kind in ("full", "window"):
        query, keys = mixer.heads * mixer.head_dim, mixer.kv_heads * mixer.head_dim
        total += 2.5 * hidden + 2 * query + 2 * keys + NORM_ELEMENTS * hidden
        if repeats_kv and keys < query:
            total += 2 * query
        if mixer.vector_params >= 2 * mixer.head_dim and mixer.vector_params <= 4 * mixer.head_dim:
            total += 3 * (query + keys)
    elif mixer.kind != "none":
        outputs = sum(matrix.outputs for matrix in mixer.matrices if matrix.name != "o_proj")
        total += 2.5 * hidden + 2 * outputs + NORM_ELEMENTS * hidden
    if layer.mlp.matrices or layer.mlp.experts:
        total += 2.5 * hidden + mlp_elements(layer.mlp, hidden) + NORM_ELEMENTS * hidden
    return total


def norm_elements(layer: Layer, hidden: int) -> float:
    """Elements per token that the norms of a layer store in fp32."""
    halves = (layer.mixer.kind != "none") + bool(layer.mlp.matrices or layer.mlp.experts)
    return halves * NORM_ELEMENTS * hidden


@lru_cache(maxsize=512)
def whole_elements(layer: Layer, hidden: int) -> float:
    """Elements per token of a layer that tensor parallelism alone does not divide: residuals and inputs of hidden size.

    Source: NVIDIA/Megatron-LM's activation count, 10 of 34 bytes per token and unit of width without sequence parallelism
    (arXiv 2205.05198).
    """
    halves = (layer.mixer.kind != "none") + bool(layer.mlp.matrices or layer.mlp.experts)
    return halves * (2.5 + NORM_ELEMENTS) * hidden


def mlp_elements(mlp: Mlp, hidden: int) -> float:
    """Elements per token that an MLP stores: its up (and gate) outputs, their activation and product, routed copies."""
    routed = 2 * mlp.experts_per_token * hidden if mlp.experts else 0
    return (4 if mlp.is_gated else 2) * mlp.width + routed


@lru_cache(maxsize=512)
def stack_elements(shape: ModelShape, *, repeats_kv: bool = False, frozen: bool = False) -> float:
    """Elements per token that all layers store."""
    return sum(
        count * layer_elements(kind, shape.hidden_size, repeats_kv=repeats_kv, frozen=frozen)
        for count, kind in zip(shape.counts, shape.kinds, strict=True)
    )


@lru_cache(maxsize=512)
def widest_layer_elements(shape: ModelShape, *, repeats_kv: bool = False, frozen: bool = False) -> float:
    """Elements per token of the layer that stores most."""
    return max(layer_elements(kind, shape.hidden_size, repeats_kv=repeats_kv, frozen=frozen) for kind in shape.kinds)


def eager_bytes_per_token(
    shape: ModelShape, sequence_tokens: int, bytes_per_score: float = EAGER_BYTES_PER_SCORE
) -> float:
    """Bytes per token and layer of eager attention's scores."""
    heads = max((kind.mixer.heads for kind in shape.kinds if kind.mixer.kind in ("full", "window")), default=0)
    return heads * sequence_tokens * bytes_per_score
