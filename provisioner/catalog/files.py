"""The CSV files of a catalog: read once as bytes, digested, parsed when a table is asked for.

The bundled files are covered by tests, so their cells are trusted; a directory of the user's is checked cell by cell
(``provisioner.catalog.check``) before anything is built from it.
"""

from __future__ import annotations

import csv
import hashlib
import io
from collections.abc import Collection, Mapping
from operator import itemgetter
from pathlib import Path

from provisioner.errors import Position, UsageError

BUNDLED = Path(__file__).parent / "data"

CLASSES = "gpu_classes.csv"
"""Our own table; a catalog directory that has none uses the bundled one."""

SUPPLY = "supply.csv"
QUOTAS = "account_quotas.csv"

REQUIRED = (
    "attachable_gpus.csv",
    "billing_rules.csv",
    "driver_floors.csv",
    "gpu_aliases.csv",
    "gpus.csv",
    "images.csv",
    "instances.csv",
    "misc_prices.csv",
    "network_prices.csv",
    "offerings.csv",
    "prices.csv",
    "prices_attached_gpu.csv",
    "quotas.csv",
    "sources.csv",
    "spot_interruption.csv",
    "storage_capacity_prices.csv",
    "storage_performance_prices.csv",
    "suspect_reasons.csv",
)
OPTIONAL = (
    "gpu_memory_readings.csv",
    "gpu_partitions.csv",
    "instance_storage_limits.csv",
    "join_exceptions.csv",
    "prices_per_gpu.csv",
)
OWN = (QUOTAS, SUPPLY)
"""What only this account and host can know; no such file is bundled. ``prices refresh`` and launches write them."""


class CatalogFiles:
    """Bytes of all files of one catalog and the tables in them."""

    def __init__(self, paths: Mapping[str, Path], contents: Mapping[str, bytes]) -> None:
        self._paths = dict(paths)
        self._contents = dict(contents)

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the files that exist, sorted."""
        return tuple(sorted(self._contents))

    def path(self, name: str) -> Path:
        """Where a file was read from."""
        return self._paths[name]

    def digest(self) -> str:
        """``sha256:<hex>`` of all files (see ``digest_of``)."""
        return digest_of(self._contents)

    def content(self, name: str) -> bytes:
        """Bytes of a file."""
        return self._contents[name]

    def with_file(self, path: Path) -> CatalogFiles:
        """The same files and one more.

        Raises:
            UsageError: it cannot be read.
        """
        added = _read({path.name: path})
        return CatalogFiles({**self._paths, path.name: path}, {**self._contents, path.name: added.content(path.name)})

    def text(self, name: str) -> str:
        """Text of a file, without a byte order mark.

        Raises:
            UsageError: the file is not UTF-8.
        """
        content = self._contents[name]
        try:
            return content.decode("utf-8-sig")
        except UnicodeDecodeError as error:
            line = content.count(b"\n", 0, error.start) + 1
            raise UsageError(
                "not UTF-8 text", where=Position(str(self.path(name)), line), remedy="save the file as UTF-8"
            ) from None

    def rows(self, name: str, *columns: str, clouds: Collection[str] | None = None) -> list[tuple[str, ...]]:
        """Cells of the named columns (two or more) of each row, in file order; no rows where the file does not exist.

        ``clouds`` keeps only rows whose ``cloud`` cell is among them.
        """
        if name not in self._contents:
            return []
        text = self.text(name)
        header = next(csv.reader(io.StringIO(text, newline="")))
        places = [header.index(column) for column in columns]
        pick = itemgetter(*places)
        if clouds is None:
            return [pick(row) for row in _cells(text)]
        if header[0] == "cloud":
            starts = tuple(start for cloud in clouds for start in (f"{cloud},", f'"{cloud}",'))
            return [pick(row) for row in _cells(text, starts, max(places) + 1)]
        cloud = header.index("cloud")
        return [pick(row) for row in _cells(text) if row[cloud] in clouds]

    def header(self, name: str) -> list[str]:
        """Names of the columns of a file, in its order."""
        return next(csv.reader(io.StringIO(self.text(name), newline="")))

    def records(self, name: str) -> list[dict[str, str]]:
        """Each row as column name -> cell, in file order; no rows where the file does not exist."""
        if name not in self._contents:
            return []
        reader = csv.reader(io.StringIO(self.text(name), newline=""))
        header = next(reader)
        return [dict(zip(header, row, strict=True)) for row in reader if row]


def _cells(text: str, starts: tuple[str, ...] = (), wanted: int = -1) -> list[list[str]]:
    """Cells of each row but the first; with ``starts``, of the rows whose text starts like one of them.

    Only the first ``wanted`` cells are sure to be apart from each other.

    Tables of thousands of rows are read for each plan: lines without quotes, which nearly all are, need no CSV reader.
    """
    if "\r" in text or _has_long_cells(text):
        rows = csv.reader(io.StringIO(text, newline=""))
        next(rows)
        return [row for row in rows if row and (not starts or f"{row[0]},".startswith(starts))]
    lines = [line for line in text.split("\n")[1:] if line and (not starts or line.startswith(starts))]
    return [next(csv.reader([line])) if '"' in line else line.split(",", wanted) for line in lines]


def _has_long_cells(text: str) -> bool:
    """Whether a quoted cell may go over several lines."""
    return '"' in text and any(line.count('"') % 2 for line in text.split("\n") if '"' in line)


def digest_of(contents: Mapping[str, bytes]) -> str:
    """``sha256:<hex>`` over names, lengths and bytes, in the order of the names."""
    total = hashlib.sha256()
    for name in sorted(contents):
        content = contents[name]
        total.update(f"{name}\0{len(content)}\0".encode())
        total.update(content)
    return f"sha256:{total.hexdigest()}"


def bundled_files() -> CatalogFiles:
    """The files that ship with gpuprov."""
    return _read({name: BUNDLED / name for name in (*REQUIRED, *OPTIONAL, CLASSES)})


def directory_files(directory: Path) -> CatalogFiles:
    """The files of a catalog directory; all of ``REQUIRED`` must be there.

    Raises:
        UsageError: no such directory, or a file that is missing or cannot be read.
    """
    if not directory.is_dir():
        raise UsageError(
            "no such catalog directory",
            where=str(directory),
            remedy="give a directory of CSV files with --catalog or GPUPROV_CATALOG, or neither for the bundled catalog",
        )
    paths = {}
    for name in REQUIRED:
        paths[name] = directory / name
        if not paths[name].is_file():
            raise UsageError(
                f"the catalog has no {name}", where=str(paths[name]), remedy=f"it needs {', '.join(REQUIRED)}"
            )
    paths |= {name: directory / name for name in (*OPTIONAL, *OWN) if (directory / name).is_file()}
    own_classes = directory / CLASSES
    paths[CLASSES] = own_classes if own_classes.is_file() else BUNDLED / CLASSES
    return _read(paths)


def _read(paths: Mapping[str, Path]) -> CatalogFiles:
    contents = {}
    for name, path in paths.items():
        try:
            contents[name] = path.read_bytes()
        except OSError as error:
            raise UsageError(f"cannot be read: {error.strerror}", where=str(path)) from None
    return CatalogFiles(paths, contents)
