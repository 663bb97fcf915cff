"""Machines: what lists show when, states, rules of stop and start, places and ids."""

from __future__ import annotations

import re
from dataclasses import replace
from datetime import timedelta

import pytest

from provisioner.clouds.cloud import InstanceState, Placement
from provisioner.clouds.sandbox.latencies import Latency
from provisioner.errors import CapacityError, NotFound, QuotaError, Rejected, TokenSpent
from provisioner.vocabulary import CapacityType


def test_a_new_machine_stays_invisible_for_a_while_but_the_token_finds_it(box):
    box.controls.set_latency(Latency("visibility", timedelta(seconds=5)))
    request = box.request()
    made = box.cloud.create_instance(request)
    for _ in range(5):
        assert box.see(made) is None
        assert box.cloud.find_instances({}, [box.here]) == []
        assert box.cloud.list_objects() == []
        assert box.cloud.create_instance(request).id == made.id
        box.clock.pass_time(seconds=1)
    assert box.see(made).state is InstanceState.RUNNING
    assert len(box.cloud.find_instances({}, [box.here])) == 1


def test_an_invisible_machine_can_still_be_ended_and_bills_until_then(box):
    box.controls.set_latency(Latency("visibility", timedelta(hours=1)))
    made = box.cloud.create_instance(box.request())
    assert {line.kind for line in box.controls.bill(running_only=True).lines} == {"instance", "root-volume", "ip"}
    box.cloud.terminate_instance(box.here, made.id)
    box.wait()
    assert box.controls.bill(running_only=True).lines == ()


def test_states_follow_the_clock(box):
    for name, seconds in (("boot", 30), ("stopping", 20), ("terminating", 40), ("visibility", 0)):
        box.controls.set_latency(Latency(name, timedelta(seconds=seconds)))
    made = box.cloud.create_instance(box.request())
    states = []

    def look(seconds: float) -> None:
        box.clock.pass_time(seconds=seconds)
        states.append(str(box.see(made).state))

    look(29)
    look(1)
    box.cloud.stop_instance(box.here, made.id)
    look(19)
    with pytest.raises(Rejected, match="stopping"):
        box.cloud.start_instance(box.here, made.id)
    look(1)
    box.cloud.start_instance(box.here, made.id)
    look(29)
    look(1)
    box.cloud.terminate_instance(box.here, made.id)
    look(39)
    look(1)
    assert states == ["pending", "running", "stopping", "stopped", "pending", "running", "terminating", "terminated"]


def test_a_change_that_takes_no_time_is_over_at_once(box):
    for name in ("boot", "stopping", "terminating", "visibility"):
        box.controls.set_latency(Latency(name, timedelta(0)))
    made = box.cloud.create_instance(box.request())
    assert box.see(made).state is InstanceState.RUNNING
    assert box.cloud.stop_instance(box.here, made.id).state is InstanceState.STOPPED
    assert box.cloud.start_instance(box.here, made.id).state is InstanceState.RUNNING
    box.cloud.terminate_instance(box.here, made.id)
    assert box.see(made).state is InstanceState.TERMINATED


def test_a_terminated_machine_is_shown_for_an_hour(box):
    made = box.running()
    box.cloud.terminate_instance(box.here, made.id)
    box.wait()
    assert box.see(made).state is InstanceState.TERMINATED
    box.clock.pass_time(minutes=58)
    assert len(box.cloud.find_instances({}, [box.here])) == 1
    box.clock.pass_time(minutes=3)
    assert box.see(made) is None
    assert box.cloud.find_instances({}, [box.here]) == []
    with pytest.raises(TokenSpent):
        box.cloud.create_instance(box.request())


@pytest.mark.parametrize("call", ["start_instance", "stop_instance"])
def test_a_machine_that_ends_or_has_ended_is_not_found(box, call):
    made = box.running()
    box.cloud.terminate_instance(box.here, made.id)
    for _ in range(2):
        with pytest.raises(NotFound, match=made.id):
            getattr(box.cloud, call)(box.here, made.id)
        box.wait()


def test_start_of_a_terminated_machine_does_not_bring_it_back(box):
    made = box.running()
    box.cloud.terminate_instance(box.here, made.id)
    box.wait()
    with pytest.raises(NotFound):
        box.cloud.start_instance(box.here, made.id)
    assert box.controls.bill(running_only=True).lines == ()


def test_start_without_capacity_leaves_it_stopped_and_whole(box):
    made = box.running()
    volume = box.cloud.create_volume(box.volume())
    box.cloud.attach_volume(box.here, made.id, volume.id)
    box.cloud.stop_instance(box.here, made.id)
    box.wait()
    box.controls.set_capacity(box.here.key, 0)
    before = box.see(made)
    with pytest.raises(CapacityError, match=r"g6\.xlarge in use1-az2"):
        box.cloud.start_instance(box.here, made.id)
    assert box.see(made) == before
    assert (before.state, before.volume_ids) == (InstanceState.STOPPED, (volume.id,))
    box.controls.set_capacity(box.here.key, 1)
    assert box.cloud.start_instance(box.here, made.id).id == made.id


def test_start_counts_against_the_quota(box):
    first = box.running("token-1")
    box.cloud.stop_instance(box.here, first.id)
    box.wait()
    box.controls.set_quota("aws", "us-east-1", "L-DB2E81BA", 4)
    second = box.running("token-2")
    with pytest.raises(QuotaError, match="need 4, have 4, used 4"):
        box.cloud.start_instance(box.here, first.id)
    box.cloud.terminate_instance(box.here, second.id)
    assert box.cloud.start_instance(box.here, first.id).state is InstanceState.PENDING


def test_a_stop_loses_the_public_address_and_the_local_disk_and_keeps_the_private_address(box):
    made = box.running()
    before = box.see(made)
    box.cloud.stop_instance(box.here, made.id)
    box.wait()
    stopped = box.see(made)
    assert (stopped.public_ip, stopped.private_ip) == (None, before.private_ip)
    assert stopped.console[-1] == "local disk: its data was lost with the stop"
    box.cloud.start_instance(box.here, made.id)
    box.wait()
    again = box.see(made)
    assert again.public_ip not in {None, before.public_ip}
    assert again.private_ip == before.private_ip


_STOP_TABLE = [
    (Placement("aws", "us-east-1", "use1-az2", "g6.xlarge", CapacityType.ON_DEMAND), None),
    (Placement("aws", "us-east-1", "use1-az2", "g6.xlarge", CapacityType.SPOT), "one-time spot"),
    (Placement("aws", "us-east-1", "use1-az6", "p4d.24xlarge", CapacityType.CAPACITY_BLOCK), "capacity-block"),
    (Placement("gcp", "us-central1", "us-central1-a", "g2-standard-8", CapacityType.ON_DEMAND), None),
    (Placement("gcp", "us-central1", "us-central1-a", "g2-standard-8", CapacityType.SPOT), None),
    (Placement("gcp", "us-central1", "us-central1-a", "a3-highgpu-8g", CapacityType.ON_DEMAND), "local SSD"),
    (Placement("gcp", "us-central1", "us-central1-a", "a3-highgpu-8g", CapacityType.SPOT), "local SSD"),
]


@pytest.mark.parametrize(("placement", "refusal"), _STOP_TABLE, ids=lambda cell: getattr(cell, "key", None))
def test_stop_follows_market_and_disks(box, placement, refusal):
    made = box.running(placement=placement)
    if refusal is None:
        box.cloud.stop_instance(placement, made.id)
        box.wait()
        assert box.see(made).state is InstanceState.STOPPED
    else:
        with pytest.raises(Rejected, match=refusal):
            box.cloud.stop_instance(placement, made.id)
        assert box.see(made).state is InstanceState.RUNNING


def test_a_request_without_zone_gets_the_first_zone_with_room(box):
    anywhere = replace(box.here, zone=None)
    first = box.running("token-1", placement=anywhere)
    assert first.placement.zone == "use1-az1"
    box.controls.set_capacity("aws/us-east-1/use1-az[12]/g6.xlarge/*", 0)
    second = box.running("token-2", placement=anywhere)
    assert second.placement.zone == "use1-az4"
    assert box.cloud.create_instance(box.request("token-2", placement=anywhere)).id == second.id
    box.controls.set_capacity("aws/us-east-1/*/*/*", 0)
    box.controls.set_capacity("aws/us-east-1/use1-az[12]/g6.xlarge/*", 0)
    with pytest.raises(CapacityError, match="use1-az1, use1-az2, use1-az4"):
        box.running("token-3", placement=anywhere)


def test_a_gcp_offer_that_names_no_zone_holds_in_each_zone_of_its_region(gcp_box):
    placement = replace(gcp_box.here, region="asia-east1", zone=None, instance_type="g4-standard-48")
    assert gcp_box.running(placement=placement).placement.zone == "asia-east1-a"


def test_ids_look_real_and_differ(box, gcp_box):
    ids = {box.running(f"token-{number}").id for number in range(50)}
    assert len(ids) == 50
    assert all(re.fullmatch(r"i-0[0-9a-f]{16}", one) for one in ids)
    assert re.fullmatch(r"vol-0[0-9a-f]{16}", box.cloud.create_volume(box.volume()).id)
    assert re.fullmatch(r"sg-0[0-9a-f]{16}", box.cloud.ensure_security_group(box.here, {"gpuprov:stack": "a"}, [], []))
    name = gcp_box.running(name="9_LLaMA 70b!" + "x" * 80).id
    assert re.fullmatch(r"[a-z]([-a-z0-9]{0,61}[a-z0-9])?", name)


def test_addresses_differ_between_machines(box):
    seen = [box.see(box.running(f"token-{number}")) for number in range(30)]
    assert len({machine.private_ip for machine in seen}) == 30
    assert len({machine.public_ip for machine in seen}) == 30


def test_a_name_is_taken_once_a_zone_on_gcp(gcp_box):
    first = gcp_box.running("token-1", name="chat")
    with pytest.raises(Rejected, match=f"alreadyExists.*{first.id}"):
        gcp_box.running("token-2", name="chat")
    gcp_box.running("token-3", name="chat", placement=gcp_box.next_zone)
    gcp_box.cloud.terminate_instance(gcp_box.here, first.id)
    gcp_box.wait()
    assert gcp_box.running("token-2", name="chat").id != first.id


def test_names_may_repeat_on_aws(box):
    assert box.running("token-1", name="chat").id != box.running("token-2", name="chat").id


def test_a_token_is_scoped_to_its_region(box):
    first = box.running("token-1")
    elsewhere = Placement("aws", "us-west-2", "usw2-az1", "g6.xlarge", CapacityType.ON_DEMAND)
    assert box.running("token-1", placement=elsewhere).id != first.id


@pytest.mark.parametrize(
    "change",
    [{"name": ""}, {"image": ""}, {"root_volume_bytes": 0}, {"tags": {"gpuprov:expires-at": "tomorrow"}}, {"key": ""}],
    ids=lambda change: next(iter(change)),
)
def test_a_request_that_makes_no_sense_is_rejected_and_makes_nothing(box, change):
    with pytest.raises(Rejected):
        box.cloud.create_instance(box.request(**change))
    assert box.controls.bill().lines == ()


def test_a_lifetime_that_nothing_could_keep_is_not_written(box):
    made = box.running()
    with pytest.raises(Rejected, match="expires-at"):
        box.cloud.set_tags(box.here, made.id, {"gpuprov:expires-at": "2026-12-01 10:00"})
    assert box.see(made).tags == made.tags


def test_reads_are_bound_to_the_region(box):
    made = box.running()
    elsewhere = replace(box.here, region="us-west-2", zone="usw2-az1")
    assert box.cloud.get_instance(elsewhere, made.id) is None
    box.cloud.terminate_instance(elsewhere, made.id)
    assert box.see(made).state is InstanceState.RUNNING
    with pytest.raises(NotFound):
        box.cloud.stop_instance(elsewhere, made.id)


def test_the_image_is_another_one_on_another_day(box, gcp_box):
    today = box.cloud.resolve_image(box.here)
    assert re.fullmatch(r"ami-0[0-9a-f]{16}", today)
    assert box.cloud.resolve_image(box.here) == today
    assert gcp_box.cloud.resolve_image(gcp_box.here).endswith("-20261130")
    box.controls.advance_clock(timedelta(days=1))
    assert box.cloud.resolve_image(box.here) != today
