"""Tiers of disks, traffic and addresses."""

from __future__ import annotations

from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from provisioner.catalog.prices import Price, PriceTier, tiered_cost_usd
from provisioner.catalog.snapshot import Catalog


def tiers(*edges_and_prices: tuple[int, int | None, str]) -> tuple[PriceTier, ...]:
    return tuple(
        PriceTier(
            Decimal(start),
            None if end is None else Decimal(end),
            Price(Decimal(price), "GiB", "r", "s", "2026-01-01", "observed"),
        )
        for start, end, price in edges_and_prices
    )


def test_a_disk_price_in_its_own_region_is_as_published(catalog: Catalog) -> None:
    price = catalog.storage_price("aws", "ebs_gp3", "us-east-1")
    assert price is not None
    assert (price.amount_usd, price.unit, price.region) == (Decimal("0.08"), "GiB-month", "us-east-1")
    assert "price_of_other_region" not in price.suspect
    assert price.as_of == "2024-07-01"


@pytest.mark.parametrize(("cloud", "service"), [("aws", "ebs_gp3"), ("gcp", "pd_balanced")])
def test_a_region_without_a_price_takes_the_reference_region_marked(catalog: Catalog, cloud: str, service: str) -> None:
    home = {"aws": "us-east-1", "gcp": "us-central1"}[cloud]
    own = catalog.storage_price(cloud, service, home)
    other = catalog.storage_price(cloud, service, "nowhere-1")
    assert own is not None
    assert other is not None
    assert other.amount_usd == own.amount_usd
    assert other.region == home
    assert other.confidence == "assumed"
    assert "price_of_other_region" in other.suspect
    assert "price_of_other_region" not in own.suspect


def test_a_known_regional_disk_price_is_its_own(catalog: Catalog) -> None:
    price = catalog.storage_price("gcp", "pd_balanced", "asia-northeast1")
    assert price is not None
    assert price.region == "asia-northeast1"
    assert price.confidence == "observed"


def test_an_unknown_service_has_no_price(catalog: Catalog) -> None:
    assert catalog.storage_price("aws", "floppy", "us-east-1") is None
    assert catalog.storage_price("lambda", "ebs_gp3", "us-east-1") is None
    assert catalog.services.storage_tiers("aws", "floppy", "us-east-1") == ()


def test_gp3_includes_3000_iops(catalog: Catalog) -> None:
    found = catalog.services.performance_tiers("aws", "ebs_gp3", "iops", "us-east-1")
    assert tiered_cost_usd(found, Decimal(3000)) == 0
    assert tiered_cost_usd(found, Decimal(4000)) == Decimal("5.000")
    assert tiered_cost_usd(
        catalog.services.performance_tiers("aws", "ebs_io1", "iops", "us-east-1"), Decimal(100)
    ) == Decimal("6.5")


def test_aws_egress_starts_with_the_free_allowance(catalog: Catalog) -> None:
    """AWS worked example: 10 TB out of us-west-2 is (10,240 - 100) x 0.09."""
    found = catalog.egress_price_tiers("aws", "us-west-2")
    assert found[0].price.amount_usd == 0
    assert tiered_cost_usd(found, Decimal(100)) == 0
    assert tiered_cost_usd(found, Decimal(10240)) == Decimal("912.60")
    assert tiered_cost_usd(found, Decimal(11240)) == Decimal("997.60")


def test_gcp_egress_goes_to_the_world_by_default(catalog: Catalog) -> None:
    found = catalog.egress_price_tiers("gcp", "us-central1")
    assert tiered_cost_usd(found, Decimal(1024)) == Decimal("122.88")
    assert found[-1].to_units is None


def test_egress_beyond_the_last_known_tier_has_no_cost(catalog: Catalog) -> None:
    # us-east-1 lists no price above 150 TiB: unknown, and never the last tier's.
    found = catalog.egress_price_tiers("aws", "us-east-1")
    assert found[-1].to_units == 153600
    assert tiered_cost_usd(found, Decimal(153600)) is not None
    assert tiered_cost_usd(found, Decimal(153601)) is None


def test_egress_of_a_cloud_without_figures_is_unknown(catalog: Catalog) -> None:
    assert catalog.egress_price_tiers("nimbus", "x") == ()
    assert tiered_cost_usd((), Decimal(1)) is None


def test_a_cloud_with_one_egress_price_for_all_regions(catalog: Catalog) -> None:
    (tier,) = catalog.egress_price_tiers("lambda", "us-east-1")
    assert tier.price.region == "*"


def test_public_addresses_have_a_price_an_hour(catalog: Catalog) -> None:
    for cloud in ("aws", "gcp"):
        price = catalog.public_ip_price(cloud)
        assert price is not None
        assert (price.amount_usd, price.unit) == (Decimal("0.005"), "hour")
    assert catalog.public_ip_price("azure") is None


def test_traffic_and_fees(catalog: Catalog) -> None:
    nat = catalog.services.misc_price("aws", "nat_gateway", "us-east-1")
    assert nat is not None
    assert nat.amount_usd == Decimal("0.045")
    within = catalog.services.traffic_tiers("aws", "inter_region", "other region of the same cloud", "us-east-1")
    assert [tier.price.amount_usd for tier in within] == [Decimal("0.02")]


@given(
    st.lists(st.tuples(st.integers(1, 500), st.integers(0, 100)), min_size=1, max_size=5),
    st.integers(0, 4000),
)
def test_tiered_cost_is_the_sum_unit_by_unit(steps: list[tuple[int, int]], units: int) -> None:
    edges: list[tuple[int, int | None, str]] = []
    start = 0
    for width, cents in steps:
        edges.append((start, start + width, str(cents)))
        start += width
    expected = None
    if units <= start:
        expected = sum(
            (Decimal(next(p for s, e, p in edges if e is not None and s <= unit < e)) for unit in range(units)),
            Decimal(0),
        )
    assert tiered_cost_usd(tiers(*edges), Decimal(units)) == expected


def test_tiers_with_a_gap_have_no_cost_beyond_it() -> None:
    gapped = tiers((0, 10, "1"), (20, None, "1"))
    assert tiered_cost_usd(gapped, Decimal(10)) == 10
    assert tiered_cost_usd(gapped, Decimal(25)) is None


def test_commitments_are_for_comparison_and_no_offers(catalog: Catalog) -> None:
    found = catalog.commitments("gcp", "g2-standard-4", "us-central1")
    assert {model: price.amount_usd for model, price in found.items()} == {
        "commit_1y": Decimal("0.445304"),
        "commit_3y": Decimal("0.318075"),
    }
    assert catalog.commitments("aws", "g6.xlarge", "us-east-1") == {}
    assert {str(offer.capacity_type) for offer in catalog.offers()} == {
        "on-demand",
        "spot",
        "capacity-block",
        "flex-start",
    }
