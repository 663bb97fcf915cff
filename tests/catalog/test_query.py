"""Filters of the offers command."""

from __future__ import annotations

from datetime import date
from decimal import Decimal

import pytest

from provisioner.catalog.freshness import age_days, describe_age, describe_offer_ages
from provisioner.catalog.query import make_query, select, select_excluded
from provisioner.catalog.snapshot import Catalog
from provisioner.errors import UsageError


def test_no_filter_shows_everything_cheapest_first_and_unknown_last(catalog: Catalog) -> None:
    found = select(catalog.offers(), make_query(catalog))
    assert len(found) == len(catalog.offers())
    prices = [offer.price_usd_per_hour for offer in found]
    known = [price for price in prices if price is not None]
    assert known == sorted(known)
    assert prices[: len(known)] == known


def test_filters_narrow_together(catalog: Catalog) -> None:
    query = make_query(
        catalog,
        gpus=["L4", "A10G"],
        clouds=["aws"],
        regions=["us-east-1", "us-west-2"],
        capacities=["on-demand"],
        max_price_usd_per_hour=Decimal(1),
    )
    found = select(catalog.offers(), query)
    assert {offer.instance.name for offer in found} == {
        "g6f.large",
        "g6f.xlarge",
        "g6f.2xlarge",
        "g6f.4xlarge",
        "g6.xlarge",
        "g6.2xlarge",
    }
    assert {offer.region for offer in found} == {"us-east-1", "us-west-2"}
    assert all(offer.price_usd_per_hour is not None and offer.price_usd_per_hour <= 1 for offer in found)


def test_reserved_means_all_that_is_reserved_in_some_way(catalog: Catalog) -> None:
    found = select(catalog.offers(), make_query(catalog, capacities=["reserved"], clouds=["aws"]))
    assert {str(offer.capacity_type) for offer in found} == {"capacity-block"}


def test_excluded_offers_are_filtered_in_the_same_way(catalog: Catalog) -> None:
    found = select_excluded(catalog.excluded_offers(), make_query(catalog, instance_types=["p5e.48xlarge"]))
    assert found
    assert {one.codes for one in found} == {("capacity_block_only",)}


@pytest.mark.parametrize(
    ("kind", "name", "nearest"),
    [("regions", "us-esat-1", "us-east-1"), ("instance_types", "g6.xlrge", "g6.xlarge"), ("gpus", "L44", "L4")],
)
def test_an_unknown_name_is_refused_with_the_nearest(catalog: Catalog, kind: str, name: str, nearest: str) -> None:
    with pytest.raises(UsageError, match=f"unknown .*nearest: .*{nearest}"):
        make_query(catalog, **{kind: [name]})  # type: ignore[arg-type]


def test_a_region_of_another_cloud_is_unknown(catalog: Catalog) -> None:
    with pytest.raises(UsageError, match="unknown region 'us-east-1'"):
        make_query(catalog, clouds=["gcp"], regions=["us-east-1"])


def test_a_name_like_nothing_has_no_nearest(catalog: Catalog) -> None:
    with pytest.raises(UsageError, match="gpuprov offers"):
        make_query(catalog, regions=["@@@@"])


def test_ages_count_days(catalog: Catalog) -> None:
    assert age_days("2026-08-03", date(2026, 8, 3)) == 0
    assert describe_age("2026-08-03", date(2026, 8, 4)) == "2026-08-03 (1 day old)"
    offers = [o for o in catalog.offers(["aws"]) if o.instance.name == "g6.xlarge" and o.region == "us-east-1"]
    assert describe_offer_ages(offers, date(2026, 11, 30)) == [
        "aws on-demand prices: 2026-07-20 (133 days old)",
        "aws spot prices: 2026-02-01 (302 days old)",
    ]


def test_price_sources_count_all_rows(catalog: Catalog) -> None:
    found = catalog.price_sources("aws")
    spot = [one for one in found if one.kind == "spot"]
    assert [(one.source, one.as_of, one.rows) for one in spot] == [("aws_skypilot_2026_02", "2026-02-01", 573)]
    assert spot[0].title.startswith("SkyPilot catalog")
    assert {one.cloud for one in found} == {"aws"}
    assert {"gcp", "azure", "runpod"} <= {one.cloud for one in catalog.price_sources()}
