"""The user's catalog cache: whole snapshots of refreshed CSV files, switched over in one step.

``$XDG_CACHE_HOME/gpuprov/catalog`` holds one folder a snapshot and a link ``current`` to the one that counts. A snapshot is
written beside the others, synced, checked, renamed, and only then linked: whoever reads while it is written, and whoever kills
the writer at any moment, finds the old snapshot whole or the new one whole. What only this host knows (``supply.csv``) lies
beside the snapshots, since launches add to it between refreshes.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from provisioner.catalog.files import BUNDLED, SUPPLY, CatalogFiles, digest_of, directory_files
from provisioner.errors import UsageError
from provisioner.home import default_cache

CURRENT = "current"
MANIFEST = "manifest.json"
QUARANTINE = "quarantine.csv"
MANIFEST_SCHEMA = "gpuprov.catalog-cache/1"

_BASE_FILES = ("gpu_classes.csv", "gpus.csv", "instances.csv", "offerings.csv", "prices.csv", "schema.csv")
"""Bundled files that a snapshot was merged over: when one of them changed, the snapshot is of another version's data."""


def cache_folder() -> Path:
    """``$XDG_CACHE_HOME/gpuprov/catalog``, or the same in the platform's cache folder."""
    return default_cache() / "catalog"


class Fetched(NamedTuple):
    """When one kind of row was last read from a cloud, per region, and how many rows it gave."""

    cloud: str
    region: str
    kind: str
    """A purchase model of prices.csv, ``attached_gpu``, ``offerings``, ``quotas`` or ``placement_scores``."""
    fetched_at: str
    rows: int


class FailedRegion(NamedTuple):
    """A region that the last refresh of its cloud could not read; its rows are as old as they say."""

    cloud: str
    region: str
    failed_at: str
    reason: str


class Manifest(NamedTuple):
    """What a snapshot is: of which bundled data, with which digest, and when each part was read."""

    base: str
    digest: str
    written_at: str
    fetched: tuple[Fetched, ...] = ()
    failed: tuple[FailedRegion, ...] = ()

    def to_document(self) -> dict[str, Any]:
        """The JSON form, ``gpuprov.catalog-cache/1``."""
        return {
            "schema": MANIFEST_SCHEMA,
            "base": self.base,
            "digest": self.digest,
            "written_at": self.written_at,
            "fetched": [one._asdict() for one in self.fetched],
            "failed": [one._asdict() for one in self.failed],
        }


class Snapshot(NamedTuple):
    """One refreshed catalog on disk."""

    path: Path
    manifest: Manifest
    files: CatalogFiles


def base_digest() -> str:
    """``sha256:<hex>`` of the bundled files that snapshots are merged over."""
    return digest_of({name: (BUNDLED / name).read_bytes() for name in _BASE_FILES})


def read_snapshot(folder: Path | None = None) -> Snapshot | None:
    """The current snapshot, or ``None`` where nothing was refreshed yet.

    Raises:
        UsageError: the snapshot is damaged; the remedy says what to do.
    """
    link = (folder or cache_folder()) / CURRENT
    for _ in range(2):  # A refresh may move the link and clear the folder between two reads.
        if not link.is_symlink():
            return None
        path = link.resolve()
        try:
            return _read(path)
        except (FileNotFoundError, UsageError):
            if link.resolve() == path:
                raise _damaged(path, "a file is missing or cannot be read") from None
    raise _damaged(link, "it moves while it is read")


def _read(path: Path) -> Snapshot:
    text = (path / MANIFEST).read_bytes()
    try:
        manifest = _manifest(json.loads(text))
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise _damaged(path, f"{MANIFEST} is not readable: {error}") from None
    files = directory_files(path)
    if files.digest() != manifest.digest:
        raise _damaged(path, "its files are not those that were written")
    return Snapshot(path, manifest, files)


def _manifest(document: Mapping[str, Any]) -> Manifest:
    if document["schema"] != MANIFEST_SCHEMA:
        raise ValueError(f"schema is {document['schema']!r}")
    return Manifest(
        base=document["base"],
        digest=document["digest"],
        written_at=document["written_at"],
        fetched=tuple(Fetched(**one) for one in document["fetched"]),
        failed=tuple(FailedRegion(**one) for one in document["failed"]),
    )


def _damaged(path: Path, why: str) -> UsageError:
    return UsageError(
        f"the refreshed catalog is damaged: {why}",
        where=str(path),
        remedy=f"remove {path.parent} and run `gpuprov prices refresh`, or set GPUPROV_CATALOG=bundled",
    )


def supply_path(folder: Path | None = None) -> Path:
    """Where observations of supply are kept."""
    return (folder or cache_folder()) / SUPPLY
