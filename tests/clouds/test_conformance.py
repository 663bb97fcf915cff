"""What every cloud keeps (provisioner/clouds/cloud.py), run on each rig of conftest.RIGS."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC

import pytest

from provisioner.clouds.cloud import InstanceState
from provisioner.errors import NotFound, Rejected, TokenMismatch, TokenSpent
from provisioner.units import GIB, DiskSpeed
from tests.clouds.conftest import tags


def test_create_gives_a_machine_with_its_tags_and_place(rig):
    request = rig.request()
    made = rig.cloud.create_instance(request)
    assert made.state in {InstanceState.PENDING, InstanceState.RUNNING}
    assert (made.tags, made.placement, made.name, made.image) == (
        request.tags,
        request.placement,
        request.name,
        request.image,
    )
    assert made.created_at.tzinfo is not None
    assert made.created_at.astimezone(UTC) <= rig.cloud.now()


def test_a_created_machine_comes_to_run_with_addresses(rig):
    made = rig.cloud.create_instance(rig.request())
    rig.wait()
    seen = rig.cloud.get_instance(rig.here, made.id)
    assert seen is not None
    assert seen.state is InstanceState.RUNNING
    assert seen.private_ip
    assert rig.cloud.find_instances({"gpuprov:stack-id": "stack-0001"}, [rig.here]) == [seen]


def test_same_token_and_bytes_give_the_same_machine(rig):
    request = rig.request()
    first = rig.cloud.create_instance(request)
    again = rig.cloud.create_instance(replace(request, tags=dict(reversed(list(request.tags.items())))))
    rig.wait()
    assert again.id == first.id
    assert rig.cloud.create_instance(request).id == first.id
    assert len(rig.cloud.find_instances({}, [rig.here])) == 1


@pytest.mark.parametrize(
    "change",
    [
        {"name": "other"},
        {"image": "ami-00000000000000000"},
        {"root_volume_bytes": 101 * GIB},
        {"tags": {"gpuprov:stack-id": "other"}},
        {"user_data": "#!/bin/sh\n"},
        {"stop_on_shutdown": True},
    ],
    ids=lambda change: next(iter(change)),
)
def test_same_token_with_other_bytes_is_a_mismatch(rig, change):
    request = rig.request()
    rig.cloud.create_instance(request)
    with pytest.raises(TokenMismatch, match=request.token):
        rig.cloud.create_instance(replace(request, **change))
    rig.wait()
    assert len(rig.cloud.find_instances({}, [rig.here])) == 1


def test_same_token_for_another_zone_of_the_region_is_a_mismatch(rig):
    request = rig.request()
    rig.cloud.create_instance(request)
    with pytest.raises(TokenMismatch):
        rig.cloud.create_instance(replace(request, placement=rig.next_zone))


def test_the_token_of_a_terminated_machine_is_spent(rig):
    request = rig.request()
    made = rig.cloud.create_instance(request)
    rig.wait()
    rig.cloud.terminate_instance(rig.here, made.id)
    with pytest.raises(TokenSpent, match=made.id):
        rig.cloud.create_instance(request)
    rig.wait()
    with pytest.raises(TokenSpent):
        rig.cloud.create_instance(request)


def test_two_tokens_make_two_machines(rig):
    made = {rig.cloud.create_instance(rig.request(token)).id for token in ("token-1", "token-2")}
    rig.wait()
    assert [machine.id in made for machine in rig.cloud.find_instances({}, [rig.here])] == [True, True]


def test_lists_filter_by_all_tags_and_by_region(rig):
    rig.cloud.create_instance(rig.request())
    rig.wait()
    assert rig.cloud.find_instances({"gpuprov:stack-id": "another"}, [rig.here]) == []
    assert rig.cloud.find_instances({"gpuprov:stack-id": "stack-0001", "no": "such"}, [rig.here]) == []
    assert rig.cloud.find_instances({}, []) == []
    assert rig.cloud.find_instances({}, [replace(rig.here, region="elsewhere-1")]) == []


def test_an_unknown_machine_is_none_and_its_end_succeeds(rig):
    assert rig.cloud.get_instance(rig.here, "i-0ffffffffffffffff") is None
    rig.cloud.terminate_instance(rig.here, "i-0ffffffffffffffff")
    rig.cloud.delete_volume(rig.here, "vol-0ffffffffffffffff")
    rig.cloud.delete_security_group(rig.here, "sg-0ffffffffffffffff")
    for call in (rig.cloud.start_instance, rig.cloud.stop_instance):
        with pytest.raises(NotFound):
            call(rig.here, "i-0ffffffffffffffff")


def test_terminate_is_idempotent_and_the_machine_ends(rig):
    made = rig.cloud.create_instance(rig.request())
    rig.wait()
    for _ in range(3):
        rig.cloud.terminate_instance(rig.here, made.id)
    rig.wait()
    rig.cloud.terminate_instance(rig.here, made.id)
    seen = rig.cloud.get_instance(rig.here, made.id)
    assert seen is None or seen.state is InstanceState.TERMINATED
    assert rig.cloud.list_objects() == []


def test_stop_and_start_keep_the_machine(rig):
    made = rig.cloud.create_instance(rig.request())
    rig.wait()
    assert rig.cloud.stop_instance(rig.here, made.id).state in {InstanceState.STOPPING, InstanceState.STOPPED}
    rig.wait()
    assert rig.cloud.stop_instance(rig.here, made.id).state is InstanceState.STOPPED
    assert rig.cloud.start_instance(rig.here, made.id).state in {InstanceState.PENDING, InstanceState.RUNNING}
    rig.wait()
    seen = rig.cloud.start_instance(rig.here, made.id)
    assert (seen.id, seen.state, seen.tags) == (made.id, InstanceState.RUNNING, made.tags)


def test_a_market_without_stop_refuses_it_and_the_machine_runs_on(rig):
    made = rig.cloud.create_instance(rig.request(placement=rig.spot))
    rig.wait()
    with pytest.raises(Rejected, match="cannot be stopped"):
        rig.cloud.stop_instance(rig.spot, made.id)
    assert rig.cloud.get_instance(rig.spot, made.id).state is InstanceState.RUNNING


def test_whether_a_stop_is_allowed_can_be_asked_before(rig):
    made = rig.cloud.create_instance(rig.request())
    spot = rig.cloud.create_instance(rig.request("spot", placement=rig.spot))
    rig.wait()
    assert rig.cloud.stop_refusal(rig.here, made.id) is None
    assert "cannot be stopped" in rig.cloud.stop_refusal(rig.spot, spot.id)


def test_user_data_changes_while_the_machine_is_stopped_and_only_then(rig):
    made = rig.cloud.create_instance(rig.request())
    rig.wait()
    with pytest.raises(Rejected, match="stopped"):
        rig.cloud.set_user_data(rig.here, made.id, "#cloud-config\n{}\n")
    rig.cloud.stop_instance(rig.here, made.id)
    rig.wait()
    rig.cloud.set_user_data(rig.here, made.id, "#cloud-config\n{}\n")
    rig.cloud.set_user_data(rig.here, made.id, "#cloud-config\n{}\n")
    rig.cloud.start_instance(rig.here, made.id)
    rig.wait()
    assert rig.cloud.get_instance(rig.here, made.id).state is InstanceState.RUNNING


def test_what_a_shutdown_does_is_changed_while_the_machine_runs_and_while_it_is_stopped(rig):
    made = rig.cloud.create_instance(rig.request())
    rig.wait()
    if rig.here.cloud == "gcp":
        with pytest.raises(Rejected, match="settled when it was made"):
            rig.cloud.set_shutdown(rig.here, made.id, stops=True)
        return
    rig.cloud.set_shutdown(rig.here, made.id, stops=True)
    rig.cloud.set_shutdown(rig.here, made.id, stops=True)
    rig.cloud.stop_instance(rig.here, made.id)
    rig.wait()
    rig.cloud.set_shutdown(rig.here, made.id, stops=False)
    assert rig.cloud.get_instance(rig.here, made.id).state is InstanceState.STOPPED
    with pytest.raises(NotFound):
        rig.cloud.set_shutdown(rig.here, "i-0ffffffffffffffff", stops=True)


@pytest.mark.parametrize("stops", [False, True])
def test_what_a_shutdown_does_to_a_spot_machine_stays_as_it_was_made(rig, stops):
    made = rig.cloud.create_instance(rig.request(placement=rig.spot, stop_on_shutdown=not stops))
    rig.wait()
    with pytest.raises(Rejected, match="settled"):
        rig.cloud.set_shutdown(rig.spot, made.id, stops=stops)


def test_set_tags_merges(rig):
    made = rig.cloud.create_instance(rig.request())
    rig.wait()
    rig.cloud.set_tags(rig.here, made.id, {"gpuprov:generation": "2", "team": "search"})
    seen = rig.cloud.get_instance(rig.here, made.id)
    assert seen.tags == {**made.tags, "gpuprov:generation": "2", "team": "search"}
    with pytest.raises(NotFound):
        rig.cloud.set_tags(rig.here, "i-0ffffffffffffffff", {"team": "search"})


def test_a_volume_is_found_by_tag_and_made_once(rig):
    request = rig.volume()
    made = rig.cloud.create_volume(request)
    assert rig.cloud.create_volume(request).id == made.id
    rig.wait()
    assert rig.cloud.find_volumes({"gpuprov:resource": "data"}, [rig.here]) == [made]
    assert (made.size_bytes, made.zone, made.attached_to, made.tags) == (
        request.size_bytes,
        request.zone,
        None,
        request.tags,
    )
    with pytest.raises(TokenMismatch):
        rig.cloud.create_volume(replace(request, size_bytes=1 * GIB))


def test_a_volume_is_found_by_its_id_whatever_its_tags(rig):
    volume = rig.cloud.create_volume(rig.volume())
    rig.wait()
    found = rig.cloud.get_volume(rig.here, volume.id)
    assert (found.id, found.size_bytes) == (volume.id, volume.size_bytes)
    assert rig.cloud.get_volume(rig.here, "vol-0ffffffffffffffff") is None
    rig.cloud.delete_volume(rig.here, volume.id)
    assert rig.cloud.get_volume(rig.here, volume.id) is None


def test_a_volume_survives_its_machine(rig):
    machine = rig.cloud.create_instance(rig.request())
    volume = rig.cloud.create_volume(rig.volume())
    rig.wait()
    rig.cloud.attach_volume(rig.here, machine.id, volume.id)
    rig.cloud.attach_volume(rig.here, machine.id, volume.id)
    assert rig.cloud.get_instance(rig.here, machine.id).volume_ids == (volume.id,)
    with pytest.raises(Rejected, match=machine.id):
        rig.cloud.delete_volume(rig.here, volume.id)
    rig.cloud.terminate_instance(rig.here, machine.id)
    rig.wait()
    (left,) = rig.cloud.find_volumes({}, [rig.here])
    assert (left.id, left.attached_to, left.size_bytes) == (volume.id, None, volume.size_bytes)
    rig.cloud.delete_volume(rig.here, volume.id)
    rig.cloud.delete_volume(rig.here, volume.id)
    assert rig.cloud.find_volumes({}, [rig.here]) == []


def test_a_volume_attaches_in_its_zone_and_to_one_machine(rig):
    here = rig.cloud.create_instance(rig.request("token-1"))
    second = rig.cloud.create_instance(rig.request("token-2"))
    away = rig.cloud.create_instance(rig.request("token-3", placement=rig.next_zone))
    volume = rig.cloud.create_volume(rig.volume())
    rig.wait()
    with pytest.raises(Rejected, match=str(rig.next_zone.zone)):
        rig.cloud.attach_volume(rig.next_zone, away.id, volume.id)
    rig.cloud.attach_volume(rig.here, here.id, volume.id)
    with pytest.raises(Rejected, match=here.id):
        rig.cloud.attach_volume(rig.here, second.id, volume.id)
    with pytest.raises(NotFound):
        rig.cloud.attach_volume(rig.here, here.id, "vol-0ffffffffffffffff")


def test_a_volume_only_grows(rig):
    volume = rig.cloud.create_volume(rig.volume())
    rig.wait()
    assert rig.cloud.grow_volume(rig.here, volume.id, 600 * GIB).size_bytes == 600 * GIB
    assert rig.cloud.grow_volume(rig.here, volume.id, 600 * GIB).size_bytes == 600 * GIB
    with pytest.raises(Rejected, match="shrink"):
        rig.cloud.grow_volume(rig.here, volume.id, 500 * GIB)
    assert rig.cloud.find_volumes({}, [rig.here])[0].size_bytes == 600 * GIB


def test_speeds_are_made_shown_and_changed_in_place(rig):
    """Of gp3 alone: the sandbox's Google disks have none to choose, show none, and refuse one."""
    if rig.here.cloud != "aws":
        assert rig.cloud.create_volume(rig.volume()).speed is None
        with pytest.raises(Rejected):
            rig.cloud.create_volume(rig.volume("volume-2", speed=DiskSpeed(4000, 250)))
        return
    made = rig.cloud.create_volume(rig.volume(speed=DiskSpeed(4000, 250)))
    rig.wait()
    assert made.speed == DiskSpeed(4000, 250)
    assert rig.cloud.create_volume(rig.volume(speed=DiskSpeed(4000, 250))).id == made.id
    (shown,) = rig.cloud.find_volumes(tags(resource="data"), [rig.here])
    assert shown.speed == DiskSpeed(4000, 250)
    assert rig.cloud.grow_volume(rig.here, made.id, 600 * GIB).speed == DiskSpeed(4000, 250)
    faster = rig.cloud.grow_volume(rig.here, made.id, 700 * GIB, DiskSpeed(8000, 2000))
    assert (faster.size_bytes, faster.speed) == (700 * GIB, DiskSpeed(8000, 2000))
    (shown,) = rig.cloud.find_volumes(tags(resource="data"), [rig.here])
    assert (shown.size_bytes, shown.speed) == (700 * GIB, DiskSpeed(8000, 2000))
    plain = rig.cloud.create_volume(rig.volume("volume-2", tags=tags(resource="plain")))
    assert plain.speed == DiskSpeed(3000, 125)
    machine = rig.cloud.create_instance(rig.request(root_speed=DiskSpeed(3000, 500)))
    rig.wait()
    for speed in (DiskSpeed(3000, 500), DiskSpeed(6000, 1000), DiskSpeed(6000, 1000), DiskSpeed(3000, 125)):
        rig.cloud.set_root_speed(rig.here, machine.id, speed)


def test_a_security_group_is_one_per_tags_and_kept_while_used(rig):
    group = rig.cloud.ensure_security_group(rig.here, rig.request().tags, ["203.0.113.7/32"], [8000])
    assert rig.cloud.ensure_security_group(rig.here, rig.request().tags, ["203.0.113.7/32"], [8000]) == group
    other = rig.cloud.ensure_security_group(rig.here, {"gpuprov:stack-id": "another"}, [], [])
    assert other != group
    machine = rig.cloud.create_instance(rig.request(security_group=group))
    rig.wait()
    with pytest.raises(Rejected, match=machine.id):
        rig.cloud.delete_security_group(rig.here, group)
    rig.cloud.terminate_instance(rig.here, machine.id)
    rig.wait()
    rig.cloud.delete_security_group(rig.here, group)
    rig.cloud.delete_security_group(rig.here, group)
    assert rig.cloud.ensure_security_group(rig.here, rig.request().tags, [], []) != group


def test_an_unknown_security_group_is_rejected(rig):
    with pytest.raises(Rejected, match="sg-0"):
        rig.cloud.create_instance(rig.request(security_group="sg-0ffffffffffffffff"))


def test_what_is_not_offered_is_rejected(rig):
    for placement in (
        replace(rig.here, instance_type="g99.huge"),
        replace(rig.here, zone="nowhere-1a"),
        replace(rig.here, region="nowhere-1", zone=None),
    ):
        request = replace(rig.request(), placement=placement)
        with pytest.raises(Rejected):
            rig.cloud.create_instance(request)
    rig.wait()
    assert rig.cloud.list_objects() == []


def test_objects_are_listed_with_prices_and_tags(rig):
    machine = rig.cloud.create_instance(rig.request())
    volume = rig.cloud.create_volume(rig.volume())
    group = rig.cloud.ensure_security_group(rig.here, rig.request().tags, [], [22])
    rig.wait()
    found = {thing.id: thing for thing in rig.cloud.list_objects()}
    assert {machine.id, volume.id, group} <= set(found)
    assert all(thing.tags["gpuprov:stack-id"] == "stack-0001" for thing in found.values())
    assert float(found[machine.id].price_usd_per_hour) > float(found[volume.id].price_usd_per_hour) > 0
    assert {thing.kind for thing in found.values()} <= {"instance", "volume", "security-group", "ip"}
