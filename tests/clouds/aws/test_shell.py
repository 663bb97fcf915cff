"""Sessions with machines: asked of AWS by the SDK, spoken by the Session Manager plugin, and nothing else is needed."""

from __future__ import annotations

import json

import pytest

from provisioner.clouds.aws.cloud import AwsCloud
from provisioner.clouds.aws.settings import AwsSettings
from provisioner.errors import Rejected, UsageError


@pytest.fixture
def plugin(tmp_path, monkeypatch):
    """A plugin that says its version, or what it is given; nothing else is on PATH."""

    def install(said):
        path = tmp_path / "session-manager-plugin"
        path.write_text(f"#!/bin/sh\n{said}\n")
        path.chmod(0o755)
        return str(path)

    monkeypatch.setenv("PATH", str(tmp_path))
    return install


def test_without_the_plugin_nothing_is_asked(aws_rig, plugin):
    with pytest.raises(UsageError, match="there is no `session-manager-plugin` on PATH") as refused:
        aws_rig.cloud.open_shell(aws_rig.here, aws_rig.running().id)
    assert "the AWS CLI is not needed" in refused.value.remedy
    assert aws_rig.fake.of("StartSession") == []


@pytest.mark.parametrize(
    ("said", "is_hidden"),
    [
        ("echo 1.2.707.0", True),
        ("echo 1.2.498", True),
        ("echo 1.3", False),
        ("echo 1.2.497.0", False),
        ("echo 1.1.61.0", False),
        ("exit 3", False),
    ],
)
def test_the_token_is_kept_out_of_the_process_list_where_the_plugin_can(aws_rig, plugin, said, is_hidden):
    path = plugin(said)
    machine = aws_rig.running()
    opened = aws_rig.cloud.open_shell(aws_rig.here, machine.id, 8000)
    program, session, region, operation, profile, parameters, endpoint = opened.argv
    assert (program, region, operation, profile, endpoint) == (path, "us-east-1", "StartSession", "", aws_rig.fake.url)
    assert json.loads(parameters) == {
        "Target": machine.id,
        "DocumentName": "AWS-StartPortForwardingSession",
        "Parameters": {"portNumber": ["8000"], "localPortNumber": ["8000"]},
    }
    assert ("a-secret-token" in session) is not is_hidden
    assert json.loads(opened.environment.get(session, session))["SessionId"] == "testing-0a1b2c"


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        (AwsSettings(), "the spec names no aws.instance_profile"),
        (AwsSettings(instance_profile="gpu-nodes"), "the role of gpu-nodes must have AmazonSSMManagedInstanceCore"),
    ],
)
def test_a_machine_that_is_not_registered_is_told_with_what_to_do(aws_rig, plugin, settings, told):
    plugin("echo 1.2.707.0")
    machine = aws_rig.running()
    aws_rig.fake.rules.unregistered.add(machine.id)
    with pytest.raises(Rejected, match="is not registered with Systems Manager") as refused:
        AwsCloud(settings).open_shell(aws_rig.here, machine.id)
    assert told in refused.value.remedy
    assert "wait and run the command again" in refused.value.remedy
