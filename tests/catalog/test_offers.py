"""The join of listings and prices."""

from __future__ import annotations

import csv
from collections import Counter
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path

import pytest

from provisioner.catalog.files import BUNDLED
from provisioner.catalog.instance_prices import CAPACITY_TYPES
from provisioner.catalog.offers import Offer
from provisioner.catalog.snapshot import Catalog, load_catalog
from provisioner.errors import UsageError
from provisioner.vocabulary import CapacityType

Edit = Callable[[str, str, str], int]


def rows(name: str) -> list[dict[str, str]]:
    with (BUNDLED / name).open(encoding="utf-8", newline="") as stream:
        return list(csv.DictReader(stream))


def named(catalog: Catalog, name: str, region: str, capacity: str = "on-demand") -> list[Offer]:
    return [
        offer
        for offer in catalog.offers()
        if (offer.instance.name, offer.region, offer.capacity_type) == (name, region, capacity)
    ]


def test_each_offer_is_there_once(catalog: Catalog) -> None:
    keys = Counter(offer.key for offer in catalog.offers())
    keys.update(one.offer.key for one in catalog.excluded_offers())
    assert [key for key, count in keys.items() if count > 1] == []
    assert len(keys) > 7000


def test_no_priced_row_is_dropped_silently(catalog: Catalog) -> None:
    """Each price of an offer's kind is an offer's or an excluded one's."""
    found = {
        (offer.cloud, offer.instance.name, offer.region, offer.price_source, offer.price_as_of)
        for offer in (*catalog.offers(), *(one.offer for one in catalog.excluded_offers()))
    }
    checked = 0
    for row in rows("prices.csv"):
        if row["cloud"] not in ("aws", "gcp") or row["purchase_model"] not in CAPACITY_TYPES:
            continue
        if (
            row["excludes"] == "local_ssd"
            and catalog.instances[row["cloud"], row["instance_type"]].local_ssd_kind == "bundled"
        ):
            continue  # its source names the disk's source too; see the local SSD tests
        checked += 1
        assert (row["cloud"], row["instance_type"], row["region"], row["source"], row["as_of"]) in found, row
    assert checked > 2000


def test_every_listed_gpu_type_is_an_offer_or_excluded_in_each_of_its_zones(catalog: Catalog) -> None:
    places = {(o.cloud, o.zone, o.instance.name) for o in catalog.offers()}
    places |= {(o.cloud, o.zone, o.instance.name) for o, _ in catalog.excluded_offers()}
    for row in rows("offerings.csv"):
        if row["offered"] == "yes":
            assert (row["cloud"], row["zone"], row["instance_type"]) in places, row


def test_c9_a_zone_that_does_not_list_a_type_never_offers_it(catalog: Catalog) -> None:
    """C9: p4d.24xlarge is in four of the six zones of us-east-1."""
    listed = {(r["cloud"], r["zone"], r["instance_type"]) for r in rows("offerings.csv") if r["offered"] == "yes"}
    for offer in catalog.offers(["aws"]):
        assert ("aws", offer.zone, offer.instance.name) in listed, offer.key
    zones = {offer.zone for offer in named(catalog, "p4d.24xlarge", "us-east-1")}
    assert zones == {"use1-az1", "use1-az2", "use1-az4", "use1-az6"}


def test_c11_a_region_without_the_type_has_no_offer_and_the_others_are_named(catalog: Catalog) -> None:
    """C11: no g5 in us-west-1; no H200 in eu-west-3."""
    assert named(catalog, "g5.xlarge", "us-west-1") == []
    assert named(catalog, "p5en.48xlarge", "eu-west-3") == []
    assert {"us-east-1", "us-west-2", "eu-west-1"} <= set(catalog.regions_offering("aws", "g5.xlarge"))
    assert "us-west-1" not in catalog.regions_offering("aws", "g5.xlarge")
    assert "us-west-1" in catalog.regions("aws")
    assert catalog.regions_offering("aws", "no-such-type") == ()
    assert catalog.regions_offering("azure", "g5.xlarge") == catalog.regions("azure") == ()
    assert "asia-east2" in catalog.regions("gcp")


def test_an_on_demand_price_of_a_region_holds_in_each_offered_zone(catalog: Catalog) -> None:
    offers = named(catalog, "g6.xlarge", "us-east-1")
    assert len(offers) > 1
    assert {offer.price_usd_per_hour for offer in offers} == {Decimal("0.8048")}
    assert all(offer.zone and offer.zone.startswith("use1-az") for offer in offers)


def test_an_aws_spot_price_holds_in_its_own_zone(catalog: Catalog) -> None:
    by_zone = {o.zone: o.price_usd_per_hour for o in named(catalog, "p4d.24xlarge", "us-east-1", "spot")}
    assert by_zone["use1-az1"] == Decimal("2.4655")
    assert by_zone["use1-az2"] == Decimal("8.1915")


def test_an_offered_type_without_a_price_has_none_and_never_zero(catalog: Catalog) -> None:
    unpriced = named(catalog, "g6.2xlarge", "us-east-1", "spot")
    assert unpriced
    for offer in unpriced:
        assert (offer.price_usd_per_hour, offer.price_as_of, offer.price_source) == (None, None, None)


def test_a_stale_price_is_not_given_but_its_date_is(catalog: Catalog) -> None:
    """The Capacity Block rates are of December 2024; the blocks can still be had."""
    blocks = named(catalog, "p5e.48xlarge", "us-east-2", "capacity-block")
    assert blocks
    for offer in blocks:
        assert offer.price_usd_per_hour is None
        assert offer.price_as_of == "2024-12-01"
        assert offer.suspect == ("stale",)
    elsewhere = named(catalog, "p5e.48xlarge", "us-west-2", "capacity-block")
    assert {offer.price_as_of for offer in elsewhere} == {None}


def test_spot_prices_of_nine_months_ago_are_not_stale(catalog: Catalog) -> None:
    priced = [o for o in catalog.offers(["aws"]) if o.capacity_type == "spot" and o.price_usd_per_hour is not None]
    assert len(priced) > 400
    assert all("stale" not in offer.suspect for offer in priced)


def test_a_gcp_price_without_a_listing_is_an_offer_in_an_unknown_zone(catalog: Catalog) -> None:
    """G4 has no zone listing: a missing row means not known on GCP, where on AWS it means not offered."""
    (offer,) = named(catalog, "g4-standard-48", "us-central1")
    assert offer.zone is None
    assert offer.key == "gcp/us-central1/*/g4-standard-48/on-demand"
    assert offer.price_usd_per_hour == Decimal("4.49993")


def test_p2_a_bundled_disk_that_the_source_left_out_is_in_the_price(catalog: Catalog) -> None:
    """P2: A3 Mega comes with 6000 GiB of local SSD at 0.08 USD a GiB-month: 0.6575 USD an hour."""
    offers = named(catalog, "a3-megagpu-8g", "us-central1")
    disk = Decimal(6000) * Decimal("0.08") / 730
    for offer in offers:
        assert offer.price_usd_per_hour == (Decimal("92.2143") + disk).quantize(Decimal("0.000001"))
        assert offer.price_source == "gcp_anycloud_2026_05;gcp_cyclenerd_2026_07"
    assert offers


def test_a_spot_machine_pays_the_spot_price_of_its_disks(catalog: Catalog) -> None:
    for offer in named(catalog, "a4-highgpu-8g", "us-central1", "spot"):
        disk = Decimal(12000) * Decimal("0.0428") / 730
        assert offer.price_usd_per_hour == (Decimal("34.2368") + disk).quantize(Decimal("0.000001"))


def test_a_disk_price_of_another_region_is_marked(catalog: Catalog) -> None:
    marked = {offer.region for offer in catalog.offers(["gcp"]) if "local_ssd_price_assumed" in offer.suspect}
    assert marked == {"us-west2", "us-west3"}


def test_a_price_that_includes_the_disks_is_left_alone(catalog: Catalog) -> None:
    prices = {offer.price_usd_per_hour for offer in named(catalog, "a2-ultragpu-1g", "us-central1")}
    assert prices == {Decimal("5.0688")}


def test_an_optional_disk_is_not_added(catalog: Catalog) -> None:
    prices = {offer.price_usd_per_hour for offer in named(catalog, "g2-standard-4", "us-central1")}
    assert prices == {Decimal("0.706832")}


def test_a_fractional_gpu_is_a_fraction(catalog: Catalog) -> None:
    """M19: g4-standard-6 has an eighth of a 96 GB card, 12 GB, and is no 96 GB offer."""
    small = catalog.instances["gcp", "g4-standard-6"]
    assert (small.gpu_count, small.gpu_fraction) == (1, 0.125)
    assert small.gpu_memory_nominal_bytes == 12 * 2**30
    assert small.gpu_memory_usable_bytes is not None
    assert small.gpu_memory_usable_bytes < 12 * 2**30
    assert small.quota_units == 0.125
    for name, fraction in (("g6f.large", 0.125), ("g6f.xlarge", 0.125), ("g6f.2xlarge", 0.25), ("gr6f.4xlarge", 0.5)):
        instance = catalog.instances["aws", name]
        assert (instance.gpu_count, instance.gpu_fraction) == (1, fraction)
        usable = instance.gpu_memory_usable_bytes
        assert usable is not None
        assert usable <= 22888 * 2**20 * fraction, name


def test_l4_and_a10g_are_read_by_usable_memory(catalog: Catalog) -> None:
    """M20: the API reports the same 22,888 MiB for both; the label says 24 GB, a process sees less than either."""
    for name in ("g6.xlarge", "g5.xlarge"):
        instance = catalog.instances["aws", name]
        assert instance.gpu_memory_api_bytes == 22888 * 2**20
        assert instance.gpu_memory_usable_bytes is not None
        assert instance.gpu_memory_usable_bytes < 22888 * 2**20


def test_only_clouds_with_offers_can_be_asked_for(catalog: Catalog) -> None:
    assert {offer.cloud for offer in catalog.offers(["gcp"])} == {"gcp"}
    assert len(catalog.offers(["gcp", "aws"])) == len(catalog.offers())
    with pytest.raises(UsageError, match="azure"):
        catalog.offers(["azure"])


def test_offers_come_in_the_same_order_each_time(catalog: Catalog) -> None:
    again = load_catalog()
    assert [offer.key for offer in again.offers()] == [offer.key for offer in catalog.offers()]
    assert again.offers() == catalog.offers()
    assert again.excluded_offers() == catalog.excluded_offers()
    order = [(o.cloud, o.region, o.instance.name, o.zone or "") for o in catalog.offers()]
    assert order == sorted(order)


def test_the_order_of_rows_in_a_file_does_not_matter(directory: Path, catalog: Catalog) -> None:
    for name in ("offerings.csv", "prices.csv"):
        path = directory / name
        header, *lines = path.read_text(encoding="utf-8").splitlines()
        path.write_text("\n".join([header, *reversed(lines), ""]), encoding="utf-8")
    shuffled = load_catalog(directory)
    assert [offer.key for offer in shuffled.offers()] == [offer.key for offer in catalog.offers()]
    assert shuffled.digest != catalog.digest


def test_a_price_for_all_regions_applies_where_the_type_is_offered(directory: Path, edit: Edit) -> None:
    edit("prices.csv", "aws,g6.xlarge,us-east-1,*,on_demand", "aws,g6.xlarge,*,*,on_demand")
    changed = load_catalog(directory)
    assert {offer.price_usd_per_hour for offer in named(changed, "g6.xlarge", "us-east-1")} == {Decimal("0.8048")}
    assert "*" not in changed.regions("aws")
    assert all(offer.region != "*" for offer in changed.offers())


def test_a_zone_price_comes_before_that_of_its_region(directory: Path) -> None:
    path = directory / "prices.csv"
    row = "aws,g6.xlarge,us-east-1,use1-az4,on_demand,0.75,none,aws_karpenter_2026_07,2026-07-20,day,observed,,\n"
    path.write_text(path.read_text(encoding="utf-8") + row, encoding="utf-8")
    by_zone = {o.zone: o.price_usd_per_hour for o in named(load_catalog(directory), "g6.xlarge", "us-east-1")}
    assert by_zone["use1-az4"] == Decimal("0.75")
    assert {price for zone, price in by_zone.items() if zone != "use1-az4"} == {Decimal("0.8048")}


def test_capacity_types_are_words_of_the_vocabulary(catalog: Catalog) -> None:
    assert all(isinstance(offer.capacity_type, CapacityType) for offer in catalog.offers())
