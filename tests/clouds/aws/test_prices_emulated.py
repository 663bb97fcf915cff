"""AWS prices against an emulator that others wrote: the same listing as the bundled one, and its spot prices kept out."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from provisioner.catalog.fetched import SPOT
from provisioner.catalog.refresh import refresh
from provisioner.catalog.snapshot import Catalog, load_catalog
from provisioner.clouds.aws.prices import AwsPrices
from tests.fakes.aws import FakeAws, Fault
from tests.fakes.pricing import AwsMarket, aws_prices, product

EAST = "us-east-1"


@pytest.fixture
def fetcher(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[AwsPrices]:
    monkeypatch.delenv("GPUPROV_CATALOG", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    fake = FakeAws().start()
    fake.faults.append(Fault("GetSpotPlacementScores", "UnauthorizedOperation"))  # it has none
    market = AwsMarket(products=[product("g6.xlarge", EAST, "0.83")], page=100)
    with aws_prices(market) as address:
        for name, value in fake.environment.items():
            monkeypatch.setenv(name, value)
        monkeypatch.setenv("AWS_ENDPOINT_URL_PRICING", address)
        monkeypatch.setenv("AWS_ENDPOINT_URL_SERVICE_QUOTAS", address)
        yield AwsPrices(load_catalog(Path("bundled")))
    fake.stop()


def bundled_zones(catalog: Catalog) -> set[tuple[str, str]]:
    rows = catalog._files.rows("offerings.csv", "cloud", "region", "zone", "instance_type", "offered")
    return {(zone, name) for cloud, region, zone, name, yes in rows if (cloud, region, yes) == ("aws", EAST, "yes")}


@pytest.mark.slow
def test_a_refresh_of_one_region(fetcher: AwsPrices) -> None:
    facts = fetcher.fetch(EAST)
    known = {pair for pair in bundled_zones(fetcher.catalog) if pair[0].startswith("use1-az")}
    assert set(facts.offerings or ()) == known
    assert len(facts.prices[SPOT]) > 100
    done = refresh([fetcher], datetime.now(UTC), lambda _: None, regions=[EAST])
    # P1: 0.00001 USD for every machine, whatever says so.
    assert len(done.quarantined) == len(facts.prices[SPOT])
    assert {one.price_usd_per_hour for one in done.quarantined} == {"0.00001"}
    assert {one.reason for one in done.quarantined} == {"far_below_median"}
    prices = {offer.price_usd_per_hour for offer in load_catalog().offers(["aws"]) if offer.region == EAST}
    assert min(price for price in prices if price is not None) > 0.05
