"""What stands beside a machine's price, over HTTP: reserved terms, offers of capacity blocks, prices of disks."""

from __future__ import annotations

from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path

import pytest

from provisioner.catalog.fetched import CAPACITY_BLOCK, COMMIT_1Y, COMMIT_3Y, ON_DEMAND, PriceQuote
from provisioner.catalog.patience import Patience
from provisioner.catalog.snapshot import Catalog, load_catalog
from provisioner.clouds.aws.prices import AwsPrices
from provisioner.errors import Ambiguous, CloudError
from tests.fakes.pricing import GARBAGE, AwsMarket, Fault, aws_prices, disk, product, reserved

EAST = "us-east-1"


@pytest.fixture(scope="module")
def catalog() -> Catalog:
    return load_catalog(Path("bundled"))


@pytest.fixture
def market() -> AwsMarket:
    one_year = [
        reserved(1, "All Upfront", upfront="4380"),
        reserved(1, "No Upfront", "0.507"),
        reserved(1, "Partial Upfront", "0.25", "2190"),
        reserved(1, "No Upfront", "0.60", offering="convertible"),
    ]
    three_years = [reserved(3, "All Upfront", "0", "7884"), reserved(3, "Partial Upfront", "0.16", "4204.8")]
    return AwsMarket(
        zones={EAST: {"use1-az1": "us-east-1c", "use1-az2": "us-east-1a"}},
        products=[
            product("g6.xlarge", EAST, "0.8048", terms=[*one_year, *three_years]),
            product("p5.48xlarge", EAST, "55.04"),
            product("m7i.large", EAST, "0.1", gpu="0", terms=one_year),
            disk("EBS:VolumeUsage.gp3", EAST, "0.0800000000", volumeApiName="gp3"),
            disk("EUC1-EBS:VolumeUsage.gp3", "eu-central-1", "0.0952000000", volumeApiName="gp3"),
            disk("EBS:SnapshotUsage", EAST, "0.0500000000", family="Storage Snapshot"),
            disk("EBS:SnapshotArchiveStorage", EAST, "0.0125000000", family="Storage Snapshot"),
        ],
        offerings={EAST: [("use1-az1", "g6.xlarge"), ("use1-az1", "p5.48xlarge"), ("use1-az2", "p4d.24xlarge")]},
        blocks={
            EAST: [
                # Blocks end at 11:30 UTC: "24 hours" is a little less, or more.
                ("p5.48xlarge", "use1-az1", "943.92", "2026-12-03T11:30:00.000Z", "2026-12-04T11:30:00.000Z"),
                ("p5.48xlarge", "use1-az1", "865.26", "2026-12-05T13:30:00.000Z", "2026-12-06T11:30:00.000Z"),
                ("p5.48xlarge", "use1-az1", "1500.0", "2026-12-01T11:30:00.000Z", "2026-12-02T11:30:00.000Z"),
                ("p4d.24xlarge", "use1-az2", "283.20", "2026-12-09T11:30:00.000Z", "2026-12-10T11:30:00.000Z"),
                ("p5.48xlarge", "use1-az9", "1.0", "2026-12-01T11:30:00.000Z", "2026-12-02T11:30:00.000Z"),
            ]
        },
    )


@pytest.fixture
def fetcher(
    market: AwsMarket, catalog: Catalog, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> Iterator[AwsPrices]:
    with aws_prices(market) as address:
        monkeypatch.setenv("AWS_ENDPOINT_URL", address)
        monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIASTUB")
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "stub")
        monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "none"))
        monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "none"))
        monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
        yield AwsPrices(catalog, patience=Patience(attempts=3, sleep=lambda _: None, draw=lambda: 1.0))


def by_type(found: tuple[PriceQuote, ...]) -> dict[str, str]:
    return {one.instance_type: one.price_usd_per_hour for one in found}


def test_reserved_terms_as_prices_an_hour(fetcher: AwsPrices) -> None:
    """One year: 0.507 USD without anything ahead; three: 0.16 + 4,204.80 over 26,280 hours, since that is not sold."""
    prices = fetcher.fetch(EAST).prices
    assert by_type(prices[COMMIT_1Y]) == {"g6.xlarge": "0.507000"}
    assert by_type(prices[COMMIT_3Y]) == {"g6.xlarge": "0.320000"}
    assert prices[COMMIT_1Y][0].notes == "reserved, standard, No Upfront"
    assert prices[COMMIT_3Y][0].notes == "reserved, standard, Partial Upfront"
    assert set(by_type(prices[ON_DEMAND])) == {"g6.xlarge", "p5.48xlarge"}


def test_blocks_by_zone_id_with_the_hours_that_they_have(fetcher: AwsPrices) -> None:
    """943.92 over 24 h and 865.26 over 22 h are 39.33 an hour each: the earlier one counts."""
    found = fetcher.fetch(EAST).prices[CAPACITY_BLOCK]
    assert {(one.instance_type, one.zone): Decimal(one.price_usd_per_hour) for one in found} == {
        ("p4d.24xlarge", "use1-az2"): Decimal("11.8"),
        ("p5.48xlarge", "use1-az1"): Decimal("39.33"),
    }
    assert found[1].notes == "starts 2026-12-03T11:30:00Z"


def test_only_types_that_are_sold_in_blocks_and_offered_here_are_asked(fetcher: AwsPrices, market: AwsMarket) -> None:
    fetcher.fetch(EAST)
    asked = [call["InstanceType"] for call in market.calls.of("DescribeCapacityBlockOfferings")]
    assert set(asked) == {"p4d.24xlarge", "p5.48xlarge"}
    assert asked.count("p5.48xlarge") == 2  # two pages of two offers: to the last one


@pytest.mark.parametrize("code", ["UnauthorizedOperation", "UnsupportedOperation", "RequestLimitExceeded"])
def test_blocks_are_a_help_and_never_in_the_way(fetcher: AwsPrices, market: AwsMarket, code: str) -> None:
    market.calls.faults.append(Fault("DescribeCapacityBlockOfferings", code, times=99))
    facts = fetcher.fetch(EAST)
    assert CAPACITY_BLOCK not in facts.prices  # what the catalog had stays, with its date
    assert any(note.startswith("capacity blocks left out") for note in facts.notes)
    assert by_type(facts.prices[ON_DEMAND])["g6.xlarge"] == "0.8048"


def test_a_market_without_offers_has_no_price(fetcher: AwsPrices, market: AwsMarket) -> None:
    market.blocks.clear()
    assert fetcher.fetch(EAST).prices[CAPACITY_BLOCK] == ()


def test_disks_that_plans_use(fetcher: AwsPrices, market: AwsMarket) -> None:
    market.zones["eu-central-1"] = {"euc1-az1": "eu-central-1a"}
    found = fetcher.fetch(EAST).disks or ()
    assert {one.service: Decimal(one.price_usd_per_gib_month) for one in found} == {
        "ebs_gp3": Decimal("0.08"),
        "ebs_snapshot_standard": Decimal("0.05"),
    }
    (only,) = fetcher.fetch("eu-central-1").disks or ()
    assert Decimal(only.price_usd_per_gib_month) == Decimal("0.0952")


def test_disks_that_cannot_be_read_are_left_out_and_said(fetcher: AwsPrices, market: AwsMarket) -> None:
    broken = disk("EBS:VolumeUsage.gp3", EAST, "0.08", volumeApiName="gp3")
    broken["terms"]["OnDemand"] = {"x": {}}
    market.products.insert(0, broken)
    facts = fetcher.fetch(EAST)
    assert facts.disks is None
    assert any(note.startswith("disk prices left out") for note in facts.notes)
    assert by_type(facts.prices[ON_DEMAND])["g6.xlarge"] == "0.8048"


@pytest.mark.parametrize("operation", ["GetProducts", "GetServiceQuota"])
def test_a_page_of_a_proxy_never_passes_for_an_empty_list(
    fetcher: AwsPrices, market: AwsMarket, operation: str
) -> None:
    """The SDK reads HTML with status 200 as an answer without any part."""
    market.calls.faults.append(Fault(operation, GARBAGE, times=999))
    if operation == "GetProducts":
        with pytest.raises(Ambiguous, match="proxy"):
            fetcher.fetch(EAST)
    else:
        facts = fetcher.fetch(EAST)
        assert facts.quotas is None
        assert any(note.startswith("quotas left out") for note in facts.notes)


def test_a_term_of_another_form_fails_its_region(fetcher: AwsPrices, market: AwsMarket) -> None:
    entry = product("g6.xlarge", EAST, "0.8048", terms=[{"priceDimensions": {}}])
    market.products.append(entry)
    with pytest.raises(CloudError, match="another form"):
        fetcher.fetch(EAST)
