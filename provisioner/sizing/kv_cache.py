"""Bytes of keys, values and recurrent state on one rank."""

from __future__ import annotations

from provisioner.sizing.shapes import Layer, ModelShape, StateCache, TokenCache

BLOCK_TOKENS = 16
"""Tokens of a cache block in paged engines."""
STATE_BYTES_PER_ELEMENT = 4
"""Recurrent state is kept in fp32 unless an option says otherwise; it is the safe reading (an engine option)."""
CONV_BYTES_PER_ELEMENT = 2


def token_cache_bytes(cache: TokenCache, tokens: int, bytes_per_element: float, tensor: int) -> float:
    """Bytes that one layer's cache holds on one rank for one sequence of ``tokens``."""
    kept = min(tokens, cache.window) if cache.window else tokens
    entries = -(-kept // cache.tokens_per_entry)
    entries = -(-entries // BLOCK_TOKENS) * BLOCK_TOKENS
    units = -(-cache.units // min(tensor, cache.units))
    width = cache.fixed_bytes_per_element or bytes_per_element
    return entries * units * cache.elements_per_unit * width


def state_cache_bytes(cache: StateCache, tensor: int, state_bytes: float = STATE_BYTES_PER_ELEMENT) -> float:
    """Bytes of a recurrent layer's state on one rank for one sequence."""
    share = -(-cache.units // min(tensor, cache.units)) / cache.units
    return share * (cache.recurrent_elements * state_bytes + cache.conv_elements * CONV_BYTES_PER_ELEMENT)


def layer_cache_bytes(
    layer: Layer, tokens: int, bytes_per_element: float, tensor: int, cross_tokens: int | None = None
) -> float:
    """Bytes that one layer keeps on one rank for one sequence.

    ``cross_tokens`` are the positions of an encoder that cross-attention keeps, where they are known to differ from ``tokens``.
    """
    total = 0.0
    for cache in layer.mixer.caches:
        if isinstance(cache, TokenCache):
            kept = cross_tokens if cache.is_cross and cross_tokens is not None else tokens
            total += token_cache_bytes(cache, kept, bytes_per_element, tensor)
        else:
            total += state_cache_bytes(cache, tensor)
    return total


def stack_cache_bytes(  # noqa: PLR0917 - what every caller states, in the order of the formula
    shape: ModelShape,
    counts: tuple[int, ...],
    tokens: int,
    bytes_per_element: float,
    tensor: int,
    cross_tokens: int | None = None,
) -> float:
    """Bytes that so many layers of each kind keep on one rank for one sequence."""
    return sum(
        count * layer_cache_bytes(kind, tokens, bytes_per_element, tensor, cross_tokens)
        for count, kind in zip(counts, shape.kinds, strict=True)
        if count
    )


def window_chunk_bytes(
    shape: ModelShape, counts: tuple[int, ...], *, tokens: int, chunk: int, bytes_per_element: float, tensor: int
) -> float:
    """Bytes beyond the window that windowed layers hold while a chunk of prompt passes through them.

    Source: vLLM admits window - 1 + max_num_batched_tokens tokens per windowed layer (vllm/v1/kv_cache_interface.py).
    """
    total = 0.0
    for count, kind in zip(counts, shape.kinds, strict=True):
        for cache in kind.mixer.caches:
            if count and isinstance(cache, TokenCache) and cache.window and cache.window < tokens:
                extra = min(chunk, tokens - cache.window)
                units = -(-cache.units // min(tensor, cache.units))
                total += count * extra * units * cache.elements_per_unit * bytes_per_element
    return total
