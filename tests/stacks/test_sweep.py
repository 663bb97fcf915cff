"""`gc` on a cloud in memory: regions that do not answer, objects that do not go, machines that are not what they were."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from provisioner import tags
from provisioner.clouds.cloud import (
    AGE_UNKNOWN,
    BillableObject,
    InstanceRequest,
    InstanceState,
    Placement,
    Survey,
    VolumeRequest,
)
from provisioner.errors import Ambiguous, CredentialsError, Rejected
from provisioner.vocabulary import CapacityType
from stacks.made import VARIABLE, made_file, note_made, read_made
from stacks.orphans import Verdict
from stacks.site import Site
from stacks.sweep import Swept, document, sweep
from tests.fakes.cloud import ClockedLifeline, FakeCloud

HERE = Placement("aws", "us-east-1", "use1-az1", "g6.xlarge", CapacityType.ON_DEMAND)


class Partial(FakeCloud):
    """One region answers, the other does not."""

    def survey(self) -> Survey:
        error = CredentialsError("AccessDenied: not you", where="ec2 in eu-west-1", remedy="ask for the right")
        found = tuple(entry for entry in self.list_objects() if entry.region != "eu-west-1")
        return Survey(found, {"eu-west-1": error})


class Strewn(FakeCloud):
    """An interface without a machine, an address and a backup, all with our tags."""

    ended: list[str]

    def survey_with_strays(self) -> Survey:
        kinds = ("network-interface", "address", "snapshot")
        extra = {"network-interface": {AGE_UNKNOWN: "true"}}
        return Survey(
            tuple(
                BillableObject("aws", kind, f"{kind}-1", HERE.region, None, "available", carried("lost"), "0",
                               self.clock.now - timedelta(hours=1), extra.get(kind, {}))
                for kind in kinds
            )
        )  # fmt: skip

    def end_stray(self, region: str, kind: str, object_id: str) -> None:
        self.ended = [*getattr(self, "ended", []), object_id]


def carried(stack_id: str, resource: str = "gpu") -> dict[str, str]:
    return {
        **dict.fromkeys(tags.REQUIRED, "x"),
        tags.STACK_ID: stack_id,
        tags.RESOURCE: resource,
        tags.EXPIRES_AT: "none",
    }


def settle(cloud: FakeCloud, stack_id: str, place: Placement = HERE) -> str:
    """A machine with a data disk and a group, made an hour ago."""
    group = cloud.ensure_security_group(place, carried(stack_id), [], [])
    name = f"{stack_id}-{place.region}"
    made = cloud.create_instance(
        InstanceRequest(name, name, place, "image", 1, carried(stack_id), security_group=group)
    )
    disk = cloud.create_volume(
        VolumeRequest(name, name, place.region, str(place.zone), 1, carried(stack_id, "data"), "aws")
    )
    cloud.clock.advance(timedelta(seconds=5))
    cloud.attach_volume(place, made.id, disk.id)
    cloud.clock.advance(timedelta(hours=1))
    return made.id


def clean(site: Site, cloud: FakeCloud) -> Swept:
    """`gc --yes`, whose waits move the cloud's clock."""
    return sweep(site, cloud, yes=True, lifeline=ClockedLifeline(cloud.clock))


@pytest.fixture
def site(home: Path, monkeypatch: pytest.MonkeyPatch) -> Site:
    """A backend that has made ``lost``."""
    made = Site(home, None, lambda _: None)
    monkeypatch.setenv(VARIABLE, str(made_file(home, made.backend)))
    cloud = FakeCloud()
    note_made("lost", "old", cloud.now())
    return made


def test_ours_ends_whole_and_theirs_stays(site: Site) -> None:
    cloud = FakeCloud(name="aws")
    settle(cloud, "lost")
    theirs = settle(cloud, "theirs")
    swept = clean(site, cloud)
    assert swept.error() is None
    assert {fate.judgement.entry.kind for fate in swept.fates if fate.is_removed} == {
        "instance",
        "volume",
        "ip",
        "security-group",
    }
    assert [machine.id for machine in cloud.living] == [theirs]
    assert len(cloud.disks) == len(cloud.groups) == 1
    verdicts = {entry["verdict"] for entry in document(swept)["objects"]}
    assert verdicts == {"orphan", "foreign"}


def test_a_region_that_does_not_answer_is_left_alone_and_named(site: Site) -> None:
    cloud = Partial(name="aws")
    settle(cloud, "lost")
    away = settle(cloud, "lost", Placement("aws", "eu-west-1", "euw1-az1", "g6.xlarge", CapacityType.ON_DEMAND))
    swept = clean(site, cloud)
    error = swept.error()
    assert isinstance(error, CredentialsError)
    assert "eu-west-1 could not be listed" in error.message
    assert document(swept)["unlisted_regions"] == ["eu-west-1"]
    assert [machine.id for machine in cloud.living] == [away]


def test_what_does_not_go_is_named_with_exit_11(site: Site) -> None:
    cloud = FakeCloud(name="aws")
    machine = settle(cloud, "lost")
    for _ in range(3):
        cloud.errors["terminate_instance"].append((False, Rejected("protected")))
    begun = cloud.clock.now
    swept = clean(site, cloud)
    assert cloud.clock.now - begun < timedelta(minutes=1)
    error = swept.error()
    assert error is not None
    assert error.exit_code == 11
    assert machine in error.message
    # Nothing waits for what a machine that stays still uses: it is named, and kept.
    assert len(cloud.disks) == len(cloud.groups) == 1
    assert [fate.trouble for fate in swept.fates if fate.judgement.entry.kind == "security-group"] == [
        f"{machine} still uses it"
    ]

    # A stack that is known holds it: it is no leak then.
    known = replace(swept, held=frozenset({"lost"})).error()
    assert known is not None
    assert known.exit_code == 4
    assert machine in known.message


def test_what_gpuprov_never_makes_goes_only_by_name(site: Site) -> None:
    cloud = Strewn(name="aws")
    swept = clean(site, cloud)
    assert swept.error() is None
    verdicts = {fate.judgement.entry.kind: fate.judgement.verdict for fate in swept.fates}
    assert verdicts == {"network-interface": "orphan", "address": "foreign", "snapshot": "foreign"}
    assert cloud.ended == ["network-interface-1"]
    interface = document(swept)["objects"][0]
    assert (interface["created_at"], interface["removed"]) == (None, True)
    named = sweep(site, cloud, yes=True, stack_ids=["lost"], lifeline=ClockedLifeline(cloud.clock))
    assert named.error() is None
    assert sorted(cloud.ended) == ["address-1", "network-interface-1", "network-interface-1", "snapshot-1"]


def test_a_list_that_fails_ends_nothing(site: Site) -> None:
    cloud = FakeCloud(name="aws")
    settle(cloud, "lost")
    cloud.errors["list_objects"].append((False, CredentialsError("expired")))
    with pytest.raises(CredentialsError):
        clean(site, cloud)
    assert len(cloud.living) == 1


def test_a_machine_that_is_another_ones_by_now_is_left_alone(site: Site) -> None:
    cloud = FakeCloud(name="aws")
    machine = settle(cloud, "lost")

    def take_over(call: object) -> None:
        if getattr(call, "operation", "") == "get_instance":
            held = cloud.machines[machine]
            held.instance = replace(held.instance, tags={**held.instance.tags, tags.STACK_ID: "theirs"})

    cloud.on_call = take_over
    swept = clean(site, cloud)
    fate = next(fate for fate in swept.fates if fate.judgement.entry.id == machine)
    assert (fate.judgement.verdict, fate.is_removed) == (Verdict.FOREIGN, False)
    assert cloud.living[0].state is InstanceState.RUNNING


def test_a_throttled_or_lost_end_is_asked_again(site: Site) -> None:
    cloud = FakeCloud(name="aws")
    settle(cloud, "lost")
    cloud.errors["terminate_instance"].append((True, Ambiguous("lost")))
    assert clean(site, cloud).error() is None
    assert cloud.living == []


def test_ids_are_written_line_by_line_and_a_torn_line_is_none(site: Site) -> None:
    path = made_file(site.home, site.backend)
    note_made("second", "chat", FakeCloud().now())
    with path.open("a") as file:
        file.write('{"stack_id": "torn')
    assert dict(read_made(path)) == {"lost": "old", "second": "chat"}
    assert read_made(path.with_name("nothing")) == {}
