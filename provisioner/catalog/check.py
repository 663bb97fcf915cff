"""Checks a catalog directory cell by cell against schema.csv, so that a broken row is an error at its place, never skipped."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import date
from typing import NoReturn

from provisioner.catalog.files import BUNDLED, CLASSES, CatalogFiles
from provisioner.errors import Position, UsageError

_NUMBER = re.compile(r"-?[0-9]{1,15}(?:\.[0-9]{1,30})?(?:[eE][+-]?[0-9]{1,2})?")
"""Bounded, so that no cell is an infinity or costs minutes to convert."""
_INTEGER = re.compile(r"[0-9]{1,15}")
_DATE = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")
_SHOWN_MAX = 40
_MAY_BE_FREE = "price_usd_per_gib"
"""Traffic can be free of charge; everything else with a price costs something (a price of 0 is a broken source row)."""

_MAY_BE_NEGATIVE = "savings_pct"
"""Spot can be dearer than on-demand; no other quantity is below 0."""


@dataclass(frozen=True, slots=True)
class Column:
    """One line of schema.csv."""

    name: str
    kind: str
    may_be_empty: bool
    allowed: tuple[str, ...]
    is_key: bool
    reference: tuple[str, tuple[str, ...]] | None
    """File and columns that hold the value."""


@dataclass(frozen=True, slots=True)
class _Row:
    line: int
    cells: tuple[str, ...]


class _Table:
    """One parsed file with the positions of its cells."""

    def __init__(self, files: CatalogFiles, name: str) -> None:
        self.name = name
        self._path = str(files.path(name))
        self._text = files.text(name)
        reader = csv.reader(io.StringIO(self._text, newline=""), strict=True)
        try:
            self.header = tuple(next(reader, ()))
            self.rows = [_Row(reader.line_num, tuple(cells)) for cells in reader if cells]
        except csv.Error as error:
            self._refuse(str(error), reader.line_num, 1)
        for row in self.rows:
            if len(row.cells) != len(self.header):
                self._refuse(f"{len(row.cells)} cells where the header has {len(self.header)}", row.line, 1)

    def column(self, name: str) -> int:
        """Place of a column in each row."""
        if name not in self.header:
            self._refuse(f"no column {name!r}", 1, 1)
        return self.header.index(name)

    def refuse(self, row: _Row, column: str, problem: str) -> NoReturn:
        """Raise for one cell."""
        index = self.column(column)
        self._refuse(f"column {column!r}: {problem}", row.line, self._offset(row.line, index))

    def _refuse(self, problem: str, line: int, column: int) -> NoReturn:
        raise UsageError(
            problem,
            where=Position(self._path, line, column),
            remedy="mend the row; columns and their types are listed in schema.csv of the bundled catalog",
        )

    def _offset(self, line: int, index: int) -> int:
        """Character at which the cell starts, from 1."""
        lines = self._text.split("\n")
        start, quoted = 0, False
        for place, character in enumerate(lines[line - 1]):
            if index == 0:
                break
            if character == '"':
                quoted = not quoted
            elif character == "," and not quoted:
                index -= 1
                start = place + 1
        return start + 1


def read_schema() -> dict[str, tuple[Column, ...]]:
    """Columns of each file, as the bundled schema.csv lists them."""
    tables: dict[str, list[Column]] = {}
    with (BUNDLED / "schema.csv").open(encoding="utf-8", newline="") as stream:
        for line in csv.DictReader(stream):
            target, _, columns = line["references"].partition(":")
            column = Column(
                name=line["column"],
                kind=line["type"],
                may_be_empty=line["empty_means"] != "never",
                allowed=tuple(line["allowed"].split("|")) if line["allowed"] else (),
                is_key=line["key"] == "yes",
                reference=(target, tuple(columns.split("+"))) if target else None,
            )
            tables.setdefault(line["file"], []).append(column)
    return {name: tuple(columns) for name, columns in tables.items()}


def check_files(files: CatalogFiles) -> None:
    """Refuse files whose cells break their type, whose keys repeat, or whose rows refer to nothing.

    Raises:
        UsageError: the first broken cell, with file:line:column and the column's name.
    """
    schema = read_schema()
    tables = {name: _Table(files, name) for name in files.names}
    for name, table in tables.items():
        for column in schema[name]:
            _check_column(table, column)
        _check_keys(table, schema[name])
    known: dict[tuple[str, tuple[str, ...]], set[tuple[str, ...]]] = {}
    for name, table in tables.items():
        for column in schema[name]:
            if column.reference is not None and _comes_from_here(name, column.reference[0], files):
                _check_references(table, column, _values(tables, column.reference, known))
    _check_instances(tables["instances.csv"])


def _comes_from_here(name: str, target: str, files: CatalogFiles) -> bool:
    """Whether both files are of one directory: the bundled classes do not refer to a user's GPUs and sources."""
    return name != CLASSES or files.path(name).parent == files.path(target).parent


def _check_column(table: _Table, column: Column) -> None:
    index = table.column(column.name)
    wrong = _PROBLEMS[column.kind]
    is_price = column.name.startswith("price_usd") and column.name != _MAY_BE_FREE
    for row in table.rows:
        cell = row.cells[index]
        if not cell:
            if not column.may_be_empty:
                table.refuse(row, column.name, "empty")
            continue
        problem = wrong(cell, column)
        if problem is None and is_price and float(cell) <= 0:
            problem = f"{cell} is no price: a price is more than 0"
        if problem is not None:
            table.refuse(row, column.name, problem)


def _shown(cell: str) -> str:
    """A cell as an error quotes it."""
    return repr(cell if len(cell) <= _SHOWN_MAX else f"{cell[:_SHOWN_MAX]}...")


def _text_problem(cell: str, column: Column) -> str | None:
    del column
    return f"{cell!r} has spaces around it" if cell != cell.strip() else None


def _number_problem(cell: str, column: Column) -> str | None:
    if not _NUMBER.fullmatch(cell):
        return f"{_shown(cell)} is not a number"
    return f"{cell} is below 0" if cell.startswith("-") and column.name != _MAY_BE_NEGATIVE else None


def _integer_problem(cell: str, column: Column) -> str | None:
    del column
    return None if _INTEGER.fullmatch(cell) else f"{_shown(cell)} is not a whole number"


def _date_problem(cell: str, column: Column) -> str | None:
    del column
    if _DATE.fullmatch(cell):
        try:
            date.fromisoformat(cell)
        except ValueError:
            pass
        else:
            return None
    return f"{cell!r} is not a date such as 2026-11-30"


def _enum_problem(cell: str, column: Column) -> str | None:
    return None if cell in column.allowed else f"{cell!r} is not one of {', '.join(column.allowed)}"


_PROBLEMS: Mapping[str, Callable[[str, Column], str | None]] = {
    "text": _text_problem,
    "codes": _text_problem,
    "number": _number_problem,
    "integer": _integer_problem,
    "date": _date_problem,
    "enum": _enum_problem,
}


def _check_keys(table: _Table, columns: tuple[Column, ...]) -> None:
    names = [column.name for column in columns if column.is_key]
    places = [table.column(name) for name in names]
    seen: dict[tuple[str, ...], int] = {}
    for row in table.rows:
        key = tuple(row.cells[place] for place in places)
        if key in seen:
            table.refuse(row, names[0], f"the same {' + '.join(names)} as line {seen[key]}: {', '.join(key)}")
        seen[key] = row.line


def _values(
    tables: Mapping[str, _Table],
    reference: tuple[str, tuple[str, ...]],
    known: dict[tuple[str, tuple[str, ...]], set[tuple[str, ...]]],
) -> set[tuple[str, ...]]:
    if reference not in known:
        target = tables[reference[0]]
        places = [target.column(name) for name in reference[1]]
        known[reference] = {tuple(row.cells[place] for place in places) for row in target.rows}
    return known[reference]


def _check_references(table: _Table, column: Column, values: set[tuple[str, ...]]) -> None:
    file, names = column.reference or ("", ())
    index = table.column(column.name)
    others = [table.column(name) for name in names if name != column.name] if len(names) > 1 else []
    for row in table.rows:
        for part in _parts(row.cells[index], column):
            key = (*(row.cells[place] for place in others), part)
            if key not in values:
                table.refuse(row, column.name, f"{' '.join(key)!r} is not in {file}")


def _parts(cell: str, column: Column) -> Iterator[str]:
    """The values in a cell: codes and sources are lists joined with ``;``."""
    if column.kind == "codes" or column.name == "source":
        yield from filter(None, cell.split(";"))
    elif cell:
        yield cell


def _check_instances(table: _Table) -> None:
    """A GPU type has GPUs, a fraction is of one GPU, and only a CPU host has none."""
    kind, model, count, fraction = (table.column(c) for c in ("kind", "gpu_model", "gpu_count", "gpu_fraction"))
    for row in table.rows:
        gpus, share = int(row.cells[count]), float(row.cells[fraction])
        if row.cells[kind] == "cpu_host":
            if gpus or row.cells[model]:
                table.refuse(row, "gpu_count", "a cpu_host has no GPUs")
            continue
        if not row.cells[model]:
            table.refuse(row, "gpu_model", "empty, though the type is no cpu_host")
        if gpus < 1:
            table.refuse(row, "gpu_count", "0, though the type is no cpu_host")
        if not 0 < share <= 1 or (share < 1 and gpus != 1):
            table.refuse(row, "gpu_fraction", "a share is more than 0 and at most 1, and below 1 only of one GPU")
