"""Models that ``gpuprov models add`` put into the user's cache: one JSON file each, written whole or not at all.

``$XDG_CACHE_HOME/gpuprov/models`` holds them by id in lower case, ``/`` written as ``--``. A file has what sizing needs and no
more: the config, and how many bytes of each part and number format the checkpoint's shards hold.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from provisioner.errors import UsageError
from provisioner.home import default_cache

SCHEMA = "gpuprov.model/1"
CHECKPOINT_KEY = "gpuprov_checkpoint"
"""Key of an added config that says which checkpoint it is of, with the bytes of its parts."""
PIPELINE_KEY = "gpuprov_pipeline"
"""Key of an added config that holds the record of a pipeline of several networks."""
PREPROCESSOR_KEY = "gpuprov_preprocessor"
"""Key of an added config that holds the limits of its image processor."""
ADDED_KEYS = (CHECKPOINT_KEY, PIPELINE_KEY)
"""One of these in a config makes ``id`` and ``config`` go together in a spec: the config is the one fetched for the id."""
ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,95}(?:/[A-Za-z0-9][A-Za-z0-9._-]{0,95})?")
"""Names of the hub: an organisation and a model, or a model alone."""
SIZE_BYTES_MAX = 32 * 2**20


def models_folder() -> Path:
    """Where added models are kept."""
    return default_cache() / "models"


def is_model_id(text: str) -> bool:
    """Whether a text can be the name of a model on the hub."""
    return ID.fullmatch(text) is not None and ".." not in text and "--" not in text


def file_of(model_id: str) -> Path:
    """The file of a model, whatever the case of its id."""
    return models_folder() / f"{model_id.strip().lower().replace('/', '--')}.json"


def read_added(model_id: str) -> dict[str, Any] | None:
    """The record of an added model by its whole id, whatever the case; ``None`` where there is none.

    Raises:
        UsageError: the file is damaged.
    """
    name = model_id.strip()
    if not is_model_id(name):
        return None
    path = file_of(name)
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise _damaged(path, error.strerror or str(error)) from None
    return _record(path, content)


def added_models() -> tuple[dict[str, Any], ...]:
    """All added models, by id.

    Raises:
        UsageError: one of the files is damaged.
    """
    try:
        paths = sorted(path for path in models_folder().iterdir() if path.suffix == ".json")
    except (FileNotFoundError, NotADirectoryError):
        return ()
    return tuple(_record(path, path.read_bytes()) for path in paths)


def write_added(record: Mapping[str, Any]) -> Path:
    """Store a record under its id: whoever reads meanwhile sees the old one or the new one.

    Raises:
        UsageError: the cache folder cannot be written.
    """
    path = file_of(record["id"])
    text = json.dumps({"schema": SCHEMA, **record}, ensure_ascii=False, sort_keys=True, indent=1)
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with beside.open("w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        beside.replace(path)
    except OSError as error:
        beside.unlink(missing_ok=True)
        raise UsageError(
            f"the model cannot be stored: {error.strerror or error}",
            where=str(path),
            remedy="set XDG_CACHE_HOME to a folder that can be written",
        ) from None
    return path


def remove_added(model_id: str) -> bool:
    """Forget an added model; false where there was none."""
    try:
        file_of(model_id).unlink()
    except FileNotFoundError:
        return False
    return True


def _record(path: Path, content: bytes) -> dict[str, Any]:
    try:
        record = json.loads(content) if len(content) <= SIZE_BYTES_MAX else None
    except ValueError as error:
        raise _damaged(path, f"it is not JSON: {error}") from None
    if not isinstance(record, dict) or record.get("schema") != SCHEMA or not isinstance(record.get("config"), dict):
        raise _damaged(path, f"it is no {SCHEMA}")
    return record


def _damaged(path: Path, why: str) -> UsageError:
    return UsageError(
        f"the record of an added model cannot be read: {why}",
        where=str(path),
        remedy="run `gpuprov models add` for it again, or remove the file",
    )
