"""What happens to machines from outside: reclaim, vanishing, lifetimes, the moving clock."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import timedelta

import pytest

from provisioner.clouds.cloud import End, Ended, InstanceState
from provisioner.errors import NotFound, Rejected, TokenSpent, UsageError
from provisioner.tags import format_time


def test_a_spot_machine_is_taken_back_after_its_notice(box):
    made = box.running(placement=box.spot)
    volume = box.cloud.create_volume(box.volume())
    box.cloud.attach_volume(box.spot, made.id, volume.id)
    taken_at = box.controls.reclaim(made.id)
    assert taken_at - box.cloud.now() == timedelta(minutes=2)
    assert box.see(made).state is InstanceState.RUNNING
    assert "interruption notice" in box.see(made).console[-1]
    box.controls.advance_clock(timedelta(seconds=119))
    assert box.see(made).state is InstanceState.RUNNING
    box.controls.advance_clock(timedelta(seconds=1))
    gone = box.see(made)
    assert gone.state is InstanceState.INTERRUPTED
    assert (gone.public_ip, gone.private_ip, gone.volume_ids) == (None, None, ())
    assert box.cloud.find_volumes({}, [box.here])[0].attached_to is None
    with pytest.raises(TokenSpent):
        box.cloud.create_instance(box.request(placement=box.spot))
    assert [line.kind for line in box.controls.bill(running_only=True).lines] == ["volume"]


def test_a_stop_and_start_moves_an_impaired_machine_to_another_host(box):
    made = box.running()
    box.controls.impair(made.id, "system-check")
    (ailment,) = box.cloud.read_health(box.here, made.id).ailments
    assert "stop and start it" in ailment.remedy
    assert box.see(made).state is InstanceState.RUNNING
    box.cloud.stop_instance(box.here, made.id)
    box.wait()
    box.cloud.start_instance(box.here, made.id)
    assert box.cloud.read_health(box.here, made.id).ailments == ()
    with pytest.raises(UsageError, match="an event begins within"):
        box.controls.impair(made.id, "instance-stop", timedelta(days=-1))


def test_gcp_gives_half_a_minute_and_stops_a_machine_that_shall_stop(gcp_box):
    spot = replace(gcp_box.here, capacity_type=gcp_box.spot.capacity_type)
    ends = gcp_box.running("token-1", placement=spot)
    stops = gcp_box.running("token-2", placement=spot, stop_on_shutdown=True)
    for machine in (ends, stops):
        assert gcp_box.controls.reclaim(machine.id) - gcp_box.cloud.now() == timedelta(seconds=30)
    gcp_box.controls.advance_clock(timedelta(seconds=30))
    assert gcp_box.see(ends).state is InstanceState.INTERRUPTED
    assert gcp_box.see(stops).state is InstanceState.STOPPED
    gcp_box.cloud.start_instance(spot, stops.id)
    gcp_box.controls.advance_clock(timedelta(days=1))
    assert gcp_box.see(stops).state is InstanceState.RUNNING


def test_a_notice_can_be_cut_to_nothing(box):
    made = box.running(placement=box.spot)
    box.controls.reclaim(made.id, timedelta(0))
    assert box.see(made).state is InstanceState.INTERRUPTED


def test_an_end_during_the_notice_is_an_end(box):
    made = box.running(placement=box.spot)
    box.controls.reclaim(made.id)
    box.cloud.terminate_instance(box.spot, made.id)
    box.controls.advance_clock(timedelta(minutes=5))
    assert box.see(made).state is InstanceState.TERMINATED


def test_only_a_living_spot_machine_is_taken_back(box):
    on_demand = box.running("token-1")
    spot = box.running("token-2", placement=box.spot)
    box.cloud.terminate_instance(box.spot, spot.id)
    with pytest.raises(UsageError, match="on-demand"):
        box.controls.reclaim(on_demand.id)
    with pytest.raises(UsageError, match="terminating"):
        box.controls.reclaim(spot.id)
    box.wait()
    running = box.running("token-3", placement=box.spot)
    for never in (timedelta(seconds=-1), timedelta(days=10**6), timedelta.max):
        with pytest.raises(UsageError, match="a notice is from 0 to"):
            box.controls.reclaim(running.id, never)
    for nothing in (spot.id, "i-0ffffffffffffffff"):
        with pytest.raises(NotFound, match=nothing):
            box.controls.reclaim(nothing)


def test_a_vanished_machine_is_nowhere_and_its_bill_has_ended(box):
    group = box.cloud.ensure_security_group(box.here, {"gpuprov:stack": "a"}, [], [])
    made = box.running(security_group=group)
    volume = box.cloud.create_volume(box.volume())
    box.cloud.attach_volume(box.here, made.id, volume.id)
    assert box.controls.vanish(made.id) == "instance"
    box.wait()
    assert box.see(made) is None
    assert box.cloud.find_instances({}, [box.here]) == []
    assert {thing.kind for thing in box.cloud.list_objects()} == {"volume", "security-group"}
    assert [line.id for line in box.controls.bill(running_only=True).lines] == [volume.id]
    assert box.cloud.find_volumes({}, [box.here])[0].attached_to is None
    with pytest.raises(TokenSpent):
        box.cloud.create_instance(box.request(security_group=group))
    with pytest.raises(NotFound):
        box.controls.vanish(made.id)
    box.cloud.delete_security_group(box.here, group)


def test_volumes_and_groups_vanish_too(box):
    made = box.running()
    volume = box.cloud.create_volume(box.volume())
    group = box.cloud.ensure_security_group(box.here, {"gpuprov:stack": "a"}, [], [])
    box.cloud.attach_volume(box.here, made.id, volume.id)
    assert box.controls.vanish(volume.id) == "volume"
    assert box.controls.vanish(group) == "security-group"
    assert box.see(made).volume_ids == ()
    assert box.cloud.find_volumes({}, [box.here]) == []
    assert box.cloud.ensure_security_group(box.here, {"gpuprov:stack": "a"}, [], []) != group


def _expiring(box, hours: float, **changes):
    expires_at = format_time(box.cloud.now() + timedelta(hours=hours))
    return box.request(tags={"gpuprov:stack-id": "s", "gpuprov:expires-at": expires_at}, **changes)


@pytest.mark.parametrize(
    ("stop_on_shutdown", "state"), [(True, InstanceState.STOPPED), (False, InstanceState.TERMINATED)]
)
def test_a_lifetime_ends_the_machine_at_its_own_moment(box, stop_on_shutdown, state):
    made = box.cloud.create_instance(_expiring(box, 3, stop_on_shutdown=stop_on_shutdown))
    box.clock.pass_time(hours=2, minutes=59, seconds=59)
    assert box.see(made).state is InstanceState.RUNNING
    box.clock.pass_time(hours=100)
    seen = box.see(made)
    assert seen is None or seen.state is state
    (line,) = [line for line in box.controls.bill().lines if line.kind == "instance"]
    assert line.billed_us == 3 * 3600 * 10**6
    assert line.usd_per_hour == 0


def test_spot_on_aws_stops_at_the_end_of_its_lifetime_only_where_it_was_asked_for_persistently(box):
    once = box.cloud.create_instance(_expiring(box, 1, placement=box.spot))
    kept = _expiring(box, 1, placement=box.spot, stop_on_shutdown=True)
    persistent = box.cloud.create_instance(replace(kept, token="persistent", name="persistent"))
    box.clock.pass_time(minutes=61)
    assert box.see(once).state is InstanceState.TERMINATED
    assert box.see(persistent).state is InstanceState.STOPPED
    said = json.loads(box.see(once).console[-1])
    assert (said["state"], said["act"], said["why"]) == ("dead-man", "terminate", "its lifetime is over")


def test_a_new_lifetime_counts_from_its_tag(box):
    made = box.cloud.create_instance(_expiring(box, 1))
    box.clock.pass_time(minutes=59)
    box.cloud.set_tags(box.here, made.id, {"gpuprov:expires-at": format_time(box.cloud.now() + timedelta(hours=5))})
    box.clock.pass_time(hours=4)
    assert box.see(made).state is InstanceState.RUNNING
    box.cloud.set_tags(box.here, made.id, {"gpuprov:expires-at": "none"})
    box.clock.pass_time(days=300)
    assert box.see(made).state is InstanceState.RUNNING
    box.cloud.set_tags(box.here, made.id, {"gpuprov:expires-at": format_time(box.cloud.now())})
    assert box.see(made).state is InstanceState.TERMINATED


def test_a_stopped_machine_outlives_its_lifetime_and_ends_when_it_starts_with_it(box):
    made = box.cloud.create_instance(_expiring(box, 1, stop_on_shutdown=True))
    box.clock.pass_time(hours=5)
    assert box.see(made).state is InstanceState.STOPPED
    box.cloud.start_instance(box.here, made.id)
    box.wait()
    assert box.see(made).state is InstanceState.STOPPED
    box.cloud.set_tags(box.here, made.id, {"gpuprov:expires-at": format_time(box.cloud.now() + timedelta(hours=1))})
    box.cloud.start_instance(box.here, made.id)
    box.wait()
    assert box.see(made).state is InstanceState.RUNNING


def test_the_clock_moves_forward_only_and_not_out_of_the_calendar(box):
    before = box.cloud.now()
    assert box.controls.advance_clock(timedelta(hours=2)) == before + timedelta(hours=2)
    assert box.cloud.now() == before + timedelta(hours=2)
    assert box.controls.clock_offset() == timedelta(hours=2)
    with pytest.raises(UsageError, match="forward only"):
        box.controls.advance_clock(timedelta(seconds=-1))
    with pytest.raises(UsageError, match="years ahead"):
        box.controls.advance_clock(timedelta(days=100_000))
    assert box.controls.clock_offset() == timedelta(hours=2)


def test_a_host_clock_that_steps_back_makes_no_negative_bill(box):
    box.running()
    box.clock.pass_time(hours=-5)
    bill = box.controls.bill()
    assert [line.billed_us for line in bill.lines] == [0, 0, 0]
    assert bill.total_usd == 0


def test_a_machine_with_a_root_disk_refuses_its_deletion(box):
    made = box.running()
    (root,) = [thing for thing in box.cloud.list_objects() if thing.extra.get("role") == "root"]
    with pytest.raises(Rejected, match=f"root disk of {made.id}"):
        box.cloud.delete_volume(box.here, root.id)
    box.cloud.terminate_instance(box.here, made.id)
    box.wait()
    box.cloud.delete_volume(box.here, root.id)


def test_reset_empties_everything(box):
    box.running()
    box.controls.set_capacity("aws/*/*/*/*", 1)
    box.controls.advance_clock(timedelta(hours=2))
    box.controls.reset()
    assert box.controls.bill().lines == ()
    assert box.controls.capacities() == []
    assert box.controls.calls() == []
    assert box.controls.clock_offset() == timedelta(0)
    assert box.running().private_ip == "10.0.0.10"


def test_reset_takes_a_damaged_file_away(box):
    box.running()
    box.cloud.close()
    for path in box.home.iterdir():
        path.write_bytes(b"broken" * 1000)
    box.controls.reset()
    assert box.controls.bill().lines == ()


@pytest.mark.parametrize("stops", [True, False])
def test_a_machine_that_was_taken_back_says_so_until_it_is_started(box, stops):
    made = box.cloud.create_instance(_expiring(box, 1, placement=box.spot, stop_on_shutdown=stops))
    box.clock.pass_time(minutes=5)
    assert box.see(made).ended is None
    box.controls.reclaim(made.id)
    box.clock.pass_time(minutes=5)
    assert box.see(made).ended == Ended(End.TAKEN_BACK, None)
    listed = [thing.extra.get("ended") for thing in box.cloud.list_objects() if thing.id == made.id]
    assert listed == (["taken-back"] if stops else [])
    if stops:
        box.cloud.start_instance(box.spot, made.id)
        assert box.see(made).ended is None
