"""Observations of supply: what is kept, what counts, and what never gets in."""

from __future__ import annotations

import multiprocessing
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from provisioner.catalog.fetched import Score, Scores
from provisioner.catalog.offers import Offer
from provisioner.catalog.refresh import refresh
from provisioner.catalog.snapshot import load_catalog
from provisioner.catalog.supply import KEPT, add_observations, record_granted, record_refusal, score_observation
from provisioner.clouds.cloud import Placement
from provisioner.errors import UsageError
from provisioner.vocabulary import CapacityType
from tests.fakes.fetchers import MemoryFetcher, facts

AT = datetime(2026, 11, 30, 14, 15, tzinfo=UTC)
ICE = "InsufficientInstanceCapacity"
POOL = Placement("aws", "us-east-1", "use1-az1", "g6.xlarge", CapacityType.ON_DEMAND)


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.delenv("GPUPROV_CATALOG", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "gpuprov" / "catalog"


def offer(zone: str | None = "use1-az1", capacity: CapacityType = CapacityType.ON_DEMAND) -> Offer:
    instance = load_catalog(Path("bundled")).instances["aws", "g6.xlarge"]
    return Offer(instance, "us-east-1", zone, capacity, None, None, None)


def likelihood(zone: str | None = "use1-az1", capacity: CapacityType = CapacityType.ON_DEMAND) -> str:
    return load_catalog().supply_of(offer(zone, capacity)).likelihood


def test_nothing_is_known_at_first() -> None:
    supply = load_catalog().supply_of(offer())
    assert (supply.likelihood, supply.as_of, supply.reason) == ("unknown", None, None)


def test_a_refusal_makes_its_pool_scarce_and_no_other() -> None:
    record_refusal("aws", POOL, ICE, AT)
    supply = load_catalog().supply_of(offer())
    assert (supply.likelihood, supply.as_of) == ("scarce", "2026-11-30T14:15:00Z")
    assert supply.reason == f"refused a launch with {ICE}"
    assert likelihood("use1-az2") == "unknown"
    assert likelihood(capacity=CapacityType.SPOT) == "unknown"


def test_observations_are_part_of_the_digest() -> None:
    before = load_catalog().digest
    record_refusal("aws", POOL, ICE, AT)
    first = load_catalog().digest
    assert first != before
    assert load_catalog().digest == first
    assert load_catalog(Path("bundled")).digest == before


def test_what_the_sandbox_says_is_not_kept(cache: Path) -> None:
    record_refusal("sandbox", POOL, ICE, AT)
    record_granted("sandbox", POOL, AT)
    assert not cache.exists()


def test_the_newest_observation_counts() -> None:
    record_refusal("aws", POOL, ICE, AT)
    record_granted("aws", POOL, AT + timedelta(minutes=5))
    assert likelihood() == "likely"
    record_refusal("aws", POOL, ICE, AT + timedelta(minutes=9))
    assert likelihood() == "scarce"
    record_granted("aws", POOL, AT + timedelta(minutes=1))  # late, and older than what is known
    assert likelihood() == "scarce"


def test_a_region_is_as_good_as_its_best_zone() -> None:
    record_refusal("aws", POOL, ICE, AT)
    assert likelihood(None) == "scarce"
    record_granted("aws", replace(POOL, zone="use1-az2"), AT - timedelta(hours=1))
    assert likelihood(None) == "likely"


def test_a_refusal_of_a_whole_region_counts_in_each_zone() -> None:
    record_refusal("aws", replace(POOL, zone=None), ICE, AT)
    assert likelihood("use1-az4") == "scarce"


@pytest.mark.parametrize(("value", "wanted"), [(1, "scarce"), (2, "unknown"), (3, "likely"), (9, "likely")])
def test_placement_scores(value: int, wanted: str) -> None:
    found = Score("us-east-1", "use1-az1", "g6.xlarge", value)
    add_observations([score_observation("aws", found, AT)], AT)
    assert likelihood(capacity=CapacityType.SPOT) == wanted
    assert likelihood() == "unknown"  # a spot score says nothing about on-demand


def test_a_refresh_keeps_scores_with_their_time_and_the_refusals_beside_them() -> None:
    record_refusal("aws", POOL, ICE, AT)
    scores = Scores((Score("us-east-1", "use1-az1", "g6.xlarge", 3),))
    region = facts("us-east-1", {"g6.xlarge": "0.8"}, {}, [("use1-az1", "g6.xlarge")])
    refresh([MemoryFetcher({"us-east-1": region}, scores=scores)], AT, lambda _: None, workers=1)
    assert likelihood(capacity=CapacityType.SPOT) == "likely"
    assert likelihood() == "scarce"
    manifest = load_catalog().origin.manifest
    assert manifest is not None
    assert ("placement_scores", 1) in {(one.kind, one.rows) for one in manifest.fetched}


def test_old_observations_go_with_the_next_write() -> None:
    record_refusal("aws", POOL, ICE, AT)
    record_refusal("aws", replace(POOL, zone="use1-az2"), ICE, AT + KEPT + timedelta(seconds=1))
    assert likelihood() == "unknown"
    assert likelihood("use1-az2") == "scarce"


@pytest.mark.parametrize(
    "text",
    [
        "cloud,region\naws,us-east-1\n",
        "cloud,region,zone,instance_type,capacity_type,observation,code,score,observed_at\naws,a,b,c,spot,guess,,,2026-11-30T00:00:00Z\n",
        "cloud,region,zone,instance_type,capacity_type,observation,code,score,observed_at\naws,a,b,c,spot,placement_score,,x,2026-11-30T00:00:00Z\n",
        "",
    ],
)
def test_a_damaged_file_is_named(text: str, cache: Path) -> None:
    cache.mkdir(parents=True)
    (cache / "supply.csv").write_text(text)
    with pytest.raises(UsageError, match="damaged") as caught:
        load_catalog().supply_of(offer())
    assert "supply.csv" in str(caught.value.remedy)


def _refuse(zone: str) -> None:
    record_refusal("aws", replace(POOL, zone=zone), ICE, AT)


@pytest.mark.slow
def test_processes_do_not_lose_each_others_observations() -> None:
    zones = [f"use1-az{number}" for number in range(1, 9)]
    with multiprocessing.get_context("spawn").Pool(4) as pool:
        pool.map(_refuse, zones)
    assert [likelihood(zone) for zone in zones] == ["scarce"] * len(zones)
