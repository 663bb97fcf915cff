"""``prices refresh``: reads clouds region by region, judges, merges over what there is, and switches the cache over in one step.

A region counts only as a whole: if any part of it cannot be read, nothing of it changes, and its prices go on ageing with their
own dates. Nothing is written at all where no region could be read.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path
from queue import Empty, SimpleQueue
from threading import Thread

from provisioner.catalog.cache import (
    MANIFEST,
    QUARANTINE,
    FailedRegion,
    Fetched,
    Manifest,
    Snapshot,
    base_digest,
    read_snapshot,
)
from provisioner.catalog.check import check_files
from provisioner.catalog.fetched import ON_DEMAND, SCORES, SPOT, PriceFetcher, RegionFacts, Score
from provisioner.catalog.files import CLASSES, OPTIONAL, OWN, REQUIRED, CatalogFiles, bundled_files, digest_of
from provisioner.catalog.merge import Merge, unknown_types
from provisioner.catalog.publish import exclusive, publish
from provisioner.catalog.quarantine import COLUMNS as QUARANTINE_COLUMNS
from provisioner.catalog.quarantine import Quarantined, counted
from provisioner.catalog.supply import add_observations, rfc3339, score_observation
from provisioner.catalog.tables import csv_bytes
from provisioner.errors import CloudError, CredentialsError, GpuprovError, InternalBug, UsageError

Say = Callable[[str], None]

WORKERS = 6
"""Regions read at once: the clouds throttle by account, and more only makes more calls that are refused."""
ALL_REGIONS = "*"


@dataclass(frozen=True, slots=True)
class Failure:
    """A region, or a whole cloud (``*``), that could not be read."""

    cloud: str
    region: str
    error: GpuprovError


@dataclass(frozen=True, slots=True)
class Refreshed:
    """What a refresh did. ``rows`` counts what was taken by (cloud, region, kind)."""

    path: Path
    digest: str
    rows: tuple[Fetched, ...]
    failures: tuple[Failure, ...]
    quarantined: tuple[Quarantined, ...]
    notes: tuple[str, ...]


@dataclass(slots=True)
class _Reading:
    """What was read of one cloud."""

    fetcher: PriceFetcher
    facts: list[RegionFacts] = field(default_factory=list)
    scores: tuple[Score, ...] = ()
    failures: list[Failure] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def refresh(
    fetchers: Sequence[PriceFetcher],
    now: datetime,
    say: Say,
    *,
    regions: Sequence[str] = (),
    folder: Path | None = None,
    workers: int = WORKERS,
) -> Refreshed:
    """Read all regions (or those named) of each cloud and make the result the user's catalog.

    Raises:
        CredentialsError: nothing could be read, for want of credentials.
        CloudError: nothing could be read; nothing has changed.
        UsageError: a region that no cloud has, or a cache that cannot be written.
    """
    readings = [_read(fetcher, regions, say, workers) for fetcher in fetchers]
    _check_regions(readings, regions)
    failures = tuple(failure for reading in readings for failure in reading.failures)
    if not any(reading.facts for reading in readings):
        raise _nothing_read(failures)
    notes = [note for reading in readings for note in reading.notes]
    with exclusive(folder) as where:
        written = _Writer(where, now).write(readings)
    observed = [score_observation(reading.fetcher.cloud, one, now) for reading in readings for one in reading.scores]
    if observed:
        try:
            add_observations(observed, now, folder=folder)
        except UsageError as error:
            notes.append(f"spot placement scores are not kept: {error}")
    return replace(written, failures=failures, notes=(*notes, *written.notes))


def read_quarantine(folder: Path) -> tuple[Quarantined, ...]:
    """What a snapshot's refreshes kept out, as it was written; none where nothing was."""
    path = folder / QUARANTINE
    if not path.is_file():
        return ()
    files = CatalogFiles({QUARANTINE: path}, {QUARANTINE: path.read_bytes()})
    return tuple(Quarantined(*cells) for cells in files.rows(QUARANTINE, *QUARANTINE_COLUMNS))


def _read(fetcher: PriceFetcher, wanted: Sequence[str], say: Say, workers: int) -> _Reading:
    """All facts of one cloud; what fails is remembered with its region."""
    reading = _Reading(fetcher)
    say(f"{fetcher.cloud}: reading its regions and what they share")
    try:
        known = fetcher.regions()
    except GpuprovError as error:
        reading.failures.append(Failure(fetcher.cloud, ALL_REGIONS, error))
        return reading
    regions = [region for region in known if not wanted or region in wanted]
    for number, (region, outcome) in enumerate(_fetch_all(fetcher, regions, workers), start=1):
        place = f"{fetcher.cloud} {region} ({number} of {len(regions)})"
        if isinstance(outcome, GpuprovError):
            reading.failures.append(Failure(fetcher.cloud, region, outcome))
            say(f"{place}: failed: {outcome.message}")
        else:
            reading.facts.append(outcome)
            reading.notes += [f"{fetcher.cloud} {region}: {note}" for note in outcome.notes]
            say(f"{place}: {_summary(outcome)}")
    if reading.facts:
        _read_scores(reading)
    return reading


def _fetch_all(
    fetcher: PriceFetcher, regions: Sequence[str], workers: int
) -> Iterator[tuple[str, RegionFacts | GpuprovError]]:
    """Each region with its facts or its error, in order.

    A region is asked whatever became of the others: an organisation may deny single regions. The threads are daemons, so that
    an interrupt does not wait for answers that nobody will read.
    """
    outcomes: dict[str, Future[RegionFacts | GpuprovError]] = {region: Future() for region in regions}
    todo = SimpleQueue[str]()
    for region in regions:
        todo.put(region)

    def work() -> None:
        while not todo.empty():
            try:
                region = todo.get_nowait()
            except Empty:
                return
            try:
                outcomes[region].set_result(fetcher.fetch(region))
            except GpuprovError as error:
                outcomes[region].set_result(error)
            except BaseException as error:  # noqa: BLE001 - a bug is raised where the outcome is read
                outcomes[region].set_exception(error)

    for number in range(min(workers, len(regions))):
        Thread(target=work, name=f"prices-{fetcher.cloud}-{number}", daemon=True).start()
    for region in regions:
        yield region, outcomes[region].result()


def _read_scores(reading: _Reading) -> None:
    """Scores are a help, not a part of the whole: what fails is said and left out."""
    try:
        scores = reading.fetcher.placement_scores([facts.region for facts in reading.facts])
    except GpuprovError as error:
        reading.notes.append(f"{reading.fetcher.cloud}: spot placement scores left out: {error.message}")
        return
    reading.scores = scores.found
    reading.notes += [f"{reading.fetcher.cloud}: {note}" for note in scores.notes]


def _summary(facts: RegionFacts) -> str:
    parts = [
        f"{len(quotes)} {model.replace('_', '-')} prices"
        for model, quotes in facts.prices.items()
        if quotes or model in (ON_DEMAND, SPOT)
    ]
    if facts.gpu_prices is not None:
        parts.append(f"{len(facts.gpu_prices)} prices of attached GPUs")
    if facts.disks:
        parts.append(f"{len(facts.disks)} disk prices")
    if facts.offerings is not None:
        parts.append(f"{len(facts.offerings)} types in zones")
    if facts.quotas is not None:
        parts.append(f"{len(facts.quotas)} quotas")
    return ", ".join(parts)


def _check_regions(readings: Iterable[_Reading], wanted: Sequence[str]) -> None:
    """Refuse a region that no cloud has; not while a cloud did not say which it has."""
    seen: set[str] = set()
    for reading in readings:
        if any(failure.region == ALL_REGIONS for failure in reading.failures):
            return
        seen |= {facts.region for facts in reading.facts} | {failure.region for failure in reading.failures}
    missing = [region for region in wanted if region not in seen]
    if missing:
        raise UsageError(
            f"no cloud that was asked has the region {', '.join(missing)} for this account",
            remedy="nothing has changed; leave out --region to refresh all",
        )


def _nothing_read(failures: Sequence[Failure]) -> GpuprovError:
    """The error of a refresh that read nothing: credentials only where nothing else was in the way."""
    if not failures:
        return CloudError("no region could be asked: the clouds listed none", remedy="nothing has changed")
    errors = [failure.error for failure in failures]
    first = next((error for error in errors if not isinstance(error, CredentialsError)), errors[0])
    others = f" (and {len(failures) - 1} more failures)" if len(failures) > 1 else ""
    message = f"nothing could be refreshed, so nothing has changed: {first.message}{others}"
    kind = CredentialsError if isinstance(first, CredentialsError) else CloudError
    return kind(message, where=first.where, remedy=first.remedy)


class _Writer:
    """Merges and writes one snapshot; made and used under the lock of the cache."""

    def __init__(self, where: Path, now: datetime) -> None:
        self._where = where
        self._seen_at = rfc3339(now)
        self._as_of = self._seen_at[:10]
        self._base = base_digest()
        self._before = self._usable_snapshot()

    def write(self, readings: Sequence[_Reading]) -> Refreshed:
        """Publish the merged files; the cache is as before where anything fails."""
        files = self._before.files if self._before else bundled_files()
        contents = {name: files.content(name) for name in files.names}
        rows: list[Fetched] = []
        quarantined: list[Quarantined] = []
        disbelieved: list[str] = []
        for reading in readings:
            cloud = reading.fetcher.cloud
            merge = Merge(_in_memory(contents), cloud, reading.fetcher.sources, self._as_of, self._seen_at)
            if reading.facts:
                contents |= merge.tables(reading.facts)
            quarantined += merge.quarantined
            disbelieved += merge.notes
            rows += [
                Fetched(cloud, region, kind, self._seen_at, count) for (region, kind), count in merge.counts.items()
            ]
            rows += [
                Fetched(cloud, region, SCORES, self._seen_at, sum(one.region == region for one in reading.scores))
                for region in sorted({one.region for one in reading.scores})
            ]
        self._check(contents)
        digest = digest_of(contents)
        manifest = self._manifest(digest, rows, [failure for reading in readings for failure in reading.failures])
        extra = {
            MANIFEST: (json.dumps(manifest.to_document(), indent=1, ensure_ascii=False) + "\n").encode(),
            QUARANTINE: self._quarantine(rows, quarantined),
        }
        path = publish(self._where, contents | extra, digest.removeprefix("sha256:")[:16])
        return Refreshed(path, digest, tuple(rows), (), tuple(quarantined), (*disbelieved, *_notes(quarantined)))

    def _usable_snapshot(self) -> Snapshot | None:
        """The current snapshot where it is whole and of this version's data; a refresh mends what is damaged."""
        try:
            snapshot = read_snapshot(self._where)
        except UsageError:
            return None
        return snapshot if snapshot and snapshot.manifest.base == self._base else None

    def _check(self, contents: dict[str, bytes]) -> None:
        try:
            check_files(_in_memory(contents))
        except UsageError as error:
            raise InternalBug(
                f"the merged catalog breaks its own rules, so nothing has changed: {error.message}", where=error.where
            ) from error

    def _manifest(self, digest: str, rows: Sequence[Fetched], failures: Sequence[Failure]) -> Manifest:
        """Times of each part: new ones for what was read, the old ones for the rest."""
        fresh = {(one.cloud, one.region, one.kind): one for one in rows}
        before = self._before.manifest if self._before else None
        known = {(one.cloud, one.region, one.kind): one for one in (before.fetched if before else ())}
        read = {(one.cloud, one.region) for one in rows}
        asked = read | {(one.cloud, one.region) for one in failures} | {(one.cloud, ALL_REGIONS) for one in rows}
        failed = [one for one in (before.failed if before else ()) if (one.cloud, one.region) not in asked]
        failed += [FailedRegion(one.cloud, one.region, self._seen_at, one.error.message) for one in failures]
        return Manifest(
            base=self._base,
            digest=digest,
            written_at=self._seen_at,
            fetched=tuple(value for _, value in sorted((known | fresh).items())),
            failed=tuple(sorted(failed, key=lambda one: (one.cloud, one.region))),
        )

    def _quarantine(self, rows: Sequence[Fetched], fresh: Sequence[Quarantined]) -> bytes:
        """What is kept out now: that of the regions just read, and the former of the others."""
        read = {(one.cloud, one.region) for one in rows}
        before = read_quarantine(self._before.path) if self._before else ()
        kept = [one for one in before if (one.cloud, one.region) not in read]
        return csv_bytes(QUARANTINE_COLUMNS, (one.cells for one in [*kept, *fresh]))


def _in_memory(contents: dict[str, bytes]) -> CatalogFiles:
    known = {*REQUIRED, *OPTIONAL, *OWN, CLASSES}
    own = {name: content for name, content in contents.items() if name in known}
    return CatalogFiles({name: Path(name) for name in own}, own)


def _notes(quarantined: Sequence[Quarantined]) -> tuple[str, ...]:
    """What was kept out, in a line per reason."""
    notes = [f"{count} kept out: {reason}" for reason, count in counted(quarantined).items()]
    unknown = unknown_types(quarantined)
    return (*notes, f"types that the catalog does not know: {', '.join(unknown)}") if unknown else tuple(notes)
