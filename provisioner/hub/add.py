"""What ``gpuprov models add`` does: read, judge, store."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from provisioner.added_models import is_model_id, write_added
from provisioner.errors import UsageError
from provisioner.hub.language import language_config, read_json
from provisioner.hub.pipeline import pipeline_config
from provisioner.hub.source import FolderSource, Source
from provisioner.records import record
from provisioner.sizing.shapes import ModelShape


@record(frozen=True, slots=True)
class Added:
    """A model that is in the cache now."""

    shape: ModelShape
    record: dict[str, Any]
    path: Path


def add_model(source: Source, model_id: str, *, revision: str | None = None) -> Added:
    """Read a model's config and shard headers and store what sizing needs of them under its id.

    Raises:
        GpuprovError: the model is not there, not readable or not modelled; nothing is stored then.
    """
    config, shape = _read(source, model_id)
    stored: dict[str, Any] = {"id": model_id, "from": source.name, "config": config}
    if revision is not None:
        stored |= {"revision": revision, "commit": source.commit}
    return Added(shape, stored, write_added(stored))


def _read(source: Source, model_id: str) -> tuple[dict[str, Any], ModelShape]:
    config = read_json(source, "config.json")
    index = read_json(source, "model_index.json") if config is None or "model_type" not in config else None
    if index is not None:
        return pipeline_config(source, model_id, index)
    if config is not None:
        return language_config(source, model_id, config)
    adapter = read_json(source, "adapter_config.json")
    if adapter is not None:
        base = adapter.get("base_model_name_or_path") or "its base"
        raise UsageError(
            f"{model_id} is a LoRA adapter of {base}, not a model",
            where=source.name,
            remedy=f"add {base}, and name the adapter in model.adapters of the spec",
        )
    where = "it has no config.json" if source.is_local else "the hub answers 404 for its config.json"
    raise UsageError(
        f"no model {model_id!r} was found: {where}",
        where=source.name,
        remedy="check the spelling, or take the repository of the original weights: GGUF files carry no config",
    )


def folder_id(path: Path, wanted: str | None) -> str:
    """The id of a model on this machine: as asked, else the name of its folder.

    Raises:
        UsageError: neither can be an id.
    """
    folder = path.resolve()
    name = wanted or (folder.name if path.is_dir() else folder.parent.name)
    if not is_model_id(name):
        raise UsageError(
            f"{name!r} is no model id", where=str(path), remedy="give one with --as, such as --as my-org/my-model"
        )
    return name


def local_source(text: str) -> FolderSource | None:
    """The folder or file that an argument names; ``None`` where it is a name of the hub.

    Raises:
        UsageError: it is written as a path and there is nothing.
    """
    path = Path(text).expanduser()
    if path.exists():
        return FolderSource(path)
    if text.startswith(("./", "../", "/", "~")) or text.endswith(".json"):
        raise UsageError(f"there is no {text}", remedy="name a model's folder, its config.json, or an id of the hub")
    return None
