"""Starts of the capacity blocks that a refresh read: the price list has none, only an account's own offers do."""

from __future__ import annotations

import re

from provisioner.catalog.files import CatalogFiles
from provisioner.catalog.instance_prices import ANY
from provisioner.catalog.offers import Lot

_STARTS = re.compile(r"^starts ([0-9T:.-]+Z)")


def block_note(start: str) -> str:
    """The note of a price row whose block starts then (RFC 3339)."""
    return f"starts {start}"


def block_start(files: CatalogFiles, lot: Lot) -> str | None:
    """The start in the note of a lot's price row; ``None`` where the row names none."""
    places = {zone or ANY for zone in lot.zones} | {ANY}
    for row in files.records("prices.csv"):
        if (
            row["purchase_model"] == "capacity_block"
            and (row["cloud"], row["instance_type"], row["region"]) == (lot.cloud, lot.instance.name, lot.region)
            and row["zone"] in places
            and (found := _STARTS.match(row["notes"]))
        ):
            return found[1]
    return None
