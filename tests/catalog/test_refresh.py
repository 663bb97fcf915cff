"""Refreshing: merged rows, dates, partial failures, what is kept out, and a writer killed at any moment."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import textwrap
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from threading import Barrier

import pytest

from provisioner.catalog.cache import cache_folder, read_snapshot
from provisioner.catalog.fetched import RegionFacts
from provisioner.catalog.files import BUNDLED
from provisioner.catalog.offers import Offer
from provisioner.catalog.refresh import Refreshed, read_quarantine, refresh
from provisioner.catalog.snapshot import Catalog, load_catalog
from provisioner.errors import CloudError, CredentialsError, InternalBug, UsageError
from provisioner.vocabulary import CapacityType
from tests.fakes.fetchers import MemoryFetcher, facts

NOW = datetime(2026, 12, 5, 9, 30, tzinfo=UTC)
EAST, WEST = "us-east-1", "us-west-2"


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.delenv("GPUPROV_CATALOG", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "gpuprov" / "catalog"


def run(*fetchers: MemoryFetcher, now: datetime = NOW, **more: object) -> Refreshed:
    return refresh(fetchers, now, lambda _: None, workers=1, **more)


def offer(catalog: Catalog, name: str, region: str, capacity: CapacityType, zone: str | None = None) -> Offer:
    found = [
        one
        for one in catalog.offers()
        if one.instance.name == name
        and one.region == region
        and one.capacity_type is capacity
        and zone in (None, one.zone)
    ]
    assert found, (name, region, capacity, zone)
    return found[0]


def listed(region: str, *names: str) -> list[tuple[str, str]]:
    prefix = {EAST: "use1", WEST: "usw2"}[region]
    return [(f"{prefix}-az1", name) for name in names]


def test_without_a_refresh_the_bundled_catalog_counts() -> None:
    assert load_catalog().digest == load_catalog(Path("bundled")).digest
    assert load_catalog().origin.kind == "bundled"


def test_fetched_prices_replace_bundled_ones_with_their_own_date() -> None:
    before = load_catalog()
    done = run(
        MemoryFetcher(
            {EAST: facts(EAST, {"g6.xlarge": "0.9"}, {("use1-az1", "g6.xlarge"): "0.4"}, listed(EAST, "g6.xlarge"))}
        )
    )
    catalog = load_catalog()
    assert catalog.origin.kind == "refreshed"
    assert catalog.digest == done.digest != before.digest
    on_demand = offer(catalog, "g6.xlarge", EAST, CapacityType.ON_DEMAND)
    assert (on_demand.price_usd_per_hour, on_demand.price_as_of, on_demand.price_source) == (
        Decimal("0.9"),
        "2026-12-05",
        "stub_prices",
    )
    assert offer(catalog, "g6.xlarge", EAST, CapacityType.SPOT, "use1-az1").price_usd_per_hour == Decimal("0.4")
    untouched = offer(catalog, "g6.xlarge", WEST, CapacityType.ON_DEMAND)
    assert untouched == offer(before, "g6.xlarge", WEST, CapacityType.ON_DEMAND)
    assert not done.failures
    assert not done.quarantined


def test_a_listing_replaces_the_zones_of_its_region_alone() -> None:
    run(MemoryFetcher({EAST: facts(EAST, {"g6.xlarge": "0.9"}, {}, listed(EAST, "g6.xlarge"))}))
    catalog = load_catalog()
    assert {one.zone for one in catalog.offers() if one.region == EAST and one.cloud == "aws"} == {"use1-az1"}
    assert {one.instance.name for one in catalog.offers() if one.region == EAST} == {"g6.xlarge"}
    assert "g5.xlarge" in {one.instance.name for one in catalog.offers() if one.region == WEST}


def test_a_pool_without_a_spot_price_today_has_no_price_any_more() -> None:
    assert offer(load_catalog(), "g6.xlarge", EAST, CapacityType.SPOT, "use1-az4").price_usd_per_hour is not None
    zones = [("use1-az1", "g6.xlarge"), ("use1-az4", "g6.xlarge")]
    run(MemoryFetcher({EAST: facts(EAST, {"g6.xlarge": "0.9"}, {("use1-az1", "g6.xlarge"): "0.4"}, zones)}))
    assert offer(load_catalog(), "g6.xlarge", EAST, CapacityType.SPOT, "use1-az4").price_usd_per_hour is None


def test_a_failed_region_keeps_its_prices_and_their_dates() -> None:
    before = offer(load_catalog(), "g6.xlarge", WEST, CapacityType.ON_DEMAND)
    done = run(
        MemoryFetcher(
            {
                EAST: facts(EAST, {"g6.xlarge": "0.9"}, {}, listed(EAST, "g6.xlarge")),
                WEST: CloudError("the region did not answer"),
            }
        )
    )
    assert [(one.region, one.error.message) for one in done.failures] == [(WEST, "the region did not answer")]
    catalog = load_catalog()
    assert offer(catalog, "g6.xlarge", WEST, CapacityType.ON_DEMAND) == before
    manifest = catalog.origin.manifest
    assert manifest is not None
    assert {(one.region, one.fetched_at) for one in manifest.fetched} == {(EAST, "2026-12-05T09:30:00Z")}
    assert [(one.region, one.failed_at) for one in manifest.failed] == [(WEST, "2026-12-05T09:30:00Z")]


def test_a_second_refresh_keeps_the_times_of_what_it_did_not_read() -> None:
    both = {region: facts(region, {"g6.xlarge": "0.9"}, {}, listed(region, "g6.xlarge")) for region in (EAST, WEST)}
    run(MemoryFetcher(both))
    later = NOW + timedelta(days=3)
    run(MemoryFetcher({**both, WEST: CloudError("down")}), now=later)
    manifest = load_catalog().origin.manifest
    assert manifest is not None
    times = {(one.region, one.kind): one.fetched_at[:10] for one in manifest.fetched}
    assert times[EAST, "on_demand"] == "2026-12-08"
    assert times[WEST, "on_demand"] == "2026-12-05"
    assert offer(load_catalog(), "g6.xlarge", WEST, CapacityType.ON_DEMAND).price_as_of == "2026-12-05"
    run(MemoryFetcher(both), now=later)
    assert load_catalog().origin.manifest.failed == ()


def test_two_clouds_do_not_undo_each_other() -> None:
    run(MemoryFetcher({EAST: facts(EAST, {"g6.xlarge": "0.9"}, {}, listed(EAST, "g6.xlarge"))}))
    run(MemoryFetcher({WEST: facts(WEST, {"g6.xlarge": "0.91"}, {}, listed(WEST, "g6.xlarge"))}))
    catalog = load_catalog()
    assert offer(catalog, "g6.xlarge", EAST, CapacityType.ON_DEMAND).price_usd_per_hour == Decimal("0.9")
    assert offer(catalog, "g6.xlarge", WEST, CapacityType.ON_DEMAND).price_usd_per_hour == Decimal("0.91")


def test_nothing_is_written_where_nothing_could_be_read(cache: Path) -> None:
    with pytest.raises(CloudError, match=r"nothing could be refreshed, so nothing has changed: down \(and 1 more"):
        run(MemoryFetcher({EAST: CloudError("down"), WEST: CloudError("also down")}))
    assert not cache.exists()
    assert load_catalog().origin.kind == "bundled"


def test_missing_credentials_are_exit_3_only_where_nothing_else_failed() -> None:
    nobody = CredentialsError("no keys", remedy="log in")
    with pytest.raises(CredentialsError) as caught:
        run(MemoryFetcher({}, refusal=nobody), MemoryFetcher({}, cloud="gcp", refusal=nobody))
    assert caught.value.exit_code == 3
    assert caught.value.remedy == "log in"
    with pytest.raises(CloudError) as mixed:
        run(MemoryFetcher({}, refusal=nobody), MemoryFetcher({}, cloud="gcp", refusal=CloudError("down")))
    assert mixed.value.exit_code == 4


def test_one_cloud_without_credentials_does_not_stop_the_other() -> None:
    done = run(
        MemoryFetcher({EAST: facts(EAST, {"g6.xlarge": "0.9"}, {}, listed(EAST, "g6.xlarge"))}),
        MemoryFetcher({}, cloud="gcp", refusal=CredentialsError("no keys")),
    )
    assert [(one.cloud, one.region) for one in done.failures] == [("gcp", "*")]


def test_a_region_denied_to_the_account_does_not_stop_the_others() -> None:
    """Organisations deny single regions; that answers as a missing right."""
    fetcher = MemoryFetcher(
        {
            EAST: facts(EAST, {"g6.xlarge": "0.9"}, {}, listed(EAST, "g6.xlarge")),
            WEST: CredentialsError("explicit deny"),
            "eu-west-1": facts("eu-west-1", {"g6.xlarge": "1.0"}, {}, []),
        }
    )
    done = run(fetcher)
    assert [one.region for one in done.failures] == [WEST]
    assert {one.region for one in done.rows} == {EAST, "eu-west-1"}


def test_a_bug_in_one_region_is_no_failed_region() -> None:
    class Broken(MemoryFetcher):
        def fetch(self, region: str) -> RegionFacts:
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        run(Broken({EAST: CloudError("never asked")}))
    assert load_catalog().origin.kind == "bundled"


def test_regions_are_read_side_by_side_and_said_in_order() -> None:
    names = [f"region-{number}" for number in range(9)]
    meeting = Barrier(3, timeout=30)

    class Waiting(MemoryFetcher):
        def fetch(self, region: str) -> RegionFacts:
            meeting.wait()  # three at once, or this breaks
            return super().fetch(region)

    said: list[str] = []
    fetcher = Waiting({name: CloudError(f"no {name}") for name in names})
    with pytest.raises(CloudError):
        refresh([fetcher], NOW, said.append, workers=3)
    assert [line.split()[1] for line in said[1:]] == names


def test_only_the_regions_asked_for_are_read_and_an_unknown_one_is_refused(cache: Path) -> None:
    fetcher = MemoryFetcher({EAST: facts(EAST, {"g6.xlarge": "0.9"}, {}, []), WEST: facts(WEST, {}, {}, [])})
    run(fetcher, regions=(EAST,))
    assert fetcher.asked == [EAST]
    with pytest.raises(UsageError, match="us-east-9"):
        run(fetcher, regions=(EAST, "us-east-9"))


QUARANTINE = {
    "0": "not_positive",
    "0.0000000000": "not_positive",
    "-1": "not_positive",
    "0.01": "far_below_median",
    "4400": "far_above_median",
    "": "not_a_number",
    "NaN": "not_a_number",
    "Infinity": "not_a_number",
    "1,5": "not_a_number",
}


@pytest.mark.parametrize(("price", "reason"), QUARANTINE.items())
def test_p1_a_suspicious_on_demand_price_is_kept_out_and_the_old_one_stays(price: str, reason: str) -> None:
    before = offer(load_catalog(), "g6.xlarge", EAST, CapacityType.ON_DEMAND)
    done = run(
        MemoryFetcher(
            {EAST: facts(EAST, {"g6.xlarge": price, "g5.xlarge": "1.1"}, {}, listed(EAST, "g6.xlarge", "g5.xlarge"))}
        )
    )
    assert [(one.instance_type, one.price_usd_per_hour, one.reason) for one in done.quarantined] == [
        ("g6.xlarge", price, reason)
    ]
    after = offer(load_catalog(), "g6.xlarge", EAST, CapacityType.ON_DEMAND)
    assert (after.price_usd_per_hour, after.price_as_of) == (before.price_usd_per_hour, before.price_as_of)
    assert offer(load_catalog(), "g5.xlarge", EAST, CapacityType.ON_DEMAND).price_usd_per_hour == Decimal("1.1")
    assert read_quarantine(done.path) == done.quarantined
    assert done.quarantined[0].detail


def test_spot_above_on_demand_is_kept_out_and_leaves_no_price() -> None:
    done = run(
        MemoryFetcher(
            {EAST: facts(EAST, {"g6.xlarge": "0.8"}, {("use1-az1", "g6.xlarge"): "0.81"}, listed(EAST, "g6.xlarge"))}
        )
    )
    (kept_out,) = done.quarantined
    assert (kept_out.reason, kept_out.zone, kept_out.detail) == (
        "spot_above_on_demand",
        "use1-az1",
        "on-demand costs 0.8 USD/h",
    )
    assert offer(load_catalog(), "g6.xlarge", EAST, CapacityType.SPOT, "use1-az1").price_usd_per_hour is None


def test_spot_at_the_on_demand_price_means_no_spare_capacity() -> None:
    run(
        MemoryFetcher(
            {EAST: facts(EAST, {"g6.xlarge": "0.8"}, {("use1-az1", "g6.xlarge"): "0.8"}, listed(EAST, "g6.xlarge"))}
        )
    )
    catalog = load_catalog()
    found = offer(catalog, "g6.xlarge", EAST, CapacityType.SPOT, "use1-az1")
    assert "spot_equals_on_demand" in found.suspect
    assert (catalog.supply_of(found).likelihood, catalog.supply_of(found).as_of) == ("scarce", "2026-12-05")


def test_an_honest_spot_discount_is_taken_and_a_floor_price_marked() -> None:
    done = run(
        MemoryFetcher(
            {
                EAST: facts(
                    EAST, {"p5.48xlarge": "55"}, {("use1-az1", "p5.48xlarge"): "5.5"}, listed(EAST, "p5.48xlarge")
                )
            }
        )
    )
    assert not done.quarantined
    assert "spot_at_floor_10pct" in offer(load_catalog(), "p5.48xlarge", EAST, CapacityType.SPOT).suspect


def test_an_unknown_type_is_kept_out_by_name() -> None:
    done = run(
        MemoryFetcher(
            {EAST: facts(EAST, {"g9.xlarge": "2", "g6.xlarge": "0.8"}, {}, listed(EAST, "g6.xlarge", "g9.xlarge"))}
        )
    )
    assert [(one.instance_type, one.reason) for one in done.quarantined] == [("g9.xlarge", "unknown_instance_type")]
    assert "types that the catalog does not know: g9.xlarge" in done.notes


def test_a_fetch_that_is_wrong_as_a_whole_does_not_move_the_measure() -> None:
    """A unit error in every row: the bundled medians still judge."""
    names = ["g6.xlarge", "g6.2xlarge", "g6.4xlarge", "g6.12xlarge"]
    before = load_catalog()
    done = run(MemoryFetcher({EAST: facts(EAST, dict.fromkeys(names, "0.0008"), {}, listed(EAST, *names))}))
    assert {one.reason for one in done.quarantined} == {"far_below_median"}
    assert len(done.quarantined) == len(names)
    after = offer(load_catalog(), "g6.xlarge", EAST, CapacityType.ON_DEMAND)
    assert after.price_as_of == offer(before, "g6.xlarge", EAST, CapacityType.ON_DEMAND).price_as_of


def test_the_quarantine_of_other_regions_is_kept_and_a_good_price_ends_it() -> None:
    bad = {region: facts(region, {"g6.xlarge": "0"}, {}, listed(region, "g6.xlarge")) for region in (EAST, WEST)}
    run(MemoryFetcher(bad))
    done = run(MemoryFetcher({EAST: facts(EAST, {"g6.xlarge": "0.8"}, {}, listed(EAST, "g6.xlarge"))}))
    assert not done.quarantined
    assert [one.region for one in read_quarantine(done.path)] == [WEST]


def test_quotas_of_the_account_are_kept_by_region() -> None:
    run(
        MemoryFetcher(
            {EAST: facts(EAST, {"g6.xlarge": "0.8"}, {}, listed(EAST, "g6.xlarge"), [("L-DB2E81BA", "64.0")])}
        )
    )
    quota = load_catalog().account_quota("aws", EAST, "L-DB2E81BA")
    assert quota is not None
    assert (quota.limit, quota.as_of) == (64.0, "2026-12-05")
    assert load_catalog().account_quota("aws", WEST, "L-DB2E81BA") is None


def test_the_same_facts_give_the_same_digest() -> None:
    def digest(folder: str) -> str:
        os.environ["XDG_CACHE_HOME"] = folder
        return run(MemoryFetcher({EAST: facts(EAST, {"g6.xlarge": "0.9"}, {}, listed(EAST, "g6.xlarge"))})).digest

    root = os.environ["XDG_CACHE_HOME"]
    try:
        assert digest(f"{root}/a") == digest(f"{root}/b")
    finally:
        os.environ["XDG_CACHE_HOME"] = root


# The cache on disk


def simple() -> MemoryFetcher:
    return MemoryFetcher({EAST: facts(EAST, {"g6.xlarge": "0.9"}, {}, listed(EAST, "g6.xlarge"))})


def test_a_snapshot_is_a_catalog_directory_of_its_own(cache: Path) -> None:
    done = run(simple())
    assert load_catalog(cache / "current").digest == done.digest
    assert (cache / "current").is_symlink()


def test_old_snapshots_are_cleared_but_for_the_one_before(cache: Path) -> None:
    for days in range(4):
        run(simple(), now=NOW + timedelta(days=days))
    assert len([path for path in cache.iterdir() if path.is_dir() and not path.is_symlink()]) == 2


def test_a_damaged_snapshot_is_named_with_its_remedy_and_a_refresh_mends_it(cache: Path) -> None:
    done = run(simple())
    prices = done.path / "prices.csv"
    prices.write_bytes(prices.read_bytes()[:-100])
    with pytest.raises(UsageError, match="damaged") as caught:
        load_catalog()
    assert "gpuprov prices refresh" in str(caught.value.remedy)
    assert load_catalog(Path("bundled")).origin.kind == "bundled"
    run(simple())
    assert load_catalog().origin.kind == "refreshed"


@pytest.mark.parametrize("name", ["manifest.json", "gpus.csv"])
def test_a_missing_file_is_damage_too(name: str) -> None:
    (run(simple()).path / name).unlink()
    with pytest.raises(UsageError, match="damaged"):
        load_catalog()


def test_a_snapshot_over_another_versions_data_is_not_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run(simple())
    other = tmp_path / "data"
    shutil.copytree(BUNDLED, other)
    (other / "instances.csv").write_bytes((other / "instances.csv").read_bytes().replace(b",g6,", b",g6x,", 1))
    monkeypatch.setattr("provisioner.catalog.cache.BUNDLED", other)
    catalog = load_catalog()
    assert catalog.origin.kind == "bundled"
    assert "gpuprov prices refresh" in str(catalog.origin.notice)


def test_a_merge_that_breaks_the_rules_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    run(simple())
    before = load_catalog().digest
    monkeypatch.setattr("provisioner.catalog.merge.decimal_string", lambda amount: "free")
    with pytest.raises(InternalBug, match="nothing has changed"):
        run(simple(), now=NOW + timedelta(days=1))
    assert load_catalog().digest == before


WRITER = textwrap.dedent(
    """
    import sys
    from datetime import UTC, datetime
    from provisioner.catalog import publish
    from provisioner.catalog.refresh import refresh
    from tests.catalog.test_refresh import MemoryFetcher, facts, listed

    point = sys.argv[1]
    steps = {"write": "write_synced", "link": "_link", "clear": "_clear_old", "sync": "_sync_folder"}

    real = getattr(publish, steps[point])
    calls = 0

    def stop(*words):
        global calls
        calls += 1
        if point != "write" or calls == 12:
            print("here", flush=True)
            sys.stdin.read()
        return real(*words)

    setattr(publish, steps[point], stop)
    prices = facts("us-east-1", {"g6.xlarge": "0.95"}, {}, listed("us-east-1", "g6.xlarge"))
    refresh([MemoryFetcher({"us-east-1": prices})], datetime(2026, 12, 9, tzinfo=UTC), lambda _: None, workers=1)
    """
)


@pytest.mark.slow
@pytest.mark.parametrize("point", ["write", "sync", "link", "clear"])
def test_a_writer_killed_at_any_step_leaves_the_old_or_the_new_catalog_whole(point: str, cache: Path) -> None:
    run(simple())
    before = load_catalog().digest
    with subprocess.Popen(
        [sys.executable, "-c", WRITER, point],
        cwd=Path(__file__).parents[2],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as writer:
        assert writer.stdout is not None
        assert writer.stdout.readline() == "here\n"
        writer.send_signal(signal.SIGKILL)
    after = load_catalog()
    assert (after.digest == before) is (point != "clear")
    assert after.origin.kind == "refreshed"
    run(simple(), now=NOW + timedelta(days=20))  # the lock is free, and leftovers go
    assert not list(cache.glob(".partial-*"))
    snapshot = read_snapshot()
    assert snapshot is not None
    assert snapshot.manifest.written_at == "2026-12-25T09:30:00Z"


def test_the_cache_is_below_the_users_cache_folder(cache: Path) -> None:
    assert cache_folder() == cache
