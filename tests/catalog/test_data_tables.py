"""The tables of the bundled catalog against each other and against sense: joins, order, staleness, fractions, tiers, contracts."""

from __future__ import annotations

import csv
from collections import defaultdict
from datetime import date
from decimal import Decimal
from itertools import pairwise
from statistics import median

import pytest

from provisioner.catalog.files import BUNDLED
from provisioner.catalog.instance_prices import CLOUDS
from provisioner.catalog.snapshot import Catalog
from provisioner.planner.request import accelerator_for
from provisioner.units import GIB
from provisioner.vocabulary import CapacityType

STALE_AFTER_DAYS = 365
READ_ON = date(2026, 11, 30)
"""The day as of which suspect_reasons.csv counts staleness."""
PRICED = (
    "prices.csv",
    "network_prices.csv",
    "storage_capacity_prices.csv",
    "storage_performance_prices.csv",
    "misc_prices.csv",
    "prices_attached_gpu.csv",
)

Row = dict[str, str]


def read(name: str) -> list[Row]:
    with (BUNDLED / name).open(encoding="utf-8", newline="") as stream:
        return list(csv.DictReader(stream))


@pytest.mark.parametrize("name", PRICED)
def test_a_price_is_called_stale_exactly_when_it_is_older_than_a_year(name: str) -> None:
    for row in read(name):
        if row["as_of_precision"] == "year":
            continue  # its day is unknown
        is_old = (READ_ON - date.fromisoformat(row["as_of"])).days > STALE_AFTER_DAYS
        assert is_old == ("stale" in row["suspect_reason"].split(";")), row


@pytest.mark.parametrize("name", PRICED)
def test_every_price_says_its_unit_by_its_column_and_its_day(name: str) -> None:
    rows = read(name)
    columns = [column for column in rows[0] if column.startswith("price_usd")]
    assert columns
    assert all("per_" in column for column in columns) or "per_unit" in rows[0]
    assert all(date.fromisoformat(row["as_of"]) <= READ_ON for row in rows)


@pytest.mark.parametrize(
    ("name", "key", "start", "end", "price"),
    [
        ("storage_capacity_prices.csv", ("cloud", "service", "region"), "tier_from_gib", "tier_to_gib", "price_usd_per_gib_month"),
        ("network_prices.csv", ("cloud", "traffic", "region", "destination"), "tier_from_gib", "tier_to_gib", "price_usd_per_gib"),
        ("storage_performance_prices.csv", ("cloud", "service", "metric", "region"), "tier_from", "tier_to", "price_usd_per_unit_month"),
    ],
)  # fmt: skip
def test_tiers_follow_each_other_and_volume_is_never_dearer(
    name: str, key: tuple[str, ...], start: str, end: str, price: str
) -> None:
    groups: dict[tuple[str, ...], list[Row]] = defaultdict(list)
    for row in read(name):
        groups[tuple(row[column] for column in key)].append(row)
    for where, rows in groups.items():
        rows.sort(key=lambda row: Decimal(row[start]))
        for low, high in pairwise(rows):
            assert low[end], (where, "an open tier is the last")
            assert Decimal(low[end]) == Decimal(high[start]), where
            is_allowance = Decimal(low[price]) == 0
            flagged = is_allowance or "tier_price_anomaly" in low["suspect_reason"] + high["suspect_reason"]
            assert Decimal(high[price]) <= Decimal(low[price]) or flagged, where


def test_longer_contracts_are_cheaper_and_all_are_below_on_demand(catalog: Catalog) -> None:
    compared = 0
    for (name, region), places in catalog.instance_prices("gcp").items():
        rates = catalog.commitments("gcp", name, region)
        on_demand = places.get(("*", CapacityType.ON_DEMAND))
        if {"commit_1y", "commit_3y"} <= set(rates):
            compared += 1
            assert rates["commit_3y"].amount_usd < rates["commit_1y"].amount_usd, (name, region)
        if on_demand is not None and rates:
            assert max(price.amount_usd for price in rates.values()) < on_demand.amount_usd, (name, region)
    assert compared > 300


def test_p1_no_price_per_gpu_is_five_times_off_the_median_of_its_gpu(catalog: Catalog) -> None:
    """P1: on demand, of both clouds; a fraction counts as its share, and a large host may double the price per GPU."""
    by_gpu: dict[str, list[tuple[Decimal, str, str]]] = defaultdict(list)
    for cloud in CLOUDS:
        for (name, region), places in catalog.instance_prices(cloud).items():
            instance = catalog.instances[cloud, name]
            price = places.get(("*", CapacityType.ON_DEMAND))
            if instance.gpu_model is None or price is None or "not_purchasable_on_demand" in price.suspect:
                continue
            gpus = Decimal(instance.gpu_count) * Decimal(str(instance.gpu_fraction))
            by_gpu[instance.gpu_model].append((price.amount_usd / gpus, name, region))
    assert len(by_gpu) > 20
    for model, found in by_gpu.items():
        middle = median(usd for usd, _, _ in found)
        for usd, name, region in found:
            # The largest hosts of a family with one GPU sell vCPUs, not GPUs: g4dn.16xlarge costs 8 times g4dn.xlarge.
            assert middle / 5 <= usd <= middle * 8, (model, name, region)


def test_every_disagreement_of_sources_says_both_figures() -> None:
    flagged = [
        row
        for path in sorted(BUNDLED.glob("*.csv"))
        if path.name not in ("schema.csv", "suspect_reasons.csv")
        for row in read(path.name)
        if "sources_disagree" in row.get("suspect_reason", "")
    ]
    assert flagged
    for row in flagged:
        assert any(character.isdigit() for character in row["notes"]), row


def test_machines_join_their_disks_and_networks(catalog: Catalog) -> None:
    for (cloud, name), instance in catalog.instances.items():
        if cloud not in CLOUDS:
            continue
        assert instance.ram_bytes >= GIB, name
        assert instance.vcpu >= 1, name
        if instance.local_ssd_kind == "bundled":
            assert instance.local_ssd_bytes, name
        if instance.gpu_count > 1 and instance.kind == "gpu":
            assert instance.nvlink_bytes_per_s_per_gpu is not None, name
        if instance.efa_interfaces and instance.status == "current":
            assert instance.network_gbit_per_s, name


def test_every_way_of_buying_has_its_billing_rule(catalog: Catalog) -> None:
    sold = {(offer.cloud, offer.capacity_type) for offer in catalog.offers()}
    assert len(sold) >= 6
    for cloud, capacity in sold:
        rule = catalog.billing_rule(cloud, capacity)
        assert rule is not None, (cloud, capacity)
        assert rule.granularity_s, (cloud, capacity)
        assert rule.minimum_charge_s, (cloud, capacity)


# Fractions


def test_fractions_are_those_of_the_table_of_partitions(catalog: Catalog) -> None:
    listed = {
        (cloud, name): float(row["compute_share"])
        for row in read("gpu_partitions.csv")
        if row["kind"] == "cloud_vgpu" and row["offered_as"] == "instance type"
        for cloud, _, name in [row["profile"].partition(":")]
        if cloud in CLOUDS
    }
    assert len(listed) > 6
    for key, share in listed.items():
        assert catalog.instances[key].gpu_fraction == share, key
        assert catalog.instances[key].gpu_count == 1, key


def test_mig_profiles_fit_on_their_gpu(catalog: Catalog) -> None:
    """Partitions that a user makes are no offers, and never add up to more than the card."""
    rows = [row for row in read("gpu_partitions.csv") if row["kind"] == "mig"]
    assert len(rows) > 50
    for row in rows:
        gpu, number = catalog.gpus[row["gpu_model"]], int(row["max_instances"])
        assert float(row["compute_share"]) * number <= 1.01, row
        assert float(row["memory_gib"]) * number * GIB <= gpu.memory_nominal_bytes * 1.05, row  # labels are rounded up


def test_a_fraction_is_sized_on_its_share_of_memory_bandwidth_and_rates(catalog: Catalog) -> None:
    fractional = [
        one
        for (cloud, _), one in catalog.instances.items()
        if cloud in CLOUDS and one.kind == "gpu" and one.gpu_fraction < 1
    ]
    assert {one.gpu_fraction for one in fractional} == {0.125, 0.25, 0.5}
    for instance in fractional:
        gpu = catalog.gpus[instance.gpu_model or ""]
        sold = accelerator_for(gpu, instance)
        share = instance.gpu_fraction
        assert gpu.memory_usable_bytes is not None
        assert sold.memory_usable_bytes == pytest.approx(gpu.memory_usable_bytes * share, rel=0.01)
        assert sold.memory_bandwidth_bytes_per_s == pytest.approx((gpu.memory_bandwidth_bytes_per_s or 0) * share)
        assert sold.flop_per_s["bf16"] == pytest.approx(gpu.flop_per_s["bf16"] * share)
        assert sold.nvlink_bytes_per_s == 0


def test_larger_fractions_cost_more(catalog: Catalog) -> None:
    for cloud, names in (
        ("aws", ("g6f.large", "g6f.2xlarge", "g6f.4xlarge")),
        ("gcp", ("g4-standard-6", "g4-standard-12", "g4-standard-24", "g4-standard-48")),
    ):
        region = {"aws": "us-east-1", "gcp": "us-central1"}[cloud]
        prices = [
            catalog.instance_prices(cloud)[name, region]["*", CapacityType.ON_DEMAND].amount_usd for name in names
        ]
        assert prices == sorted(prices)
        assert len(set(prices)) == len(names)


# Other providers


def test_other_providers_are_compared_and_never_offered(catalog: Catalog) -> None:
    listings = catalog.listings()
    assert len(listings) > 300
    assert {one.provider for one in listings}.isdisjoint({"aws", "gcp"})
    assert all(one.price_usd_per_gpu_hour > 0 and one.gpu_model in catalog.gpus for one in listings)
    assert {offer.cloud for offer in catalog.offers()} == set(CLOUDS)
