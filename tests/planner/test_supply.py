"""Supply in plans: shown with its date, the order of attempts, and a warning where nothing is likely."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from provisioner.catalog.fetched import Score
from provisioner.catalog.snapshot import Catalog, load_catalog
from provisioner.catalog.supply import add_observations, record_granted, record_refusal, score_observation
from provisioner.clouds.cloud import Placement
from provisioner.planner.decide import make_plan
from provisioner.planner.documents import plan_document, plan_from_document, plan_json
from provisioner.planner.plan import Plan, PlannedOffer
from provisioner.report.summary import failover_section
from provisioner.vocabulary import CapacityType
from provisioner.workload.spec import Workload

AT = datetime(2026, 11, 30, 14, 15, tzinfo=UTC)
ICE = "InsufficientInstanceCapacity"


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.delenv("GPUPROV_CATALOG", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "gpuprov" / "catalog"


@pytest.fixture
def workload(serve) -> Workload:
    return serve(placement={"clouds": ["aws"], "regions": ["us-east-1", "us-west-2"], "instance_types": ["g6.xlarge"]})


def plan(workload: Workload) -> Plan:
    return make_plan(workload, load_catalog())


def placed(offer: PlannedOffer, zone: str | None = None) -> Placement:
    return Placement(
        offer.cloud, offer.region, zone or offer.zone, offer.instance_type, CapacityType(offer.capacity_type)
    )


def test_nothing_known_is_said_as_unknown(workload: Workload) -> None:
    found = plan(workload)
    assert {(one.supply, one.supply_as_of) for one in found.failover} == {("unknown", None)}
    assert plan_document(found)["choice"]["supply"] == {"likelihood": "unknown", "as_of": None}
    assert failover_section(found, None).header[-1] == "price"


def test_a_refused_zone_is_tried_last_and_the_choice_moves_to_another(workload: Workload) -> None:
    before = plan(workload)
    assert before.choice is not None
    record_refusal("aws", placed(before.choice), ICE, AT)
    after = plan(workload)
    assert after.choice is not None
    assert after.choice.zone != before.choice.zone
    assert after.choice.instance_type == before.choice.instance_type
    assert after.failover[0].key == after.choice.key
    assert after.failover[-1].key == before.choice.key
    assert (after.failover[-1].supply, after.failover[-1].supply_as_of) == ("scarce", "2026-11-30T14:15:00Z")
    assert {one.key for one in after.failover} == {one.key for one in before.failover}
    assert failover_section(after, None).rows[-1][-1] == "scarce (2026-11-30)"


def test_a_zone_that_gave_a_machine_is_tried_first(workload: Workload) -> None:
    before = plan(workload)
    assert before.choice is not None
    other = next(
        one for one in before.failover if one.region == before.choice.region and one.zone != before.choice.zone
    )
    record_granted("aws", placed(other), AT)
    after = plan(workload)
    assert after.choice is not None
    assert after.choice.key == other.key
    assert after.choice.supply == "likely"
    assert "supply likely: gave a machine (2026-11-30T14:15:00Z)" in after.choice.reasons


def test_the_best_offer_stays_first_where_all_its_zones_are_scarce(workload: Workload) -> None:
    """An attempt costs seconds, and pools fill and empty by the hour."""
    before = plan(workload)
    assert before.choice is not None
    own = [one for one in before.failover if one.region == before.choice.region]
    others = [one for one in before.failover if one.region != before.choice.region]
    assert others
    for one in own:
        record_refusal("aws", placed(one), ICE, AT)
    after = plan(workload)
    assert [one.key for one in after.failover] == [own[0].key, *(one.key for one in [*others, *own[1:]])]
    assert f"supply scarce: refused a launch with {ICE} (2026-11-30T14:15:00Z)" in after.choice.reasons
    assert not any("scarce" in warning for warning in after.warnings)


def test_every_offer_scarce_is_a_warning(workload: Workload) -> None:
    for number, one in enumerate(plan(workload).failover):
        record_refusal("aws", placed(one), ICE, AT + timedelta(minutes=number))
    after = plan(workload)
    count = len(after.failover)
    (warning,) = [warning for warning in after.warnings if "scarce" in warning]
    assert warning.startswith(f"all {count} offers are scarce as of 2026-11-30T14:")
    assert "gpuprov prices refresh" in warning


def test_a_placement_score_orders_spot(batch) -> None:
    wanted = batch(
        inference={"total": "50M tokens"},
        placement={"clouds": ["aws"], "gpus": ["L40S"], "regions": ["us-east-1"], "capacity": "spot"},
    )
    first = plan(wanted).failover[0]
    assert first.capacity_type == "spot"
    score = Score("us-east-1", first.zone or "", first.instance_type, 1)
    add_observations([score_observation("aws", score, AT)], AT)
    after = plan(wanted)
    assert {one.key: one.supply for one in after.failover}[first.key] == "scarce"
    record_granted("aws", placed(first), AT + timedelta(hours=1))
    assert {one.key: one.supply for one in plan(wanted).failover}[first.key] == "likely"


def test_a_quota_without_room_for_one_machine_refuses_its_region(serve, cache: Path) -> None:
    workload = serve(
        inference={"concurrency": 1},
        placement={"clouds": ["aws"], "regions": ["us-east-1", "us-west-2"], "instance_types": ["g6.xlarge"]},
    )
    catalog = load_catalog(Path("bundled"))
    code = catalog.instances["aws", "g6.xlarge"].quota_on_demand
    directory = cache.parent / "with-quotas"
    directory.mkdir(parents=True)
    for name in catalog._files.names:
        (directory / name).write_bytes(catalog._files.content(name))
    (directory / "account_quotas.csv").write_text(
        f"cloud,region,quota_code,limit,source,as_of\naws,us-east-1,{code},2,vendor_knowledge,2026-12-01\naws,us-west-2,{code},2,vendor_knowledge,2026-12-01\n"
    )
    found = make_plan(workload, load_catalog(directory))
    assert found.choice is None
    short = [one for one in found.rejections if one.filter == "quota"]
    assert {(one.needed, one.available) for one in short} >= {("4 vCPU", "2 vCPU")}
    assert any(f"quota {code}" in one.reason and "2026-12-01" in one.reason for one in short)
    assert found.closest[0].startswith(f"have the account's quota {code} in us-east-1 raised to 4 vCPU: fits on g6")


def test_same_observations_same_bytes_and_the_way_back(workload: Workload) -> None:
    record_refusal("aws", placed(plan(workload).failover[0]), ICE, AT)
    text = plan_json(plan(workload))
    assert plan_json(plan(workload)) == text
    document = plan_document(plan(workload))
    assert plan_document(plan_from_document(document)) == document


def test_a_plan_saved_before_supply_was_known_is_read(workload: Workload) -> None:
    document = plan_document(plan(workload))
    for one in (document["choice"], *document["failover"], *document["alternatives"]):
        del one["supply"]
    assert {one.supply for one in plan_from_document(document).failover} == {"unknown"}


def test_the_bundled_catalog_knows_no_supply_of_this_host(workload: Workload) -> None:
    base: Catalog = load_catalog(Path("bundled"))
    text = plan_json(make_plan(workload, base))
    record_refusal("aws", placed(plan(workload).failover[0]), ICE, AT)
    assert plan_json(make_plan(workload, load_catalog(Path("bundled")))) == text
