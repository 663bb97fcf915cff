"""Physical work of one pass of an engine over its sequences: bytes, operations and messages, before any efficiency.

Everything here follows from the model, the number format and the layout; what hardware and engines make of it is in
``step_time``.
"""

from __future__ import annotations

from functools import lru_cache

from provisioner.records import record
from provisioner.sizing.kv_cache import stack_cache_bytes
from provisioner.sizing.shapes import ModelShape, TokenCache
from provisioner.sizing.weights import resolve_formats, shape_bytes

COLLECTIVES_PER_LAYER = 2
NARROW_BITS = 7.5
"""Weights below this are packed by two or more to the byte."""
BYTE_BITS = 8.6
WEIGHT_ONLY = ("gguf", "int4", "nf4", "awq", "gptq", "bitsandbytes", "fp6", "int8-gptq")
"""Formats that are widened before the product, so that matrix units see 16 bit."""
DISPATCH_SHARE = 0.75
"""Two exchanges of routed tokens, 8 bit out and 16 bit back, as a share of what an all-reduce of 16-bit rows moves."""


@record(frozen=True, slots=True)
class StepWork:
    """What one rank does in one round, in which every sequence advances by a token."""

    kernel: str
    """Precision kernel of most weights: ``wide``, ``fp8``, ``int8``, ``int4`` or ``fp4``."""
    unit: str
    """Matrix units that the products run on: ``wide``, ``fp8``, ``int8`` or ``fp4``."""
    weight_bytes: float
    """Weights that one pass reads."""
    packed: float
    """How many of them are packed several to the byte, and unpacked on the way."""
    cache_bytes: float
    dense_flop: float
    expert_flop: float
    attention_flop: float
    scores: float
    """Attention scores of prompts, which engines without a fused kernel write and read."""
    message_bytes: float
    """All-reduced per collective and round."""
    collectives: int
    ranks: int
    layers: int
    expert_layers: int
    sequences: int
    tokens: float
    """Tokens of the round: one per sequence, and prompts beside them."""
    overlap: float = 1.0
    """Pipeline stages that work at once."""


@lru_cache(maxsize=1024)
def main_format(model: ModelShape, word: str) -> tuple[str, float]:
    """Name and bits of the matrices that most operations go through."""
    formats = resolve_formats(model, word)
    return formats.word, formats.of("expert") if model.is_moe else formats.of("mlp")


@lru_cache(maxsize=1024)
def kernel_of(word: str, bits: float) -> str:
    """Precision kernel that reads weights of a format."""
    if bits > BYTE_BITS:
        return "wide"
    if bits >= NARROW_BITS:
        return "fp8" if "fp8" in word else "int8"
    return "fp4" if "fp4" in word else "int4"


@lru_cache(maxsize=1024)
def unit_of(word: str, bits: float) -> str:
    """Matrix units that a format asks for; hardware without them runs the 16-bit ones."""
    if bits > BYTE_BITS or word.startswith(WEIGHT_ONLY):
        return "wide"
    if bits >= NARROW_BITS:
        return "int8" if word.startswith("int8") else "fp8"
    return "fp4"


def experts_touched(experts: int, per_token: int, tokens: float) -> float:
    """Experts that a batch of tokens reads, routed independently: E x (1 - (1 - k / E)^tokens)."""
    if not experts:
        return 0.0
    return float(experts * (1 - (1 - per_token / experts) ** tokens))


def touched_weight_bytes(model: ModelShape, word: str, tensor: int, tokens: float, expert_ranks: int = 1) -> float:
    """Bytes of weights on one rank that a pass over so many tokens reads: the head once, the embedding not at all."""
    rank = shape_bytes(model, word, tensor)
    total = rank.head if model.head_params else rank.embedding
    for count, kind, size in zip(model.counts, model.kinds, rank.kinds, strict=True):
        share = 1.0
        if kind.mlp.experts:
            touched = experts_touched(kind.mlp.experts, kind.mlp.experts_per_token, tokens * expert_ranks)
            share = touched / kind.mlp.experts / expert_ranks
        total += count * (size.dense + share * size.experts)
    return total


@record(frozen=True, slots=True)
class TokenFlop:
    """Operations of one token through a model."""

    dense: float
    """All layers but their routed experts, without the head."""
    experts: float
    head: float
    expert_layers: int


@lru_cache(maxsize=1024)
def token_flop(model: ModelShape) -> TokenFlop:
    """Operations per token: two for each weight that it passes through."""
    routed = sum(
        count * kind.mlp.experts_per_token * kind.mlp.expert_params
        for count, kind in zip(model.counts, model.kinds, strict=True)
    )
    head = model.head_params or (model.embedding_params if model.tied_embeddings else 0)
    looked_up = model.embedding_params
    dense = model.params_active - looked_up - model.head_params - model.tower_params - routed
    layers = sum(count for count, kind in zip(model.counts, model.kinds, strict=True) if kind.mlp.experts)
    return TokenFlop(2.0 * dense, 2.0 * routed, 2.0 * head, layers)


@lru_cache(maxsize=4096)
def attention_operations(model: ModelShape, prompt: int) -> float:
    """Operations of attention scores and sums per prompt token, causal, windows respected."""
    total = 0.0
    for heads, width, seen in _attention(model, prompt):
        total += 2.0 * heads * width * seen
    return total


@lru_cache(maxsize=4096)
def attention_scores(model: ModelShape, prompt: int) -> float:
    """Attention scores per prompt token over all layers and heads."""
    return sum(heads * seen for heads, _, seen in _attention(model, prompt))


def _attention(model: ModelShape, prompt: int) -> list[tuple[int, int, float]]:
    """Heads over all layers of a kind, their width, and the tokens that one token sees on average."""
    found = []
    for count, kind in zip(model.counts, model.kinds, strict=True):
        mixer = kind.mixer
        if mixer.kind not in ("full", "window", "latent", "compressed"):
            continue
        windows = [cache.window for cache in mixer.caches if isinstance(cache, TokenCache) and cache.window]
        seen = min(prompt / 2, windows[0]) if windows and mixer.kind == "window" else prompt / 2
        found.append((count * mixer.heads, mixer.head_dim + mixer.value_dim, seen))
    return found


@record(frozen=True, slots=True)
class Split:
    """How a copy's work is spread: ``expert_ranks`` above 1 share the experts and keep attention to themselves."""

    tensor: int = 1
    stages: int = 1
    expert_ranks: int = 1


@lru_cache(maxsize=8192)
def round_work(
    model: ModelShape,
    word: str,
    split: Split,
    *,
    sequences: int,
    context: int,
    kv_width: float,
    prompt_tokens: float = 0.0,
    prompt: int = 0,
    unit: str | None = None,
) -> StepWork:
    """Work of a round: one token for each of ``sequences``, and ``prompt_tokens`` of prompts of ``prompt`` tokens each.

    Args:
        model: The model.
        word: Format of its weights.
        split: How the copy is spread.
        sequences: Running requests; with ``expert_ranks``, of one rank.
        context: Average tokens that a running request has behind it.
        kv_width: Bytes of a cached element.
        prompt_tokens: Tokens of other requests' prompts that the round also processes.
        prompt: Length of those prompts.
        unit: Matrix units, where the format does not say (activations in 8 bit beside weights in 4).
    """
    name, bits = main_format(model, word)
    flop = token_flop(model)
    tokens = sequences + prompt_tokens
    overlap = float(min(split.stages, max(1, sequences))) if sequences else 1.0
    shared = split.tensor * overlap
    heads = sequences + (prompt_tokens / prompt if prompt else 0.0)
    rows = tokens * model.hidden_size * 2.0
    if split.expert_ranks > 1:
        per_token = max(kind.mlp.experts_per_token for kind in model.kinds)
        rows *= DISPATCH_SHARE * min(per_token, split.expert_ranks)
    ranks = max(split.tensor, split.expert_ranks)
    weights = touched_weight_bytes(model, word, split.tensor, max(1.0, tokens), split.expert_ranks)
    return StepWork(
        kernel=kernel_of(name, bits),
        unit=unit or unit_of(name, bits),
        weight_bytes=weights,
        packed=weights * 8 / bits if bits < NARROW_BITS else 0.0,
        cache_bytes=sequences * stack_cache_bytes(model, model.counts, context, kv_width, split.tensor) / overlap
        if sequences
        else 0.0,
        dense_flop=(flop.dense * tokens + flop.head * heads) / shared,
        expert_flop=flop.experts * tokens / shared,
        attention_flop=attention_operations(model, prompt) * prompt_tokens / shared,
        scores=attention_scores(model, prompt) * prompt_tokens / shared,
        message_bytes=rows if ranks > 1 else 0.0,
        collectives=COLLECTIVES_PER_LAYER * (flop.expert_layers if split.expert_ranks > 1 else model.num_layers),
        ranks=ranks,
        layers=model.num_layers,
        expert_layers=flop.expert_layers,
        sequences=sequences,
        tokens=tokens,
        overlap=overlap,
    )


def prompt_pieces(requests: int, prompt: int, outputs: int, chunk_tokens: int) -> tuple[float, float]:
    """Prompt tokens that a round with prompts reads, and the share of rounds that have any.

    In steady state each round brings ``requests x prompt / outputs`` tokens of new prompts. An engine reads a prompt in one
    piece, or in chunks: while there are fewer than a piece a round, most rounds read none.
    """
    brought = requests * prompt / max(1, outputs)
    piece = float(min(prompt, chunk_tokens))
    if not piece:
        return 0.0, 0.0
    return (piece, brought / piece) if brought < piece else (brought, 1.0)
