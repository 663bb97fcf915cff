"""What somebody changes by hand on a machine of ours: each attribute is drift with both values, never an error.

One table: how it is changed, what is shown, and what the next ``up`` does about it.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import boto3
import pytest

from provisioner.clouds.aws import terms
from provisioner.clouds.cloud import Placement
from provisioner.tags import OWNER, RESOURCE, STACK_ID
from provisioner.vocabulary import CapacityType
from stacks.outcome import Drift, Outcome
from stacks.progress import drift_lines
from stacks.state import GPU_INSTANCE, VOLUME
from tests.clouds.aws.test_launches import DATA, AwsEngine
from tests.fakes import aws_rules
from tests.fakes.mini_engine import program

WANTED = program(disks=DATA, tags={"team": "search"})


@dataclass(frozen=True)
class Hand:
    """Somebody at the console or the command line of AWS."""

    ec2: Any
    machine: str
    root: str
    data: str
    group: str

    @property
    def model(self) -> Any:
        return aws_rules.machine("us-east-1", self.machine)

    def modify(self, **change: Any) -> None:
        self.ec2.modify_instance_attribute(InstanceId=self.machine, **change)

    def set_type(self, kind: str) -> None:
        self.ec2.stop_instances(InstanceIds=[self.machine])
        self.modify(InstanceType={"Value": kind})
        self.ec2.start_instances(InstanceIds=[self.machine])

    def metadata(self, **change: Any) -> None:
        """moto forgets the options that a call leaves out."""
        found = self.ec2.describe_instances(InstanceIds=[self.machine])["Reservations"][0]["Instances"][0]
        names = ("HttpTokens", "HttpEndpoint", "HttpPutResponseHopLimit")
        options = {name: found["MetadataOptions"][name] for name in names}
        self.ec2.modify_instance_metadata_options(InstanceId=self.machine, **options | change)

    def ends(self, device: str, ends: bool) -> None:
        mapping = {"DeviceName": device, "Ebs": {"DeleteOnTermination": ends}}
        self.modify(BlockDeviceMappings=[mapping])

    def profile(self) -> None:
        from moto.iam import iam_backends

        made = iam_backends[aws_rules.ACCOUNT]["aws"].create_instance_profile(name="admin", path="/", role_names=[])
        self.model.iam_instance_profile = made

    def another_group(self) -> None:
        vpc = self.ec2.describe_vpcs()["Vpcs"][0]["VpcId"]
        made = self.ec2.create_security_group(GroupName="wide", Description="wide", VpcId=vpc)["GroupId"]
        self.modify(Groups=[made])

    def open_ssh(self) -> None:
        rule = {"IpProtocol": "tcp", "FromPort": 22, "ToPort": 22, "IpRanges": [{"CidrIp": "0.0.0.0/0"}]}
        self.ec2.authorize_security_group_ingress(GroupId=self.group, IpPermissions=[rule])


@dataclass(frozen=True)
class Case:
    """One attribute: how it is changed, what a refresh shows, and whether ``up`` puts it right."""

    name: str
    change: Callable[[Hand], object]
    shown: str
    is_mended: bool = True


CASES = (
    Case("type", lambda h: h.set_type("g6.2xlarge"), "instance type is g6.2xlarge, not g6.xlarge; aws ec2 stop-instances", False),
    Case("image", lambda h: setattr(h.model, "image_id", aws_rules.OLD_IMAGE), f"image is {aws_rules.OLD_IMAGE}, not {aws_rules.IMAGE}", False),
    Case("market", lambda h: setattr(h.model, "lifecycle", "spot"), "market is spot, not on-demand", False),
    Case("key", lambda h: setattr(h.model, "key_name", "ana"), "key pair is ana, not none", False),
    Case("profile", Hand.profile, "instance profile is arn:aws:iam::123456789012:instance-profile/admin, not none; aws ec2 disassociate-iam-instance-profile", False),
    Case("tenancy", lambda h: setattr(h.model.placement, "tenancy", "dedicated"), "tenancy is dedicated, not default", False),
    Case("termination protection", lambda h: h.modify(DisableApiTermination={"Value": True}), "termination protection is on, not off", False),
    Case("stop protection", lambda h: h.modify(DisableApiStop={"Value": True}), "stop protection is on, not off", False),
    Case("root size", lambda h: h.ec2.modify_volume(VolumeId=h.root, Size=300), "size of the root disk is 300 GiB, not 100 GiB", False),
    Case("root speed", lambda h: h.ec2.modify_volume(VolumeId=h.root, Iops=9000, Throughput=500), "speed of the root disk is gp3, 9000 IOPS, 500 MiB/s, not gp3, 3000 IOPS, 125 MiB/s"),
    Case("root kind", lambda h: h.ec2.modify_volume(VolumeId=h.root, VolumeType="io2", Iops=4000), "speed of the root disk is io2, 4000 IOPS"),
    Case("root stays", lambda h: h.ends("/dev/sda1", False), "with its machine is no, not yes"),
    Case("data ends", lambda h: h.ends("/dev/sdf", True), "with its machine is yes, not no"),
    Case("shutdown", lambda h: h.modify(InstanceInitiatedShutdownBehavior={"Value": "terminate"}), "what a shutdown from inside does is terminate, not stop"),
    Case("tokens", lambda h: h.metadata(HttpTokens="optional"), "metadata service: session tokens (IMDSv2) is optional, not required"),
    Case("metadata off", lambda h: h.metadata(HttpEndpoint="disabled"), "metadata service is disabled, not enabled"),
    Case("hops", lambda h: h.metadata(HttpPutResponseHopLimit=64), "metadata service: hops is 64, not 1"),
    Case("groups", Hand.another_group, "security groups is sg-"),
    Case("open port", Hand.open_ssh, "tcp 22 from 0.0.0.0/0 is open in its security group; `up` puts it right"),
    Case("tag lost", lambda h: h.ec2.delete_tags(Resources=[h.machine], Tags=[{"Key": OWNER}, {"Key": "team"}]), "cloudTags.team is none, was search"),
    Case("tag changed", lambda h: h.ec2.create_tags(Resources=[h.machine], Tags=[{"Key": "team", "Value": "ads"}]), "cloudTags.team is ads, was search"),
    Case("stopped", lambda h: h.ec2.stop_instances(InstanceIds=[h.machine]), "GpuInstance gpu is stopped, was running"),
    Case("detached", lambda h: h.ec2.detach_volume(VolumeId=h.data, InstanceId=h.machine, Device="/dev/sdf"), "volumeIds is none, was vol-"),
    Case("data tags", lambda h: h.ec2.delete_tags(Resources=[h.data], Tags=[{"Key": STACK_ID}, {"Key": RESOURCE}]), "lacksTags is True, was False"),
    Case("data size", lambda h: h.ec2.modify_volume(VolumeId=h.data, Size=900), "diskSize is 900GiB, was 50GiB", False),
    Case("data speed", lambda h: h.ec2.modify_volume(VolumeId=h.data, Iops=9000, Throughput=500), "diskSpeed is gp3, 9000 IOPS, 500 MiB/s, was gp3, 3000 IOPS, 125 MiB/s"),
    Case("data kind", lambda h: h.ec2.modify_volume(VolumeId=h.data, VolumeType="io2", Iops=4000), "diskSpeed is io2, was gp3"),
)  # fmt: skip

LATER = ("data tags", "root kind", "data kind", "tag changed", "detached", "stopped")
"""Changed in a round of their own, since another change of the same thing is in the first."""
HERE = Placement("aws", "us-east-1", None, "g6.xlarge", CapacityType.ON_DEMAND)


@pytest.fixture
def mini(aws_rig, home):
    return AwsEngine(aws_rig.cloud, home)


@pytest.fixture
def hand(mini):
    for _ in range(3):  # the disk's own entry learns its place with the second
        mini.up(WANTED)
    outputs = mini.outputs("gpu")
    ec2 = boto3.client("ec2", region_name="us-east-1")
    model = aws_rules.machine("us-east-1", outputs["instanceId"])
    root = next(iter(model.block_device_mapping.values())).volume_id
    yield Hand(ec2, outputs["instanceId"], root, outputs["volumeIds"][0], outputs["securityGroups"][0]["id"])
    ec2.close()


def seen(mini):
    """What ``refresh`` shows, line by line."""
    before = {name: mini.outputs(name) for name in ("gpu", "data")}
    mini.refresh()
    found = [
        Drift(kind, name, before[name].get("instanceId"), is_gone=False, before=before[name], after=mini.outputs(name))
        for name, kind in (("gpu", GPU_INSTANCE), ("data", VOLUME))
    ]
    return drift_lines(Outcome(drift=tuple(found)))


ROUNDS = (
    [case for case in CASES if case.is_mended and case.name not in LATER],
    [case for case in CASES if case.is_mended and case.name in LATER],
    [case for case in CASES if not case.is_mended],
)


@pytest.mark.parametrize("cases", ROUNDS, ids=("put right", "put right too", "told"))
def test_a_change_by_hand_is_drift_with_both_values_and_never_an_error(mini, hand, aws_rig, cases):
    assert seen(mini) == []
    for case in cases:
        case.change(hand)
    lines = seen(mini)
    missing = [case.name for case in cases if not any(case.shown in line for line in lines)]
    assert missing == [], lines
    steps = mini.up(WANTED)
    assert "replace" not in {kind for _, kind in steps}
    assert mini.outputs("gpu")["instanceId"] == hand.machine
    assert mini.outputs("gpu")["volumeIds"] == [hand.data]
    assert len(aws_rig.fake.of("RunInstances")) == len(aws_rig.fake.of("CreateVolume")) == 1
    after = seen(mini)
    # A data disk that is larger is taken over: it cannot shrink.
    told = [case for case in cases if not case.is_mended and case.name != "data size"]
    assert [case.name for case in told if not any(case.shown in line for line in after)] == []
    assert bool(after) == bool(told), after
    assert {kind for _, kind in mini.up(WANTED)} == {"same"}


def test_every_attribute_that_is_compared_is_in_the_table():
    """A comparison that is added needs a case: what it says begins a line of the table."""
    source = inspect.getsource(terms)
    named = re.findall(r'ForeignChange\(\s*"([^"]+)"', source)
    named += [what for what, _ in (*terms._METADATA.values(), *terms._PROTECTIONS.values())] + [terms.ROOT_SPEED]
    settled = {"zone", "subnet", "VPC"}  # never changes; the test below makes another machine carry our tags
    shown = [case.shown for case in CASES]
    assert [what for what in named if what not in settled and not any(what in text for text in shown)] == []


def test_a_copy_of_the_machine_with_its_tags_is_told_for_what_it_is(mini, hand):
    """ "Launch more like this" copies tags; once the first machine is gone, the copy is the one of the slot."""
    tags = [{"Key": key, "Value": value} for key, value in mini.cloud.get_instance(HERE, hand.machine).tags.items()]
    made = hand.ec2.run_instances(
        ImageId=aws_rules.OLD_IMAGE,
        InstanceType="g6.2xlarge",
        MinCount=1,
        MaxCount=1,
        Placement={"AvailabilityZone": hand.model.placement.zone},
        TagSpecifications=[{"ResourceType": "instance", "Tags": tags}],
    )["Instances"][0]["InstanceId"]
    hand.ec2.terminate_instances(InstanceIds=[hand.machine])
    lines = seen(mini)
    assert mini.outputs("gpu")["instanceId"] == made
    assert any("instance type is g6.2xlarge, not g6.xlarge" in line for line in lines), lines
    assert any(f"image is {aws_rules.OLD_IMAGE}, not {aws_rules.IMAGE}" in line for line in lines), lines
    assert "replace" not in {kind for _, kind in mini.up(WANTED)}


def test_what_may_not_be_read_is_unknown_and_is_said(mini, hand, aws_rig):
    mini.session = replace(mini.session, warn=mini.session.tell)
    hand.modify(DisableApiTermination={"Value": True})
    aws_rig.fake.inject("DescribeInstanceAttribute", "UnauthorizedOperation", times=9)
    hand.metadata(HttpTokens="optional")
    lines = seen(mini)
    assert any("session tokens (IMDSv2) is optional" in line for line in lines)
    assert not any("termination protection" in line for line in lines)
    assert any("is not known in full: UnauthorizedOperation" in text for text in mini.told)


def test_a_root_disk_that_was_to_stay_ends_with_its_machine_all_the_same(mini, hand):
    hand.ends("/dev/sda1", False)
    mini.destroy()
    assert aws_rules.backend("us-east-1").volumes == {}
