"""Two people, one stack: its state in a bucket, its secrets under a key, its machine on an account, two processes at once."""

from __future__ import annotations

import getpass
import re
import socket
import threading

import boto3
import pytest

from tests.e2e.bench import Bench
from tests.fakes import aws_rules

pytestmark = [pytest.mark.engine, pytest.mark.slow]
EXTRA = "placement: {regions: [us-east-1], instance_types: [g6.xlarge]}\n"
LOCKS = ".pulumi/locks/organization/gpuprov/demo/"


@pytest.fixture
def bucket(fake, monkeypatch):
    """The team's bucket and key, named as backend and secrets provider."""
    kms = boto3.client("kms", region_name="us-east-1")
    key = kms.create_key()["KeyMetadata"]["KeyId"]
    kms.close()
    for name, value in {
        "AWS_REGION": "us-east-1",
        "GPUPROV_CLOUD": "aws",
        "GPUPROV_BACKEND": f"s3://state?endpoint={fake.host}&disableSSL=true&s3ForcePathStyle=true&region=us-east-1",
        "GPUPROV_SECRETS_PROVIDER": f"awskms://{key}?region=us-east-1",
    }.items():
        monkeypatch.setenv(name, value)
    client = boto3.client("s3")
    client.create_bucket(Bucket="state")
    yield client
    client.close()


def alive():
    machines = (one for found in aws_rules.backend("us-east-1").reservations.values() for one in found.instances)
    return [one.id for one in machines if one._state.name not in ("terminated", "shutting-down")]


def test_of_two_people_one_waits_for_the_other_and_both_see_one_stack(fake, bucket, tmp_path):
    ana, ben = (Bench(tmp_path / name, extra=EXTRA) for name in ("ana", "ben"))
    begun, go_on = threading.Event(), threading.Event()

    def hold(call, stage):
        if call.operation == "RunInstances" and stage == "done" and call.parameters.get("DryRun") != "true":
            begun.set()
            go_on.wait(60)

    fake.on_call = hold
    first = ana.start("up", str(ana.spec), "--yes", "--format", "json")
    try:
        assert begun.wait(60)
        assert bucket.list_objects_v2(Bucket="state", Prefix=LOCKS)["KeyCount"] == 1
        for command in (("up", str(ben.spec), "--yes"), ("down", "demo", "--yes")):
            refused = ben.run(*command, "--format", "json")
            assert refused.code == 4, refused.err
            error = refused.document["error"]
            assert error["kind"] == "locked"
            assert f"{getpass.getuser()} on {socket.gethostname()}" in error["message"]
            assert re.search(r"\(pid \d+\), \d+(s|m) old", error["message"])
            assert "gpuprov unlock demo" in error["remedy"]
        assert len(alive()) == 1  # the machine of the first, and nothing of the second
        # What was made and is not yet in the state is nobody's leak: this host's other home did not make it.
        swept = ben.run("gc", "--yes", "--format", "json")
        assert swept.code == 0, swept.err
        assert {entry["verdict"] for entry in swept.document["objects"]} <= {"foreign", "in-progress"}
    finally:
        go_on.set()
        _, err = first.communicate(timeout=120)
    assert first.returncode == 0, err
    assert len(alive()) == 1
    assert not bucket.list_objects_v2(Bucket="state", Prefix=LOCKS).get("Contents")

    same = ben.up()
    assert same.code == 0, same.err
    assert same.document["changes"] == {"create": 0, "update": 0, "replace": 0, "delete": 0, "same": 2}
    shown = [bench.run("status", "demo", "--format", "json").document["stacks"][0] for bench in (ana, ben)]
    assert {entry["outputs"]["instance_id"] for entry in shown} == set(alive())
    assert ben.down().code == 0
    assert alive() == []
    assert ana.run("status", "--format", "json").document["stacks"] == []
