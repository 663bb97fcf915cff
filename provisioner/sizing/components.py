"""Parameters of a model by component, as ``gpuprov models ID`` lists them and checkpoints are compared with."""

from __future__ import annotations

from functools import lru_cache

from provisioner.sizing.pipelines import PipelineShape
from provisioner.sizing.shapes import ModelShape, Part


@lru_cache(maxsize=64)
def part_params(shape: ModelShape) -> dict[str, int]:
    """Parameters of each part of a language model that has any, draft heads left out; they add up to ``params_total``.

    A layer's biases and per-head norms count with the part that they stand in.
    """
    found: dict[str, int] = {
        Part.EMBEDDING: shape.embedding_params,
        Part.HEAD: shape.head_params,
        Part.NORM: shape.final_norm_params,
        Part.TOWER: shape.tower_params,
    }

    def add(part: str, params: int) -> None:
        found[part] = found.get(part, 0) + params

    for count, kind in zip(shape.counts, shape.kinds, strict=True):
        mixer, mlp = kind.mixer, kind.mlp
        add(mixer.part, count * (mixer.matrix_params + mixer.vector_params))
        add(mlp.part, count * (mlp.matrix_params + mlp.vector_params))
        add(Part.EXPERT, count * mlp.experts * (mlp.expert_params + mlp.expert_vector_params))
        add(Part.ROUTER, count * mlp.router_params)
        add(Part.NORM, count * kind.norm_params)
    return {str(part): params for part, params in found.items() if params}


COMPONENTS = {
    Part.EMBEDDING: "embeddings",
    Part.ATTENTION: "attention",
    Part.LINEAR_ATTENTION: "linear_attention",
    Part.MLP: "mlp",
    Part.EXPERT: "experts",
    Part.SHARED_EXPERT: "shared_experts",
    Part.ROUTER: "routers",
    Part.NORM: "norms",
    Part.HEAD: "head",
    Part.TOWER: "towers",
    Part.DRAFT: "mtp",
}
"""Parts as a listing names them, in its order; ``mtp`` are the draft (multi-token-prediction) heads, which no total counts."""


def component_params(shape: ModelShape) -> dict[str, int]:
    """Parameters of each component: parts of a language model with its draft heads, or networks of a pipeline by name."""
    if isinstance(shape, PipelineShape):
        return {part.name: part.params for part in shape.components}
    found = part_params(shape) | {str(Part.DRAFT): shape.draft_params}
    return {name: found[part] for part, name in COMPONENTS.items() if found.get(part)}
