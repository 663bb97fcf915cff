"""What is kept out, and why."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from pathlib import Path

import pytest

from provisioner.catalog.codes import OWN_MEANINGS
from provisioner.catalog.exclusions import EXCLUDING_PRICE_CODES
from provisioner.catalog.snapshot import Catalog, load_catalog

Edit = Callable[[str, str, str], int]


def codes_of(catalog: Catalog, cloud: str, name: str, capacity: str | None = None) -> set[tuple[str, ...]]:
    return {
        codes
        for offer, codes in catalog.excluded_offers([cloud])
        if offer.instance.name == name and capacity in (None, offer.capacity_type)
    }


@pytest.mark.parametrize(
    ("cloud", "name", "capacity", "code"),
    [
        ("aws", "p3.2xlarge", "on-demand", "status_not_listed"),
        ("aws", "p3.2xlarge", "spot", "not_offered_2026_10"),
        ("aws", "inf2.xlarge", "on-demand", "not_a_cuda_or_rocm_gpu"),
        ("aws", "trn1.32xlarge", "capacity-block", "not_a_cuda_or_rocm_gpu"),
        ("aws", "dl1.24xlarge", "on-demand", "not_a_cuda_or_rocm_gpu"),
        ("gcp", "n1-standard-4", "on-demand", "cpu_host"),
        ("gcp", "a3-edgegpu-8g", "on-demand", "status_restricted"),
        ("gcp", "a3-edgegpu-8g", "spot", "restricted_type"),
        ("gcp", "a3-highgpu-1g", "on-demand", "not_purchasable_on_demand"),
        ("gcp", "a3-ultragpu-8g", "on-demand", "possible_dws_sku"),
        ("gcp", "a4-highgpu-8g", "on-demand", "on_demand_not_available"),
        ("aws", "p5e.48xlarge", "on-demand", "capacity_block_only"),
        ("aws", "g4dn.xlarge", "on-demand", "not_offered_here"),
    ],
)
def test_each_rule_keeps_its_rows_out_with_its_code(
    catalog: Catalog, cloud: str, name: str, capacity: str, code: str
) -> None:
    found = codes_of(catalog, cloud, name, capacity)
    assert any(code in codes for codes in found), found


@pytest.mark.parametrize(
    ("cloud", "name"),
    [("aws", "p3.2xlarge"), ("aws", "inf2.xlarge"), ("gcp", "n1-standard-4"), ("gcp", "a3-edgegpu-8g-nolssd")],
)
def test_a_type_that_is_out_as_a_whole_makes_no_offer(catalog: Catalog, cloud: str, name: str) -> None:
    assert catalog.regions_offering(cloud, name) == ()
    assert codes_of(catalog, cloud, name)


def test_a_type_that_nothing_lists_or_prices_says_why(catalog: Catalog) -> None:
    assert catalog.type_codes("aws", "p6e-gb200.36xlarge") == ("status_reservation_only",)
    assert catalog.type_codes("gcp", "a4x-highgpu-4g") == ("status_reservation_only",)
    assert catalog.type_codes("aws", "g6.xlarge") == ()
    seen = {(o.cloud, o.instance.name) for o in catalog.offers()}
    seen |= {(o.cloud, o.instance.name) for o, _ in catalog.excluded_offers()}
    for cloud, name in catalog.instances:
        if cloud in ("aws", "gcp") and (cloud, name) not in seen:
            assert catalog.type_codes(cloud, name), name


def test_a_type_without_on_demand_is_still_sold_otherwise(catalog: Catalog) -> None:
    capacities = {str(o.capacity_type) for o in catalog.offers(["gcp"]) if o.instance.name == "a3-highgpu-1g"}
    assert capacities == {"spot", "flex-start"}


def test_flex_start_is_an_offer_whose_price_only_a_refresh_knows(catalog: Catalog) -> None:
    flex = [o for o in catalog.offers() if str(o.capacity_type) == "flex-start"]
    assert {o.cloud for o in flex} == {"gcp"}
    assert {o.price_usd_per_hour for o in flex} == {None}
    assert all(o.instance.flex_start_available == "yes" for o in flex)


def test_govcloud_is_priced_but_no_listing_offers_it(catalog: Catalog) -> None:
    regions = {offer.region for offer, codes in catalog.excluded_offers(["aws"]) if codes == ("not_offered_here",)}
    assert regions == {"us-gov-east-1", "us-gov-west-1"}
    assert not regions & {offer.region for offer in catalog.offers(["aws"])}


def test_codes_that_call_for_care_stay_on_the_offer(catalog: Catalog) -> None:
    seen = {code for offer in catalog.offers() for code in offer.suspect}
    assert {"region_outlier", "spot_equals_on_demand", "spot_at_floor_10pct", "no_on_demand_reference"} <= seen
    assert not seen & EXCLUDING_PRICE_CODES


def test_every_code_has_a_meaning(catalog: Catalog) -> None:
    codes = {code for offer in catalog.offers() for code in offer.suspect}
    codes |= {code for _, found in catalog.excluded_offers() for code in found}
    for code in codes | set(OWN_MEANINGS):
        assert catalog.explain_code(code) != code


def test_an_excluded_offer_shows_its_stale_price(catalog: Catalog) -> None:
    prices = {o.price_usd_per_hour for o, _ in catalog.excluded_offers(["aws"]) if "stale" in o.suspect}
    assert prices == {Decimal("15.49")}


@pytest.mark.parametrize(
    ("old", "new", "key"),
    [
        (
            "aws,p6-b200.48xlarge,us-east-1,*,on_demand,113.9328,",
            "aws,p6-b200.48xlarge,us-east-1,*,on_demand,0.08,",
            "aws/us-east-1/use1-az6/p6-b200.48xlarge/on-demand",
        ),
        (
            "gcp,a3-highgpu-8g,us-central1,*,spot,50.6095,",
            "gcp,a3-highgpu-8g,us-central1,*,spot,0.01,",
            "gcp/us-central1/us-central1-a/a3-highgpu-8g/spot",
        ),
        (
            "aws,g6.xlarge,us-east-1,*,on_demand,0.8048,",
            "aws,g6.xlarge,us-east-1,*,on_demand,80.48,",
            "aws/us-east-1/use1-az1/g6.xlarge/on-demand",
        ),
    ],
)
def test_a_price_that_cannot_be_true_is_kept_out(directory: Path, edit: Edit, old: str, new: str, key: str) -> None:
    """P1: 0.01 USD for a B200, and a slipped decimal point."""
    edit("prices.csv", old, new)
    changed = load_catalog(directory)
    by_key = {one.offer.key: one.codes for one in changed.excluded_offers()}
    region, instance = key.split("/")[1], key.split("/")[3]
    out = [k for k, codes in by_key.items() if codes == ("price_outlier",)]
    assert out
    assert all(k.split("/")[1] == region and k.split("/")[3] == instance for k in out)
    assert not {offer.key for offer in changed.offers()} & set(out)


def test_a_low_spot_price_within_published_discounts_is_believed(catalog: Catalog) -> None:
    """AWS's floor of 10 % of on-demand in eu-south-2 is far below the median, and true."""
    low = [o for o in catalog.offers(["aws"]) if o.instance.name == "g6.xlarge" and o.region == "eu-south-2"]
    assert any(
        o.price_usd_per_hour is not None and o.price_usd_per_hour < 1 / 10 for o in low if o.capacity_type == "spot"
    )
