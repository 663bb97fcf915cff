from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from provisioner.errors import CloudError, Rejected
from stacks.provider.session import PartialFailure
from stacks.provider.values import UNKNOWN, Properties, plain_map, wrap_map
from stacks.provider.volume import Volumes
from tests.fakes.cloud import Crash
from tests.fakes.mini_engine import MiniEngine, engine, offer, program, urn

GIVEN: dict[str, Any] = {"stackId": "5ac1", "size": "200GiB", "offers": program()["offers"]}
DISKS = {"data": "200GiB"}


def checked(mini: MiniEngine, **changes: Any) -> Properties:
    found = Volumes(mini.session).check(urn("data"), {}, wrap_map({**GIVEN, **changes}))
    assert not found.wrong, found.wrong
    return found.inputs


def test_sizes_become_bytes_and_the_name_is_the_resources(home: Path) -> None:
    mini = engine(home)
    assert plain_map(checked(mini))["size"] == 200 * 2**30
    assert plain_map(checked(mini, size=5 * 2**30))["size"] == 5 * 2**30
    assert plain_map(checked(mini))["name"] == "data"
    assert plain_map(checked(mini, name="weights"))["name"] == "weights"
    assert plain_map(checked(mini, size=UNKNOWN, stackId=UNKNOWN))["size"] is UNKNOWN


@pytest.mark.parametrize("size", ["200", "1MiB", 12, 1.5, True, "9PB", [], -1])
def test_wrong_sizes_are_refused(home: Path, size: object) -> None:
    assert "size" in Volumes(engine(home).session).check(urn("data"), {}, wrap_map({**GIVEN, "size": size})).wrong


def test_making_one_makes_nothing_yet(home: Path) -> None:
    mini = engine(home)
    created = Volumes(mini.session).create(urn("data"), checked(mini))
    assert created.resource_id == "5ac1/data"
    assert "volumeId" not in created.properties
    assert {call.operation for call in mini.cloud.calls} == {"find_volumes"}


def test_refresh_tells_where_it_came_to_be(home: Path) -> None:
    mini = engine(home)
    mini.up(program(disks=DISKS))
    assert "volumeId" not in mini.outputs("data")
    mini.refresh()
    outputs = mini.outputs("data")
    assert (outputs["volumeId"], outputs["zone"]) == (next(iter(mini.cloud.disks)), "use1-az1")
    assert outputs["diskSize"] == 200 * 2**30


def test_refresh_waits_for_a_disk_that_a_run_of_this_host_made_before_it_was_cut_off(tmp_path: Path) -> None:
    """Else the state never knows its id, and who ends the stack on another host would not see it."""
    clean = engine(tmp_path / "clean")
    clean.up(program(disks=DISKS))
    made_at = next(number for number, call in enumerate(clean.cloud.calls) if call.operation == "create_volume")
    mini = engine(tmp_path / "cut")
    mini.cloud.crash_at = (made_at, True)
    with pytest.raises(Crash):
        mini.up(program(disks=DISKS))
    mini.restart()
    (disk,) = mini.cloud.disks.values()
    disk.visible_at = mini.cloud.clock.now + timedelta(seconds=20)
    mini.refresh()
    assert mini.outputs("data")["volumeId"] == disk.volume.id


def test_a_disk_that_somebody_deleted_is_told_and_made_again_empty(home: Path) -> None:
    mini = engine(home)
    mini.up(program(disks=DISKS))
    mini.refresh()
    (old,) = mini.cloud.disks
    mini.cloud.disks.clear()
    mini.cloud.clock.advance(timedelta(minutes=2))
    mini.up(program(disks=DISKS))
    assert any(old in line and "not there any more" in line for line in mini.told)
    (new,) = mini.cloud.disks
    assert new != old
    assert mini.outputs("gpu")["volumeIds"] == [new]


def test_a_lost_disk_is_told_although_only_the_machine_has_named_it_and_a_detached_one_is_not(home: Path) -> None:
    mini = engine(home)
    mini.up(program(disks=DISKS))
    (old,) = mini.cloud.disks
    disk = mini.cloud.disks[old]
    mini.cloud.disks[old] = replace(disk, volume=replace(disk.volume, attached_to=None))
    mini.told.clear()
    mini.refresh()
    assert not any("not there any more" in line for line in mini.told)
    mini.up(program(disks=DISKS))
    assert list(mini.cloud.disks) == [old]
    mini.cloud.disks.clear()
    mini.told.clear()
    mini.refresh()
    assert f"data disk {old} is not there any more, nor is its data; an update makes an empty one" in mini.told


def test_a_disk_that_somebody_grew_is_no_difference(home: Path) -> None:
    mini = engine(home)
    mini.up(program(disks=DISKS))
    (disk,) = mini.cloud.disks.values()
    disk.volume = replace(disk.volume, size_bytes=900 * 2**30)
    assert mini.up(program(disks=DISKS))[-1] == ("gpu", "same")


@pytest.mark.parametrize("change", [{"name": "other"}, {"stackId": "another"}])
def test_becoming_another_disk_is_refused(home: Path, change: dict[str, str]) -> None:
    mini = engine(home)
    outputs = Volumes(mini.session).create(urn("data"), checked(mini)).properties
    with pytest.raises(Rejected, match="its data would be deleted"):
        Volumes(mini.session).diff(outputs, checked(mini, **change))


def test_offers_in_other_regions_are_looked_at_before_they_are_forgotten(home: Path) -> None:
    mini = engine(home)
    outputs = Volumes(mini.session).create(urn("data"), checked(mini)).properties
    again = [offer("use1-az9"), *GIVEN["offers"]]
    assert Volumes(mini.session).diff(outputs, checked(mini, offers=again)).changed == {}
    elsewhere = [offer("a", "us-west-2")]
    assert Volumes(mini.session).diff(outputs, checked(mini, offers=elsewhere)).changed == {"offers": False}
    mini.up(program(disks=DISKS))
    mini.refresh()
    bound = mini.state["data"]
    wider = [*GIVEN["offers"], *elsewhere]
    news = checked(mini, stackId=mini.outputs("launch")["stackId"], offers=wider)
    assert Volumes(mini.session).diff(bound.outputs, news).changed == {}


def test_the_disk_of_a_foreign_machine_is_not_touched(home: Path) -> None:
    mini = engine(home)
    mini.up(program(disks=DISKS))
    (disk,) = mini.cloud.disks.values()
    machine = mini.cloud.machines[mini.cloud.living[0].id]
    machine.instance = replace(machine.instance, tags={"gpuprov:stack-id": "somebody-else"})
    with pytest.raises(CloudError, match="not of this stack"):
        Volumes(mini.session).delete(urn("data"), mini.state["data"].outputs)
    assert disk.volume.id in mini.cloud.disks
    assert mini.cloud.living


def test_disks_in_two_zones_cannot_be_had_by_one_machine(home: Path) -> None:
    mini = engine(home)
    disks = {"data": "200GiB", "more": "50GiB"}
    mini.up(program(disks=disks))
    second = list(mini.cloud.disks.values())[1]
    second.volume = replace(second.volume, zone="use1-az2", attached_to=None)
    mini.cloud.reclaim(mini.cloud.living[0].id)
    with pytest.raises(Exception, match="in several zones") as failure:
        mini.up(program(disks=disks))
    assert isinstance(failure.value.cause, Rejected)  # type: ignore[attr-defined]
    assert mini.cloud.living == []


def test_a_disk_is_waited_for_while_its_last_machine_lets_go(home: Path) -> None:
    mini = engine(home)
    mini.up(program(disks=DISKS))
    (disk,) = mini.cloud.disks.values()
    old = mini.cloud.living[0].id
    mini.cloud.reclaim(old)
    disk.volume = replace(disk.volume, attached_to=old)
    letting_go = mini.cloud.clock.now + timedelta(seconds=30)

    def let_go(_call: object) -> None:
        if disk.volume.attached_to == old and mini.cloud.clock.now > letting_go:
            disk.volume = replace(disk.volume, attached_to=None)

    mini.cloud.on_call = let_go
    mini.up(program(disks=DISKS))
    assert disk.volume.attached_to == mini.cloud.living[0].id != old


def test_a_disk_that_another_living_machine_has_is_not_taken_from_it(home: Path) -> None:
    mini = engine(home)
    mini.up(program(disks=DISKS))
    (disk,) = mini.cloud.disks.values()
    first = mini.cloud.living[0]
    mini.cloud.machines[first.id].instance = replace(first, tags={})  # somebody took it out of our hands
    mini.cloud.clock.advance(timedelta(hours=1))
    del mini.state["gpu"]
    with pytest.raises(PartialFailure, match=f"attached to {first.id}, which is running"):
        mini.up(program(disks=DISKS))
    assert disk.volume.attached_to == first.id
