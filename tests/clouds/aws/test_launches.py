"""Whole launches on EC2 without the engine: failover, lost answers, kills, drift, spot loss, teardown. Ids name scenario rows."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import pytest

from provisioner.clouds.aws.cloud import AwsCloud
from provisioner.clouds.cloud import Placement
from provisioner.errors import Ambiguous, CapacityError, CredentialsError, QuotaError, Rejected
from provisioner.vocabulary import CapacityType
from stacks.provider.lifeline import Lifeline
from stacks.provider.patience import PatientCloud
from stacks.provider.session import PartialFailure, ProviderFailure, Session
from tests.clouds.conftest import read_catalog_once
from tests.fakes import aws_rules
from tests.fakes.mini_engine import MiniEngine, offer, program

ZONES = {
    "us-east-1": ("use1-az1", "use1-az2", "use1-az4", "use1-az5", "use1-az6"),
    "us-west-2": ("usw2-az1", "usw2-az2", "usw2-az3"),
    "eu-west-1": ("euw1-az1", "euw1-az2"),
}
MANY = [
    offer(zone, region, kind)
    for region, zones in ZONES.items()
    for zone in zones
    for kind in ("g5.xlarge", "g6.xlarge", "g6e.xlarge")
][:25]
DATA = {"data": 50 * 2**30}
ON_DEMAND = CapacityType.ON_DEMAND


class Killed(BaseException):
    """The process was killed here."""


class QuickLifeline(Lifeline):
    """Waits a hundredth of what is asked for, and keeps count."""

    asked_s = 0.0

    def sleep(self, seconds: float) -> None:
        self.asked_s += seconds
        super().sleep(seconds / 100)


@dataclass
class AwsEngine(MiniEngine):
    """The engine's part over EC2; each restart is a new process that has asked nothing yet."""

    cloud: Any

    def restart(self) -> None:
        self.cloud = AwsCloud(catalog=read_catalog_once)
        lifeline = QuickLifeline()
        patient = PatientCloud(self.cloud, lifeline)
        self.session = Session("aws", patient, self.home, lifeline, lambda _urn, text: self.told.append(text))


@pytest.fixture
def mini(aws_rig, home):
    return AwsEngine(aws_rig.cloud, home)


@pytest.fixture
def fake(aws_rig):
    return aws_rig.fake


def living():
    """Machines that bill, over all regions."""
    models = [aws_rules.backend(region) for region in aws_rules.REGIONS]
    machines = [one for model in models for one in model.all_instances()]
    return [one for one in machines if one._state.name not in ("terminated", "shutting-down")]


def leftovers():
    """Everything of ours in the account: machines, disks, groups, addresses, interfaces, templates, buckets."""
    from moto.s3.models import s3_backends

    found = [one.id for one in living()]
    found += [bucket for backends in s3_backends.values() for bucket in backends["aws"].buckets]
    for region in aws_rules.REGIONS:
        model = aws_rules.backend(region)
        found += [*model.volumes, *model.addresses, *model.launch_templates, *model.enis]
        found += [group.id for groups in model.groups.values() for group in groups.values() if group.name != "default"]
    return found


@pytest.mark.parametrize("full", [0, 1, 9, 24])
def test_e8_k_offers_without_capacity_cost_k_create_calls_and_one(mini, fake, full):
    fake.inject("RunInstances", "InsufficientInstanceCapacity", times=full)  # with status 500, as EC2 sends it
    mini.up(program(offers=MANY, wait="created"))
    assert len(fake.of("RunInstances")) == full + 1
    assert mini.session.lifeline.asked_s == 0  # no refusal is waited out
    attempts = mini.outputs("gpu")["attempts"]
    assert [attempt["outcome"] for attempt in attempts] == ["capacity"] * full + ["created"]
    assert len(living()) == 1
    tried = {entry["region"] for entry in MANY[: full + 1]}
    assert len(fake.of("CreateSecurityGroup")) == len(tried)
    for operation in ("DescribeAvailabilityZones", "DescribeVpcs", "DescribeImages"):
        assert len(fake.of(operation)) == len(tried), operation


def test_c7_zones_without_room_are_passed_over_and_told(mini, fake):
    model = aws_rules.backend("us-east-1")
    letters = {zone.zone_id: zone.name for zone in model.describe_availability_zones()}
    for zone in ("use1-az1", "use1-az2"):
        fake.capacity[letters[zone], "g6.xlarge"] = 0
    mini.up(program(offers=[offer("use1-az1"), offer("use1-az2"), offer("use1-az4")]))
    outputs = mini.outputs("gpu")
    assert outputs["zone"] == "use1-az4"
    assert [attempt["outcome"] for attempt in outputs["attempts"]] == ["capacity", "capacity", "created"]


def test_c6_an_invalid_request_and_a_missing_right_stop_at_once_and_are_no_want_of_capacity(mini, fake):
    for code, kind, exit_code in (
        ("InvalidParameterValue", Rejected, 4),
        ("UnauthorizedOperation", CredentialsError, 3),
    ):
        fake.inject("RunInstances", code)
        before = len(fake.of("RunInstances"))
        with pytest.raises(ProviderFailure) as failure:
            mini.up(program(offers=MANY))
        assert type(failure.value.cause) is kind
        assert failure.value.cause.exit_code == exit_code
        assert code in failure.value.cause.message
        assert len(fake.of("RunInstances")) == before + 1
    assert living() == []


def test_quota_takes_its_family_along_and_other_regions_are_tried(mini, fake):
    fake.quotas["us-east-1", "L-DB2E81BA"] = 0.0
    mini.up(program(offers=MANY))
    outputs = mini.outputs("gpu")
    assert outputs["region"] == "us-west-2"
    assert len(fake.of("RunInstances")) == 1
    assert [attempt["outcome"] for attempt in outputs["attempts"]].count("quota") == 1


def test_only_quota_everywhere_is_a_quota_error(mini, fake):
    for region in ZONES:
        fake.quotas[region, "L-DB2E81BA"] = 0.0
    with pytest.raises(ProviderFailure) as failure:
        mini.up(program(offers=MANY))
    assert type(failure.value.cause) is QuotaError
    assert "request-service-quota-increase" in failure.value.cause.remedy
    assert fake.of("RunInstances") == []


def test_e7_a_lost_answer_costs_a_second_call_and_no_second_machine(mini, fake):
    fake.inject("RunInstances", do="lost")
    mini.up(program())
    first, second = fake.of("RunInstances")
    assert first.parameters == second.parameters
    assert len(living()) == 1


def test_c2_a_region_whose_quota_holds_the_machine_is_taken_where_another_has_too_little(mini, fake):
    """48 vCPUs, of which one region allows 8."""
    fake.quotas["us-east-1", "L-DB2E81BA"], fake.quotas["us-west-2", "L-DB2E81BA"] = 8.0, 48.0
    offers = [offer("use1-az1", kind="g6.12xlarge"), offer("usw2-az1", "us-west-2", kind="g6.12xlarge")]
    with pytest.raises(ProviderFailure, match="need 48 vCPU, have 8, used 0") as failure:
        mini.up(program(offers=offers[:1]))
    assert failure.value.cause.exit_code == 10
    assert fake.of("RunInstances") == []
    mini.up(program(offers=offers))
    assert mini.outputs("gpu")["region"] == "us-west-2"
    assert [call.region for call in fake.of("RunInstances")] == ["us-west-2"]


def test_e4_the_token_of_a_machine_that_ended_is_told_as_such_and_the_next_one_is_new(mini, fake, monkeypatch):
    def kill(request):
        made = AwsCloud.create_instance(mini.cloud, request)
        aws_rules.terminate("us-east-1", made.id)
        raise Killed

    monkeypatch.setattr(mini.cloud, "create_instance", kill)
    with pytest.raises(Killed):
        mini.up(program())
    mini.restart()
    mini.up(program())
    outputs = mini.outputs("gpu")
    spent, *others = [call.parameters["ClientToken"] for call in fake.of("RunInstances")]
    assert spent not in others[-1:]
    assert others[:-1] == [spent] * 2  # once to settle what the killed run left open, once in its turn
    assert [one.id for one in living()] == [outputs["instanceId"]]


def test_e12_tags_are_in_the_create_call_so_that_no_later_call_can_lose_them(mini, fake):
    fake.inject("CreateTags", "InvalidInstanceID.NotFound", times=99)
    mini.up(program(disks=DATA))
    assert fake.of("CreateTags") == []
    stack_id = mini.outputs("launch")["stackId"]
    (machine,) = living()
    assert {tag["key"]: tag["value"] for tag in machine.get_tags()}["gpuprov:stack-id"] == stack_id
    for volume in aws_rules.backend("us-east-1").volumes.values():
        assert stack_id in {tag["value"] for tag in volume.get_tags()}


def test_an_answer_that_never_comes_is_found_by_tag(mini, fake):
    fake.inject("RunInstances", do="lost")
    fake.inject("RunInstances", do="reset", times=99)
    mini.up(program())
    assert len(living()) == 1
    assert mini.outputs("gpu")["instanceId"] == living()[0].id


def test_throttling_is_waited_out(mini, fake):
    fake.inject("RunInstances", "RequestLimitExceeded", times=3)
    fake.inject("DescribeSecurityGroups", "RequestLimitExceeded", times=2)
    mini.up(program())
    assert len(living()) == 1
    assert len(fake.of("RunInstances")) == 4


@pytest.mark.parametrize("end", [Killed, KeyboardInterrupt], ids=["e1 killed", "l6 interrupted"])
@pytest.mark.parametrize("shows_after_s", [0.0, 0.4])
def test_e1_l6_a_kill_after_the_call_is_adopted_by_the_next_run(mini, fake, monkeypatch, shows_after_s, end):
    fake.rules.visibility_s = shows_after_s

    def kill(request):
        AwsCloud.create_instance(mini.cloud, request)
        raise end

    monkeypatch.setattr(mini.cloud, "create_instance", kill)
    with pytest.raises(end):
        mini.up(program())
    assert len(fake.of("RunInstances")) == 1
    mini.restart()
    mini.up(program())
    assert len(living()) == 1
    assert mini.outputs("gpu")["instanceId"] == living()[0].id
    assert len({call.parameters["ClientToken"] for call in fake.of("RunInstances")}) == 1


def test_e2_twenty_kills_make_one_machine(mini, monkeypatch):
    def kill(request):
        AwsCloud.create_instance(mini.cloud, request)
        raise Killed

    for _ in range(20):
        mini.restart()
        monkeypatch.setattr(mini.cloud, "create_instance", kill)
        # Later runs find the machine by its tags before they call.
        try:
            mini.up(program(offers=MANY[:3]))
        except Killed:
            mini.state.pop("gpu", None)
        assert len(living()) == 1


def test_l2_a_machine_that_does_not_show_for_a_while_is_not_taken_for_gone(mini, fake):
    fake.rules.visibility_s = 0.5
    mini.up(program())
    assert mini.up(program()) == [("launch", "same"), ("gpu", "same")]
    assert len(living()) == 1
    assert mini.outputs("gpu")["power"] == "running"


def test_l14_p17_a_stack_with_a_disk_lives_changes_nothing_and_leaves_nothing(mini, fake):
    mini.up(program(disks=DATA))
    before = len(fake.of("RunInstances"))
    assert {step for _, step in mini.up(program(disks=DATA))} <= {"same", "update"}
    assert {step for _, step in mini.up(program(disks=DATA))} == {"same"}
    assert len(fake.of("RunInstances")) == before == 1
    (machine,) = living()
    assert len(machine.block_device_mapping) == 2
    mini.destroy()
    assert leftovers() == []


def test_a_machine_that_somebody_ended_is_made_again_with_its_disk(mini):
    mini.up(program(disks=DATA))
    first = mini.outputs("gpu")
    aws_rules.terminate("us-east-1", first["instanceId"])
    mini.refresh()
    assert mini.outputs("gpu")["power"] == "terminated"
    mini.up(program(disks=DATA))
    second = mini.outputs("gpu")
    assert second["instanceId"] != first["instanceId"]
    assert (second["volumeIds"], second["zone"]) == (first["volumeIds"], first["zone"])
    mini.destroy()
    assert leftovers() == []


def test_p5_the_price_limit_of_the_spec_goes_to_ec2_with_a_spot_request(mini, fake):
    workload = {"name": "chat", "task": "batch", "placement": {"max_price": "0.50 USD/h"}}
    offers = [offer("use1-az1", capacity="spot"), offer("use1-az2")]
    fake.inject("RunInstances", "SpotMaxPriceTooLow")
    mini.up(program(workload=workload, offers=offers))
    spot, on_demand = [call.parameters for call in fake.of("RunInstances")]
    assert spot["InstanceMarketOptions.SpotOptions.MaxPrice"] == "0.5"
    assert not any(key.endswith("MaxPrice") for key in on_demand)
    assert [attempt["outcome"] for attempt in mini.outputs("gpu")["attempts"]] == ["capacity", "created"]


def test_c15_after_a_spot_loss_the_next_machine_starts_in_another_region(mini):
    offers = [offer("use1-az1", capacity="spot"), offer("usw2-az1", "us-west-2", capacity="spot")]
    mini.up(program(offers=offers))
    lost = mini.outputs("gpu")
    aws_rules.interrupt("us-east-1", lost["instanceId"])
    mini.refresh()
    assert mini.outputs("gpu")["power"] == "interrupted"
    mini.up(program(offers=offers))
    assert mini.outputs("gpu")["region"] == "us-west-2"
    assert len(living()) == 1


def test_a_pool_that_took_a_machine_back_is_known_to_every_stack_and_asked_last(mini, fake):
    offers = [offer("use1-az1", capacity="spot"), offer("use1-az2", capacity="spot")]
    mini.up(program(offers=offers))
    lost = mini.outputs("gpu")["instanceId"]
    aws_rules.interrupt("us-east-1", lost)
    for _ in range(2):
        mini.refresh()
    key = "aws/us-east-1/use1-az1/g6.xlarge/spot"
    kept = json.loads((mini.home / "unavailable.json").read_text())
    assert set(kept) == {key}
    assert kept[key]["reason"] == "a spot machine was taken back there"
    mini.up(program(offers=offers))
    assert mini.outputs("gpu")["zone"] == "use1-az2"
    assert len(fake.of("RunInstances")) == 2
    assert len(living()) == 1
    mini.destroy()
    assert leftovers() == []


def test_a_pool_that_took_a_machine_back_is_asked_again_where_the_data_disk_allows_no_other(mini):
    offers = [offer("use1-az1", capacity="spot")]
    mini.up(program(offers=offers, disks=DATA))
    first = mini.outputs("gpu")
    aws_rules.interrupt("us-east-1", first["instanceId"])
    mini.up(program(offers=offers, disks=DATA))
    second = mini.outputs("gpu")
    assert second["instanceId"] != first["instanceId"]
    assert (second["volumeIds"], second["zone"]) == (first["volumeIds"], "use1-az1")
    assert len(living()) == 1


@pytest.fixture
def persistent_spot():
    """A program whose spot machine is asked for persistently, as one that the spec lets stop is."""
    workload = {"name": "chat", "task": "batch", "lifecycle": {"idle": {"after": "30m", "then": "stop"}}}
    return program(workload=workload, offers=[offer("use1-az1", capacity="spot")])


def test_a_persistent_machine_that_was_taken_back_is_ec2s_to_start_and_stays_the_only_one(mini, fake, persistent_spot):
    mini.up(persistent_spot)
    machine = mini.outputs("gpu")["instanceId"]
    aws_rules.interrupt_and_stop("us-east-1", machine)
    mini.refresh()
    assert mini.outputs("gpu")["power"] == "stopped"
    assert set(json.loads((mini.home / "unavailable.json").read_text())) == {"aws/us-east-1/use1-az1/g6.xlarge/spot"}
    with pytest.raises(PartialFailure) as told:
        mini.up(persistent_spot)
    assert isinstance(told.value.cause, CapacityError)
    assert "EC2 itself starts it again" in told.value.cause.message
    aws_rules.resume("us-east-1", machine)
    mini.refresh()
    assert mini.outputs("gpu")["power"] == "running"
    mini.up(persistent_spot)
    assert mini.outputs("gpu")["instanceId"] == machine
    assert len(fake.of("RunInstances")) == 1
    assert [one.id for one in living()] == [machine]
    mini.destroy()
    assert leftovers() == []
    assert fake.rules.relaunched == []


def test_e16_a_machine_that_somebody_ended_leaves_no_request_that_starts_others(mini, fake, persistent_spot):
    """Nothing else finds such a machine: it carries no tags."""
    mini.up(persistent_spot)
    first = mini.outputs("gpu")["instanceId"]
    aws_rules.terminate("us-east-1", first)
    assert fake.rules.relaunched
    mini.up(persistent_spot)
    second = mini.outputs("gpu")["instanceId"]
    assert [one.id for one in living()] == [second]
    mini.destroy()
    assert leftovers() == []
    assert {one["State"] for one in fake.rules.spot_requests.values()} == {"cancelled"}


def test_e16_the_end_of_a_launch_ends_requests_that_the_state_has_lost(mini, persistent_spot):
    mini.up(persistent_spot)
    aws_rules.terminate("us-east-1", mini.outputs("gpu")["instanceId"])
    del mini.state["gpu"]
    mini.home /= "another-host"
    mini.restart()
    mini.destroy()
    assert living() == []


def test_c13_c14_a_stopped_machine_that_cannot_start_stays_and_no_other_is_made(mini, fake):
    mini.up(program(power="stopped"))
    stopped = mini.outputs("gpu")["instanceId"]
    model = aws_rules.backend("us-east-1")
    for zone in model.describe_availability_zones():
        fake.capacity[zone.name, "g6.xlarge"] = 0
    with pytest.raises(PartialFailure) as failure:
        mini.up(program())
    assert type(failure.value.cause) is CapacityError
    assert "no other machine was made" in str(failure.value.cause)
    assert "snapshot its disks" in failure.value.cause.remedy
    assert aws_rules.machine("us-east-1", stopped)._state.name == "stopped"
    assert len(fake.of("RunInstances")) == 1
    fake.capacity.clear()
    mini.up(program())
    assert mini.outputs("gpu")["instanceId"] == stopped
    assert mini.outputs("gpu")["power"] == "running"


def test_l3_an_end_without_an_answer_keeps_the_machine_in_the_state(mini, fake):
    mini.up(program())
    fake.inject("TerminateInstances", do="reset", times=99)
    with pytest.raises(Ambiguous):
        mini.destroy()
    mini.refresh()
    assert mini.outputs("gpu")["power"] == "running"  # nothing confirms an end
    assert len(living()) == 1
    fake.faults.clear()
    fake.rules.ending_s = 60.0
    fake.inject("TerminateInstances", do="lost", times=99)
    (machine,) = living()
    mini.session.cloud.terminate_instance(Placement("aws", "us-east-1", None, "g6.xlarge", ON_DEMAND), machine.id)
    mini.refresh()
    assert mini.outputs("gpu")["power"] == "terminating"  # told to, and not over
    fake.faults.clear()
    machine.due = (0.0, "terminated")
    mini.destroy()
    assert leftovers() == []


def test_l15_expired_credentials_end_nothing_and_forget_nothing(mini, fake):
    mini.up(program(disks=DATA))
    fake.inject("*", "ExpiredToken", times=999)
    with pytest.raises(CredentialsError, match="ExpiredToken"):
        mini.destroy()
    assert set(mini.state) == {"launch", "data", "gpu"}
    fake.faults.clear()
    mini.destroy()
    assert leftovers() == []


def test_l1_what_failed_half_way_is_kept_and_ended_later(mini, fake):
    fake.inject("AttachVolume", "UnauthorizedOperation", times=99)
    with pytest.raises(PartialFailure) as failure:
        mini.up(program(disks=DATA))
    assert type(failure.value.cause) is CredentialsError
    assert mini.outputs("gpu")["instanceId"] == living()[0].id
    assert len(fake.of("RunInstances")) == 1
    fake.faults.clear()
    mini.up(program(disks=DATA))
    assert len(mini.outputs("gpu")["volumeIds"]) == 1
    assert len(fake.of("RunInstances")) == 1
    mini.destroy()
    assert leftovers() == []


def test_a_machine_that_ends_while_it_starts_is_told_with_its_reason(mini, fake, monkeypatch):
    fake.rules.boot_s = 60.0
    create = AwsCloud.create_instance

    def end(cloud, request):
        made = create(cloud, request)
        aws_rules.interrupt("us-east-1", made.id)
        return made

    monkeypatch.setattr(AwsCloud, "create_instance", end)
    with pytest.raises(ProviderFailure) as failure:
        mini.up(program(offers=[offer("use1-az1", capacity="spot")]))
    assert "interrupted: Server.SpotInstanceTermination: taken back" in failure.value.attempts[0].message
    assert living() == []


@pytest.mark.parametrize(
    ("code", "remedy"),
    [("Client.InternalError", "aws.kms_key"), ("Client.InvalidKMSKey.InvalidState", "kms:CreateGrant")],
)
def test_a_key_that_cannot_be_used_ends_the_walk_after_one_machine(mini, fake, monkeypatch, code, remedy):
    """EC2 takes such a call, and ends the machine while it starts: each further offer would cost another one."""
    fake.rules.boot_s = 60.0
    create = AwsCloud.create_instance

    def end(cloud, request):
        made = create(cloud, request)
        aws_rules.fail_launch("us-east-1", made.id, code)
        return made

    monkeypatch.setattr(AwsCloud, "create_instance", end)
    with pytest.raises(ProviderFailure) as failure:
        mini.up(program())
    assert type(failure.value.cause) is Rejected
    assert code in failure.value.cause.message
    assert remedy in failure.value.cause.remedy
    assert len(fake.of("RunInstances")) == 1
    assert living() == []


def test_an_account_without_a_default_vpc_is_told_so_after_all_regions(mini, fake):
    for region in ("us-east-1", "us-west-2"):
        for vpc in aws_rules.backend(region).vpcs.values():
            vpc.is_default = "false"
    with pytest.raises(ProviderFailure) as failure:
        mini.up(program(offers=[offer("use1-az1"), offer("usw2-az1", "us-west-2")]))
    assert [attempt.outcome for attempt in failure.value.attempts] == ["capacity", "capacity"]
    assert "no subnet for any of 2 offers: there is no default VPC in us-east-1" in failure.value.cause.message
    assert "create-default-vpc" in failure.value.cause.remedy
    assert fake.of("RunInstances") == []
    landed = mini.up(program(offers=[offer("use1-az1"), offer("euw1-az1", "eu-west-1", "g5.xlarge")]))
    assert landed
    assert mini.outputs("gpu")["region"] == "eu-west-1"


def test_offers_of_regions_without_the_pinned_image_are_passed_over(mini, fake):
    """An image belongs to one region, and a plan may span several."""
    workload = {**program()["workload"], "aws": {"image": aws_rules.IMAGE}}
    aws_rules.backend("us-west-2").amis.pop(aws_rules.IMAGE)
    mini.up(program(workload=workload, offers=[offer("usw2-az1", "us-west-2"), offer("use1-az1")]))
    assert mini.outputs("gpu")["region"] == "us-east-1"
    assert len(fake.of("RunInstances")) == 1
    mini.destroy()
    workload = {**workload, "aws": {"image": "ami-0fffffffffffffff0"}}
    with pytest.raises(ProviderFailure) as failure:
        mini.up(program(workload=workload))
    assert type(failure.value.cause) is Rejected
    assert "image ami-0fffffffffffffff0 does not exist in us-east-1" in failure.value.cause.message
    assert len(fake.of("RunInstances")) == 1


def test_foreign_machines_that_look_alike_are_never_touched(mini, aws_rig):
    mini.up(program())
    ours = mini.outputs("gpu")["instanceId"]
    shown = aws_rig.cloud.get_instance(aws_rig.here, ours)
    look_alike = {key: value for key, value in shown.tags.items() if key != "gpuprov:stack-id"}
    foreign = aws_rig.cloud.create_instance(aws_rig.request("foreign", name=shown.name, tags=look_alike))
    mini.destroy()
    assert [one.id for one in living()] == [foreign.id]
