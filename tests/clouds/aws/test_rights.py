"""The least rights: each policy allows exactly the calls that its purpose really makes."""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime, timedelta
from pathlib import Path

import boto3
import pytest

from provisioner.cli.main import COMMANDS, run
from provisioner.clouds.aws import rights
from provisioner.clouds.aws.cloud import AwsCloud
from provisioner.clouds.aws.settings import AwsSettings
from provisioner.clouds.cloud import Terms
from provisioner.node import boot
from provisioner.units import GIB, DiskSpeed
from provisioner.vocabulary import CapacityType
from tests.clouds.conftest import read_catalog_once
from tests.fakes import aws_journal, aws_rules, iam

IAM_NAMES = {"monitoring": "cloudwatch"}
"""CloudWatch's calls are signed under another name than IAM gives its rights."""
MAKING_STRAYS = {"ec2:AllocateAddress", "ec2:CreateNetworkInterface", "ec2:CreateSnapshot", "ec2:CreateVolume"}
FREE = {"sts:GetCallerIdentity"}
"""Allowed to everybody."""


def made(fake):
    """The calls so far as IAM names them."""
    return {f"{IAM_NAMES.get(call.service, call.service)}:{call.operation}" for call in fake.calls} - FREE


def change_by_hand(machine):
    """Somebody lets a machine's root disk stay and its metadata service answer without a token."""
    model = aws_rules.machine("us-east-1", machine)
    model.metadata_options.http_tokens = "optional"
    next(iter(model.block_device_mapping.values())).delete_on_termination = False


def life(rig, cloud, key, **request):
    """Everything that ``up``, ``stop``, ``start`` and ``down`` do with one machine."""
    place = request.get("placement", rig.here)
    image = cloud.resolve_image(place)
    group = cloud.ensure_security_group(place, rig.request(image=image).tags, ["203.0.113.7/32"], [8000])
    cloud.ensure_security_group(place, rig.request(image=image).tags, [], [])
    machine = cloud.create_instance(rig.request(key, image=image, security_group=group, **request))
    volume = cloud.create_volume(rig.volume(key, zone=machine.placement.zone))
    cloud.attach_volume(place, machine.id, volume.id)
    cloud.grow_volume(place, volume.id, 600 * GIB)
    cloud.set_root_speed(place, machine.id, DiskSpeed(3000, 250))
    change_by_hand(machine.id)
    terms = Terms(root_speed=DiskSpeed(3000, 250))
    assert len(cloud.inspect(place, machine.id, terms).changes) == 2
    cloud.put_right(place, machine.id, terms)
    assert cloud.inspect(place, machine.id, terms).changes == ()
    cloud.set_tags(place, machine.id, {"Name": "chat of ana"})
    if place.capacity_type is not CapacityType.SPOT:
        cloud.set_shutdown(place, machine.id, stops=True)
    assert cloud.stop_refusal(place, machine.id) is None
    cloud.stop_instance(place, machine.id)
    cloud.set_user_data(place, machine.id, "#cloud-config\n{}\n")
    cloud.start_instance(place, machine.id)
    cloud.terminate_instance(place, machine.id)
    cloud.delete_volume(place, volume.id)
    cloud.delete_security_group(place, group)
    cloud.list_objects()
    cloud.read_console(place, machine.id)
    cloud.read_health(place, machine.id)


def make_strays(rig):
    """One of each kind that only ``gc`` looks for, made by somebody else: (kind, id)."""
    ec2 = boto3.client("ec2", region_name="us-east-1")
    subnet = next(iter(aws_rules.backend("us-east-1").get_default_subnets().values())).id
    tags = [{"Key": key, "Value": value} for key, value in rig.request().tags.items()]

    def tagged(kind):
        return [{"ResourceType": kind, "Tags": tags}]

    interface = ec2.create_network_interface(SubnetId=subnet, TagSpecifications=tagged("network-interface"))
    address = ec2.allocate_address(Domain="vpc", TagSpecifications=tagged("elastic-ip"))
    zone = aws_rules.zone_of_subnet("us-east-1", subnet)
    volume = ec2.create_volume(AvailabilityZone=zone, Size=1)["VolumeId"]
    snapshot = ec2.create_snapshot(VolumeId=volume, TagSpecifications=tagged("snapshot"))
    ec2.close()
    return [
        ("network-interface", interface["NetworkInterface"]["NetworkInterfaceId"]),
        ("address", address["AllocationId"]),
        ("snapshot", snapshot["SnapshotId"]),
    ]


def test_gc_finds_what_carries_our_tags_and_no_command_makes(aws_rig):
    found = dict(make_strays(aws_rig))
    seen = {entry.kind: entry for entry in aws_rig.cloud.survey_with_strays().objects}
    assert {kind: entry.id for kind, entry in seen.items()} == found
    assert seen["snapshot"].extra["size_bytes"] == str(GIB)
    assert seen["snapshot"].price_usd_per_hour is None  # unknown, and not nothing
    assert seen["address"].price_usd_per_hour == "0.005"
    assert aws_rig.cloud.list_objects() == []  # no stack is kept from its end by them
    for kind, object_id in found.items():
        aws_rig.cloud.end_stray("us-east-1", kind, object_id)
    aws_rig.cloud.end_stray("us-east-1", "network-interface", found["network-interface"])
    assert aws_rig.cloud.survey_with_strays().objects == ()


def made_ready(cloud, place):
    """What ``up`` looks at before it makes anything."""
    assert all(one.error is None for one in cloud.preflight((place,), 100 * GIB))


def test_up_is_allowed_what_it_calls_and_nothing_more(aws_rig):
    fake = aws_rig.fake
    fake.quotas["us-east-1", "L-DB2E81BA"] = 64.0
    made_ready(aws_rig.cloud, aws_rig.here)
    life(aws_rig, aws_rig.cloud, "token-1")
    life(aws_rig, aws_rig.cloud, "token-2", placement=aws_rig.spot, stop_on_shutdown=True)
    subnet = next(
        one.id
        for one in aws_rules.backend("us-east-1").get_default_subnets().values()
        if one.availability_zone_id == aws_rig.here.zone
    )
    life(aws_rig, AwsCloud(AwsSettings(subnets=(subnet,))), "token-3")
    assert made(fake) == set(rights.PURPOSES["up"]) - {"ec2:DescribeCapacityReservations"}


@pytest.mark.parametrize(
    ("purpose", "calls"),
    [
        ("status", ("inspect", "read_console", "read_health")),
        ("reap", ("read_console", "read_signals", "set_tags", "stop_instance", "terminate_instance")),
        ("gc", ("terminate_instance", "delete_volume", "delete_security_group")),
    ],
)
def test_looking_and_ending_need_no_right_to_make(aws_rig, purpose, calls):
    machine = aws_rig.running(placement=aws_rig.spot, stop_on_shutdown=True)
    change_by_hand(machine.id)
    volume = aws_rig.cloud.create_volume(aws_rig.volume())
    group = aws_rig.cloud.ensure_security_group(aws_rig.here, {"gpuprov:stack-id": "another"}, [], [])
    ids = {"delete_volume": volume.id, "delete_security_group": group}
    aws_rig.fake.calls.clear()
    cloud = AwsCloud()
    cloud.list_objects()
    cloud.identity()
    more = {
        "set_tags": ({"gpuprov-reap-for": "idle"},),
        "read_signals": (datetime.now(UTC) - timedelta(hours=1),),
        "inspect": (Terms(),),
    }
    for call in calls:
        getattr(cloud, call)(aws_rig.spot, ids.get(call, machine.id), *more.get(call, ()))
    if purpose == "gc":
        cloud.survey_with_strays()
        for kind, object_id in make_strays(aws_rig):
            cloud.end_stray("us-east-1", kind, object_id)
    assert made(aws_rig.fake) - MAKING_STRAYS == set(rights.PURPOSES[purpose])


def test_plan_needs_nothing_and_the_documents_can_be_attached():
    found = rights.policies()
    assert found.pop("plan") is None
    for purpose, document in found.items():
        allowed = {action for statement in document["Statement"] for action in statement["Action"]}
        assert allowed == set(rights.PURPOSES[purpose])
        names = [statement["Sid"] for statement in document["Statement"]]
        assert len(names) == len(set(names))
        assert all(name.isalnum() for name in names)
        assert len(json.dumps(document, separators=(",", ":"))) < 6144  # IAM's limit for a managed policy


def test_each_command_that_may_ask_aws_has_one_policy():
    named = [command for commands in rights.COMMANDS.values() for command in commands]
    assert len(named) == len(set(named))
    assert set(rights.COMMANDS) == set(rights.PURPOSES)
    others = {"init", "models", "offers", "sandbox", "schema", "unlock"}  # ask no cloud
    assert set(named) | others == set(COMMANDS)


def test_whatever_ends_or_changes_is_bound_to_our_tag():
    own = {"Null": {"aws:ResourceTag/gpuprov:stack-id": "false"}}
    made = {"Null": {"aws:RequestTag/gpuprov:stack-id": "false"}}
    ending = {rights.CONSOLE, *rights.CHANGE, *rights.POWER, *rights.END, *rights.SWEEP, *rights.END_STRAYS}
    for document in rights.policies().values():
        for statement in document["Statement"] if document else ():
            if ending & set(statement["Action"]):
                assert statement["Condition"] == own
            if statement["Sid"].endswith("Tagged"):
                assert statement["Condition"] == made
            if rights.TAG in statement["Action"]:
                key = "aws:RequestTag" if statement["Sid"] == "TagWhatIsMade" else "aws:ResourceTag"
                assert statement["Condition"]["Null"] == {f"{key}/gpuprov:stack-id": "false"}


OURS, THEIRS = {"gpuprov:stack-id": "abc"}, {"gpuprov:stack": "chat", "Name": "chat"}
MACHINE = "arn:aws:ec2:us-east-1:123456789012:instance/i-0123456789abcdef0"


def ask(action, resource=MACHINE, own=None, asked=None, created=None):
    """A right as a call would need it: tags that the object has, tags that the call writes."""
    context = {f"aws:ResourceTag/{key}": (value,) for key, value in (own or {}).items()}
    context |= {f"aws:RequestTag/{key}": (value,) for key, value in (asked or {}).items()}
    if asked:
        context["aws:TagKeys"] = tuple(asked)
    if created:
        context["ec2:CreateAction"] = (created,)
    return iam.Ask(action, resource, context)


@pytest.mark.parametrize(
    ("purpose", "asked", "allowed"),
    [
        ("up", ask("ec2:TerminateInstances", own=OURS), True),
        ("up", ask("ec2:TerminateInstances", own=THEIRS), False),
        ("up", ask("ec2:TerminateInstances"), False),
        ("status", ask("ec2:TerminateInstances", own=OURS), False),
        ("status", ask("ec2:GetConsoleOutput", own=OURS), True),
        ("status", ask("ec2:GetConsoleOutput", own=THEIRS), False),
        ("up", ask("ec2:RunInstances", asked=OURS), True),
        ("up", ask("ec2:RunInstances", asked=THEIRS), False),
        ("up", ask("ec2:RunInstances", "arn:aws:ec2:us-east-1:123456789012:security-group/sg-1", own=THEIRS), False),
        ("up", ask("ec2:RunInstances", "arn:aws:ec2:us-east-1:123456789012:security-group/sg-1", own=OURS), True),
        ("up", ask("ec2:RunInstances", "arn:aws:ec2:us-east-1::image/ami-1"), True),
        ("up", ask("ec2:CreateTags", asked=OURS, created="RunInstances"), True),
        ("up", ask("ec2:CreateTags", asked=OURS), False),  # taking over somebody's machine
        ("up", ask("ec2:CreateTags", asked=OURS, created="CreateSnapshot"), False),
        ("reap", ask("ec2:CreateTags", own=OURS, asked={"gpuprov-reap-due": "x"}), True),
        ("reap", ask("ec2:CreateTags", own=OURS, asked={"gpuprov:expires-at": "none"}), False),
        ("reap", ask("ec2:CreateTags", own=THEIRS, asked={"gpuprov-reap-due": "x"}), False),
        ("keepalive", ask("ec2:CreateTags", own=OURS, asked={"gpuprov-lease-until": "x"}), True),
        ("keepalive", ask("ec2:CreateTags", own=OURS, asked={"gpuprov:stack-id": "x"}), False),
        ("gc", ask("ec2:StopInstances", own=OURS), False),
        ("up", ask("ssm:GetParameter", "arn:aws:ssm:us-east-1:123456789012:parameter/prod/password"), False),
        ("up", ask("servicequotas:GetServiceQuota", "arn:aws:servicequotas:us-east-1:123456789012:s3/L-1"), False),
        ("plan", ask("ec2:DescribeRegions", "*"), False),
    ],
)
def test_the_documents_allow_what_is_ours_and_nothing_else(purpose, asked, allowed):
    assert bool(iam.allowing(rights.policies()[purpose], asked)) is allowed


def test_every_image_that_may_be_asked_for_can_be_read():
    images, document = AwsCloud(catalog=read_catalog_once)._images, rights.policies()["up"]
    types = [name for cloud, name in read_catalog_once().instances if cloud == "aws"]
    paths = {one.selector for name in types for one in images.selectors(name) if one.selector.startswith("/")}
    assert len(paths) >= 2
    for path in paths:
        assert iam.allowing(document, ask("ssm:GetParameter", f"arn:aws:ssm:us-east-1::parameter{path}")), path


NOT_CALLED = {
    ("aws.instance_profile", "PassTheRole"): "EC2 asks for it when a machine is made with a profile; it is no call",
    (
        "aws.kms_key",
        "EncryptWithTheKey",
    ): "EC2 asks for it when an encrypted disk is made or attached; these are no calls",
    ("connect", "UseOwnSession"): "the Session Manager plugin calls it, which tests do not run",
}
"""Document and statement that no call of ours needs, and who needs them instead."""


def test_every_right_is_used_by_some_end_to_end_test():
    """What each test's commands used is recorded, and checked whenever that test runs (``tests.fakes.aws_journal``)."""
    record = aws_journal.read_record()
    idle = aws_journal.unused(used for found in record.values() for used in found)
    assert {right for right in idle if right[:2] not in NOT_CALLED} == set()
    assert {right[:2] for right in idle} == set(NOT_CALLED)  # a reason for what is used has had its day
    for test in record:
        file, _, name = test.partition("::")
        text = (aws_journal.RECORD.parent / file).read_text(encoding="utf-8")
        assert f"def {name.partition('[')[0]}(" in text, f"{test} is gone: take it out of {aws_journal.RECORD.name}"


def test_a_call_beyond_its_policy_is_found(aws_rig, monkeypatch):
    journal = aws_journal.Journal()
    monkeypatch.setattr(aws_rig.fake, "journal", journal.note)
    machine = aws_rig.running()  # whoever makes it is no command
    monkeypatch.setenv(aws_journal.VARIABLE, "status")
    cloud = AwsCloud(catalog=read_catalog_once)
    cloud.list_objects()
    assert journal.refused == []
    cloud.terminate_instance(machine.placement, machine.id)
    assert len(journal.refused) == 1
    assert "`status` makes ec2:TerminateInstances on" in journal.refused[0]


def test_doctor_prints_them(capsys):
    assert run(["doctor", "--print-iam", "aws"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["schema"] == "gpuprov.iam/1"
    assert set(document["policies"]) == set(document["commands"]) == set(rights.PURPOSES)
    assert set(document["options"]) == set(rights.options())


def test_the_machines_role_has_what_its_start_asks_of_aws():
    """Each call of the AWS CLI in the machine's scripts, and the rights that it needs."""
    needs = {
        ("s3", "sync"): {"s3:ListBucket", "s3:GetObject"},
        ("secretsmanager", "get-secret-value"): {"secretsmanager:GetSecretValue"},
    }
    folder = Path(boot.__file__).parent / "templates"
    text = "\n".join(path.read_text(encoding="utf-8") for path in folder.iterdir())
    assert set(re.findall(r"\baws (\w+) ([a-z-]+)", text)) == set(needs)
    allowed = {action for one in rights.machine_role()["Statement"] for action in one["Action"]}
    shell = {action for action in allowed if action.startswith("ssm")}
    assert len(shell) == 5
    assert allowed - shell == set().union(*needs.values())
