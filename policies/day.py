"""The day of a run."""

from __future__ import annotations

from datetime import UTC, date, datetime


def today_utc() -> date:
    """The day that waivers and ages are counted by."""
    return datetime.now(UTC).date()
