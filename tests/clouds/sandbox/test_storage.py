"""Data disks and security groups beyond what every cloud keeps: values that make no sense, names, regions."""

from __future__ import annotations

from dataclasses import replace
from types import MappingProxyType

import pytest

from provisioner.clouds.sandbox.tokens import digest_of
from provisioner.errors import NotFound, Rejected, TokenSpent
from provisioner.units import GIB, TIB


@pytest.mark.parametrize(
    "change",
    [
        {"name": ""},
        {"key": ""},
        {"size_bytes": 0},
        {"size_bytes": 64 * TIB + 1},
        {"size_bytes": 2**64},
        {"zone": "usw2-az1"},
        {"region": "nowhere-1"},
    ],
    ids=lambda change: next(iter(change)),
)
def test_a_disk_that_makes_no_sense_is_rejected(box, change):
    with pytest.raises(Rejected):
        box.cloud.create_volume(box.volume(**change))
    assert box.controls.bill().lines == ()


@pytest.mark.parametrize("size_bytes", [64 * TIB + 1, 2**64])
def test_no_disk_grows_beyond_what_is_sold(box, size_bytes):
    made = box.cloud.create_volume(box.volume())
    with pytest.raises(Rejected, match=f"a disk of {size_bytes} bytes"):
        box.cloud.grow_volume(box.here, made.id, size_bytes)
    with pytest.raises(Rejected, match=f"a disk of {size_bytes} bytes"):
        box.cloud.create_instance(box.request(root_volume_bytes=size_bytes))
    assert box.cloud.grow_volume(box.here, made.id, 64 * TIB).size_bytes == 64 * TIB


def test_the_token_of_a_deleted_disk_is_spent(box):
    made = box.cloud.create_volume(box.volume())
    box.cloud.delete_volume(box.here, made.id)
    with pytest.raises(TokenSpent, match=made.id):
        box.cloud.create_volume(box.volume())


def test_a_new_disk_stays_unlisted_for_a_while_but_can_be_attached(box):
    machine = box.running()
    disk = box.cloud.create_volume(box.volume())
    assert box.cloud.find_volumes({}, [box.here]) == []
    box.cloud.attach_volume(box.here, machine.id, disk.id)
    box.wait()
    assert [found.attached_to for found in box.cloud.find_volumes({}, [box.here])] == [machine.id]


def test_a_disk_name_is_taken_once_a_zone_on_gcp(gcp_box):
    first = gcp_box.cloud.create_volume(gcp_box.volume("volume-1", name="data"))
    with pytest.raises(Rejected, match=f"alreadyExists.*{first.id}"):
        gcp_box.cloud.create_volume(gcp_box.volume("volume-2", name="data"))
    gcp_box.cloud.create_volume(gcp_box.volume("volume-3", name="data", zone=gcp_box.next_zone.zone))
    gcp_box.cloud.delete_volume(gcp_box.here, first.id)
    assert gcp_box.cloud.create_volume(gcp_box.volume("volume-2", name="data")).id != first.id


def test_disks_are_bound_to_their_region(box):
    elsewhere = replace(box.here, region="us-west-2", zone="usw2-az1")
    disk = box.cloud.create_volume(box.volume())
    machine = box.running()
    box.cloud.delete_volume(elsewhere, disk.id)
    assert box.cloud.find_volumes({}, [elsewhere]) == []
    assert [found.id for found in box.cloud.find_volumes({}, [box.here])] == [disk.id]
    for call in (
        lambda: box.cloud.grow_volume(elsewhere, disk.id, 900 * GIB),
        lambda: box.cloud.attach_volume(elsewhere, machine.id, disk.id),
        lambda: box.cloud.set_tags(elsewhere, disk.id, {"a": "b"}),
    ):
        with pytest.raises(NotFound):
            call()


def test_a_disk_stays_attached_while_its_machine_is_stopped(box):
    machine = box.running()
    disk = box.cloud.create_volume(box.volume())
    box.cloud.attach_volume(box.here, machine.id, disk.id)
    box.cloud.stop_instance(box.here, machine.id)
    box.wait()
    with pytest.raises(Rejected, match=machine.id):
        box.cloud.delete_volume(box.here, disk.id)
    assert box.see(machine).volume_ids == (disk.id,)


def test_a_disk_and_a_group_are_held_until_the_machine_is_gone(box):
    group = box.cloud.ensure_security_group(box.here, {"gpuprov:stack": "a"}, [], [])
    machine = box.running(security_group=group)
    disk = box.cloud.create_volume(box.volume())
    box.cloud.attach_volume(box.here, machine.id, disk.id)
    box.cloud.terminate_instance(box.here, machine.id)
    with pytest.raises(Rejected, match="VolumeInUse"):
        box.cloud.delete_volume(box.here, disk.id)
    with pytest.raises(Rejected, match="DependencyViolation"):
        box.cloud.delete_security_group(box.here, group)
    box.wait()
    box.cloud.delete_volume(box.here, disk.id)
    box.cloud.delete_security_group(box.here, group)


def test_a_group_needs_tags_and_a_region_that_exists(box):
    with pytest.raises(Rejected, match="tags"):
        box.cloud.ensure_security_group(box.here, {}, [], [])
    with pytest.raises(Rejected, match="nowhere-1"):
        box.cloud.ensure_security_group(replace(box.here, region="nowhere-1"), {"gpuprov:stack": "a"}, [], [])


def test_the_same_request_has_the_same_digest_whatever_holds_its_tags(box):
    request = box.request()
    assert digest_of(replace(request, tags=MappingProxyType(dict(request.tags)))) == digest_of(request)
    with pytest.raises(TypeError, match="set"):
        digest_of(replace(request, tags={"a", "b"}))
