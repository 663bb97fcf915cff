"""The real plugin process over gRPC: protocol, secrets, previews, half-made machines, and its end with the engine."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from datetime import timedelta
from pathlib import Path
from typing import Any

import grpc
import pytest
from google.protobuf import empty_pb2
from google.protobuf.json_format import MessageToDict
from pulumi.runtime.proto import provider_pb2

from provisioner.clouds.sandbox.cloud import SandboxCloud
from provisioner.clouds.sandbox.faults import Fault
from provisioner.clouds.sandbox.latencies import RECORD_AT_END, RECORD_AT_START, Latency
from stacks import failures
from stacks.provider.server import VERSION
from tests.fakes.mini_engine import FACTS, offer, program, urn
from tests.fakes.plugin_client import UNKNOWN, PluginClient, half_made, secret, struct

pytestmark = pytest.mark.slow

AZ1 = "aws/us-east-1/use1-az1/g6.xlarge/on-demand"


def machine_inputs(launch: Any, **changes: Any) -> dict[str, Any]:
    """Inputs of a machine for a launch that was made."""
    facts = MessageToDict(launch.properties)
    return {**program(), "launch": {fact: facts[fact] for fact in FACTS}, **changes}


def machines(cloud: SandboxCloud) -> list[str]:
    return [entry.id for entry in cloud.list_objects() if entry.kind == "instance"]


def creates(cloud: SandboxCloud) -> int:
    return len(cloud.controls.calls(operation="create_instance"))


def wait_for(condition: Any, limit_s: float = 20.0) -> None:
    deadline = time.monotonic() + limit_s
    while not condition():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.02)


def test_it_tells_its_version_and_its_schema(home: Path) -> None:
    with PluginClient(home) as plugin:
        assert plugin.stub.GetPluginInfo(empty_pb2.Empty()).version == VERSION
        schema = json.loads(plugin.stub.GetSchema(provider_pb2.GetSchemaRequest()).schema)
    assert set(schema["resources"]) == {f"gpuprov:index:{kind}" for kind in ("Launch", "Volume", "GpuInstance")}


def test_a_life_over_the_wire(home: Path) -> None:
    cloud = SandboxCloud(home)
    with PluginClient(home).configure() as plugin:
        launch = plugin.make("launch", program())
        assert launch.refresh_before_update
        checked = plugin.check("gpu", machine_inputs(launch)).inputs
        made = plugin.create("gpu", checked)
        assert machines(cloud) == [made.id]
        same = plugin.stub.Diff(
            provider_pb2.DiffRequest(id=made.id, urn=urn("gpu"), olds=made.properties, news=checked)
        )
        assert same.changes == provider_pb2.DiffResponse.DIFF_NONE
        read = plugin.stub.Read(
            provider_pb2.ReadRequest(id=made.id, urn=urn("gpu"), properties=made.properties, inputs=checked)
        )
        assert MessageToDict(read.properties) == {**MessageToDict(made.properties), "health": "ok"}
        cloud.controls.vanish(made.id)
        gone = plugin.stub.Read(
            provider_pb2.ReadRequest(id=made.id, urn=urn("gpu"), properties=made.properties, inputs=checked)
        )
        assert gone.id == ""
        plugin.delete("gpu", made.id, made.properties)
        plugin.delete("launch", launch.id, launch.properties)
        assert cloud.list_objects() == []
        assert any(made.id in line for line in plugin.log.lines)
        assert not any("gpuprov:" in line for line in plugin.log.lines)  # no marks without GPUPROV_MARKS


def test_previews_know_what_can_be_known(home: Path) -> None:
    with PluginClient(home).configure() as plugin:
        news = {**program(), "launch": dict.fromkeys(FACTS, UNKNOWN), "volumes": UNKNOWN}
        checked = plugin.check("gpu", news)
        assert not checked.failures
        seen = MessageToDict(plugin.create("gpu", checked.inputs, preview=True).properties)
    assert seen["instanceId"] == UNKNOWN
    assert seen["volumes"] == UNKNOWN
    assert seen["provider"] == "sandbox"
    assert seen["rootVolume"] == 100 * 2**30
    assert SandboxCloud(home).list_objects() == []


def test_secrets_stay_secret(home: Path) -> None:
    workload = {**program()["workload"], "run": {"env": {"TOKEN": secret("hf_x")}}}
    with PluginClient(home).configure() as plugin:
        launch = plugin.make("launch", program(workload=workload))
        made = plugin.make("gpu", machine_inputs(launch, workload=workload, tags={"team": secret("search")}))
        outputs = MessageToDict(made.properties)
        assert outputs["workload"]["run"]["env"]["TOKEN"] == secret("hf_x")
        assert outputs["tags"]["team"] == secret("search")
        assert outputs["cloudTags"]["value"]["team"] == "search"  # the whole map is sealed
        assert "hf_x" not in json.dumps(MessageToDict(launch.properties))
        assert not any("hf_x" in line for line in plugin.log.lines)


def test_errors_are_text_with_a_remedy_and_no_traceback(home: Path) -> None:
    SandboxCloud(home).controls.set_capacity("*/*/*/*/*", 0)
    with PluginClient(home).configure() as plugin:
        launch = plugin.make("launch", program())
        with pytest.raises(grpc.RpcError) as failure:
            plugin.make("gpu", machine_inputs(launch))
        text = failure.value.details()
        assert "no capacity now in 2 offers" in text
        assert "try again later" in text
        assert AZ1 in text
        assert "Traceback" not in text
        assert ".py" not in text
        assert half_made(failure.value) is None


def test_errors_carry_marks_for_gpuprov(home: Path) -> None:
    SandboxCloud(home).controls.set_capacity("*/*/*/*/*", 0)
    with PluginClient(home, GPUPROV_MARKS="1").configure() as plugin:
        launch = plugin.make("launch", program())
        with pytest.raises(grpc.RpcError) as failure:
            plugin.make("gpu", machine_inputs(launch))
        decoded = failures.decode(failure.value.details())
        assert decoded is not None
        assert decoded.error.kind == "capacity"
        assert [attempt.outcome for attempt in decoded.attempts] == ["capacity", "capacity"]
        told = [attempt for line in plugin.log.lines for attempt in failures.decode_attempts(line)]
        assert told == list(decoded.attempts)


def test_a_half_made_machine_is_handed_to_the_engine_and_completed_by_update(home: Path) -> None:
    cloud = SandboxCloud(home)
    with PluginClient(home).configure() as plugin:
        launch = plugin.make("launch", program())
        facts = MessageToDict(launch.properties)
        plugin.make("data", {"stackId": facts["stackId"], "size": "50GiB", "offers": program()["offers"]})
        news = machine_inputs(launch, volumes=[{"name": "data", "size": 50 * 2**30}])
        inputs = plugin.check("gpu", news).inputs
        cloud.controls.inject(Fault("rejected", "attach_volume"))
        with pytest.raises(grpc.RpcError) as failure:
            plugin.create("gpu", inputs)
        left = half_made(failure.value)
        assert [left.id] == machines(cloud)
        assert left.refresh_before_update
        assert MessageToDict(left.properties)["instanceId"] == left.id
        assert "Traceback" not in left.reasons[0]
        request = provider_pb2.UpdateRequest(id=left.id, urn=urn("gpu"), olds=left.properties, news=inputs)
        outputs = MessageToDict(plugin.stub.Update(request).properties)
        assert len(outputs["volumeIds"]) == 1
        assert machines(cloud) == [left.id]


def test_a_bug_is_no_traceback_either(home: Path) -> None:
    with PluginClient(home).configure() as plugin, pytest.raises(grpc.RpcError) as failure:
        plugin.stub.Read(provider_pb2.ReadRequest(id="x", urn=urn("gpu"), properties=struct({"createdAt": 5.0})))
    assert "does not read" in failure.value.details()
    assert "line " not in failure.value.details()


def test_another_provider_is_refused(home: Path) -> None:
    with PluginClient(home).configure() as plugin:
        launch = plugin.make("launch", program())
        elsewhere = struct({**MessageToDict(launch.properties), "provider": "aws"})
        with pytest.raises(grpc.RpcError, match="made on aws"):
            plugin.stub.Read(
                provider_pb2.ReadRequest(id=launch.id, urn=urn("launch"), properties=elsewhere, inputs=elsewhere)
            )
        with pytest.raises(grpc.RpcError, match="later step"):
            plugin.configure("gcp")


@pytest.mark.parametrize("record_at", [RECORD_AT_START, RECORD_AT_END])
def test_an_engine_that_dies_in_a_create_leaves_a_machine_that_the_next_run_adopts(home: Path, record_at: str) -> None:
    cloud = SandboxCloud(home)
    cloud.controls.set_latency(Latency("create", timedelta(seconds=1), record_at))
    with PluginClient(home).configure() as plugin:
        launch = plugin.make("launch", program())
        inputs = plugin.check("gpu", machine_inputs(launch)).inputs
        plugin.create("gpu", inputs, wait=False)
        wait_for(lambda: creates(cloud) == 1)
        plugin.hang_up()
        assert plugin.process.wait(timeout=20) == 0
    with PluginClient(home).configure() as plugin:
        made = plugin.create("gpu", inputs)
        assert machines(cloud) == [made.id]
        plugin.delete("gpu", made.id, made.properties)
        plugin.delete("launch", launch.id, launch.properties)
    assert cloud.list_objects() == []


def test_after_its_engine_died_it_waits_for_the_call_in_flight_and_starts_no_other(home: Path) -> None:
    cloud = SandboxCloud(home)
    cloud.controls.set_capacity(AZ1, 0)
    cloud.controls.set_latency(Latency("create", timedelta(seconds=1), RECORD_AT_END))
    with PluginClient(home).configure() as plugin:
        launch = plugin.make("launch", program())
        plugin.create("gpu", plugin.check("gpu", machine_inputs(launch)).inputs, wait=False)
        wait_for(lambda: creates(cloud) == 1)
        plugin.hang_up()
        assert plugin.process.wait(timeout=20) == 0
    assert [call.outcome for call in cloud.controls.calls(operation="create_instance")] == ["capacity"]
    assert machines(cloud) == []


@pytest.mark.parametrize("record_at", [RECORD_AT_START, RECORD_AT_END])
def test_a_down_between_a_slow_create_and_its_end_leaves_nothing(home: Path, record_at: str) -> None:
    cloud = SandboxCloud(home)
    cloud.controls.set_latency(Latency("create", timedelta(seconds=2), record_at))
    with PluginClient(home).configure() as first, PluginClient(home).configure() as second:
        launch = first.make("launch", program())
        inputs = first.check("gpu", machine_inputs(launch)).inputs
        first.create("gpu", inputs, wait=False)
        wait_for(lambda: creates(cloud) == 1)
        first.hang_up()
        second.delete("launch", launch.id, launch.properties)  # the state holds no machine
        assert first.process.wait(timeout=20) == 0
    assert creates(cloud) == 1
    assert cloud.list_objects() == []


def test_a_cancelled_engine_gets_what_exists(home: Path) -> None:
    cloud = SandboxCloud(home)
    cloud.controls.set_latency(Latency("boot", timedelta(seconds=60)))
    with PluginClient(home).configure() as plugin:
        launch = plugin.make("launch", program())
        inputs = plugin.check("gpu", machine_inputs(launch)).inputs
        create = plugin.create("gpu", inputs, wait=False)
        wait_for(lambda: len(machines(cloud)) == 1)
        plugin.stub.Cancel(empty_pb2.Empty())
        failure = create.exception(timeout=20)
        assert half_made(failure).id == machines(cloud)[0]
        assert "interrupted" in failure.details()


def test_sigint_ends_an_idle_plugin_at_once(home: Path) -> None:
    with PluginClient(home).configure() as plugin:
        plugin.process.send_signal(signal.SIGINT)
        assert plugin.process.wait(timeout=20) == 0


_PARENT = """
import subprocess, sys, time
plugin = subprocess.Popen([sys.executable, "-m", "stacks.provider.main", "127.0.0.1:1"],
                          stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True)
plugin.stdout.readline()
print(plugin.pid, flush=True)
time.sleep(600)
"""


def test_a_killed_parent_ends_the_plugin(home: Path) -> None:
    parent = subprocess.Popen([sys.executable, "-c", _PARENT], stdout=subprocess.PIPE, env={**os.environ})
    assert parent.stdout is not None
    plugin = int(parent.stdout.readline())
    parent.kill()
    parent.communicate()
    wait_for(lambda: not _runs(plugin))


def _runs(pid: int) -> bool:
    """Whether a process is there and no zombie."""
    try:
        status = Path(f"/proc/{pid}/stat").read_text(encoding="ascii")
    except FileNotFoundError:
        return False
    return status.rpartition(")")[2].split()[0] != "Z"


def test_offers_in_another_region_take_a_group_there_and_leave_none(home: Path) -> None:
    cloud = SandboxCloud(home)
    cloud.controls.set_capacity("aws/us-east-1/*/*/*", 0)
    offers = [offer("use1-az1"), offer("usw2-az1", "us-west-2")]
    with PluginClient(home).configure() as plugin:
        launch = plugin.make("launch", program(offers=offers))
        made = plugin.make("gpu", machine_inputs(launch, offers=offers))
        groups = {entry.region for entry in cloud.list_objects() if entry.kind == "security-group"}
        assert groups == {"us-east-1", "us-west-2"}
        plugin.delete("gpu", made.id, made.properties)
        assert cloud.list_objects() == []
