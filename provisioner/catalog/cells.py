"""Values of single CSV cells: an empty cell is unknown, never zero."""

from __future__ import annotations

from decimal import Decimal

from provisioner.units import GIB, MIB


def bytes_of_mib(cell: str) -> int | None:
    """Bytes of a cell in MiB."""
    return int(Decimal(cell) * MIB) if cell else None


def bytes_of_gib(cell: str) -> int | None:
    """Bytes of a cell in GiB."""
    return int(Decimal(cell) * GIB) if cell else None


def scaled(cell: str, factor: float) -> float | None:
    """A number times a factor."""
    return float(cell) * factor if cell else None


def number(cell: str) -> float | None:
    """A number."""
    return float(cell) if cell else None


def split_codes(cell: str) -> tuple[str, ...]:
    """Values of a cell that joins them with ``;``."""
    return tuple(cell.split(";")) if cell else ()
