"""A team's state in a bucket: the whole road, a lost workspace, and locks that other machines left."""

from __future__ import annotations

import json
import os
import socket
from shutil import rmtree

import boto3
import pytest

from stacks.backend import choose_backend
from stacks.locks import lock_path

pytestmark = [pytest.mark.engine, pytest.mark.slow]
LOCKS = ".pulumi/locks/organization/gpuprov/demo/"


@pytest.fixture
def bucket(fake, monkeypatch):
    """An empty bucket, named as the backend."""
    for name, value in {
        "AWS_REGION": "us-east-1",
        "GPUPROV_SECRETS_PROVIDER": "passphrase",
        "PULUMI_CONFIG_PASSPHRASE": "open sesame",
        "GPUPROV_BACKEND": f"s3://state?endpoint={fake.host}&disableSSL=true&s3ForcePathStyle=true&region=us-east-1",
    }.items():
        monkeypatch.setenv(name, value)
    client = boto3.client("s3")
    client.create_bucket(Bucket="state")
    yield client
    client.close()


def leave_lock(bucket, host, pid):
    content = {"pid": pid, "username": "ana", "hostname": host, "timestamp": "2026-01-01T00:00:00Z"}
    bucket.put_object(Bucket="state", Key=f"{LOCKS}aa.json", Body=json.dumps(content))


def locks(bucket):
    return bucket.list_objects_v2(Bucket="state", Prefix=LOCKS).get("KeyCount", 0)


def test_a_stack_lives_in_a_bucket(bench, bucket):
    missing = bench.run(
        "status", "--backend", os.environ["GPUPROV_BACKEND"].replace("s3://state", "s3://no-such-state")
    )
    assert missing.code == 2, missing.err
    assert "make the bucket" in missing.err

    made = bench.up()
    assert made.code == 0, made.err
    assert not (bench.home / "state").exists()
    assert [entry["stack"] for entry in bench.run("status", "--format", "json").document["stacks"]] == ["demo"]

    # Another machine of the team has none of our workspace files.
    rmtree(bench.home / "workspaces")
    same = bench.up()
    assert same.code == 0, same.err
    assert same.document["changes"] == {"create": 0, "update": 0, "replace": 0, "delete": 0, "same": 3}

    leave_lock(bucket, "another-host", 7)
    kept = bench.run("stop", "demo")
    assert kept.code == 4, kept.err
    assert "locked by ana on another-host" in kept.err
    assert [machine.state for machine in bench.machines()] == ["running"]  # nothing was changed under the lock

    # Runners share host names: a dead pid of this host's name is no proof, unless we started that engine.
    for host in ("another-host", socket.gethostname()):
        leave_lock(bucket, host, 2**22 + 1)
        refused = bench.down()
        assert refused.code == 4, refused.err
        assert refused.document["error"]["kind"] == "locked"
        assert f"ana on {host}" in refused.err
        assert locks(bucket) == 1
    assert "cleared: ana on" in bench.run("unlock", "demo").out
    assert locks(bucket) == 0

    path = lock_path(bench.home, choose_backend(bench.home, None).key, "demo")
    holder = {"pid": 2**22 + 2, "host": socket.gethostname(), "user": "me", "command": "up", "engine_pids": [2**22 + 1]}
    path.write_text(json.dumps({**holder, "since": "2026-01-01T00:00:00+00:00"}))
    leave_lock(bucket, socket.gethostname(), 2**22 + 1)
    ended = bench.down()
    assert ended.code == 0, ended.err
    assert ended.err.count("cleared the engine's lock") == 1
    assert bench.running_bill() == []
    assert bench.run("status", "--format", "json").document["stacks"] == []
