"""A spot machine on the emulated account: taken back, replaced by an edit, and swept once its state is lost."""

from __future__ import annotations

import json
import shutil
from datetime import UTC, datetime, timedelta

import boto3
import pytest

from policies.day import today_utc
from provisioner.tags import format_time
from tests.e2e.bench import Bench
from tests.fakes import aws_limits, aws_rules

pytestmark = [pytest.mark.engine, pytest.mark.slow]

SPEC = """\
version: 1
name: demo
task: batch
model: {id: meta-llama/Llama-3.1-8B-Instruct}
inference: {context_tokens: 4096, concurrency: 4, input_tokens: 1000, output_tokens: 100, total: 1M tokens}
placement: {regions: [us-east-1], instance_types: [g6.xlarge], capacity: spot}
storage: {data: 50GiB}
"""


def billable(fake, foreign):
    """What bills or can bill again and is not somebody else's: kinds of machines, data disks, live spot requests."""
    machines = [
        one
        for region in aws_rules.REGIONS
        for one in aws_rules.backend(region).all_instances()
        if one._state.name not in ("terminated", "shutting-down") and one.id != foreign
    ]
    held = {one.id for one in machines} | {foreign}
    model = aws_rules.backend("us-east-1")
    roots = {one.block_device_mapping[one.root_device_name].volume_id for one in machines}
    roots |= {
        volume.id for volume in model.volumes.values() if volume.attachment and volume.attachment.instance.id == foreign
    }
    disks = sorted(set(model.volumes) - roots)
    requests = [one for one in fake.rules.spot_requests.values() if one["State"] in ("open", "active")]
    assert {one["InstanceId"] for one in requests} <= held
    return [one.instance_type for one in machines], disks, len(requests)


def settle_colleague(fake):
    """A machine of somebody else under our stack's name."""
    ec2 = boto3.client("ec2", endpoint_url=fake.url, region_name="us-east-1")
    carried = [{"Key": "Name", "Value": "demo"}, {"Key": "gpuprov:stack", "Value": "demo"}]
    kinds = [{"ResourceType": kind, "Tags": carried} for kind in ("instance", "volume")]
    made = ec2.run_instances(
        ImageId=aws_rules.IMAGE, InstanceType="g6.xlarge", MinCount=1, MaxCount=1, TagSpecifications=kinds
    )
    return made["Instances"][0]["InstanceId"]


def test_a_spot_stack_outlives_a_loss_and_an_edit_and_gc_ends_it_without_its_state(fake, tmp_path):
    foreign = settle_colleague(fake)
    bench = Bench(tmp_path / "bench", spec=SPEC)
    made = bench.up("--cloud", "aws")
    assert made.code == 0, made.err
    first = made.document["outputs"]
    (disk,) = first["volume_ids"]
    assert billable(fake, foreign) == (["g6.xlarge"], [disk], 1)

    aws_rules.interrupt("us-east-1", first["instance_id"])
    (lost,) = bench.run("status", "demo", "--format", "json").document["stacks"]
    assert lost["state"] == "interrupted"
    assert any("the cloud took it back; `gpuprov up` makes a new one" in note for note in lost["notes"])
    seen = bench.run("refresh", "demo", "--format", "json")
    assert seen.code == 0, seen.err
    (drift,) = [entry for entry in seen.document["drift"] if entry["name"] == "instance"]
    assert (drift["gone"], drift["changes"]["power"]) == (False, {"from": "running", "to": "interrupted"})
    pool = "/".join(("aws", "us-east-1", first["zone"], "g6.xlarge", "spot"))
    assert pool in json.loads((bench.home / "unavailable.json").read_text())
    back = bench.up("--cloud", "aws")
    assert back.code == 0, back.err
    second = back.document["outputs"]
    assert second["instance_id"] != first["instance_id"]
    assert second["volume_ids"] == [disk]
    assert billable(fake, foreign) == (["g6.xlarge"], [disk], 1)

    bench.spec.write_text(bench.spec.read_text().replace("g6.xlarge", "g6.2xlarge"))
    edited = bench.up("--cloud", "aws")
    assert edited.code == 0, edited.err
    assert edited.document["changes"]["replace"] == 1
    assert edited.document["outputs"]["volume_ids"] == [disk]
    assert billable(fake, foreign) == (["g6.2xlarge"], [disk], 1)

    stack_id = next(
        tag["value"]
        for tag in aws_rules.machine("us-east-1", edited.document["outputs"]["instance_id"]).get_tags()
        if tag["key"] == "gpuprov:stack-id"
    )
    shutil.move(bench.home / "state" / ".pulumi" / "stacks" / "gpuprov" / "demo.json", tmp_path / "lost.json")
    young = bench.run("gc", "--cloud", "aws", "--yes", "--format", "json")
    verdicts = {entry["id"]: entry["verdict"] for entry in young.document["objects"]}
    assert verdicts.pop(foreign, "foreign") == "foreign"
    assert verdicts[edited.document["outputs"]["instance_id"]] == verdicts[disk] == "in-progress"
    assert set(verdicts.values()) <= {"in-progress", "foreign"}
    assert billable(fake, foreign) == (["g6.2xlarge"], [disk], 1)
    swept = bench.run("gc", "--cloud", "aws", "--yes", "--stack-id", stack_id, "--format", "json")
    assert swept.code == 0, swept.err
    assert billable(fake, foreign) == ([], [], 0)
    assert aws_rules.machine("us-east-1", foreign)._state.name == "running"
    assert fake.rules.relaunched == []


WAIVER = """\
version: 1
policy:
  waivers:
    - rule: spot-stop
      scope: demo
      reason: people pause it and can wait for its pool
      owner: ana@example.com
      expires: {expires}
"""


def test_a_spot_stack_that_says_stop_is_stopped_started_taken_back_and_ended(fake, tmp_path):
    bench = Bench(tmp_path / "bench", spec=f"{SPEC}lifecycle: {{idle: {{after: 30m, then: stop}}}}\n")
    for command in (("check", str(bench.spec)), ("up", str(bench.spec), "--yes", "--cloud", "aws")):
        unwaived = bench.run(*command)
        assert unwaived.code == 5, unwaived.err
        assert "spot-stop" in unwaived.out + unwaived.err
    assert fake.of("RunInstances") == []
    expires = today_utc() + timedelta(days=30)
    (bench.home / "gpuprov-policy.yaml").write_text(WAIVER.format(expires=expires))
    assert bench.run("check", str(bench.spec)).code == 0
    made = bench.up("--cloud", "aws")
    assert made.code == 0, made.err
    machine = made.document["outputs"]["instance_id"]
    (call,) = fake.of("RunInstances")
    assert call.parameters["InstanceMarketOptions.SpotOptions.SpotInstanceType"] == "persistent"
    assert call.parameters["InstanceInitiatedShutdownBehavior"] == "stop"
    stopped = bench.run("stop", bench.name)
    assert stopped.code == 0, stopped.err
    started = bench.run("start", bench.name)
    assert started.code == 0, started.err

    aws_rules.interrupt_and_stop("us-east-1", machine)
    (lost,) = bench.run("status", "demo", "--format", "json").document["stacks"]
    assert lost["state"] == "stopped"
    assert any("alone starts it again when its pool has room" in note for note in lost["notes"])
    seen = bench.run("refresh", "demo")
    assert (seen.code, seen.out.splitlines()[0]) == (0, "  ! GpuInstance instance is stopped, was running")
    for command in (("start", bench.name), ("up", str(bench.spec), "--yes", "--cloud", "aws")):
        refused = bench.run(*command)
        assert refused.code == 7, refused.err
        assert "EC2 itself starts it again" in refused.err
    assert len(fake.of("RunInstances")) == 1
    assert aws_rules.machine("us-east-1", machine)._state.name == "stopped"
    aws_rules.resume("us-east-1", machine)
    again = bench.run("up", str(bench.spec), "--yes", "--cloud", "aws")
    assert again.code == 0, again.err
    assert machine in again.out
    assert "(to pause it: gpuprov stop demo)" in again.out
    assert billable(fake, None) == (["g6.xlarge"], made.document["outputs"]["volume_ids"], 1)

    aws_limits.shut_down("us-east-1", machine)
    (idle,) = bench.run("status", "demo", "--format", "json").document["stacks"]
    assert idle["state"] == "stopped"
    assert any("its own system shut it down; `gpuprov start` starts it" in note for note in idle["notes"])
    said = {"gpuprov": 1, "at": format_time(datetime.now(UTC)), "state": "idle", "act": "stop", "why": "GPUs at 0 %"}
    fake.rules.console = json.dumps(said)
    (reaped,) = bench.run("status", "demo", "--format", "json").document["stacks"]
    assert reaped["state"] == "reaped"
    assert any("GPUs at 0 %; `gpuprov up` brings it back" in note for note in reaped["notes"])

    ended = bench.down()
    assert ended.code == 0, ended.err
    operations = [one.operation for one in fake.calls]
    assert operations.index("CancelSpotInstanceRequests") < operations.index("TerminateInstances")
    assert billable(fake, None) == ([], [], 0)
    assert fake.rules.relaunched == []
