"""Starts of the capacity blocks that a refresh read: the price list has none, only an account's own offers do."""

from __future__ import annotations

import re

from provisioner.catalog.files import CatalogFiles
from provisioner.catalog.instance_prices import CLOUDS

_STARTS = re.compile(r"^starts ([0-9T:.-]+Z)")


def block_note(start: str) -> str:
    """The note of a price row whose block starts then (RFC 3339)."""
    return f"starts {start}"


def read_block_starts(files: CatalogFiles) -> dict[tuple[str, str, str, str], str]:
    """Starts by (cloud, instance type, region, zone), of the price rows that name one."""
    rows = files.rows(
        "prices.csv", *("cloud", "instance_type", "region", "zone", "purchase_model", "notes"), clouds=CLOUDS
    )
    return {
        (cloud, name, region, zone): found[1]
        for cloud, name, region, zone, model, notes in rows
        if model == "capacity_block" and (found := _STARTS.match(notes))
    }
