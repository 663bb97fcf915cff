"""Bytes of weights on one rank: formats by part, tensor-parallel splits, pipeline stages."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache

from provisioner.errors import UsageError
from provisioner.records import record
from provisioner.sizing.quantisation import GGUF_PART_BITS, LINEAR_PARTS, bits_of
from provisioner.sizing.shapes import Layer, Matrix, ModelShape, Part, Split, StoredBits

WIDE_FORMATS = ("fp32", "bf16", "fp16")
EXPERTS_ONLY = ("mxfp4",)
"""Formats that cover routed experts alone where a model has them."""
VOCABULARY_PADDING = 64
"""vLLM pads the vocabulary to a multiple of this (vocab_parallel_embedding.py); others do alike."""


@record(frozen=True, slots=True)
class WeightFormats:
    """Bits per weight of each part, and how the weights are called."""

    word: str
    wide_bits: float
    bits: Mapping[str, float]

    def of(self, part: str) -> float:
        """Bits per weight of a part."""
        return self.bits.get(part, self.wide_bits)


@lru_cache(maxsize=1024)
def resolve_formats(shape: ModelShape, word: str, *, keeps_fp32: bool = False) -> WeightFormats:
    """Formats of all parts for a word of the spec; ``auto`` is as published.

    ``keeps_fp32`` is true for engines that load fp32 checkpoints as they are; others convert them to 16 bit.

    Raises:
        UsageError: the word is no format, or the published format is not known.
    """
    published = bits_of(shape.weights_dtype)
    wide = published if keeps_fp32 else min(published, 16.0)
    if word == "auto" and shape.stored is not None:
        return _stored_formats(shape, shape.stored, narrow=published > wide)
    if word == "auto":
        quantisation = shape.quantisation
        if quantisation is None:
            return WeightFormats(shape.weights_dtype, wide, {})
        if any(name == "unknown" for _, name in quantisation.formats):
            raise UsageError(
                f"the format in which {shape.id} is published is not known", remedy="state model.weights in the spec"
            )
        return WeightFormats(quantisation.method, wide, {part: bits_of(name) for part, name in quantisation.formats})
    if word in WIDE_FORMATS:
        return WeightFormats(word, bits_of(word), {})
    bits = bits_of(word)
    if word.startswith("gguf-"):
        own = GGUF_PART_BITS.get(word[5:].lower(), {})
        return WeightFormats(word, 32.0, {**dict.fromkeys((*LINEAR_PARTS, "embedding", "head", "tower"), bits), **own})
    parts = (Part.EXPERT,) if word in EXPERTS_ONLY and shape.is_moe else LINEAR_PARTS
    return WeightFormats(word, min(wide, 16.0), dict.fromkeys(parts, bits))


def _stored_formats(shape: ModelShape, stored: StoredBits, *, narrow: bool) -> WeightFormats:
    """Formats by the bytes in the shards; ``narrow`` halves an fp32 checkpoint that an engine converts to 16 bit."""
    halves = narrow and shape.quantisation is None
    word = shape.quantisation.method if shape.quantisation else shape.weights_dtype
    factor = 0.5 if halves else 1.0
    return WeightFormats(word, stored.wide_bits * factor, {part: bits * factor for part, bits in stored.bits})


def published_bits(shape: ModelShape) -> dict[str, float]:
    """Bits per parameter of every part as the published formats say, those that stay wide included."""
    formats = resolve_formats(shape, "auto", keeps_fp32=True)
    return {str(part): formats.of(part) for part in Part}


def with_bits(shape: ModelShape, bits: Mapping[str, float]) -> ModelShape:
    """The shape as if its checkpoint held so many bits per parameter of each part."""
    wide = bits_of(shape.weights_dtype)
    return replace(shape, stored=StoredBits(tuple(sorted(bits.items())), wide, 0, ""))


@record(frozen=True, slots=True)
class LayerBytes:
    """Bytes of one layer on one rank."""

    dense: float
    experts: float


@lru_cache(maxsize=4096)
def layer_bytes(layer: Layer, formats_key: tuple[tuple[str, float], ...], wide_bits: float, tensor: int) -> LayerBytes:
    """Bytes of one layer on one of ``tensor`` ranks; routed experts apart."""
    bits = dict(formats_key)

    def width(part: str) -> float:
        return bits.get(part, wide_bits) / 8

    mixer, mlp = layer.mixer, layer.mlp
    dense = sum(_rank_params(m, mixer.kv_heads, tensor) for m in mixer.matrices) * width(mixer.part)
    dense += sum(_rank_params(m, 0, tensor) for m in mlp.matrices) * width(mlp.part)
    dense += mlp.router_params * width(Part.ROUTER)
    dense += (mixer.vector_params / tensor + mlp.vector_params + layer.norm_params) * wide_bits / 8
    expert = mlp.expert_params * width(Part.EXPERT) + mlp.expert_vector_params * wide_bits / 8
    return LayerBytes(dense, mlp.experts * expert / tensor)


def _rank_params(matrix: Matrix, kv_heads: int, tensor: int) -> float:
    """Weights of a matrix on one rank: key and value heads fewer than ranks are replicated."""
    if matrix.split is Split.NONE:
        return matrix.params
    if kv_heads and matrix.name in ("k_proj", "v_proj", "cross_k_proj", "cross_v_proj"):
        return matrix.params / min(tensor, kv_heads)
    return matrix.params / tensor


@record(frozen=True, slots=True)
class ShapeBytes:
    """Bytes of a model on one rank: per kind of layer, and at the two ends of the stack."""

    kinds: tuple[LayerBytes, ...]
    embedding: float
    head: float
    """Output projection with the last norm; a tied head is the embedding again on the last of several stages."""
    tied_copy: float
    towers: float

    def stack(self, counts: tuple[int, ...], expert_ranks: int = 1) -> float:
        """Bytes of so many layers of each kind, the experts shared between ``expert_ranks``."""
        return sum(n * (kind.dense + kind.experts / expert_ranks) for n, kind in zip(counts, self.kinds, strict=True))


@lru_cache(maxsize=1024)
def shape_bytes(shape: ModelShape, word: str, tensor: int, *, keeps_fp32: bool = False) -> ShapeBytes:
    """Bytes of all parts of a model on one of ``tensor`` ranks."""
    formats = resolve_formats(shape, word, keeps_fp32=keeps_fp32)
    key = tuple(sorted(formats.bits.items()))
    vocabulary = -(-shape.vocab_size // VOCABULARY_PADDING) * VOCABULARY_PADDING if tensor > 1 else shape.vocab_size
    padding = vocabulary / max(1, shape.vocab_size)
    embedding = shape.embedding_params * padding / tensor * formats.of(Part.EMBEDDING) / 8
    head = shape.head_params * padding / tensor * formats.of(Part.HEAD) / 8
    return ShapeBytes(
        kinds=tuple(layer_bytes(kind, key, formats.wide_bits, tensor) for kind in shape.kinds),
        embedding=embedding,
        head=head + shape.final_norm_params * formats.wide_bits / 8,
        tied_copy=embedding if shape.tied_embeddings else 0.0,
        towers=shape.tower_params * formats.of(Part.TOWER) / 8,
    )


@lru_cache(maxsize=1024)
def stage_counts(shape: ModelShape, stages: int) -> tuple[tuple[int, ...], ...]:
    """Layers of each kind on each pipeline stage; a remainder goes to the later inner stages, as vLLM cuts."""
    if stages == 1:
        return (shape.counts,)
    layers = shape.num_layers
    sizes = [layers // stages] * stages
    for offset in range(layers % stages):
        sizes[-2 - offset if stages > offset + 1 else -1] += 1
    result = []
    start = 0
    for size in sizes:
        part = shape.pattern[start : start + size]
        result.append(tuple(part.count(index) for index in range(len(shape.kinds))))
        start += size
    return tuple(result)


def stage_weight_bytes(
    rank: ShapeBytes, counts: tuple[int, ...], stage: int, stages: int, expert_ranks: int = 1
) -> float:
    """Weights of one stage on one rank: the first holds embedding and towers, the last the head."""
    size = rank.stack(counts, expert_ranks)
    if stage == 0:
        size += rank.embedding + rank.towers
    if stage == stages - 1:
        size += rank.head + (rank.tied_copy if stages > 1 else 0.0)
    return size


ALIKE_DRAFTS = ("fp8",)
"""Checkpoints that quantise draft layers like the others (DeepSeek's native FP8); recipes made later keep them wide."""


def draft_bytes(shape: ModelShape, word: str, tensor: int) -> float:
    """Bytes of a model's own draft layers on one rank: their blocks in the formats of the last block, the rest wide."""
    if not shape.draft_layers:
        return 0.0
    formats = resolve_formats(shape, word)
    if formats.word not in ALIKE_DRAFTS:
        formats = WeightFormats(formats.word, formats.wide_bits, {})
    block = layer_bytes(shape.kinds[shape.pattern[-1]], tuple(sorted(formats.bits.items())), formats.wide_bits, tensor)
    projections = 2 * shape.hidden_size * shape.hidden_size * formats.wide_bits / 8
    return shape.draft_layers * (block.dense + block.experts + projections / tensor)


def total_weight_bytes(shape: ModelShape, word: str = "auto", *, keeps_fp32: bool = False) -> int:
    """Bytes of the whole model on one GPU; ``keeps_fp32`` as the checkpoint stores them."""
    rank = shape_bytes(shape, word, 1, keeps_fp32=keeps_fp32)
    return round(stage_weight_bytes(rank, shape.counts, 0, 1))


def weights_basis(shape: ModelShape, word: str) -> str:
    """What the bytes of the weights rest on, in words."""
    if word == "auto" and shape.stored is not None:
        return shape.stored.source
    return f"{shape.id} config; quantised parts by format, the rest wide"
