"""Supply as data: what real clouds said about their capacity, per pool, with the time.

A pool is a zone, an instance type and a capacity type. Three things are known about pools: a launch of ours was refused for
want of capacity, a launch of ours succeeded, and AWS's spot placement score. The newest of each is kept in ``supply.csv`` beside
the refreshed catalog for ``KEPT``; it is part of the catalog and of its digest, so that a plan stays a function of its inputs.
What is never written here: anything that the sandbox cloud said.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, Protocol

from provisioner.catalog.files import SUPPLY, CatalogFiles
from provisioner.errors import UsageError

if TYPE_CHECKING:  # every plan reads supply, and none fetches any
    from provisioner.catalog.fetched import Score

REFUSED = "refused"
GRANTED = "granted"
SCORE = "placement_score"

LIKELY = "likely"
SCARCE = "scarce"
UNKNOWN = "unknown"

COLUMNS = ("cloud", "region", "zone", "instance_type", "capacity_type", "observation", "code", "score", "observed_at")
KEPT = timedelta(days=7)
"""Observations older than this are dropped at the next write. GPU pools fill and empty over hours to days; a week keeps what
was seen on the same weekday."""
LIKELY_SCORE = 3
SCARCE_SCORE = 1
"""A request for one instance type is scored from 1 to 3 in practice (three types or more reach 10): 1 is the lowest, 3 the
highest that one type gets. Source: the GetSpotPlacementScores documentation ("at least three instance types"), and SpotLake
(Lee et al., IISWC 2022), which collected the scores of all single types."""
_ANY = "*"


class Pool(Protocol):
    """What is asked for and where; ``clouds.cloud.Placement`` is one."""

    @property
    def cloud(self) -> str:
        """``aws`` or ``gcp``."""
        ...

    @property
    def region(self) -> str:
        """The cloud's region."""
        ...

    @property
    def zone(self) -> str | None:
        """AWS zone id or GCP zone; ``None`` is any zone of the region."""
        ...

    @property
    def instance_type(self) -> str:
        """The catalog's name."""
        ...

    @property
    def capacity_type(self) -> str:
        """A word of ``vocabulary.CapacityType``."""
        ...


class Observation(NamedTuple):
    """One line of supply.csv; ``code`` is the cloud's error code of a refusal, ``score`` a placement score."""

    cloud: str
    region: str
    zone: str
    instance_type: str
    capacity_type: str
    observation: str
    code: str
    score: str
    observed_at: str

    @property
    def key(self) -> tuple[str, ...]:
        """The pool and what was observed: one line each."""
        return (self.cloud, self.region, self.zone, self.instance_type, self.capacity_type, self.observation)

    @property
    def likelihood(self) -> str:
        """What the observation says about the next launch."""
        if self.observation == SCORE:
            score = int(self.score)
            return LIKELY if score >= LIKELY_SCORE else SCARCE if score <= SCARCE_SCORE else UNKNOWN
        return SCARCE if self.observation == REFUSED else LIKELY

    @property
    def words(self) -> str:
        """The observation for people."""
        if self.observation == SCORE:
            return f"spot placement score {self.score}"
        return f"refused a launch with {self.code}" if self.observation == REFUSED else "gave a machine"


class Supply(NamedTuple):
    """Whether a launch is likely to succeed: ``likely``, ``scarce`` or ``unknown``, why, and when that was seen."""

    likelihood: str = UNKNOWN
    as_of: str | None = None
    """RFC 3339 time of the observation; the date of the price where the price says it."""
    reason: str | None = None


NOTHING_KNOWN = Supply()


class SupplyIndex:
    """Observations of a catalog by pool."""

    def __init__(self, observations: Iterable[Observation]) -> None:
        self._pools: dict[tuple[str, str, str, str], list[Observation]] = {}
        for one in observations:
            key = (one.cloud, one.region, one.instance_type, one.capacity_type)
            self._pools.setdefault(key, []).append(one)

    def of(self, cloud: str, region: str, zone: str | None, instance_type: str, capacity_type: str) -> Supply:
        """What the newest observation of the pool says; of a region without a zone, the best of its zones."""
        seen = self._pools.get((cloud, region, instance_type, capacity_type), [])
        if zone is not None:
            return _newest([one for one in seen if one.zone in (zone, _ANY)])
        found = [_newest([one for one in seen if one.zone == each]) for each in sorted({one.zone for one in seen})]
        return min(found, key=lambda one: _ORDER[one.likelihood], default=NOTHING_KNOWN)


_ORDER = {LIKELY: 0, UNKNOWN: 1, SCARCE: 2}


def _newest(observations: list[Observation]) -> Supply:
    if not observations:
        return NOTHING_KNOWN
    last = max(observations, key=lambda one: (one.observed_at, one.key))
    return Supply(last.likelihood, last.observed_at, last.words)


def read_observations(files: CatalogFiles) -> list[Observation]:
    """All lines of supply.csv, none where a catalog has no such file.

    Raises:
        UsageError: the file is damaged.
    """
    try:
        found = [Observation(*cells) for cells in files.rows(SUPPLY, *COLUMNS)]
        scores = [int(one.score) for one in found if one.observation == SCORE]
    except (ValueError, IndexError, StopIteration) as error:
        raise _damaged(files, str(error)) from None
    if any(score < 0 for score in scores) or any(one.observation not in (REFUSED, GRANTED, SCORE) for one in found):
        raise _damaged(files, "an observation or a score that is none")
    return found


def _damaged(files: CatalogFiles, why: str) -> UsageError:
    path = files.path(SUPPLY)
    return UsageError(f"the observations of supply are damaged: {why}", where=str(path), remedy=f"remove {path}")


def record_refusal(provider: str, pool: Pool, code: str, at: datetime, *, folder: Path | None = None) -> None:
    """Keep that a real cloud refused a launch for want of capacity, with its error code and the (aware) time.

    ``provider`` is who carried the launch out: what the sandbox says is not kept. Safe against other processes.

    Raises:
        UsageError: the cache cannot be written.
    """
    if provider == pool.cloud:
        add_observations([_launch(pool, REFUSED, code, at)], at, folder=folder)


def record_granted(provider: str, pool: Pool, at: datetime, *, folder: Path | None = None) -> None:
    """Keep that a real cloud gave a machine, so that an older refusal counts no more; as ``record_refusal``.

    Raises:
        UsageError: the cache cannot be written.
    """
    if provider == pool.cloud:
        add_observations([_launch(pool, GRANTED, "", at)], at, folder=folder)


def _launch(pool: Pool, what: str, code: str, at: datetime) -> Observation:
    where = (pool.cloud, pool.region, pool.zone or _ANY, pool.instance_type, str(pool.capacity_type))
    return Observation(*where, what, code, "", rfc3339(at))


def score_observation(cloud: str, score: Score, at: datetime) -> Observation:
    """A spot placement score as an observation."""
    return Observation(
        cloud, score.region, score.zone, score.instance_type, "spot", SCORE, "", str(score.score), rfc3339(at)
    )


def rfc3339(at: datetime) -> str:
    """An aware time as text, in UTC to the second."""
    return at.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def add_observations(found: Iterable[Observation], now: datetime, *, folder: Path | None = None) -> None:
    """Put observations into the cache's supply.csv, the newest of each pool and kind, and drop what is older than ``KEPT``.

    Raises:
        UsageError: the cache cannot be written, or its supply.csv cannot be read.
    """
    from provisioner.catalog.cache import supply_path
    from provisioner.catalog.publish import exclusive, replace_file

    with exclusive(folder) as where:
        path = supply_path(where)
        known = {one.key: one for one in (_stored(path) if path.is_file() else [])}
        for one in found:
            if one.key not in known or known[one.key].observed_at <= one.observed_at:
                known[one.key] = one
        oldest = rfc3339(now - KEPT)
        kept = [known[key] for key in sorted(known) if known[key].observed_at >= oldest]
        replace_file(path, _csv(kept))


def _stored(path: Path) -> list[Observation]:
    return read_observations(CatalogFiles({SUPPLY: path}, {SUPPLY: path.read_bytes()}))


def _csv(observations: Iterable[Observation]) -> bytes:
    from provisioner.catalog.tables import csv_bytes

    return csv_bytes(COLUMNS, observations)
