"""Model shapes: matrices, caches and vectors of a model's layers, from which bytes and operations follow.

A shape holds dimensions only. It is made by ``models.find_model`` (bundled index), ``models.shape_from_config``
(a config.json) or ``models.shape_from_dimensions`` (an explicit shape in the spec).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import field
from enum import StrEnum
from functools import cached_property

from provisioner.records import record
from provisioner.sizing.quantisation import Quantisation


class Part(StrEnum):
    """Parts of a model that checkpoints quantise, split and load differently."""

    EMBEDDING = "embedding"
    HEAD = "head"
    ATTENTION = "attention"
    LINEAR_ATTENTION = "linear-attention"
    MLP = "mlp"
    EXPERT = "expert"
    SHARED_EXPERT = "shared-expert"
    ROUTER = "router"
    NORM = "norm"
    TOWER = "tower"
    DRAFT = "draft"


class Split(StrEnum):
    """How tensor parallelism cuts a matrix: its outputs, its inputs, or not at all."""

    COLUMN = "column"
    ROW = "row"
    NONE = "none"


@record(frozen=True, slots=True)
class Matrix:
    """One weight matrix of a layer, named as in checkpoints (``q_proj``, ``down_proj``)."""

    name: str
    inputs: int
    outputs: int
    split: Split = Split.COLUMN

    @property
    def params(self) -> int:
        """Weights of the matrix."""
        return self.inputs * self.outputs


@record(frozen=True, slots=True)
class TokenCache:
    """Memory that grows with the tokens of a sequence.

    ``units`` heads of ``elements_per_unit`` elements each are spread over tensor-parallel ranks; a rank holds at least one
    unit, so MLA (one unit) stands whole on every rank. ``window`` caps the tokens kept. ``tokens_per_entry`` is above 1 where
    several tokens share one compressed entry. ``fixed_bytes_per_element`` is set where the width is not an engine option.
    """

    units: int
    elements_per_unit: int
    window: int | None = None
    tokens_per_entry: int = 1
    fixed_bytes_per_element: float | None = None
    is_latent: bool = False
    is_cross: bool = False
    """Keys and values of an encoder's output, made once per sequence."""


@record(frozen=True, slots=True)
class StateCache:
    """Memory of fixed size per sequence: recurrent state and convolution tail, spread over ``units`` heads."""

    units: int
    recurrent_elements: int
    conv_elements: int


Cache = TokenCache | StateCache


@record(frozen=True)
class Mixer:
    """What mixes tokens in a layer: attention of some kind, a recurrence, or nothing (``kind`` ``"none"``)."""

    kind: str
    """``full``, ``window``, ``latent``, ``compressed``, ``linear``, ``mamba`` or ``none``."""
    heads: int = 0
    kv_heads: int = 0
    head_dim: int = 0
    value_dim: int = 0
    matrices: tuple[Matrix, ...] = ()
    vector_params: int = 0
    """Biases, per-head norms, decay and convolution weights: replicated or negligible, never quantised."""
    caches: tuple[Cache, ...] = ()

    @cached_property
    def matrix_params(self) -> int:
        """Weights of all matrices."""
        return sum(matrix.params for matrix in self.matrices)

    @cached_property
    def replicated_params(self) -> int:
        """Weights that stand whole on every tensor-parallel rank."""
        return sum(matrix.params for matrix in self.matrices if matrix.split is Split.NONE)

    @property
    def part(self) -> Part:
        """Attention and recurrences are quantised by different rules."""
        return Part.LINEAR_ATTENTION if self.kind in ("linear", "mamba") else Part.ATTENTION


@record(frozen=True)
class Mlp:
    """The feed-forward half of a layer: dense matrices, routed experts, or both."""

    matrices: tuple[Matrix, ...] = ()
    """Dense matrices, or the shared expert where there are routed experts."""
    expert_matrices: tuple[Matrix, ...] = ()
    """Matrices of one routed expert."""
    experts: int = 0
    experts_per_token: int = 0
    router_params: int = 0
    vector_params: int = 0
    expert_vector_params: int = 0
    """Biases of one routed expert."""
    is_dense_beside_experts: bool = False
    """The dense matrices are an MLP of their own beside the experts, not a shared expert."""

    @cached_property
    def matrix_params(self) -> int:
        """Weights of the dense or shared matrices."""
        return sum(matrix.params for matrix in self.matrices)

    @cached_property
    def expert_params(self) -> int:
        """Weights of the matrices of one routed expert."""
        return sum(matrix.params for matrix in self.expert_matrices)

    @property
    def part(self) -> Part:
        """Where the dense matrices belong."""
        return Part.SHARED_EXPERT if self.experts and not self.is_dense_beside_experts else Part.MLP

    @cached_property
    def width(self) -> int:
        """Intermediate width that one token passes through (dense or shared, plus its routed experts)."""
        return _width(self.matrices) + self.experts_per_token * _width(self.expert_matrices)

    @cached_property
    def is_gated(self) -> bool:
        """Whether an up and a gate projection feed the down projection."""
        return any(matrix.name.startswith("gate") for matrix in self.matrices + self.expert_matrices)


def _width(matrices: Iterable[Matrix]) -> int:
    return sum(matrix.inputs for matrix in matrices if matrix.split is Split.ROW)


@record(frozen=True)
class Layer:
    """One block: a mixer, an MLP, and the norms around them."""

    mixer: Mixer
    mlp: Mlp
    norm_params: int = 0
    is_encoder: bool = False

    @cached_property
    def params(self) -> int:
        """Weights of the layer, all experts counted."""
        idle = self.mlp.experts - self.mlp.experts_per_token
        return self.params_active + idle * (self.mlp.expert_params + self.mlp.expert_vector_params)

    @cached_property
    def params_active(self) -> int:
        """Weights that one token passes through."""
        mlp = self.mlp
        routed = mlp.experts_per_token * (mlp.expert_params + mlp.expert_vector_params)
        dense = self.mixer.matrix_params + mlp.matrix_params + mlp.router_params
        return dense + routed + self.mixer.vector_params + mlp.vector_params + self.norm_params


class ImageLayout(StrEnum):
    """How a model cuts an image into tokens."""

    GRID = "grid"
    """The image keeps its size, rounded to whole merged patches, between a least and a most number of pixels."""
    ROWS = "rows"
    """A grid with a token at the end of each row; its longer side is scaled down to a limit."""
    FIXED = "fixed"
    """Every image is scaled to one size."""
    TILES = "tiles"
    """Tiles of one size, as many as the image needs, and the whole image once more where there are several."""
    CROSS = "cross"
    """Tiles that cross-attention layers look at; the context holds one token an image."""


@record(frozen=True, slots=True)
class ImageRule:
    """What an image costs: tokens of the context, and patches in the tower."""

    layout: ImageLayout
    source: str
    extra_tokens: int = 0
    """Tokens around an image: its begin and end marks."""
    tokens: int = 0
    """Tokens of an image (``fixed``) or of a tile."""
    patches: int = 0
    """Patches of an image (``fixed``) or of a tile."""
    tile_side: int = 0
    """Pixels of a tile's side, or of the longest side of a ``rows`` image."""
    tiles_most: int = 1
    least_pixels: int = 0
    most_pixels: int = 0
    levels: int = 1
    """Hidden states that the tower hands over per token: more than one where deeper layers get their own."""


@record(frozen=True, slots=True)
class Tower:
    """A vision or audio encoder in front of a language model, with its projector."""

    kind: str
    params: int
    layers: int = 0
    hidden_size: int = 0
    intermediate_size: int = 0
    patch_pixels: int = 0
    """Side of a patch in pixels; 0 where it is unknown or no image tower."""
    merge: int = 1
    """Patches per token side after merging."""
    images: ImageRule | None = None
    """How images become tokens; ``None`` where that is not known."""


@record(frozen=True, slots=True)
class StoredBits:
    """What a checkpoint's shards hold, as bits per parameter of each part.

    ``wide_bits`` is of biases and norms. All parts together come to ``total_bytes``; ``source`` names the shards.
    """

    bits: tuple[tuple[str, float], ...]
    wide_bits: float
    total_bytes: int
    source: str


@record(frozen=True, eq=False)
class ModelShape:
    """Dimensions that memory and speed depend on; two shapes are equal only when they are the same object.

    ``kinds`` are the distinct layers and ``pattern`` their order (indices into ``kinds``), so that a stage of a pipeline can be
    cut at its true place. Parameter counts leave draft (multi-token-prediction) heads out and count tied embeddings once.
    """

    id: str
    family: str
    """``model_type`` of the config."""
    modality: str
    hidden_size: int
    vocab_size: int
    kinds: tuple[Layer, ...]
    pattern: tuple[int, ...]
    weights_dtype: str
    """Published width before quantisation: ``bf16``, ``fp16`` or ``fp32``."""
    max_context_tokens: int | None = None
    tied_embeddings: bool = False
    embedding_params: int = 0
    """Token embedding with position tables and embedding norms."""
    head_params: int = 0
    """Output projection; 0 where it is tied to the embedding."""
    final_norm_params: int = 0
    towers: tuple[Tower, ...] = ()
    draft_layers: int = 0
    """Multi-token-prediction layers, alike the last block, that an engine loads only for speculative decoding."""
    quantisation: Quantisation | None = None
    stored: StoredBits | None = None
    """Real bytes of the published checkpoint, where its shards were read."""
    notes: tuple[str, ...] = field(default=(), compare=False)
    """What a person should know of how this shape came about."""

    @property
    def num_layers(self) -> int:
        """Blocks in the stack, encoder blocks included."""
        return len(self.pattern)

    @cached_property
    def counts(self) -> tuple[int, ...]:
        """How often each of ``kinds`` occurs."""
        return tuple(self.pattern.count(index) for index in range(len(self.kinds)))

    @cached_property
    def draft_params(self) -> int:
        """Weights of the draft layers: a block each, three norms and a projection of two hidden states to one."""
        if not self.draft_layers:
            return 0
        extra = 2 * self.hidden_size * self.hidden_size + 3 * self.hidden_size
        return self.draft_layers * (self.kinds[self.pattern[-1]].params + extra)

    @cached_property
    def tower_params(self) -> int:
        """Weights of all towers."""
        return sum(tower.params for tower in self.towers)

    @cached_property
    def params_total(self) -> int:
        """All weights, every expert counted, draft heads left out."""
        layers = sum(count * kind.params for count, kind in zip(self.counts, self.kinds, strict=True))
        return layers + self.embedding_params + self.head_params + self.final_norm_params + self.tower_params

    @cached_property
    def params_active(self) -> int:
        """All weights minus idle routed experts."""
        idle = sum(
            count * (kind.params - kind.params_active) for count, kind in zip(self.counts, self.kinds, strict=True)
        )
        return self.params_total - idle

    @cached_property
    def is_moe(self) -> bool:
        """Whether any layer routes tokens to experts."""
        return any(kind.mlp.experts for kind in self.kinds)

    @cached_property
    def attention_heads(self) -> tuple[int, ...]:
        """Distinct query-head counts of the attention layers."""
        return tuple(sorted({kind.mixer.heads for kind in self.kinds if kind.mixer.heads}))

    @cached_property
    def kv_heads(self) -> tuple[int, ...]:
        """Distinct key-value-head counts of layers whose cache is split by head."""
        return tuple(sorted({kind.mixer.kv_heads for kind in self.kinds if kind.mixer.kv_heads}))
