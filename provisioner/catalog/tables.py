"""CSV tables as they are written: UTF-8, header row, comma, line feeds, as the bundled files."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Sequence


def csv_bytes(header: Sequence[str], rows: Iterable[Sequence[str]]) -> bytes:
    """The bytes of a table."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(header)
    writer.writerows(rows)
    return text.getvalue().encode()
