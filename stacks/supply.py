"""What offers that were tried say about supply, kept for later plans; what the sandbox says is not kept."""

from __future__ import annotations

import re
from collections.abc import Iterable
from datetime import datetime
from pathlib import Path

from provisioner.catalog.supply import record_granted, record_refusal
from provisioner.clouds.cloud import Placement
from provisioner.errors import CapacityError, UsageError
from stacks.failures import Attempt

CREATED = "created"
SUPPLY_CODES = frozenset(
    {
        "InsufficientInstanceCapacity",
        "InsufficientCapacity",
        "InsufficientHostCapacity",
        "UnfulfillableCapacity",
        "Unsupported",
        "ZONE_RESOURCE_POOL_EXHAUSTED",
        "ZONE_RESOURCE_POOL_EXHAUSTED_WITH_DETAILS",
    }
)
"""Codes of a refusal that speak about the pool. Others move on to the next offer too, and speak about something else: a
subnet without free addresses, a disk, a price limit.

Source: EC2 API reference, "Error codes for the Amazon EC2 API"; Compute Engine documentation, "Resource availability errors".
"""
_CODE = re.compile(r"(?P<code>[A-Za-z_]+): ")


def remember(provider: str, attempts: Iterable[Attempt], now: datetime, *, folder: Path | None = None) -> str | None:
    """Keep what the attempts say about their pools; a cache that cannot be written breaks no launch.

    Args:
        provider: who carried them out.
        attempts: offers that were tried just now.
        now: the (aware) time.
        folder: the catalog's cache; ``None`` is the user's own.

    Returns:
        Why they could not be kept, for a warning; ``None`` where they could.
    """
    try:
        for attempt in attempts:
            _remember(provider, attempt, now, folder)
    except (UsageError, OSError) as error:
        return f"what this run has seen of the supply could not be kept for later plans: {error}"
    return None


def _remember(provider: str, attempt: Attempt, now: datetime, folder: Path | None) -> None:
    pool = Placement.of_key(attempt.offer)
    if pool is None:
        return
    if attempt.outcome == CREATED:
        record_granted(provider, pool, now, folder=folder)
    elif attempt.outcome == CapacityError.kind and (code := supply_code(attempt.message)) is not None:
        record_refusal(provider, pool, code, now, folder=folder)


def supply_code(message: str) -> str | None:
    """The cloud's code in front of a refusal, where it speaks about the pool."""
    found = _CODE.match(message)
    return found["code"] if found and found["code"] in SUPPLY_CODES else None
