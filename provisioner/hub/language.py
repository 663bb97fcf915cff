"""The record of a language model: its config made small, and what its shards hold."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, NoReturn

from provisioner.added_models import CHECKPOINT_KEY, PREPROCESSOR_KEY
from provisioner.errors import CloudError, GpuprovError, UsageError
from provisioner.hub.safetensors import checkpoint_tensors
from provisioner.hub.source import Source
from provisioner.sizing.checkpoint import sum_parts
from provisioner.sizing.models import shape_from_config
from provisioner.sizing.quantisation import condense
from provisioner.sizing.shapes import ModelShape

CONFIG_BYTES_MAX = 16 * 2**20
STEMS = ("model", "consolidated")
"""Names of checkpoints: transformers', and Mistral's own."""
QUANTISATION_FILES = (
    ("hf_quant_config.json", "modelopt"),
    ("quantize_config.json", "gptq"),
    ("quant_config.json", "awq"),
)
"""Where older or other tools state the quantisation that a config.json leaves out, with their method."""
PACKED = ("I32", "U8", "I8", "F8_E4M3", "F8_E5M2")
"""Number formats that no unquantised checkpoint has."""
LABELS = ("id2label", "label2id", "task_specific_params", "auto_map", "transformers_version", "_name_or_path")
"""Keys that no reader looks at and that can be long."""
IMAGE_LIMITS = ("min_pixels", "max_pixels", "size", "image_seq_length", "in_patch_limit", "max_patches", "longest_edge")
"""Keys of preprocessor_config.json that say how large an image stays."""


def read_json(source: Source, path: str) -> dict[str, Any] | None:
    """A JSON object among the model's files; ``None`` where there is no such file.

    Raises:
        GpuprovError: it is no JSON object, or cannot be read.
    """
    content = source.file(path, CONFIG_BYTES_MAX)
    if content is None:
        return None
    try:
        document = json.loads(content)
    except (ValueError, RecursionError) as error:
        _refuse(source, f"{path} is not JSON: {error}")
    if not isinstance(document, dict):
        _refuse(source, f"{path} holds no JSON object")
    return document


def _refuse(source: Source, message: str) -> NoReturn:
    if source.is_local:
        raise UsageError(message, where=source.name, remedy="name a model's folder or its config.json")
    raise CloudError(
        message, where=source.name, remedy="run the command again; if it stays so, tell the model's authors"
    )


def language_config(source: Source, model_id: str, config: dict[str, Any]) -> tuple[dict[str, Any], ModelShape]:
    """The config that is stored, with the section of the checkpoint where there are safetensors files; and the shape it gives.

    Raises:
        GpuprovError: the architecture is not modelled, or files are malformed or cannot be read.
    """
    shape = _shape(source, config, model_id)
    files, tensors = checkpoint_tensors(source, STEMS)
    if shape.quantisation is None and any(tensor.dtype in PACKED for tensor in tensors):
        config = {**config, **_separate_quantisation(source)}
        shape = _shape(source, config, model_id)
    small = _condensed(config, shape)
    if "vision_config" in config or shape.towers:
        limits = read_json(source, "preprocessor_config.json") or {}
        kept = {key: limits[key] for key in IMAGE_LIMITS if limits.get(key) is not None}
        small |= {PREPROCESSOR_KEY: kept} if kept else {}
    section: dict[str, Any] = {"id": model_id, "files": len(files)}
    if files:
        section["parts"] = sum_parts(tensors, shape.num_layers)
    if source.commit:
        section["commit"] = source.commit
    small[CHECKPOINT_KEY] = section
    return small, _shape(source, small, model_id)


def _shape(source: Source, config: Mapping[str, Any], model_id: str) -> ModelShape:
    try:
        return shape_from_config(config, model_id)
    except GpuprovError as error:
        error.where = error.where or source.name
        raise


def _separate_quantisation(source: Source) -> dict[str, Any]:
    for path, method in QUANTISATION_FILES:
        found = read_json(source, path)
        if found is not None:
            section = found.get("quantization") if isinstance(found.get("quantization"), dict) else found
            return {"quantization_config": {"quant_method": method, **section}} if section else {}
    return {}


def _condensed(config: Mapping[str, Any], shape: ModelShape) -> dict[str, Any]:
    """The config without labels, its quantisation in the short form of the bundled index."""
    small = {
        key: value for key, value in config.items() if key not in (*LABELS, "quantization_config") and value is not None
    }
    if isinstance(small.get("text_config"), dict):
        small["text_config"] = {
            key: value for key, value in small["text_config"].items() if key != "quantization_config"
        }
    is_latent = any(kind.mixer.kind == "latent" for kind in shape.kinds)
    quantisation = condense(config, is_moe=shape.is_moe, is_latent=is_latent)
    return {**small, "quantization_config": quantisation} if quantisation else small
