"""The whole road with the real engine and the real SDK, on an emulated AWS account."""

from __future__ import annotations

import json

import boto3
import pytest

from tests.e2e.bench import Bench
from tests.fakes import aws_rules

pytestmark = [pytest.mark.engine, pytest.mark.slow]

EXTRA = """\
placement: {regions: [us-east-1], instance_types: [g6.xlarge]}
storage: {data: 50GiB}
"""
SERVED = """\
run: {image: "example.com/vllm@sha256:%s", command: [serve], ports: [8000], ready: {path: /health, port: 8000}}
access: {cidrs: [203.0.113.7/32]}
lifecycle: {max_lifetime: 12h}
""" % ("0" * 64)
READY = json.dumps({"gpuprov": 1, "at": "2026-11-30T12:00:00Z", "state": "ready"})
ON_DEMAND_G, SPOT_G = "L-DB2E81BA", "L-3819A6DF"
SPOT = """\
version: 1
name: demo
task: batch
model: {id: meta-llama/Llama-3.1-8B-Instruct}
inference: {context_tokens: 4096, concurrency: 4, input_tokens: 1000, output_tokens: 100, total: 1M tokens}
placement: {regions: [us-east-1], instance_types: [g6.xlarge], capacity: spot}
"""


def letters(fake):
    """Zone id -> this account's letter."""
    zones = aws_rules.backend("us-east-1").describe_availability_zones()
    return {zone.zone_id: zone.name for zone in zones}


def up(bench, *arguments):
    return bench.up("--cloud", "aws", *arguments)


def connect_by_every_way(fake, bench, machine, tools):
    """A shell, a port, a machine that is not registered, and no plugin; there is no AWS CLI anywhere."""
    without = bench.run("connect", bench.name, env={"PATH": "/nonexistent"})
    assert without.code == 2, without.err
    assert "there is no `session-manager-plugin` on PATH" in without.err
    assert fake.of("StartSession") == []
    tools.mkdir()
    plugin = tools / "session-manager-plugin"
    plugin.write_text(
        '#!/bin/sh\n[ "$1" = --version ] && echo 1.2.707.0 && exit\necho "$@"\necho "$AWS_SSM_START_SESSION_RESPONSE"\n'
    )
    plugin.chmod(0o755)
    path = {"PATH": f"{tools}:/usr/bin:/bin"}
    fake.rules.unregistered.add(machine)
    unknown = bench.run("connect", bench.name, env=path)
    assert unknown.code == 4, unknown.err
    assert f"{machine} in us-east-1 is not registered with Systems Manager" in unknown.err
    assert "AmazonSSMManagedInstanceCore" in unknown.err
    fake.rules.unregistered.clear()
    for more, document in (((), None), (("--port", "8000", "--local-port", "9000"), "AWS-StartPortForwardingSession")):
        told = bench.run("connect", bench.name, *more, env=path)
        assert told.code == 0, told.err
        words, session = told.out.splitlines()
        assert words.startswith("AWS_SSM_START_SESSION_RESPONSE us-east-1 StartSession ")
        assert words.endswith(fake.url)
        assert "a-secret-token" not in words  # nor in the process list
        assert json.loads(session)["TokenValue"] == "a-secret-token"
        assert fake.of("StartSession")[-1].parameters.get("DocumentName") == document


def test_a_stack_lives_and_ends_on_aws(fake, tmp_path):
    bench = Bench(tmp_path / "bench", extra=EXTRA + SERVED)
    fake.rules.console = READY
    fake.capacity[letters(fake)["use1-az1"], "g6.xlarge"] = 0
    made = up(bench)
    assert made.code == 0, made.err
    document = made.document
    outputs = document["outputs"]
    assert document["changes"] == {"create": 3, "update": 0, "replace": 0, "delete": 0, "same": 0}
    assert [attempt["outcome"] for attempt in document["attempts"]] == ["capacity", "created"]
    assert "InsufficientInstanceCapacity" in document["attempts"][0]["message"]
    assert (outputs["provider"], outputs["cloud"], outputs["zone"]) == ("aws", "aws", "use1-az2")
    assert outputs["ready"] is True
    assert outputs["public_ip"]
    assert len(outputs["volume_ids"]) == 1
    assert len(fake.of("RunInstances")) == 2  # one refusal costs one call
    assert len(fake.of("CreateVolume")) == 1
    assert "sandbox" not in made.err

    again = up(bench)
    assert again.document["changes"] == {"create": 0, "update": 0, "replace": 0, "delete": 0, "same": 3}
    assert "no changes" in again.err
    assert len(fake.of("RunInstances")) == 2

    edits = {"50GiB": "60GiB", "203.0.113.7": "203.0.113.8", "[serve]": "[serve, --quiet]"}
    text = bench.spec.read_text()
    for before, after in edits.items():
        text = text.replace(before, after)
    bench.spec.write_text(text + "tags: {Name: chat of ana}\n")
    machine = aws_rules.machine("us-east-1", outputs["instance_id"])
    machine.metadata_options.http_tokens = "optional"
    edited = up(bench)
    assert edited.code == 0, edited.err
    assert edited.document["outputs"]["instance_id"] == outputs["instance_id"]
    assert "session tokens (IMDSv2) is optional, not required; `up` puts it right" in edited.err
    assert machine.metadata_options.http_tokens == "required"
    told = ("ModifyInstanceAttribute", "ModifyVolume", "AuthorizeSecurityGroupIngress", "RevokeSecurityGroupIngress")
    assert [bool(fake.of(operation)) for operation in told] == [True] * 4
    shown = bench.run("status", bench.name, "--format", "json").document["stacks"][0]
    assert shown["state"] == "running"
    assert READY in bench.run("logs", bench.name).out
    assert f"--target {outputs['instance_id']}" in bench.run("connect", bench.name, "--print").out
    connect_by_every_way(fake, bench, outputs["instance_id"], tmp_path / "tools")
    kept = bench.run("keepalive", bench.name, "--for", "2h", "--format", "json")
    machine = aws_rules.machine("us-east-1", outputs["instance_id"])
    assert {"key": "gpuprov-lease-until", "value": kept.document["lease_until"]} in [
        {"key": tag["key"], "value": tag["value"]} for tag in machine.get_tags()
    ]

    starts = len(fake.of("StartInstances"))
    assert bench.run("stop", bench.name).out.splitlines()[-1] == "stack demo: stopped"
    fake.capacity[letters(fake)["use1-az2"], "g6.xlarge"] = 0
    refused = bench.run("start", bench.name)
    assert refused.code == 7
    assert "stays stopped" in refused.err
    assert len(fake.of("RunInstances")) == 2
    assert len(fake.of("StartInstances")) == starts + 1  # a want of capacity is not asked for again
    fake.capacity.clear()
    unchanged = "  no difference between the state and the cloud"
    assert bench.run("refresh", bench.name).out.splitlines() == [unchanged, "stack demo: stopped"]
    assert bench.run("start", bench.name).out.splitlines()[-1] == "stack demo: running"
    seen = bench.run("preview", str(bench.spec), "--cloud", "aws", "--format", "json")
    assert (seen.document["drift"], seen.document["changes"]["same"]) == ([], 3), seen.err
    machine.instance_type = "g6.2xlarge"  # after a stop by hand
    shown = bench.run("preview", str(bench.spec))
    assert shown.code == 0, shown.err
    change = f"aws ec2 modify-instance-attribute --instance-id {machine.id} --instance-type Value=g6.xlarge --region us-east-1"
    assert "instance type is g6.2xlarge, not g6.xlarge; aws ec2 stop-instances" in shown.out
    assert change in shown.out
    refused = up(bench)
    assert refused.code == 4, refused.err
    assert "nothing was changed" in refused.document["error"]["message"]
    assert "instance type is g6.2xlarge, not g6.xlarge" in refused.document["error"]["message"]
    assert change in refused.document["error"]["remedy"]
    assert "gpuprov down demo --keep-data" in refused.document["error"]["remedy"]
    assert len(fake.of("RunInstances")) == 2
    assert fake.of("TerminateInstances") == []

    aws_rules.terminate("us-east-1", outputs["instance_id"])
    seen = bench.run("refresh", bench.name)
    assert seen.code == 0, seen.err
    assert "terminated" in seen.out

    ended = bench.down()
    assert ended.code == 0, ended.err
    assert ended.document["removed"] is True
    model = aws_rules.backend("us-east-1")
    assert model.volumes == {}
    assert all(group.name == "default" for groups in model.groups.values() for group in groups.values())
    assert fake.rules.relaunched == []


def test_a_quota_that_is_too_small_ends_before_any_create_call(fake, tmp_path, monkeypatch):
    """With the credentials of a profile that the spec names, and nothing of them in the environment."""
    config = tmp_path / "config"
    config.write_text("[profile team]\naws_access_key_id = of-the-team\naws_secret_access_key = testing\n")
    monkeypatch.setenv("AWS_CONFIG_FILE", str(config))
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    bench = Bench(tmp_path / "bench", extra=EXTRA + "aws: {profile: team}\n")
    fake.quotas["us-east-1", ON_DEMAND_G] = 2.0
    refused = up(bench)
    assert refused.code == 10, refused.err
    error = refused.document["error"]
    assert error["kind"] == "quota"
    assert f"quota {ON_DEMAND_G}" in error["message"]
    assert "need 4 vCPU, have 2, used 0" in error["message"]
    assert f"--quota-code {ON_DEMAND_G} --desired-value 4 --region us-east-1 --profile team" in error["remedy"]
    assert {call.key for call in fake.calls} == {"of-the-team"}
    assert fake.of("RunInstances") == []


def test_expired_credentials_end_with_the_line_that_mends_them(fake, tmp_path):
    bench = Bench(tmp_path / "bench", extra=EXTRA)
    fake.inject("*", "ExpiredToken", times=99, message="The security token included in the request is expired")
    refused = up(bench)
    assert refused.code == 3, refused.err
    assert refused.document["error"]["kind"] == "credentials"
    assert "aws sso login" in refused.document["error"]["remedy"]
    assert fake.of("RunInstances") == []


def test_what_would_refuse_every_offer_ends_the_preview_before_the_engine(fake, tmp_path):
    bench = Bench(tmp_path / "bench", extra=EXTRA)
    fake.quotas["us-east-1", ON_DEMAND_G] = 2.0
    refused = bench.run("preview", str(bench.spec), "--cloud", "aws")
    assert refused.code == 10, refused.err
    assert "need 4 vCPU, have 2, used 0" in refused.err


def test_a_quota_of_spot_is_told_apart_before_any_create_call(fake, tmp_path):
    """Another spot machine of the family uses it up; the on-demand quota of the family has room and helps nothing."""
    bench = Bench(tmp_path / "bench", spec=SPOT)
    fake.quotas["us-east-1", ON_DEMAND_G], fake.quotas["us-east-1", SPOT_G] = 64.0, 6.0
    market = {"MarketType": "spot", "SpotOptions": {"SpotInstanceType": "one-time"}}
    ec2 = boto3.client("ec2", endpoint_url=fake.url, region_name="us-east-1")
    ec2.run_instances(
        ImageId=aws_rules.IMAGE, InstanceType="g5.xlarge", MinCount=1, MaxCount=1, InstanceMarketOptions=market,
        InstanceInitiatedShutdownBehavior="terminate",
    )  # fmt: skip
    for command in (("preview", str(bench.spec)), ("doctor", str(bench.spec)), ("up", str(bench.spec), "--yes")):
        refused = bench.run(*command, "--cloud", "aws")
        assert refused.code == 10, refused.err
        told = refused.out + refused.err
        assert f"quota {SPOT_G} (All G and VT Spot Instance Requests) in us-east-1" in told
        assert "spot: need 4 vCPU, have 6, used 4" in told
        assert f"--quota-code {SPOT_G} --desired-value 8 --region us-east-1" in told
    made = [call for call in fake.of("RunInstances") if call.parameters.get("DryRun") != "true"]
    assert len(made) == 1


def test_bought_capacity_that_is_not_there_ends_the_preview_before_the_engine(fake, tmp_path):
    bench = Bench(
        tmp_path / "bench",
        extra="placement: {regions: [us-east-1], instance_types: [p5.4xlarge], capacity: reserved}",
    )
    refused = bench.run("preview", str(bench.spec), "--cloud", "aws")
    assert refused.code == 7, refused.err
    assert len(fake.of("DescribeCapacityReservations")) > 0


def test_a_network_without_a_way_out_ends_the_preview_before_the_engine(fake, tmp_path):
    bench = Bench(tmp_path / "bench", extra=EXTRA)
    fake.rules.closed_vpcs = True
    closed = bench.run("preview", str(bench.spec), "--cloud", "aws")
    assert closed.code == 2, closed.err
    assert "could fetch nothing" in closed.err
    told = bench.run("doctor", str(bench.spec), "--cloud", "aws", "--format", "json")
    checks = {check["check"]: check for check in told.document["checks"]}
    assert checks["launch on aws"]["state"] == "broken"
    assert "NAT gateway" in checks["launch on aws"]["fix"]
    assert fake.of("RunInstances") == []
