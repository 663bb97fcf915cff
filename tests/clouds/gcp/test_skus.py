"""Google's SKU descriptions: what each prices, in which market, and what is nobody's price."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest

from provisioner.clouds.gcp.skus import market_of, part_of, read_rates
from tests.fakes.pricing import sku

PARTS = {
    "N1 Predefined Instance Core running in Americas": ("core", "n1"),
    "N1 Predefined Instance Ram running in Americas": ("ram", "n1"),
    "A2 Instance Core running in Americas": ("core", "a2"),
    "Spot Preemptible A3 Instance Ram running in Iowa": ("ram", "a3"),
    "A3Plus Instance Core running in Columbus": ("core", "a3plus"),
    "A3Ultra Instance Ram running in Iowa": ("ram", "a3ultra"),
    "G2 Instance Core running in Las Vegas": ("core", "g2"),
    "DWS Defined Duration A2 Core running in Americas": ("core", "a2"),
    "Nvidia L4 GPU running in Virginia": ("gpu", "nvidia-l4"),
    "Nvidia Tesla T4 GPU attached to Spot Preemptible VMs running in Warsaw": ("gpu", "nvidia-tesla-t4"),
    "Nvidia Tesla A100 GPU running in Americas": ("gpu", "nvidia-tesla-a100"),
    "Nvidia Tesla A100 80GB GPU running in Americas": ("gpu", "nvidia-a100-80gb"),
    "Nvidia Tesla A100 80GB GPU attached to DWS Defined Duration VMs running in Americas": ("gpu", "nvidia-a100-80gb"),
    "Nvidia H100 80GB GPU running in Americas": ("gpu", "nvidia-h100-80gb"),
    "Nvidia H100 80GB Mega GPU running in Frankfurt": ("gpu", "nvidia-h100-mega-80gb"),
    "Nvidia H100 80GB Plus GPU running in Tokyo": ("gpu", "nvidia-h100-mega-80gb"),
    "H200 141GB GPU running in Belgium": ("gpu", "nvidia-h200-141gb"),
    "A4 Nvidia B200 (1 gpu slice) running in Netherlands": ("slice", "nvidia-b200"),
    "Spot Preemptible A4 Nvidia B200 (1 gpu slice) running in Americas": ("slice", "nvidia-b200"),
    "RTX 6000 96GB running in Oregon": ("gpu", "nvidia-rtx-pro-6000"),
    "Commitment v1: A2 Cpu in Americas for 1 Year": ("core", "a2"),
    "Commitment v1: G2 Ram in Berlin for 1 Year": ("ram", "g2"),
    "Commitment v1: Nvidia Tesla A100 GPU running in Americas for 3 Years": ("gpu", "nvidia-tesla-a100"),
    "Commitment v1: A4 Nvidia B200 (1 gpu slice) in Iowa for 1 Year": ("slice", "nvidia-b200"),
    "Commitment v1: Cpu in Americas for 1 Year": None,
    "SSD backed Local Storage": ("local_ssd", ""),
    "SSD backed Local Storage in Tokyo": ("local_ssd", ""),
    "SSD backed Local Storage attached to Spot Preemptible VMs in Iowa": ("local_ssd", ""),
    "Nvidia Tesla T4 Virtual Workstation GPU running in Americas": None,
    "Nvidia L40 GPU running in Netherlands": None,
    "Network Egress via Carrier Peering": None,
}


@pytest.mark.parametrize(("description", "part"), PARTS.items())
def test_parts(description: str, part: tuple[str, str] | None) -> None:
    assert part_of(description) == part


MARKETS = [
    ("A2 Instance Core running in Americas", "OnDemand", "on_demand"),
    ("Spot Preemptible A2 Instance Core running in Americas", "Preemptible", "spot"),
    ("Spot Preemptible A4 Nvidia B200 (1 gpu slice) running in Americas", "OnDemand", "spot"),
    ("Nvidia L4 GPU attached to Spot Preemptible VMs running in Iowa", "Preemptible", "spot"),
    ("DWS Defined Duration A3 Core running in Americas", "OnDemand", "flex_start"),
    ("Nvidia H100 80GB GPU attached to DWS Defined Duration VMs running in Americas", "OnDemand", "flex_start"),
    ("DWS Calendar Mode A3 Core running in Americas", "OnDemand", "calendar"),
    ("Reserved Nvidia Tesla A100 80GB GPU in Virginia", "OnDemand", None),
    ("Commitment v1: A2 Cpu in Americas for 1 Year", "Commit1Yr", "commit_1y"),
    ("Commitment v1: G2 Ram in Berlin for 3 Years", "Commit3Yr", "commit_3y"),
    ("Commitment v1: A3 Cpu in Americas for 3 Year", "Commit3Yr", "commit_3y"),
    ("Commitment v1: Nvidia L4 GPU in Frankfurt for 1 Year", "Commit1Yr", "commit_1y"),
    ("Commitment v1: A2 Cpu in Americas for 1 Year", "Commit3Yr", None),
    ("Commitment v1: A2 Cpu in Americas for 1 Year", "OnDemand", None),
    ("Commitment v1: Local SSD in Americas for 1 Year", "Commit1Yr", None),
    ("Commitment v1: G2 Custom Cpu in Americas for 1 Year", "Commit1Yr", None),
    ("Commitment - dollar based v1: A3 in us-central1 for 1 year", "Commit1Yr", None),
    ("G2 Custom Instance Core running in Iowa", "OnDemand", None),
    ("N1 Predefined Sole Tenancy Instance Core running in Americas", "OnDemand", None),
    ("Sole Tenancy Premium for N1 Instance Core running in Americas", "OnDemand", None),
]


@pytest.mark.parametrize(("description", "usage", "market"), MARKETS)
def test_markets(description: str, usage: str, market: str | None) -> None:
    assert market_of(sku(description, "1", "us-central1", usage=usage)) == market


def amount(skus: list[dict[str, Any]], market: str = "on_demand", gpu: str = "nvidia-l4") -> Decimal | None:
    rate = read_rates(skus).of("us-central1", market, ("gpu", gpu))
    return rate.amount_usd if rate else None


def test_units_and_billionths_make_a_rate_to_the_last_digit() -> None:
    assert amount([sku("Nvidia L4 GPU running in Iowa", "0.560040", "us-central1", "us-east1")]) == Decimal("0.56004")


def test_zero_units_may_be_left_out_and_int64_is_text() -> None:
    found = sku("Nvidia L4 GPU running in Iowa", "0.5", "us-central1")
    price = found["pricingInfo"][0]["pricingExpression"]["tieredRates"][0]["unitPrice"]
    del price["units"]
    assert amount([found]) == Decimal("0.5")
    price.update(units="3")
    assert amount([found]) == Decimal("3.5")


def test_another_unit_or_currency_is_no_rate() -> None:
    assert amount([sku("Nvidia L4 GPU running in Iowa", "0.5", "us-central1", unit="mo")]) is None
    found = sku("Nvidia L4 GPU running in Iowa", "0.5", "us-central1")
    found["pricingInfo"][0]["pricingExpression"]["tieredRates"][0]["unitPrice"]["currencyCode"] = "EUR"
    assert amount([found]) is None


def test_markets_of_one_part_are_kept_apart_and_the_highest_of_equals_counts() -> None:
    skus = [
        sku("Nvidia L4 GPU attached to DWS Defined Duration VMs running in Iowa", "0.3", "us-central1"),
        sku("Nvidia L4 GPU running in Iowa", "0.55", "us-central1"),
        sku("Nvidia L4 GPU running in Iowa", "0.56", "us-central1"),
        sku(
            "Nvidia L4 GPU attached to Spot Preemptible VMs running in Iowa", "0.2", "us-central1", usage="Preemptible"
        ),
        sku("Reserved Nvidia L4 GPU in Iowa", "0", "us-central1"),
    ]
    for order in (skus, skus[::-1]):
        assert [amount(order, market) for market in ("on_demand", "spot", "flex_start", "calendar")] == [
            Decimal("0.56"),
            Decimal("0.2"),
            Decimal("0.3"),
            None,
        ]


def test_a_sku_without_prices_is_passed_over_and_one_of_another_form_is_not() -> None:
    empty = sku("Nvidia L4 GPU running in Iowa", "1", "us-central1") | {"pricingInfo": []}
    assert amount([empty]) is None
    broken = sku("Nvidia L4 GPU running in Iowa", "1", "us-central1")
    del broken["category"]
    with pytest.raises(KeyError):
        read_rates([broken])
