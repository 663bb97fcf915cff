"""A refresh of what is bought ahead: blocks with their start, flex-start, reservations, contracts; and answers not believed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path

import pytest

from provisioner.catalog.blocks import block_note
from provisioner.catalog.fetched import (
    CALENDAR,
    CAPACITY_BLOCK,
    COMMIT_1Y,
    COMMIT_3Y,
    DISKS,
    FLEX_START,
    ON_DEMAND,
    DiskQuote,
    PriceQuote,
    RegionFacts,
)
from provisioner.catalog.offers import Lot
from provisioner.catalog.refresh import Refreshed, refresh
from provisioner.catalog.snapshot import Catalog, load_catalog
from provisioner.planner.decide import make_plan
from provisioner.vocabulary import CapacityType
from provisioner.workload.spec import Workload
from tests.fakes.fetchers import SOURCE, MemoryFetcher, facts

NOW = datetime(2026, 12, 5, 9, 30, tzinfo=UTC)
EAST, CENTRAL = "us-east-1", "us-central1"
START = "2026-12-07T11:30:00Z"


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("GPUPROV_CATALOG", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def with_prices(of: RegionFacts, prices: Mapping[str, Sequence[PriceQuote]]) -> RegionFacts:
    merged = {**of.prices, **{model: tuple(quotes) for model, quotes in prices.items()}}
    return replace(of, prices=merged, sources={**of.sources, **dict.fromkeys(prices, SOURCE.source)})


def run(of: RegionFacts, cloud: str = "aws") -> Refreshed:
    return refresh([MemoryFetcher({of.region: of}, cloud)], NOW, lambda _: None, workers=1)


def lots(catalog: Catalog, cloud: str, name: str, region: str, capacity: CapacityType) -> list[Lot]:
    found = catalog.type_market(cloud, name).lots
    return [lot for lot in found if (lot.region, lot.capacity_type) == (region, capacity)]


def pretrain(**placement: object) -> Workload:
    return Workload.from_document(
        {
            "version": 1,
            "name": "case",
            "task": "finetune",
            "model": {"id": "meta-llama/Llama-3.1-8B-Instruct"},
            "training": {"method": "full", "sequence_tokens": 4096, "duration": "40h"},
            "placement": {"capacity": "reserved", **placement},
        }
    )


def test_a_block_has_a_price_a_zone_and_a_start() -> None:
    """The bundled price is two years old and so unknown; an offer of today replaces it, and a plan states the fee."""
    pinned = pretrain(instance_types=["p5.48xlarge"], regions=[EAST])
    before = make_plan(pinned, load_catalog(Path("bundled")))
    assert before.choice is not None
    assert (before.choice.capacity_type, before.choice.price_usd_per_hour) == ("capacity-block", None)
    assert before.cost is not None
    assert before.cost.commitment is not None
    assert (before.cost.commitment.days, before.cost.commitment.upfront_usd) == (2, None)

    block = PriceQuote("p5.48xlarge", "use1-az2", "31.464", notes=block_note(START))
    listed = [("use1-az2", "p5.48xlarge"), ("use1-az4", "p5.48xlarge")]
    run(with_prices(facts(EAST, {"p5.48xlarge": "55.04"}, offerings=listed), {CAPACITY_BLOCK: [block]}))
    catalog = load_catalog()
    known = {
        lot.zones: lot.price_usd_per_hour
        for lot in lots(catalog, "aws", "p5.48xlarge", EAST, CapacityType.CAPACITY_BLOCK)
    }
    assert known == {("use1-az2",): Decimal("31.464"), ("use1-az4",): None}
    after = make_plan(pinned, catalog)
    assert after.cost is not None
    assert after.cost.commitment is not None
    assert after.cost.commitment.start == START
    assert after.cost.commitment.upfront_usd == 48 * Decimal("31.464")
    assert after.choice is not None
    assert (after.choice.zone, after.choice.price_as_of) == ("use1-az2", "2026-12-05")


def test_a_block_may_cost_more_than_on_demand() -> None:
    """It buys that the machine is there; spot and contracts at such a price are kept out."""
    block = PriceQuote("p5.48xlarge", "use1-az2", "60.0", notes=block_note(START))
    contract = PriceQuote("p5.48xlarge", "*", "60.0")
    of = facts(EAST, {"p5.48xlarge": "55.04"}, offerings=[("use1-az2", "p5.48xlarge")])
    refreshed = run(with_prices(of, {CAPACITY_BLOCK: [block], COMMIT_1Y: [contract]}))
    assert [(one.purchase_model, one.reason) for one in refreshed.quarantined] == [
        ("commit_1y", "spot_above_on_demand")
    ]
    assert lots(load_catalog(), "aws", "p5.48xlarge", EAST, CapacityType.CAPACITY_BLOCK)[0].price_usd_per_hour == 60


def test_contracts_of_aws_stand_beside_on_demand() -> None:
    contracts = {COMMIT_1Y: [PriceQuote("g6.xlarge", "*", "0.507")], COMMIT_3Y: [PriceQuote("g6.xlarge", "*", "0.32")]}
    run(with_prices(facts(EAST, {"g6.xlarge": "0.8048"}), contracts))
    known = load_catalog().commitments("aws", "g6.xlarge", EAST)
    assert {name: price.amount_usd for name, price in known.items()} == {
        "commit_1y": Decimal("0.507"),
        "commit_3y": Decimal("0.32"),
    }
    assert {price.as_of for price in known.values()} == {"2026-12-05"}


def test_flex_start_and_reservations_are_offers_of_their_own() -> None:
    prices = {
        ON_DEMAND: [PriceQuote("a3-highgpu-8g", "*", "88.49")],
        FLEX_START: [PriceQuote("a3-highgpu-8g", "*", "41.5")],
        CALENDAR: [PriceQuote("a3-highgpu-8g", "*", "44.0")],
    }
    run(with_prices(facts(CENTRAL), prices), "gcp")
    catalog = load_catalog()
    for kind, usd in ((CapacityType.FLEX_START, "41.5"), (CapacityType.RESERVED, "44.0")):
        (lot, *_) = lots(catalog, "gcp", "a3-highgpu-8g", CENTRAL, kind)
        assert lot.price_usd_per_hour == Decimal(usd)
    plan = make_plan(pretrain(instance_types=["a3-highgpu-8g"], regions=[CENTRAL]), catalog)
    assert plan.choice is not None
    assert plan.choice.capacity_type == "flex-start"
    assert plan.cost is not None
    assert plan.cost.commitment is not None
    assert plan.cost.commitment.upfront_usd == 0
    on_demand = make_plan(pretrain(instance_types=["a3-highgpu-8g"], regions=[CENTRAL], capacity="on-demand"), catalog)
    assert on_demand.choice is not None
    assert on_demand.choice.price_usd_per_hour == Decimal("88.49")


def test_disk_prices_of_a_region_end_the_stand_in() -> None:
    """eu-central-1 has no price of its own in the bundled catalog; what is 5 times off the known ones is kept out."""
    frankfurt = "eu-central-1"
    assert load_catalog(Path("bundled")).storage_price("aws", "ebs_gp3", frankfurt).confidence == "assumed"  # type: ignore[union-attr]
    disks = (DiskQuote("ebs_gp3", "0.0952"), DiskQuote("ebs_snapshot_standard", "54"), DiskQuote("ebs_new", "0.01"))
    of = replace(facts(frankfurt, {"g6.xlarge": "1.0"}), disks=disks)
    refreshed = run(replace(of, sources={**of.sources, DISKS: SOURCE.source}))
    price = load_catalog().storage_price("aws", "ebs_gp3", frankfurt)
    assert price is not None
    assert (price.amount_usd, price.as_of, price.confidence, price.suspect) == (
        Decimal("0.0952"),
        "2026-12-05",
        "observed",
        (),
    )
    assert [(one.instance_type, one.reason) for one in refreshed.quarantined] == [
        ("ebs_snapshot_standard (GiB-month)", "far_above_median")
    ]
    plan = make_plan(
        Workload.from_document(
            {
                "version": 1,
                "name": "case",
                "task": "serve",
                "model": {"id": "meta-llama/Llama-3.1-8B-Instruct"},
                "inference": {"context_tokens": 4096},
                "placement": {"instance_types": ["g6.xlarge"], "regions": [frankfurt]},
            }
        ),
        load_catalog(),
    )
    assert plan.cost is not None
    (root,) = (line for line in plan.cost.lines if line.item == "disk:root")
    assert (root.unit_price_usd, root.as_of) == (Decimal("0.0952"), "2026-12-05")


def test_a_listing_that_lost_everything_is_not_believed() -> None:
    bundled = load_catalog(Path("bundled"))
    refreshed = run(facts(EAST, {"g6.xlarge": "0.8048"}, offerings=[]))
    assert any("not believed" in note for note in refreshed.notes)
    after = load_catalog()
    assert after.type_market("aws", "g6.xlarge").lots
    zones = {lot.zones for lot in lots(after, "aws", "g6.xlarge", EAST, CapacityType.ON_DEMAND)}
    assert zones == {lot.zones for lot in lots(bundled, "aws", "g6.xlarge", EAST, CapacityType.ON_DEMAND)}


def test_a_price_list_that_lost_everything_is_not_believed() -> None:
    """Spot rows would go with it, since no quote means no market."""
    bundled = load_catalog(Path("bundled"))
    before = lots(bundled, "aws", "g6.xlarge", EAST, CapacityType.SPOT)
    assert any(lot.price_usd_per_hour is not None for lot in before)
    refreshed = run(facts(EAST))
    assert any("no on-demand price" in note for note in refreshed.notes)
    assert [one for one in refreshed.rows if one.kind in ("on_demand", "spot")] == []  # nothing looks fresh
    after = lots(load_catalog(), "aws", "g6.xlarge", EAST, CapacityType.SPOT)
    assert [(lot.zones, lot.price_usd_per_hour, lot.price_as_of) for lot in after] == [
        (lot.zones, lot.price_usd_per_hour, lot.price_as_of) for lot in before
    ]


def test_a_region_without_offers_of_blocks_has_no_price_for_them() -> None:
    run(with_prices(facts(EAST, {"p5.48xlarge": "55.04"}), {CAPACITY_BLOCK: []}))
    found = lots(load_catalog(), "aws", "p5.48xlarge", EAST, CapacityType.CAPACITY_BLOCK)
    assert {lot.price_usd_per_hour for lot in found} == {None}
    assert {lot.price_as_of for lot in found} == {None}
