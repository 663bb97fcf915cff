"""Google prices over HTTP: composed machines, zones, pages, throttling, partial failure, broken bodies, credentials."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path

import pytest

from provisioner.catalog.patience import Patience
from provisioner.catalog.snapshot import Catalog, load_catalog
from provisioner.clouds.gcp.prices import GcpPrices
from provisioner.clouds.gcp.session import GcpReader
from provisioner.errors import Ambiguous, CloudError, CredentialsError, Throttled
from tests.fakes.pricing import DROP, GARBAGE, Fault, GcpMarket, sku

US = "us-central1"


@pytest.fixture(scope="module")
def catalog() -> Catalog:
    return load_catalog(Path("bundled"))


@pytest.fixture
def waits() -> list[float]:
    return []


@pytest.fixture
def fetcher(google: str, catalog: Catalog, waits: list[float]) -> GcpPrices:
    return GcpPrices(catalog, GcpReader(Patience(attempts=4, sleep=waits.append, draw=lambda: 1.0)))


def prices(fetcher: GcpPrices, kind: str = "on_demand", region: str = US) -> dict[str, Decimal]:
    return {one.instance_type: Decimal(one.price_usd_per_hour) for one in fetcher.fetch(region).prices[kind]}


GOLDEN = {
    # P3: Google's own calculator, us-central1, August 2026; host-only prices are a quarter of these.
    "g2-standard-4": "0.706832",
    "a2-highgpu-1g": "3.673385",
    "n1-standard-8": "0.379998",
    # P2: 375 GiB of local SSD come with it and are billed.
    "a2-ultragpu-1g": "5.0688",
}


@pytest.mark.usefixtures("account")
@pytest.mark.parametrize(("name", "usd"), GOLDEN.items())
def test_p3_composed_prices_are_within_half_a_percent_of_the_published_ones(
    name: str, usd: str, fetcher: GcpPrices
) -> None:
    found, wanted = prices(fetcher)[name], Decimal(usd)
    assert abs(found - wanted) / wanted < Decimal("0.005"), (found, wanted)


@pytest.mark.usefixtures("account")
def test_a_machine_without_one_of_its_rates_has_no_price(fetcher: GcpPrices) -> None:
    found = prices(fetcher)
    assert "a3-highgpu-8g" not in found
    assert "a4-highgpu-8g" in found  # its slice rate holds the host
    assert prices(fetcher, region="asia-northeast1") == {}  # a GPU rate and no host rates


@pytest.mark.usefixtures("account")
def test_p2_bundled_disk_is_in_the_price_and_optional_disk_is_not(fetcher: GcpPrices) -> None:
    quotes = {one.instance_type: one for one in fetcher.fetch(US).prices["on_demand"]}
    assert quotes["a2-ultragpu-1g"].excludes == "none"
    assert quotes["g2-standard-4"].excludes == "local_ssd"


@pytest.mark.usefixtures("account")
def test_bundled_disk_without_a_rate_is_said(fetcher: GcpPrices, market: GcpMarket) -> None:
    market.skus = [one for one in market.skus if "SSD" not in one["description"]]
    quotes = {one.instance_type: one for one in fetcher.fetch(US).prices["on_demand"]}
    assert quotes["a2-ultragpu-1g"].excludes == "local_ssd"


@pytest.mark.usefixtures("account")
def test_flex_start_is_kept_apart_from_on_demand(fetcher: GcpPrices) -> None:
    on_demand, flex = prices(fetcher)["a2-ultragpu-1g"], prices(fetcher, "flex_start")
    assert set(flex) == {"a2-ultragpu-1g", "a2-ultragpu-2g", "a2-ultragpu-4g", "a2-ultragpu-8g"}
    assert flex["a2-ultragpu-1g"] < on_demand / 2
    assert prices(fetcher, "calendar") == {}


@pytest.mark.usefixtures("account")
def test_disks_by_their_own_words(fetcher: GcpPrices, market: GcpMarket) -> None:
    month = {"unit": "GiBy.mo"}
    market.skus += [
        sku("Balanced PD Capacity", "0.1", "us-central1", **month),
        sku("SSD backed PD Capacity in Iowa", "0.17", "us-central1", **month),
        sku("Hyperdisk Balanced Capacity in Iowa", "0.08", "us-central1", **month),
        sku("Hyperdisk Balanced IOPS in Iowa", "0.005", "us-central1", **month),
        sku("Regional Balanced PD Capacity", "0.2", "us-central1", **month),
        sku("Balanced PD Capacity in Tokyo", "0.13", "asia-northeast1", **month),
    ]
    found = {one.service: one.price_usd_per_gib_month for one in fetcher.fetch("us-central1").disks or ()}
    assert {name: Decimal(usd) for name, usd in found.items()} == {
        "pd_balanced": Decimal("0.1"),
        "pd_ssd": Decimal("0.17"),
        "hyperdisk_balanced": Decimal("0.08"),
    }


@pytest.mark.usefixtures("account")
def test_contracts_are_composed_of_their_own_rates(fetcher: GcpPrices, market: GcpMarket) -> None:
    """The catalog's g2-standard-8 in us-central1 for a year is 0.537783 USD an hour: 8 cores, 32 GiB and a GPU."""
    assert prices(fetcher, "commit_1y") == {}  # the GPU's rate alone is no machine's
    year = {"usage": "Commit1Yr"}
    market.skus += [
        sku("Commitment v1: G2 Cpu in Iowa for 1 Year", "0.015743", "us-central1", **year),
        sku("Commitment v1: G2 Ram in Iowa for 1 Year", "0.001844", "us-central1", unit="GiBy.h", **year),
    ]
    fresh = GcpPrices(fetcher.catalog, fetcher.reader)
    found = {one.instance_type: one.price_usd_per_hour for one in fresh.fetch("us-central1").prices["commit_1y"]}
    assert Decimal(found["g2-standard-8"]) == Decimal("0.015743") * 8 + Decimal("0.001844") * 32 + Decimal("0.3")
    assert not {name for name in found if not name.startswith("g2-")}


@pytest.mark.usefixtures("account")
def test_spot_by_description_whatever_the_usage_type_says(fetcher: GcpPrices) -> None:
    found = prices(fetcher, "spot")
    assert found["g2-standard-4"] == Decimal("0.0099") * 4 + Decimal("0.00117") * 16 + Decimal("0.224")
    assert found["a4-highgpu-8g"] < prices(fetcher)["a4-highgpu-8g"] / 2


@pytest.mark.usefixtures("account")
def test_a_part_that_costs_nothing_makes_the_whole_nothing(fetcher: GcpPrices, market: GcpMarket) -> None:
    """P3: a host without its GPU's price is no bargain; the judge keeps a 0 out."""
    market.skus = [one for one in market.skus if one["description"] != "Nvidia L4 GPU running in Americas"]
    market.skus.append(sku("Nvidia L4 GPU running in Americas", "0", US))
    quotes = {one.instance_type: one for one in fetcher.fetch(US).prices["on_demand"]}
    assert quotes["g2-standard-4"].price_usd_per_hour == "0"
    assert "no price" in quotes["g2-standard-4"].notes


@pytest.mark.usefixtures("account")
def test_offerings_and_attached_gpus_by_zone(fetcher: GcpPrices) -> None:
    found = fetcher.fetch(US)
    assert found.offerings == (
        ("us-central1-a", "a2-highgpu-1g"),
        ("us-central1-a", "a2-ultragpu-1g"),
        ("us-central1-a", "g2-standard-4"),
        ("us-central1-a", "n1-standard-4"),
        ("us-central1-b", "g2-standard-4"),
        ("us-central1-b", "n1-standard-4"),
    )
    assert [
        (one.gpu_model, one.purchase_model, one.price_usd_per_gpu_hour, one.zones) for one in found.gpu_prices or ()
    ] == [
        ("T4", "on_demand", "0.35", ("us-central1-a",)),
        ("T4", "spot", "0.14", ("us-central1-a",)),
    ]


@pytest.mark.usefixtures("account")
def test_every_list_is_read_once_for_all_regions_and_to_its_last_page(fetcher: GcpPrices, market: GcpMarket) -> None:
    assert fetcher.regions() == ("asia-northeast1", US)
    fetcher.fetch(US)
    fetcher.fetch("asia-northeast1")
    pages = -(-len(market.skus) // market.page)
    assert [query.get("pageToken") for query in market.calls.of("skus")] == [
        None,
        *(str(3 * n) for n in range(1, pages)),
    ]
    assert {query["pageSize"] for query in market.calls.of("skus")} == {"5000"}
    assert len(market.calls.of("machineTypes")) == 3  # eight of them, the filter left e2 out
    assert len(market.calls.of("token")) == 1


@pytest.mark.usefixtures("account")
def test_a_zone_that_does_not_answer_fails_its_region_alone(fetcher: GcpPrices, market: GcpMarket) -> None:
    market.unreachable.append("us-central1-b")
    with pytest.raises(CloudError, match="no answer from us-central1-b"):
        fetcher.fetch(US)
    assert fetcher.fetch("asia-northeast1").offerings == (("asia-northeast1-a", "g2-standard-4"),)


@pytest.mark.usefixtures("account")
@pytest.mark.parametrize(
    ("code", "status"),
    [("rateLimitExceeded", 403), ("RESOURCE_EXHAUSTED", 429), ("backendError", 503), (DROP, 0), (GARBAGE, 200)],
)
def test_a_passing_failure_is_waited_out(
    code: str, status: int, fetcher: GcpPrices, market: GcpMarket, waits: list[float]
) -> None:
    market.calls.faults.append(Fault("skus", code, times=2, status=status))
    assert "g2-standard-4" in prices(fetcher)
    assert waits == [0.5, 1.0]


@pytest.mark.usefixtures("account")
def test_endless_throttling_ends(fetcher: GcpPrices, market: GcpMarket) -> None:
    market.calls.faults.append(Fault("machineTypes", "RESOURCE_EXHAUSTED", times=99, status=429))
    with pytest.raises(Throttled):
        fetcher.regions()
    assert len(market.calls.of("machineTypes")) == 4


@pytest.mark.usefixtures("account")
def test_an_endless_list_ends(fetcher: GcpPrices, market: GcpMarket, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("provisioner.clouds.gcp.session._PAGES_MAX", 5)
    with pytest.raises(CloudError, match="more than 5 pages"):
        fetcher.regions()


@pytest.mark.usefixtures("account")
def test_a_sku_of_another_form_is_an_error_and_not_a_gap(fetcher: GcpPrices, market: GcpMarket) -> None:
    market.skus.insert(4, {"description": "Nvidia L4 GPU running in Americas"})
    with pytest.raises(Ambiguous, match="cannot be read: KeyError"):
        fetcher.regions()


def test_no_credentials_are_exit_3_with_the_line_that_mends_it(
    fetcher: GcpPrices, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("CLOUDSDK_CONFIG", str(tmp_path))
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(CredentialsError) as caught:
        fetcher.regions()
    assert caught.value.exit_code == 3
    assert "gcloud auth application-default login" in str(caught.value.remedy)


@pytest.mark.usefixtures("account")
def test_revoked_credentials_are_exit_3(fetcher: GcpPrices, market: GcpMarket) -> None:
    market.calls.faults.append(Fault("token", "invalid_grant", times=9, status=400))
    with pytest.raises(CredentialsError) as caught:
        fetcher.regions()
    assert "gcloud auth application-default login" in str(caught.value.remedy)


@pytest.mark.usefixtures("account")
def test_a_disabled_api_names_the_command_that_enables_it(fetcher: GcpPrices, market: GcpMarket) -> None:
    market.calls.faults.append(Fault("skus", "accessNotConfigured", status=403))
    with pytest.raises(CredentialsError) as caught:
        fetcher.regions()
    assert caught.value.remedy == "run `gcloud services enable cloudbilling.googleapis.com`"


def test_with_an_api_key_alone_prices_are_read_and_listings_stay(
    fetcher: GcpPrices, market: GcpMarket, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("GOOGLE_API_KEY", market.key)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("CLOUDSDK_CONFIG", str(tmp_path))
    monkeypatch.setenv("PATH", str(tmp_path))
    found = fetcher.fetch(US)
    assert found.prices["on_demand"]
    assert found.offerings is None
    assert [one.zones for one in found.gpu_prices or ()] == [None, None]
    assert "machine types by zone left out: no Google credentials" in found.notes[0]


def test_a_wrong_api_key_is_exit_3_and_in_no_address(
    fetcher: GcpPrices, market: GcpMarket, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GOOGLE_API_KEY", "AIza-other")
    with pytest.raises(CredentialsError):
        fetcher.regions()
    assert "AIza-other" not in str(market.calls.log)


def test_there_are_no_placement_scores(fetcher: GcpPrices) -> None:
    assert fetcher.placement_scores([US]).found == ()
