"""What the shards of a checkpoint really hold: bytes by part and number format, from the headers of its safetensors files.

The section ``gpuprov_checkpoint`` of an added model's config has them (``provisioner.added_models``). A shape made with it sizes
``weights: auto`` by these bytes instead of by formats and dimensions.

Source: https://huggingface.co/docs/safetensors (number formats of a header).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from provisioner.added_models import CHECKPOINT_KEY
from provisioner.errors import UsageError
from provisioner.records import record
from provisioner.sizing.components import part_params
from provisioner.sizing.quantisation import LINEAR_PARTS, Quantisation
from provisioner.sizing.shapes import ModelShape, Part, StoredBits
from provisioner.sizing.weights import published_bits, total_weight_bytes, with_bits
from provisioner.units import format_gib

WIDE_DTYPES = {"F32": "fp32", "BF16": "bf16", "F16": "fp16"}
FP8_DTYPES = ("F8_E4M3", "F8_E5M2")
AGREEMENT = 0.01
"""Relative difference between shards and config above which both are told: rounding, buffers and position tables stay below."""
PART_AGREEMENT = 0.03
"""The same for the elements of one part."""
MINOR_SHARE = 0.01
"""Share of the parameters below which a part does not decide how bytes are attributed."""

_TOWERS = (
    r"vision|visual|image|(^|\.)audio|multi_modal|mm_projector|mlp1\.|(^|\.)vit(\.|$)|vpm|resampler|patch_embed|"
    r"patch_merger|aligner|embed_audio"
)
_PARTS = tuple(
    (part, re.compile(pattern, re.IGNORECASE))
    for part, pattern in (
        (Part.DRAFT, r"(^|\.)(mtp|nextn|eagle|draft|medusa)"),
        (Part.TOWER, _TOWERS),
        (Part.HEAD, r"(^|\.)(lm_head|embed_out|output_layer|output|head)\.[^.]+$"),
        (
            Part.EMBEDDING,
            r"embed_tokens|tok_embeddings|word_embeddings|(^|\.)(wte|wpe|embed_in|embed|shared|embeddings?)(\.|$)",
        ),
        (Part.SHARED_EXPERT, r"shared_experts?\.|shared_mlp"),
        (Part.ROUTER, r"(^|\.)(router|gate|shared_expert_gate)\."),
        (Part.EXPERT, r"(\.|_)experts?(\.|_)|switch_mlp"),
        (Part.LINEAR_ATTENTION, r"linear_attn|mamba|(^|\.)ssm|(^|\.)mixer\.(in_proj|conv1d|out_proj|A_log|D|dt)"),
        (Part.NORM, r"norm|(^|\.)ln_"),
        (Part.ATTENTION, r"attn|attention|[qkvo]_proj|query_key_value|qkv"),
        (Part.MLP, r"mlp|ffn|feed_forward|(gate|up|down)_proj|fc[12]|dense_h_to_4h|DenseReluDense|mixer"),
    )
)
"""Names of tensors -> part; the first match counts."""
_LAYER = re.compile(r"(?:^|\.)(?:layers|h|blocks)\.(\d+)\.")


def part_of_tensor(name: str, layers: int | None) -> str:
    """The part that a tensor belongs to by its name; blocks from number ``layers`` on are draft heads."""
    part = next((part for part, pattern in _PARTS if pattern.search(name)), Part.NORM)
    block = _LAYER.search(name)
    if part is not Part.TOWER and layers and block is not None and int(block[1]) >= layers:
        return str(Part.DRAFT)
    return str(part)


@record(frozen=True, slots=True)
class Tensor:
    """One tensor of a shard."""

    name: str
    dtype: str
    elements: int
    size_bytes: int


def sum_parts(tensors: Iterable[Tensor], layers: int | None) -> dict[str, dict[str, list[int]]]:
    """Part -> number format -> [elements, bytes]."""
    found: dict[str, dict[str, list[int]]] = {}
    for tensor in tensors:
        cell = found.setdefault(part_of_tensor(tensor.name, layers), {}).setdefault(tensor.dtype, [0, 0])
        cell[0] += tensor.elements
        cell[1] += tensor.size_bytes
    return {part: dict(sorted(cells.items())) for part, cells in sorted(found.items())}


def with_checkpoint(shape: ModelShape, config: Mapping[str, Any]) -> ModelShape:
    """The shape with the bytes that its checkpoint's shards hold; as it was where the config has no such section.

    Raises:
        UsageError: the section is damaged.
    """
    section = config.get(CHECKPOINT_KEY)
    if not isinstance(section, Mapping) or not section.get("parts") or not shape.kinds:
        return shape
    parts = _parts(section["parts"], shape.id)
    kept = {part: cells for part, cells in parts.items() if part != Part.DRAFT}
    total = _sum(kept, 1)
    if total <= 0:
        raise UsageError(f"{shape.id}: the checkpoint section of its config holds no weights")
    shape = _with_real_dtype(shape, kept)
    computed = total_weight_bytes(shape, keeps_fp32=True)
    bits = _bits_by_part(shape, kept) or published_bits(shape)
    sized = with_bits(shape, bits)
    factor = total / total_weight_bytes(sized, keeps_fp32=True)
    stored = StoredBits(
        bits=tuple((part, value * factor) for part, value in sized.stored.bits) if sized.stored else (),
        wide_bits=sized.stored.wide_bits * factor if sized.stored else 0.0,
        total_bytes=total,
        source=_source(section),
    )
    notes = shape.notes
    if abs(computed / total - 1) > AGREEMENT:
        notes = (
            *notes,
            f"{_source(section)} hold {format_gib(total)}, its config gives {format_gib(computed)}: the shards count",
        )
    return replace(shape, stored=stored, notes=notes)


def _source(section: Mapping[str, Any]) -> str:
    files = section.get("files")
    commit = f" at {str(section['commit'])[:12]}" if section.get("commit") else ""
    return f"the {files} shard headers of {section.get('id')}{commit}"


def _parts(section: Any, model_id: str) -> dict[str, dict[str, tuple[int, int]]]:
    try:
        return {
            str(part): {str(dtype): (int(cell[0]), int(cell[1])) for dtype, cell in cells.items()}
            for part, cells in section.items()
        }
    except (AttributeError, IndexError, KeyError, TypeError, ValueError):
        raise UsageError(
            f"{model_id}: the checkpoint section of its config is damaged", remedy="run `gpuprov models add` again"
        ) from None


def _sum(parts: Mapping[str, Mapping[str, tuple[int, int]]], column: int) -> int:
    return sum(cell[column] for cells in parts.values() for cell in cells.values())


def _with_real_dtype(shape: ModelShape, parts: Mapping[str, Mapping[str, tuple[int, int]]]) -> ModelShape:
    """The shape in the number format that most of its elements have, where config and shards differ in that."""
    elements: dict[str, int] = {}
    for cells in parts.values():
        for dtype, cell in cells.items():
            elements[dtype] = elements.get(dtype, 0) + cell[0]
    most = max(elements, key=lambda dtype: elements[dtype])
    if shape.quantisation is None and most in WIDE_DTYPES and WIDE_DTYPES[most] != shape.weights_dtype:
        return replace(shape, weights_dtype=WIDE_DTYPES[most])
    if shape.quantisation is None and most in FP8_DTYPES:
        return replace(shape, quantisation=Quantisation("fp8", tuple((part, "fp8") for part in sorted(LINEAR_PARTS))))
    return shape


def _bits_by_part(shape: ModelShape, parts: Mapping[str, Mapping[str, tuple[int, int]]]) -> dict[str, float] | None:
    """Bits per parameter of each part; ``None`` where names and dimensions do not attribute bytes in the same way."""
    wanted = part_params(shape)
    total = sum(wanted.values())
    found: dict[str, float] = {}
    for part, params in wanted.items():
        cells = parts.get(part, {})
        size = sum(cell[1] for cell in cells.values())
        is_plain = all(dtype in WIDE_DTYPES for dtype in cells)
        elements = sum(cell[0] for cell in cells.values())
        agrees = not is_plain or abs(elements / params - 1) <= PART_AGREEMENT
        if params > MINOR_SHARE * total and not (size and agrees):
            return None
        found[part] = size * 8 / params
    return found
