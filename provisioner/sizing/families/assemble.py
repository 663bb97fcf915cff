"""Putting a shape together from its layers."""

from __future__ import annotations

from collections.abc import Sequence

from provisioner.errors import UsageError
from provisioner.sizing.families.context import context_limit
from provisioner.sizing.families.fields import Fields, dtype_word
from provisioner.sizing.quantisation import read_quantisation
from provisioner.sizing.shapes import Layer, ModelShape, Tower

MAX_LAYERS = 4096
"""More blocks than this are no model; it also bounds the work on hostile configs."""


def layer_count(fields: Fields, *names: str) -> int:
    """Number of blocks, bounded."""
    count = fields.need(*names)
    if count > MAX_LAYERS:
        raise UsageError(f"{fields.model_id}: config field {names[0]} is {count:,}, above {MAX_LAYERS}")
    return count


def assemble(
    fields: Fields,
    layers: Sequence[Layer],
    *,
    hidden: int,
    vocabulary: int,
    tied: bool,
    embedding_extra: int = 0,
    head_bias: bool = False,
    final_norm: int = 0,
    context: int | None = None,
    towers: tuple[Tower, ...] = (),
    draft_layers: int = 0,
    top: Fields | None = None,
) -> ModelShape:
    """A shape from layers in order; ``top`` is the outer config where the language model is a section of it.

    Raises:
        UsageError: fields were missing, or the quantisation is not modelled.
    """
    outer = top or fields
    outer.check()
    fields.check()
    kinds: list[Layer] = []
    seen: dict[int, int] = {}
    pattern: list[int] = []
    for layer in layers:
        index = seen.get(id(layer))
        if index is None:
            index = kinds.index(layer) if layer in kinds else len(kinds)
            if index == len(kinds):
                kinds.append(layer)
            seen[id(layer)] = index
        pattern.append(index)
    return ModelShape(
        id=outer.model_id,
        family=outer.family,
        modality="text+image" if towers else "text",
        hidden_size=hidden,
        vocab_size=vocabulary,
        kinds=tuple(kinds),
        pattern=tuple(pattern),
        weights_dtype=dtype_word(outer.config, dtype_word(fields.config)),
        max_context_tokens=context_limit(context, fields.config),
        tied_embeddings=tied,
        embedding_params=hidden * vocabulary + embedding_extra,
        head_params=(0 if tied else hidden * vocabulary) + (vocabulary if head_bias else 0),
        final_norm_params=final_norm,
        towers=towers,
        draft_layers=draft_layers,
        quantisation=read_quantisation(
            outer.config,
            is_moe=any(kind.mlp.experts for kind in kinds),
            is_latent=any(kind.mixer.kind == "latent" for kind in kinds),
        ),
    )
