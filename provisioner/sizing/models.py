"""Finding a model's shape: in the bundled index by id or alias, in a config.json, or from explicit dimensions."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import field, replace
from functools import cache
from pathlib import Path
from typing import Any

from provisioner.added_models import CHECKPOINT_KEY, PIPELINE_KEY, added_models, read_added
from provisioner.errors import UsageError
from provisioner.records import record
from provisioner.sizing.families.fields import Fields
from provisioner.sizing.families.registry import read_shape
from provisioner.sizing.pipelines import pipeline, pipeline_from_config, pipeline_names, pipeline_records
from provisioner.sizing.quantisation import LINEAR_PARTS, Quantisation
from provisioner.sizing.shapes import ModelShape

DATA = Path(__file__).parent / "data"
RENAMED = (("meta-llama/llama-3.1-", "meta-llama/meta-llama-3.1-"),)
"""Beginnings of one publisher's names before and after a renaming: both lead to the same repositories. Source: the hub's
redirects of Llama 3.1, whose later repositories lost the "Meta-"."""
NEAREST = 4
"""How many ids an unknown one is answered with."""


@record(frozen=True, slots=True)
class KnownModel:
    """A bundled model as ``gpuprov models`` lists it."""

    id: str
    family: str
    modality: str
    params_total: int
    params_active: int
    max_context_tokens: int | None
    weights_dtype: str
    quantisation: str
    aliases: tuple[str, ...]
    source: str
    as_of: str | None
    origin: str = "bundled"
    """``added`` where ``gpuprov models add`` fetched it into the user's cache."""
    commit: str | None = None
    """Of an added model: the commit that was read."""
    shape: ModelShape | None = field(default=None, compare=False)
    """The shape, where it is at hand."""


@cache
def _names() -> dict[str, list[Any]]:
    """Lower-case name -> offset, length and own weight format of the line that describes the model."""
    names: dict[str, list[Any]] = json.loads((DATA / "models.index.json").read_bytes())
    return names


def _line(offset: int, length: int) -> dict[str, Any]:
    with (DATA / "models.jsonl").open("rb") as file:
        file.seek(offset)
        record: dict[str, Any] = json.loads(file.read(length))
    return record


def find_model(model_id: str) -> ModelShape:
    """Shape of a bundled or added model by id or alias, whatever the case.

    A name without its organisation works where it is unique. Image, video and audio models are ``PipelineShape``.

    Raises:
        UsageError: no such model; the nearest ids are named.
    """
    bundled = _bundled_model(model_id.strip().lower())
    if bundled is not None:
        return bundled
    added = read_added(model_id)
    if added is not None:
        return shape_from_config(added["config"], str(added["id"]))
    raise unknown_model(model_id, [*_names(), *pipeline_names()])


@cache
def _bundled_model(key: str) -> ModelShape | None:
    entry = _named(key, _names())
    if entry is not None:
        record = _line(entry[0], entry[1])
        shape = shape_from_config(record["config"], record["id"])
        return _requantised(shape, str(entry[2])) if len(entry) > 2 else shape
    index = _named(key, pipeline_names())
    return None if index is None else pipeline(index)


def _named(key: str, names: Mapping[str, Any]) -> Any:
    """What a name stands for, ``None`` where it is unknown, or ambiguous without its organisation."""
    if key in names:
        return names[key]
    if "/" in key:
        renamed = (
            new + key.removeprefix(old) for pair in RENAMED for old, new in (pair, pair[::-1]) if key.startswith(old)
        )
        return next((names[name] for name in renamed if name in names), None)
    endings = [value for name, value in names.items() if name.partition("/")[2] == key]
    return endings[0] if endings and all(value == endings[0] for value in endings) else None


def unknown_model(model_id: str, names: Iterable[str]) -> UsageError:
    """The answer to an id that is not bundled: the nearest ones and the other ways."""
    from difflib import get_close_matches

    key = model_id.strip().lower()
    by_ending = {name.partition("/")[2]: name for name in names}
    near = get_close_matches(key, list(names), NEAREST, 0.6)
    near += [by_ending[end] for end in get_close_matches(key.rpartition("/")[2], list(by_ending), NEAREST, 0.6)]
    shown = [_spelling(name) for name in list(dict.fromkeys(near))[:NEAREST]]
    hint = f"did you mean {', '.join(shown)}? " if shown else ""
    return UsageError(
        f"model {model_id!r} is neither bundled nor added",
        remedy=f"{hint}`gpuprov models` lists all; `gpuprov models add {model_id.strip()[:200]}` fetches its config and shard headers; "
        "or give model.config (a config.json) or model.shape",
    )


def _spelling(name: str) -> str:
    """A known name as its publisher writes it; names are looked up in lower case, and an alias stays so."""
    if name in _names():
        published = str(find_model(name).id)
    elif name in pipeline_names():
        published = pipeline(pipeline_names()[name]).id
    else:
        return name
    return published if published.lower() == name else name


def _requantised(shape: ModelShape, weight_format: str) -> ModelShape:
    """A checkpoint of the same shape that is published in another format."""
    if weight_format == "none":
        return replace(shape, quantisation=None)
    weight_format, _, only = weight_format.partition(":")
    parts = tuple(only.split(",")) if only else LINEAR_PARTS
    formats = tuple(sorted((part, weight_format) for part in parts))
    return replace(shape, quantisation=Quantisation(weight_format, formats))


def shape_from_config(config: Mapping[str, Any], model_id: str) -> ModelShape:
    """Shape from the content of a config.json.

    Raises:
        UsageError: the model type is not modelled, or fields are missing or contradict each other; each is named.
    """
    if not isinstance(config, Mapping):
        raise UsageError(f"{model_id}: a model config is a mapping of fields, not {type(config).__name__}")
    if PIPELINE_KEY in config:
        return pipeline_from_config(config)
    shape = read_shape(Fields(config, model_id))
    if CHECKPOINT_KEY not in config:
        return shape
    from provisioner.sizing.checkpoint import with_checkpoint  # only for models whose shards were read
    from provisioner.sizing.multimodal import with_image_limits

    return with_checkpoint(with_image_limits(shape, config), config)


DIMENSIONS = {
    "layers": "num_hidden_layers",
    "hidden_size": "hidden_size",
    "heads": "num_attention_heads",
    "kv_heads": "num_key_value_heads",
    "head_dim": "head_dim",
    "intermediate_size": "intermediate_size",
    "vocab_size": "vocab_size",
    "max_context_tokens": "max_position_embeddings",
    "sliding_window": "sliding_window",
    "tied_embeddings": "tie_word_embeddings",
    "attention_bias": "attention_bias",
    "experts": "num_experts",
    "experts_per_token": "num_experts_per_tok",
    "expert_intermediate_size": "moe_intermediate_size",
    "shared_expert_intermediate_size": "shared_expert_intermediate_size",
    "dense_layers": "first_k_dense_replace",
    "weights_dtype": "torch_dtype",
}
"""Keys of ``model.shape`` -> config fields; the fields' own names work as well."""


def shape_from_dimensions(dimensions: Mapping[str, Any], model_id: str = "model.shape") -> ModelShape:
    """Shape of a Llama-like model (dense or routed) from explicit dimensions.

    Raises:
        UsageError: a key is not known, or a needed dimension is missing; each is named.
    """
    if "model_type" in dimensions:
        return shape_from_config(dimensions, model_id)
    fields = set(DIMENSIONS.values())
    unknown = [key for key in dimensions if key not in DIMENSIONS and key not in fields]
    if unknown:
        raise UsageError(
            f"{model_id}: {', '.join(map(repr, unknown))} is no dimension",
            remedy=f"dimensions are {', '.join(DIMENSIONS)}",
        )
    needed = ("layers", "hidden_size", "heads", "intermediate_size", "vocab_size")
    missing = [key for key in needed if key not in dimensions and DIMENSIONS[key] not in dimensions]
    if missing:
        raise UsageError(f"{model_id}: {', '.join(missing)} missing", remedy="state all of " + ", ".join(needed))
    config = {DIMENSIONS.get(key, key): value for key, value in dimensions.items()}
    words = {"bf16": "bfloat16", "fp16": "float16", "fp32": "float32"}
    config["torch_dtype"] = words.get(str(config.get("torch_dtype")), config.get("torch_dtype", "bfloat16"))
    return shape_from_config({**config, "model_type": "llama"}, model_id)


def known_models() -> tuple[KnownModel, ...]:
    """All bundled and added models by id; an added one stands in for a bundled one of the same id.

    Raises:
        UsageError: the record of an added model is damaged.
    """
    lines = [json.loads(line) for line in (DATA / "models.jsonl").read_bytes().splitlines()]
    listed = [_listed(shape_from_config(line["config"], line["id"]), line) for line in lines]
    listed += [_listed(pipeline(index), each) for index, each in enumerate(pipeline_records())]
    listed += [known_added(each) for each in added_models()]
    by_id = {model.id.lower(): model for model in listed}
    return tuple(by_id[name] for name in sorted(by_id))


def known_added(record: Mapping[str, Any]) -> KnownModel:
    """An added model as it is listed.

    Raises:
        UsageError: its record is damaged, or of an architecture that is no longer modelled.
    """
    shape = shape_from_config(record["config"], str(record["id"]))
    listed = {"aliases": (), "source": str(record.get("from", "")), "as_of": None}
    return replace(_listed(shape, listed), origin="added", commit=record.get("commit"))


def _listed(shape: ModelShape, record: Mapping[str, Any]) -> KnownModel:
    return KnownModel(
        id=shape.id,
        family=shape.family,
        modality=shape.modality,
        params_total=shape.params_total,
        params_active=shape.params_active,
        max_context_tokens=shape.max_context_tokens,
        weights_dtype=shape.weights_dtype,
        quantisation=shape.quantisation.method if shape.quantisation else "none",
        aliases=tuple(record["aliases"]),
        source=record["source"],
        as_of=record["as_of"],
        shape=shape,
    )
