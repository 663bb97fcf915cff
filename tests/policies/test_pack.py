"""The pack as a process: the analyzer protocol with the test as engine, its configuration, its errors, its end."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest
from google.protobuf import empty_pb2, struct_pb2
from pulumi.runtime.proto import analyzer_pb2, analyzer_pb2_grpc

from policies.registry import RULES
from tests.policies.builders import document
from tests.policies.test_engine_gate import mandatory as judged
from tests.policies.test_engine_gate import plans
from tests.policies.test_pulumi import AWS_TYPE, LATER, MACHINE, OWN, OWN_TYPE

PACK = Path(sys.executable).with_name("gpuprov-policy")
LIMIT_S = 30


class Engine:
    """The engine's side of the protocol, as pulumi 3.274 speaks it."""

    def __init__(self, folder: Path) -> None:
        self.process = subprocess.Popen(
            [str(PACK), "127.0.0.1:1"],
            cwd=folder,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        assert self.process.stdout is not None
        self.port = int(self.process.stdout.readline())
        self.channel = grpc.insecure_channel(f"127.0.0.1:{self.port}")
        self.stub = analyzer_pb2_grpc.AnalyzerStub(self.channel)

    def boot(self, *, preview: bool) -> Any:
        self.stub.Handshake(analyzer_pb2.AnalyzerHandshakeRequest(engine_address="127.0.0.1:1"))
        self.stub.GetPluginInfo(empty_pb2.Empty())
        self.stub.ConfigureStack(analyzer_pb2.AnalyzerStackConfigureRequest(stack="dev", dry_run=preview))
        return self.stub.GetAnalyzerInfo(empty_pb2.Empty())

    def configure(self, **levels: tuple[int, dict[str, Any]]) -> None:
        config = {}
        for name, (level, properties) in levels.items():
            struct = struct_pb2.Struct()
            struct.update(properties)
            config[name.replace("_", "-")] = analyzer_pb2.PolicyConfig(enforcementLevel=level, properties=struct)
        self.stub.Configure(analyzer_pb2.ConfigureAnalyzerRequest(policyConfig=config))

    def analyze(self, inputs: dict[str, Any], token: str = OWN_TYPE) -> list[Any]:
        properties = struct_pb2.Struct()
        properties.update(inputs)
        request = analyzer_pb2.AnalyzeRequest(
            type=token, urn=f"urn:pulumi:dev::p::{token}::m", name="m", properties=properties
        )
        return list(self.stub.Analyze(request).diagnostics)

    def mandatory(self, inputs: dict[str, Any], token: str = OWN_TYPE) -> set[str]:
        return {
            each.policyName for each in self.analyze(inputs, token) if each.enforcementLevel == analyzer_pb2.MANDATORY
        }

    def end(self) -> None:
        self.channel.close()
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        for stream in (self.process.stdin, self.process.stdout, self.process.stderr):
            if stream is not None:
                stream.close()


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[Engine]:
    found = Engine(tmp_path)
    yield found
    found.end()


def test_the_engine_learns_of_every_rule(engine: Engine) -> None:
    info = engine.boot(preview=True)
    assert info.name == "gpuprov"
    assert info.supportsConfig
    assert {policy.name for policy in info.policies} == {rule.id for rule in RULES if rule.applies_to}
    by_name = {policy.name: policy for policy in info.policies}
    assert by_name["under-sized"].enforcementLevel == analyzer_pb2.MANDATORY
    assert by_name["price-limit"].enforcementLevel == analyzer_pb2.ADVISORY
    assert by_name["customer-key"].enforcementLevel == analyzer_pb2.DISABLED
    assert "widest_ipv4_prefix" in by_name["open-cidr"].configSchema.properties.fields


def test_a_faulty_resource_is_refused_and_a_sound_one_is_not(engine: Engine) -> None:
    engine.boot(preview=False)
    large = OWN | {"workload": document({"model.id": "meta-llama/Llama-3.1-70B-Instruct"})}
    found = [each for each in engine.analyze(large) if each.policyName == "under-sized"]
    assert found[0].enforcementLevel == analyzer_pb2.MANDATORY
    assert found[0].severity == analyzer_pb2.POLICY_SEVERITY_CRITICAL
    assert "GiB" in found[0].message
    assert found[0].urn.endswith("::m")
    assert not engine.mandatory(OWN)
    assert engine.mandatory(MACHINE | {"metadataOptions": {"httpTokens": "optional"}}, AWS_TYPE) == {"imdsv2"}


def test_unknown_values_wait_in_a_preview_alone(engine: Engine) -> None:
    engine.boot(preview=True)
    assert not engine.mandatory(OWN | {"offers": LATER})
    engine.boot(preview=False)
    assert "under-sized" in engine.mandatory(OWN | {"offers": LATER})


def test_the_pack_gives_the_verdicts_of_the_gate(engine: Engine, tmp_path: Path) -> None:
    from policies.engine import EngineGate

    engine.boot(preview=False)
    gate = EngineGate.of_project(tmp_path)
    for inputs in plans(6):
        assert engine.mandatory(inputs) == judged(gate, inputs)


def test_the_stack_phase_adds_nothing(engine: Engine) -> None:
    engine.boot(preview=False)
    assert not engine.stub.AnalyzeStack(analyzer_pb2.AnalyzeStackRequest()).diagnostics
    assert not engine.stub.Remediate(analyzer_pb2.AnalyzeRequest(type=OWN_TYPE)).remediations
    engine.stub.Cancel(empty_pb2.Empty())


def test_configuration_is_taken_and_a_misspelt_rule_is_an_error(engine: Engine) -> None:
    engine.boot(preview=False)
    narrow = OWN | {"workload": document({"access": {"cidrs": ["198.51.0.0/16"]}})}
    assert not engine.mandatory(narrow)
    engine.configure(open_cidr=(analyzer_pb2.MANDATORY, {"widest_ipv4_prefix": 24}))
    assert engine.mandatory(narrow) == {"open-cidr"}
    with pytest.raises(grpc.RpcError) as found:
        engine.configure(open_cidrs=(analyzer_pb2.MANDATORY, {}))
    assert "did you mean open-cidr" in found.value.details()  # type: ignore[attr-defined]


def test_a_wrong_policy_file_stops_the_engine(tmp_path: Path) -> None:
    (tmp_path / "gpuprov-policy.yaml").write_text("version: 1\npolicy: {rules: {open-cidrs: disabled}}\n")
    engine = Engine(tmp_path)
    try:
        with pytest.raises(grpc.RpcError) as found:
            engine.boot(preview=True)
        assert "open-cidr" in found.value.details()  # type: ignore[attr-defined]
    finally:
        engine.end()


def test_a_bug_stops_the_engine_without_its_text(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from policies import pack

    monkeypatch.chdir(tmp_path)
    server, port = pack.serve(tmp_path)
    try:
        channel = grpc.insecure_channel(f"127.0.0.1:{port}")
        stub = analyzer_pb2_grpc.AnalyzerStub(channel)
        monkeypatch.setattr("policies.engine.EngineGate.analyze", lambda *_: 1 / 0)
        with pytest.raises(grpc.RpcError) as found:
            stub.Analyze(analyzer_pb2.AnalyzeRequest(type=OWN_TYPE))
        assert found.value.code() is grpc.StatusCode.INTERNAL  # type: ignore[attr-defined]
        assert found.value.details() == "a bug in the policy pack: ZeroDivisionError"  # type: ignore[attr-defined]
        channel.close()
    finally:
        server.stop(grace=0).wait(LIMIT_S)


def test_secrets_do_not_reach_the_engine(engine: Engine) -> None:
    engine.boot(preview=False)
    secret = "hf_" + "q9Z8" * 7
    inputs = OWN | {"workload": document({"run": {"image": "x", "env": {"HF_TOKEN": secret}}})}
    found = engine.analyze(inputs)
    assert "secret-in-env" in {each.policyName for each in found}
    assert all(secret not in each.message for each in found)


@pytest.mark.parametrize("how", ["end of input", "interrupt", "terminate"])
def test_the_pack_ends_with_its_engine_and_says_nothing(engine: Engine, how: str) -> None:
    engine.boot(preview=True)
    engine.channel.close()
    if how == "end of input":
        assert engine.process.stdin is not None
        engine.process.stdin.close()
    else:
        engine.process.send_signal(signal.SIGINT if how == "interrupt" else signal.SIGTERM)
    assert engine.process.wait(LIMIT_S) == 0
    assert engine.process.stderr is not None
    assert b"Traceback" not in engine.process.stderr.read()


def test_the_pack_of_a_killed_parent_ends(tmp_path: Path) -> None:
    """The engine may be killed while another process holds its pipe open."""
    script = (
        "import os, subprocess, sys, time\n"
        f"p = subprocess.Popen([{str(PACK)!r}, 'x'], stdin=os.open({str(tmp_path / 'fifo')!r}, os.O_RDWR), stdout=subprocess.PIPE)\n"
        "p.stdout.readline()\nprint(p.pid, flush=True)\ntime.sleep(60)\n"
    )
    os.mkfifo(tmp_path / "fifo")
    parent = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True)
    assert parent.stdout is not None
    child = int(parent.stdout.readline())
    parent.kill()
    parent.communicate()
    deadline = time.monotonic() + LIMIT_S
    while time.monotonic() < deadline and Path(f"/proc/{child}").exists():
        time.sleep(0.1)
    assert not Path(f"/proc/{child}").exists()


def test_properties_travel_as_the_engine_writes_them(engine: Engine) -> None:
    """Numbers are doubles, secrets are wrapped: both are read."""
    engine.boot(preview=False)
    wrapped = {"4dabf18193072939515e22adb298388d": "1b47061264138c4ac30d75fd1eb44270", "value": document()}
    assert not engine.mandatory(OWN | {"workload": wrapped})
    assert json.dumps(OWN)
