"""The record of a diffusers pipeline: its components counted from their own shards, its geometry from its own family.

``model_index.json`` names each component with its class; each has a folder with a config.json and safetensors files. What no
config states (the usual number of steps, the length of prompts) is that of the nearest bundled pipeline with the same denoiser.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from provisioner.added_models import PIPELINE_KEY
from provisioner.errors import UsageError
from provisioner.hub.language import read_json
from provisioner.hub.safetensors import checkpoint_tensors
from provisioner.hub.source import Source
from provisioner.sizing.pipelines import PipelineShape, pipeline_from_config, pipeline_records

ROLES = {
    "text_encoder": "text_encoder",
    "image_encoder": "image_encoder",
    "transformer": "denoiser",
    "unet": "denoiser",
    "controlnet": "denoiser",
    "prior": "denoiser",
    "vae": "vae",
    "vqvae": "vae",
    "movq": "vae",
    "vocoder": "vocoder",
    "safety_checker": "safety_checker",
    "connectors": "projection",
    "projection_model": "projection",
    "language_model": "conditioner",
}
"""Name of a component, numbers at its end left out -> role."""
WEIGHTLESS = ("scheduler", "tokenizer", "feature_extractor", "image_processor", "processor")
STEMS = ("diffusion_pytorch_model", "model")
DTYPES = {"F32": "float32", "BF16": "bfloat16", "F16": "float16"}
PARAMS_MAX = 10**13
COUNT_MAX = 10**6


def pipeline_config(source: Source, model_id: str, index: Mapping[str, Any]) -> tuple[dict[str, Any], PipelineShape]:
    """The config that is stored for a pipeline, and the shape it gives.

    Raises:
        GpuprovError: a denoiser that is not modelled, a component without weights, files that are malformed or missing.
    """
    components = [_component(source, name, entry) for name, entry in sorted(index.items()) if _is_network(name, entry)]
    denoisers = [part for part in components if part["role"] == "denoiser"]
    if not denoisers:
        raise UsageError(
            f"the pipeline {index.get('_class_name')} has no denoiser that is modelled",
            where=source.name,
            remedy="`gpuprov models` lists the image, video and audio models that are",
        )
    nearest = _nearest(source, denoisers[0])
    record = {
        **nearest,
        "id": model_id,
        "aliases": [],
        "components": components,
        "dtype": denoisers[0]["dtype"],
        "source": source.name,
        **_geometry(source, denoisers[0], nearest),
    }
    record.pop("as_of", None)
    config = {PIPELINE_KEY: record}
    return config, pipeline_from_config(config)


def _is_network(name: str, entry: Any) -> bool:
    is_named = isinstance(entry, list) and len(entry) == 2 and all(isinstance(word, str) for word in entry)
    return is_named and not name.startswith("_") and name.rstrip("_0123456789") not in WEIGHTLESS


def _component(source: Source, name: str, entry: list[str]) -> dict[str, Any]:
    role = ROLES.get(name.rstrip("_0123456789"))
    if role is None:
        raise UsageError(
            f"component {name} ({entry[1]}) of the pipeline is not modelled",
            where=source.name,
            remedy="`gpuprov models` lists the image, video and audio models that are",
        )
    files, tensors = checkpoint_tensors(source, STEMS, f"{name}/")
    if not files:
        raise UsageError(
            f"component {name} has no safetensors file",
            where=source.name,
            remedy="use a pipeline published as safetensors",
        )
    elements: dict[str, int] = {}
    for tensor in tensors:
        elements[tensor.dtype] = elements.get(tensor.dtype, 0) + tensor.elements
    params = sum(elements.values())
    most = max(elements, key=lambda dtype: elements[dtype], default="F16")
    if not 0 < params <= PARAMS_MAX or most not in DTYPES:
        raise UsageError(
            f"component {name} holds {params:,} elements, mostly {most}: not modelled",
            where=source.name,
            remedy="use a pipeline published in 16 or 32 bit, and state model.weights in the spec",
        )
    return {
        "name": name,
        "role": role,
        "class": entry[1],
        "params": params,
        "dtype": DTYPES[most],
        "optional": role == "safety_checker",
    }


def _nearest(source: Source, denoiser: Mapping[str, Any]) -> dict[str, Any]:
    """The bundled pipeline with the same class of denoiser and the nearest size."""
    alike: list[tuple[float, dict[str, Any]]] = []
    for known in pipeline_records():
        for part in known["components"]:
            if part["role"] == "denoiser" and part["class"] == denoiser["class"]:
                alike.append((abs(part["params"] / denoiser["params"] - 1), dict(known)))
                break
    if not alike:
        raise UsageError(
            f"the denoiser {denoiser['class']} is not modelled",
            where=source.name,
            remedy="`gpuprov models` lists the image, video and audio models that are",
        )
    return min(alike, key=lambda pair: (pair[0], pair[1]["id"]))[1]


def _geometry(source: Source, denoiser: Mapping[str, Any], nearest: Mapping[str, Any]) -> dict[str, Any]:
    """What the denoiser's config states: width and depth, patches, the side it was trained on."""
    config = read_json(source, f"{denoiser['name']}/config.json") or {}
    found: dict[str, Any] = {}
    heads, head_dim = _count(config, "num_attention_heads"), _count(config, "attention_head_dim")
    layers, more = _count(config, "num_layers"), _count(config, "num_single_layers")
    if nearest.get("width_depth") and heads and head_dim and layers:
        found["width_depth"] = [heads * head_dim, layers + more]
    side = _count(config, "sample_size")
    if nearest.get("modality") == "image" and side and nearest.get("vae_spatial"):
        found |= {"width": side * nearest["vae_spatial"], "height": side * nearest["vae_spatial"]}
    return found


def _count(config: Mapping[str, Any], name: str) -> int:
    """A whole number of a config, 0 where it states none that can be."""
    value = config.get(name)
    is_count = isinstance(value, int) and not isinstance(value, bool) and 0 < value <= COUNT_MAX
    return int(value) if is_count and value is not None else 0
