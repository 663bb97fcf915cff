"""``gpuprov prices refresh`` and ``prices show`` from outside, against the stub clouds, and ``offers --others``."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from provisioner.cli.main import run
from tests.fakes.pricing import AwsMarket, Fault, GcpMarket, aws_prices, google_prices, product, sku

EAST, WEST = "us-east-1", "us-west-2"


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.delenv("GPUPROV_CATALOG", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "gpuprov" / "catalog"


@pytest.fixture
def aws(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[AwsMarket]:
    market = AwsMarket(
        zones={EAST: {"use1-az1": "us-east-1a"}, WEST: {"usw2-az1": "us-west-2a"}},
        products=[
            product("g6.xlarge", EAST, "0.83"),
            product("g6.xlarge", WEST, "0.84"),
            product("g5.xlarge", EAST, "0.00"),
        ],
        offerings={EAST: [("use1-az1", "g6.xlarge"), ("use1-az1", "g5.xlarge")], WEST: [("usw2-az1", "g6.xlarge")]},
        spot={EAST: [("g6.xlarge", "use1-az1", "0.4", "2026-11-30T10:00:00.000Z")]},
    )
    with aws_prices(market) as address:
        monkeypatch.setenv("AWS_ENDPOINT_URL", address)
        monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIASTUB")
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "stub")
        monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "none"))
        monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "none"))
        monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
        yield market


@pytest.fixture
def google(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[GcpMarket]:
    """A Google stub that is reached with an API key alone."""
    market = GcpMarket(
        skus=[
            sku("G2 Instance Core running in Americas", "0.024988", "us-central1"),
            sku("G2 Instance Ram running in Americas", "0.002927", "us-central1", unit="GiBy.h"),
            sku("Nvidia L4 GPU running in Americas", "0.57", "us-central1"),
        ]
    )
    with google_prices(market) as address:
        monkeypatch.setenv("GPUPROV_GCP_BILLING_ENDPOINT", address)
        monkeypatch.setenv("GOOGLE_API_KEY", market.key)
        monkeypatch.setenv("NO_GCE_CHECK", "true")
        monkeypatch.setenv("CLOUDSDK_CONFIG", str(tmp_path))
        yield market


@pytest.fixture
def out(capsys: pytest.CaptureFixture[str]) -> Any:
    def call(*arguments: str, code: int = 0) -> tuple[dict[str, Any], str]:
        assert run([*arguments, "--format", "json"]) == code
        captured = capsys.readouterr()
        return json.loads(captured.out), captured.err

    return call


def price(out: Any, name: str, region: str) -> tuple[str, str]:
    found, _ = out("offers", "--instance-type", name, "--region", region, "--capacity", "on-demand")
    return found["offers"][0]["price_usd_per_hour"], found["offers"][0]["price_source"]


@pytest.mark.usefixtures("aws")
def test_a_refresh_is_what_later_commands_read(out: Any, cache: Path) -> None:
    before, _ = out("prices", "show")
    assert (before["origin"], before["fetched"]) == ("bundled", [])
    done, err = out("prices", "refresh", "--cloud", "aws")
    assert done["schema"] == "gpuprov.refresh/1"
    assert done["catalog"]["path"].startswith(str(cache))
    assert {(one["region"], one["kind"]): one["rows"] for one in done["refreshed"]}[EAST, "on_demand"] == 1
    assert [(one["instance_type"], one["reason"]) for one in done["quarantined"]] == [("g5.xlarge", "not_positive")]
    assert "aws us-east-1 (1 of 2): 2 on-demand prices, 1 spot prices, 2 types in zones" in err
    assert "kept out: aws g5.xlarge on_demand in us-east-1 at 0.00 USD/h: a price is more than 0" in err
    assert "refreshed 2 regions of aws" in err
    assert "warning" not in err
    assert price(out, "g6.xlarge", EAST) == ("0.83", "aws_price_list")
    after, err = out("prices", "show", "--cloud", "aws")
    assert after["origin"] == "refreshed"
    assert after["catalog"]["digest"] == done["catalog"]["digest"]
    assert [one["reason"] for one in after["quarantined"]] == ["not_positive"]
    assert "aws on demand fetched for 2 regions: " in err
    assert "days old" not in json.dumps(after)


@pytest.mark.usefixtures("aws")
def test_a_table_goes_to_standard_output_and_progress_does_not(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["prices", "refresh", "--cloud", "aws", "--region", WEST]) == 0
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "aws us-west-2 (1 of 1)" in captured.err
    assert run(["--quiet", "prices", "refresh", "--cloud", "aws", "--region", WEST]) == 0
    assert capsys.readouterr().err == ""


def test_both_clouds_at_once(aws: AwsMarket, google: GcpMarket, out: Any) -> None:
    done, err = out("prices", "refresh")
    assert {one["cloud"] for one in done["refreshed"]} == {"aws", "gcp"}
    assert "machine types by zone left out: no Google credentials" in err
    assert price(out, "g2-standard-4", "us-central1") == ("0.716784", "gcp_billing_skus")


def test_a_failed_region_is_named_and_keeps_its_price(aws: AwsMarket, out: Any) -> None:
    before = price(out, "g6.xlarge", WEST)
    aws.calls.faults.append(Fault("DescribeSpotPriceHistory", "InvalidParameterValue", times=99, region=WEST))
    done, err = out("prices", "refresh", "--cloud", "aws")
    assert [(one["region"], one["error"]["code"]) for one in done["failed"]] == [(WEST, 4)]
    assert "warning: not refreshed, prices and dates are as before: aws us-west-2 (InvalidParameterValue" in err
    assert price(out, "g6.xlarge", WEST) == before
    assert price(out, "g6.xlarge", EAST)[0] == "0.83"
    shown, err = out("prices", "show", "--cloud", "aws")
    assert [one["region"] for one in shown["failed"]] == [WEST]
    assert "aws us-west-2 failed on " in err


def test_nothing_refreshed_is_exit_4_and_changes_nothing(aws: AwsMarket, out: Any, cache: Path) -> None:
    aws.calls.faults.append(Fault("DescribeSpotPriceHistory", "InvalidParameterValue", times=99))
    error, _ = out("prices", "refresh", "--cloud", "aws", code=4)
    assert error["schema"] == "gpuprov.error/1"
    assert "nothing has changed" in error["message"]
    assert not cache.exists()


def test_p6_a_failed_refresh_does_not_make_old_prices_look_fresh(aws: AwsMarket, out: Any) -> None:
    """P6: ages come from the rows, so they go on growing."""
    out("prices", "refresh", "--cloud", "aws")
    before, _ = out("prices", "show")
    aws.calls.faults.append(Fault("DescribeRegions", "InvalidParameterValue", times=99))
    out("prices", "refresh", "--cloud", "aws", code=4)
    after, _ = out("prices", "show")
    assert after == before


@pytest.mark.usefixtures("aws")
def test_missing_credentials_are_exit_3_and_say_the_line(out: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    error, err = out("prices", "refresh", "--cloud", "aws", code=3)
    assert "aws sso login" in error["remedy"]
    assert err.count("error: ") == 1


def test_p13_expired_credentials_are_exit_3(aws: AwsMarket, out: Any) -> None:
    aws.calls.faults.append(Fault("DescribeRegions", "ExpiredToken", times=9, status=403))
    assert out("prices", "refresh", "--cloud", "aws", code=3)[0]["code"] == 3


@pytest.mark.usefixtures("aws")
def test_a_region_that_no_cloud_has_is_exit_2(out: Any, cache: Path) -> None:
    error, _ = out("prices", "refresh", "--cloud", "aws", "--region", "us-east-9", code=2)
    assert "us-east-9" in error["message"]
    assert not cache.exists()


@pytest.mark.usefixtures("aws")
def test_a_pinned_catalog_is_said_to_hide_the_refresh(out: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GPUPROV_CATALOG", "bundled")
    _, err = out("prices", "refresh", "--cloud", "aws")
    assert "warning: GPUPROV_CATALOG is set" in err
    assert out("prices", "show")[0]["origin"] == "bundled"


def test_others_are_shown_for_comparison_only(out: Any, capsys: pytest.CaptureFixture[str]) -> None:
    found, err = out("offers", "--others", "--gpu", "H100", "--limit", "5")
    assert found["schema"] == "gpuprov.listings/1"
    prices = [float(one["price_usd_per_gpu_hour"]) for one in found["listings"]]
    assert len(prices) == 5
    assert prices == sorted(prices)
    assert {one["gpu"] for one in found["listings"]} == {"H100"}
    assert all(one["price_as_of"] for one in found["listings"])
    assert "no plan chooses these" in err
    assert run(["offers", "--others", "--gpu", "H100"]) == 0
    assert "USD/GPU-h" in capsys.readouterr().out


def test_others_have_nothing_to_filter_by(out: Any) -> None:
    error, _ = out("offers", "--others", "--region", "us-east-1", code=2)
    assert "--others" in error["message"]
