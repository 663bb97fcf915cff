"""Whose account it is: other credentials, and some that end in the middle, never make a stack look gone."""

from __future__ import annotations

import pytest

from tests.e2e.bench import Bench
from tests.fakes import aws_rules

pytestmark = [pytest.mark.engine, pytest.mark.slow]

SPEC = """\
version: 1
name: demo
task: finetune
model: {id: meta-llama/Llama-3.1-8B-Instruct}
training:
  {method: full, sharding: auto, sequence_tokens: 4096, tokens: 500M, checkpoint: {every: 5m, resumable: true}}
placement: {regions: [us-east-1], instance_types: [p5.48xlarge], capacity: on-demand}
"""
"""Checkpoints so often that a faster disk is worth its money."""
OTHER = "210987654321"


def up(bench, *arguments):
    return bench.up("--cloud", "aws", *arguments)


def alive():
    machines = (one for found in aws_rules.backend("us-east-1").reservations.values() for one in found.instances)
    return [one.id for one in machines if one._state.name != "terminated"]


def expire_after(fake, call):
    """Let the credentials end with the answer to a call."""

    def expire(seen, stage):
        if seen.operation == call and stage == "done" and seen.parameters.get("DryRun") != "true":
            fake.inject(
                "*", "ExpiredToken", times=10_000, message="The security token included in the request is expired"
            )

    fake.on_call = expire


def renew(fake):
    fake.on_call = lambda _call, _stage: None
    fake.faults.clear()


def test_other_credentials_and_expired_ones_never_make_a_stack_look_gone(fake, tmp_path):
    bench = Bench(tmp_path / "bench", spec=SPEC)
    expire_after(fake, "RunInstances")
    cut = up(bench)
    assert cut.code == 3, cut.err
    assert cut.document["error"]["kind"] == "credentials"
    assert "aws sso login" in cut.document["error"]["remedy"]
    assert "could not be asked" in cut.err
    made = alive()
    assert len(made) == 1

    renew(fake)
    theirs = {"AWS_ACCESS_KEY_ID": "of-the-other"}
    fake.accounts["of-the-other"] = OTHER
    for command in (("up", str(bench.spec), "--yes"), ("logs", "demo"), ("down", "demo", "--yes")):
        refused = bench.run(*command, env=theirs)
        assert refused.code == 3, (command, refused.err)
        assert f"of account {OTHER}, and this was made in account {aws_rules.ACCOUNT}" in refused.err, command
        assert f"use credentials of account {aws_rules.ACCOUNT}" in refused.err
        assert "nothing of the stack bills" not in refused.err
    shown = bench.run("status", "demo", "--format", "json", env=theirs).document["stacks"][0]
    assert shown["state"] != "gone"
    assert any(OTHER in note for note in shown["notes"])

    healed = up(bench)
    assert healed.code == 0, healed.err
    assert alive() == made == [healed.document["outputs"]["instance_id"]]

    (disk_id,) = healed.document["outputs"]["volume_ids"]
    disk = aws_rules.backend("us-east-1").volumes[disk_id]
    (bought,) = [call.parameters for call in fake.of("CreateVolume")]
    planned = bench.run("plan", str(bench.spec), "--format", "json").document["storage"]
    (item,) = [one for one in planned if one["name"] == "checkpoints"]
    assert item["throughput_mib_per_s"] > 125
    assert (bought["Iops"], bought["Throughput"]) == (str(item["iops"]), str(item["throughput_mib_per_s"]))
    assert (disk.iops, disk.throughput) == (item["iops"], item["throughput_mib_per_s"])
    bench.spec.write_text(SPEC.replace("every: 5m", "every: 2h"))
    edited = up(bench)
    assert edited.code == 0, edited.err
    assert edited.document["outputs"]["volume_ids"] == [disk_id]
    assert alive() == made
    assert (disk.iops, disk.throughput) == (3000, 125)  # in place, by one call
    assert [call.parameters["VolumeId"] for call in fake.of("ModifyVolume")] == [disk_id]

    expire_after(fake, "TerminateInstances")
    stopped = bench.down()
    assert stopped.code == 3, stopped.err
    assert stopped.document["error"]["kind"] == "credentials"
    renew(fake)
    held = bench.run("status", "demo", "--format", "json").document["stacks"][0]
    assert held["outputs"]["volume_ids"] == healed.document["outputs"]["volume_ids"]
    assert bench.down().code == 0
    assert aws_rules.backend("us-east-1").volumes == {}
    assert bench.run("status", "--format", "json").document["stacks"] == []
