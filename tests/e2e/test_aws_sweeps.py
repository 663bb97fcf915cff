"""`gc`, `reap` and `prices` as a person types them, on an emulated account: what is over goes, what is unknown or somebody else's stays."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import boto3
import pytest

from provisioner.reaper import machines as marks
from tests.e2e.account import HERE, SPOT, ago
from tests.fakes import aws_rules
from tests.fakes.aws import read_call
from tests.fakes.pricing import AwsMarket, aws_prices, product

QUIET = [0.0] * 13
"""An hour of nothing, one point in five minutes."""


def verdicts(answer):
    return {entry["id"]: entry["verdict"] for entry in answer.document["objects"] if entry["kind"] == "instance"}


def gc(account, *options):
    return account.run("gc", "--cloud", "aws", "--format", "json", *options)


def reap(account, *options):
    answer = account.run("reap", "--cloud", "aws", "--format", "json", *options)
    return answer, {entry["id"]: entry for entry in answer.document["objects"]}


def lookalike(region="us-east-1", **tags):
    """A GPU machine that somebody made without gpuprov, under our stack's name."""
    ec2 = boto3.client("ec2", region_name=region)
    carried = [{"Key": key, "Value": value} for key, value in {"Name": "chat", **tags}.items()]
    made = ec2.run_instances(
        ImageId=aws_rules.IMAGE,
        InstanceType="g6.xlarge",
        MinCount=1,
        MaxCount=1,
        TagSpecifications=[{"ResourceType": "instance", "Tags": carried}],
    )
    ec2.close()
    return made["Instances"][0]["InstanceId"]


def test_gc_ends_what_is_an_hour_past_its_end_and_leaves_the_rest(account):
    over = account.machine("ours-over", expires_at=ago(minutes=61))
    spot = account.machine("ours-spot", SPOT, expires_at=ago(hours=3))
    barely = account.machine("ours-barely", expires_at=ago(minutes=59))
    forgotten = account.stopped("ours-stopped", timedelta(days=7, minutes=61))
    resting = account.stopped("ours-resting", timedelta(days=7, minutes=59))
    colleague = account.machine("theirs")
    account.made_here("ours-over", "ours-spot", "ours-stopped")
    root = account.let_root_stay(over)
    stray = lookalike(**{"gpuprov:stack": "chat"})

    seen = gc(account)
    assert seen.code == 0, seen.err
    expected = {
        over.id: "expired",
        spot.id: "expired",
        forgotten.id: "stopped-too-long",
        barely.id: "foreign",
        resting.id: "foreign",
        colleague.id: "foreign",
    }
    assert verdicts(seen) == expected
    assert account.fake.of("TerminateInstances") == []

    swept = gc(account, "--yes")
    assert swept.code == 0, swept.err
    removed = {entry["id"] for entry in swept.document["objects"] if entry["removed"] and entry["kind"] == "instance"}
    assert removed == {over.id, spot.id, forgotten.id}
    assert {account.state(one) for one in (over, spot, forgotten)} == {"terminated"}
    assert (account.state(barely), account.state(resting), account.state(colleague)) == (
        "running",
        "stopped",
        "running",
    )
    assert aws_rules.machine("us-east-1", stray)._state.name == "running"
    assert account.fake.rules.relaunched == []  # the persistent request went first
    assert root not in aws_rules.backend("us-east-1").volumes
    assert verdicts(gc(account, "--yes")) == dict.fromkeys((barely.id, resting.id, colleague.id), "foreign")


def test_gc_ends_every_kind_of_a_named_stack_id_and_nothing_of_another(account):
    machine, theirs = account.machine("lost"), account.machine("theirs")
    cloud, tags = account.cloud, dict(machine.tags)
    group = cloud.ensure_security_group(HERE, tags, [], [])
    ec2 = boto3.client("ec2", region_name="us-east-1")
    carried = [{"Key": key, "Value": value} for key, value in tags.items()]

    def tagged(kind):
        return [{"ResourceType": kind, "Tags": carried}]

    subnet = next(iter(aws_rules.backend("us-east-1").get_default_subnets().values()))
    disk = ec2.create_volume(AvailabilityZone=subnet.availability_zone, Size=1, TagSpecifications=tagged("volume"))[
        "VolumeId"
    ]
    snapshot = ec2.create_snapshot(VolumeId=disk, TagSpecifications=tagged("snapshot"))["SnapshotId"]
    ec2.create_network_interface(SubnetId=subnet.id, TagSpecifications=tagged("network-interface"))
    ec2.allocate_address(Domain="vpc", TagSpecifications=tagged("elastic-ip"))
    ec2.close()

    swept = gc(account, "--yes", "--stack-id", "lost")
    assert swept.code == 0, swept.err
    kinds = {entry["kind"] for entry in swept.document["objects"]}
    assert kinds >= {"instance", "volume", "security-group", "network-interface", "address", "snapshot"}
    model = aws_rules.backend("us-east-1")
    assert account.state(machine) == "terminated"
    assert disk not in model.volumes
    assert snapshot not in model.snapshots
    assert group not in {one.id for groups in model.groups.values() for one in groups.values()}
    assert account.state(theirs) == "running"


def test_l1_what_one_gc_could_not_end_is_named_with_its_price_and_ended_by_the_next(account):
    leaked = account.machine("lost")
    account.made_here("lost")
    account.model(leaked).launch_time -= timedelta(hours=1)
    for nic in account.model(leaked).nics.values():
        nic.attach_time -= timedelta(hours=1)
    account.fake.inject("TerminateInstances", "UnauthorizedOperation", times=99)
    failed = gc(account, "--yes")
    assert failed.code == 11, failed.err
    (fate,) = [entry for entry in failed.document["objects"] if entry["kind"] == "instance"]
    assert (fate["verdict"], fate["removed"]) == ("orphan", False)
    assert "UnauthorizedOperation" in fate["trouble"]
    assert f"instance {leaked.id} (g6.xlarge) running in aws us-east-1 (use1-az2), $0.8048/h" in failed.err
    assert account.state(leaked) == "running"

    account.fake.faults.clear()
    ended = gc(account, "--yes")
    assert ended.code == 0, ended.err
    assert account.state(leaked) == "terminated"
    assert gc(account, "--yes").document["objects"] == []


@pytest.mark.parametrize("call", ["DescribeInstances", "DescribeVolumes", "DescribeSecurityGroups"])
def test_gc_names_a_region_that_is_denied_and_touches_nothing_there(account, call):
    place = replace(HERE, region="us-west-2", zone="usw2-az1")
    here, there = (
        account.machine("over-1", expires_at=ago(hours=2)),
        account.machine("over-2", place, expires_at=ago(hours=2)),
    )
    account.fake.inject(call, "UnauthorizedOperation", region="us-west-2", times=99)
    swept = gc(account, "--yes")
    assert swept.code == 3, swept.err
    assert swept.document["unlisted_regions"] == ["us-west-2"]
    assert swept.document["error"]["kind"] == "credentials"
    assert "us-west-2 could not be listed" in swept.err
    assert (account.state(here), account.state(there)) == ("terminated", "running")


@pytest.mark.parametrize("command", ["gc", "reap"])
def test_an_account_whose_regions_cannot_be_listed_is_no_empty_one(account, command):
    machine = account.machine("over", expires_at=ago(hours=2))
    account.fake.inject("DescribeRegions", "UnauthorizedOperation", times=99)
    told = account.run(command, "--cloud", "aws", "--yes")
    assert told.code == 3
    assert "nothing to remove" not in told.out
    assert "ec2:DescribeRegions" in told.err or "DescribeRegions" in told.err
    assert account.state(machine) == "running"


def test_a_region_that_is_not_enabled_is_not_asked(account):
    assert gc(account).code == 0
    asked = {call.region for call in account.fake.of("DescribeInstances")}
    assert asked == set(aws_rules.REGIONS)
    assert aws_rules.CLOSED_REGION not in asked


def test_reap_keeps_what_no_metric_tells_and_says_so(account):
    limits = {"idle_after": "30m"}
    silent = account.machine("silent", **limits)
    cpu_only = account.machine("cpu-only", **limits)
    partial = account.machine("partial", **limits)
    for metric in ("CPUUtilization", "NetworkIn", "NetworkOut"):
        account.measure(cpu_only, metric, QUIET)
        account.measure(partial, metric, QUIET)
    account.measure(partial, "nvidia_smi_utilization_gpu", QUIET, index="0")
    account.measure(partial, "nvidia_smi_utilization_gpu", [*QUIET[:6], *[None] * 7], index="1")
    answer, found = reap(account, "--yes")
    assert answer.code == 0, answer.err
    assert {entry["step"] for entry in found.values()} == {"keep"}
    assert "neither its watcher nor a metric tells anything" in found[silent.id]["reason"]
    assert "no metric of its GPUs exists (absent is not idle)" in found[cpu_only.id]["reason"]
    assert "unknown" in found[partial.id]["reason"]
    assert account.fake.of("CreateTags") == []
    shown = account.run("reap", "--cloud", "aws").out
    for machine in (silent, cpu_only, partial):
        assert f"{machine.id}  kept: unknown" in shown  # what cannot be judged may run for ever: a person must see it


def test_reap_ends_what_all_sources_call_idle_and_reads_others_machines_only(account):
    young = timedelta(hours=3)
    idle = account.machine("idle", idle_after="30m")
    spot = account.machine("spot", SPOT, idle_after="30m")
    for machine in (idle, spot):
        account.model(machine).launch_time -= young
        for nic in account.model(machine).nics.values():
            nic.attach_time -= young
        for metric in ("CPUUtilization", "NetworkIn", "NetworkOut"):
            account.measure(machine, metric, QUIET)
        account.measure(machine, "nvidia_smi_utilization_gpu", QUIET, index="0")
    foreign = lookalike()
    root = account.let_root_stay(spot)
    answer, found = reap(account, "--yes", "--report", "--max-share", "100")
    assert answer.code == 0, answer.err
    assert {key: entry["step"] for key, entry in found.items()} == {idle.id: "mark", spot.id: "mark"}
    assert [entry["id"] for entry in answer.document["foreign"]] == [foreign]
    for machine in (idle, spot):
        assert account.state(machine) == "running"
        account.write_tag(machine, marks.DUE, ago(minutes=1))
    answer, found = reap(account, "--yes", "--report", "--max-share", "100")
    assert {entry["done"] for entry in found.values()} == {True}
    assert (account.state(idle), account.state(spot)) == ("stopped", "terminated")
    assert root not in aws_rules.backend("us-east-1").volumes
    assert account.fake.rules.relaunched == []
    assert aws_rules.machine("us-east-1", foreign)._state.name == "running"
    touched = {value for call in account.fake.calls for value in call.parameters.values() if value == foreign}
    assert touched == set()  # no call ever named it


def test_prices_are_read_with_the_rights_that_are_printed(account):
    market = AwsMarket(
        zones={"us-east-1": {"use1-az1": "us-east-1a"}},
        products=[product("g6.xlarge", "us-east-1", "0.83")],
        offerings={"us-east-1": [("use1-az1", "g6.xlarge"), ("use1-az1", "p5.48xlarge")]},
        spot={"us-east-1": [("g6.xlarge", "use1-az1", "0.4", "2026-11-30T10:00:00.000Z")]},
        names_only=True,
        page=100,
    )
    account.patch.delenv("GPUPROV_CATALOG")

    def note(headers, body):
        environ = {f"HTTP_{name.upper().replace('-', '_')}": value for name, value in headers.items()}
        account.fake.journal(read_call(environ, body))

    with aws_prices(market, note) as address:
        account.patch.setenv("AWS_ENDPOINT_URL", address)
        told = account.run("prices", "refresh", "--cloud", "aws", "--region", "us-east-1")
    assert told.code == 0, told.err
    assert market.calls.of("GetProducts")
