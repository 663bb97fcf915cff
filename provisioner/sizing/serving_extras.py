"""What a serving copy holds beside the model, its cache and its text: adapters beside the base, and images on their way in.

Sources: vLLM ``vllm/lora/layers`` (buffers of max_loras x max_lora_rank for each layer, the half that tensor parallelism does not
cut whole on every rank), ``vllm/v1/worker/gpu_model_runner.py`` (``profile_run``: the tower over dummy images of the largest size,
their output kept through the run of the language model).
"""

from __future__ import annotations

from collections.abc import Sequence

from provisioner.errors import UsageError
from provisioner.sizing.demand import ServingDemand
from provisioner.sizing.footprint import Assumption
from provisioner.sizing.lora import target_names
from provisioner.sizing.multimodal import embedding_bytes, encoder_bytes, image_cost, image_tower, largest_pixels
from provisioner.sizing.shapes import Matrix, ModelShape, Split
from provisioner.vocabulary import Engine

RANK_ASSUMED = 16
"""Rank of an adapter that states none: vLLM's default ``max_lora_rank``."""
VLLM_RANKS = (8, 16, 32, 64, 128, 256, 320, 512)
"""Ranks that vLLM prepares for (``vllm/config/lora.py``); others are rounded up."""
ADAPTER_BYTES = 2
SLOTTED = (Engine.VLLM, Engine.SGLANG, Engine.TENSORRT_LLM)
"""Engines with tensor-parallel buffers for adapters."""


def prepared_rank(demand: ServingDemand) -> int:
    """The rank that the engine keeps room for.

    Raises:
        UsageError: above the largest that vLLM takes.
    """
    rank = demand.adapter_rank or RANK_ASSUMED
    if demand.engine is not Engine.VLLM:
        return rank
    fitting = next((known for known in VLLM_RANKS if known >= rank), None)
    if fitting is None:
        raise UsageError(
            f"an adapter of rank {rank}: vLLM takes ranks up to {VLLM_RANKS[-1]}", remedy="merge it into the base"
        )
    return fitting


def adapter_bytes(
    demand: ServingDemand, counts: Sequence[int], tensor: int, *, has_embedding: bool, has_head: bool
) -> float:
    """Bytes of all adapter slots of one pipeline stage on one rank.

    Raises:
        UsageError: a target is no layer of the model, or a rank is above what the engine takes.
    """
    if not demand.adapters:
        return 0.0
    model, rank = demand.model, prepared_rank(demand)
    names = target_names(demand.adapter_targets, model) if demand.adapter_targets else None
    elements = 0.0
    for count, kind in zip(counts, model.kinds, strict=True):
        for matrix in kind.mixer.matrices + kind.mlp.matrices:
            if names is None or matrix.name in names:
                elements += count * _elements(matrix, kind.mixer.kv_heads, tensor)
        for matrix in kind.mlp.expert_matrices:
            if names is not None and matrix.name in names:
                elements += count * kind.mlp.experts * _elements(matrix, 0, tensor)
    if demand.engine is Engine.VLLM:
        # Embedding and head get buffers as well, whole on every rank.
        elements += (model.vocab_size + model.hidden_size) * (int(has_embedding) + int(has_head))
    return demand.adapters * rank * elements * ADAPTER_BYTES


def _elements(matrix: Matrix, kv_heads: int, tensor: int) -> float:
    """Inputs and outputs of both halves of an adapter on one rank, per unit of rank."""
    if matrix.split is Split.NONE:
        return matrix.inputs + matrix.outputs
    if matrix.split is Split.ROW:
        return matrix.inputs / tensor + matrix.outputs
    ranks = min(tensor, kv_heads) if kv_heads and matrix.name in ("k_proj", "v_proj") else tensor
    return matrix.inputs + matrix.outputs / ranks


def cross_tokens(demand: ServingDemand) -> int | None:
    """Positions that cross-attention keeps per request, ``None`` where the spec says nothing of images."""
    tower = image_tower(demand.model)
    if demand.images is None or tower is None:
        return None
    return demand.images * image_cost(tower, demand.image_pixels).cross_tokens


def image_tokens(model: ModelShape, images: int, pixels: int) -> int:
    """Tokens of the context that so many images take; 0 for a model without a known tower."""
    tower = image_tower(model)
    return images * image_cost(tower, pixels).tokens if tower else 0


def with_images(demand: ServingDemand, text_bytes: float, batch_tokens: int) -> float:
    """The peak of a forward pass and of the images before it: the tower's own, or the text's with their output beside it.

    ``text_bytes`` is the peak without images, ``batch_tokens`` the tokens of one pass: engines that plan their memory run as many
    images through the tower at once as fill it, and one at least; transformers runs those of all requests.
    """
    tower = image_tower(demand.model)
    if tower is None or not demand.images:
        return text_bytes
    cost = image_cost(tower, profiled_pixels(demand))
    tokens = max(1, cost.tokens + cost.cross_tokens)
    if demand.engine is Engine.TRANSFORMERS:
        at_once = demand.images * demand.concurrency
    elif demand.engine is Engine.LLAMA_CPP:
        at_once = 1
    else:
        at_once = min(max(1, batch_tokens // tokens), demand.images * demand.concurrency)
    kept = embedding_bytes(tower, at_once * tokens, demand.model.hidden_size)
    return max(encoder_bytes(tower, at_once * cost.patches) + kept, text_bytes + kept)


LIMITED_FAMILIES = ("qwen2_vl", "qwen2_5_vl")
"""Families whose largest image the launch command states (``max_pixels``); the others are prepared for the model's own largest."""


def profiled_pixels(demand: ServingDemand) -> int:
    """Pixels of the image that the engine prepares for at start-up."""
    tower = image_tower(demand.model)
    plans_ahead = demand.engine in (Engine.VLLM, Engine.TENSORRT_LLM)
    if tower is None or not plans_ahead or demand.model.family in LIMITED_FAMILIES:
        return demand.image_pixels
    return max(demand.image_pixels, largest_pixels(tower))


def extra_assumptions(demand: ServingDemand) -> tuple[Assumption, ...]:
    """What the bytes of adapters and images rest on; empty without either."""
    found: list[Assumption] = []
    if demand.adapters:
        stated = "stated by the adapters" if demand.adapter_rank else "assumed: the adapters state none"
        found.append(Assumption("adapters", f"{demand.adapters} slots of rank {prepared_rank(demand)}", stated))
    tower = image_tower(demand.model)
    if demand.images and tower is not None and tower.images is not None:
        each = image_cost(tower, demand.image_pixels)
        seen = f", {each.cross_tokens} positions in cross-attention" if each.cross_tokens else ""
        value = f"{demand.images} of {demand.image_pixels} pixels: {each.tokens} tokens each{seen}"
        found.append(Assumption("images", value, tower.images.source))
    return tuple(found)
