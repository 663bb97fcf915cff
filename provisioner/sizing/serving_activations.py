"""Working memory of a serving engine: the forward pass of its largest batch, and the sampler's logits."""

from __future__ import annotations

from functools import lru_cache

from provisioner.records import record
from provisioner.sizing.engines import EngineProfile
from provisioner.sizing.shapes import Layer, ModelShape

HIDDEN_COPIES = 4
"""Hidden-size tensors alive at the peak of a layer (residual, normed input, attention and MLP output)."""
INTERMEDIATE_COPIES_GATED = 3
"""Gate and up projections in one tensor and their product."""
FP32_BYTES = 4
ACTIVATION_BYTES = 2
LLAMA_CPP_BYTES_PER_TOKEN = 4096
"""Growth of llama.cpp's compute buffer per context token with flash attention (mask of n_batch x 4 B)."""


@record(frozen=True, slots=True)
class Batch:
    """The largest batch an engine meets.

    ``tokens`` of one forward pass and ``sequences`` of one sampling count in an engine that plans its memory; the tokens of
    all prompts and of the whole cache in one that does not.
    """

    tokens: int
    sequences: int
    prompt_tokens: int
    cached_tokens: int


def layer_working_elements(layer: Layer, hidden: int, tensor: int) -> int:
    """Elements per token alive at the peak of one layer of a forward pass without gradients.

    Source: transformers ``generate`` peaks of Qwen2.5 0.5B to 32B grow by (3 x intermediate + 4 x hidden) per prompt token
    (QwenLM/Qwen2.5 speed benchmark), and vLLM V0 profile runs by the same count.
    """
    mlp = layer.mlp
    copies = INTERMEDIATE_COPIES_GATED if mlp.is_gated else 2
    mixer = layer.mixer
    projections = (2 * mixer.heads * mixer.head_dim + 2 * mixer.kv_heads * mixer.head_dim) // tensor
    return HIDDEN_COPIES * hidden + max(copies * mlp.width // tensor, projections)


def forward_bytes(shape: ModelShape, tokens: int, tensor: int) -> int:
    """Working set of the widest layer for so many tokens in one pass."""
    return tokens * _widest_elements(shape, tensor) * ACTIVATION_BYTES


@lru_cache(maxsize=1024)
def _widest_elements(shape: ModelShape, tensor: int) -> int:
    return max(layer_working_elements(kind, shape.hidden_size, tensor) for kind in shape.kinds)


def activation_bytes(
    shape: ModelShape, profile: EngineProfile, batch: Batch, *, tensor: int, has_head: bool = True
) -> int:
    """Peak of activations that an engine reserves or meets on one rank."""
    base = profile.activation_base_bytes + (profile.moe_bytes if shape.is_moe else 0)
    if profile.forward == "prompt":
        return base + forward_bytes(shape, batch.prompt_tokens, tensor)
    if profile.forward == "token":
        return base + forward_bytes(shape, batch.sequences, tensor)
    if profile.forward == "context":
        return base + batch.cached_tokens * LLAMA_CPP_BYTES_PER_TOKEN
    forward = forward_bytes(shape, batch.tokens, tensor)
    logits = int(profile.logit_copies * batch.sequences * shape.vocab_size * FP32_BYTES) if has_head else 0
    return base + (forward + logits if profile.forward == "add" else max(forward, logits))
