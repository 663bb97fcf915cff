"""What a refresh did and where the catalog comes from, as JSON and in words."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Any

from provisioner.catalog.freshness import describe_age
from provisioner.catalog.quarantine import COLUMNS, REASONS, Quarantined
from provisioner.catalog.refresh import ALL_REGIONS, Refreshed, read_quarantine
from provisioner.catalog.snapshot import Catalog
from provisioner.cli.failure import error_document


def refreshed_document(done: Refreshed) -> dict[str, Any]:
    """``gpuprov.refresh/1``: rows taken, regions that failed with their errors, and every price kept out."""
    return {
        "schema": "gpuprov.refresh/1",
        "catalog": {"digest": done.digest, "path": str(done.path)},
        "refreshed": [
            {"cloud": one.cloud, "region": one.region, "kind": one.kind, "fetched_at": one.fetched_at, "rows": one.rows}
            for one in done.rows
        ],
        "failed": [
            {"cloud": one.cloud, "region": one.region, "error": error_document(one.error)} for one in done.failures
        ],
        "quarantined": _rows(done.quarantined),
        "notes": list(done.notes),
    }


def origin_document(catalog: Catalog, kept_out: Sequence[Quarantined]) -> dict[str, Any]:
    """Where a catalog was read from, when each part was fetched, which regions failed last, and what is kept out."""
    origin, manifest = catalog.origin, catalog.origin.manifest
    return {
        "origin": origin.kind,
        "path": str(origin.path) if origin.path else None,
        "fetched": [
            {"cloud": one.cloud, "region": one.region, "kind": one.kind, "fetched_at": one.fetched_at, "rows": one.rows}
            for one in (manifest.fetched if manifest else ())
        ],
        "failed": [
            {"cloud": one.cloud, "region": one.region, "failed_at": one.failed_at, "reason": one.reason}
            for one in (manifest.failed if manifest else ())
        ],
        "quarantined": _rows(kept_out),
    }


def quarantine_of(catalog: Catalog) -> tuple[Quarantined, ...]:
    """What the refreshes of a refreshed catalog kept out; nothing of any other."""
    origin = catalog.origin
    return read_quarantine(origin.path) if origin.kind == "refreshed" and origin.path else ()


def origin_lines(catalog: Catalog, now: datetime) -> Iterator[str]:
    """Where the catalog is from, the age of each cloud's fetched parts, and the regions that failed last."""
    origin, manifest = catalog.origin, catalog.origin.manifest
    if origin.notice:
        yield origin.notice
    if manifest is None:
        yield {"bundled": "these are the bundled prices; `gpuprov prices refresh` reads new ones"}.get(
            origin.kind, f"these are the prices of {origin.path}"
        )
        return
    times: dict[tuple[str, str], list[str]] = {}
    for one in manifest.fetched:
        times.setdefault((one.cloud, one.kind), []).append(one.fetched_at[:10])
    for (cloud, kind), found in sorted(times.items()):
        oldest, newest = describe_age(min(found), now.date()), describe_age(max(found), now.date())
        span = newest if oldest == newest else f"{oldest} to {newest}"
        yield f"{cloud} {kind.replace('_', ' ')} fetched for {len(found)} regions: {span}"
    for failed in manifest.failed:
        place = f"all of {failed.cloud}" if failed.region == ALL_REGIONS else f"{failed.cloud} {failed.region}"
        yield f"{place} failed on {failed.failed_at}: {failed.reason}; its rows are as old as they say"


def quarantine_lines(kept_out: Sequence[Quarantined], limit: int) -> Iterator[str]:
    """Prices that were kept out, at most ``limit`` of them, each with its reason."""
    for one in kept_out[:limit]:
        place = one.region if one.zone == "*" else one.zone
        yield (
            f"kept out: {one.cloud} {one.instance_type} {one.purchase_model} in {place} at {one.price_usd_per_hour} USD/h: "
            f"{REASONS.get(one.reason, one.reason)}"
            + (f" ({one.detail})" if one.detail != REASONS.get(one.reason) else "")
        )
    if len(kept_out) > limit:
        yield f"and {len(kept_out) - limit} more kept out; `gpuprov prices show --format json` lists all"


def refreshed_line(done: Refreshed) -> str:
    """What was read, in one line."""
    regions = {(one.cloud, one.region) for one in done.rows}
    clouds = sorted({cloud for cloud, _ in regions})
    counts = [f"{sum(one[0] == cloud for one in regions)} regions of {cloud}" for cloud in clouds]
    return f"refreshed {' and '.join(counts)}: {sum(one.rows for one in done.rows)} rows; the catalog is {done.digest}"


def failure_line(done: Refreshed) -> str:
    """Which regions are as they were, and why."""
    parts = []
    for one in done.failures:
        place = f"all of {one.cloud}" if one.region == ALL_REGIONS else f"{one.cloud} {one.region}"
        remedy = f"; {one.error.remedy}" if one.error.remedy else ""
        parts.append(f"{place} ({one.error.message}{remedy})")
    return f"not refreshed, prices and dates are as before: {', '.join(parts)}"


def _rows(kept_out: Sequence[Quarantined]) -> list[dict[str, str]]:
    return [{column: getattr(one, column) for column in COLUMNS} for one in kept_out]
