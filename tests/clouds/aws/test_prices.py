"""AWS prices over HTTP: filters, pages, zone ids, throttling, partial failure, broken bodies, credentials."""

from __future__ import annotations

from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path

import pytest

from provisioner.catalog.fetched import ON_DEMAND, SPOT, PriceQuote
from provisioner.catalog.patience import Patience
from provisioner.catalog.snapshot import Catalog, load_catalog
from provisioner.clouds.aws.price_list import read_entry
from provisioner.clouds.aws.prices import AwsPrices, quota_codes, scored_types
from provisioner.errors import Ambiguous, CloudError, CredentialsError, Throttled
from tests.fakes.pricing import DROP, GARBAGE, AwsMarket, Fault, aws_prices, product

EAST, WEST = "us-east-1", "us-west-2"


@pytest.fixture(scope="module")
def catalog() -> Catalog:
    return load_catalog(Path("bundled"))


@pytest.fixture
def market() -> AwsMarket:
    return AwsMarket(
        zones={EAST: {"use1-az1": "us-east-1c", "use1-az2": "us-east-1a"}, WEST: {"usw2-az1": "us-west-2b"}},
        products=[
            product("g6.xlarge", EAST, "0.8048"),
            product("g5.xlarge", EAST, "1.006"),
            product("p5.48xlarge", EAST, "55.04"),
            product("g9.xlarge", EAST, "2.0"),  # new: has a GPU, is not in the catalog
            product("m7i.large", EAST, "0.1", gpu="0"),
            product("c5.large", EAST, "0.085", gpu="NA"),
            product("g6.xlarge", EAST, "0.9888", operatingSystem="Windows"),
            product("g6.xlarge", EAST, "1.5", preInstalledSw="SQL Std"),
            product("g6.xlarge", EAST, "0.0", capacitystatus="AllocatedCapacityReservation"),
            product("g6.xlarge", EAST, "0.8853", tenancy="Dedicated"),
            product("p5.48xlarge", EAST, "0.0", marketoption="CapacityBlock"),
            product("g4dn.metal", EAST, "7.824", tenancy="Dedicated", productFamily="Compute Instance (bare metal)"),
            product("g6.xlarge", WEST, "0.8048"),
        ],
        offerings={
            EAST: [
                ("use1-az1", "g6.xlarge"),
                ("use1-az2", "g6.xlarge"),
                ("use1-az2", "p5.48xlarge"),
                ("use1-atl2-az1", "g6.xlarge"),
            ],
            WEST: [("usw2-az1", "g6.xlarge")],
        },
        spot={
            EAST: [
                ("g6.xlarge", "use1-az1", "0.3811", "2026-11-30T10:00:00.000Z"),
                ("g6.xlarge", "use1-az1", "0.3700", "2026-11-30T12:00:00.000Z"),
                ("g6.xlarge", "use1-az1", "0.3900", "2026-11-29T12:00:00.000Z"),
                ("g6.xlarge", "use1-az2", "0.2900", "2026-11-30T10:00:00.000Z"),
                ("g6.xlarge", "use1-atl2-az1", "0.6", "2026-11-30T10:00:00.000Z"),
            ]
        },
        quotas={(EAST, "L-DB2E81BA"): 64.0, (EAST, "L-417A185B"): 0.0},
        scores={("g6.xlarge", EAST, "use1-az1"): 3, ("p5.4xlarge", WEST, "usw2-az1"): 1},
    )


@pytest.fixture
def account(market: AwsMarket, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[str]:
    with aws_prices(market) as address:
        monkeypatch.setenv("AWS_ENDPOINT_URL", address)
        monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIASTUB")
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "stub")
        monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "none"))
        monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "none"))
        monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
        yield address


@pytest.fixture
def waits() -> list[float]:
    return []


@pytest.fixture
def fetcher(account: str, catalog: Catalog, waits: list[float]) -> AwsPrices:
    return AwsPrices(catalog, patience=Patience(attempts=4, sleep=waits.append, draw=lambda: 1.0))


def quotes(found: tuple[PriceQuote, ...]) -> dict[tuple[str, str], str]:
    assert len({(one.instance_type, one.zone) for one in found}) == len(found)
    return {(one.instance_type, one.zone): one.price_usd_per_hour for one in found}


def test_only_linux_shared_on_demand_prices_and_bare_metal_of_the_second_pass(fetcher: AwsPrices) -> None:
    assert quotes(fetcher.fetch(EAST).prices[ON_DEMAND]) == {
        ("g6.xlarge", "*"): "0.8048",
        ("g5.xlarge", "*"): "1.006",
        ("p5.48xlarge", "*"): "55.04",
        ("g9.xlarge", "*"): "2.0",
        ("g4dn.metal", "*"): "7.824",
    }


def test_every_page_is_read_of_every_list(fetcher: AwsPrices, market: AwsMarket) -> None:
    fetcher.fetch(EAST)
    assert [body.get("NextToken") for body in market.calls.of("GetProducts", EAST)[:3]] == [None, "page-2", "page-4"]
    assert len(market.calls.of("DescribeSpotPriceHistory", EAST)) == 3
    assert len(market.calls.of("DescribeInstanceTypeOfferings", EAST)) == 2


def test_the_newest_spot_price_of_each_zone_by_its_id(fetcher: AwsPrices, market: AwsMarket) -> None:
    wanted = {("g6.xlarge", "use1-az1"): "0.3700", ("g6.xlarge", "use1-az2"): "0.2900"}
    assert quotes(fetcher.fetch(EAST).prices[SPOT]) == wanted
    assert not market.calls.of("DescribeAvailabilityZones")
    market.names_only = True  # C10: letters differ from account to account, so they are translated
    market.spot[EAST] = [row for row in market.spot[EAST] if "atl" not in row[1]]
    assert quotes(fetcher.fetch(EAST).prices[SPOT]) == wanted


def test_offerings_by_zone_id_without_local_zones(fetcher: AwsPrices) -> None:
    """C9: a zone that the listing lacks is never tried."""
    assert fetcher.fetch(EAST).offerings == (
        ("use1-az1", "g6.xlarge"),
        ("use1-az2", "g6.xlarge"),
        ("use1-az2", "p5.48xlarge"),
    )


def test_quotas_that_the_region_has_zero_included(fetcher: AwsPrices) -> None:
    assert fetcher.fetch(EAST).quotas == (("L-417A185B", "0.0"), ("L-DB2E81BA", "64.0"))


def test_without_the_right_quotas_are_left_out_and_said(fetcher: AwsPrices, market: AwsMarket) -> None:
    market.calls.faults.append(Fault("GetServiceQuota", "AccessDeniedException"))
    found = fetcher.fetch(EAST)
    assert found.quotas is None
    assert len(found.notes) == 1
    assert "quotas left out" in found.notes[0]
    assert len(market.calls.of("GetServiceQuota")) == 1


def test_regions_are_those_of_the_account(fetcher: AwsPrices) -> None:
    assert fetcher.regions() == (EAST, WEST)


@pytest.mark.parametrize(
    ("operation", "code", "status"),
    [
        ("GetProducts", "ThrottlingException", 400),
        ("DescribeSpotPriceHistory", "RequestLimitExceeded", 503),
        ("DescribeInstanceTypeOfferings", "InternalError", 500),
        ("GetProducts", DROP, 0),
        ("GetProducts", GARBAGE, 200),
        ("DescribeSpotPriceHistory", GARBAGE, 200),
    ],
)
def test_a_passing_failure_is_waited_out_page_by_page(  # noqa: PLR0917 - fixtures
    operation: str, code: str, status: int, fetcher: AwsPrices, market: AwsMarket, waits: list[float]
) -> None:
    market.calls.faults.append(Fault(operation, code, times=2, status=status, region=EAST))
    assert len(fetcher.fetch(EAST).prices[ON_DEMAND]) == 5
    assert waits == [0.5, 1.0]


def test_endless_throttling_ends(fetcher: AwsPrices, market: AwsMarket, waits: list[float]) -> None:
    market.calls.faults.append(Fault("GetProducts", "ThrottlingException", times=99))
    with pytest.raises(Throttled):
        fetcher.fetch(EAST)
    assert len(market.calls.of("GetProducts")) == 4
    assert waits == [0.5, 1.0, 2.0]


def test_one_region_fails_and_the_other_does_not(fetcher: AwsPrices, market: AwsMarket) -> None:
    market.calls.faults.append(Fault("DescribeSpotPriceHistory", "InternalError", times=99, region=EAST, status=500))
    with pytest.raises(Ambiguous) as caught:
        fetcher.fetch(EAST)
    assert "ec2:DescribeSpotPriceHistory in us-east-1" in str(caught.value)
    assert not market.calls.of("GetProducts")  # the long list comes last
    assert quotes(fetcher.fetch(WEST).prices[ON_DEMAND]) == {("g6.xlarge", "*"): "0.8048"}


@pytest.mark.parametrize("code", ["ExpiredToken", "RequestExpired", "UnauthorizedOperation", "AuthFailure"])
def test_bad_credentials_are_exit_3_with_the_line_that_mends_them(
    code: str, fetcher: AwsPrices, market: AwsMarket
) -> None:
    market.calls.faults.append(Fault("DescribeRegions", code, status=403))
    with pytest.raises(CredentialsError) as caught:
        fetcher.regions()
    assert caught.value.exit_code == 3
    assert caught.value.remedy


def test_no_credentials_are_exit_3(fetcher: AwsPrices, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    with pytest.raises(CredentialsError) as caught:
        fetcher.regions()
    assert "aws sso login" in str(caught.value.remedy)


@pytest.mark.parametrize("entry", ["not json", "[]", "{}", '{"product": {"attributes": {}}, "terms": {}}'])
def test_an_entry_of_another_form_fails_its_region(entry: str, fetcher: AwsPrices, market: AwsMarket) -> None:
    market.products.append(entry)
    with pytest.raises(CloudError, match="another form"):
        fetcher.fetch(EAST)


def test_a_price_in_another_currency_or_unit_is_no_price() -> None:
    entry = product("g6.xlarge", "cn-north-1", "7")
    (term,) = entry["terms"]["OnDemand"].values()
    (dimension,) = term["priceDimensions"].values()
    dimension["pricePerUnit"] = {"CNY": "7"}
    assert read_entry(entry, "cn-north-1").on_demand is None
    dimension.update(pricePerUnit={"USD": "1"}, unit="Quantity")
    assert read_entry(entry, "cn-north-1").on_demand is None


def test_the_same_token_again_and_again_is_refused(
    fetcher: AwsPrices, market: AwsMarket, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tests.fakes.pricing._page", lambda market, items, token: (items[:1], "page-again"))
    with pytest.raises(CloudError, match="same page"):
        fetcher.fetch(EAST)
    assert len(market.calls.of("DescribeInstanceTypeOfferings")) == 2


def test_scores_of_one_type_each_asked_in_the_regions_read(fetcher: AwsPrices, market: AwsMarket) -> None:
    found = fetcher.placement_scores([EAST, WEST])
    assert [(one.region, one.zone, one.instance_type, one.score) for one in found.found] == [
        (WEST, "usw2-az1", "p5.4xlarge", 1)
    ]
    assert len(market.calls.of("GetSpotPlacementScores")) == 10
    assert not found.notes


@pytest.mark.parametrize(
    ("code", "words"), [("MaxConfigLimitExceeded", "few new questions"), ("UnauthorizedOperation", "left out")]
)
def test_scores_are_a_help_and_never_in_the_way(code: str, words: str, fetcher: AwsPrices, market: AwsMarket) -> None:
    market.calls.faults.append(Fault("GetSpotPlacementScores", code, times=99))
    found = fetcher.placement_scores([EAST])
    assert found.found == ()
    assert words in found.notes[0]


def test_what_is_asked_of_quotas_and_scores_comes_from_the_catalog(fetcher: AwsPrices) -> None:
    types = fetcher._types()
    assert {"L-DB2E81BA", "L-417A185B", "L-3819A6DF"} <= set(quota_codes(types))
    names = scored_types(types)
    assert len(names) == 10
    assert all(types[name].kind == "gpu" and types[name].gpu_fraction == 1 for name in names)


def test_prices_stay_text_until_they_are_judged(fetcher: AwsPrices, market: AwsMarket) -> None:
    market.products = [product("g6.xlarge", EAST, "0.8048000000")]
    (quote,) = fetcher.fetch(EAST).prices[ON_DEMAND]
    assert Decimal(quote.price_usd_per_hour) == Decimal("0.8048")
