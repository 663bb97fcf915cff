"""Reading a stack's state without the engine."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from provisioner.errors import CloudError
from stacks.state import (
    GPU_INSTANCE,
    LAUNCH,
    PendingOperation,
    ResourceState,
    StackState,
    list_file_stacks,
    parse_deployment,
    read_file_state,
    stack_file,
)

URN = "urn:pulumi:demo::gpuprov::"
DEPLOYMENT = {
    "resources": [
        {"urn": f"{URN}pulumi:pulumi:Stack::gpuprov-demo", "custom": False, "type": "pulumi:pulumi:Stack"},
        {
            "urn": f"{URN}pulumi:providers:gpuprov::default",
            "type": "pulumi:providers:gpuprov",
            "id": "p",
            "inputs": {"cloud": "sandbox"},
        },
        {
            "urn": f"{URN}gpuprov:index:Launch::launch",
            "type": "gpuprov:index:Launch",
            "id": "launch",
            "inputs": {},
            "outputs": {"stackId": "f00d", "generation": 1},
        },
        {
            "urn": f"{URN}gpuprov:index:GpuInstance::instance",
            "type": "gpuprov:index:GpuInstance",
            "id": "old",
            "delete": True,
        },
        {
            "urn": f"{URN}gpuprov:index:GpuInstance::instance",
            "type": "gpuprov:index:GpuInstance",
            "id": "new",
            "initErrors": ["no volume"],
            "outputs": {
                "provider": "sandbox",
                "nested": [{"token": {"4dabf18193072939515e22adb298388d": "1b47", "ciphertext": "v1:x"}}],
            },
        },
        {"urn": f"{URN}gpuprov:index:Volume::data", "type": "gpuprov:index:Volume", "id": "data"},
    ],
    "pending_operations": [
        {
            "type": "creating",
            "resource": {"urn": f"{URN}gpuprov:index:Volume::checkpoints", "type": "gpuprov:index:Volume"},
        },
        {"type": "deleting", "resource": {"urn": f"{URN}gpuprov:index:Volume::x", "type": "gpuprov:index:Volume"}},
    ],
}


def write(directory, name, deployment):
    path = stack_file(directory, name)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({"version": 3, "checkpoint": {"stack": name, "latest": deployment}}))


def test_a_state_is_read_by_parts(tmp_path):
    write(tmp_path, "demo", DEPLOYMENT)
    state = read_file_state(tmp_path, "demo")
    assert state.stack_id == "f00d"
    assert state.provider == "sandbox"
    assert state.instance.id == "new"
    assert state.instance.init_errors == ("no volume",)
    assert [volume.name for volume in state.volumes] == ["data"]
    assert [r.name for r in state.pending_creates] == ["checkpoints"]
    assert len(state.own) == 4


def test_a_machine_that_its_replacement_has_ended_is_not_there():
    machine = next(entry for entry in DEPLOYMENT["resources"] if entry.get("id") == "new")
    state = parse_deployment("demo", {"resources": [{**machine, "pendingReplacement": True}]})
    assert state.instance is None
    assert state.outputs == {}
    assert [resource.is_doomed for resource in state.own] == [True]


def test_a_launch_keeps_the_identity_whatever_becomes_of_it():
    launch = next(entry for entry in DEPLOYMENT["resources"] if entry.get("id") == "launch")
    assert parse_deployment("demo", {"resources": [{**launch, "pendingReplacement": True}]}).stack_id == "f00d"


def test_secrets_stay_sealed(tmp_path):
    write(tmp_path, "demo", DEPLOYMENT)
    state = read_file_state(tmp_path, "demo")
    assert state.instance.outputs["nested"] == [{"token": "[secret]"}]
    assert "v1:x" not in repr(state)


def test_an_empty_stack_has_nothing(tmp_path):
    write(tmp_path, "demo", None)
    state = read_file_state(tmp_path, "demo")
    assert (state.stack_id, state.provider, state.instance, state.own) == (None, None, None, ())


def test_the_identity_survives_a_cut_off_create():
    deployment = {
        "pending_operations": [
            {
                "type": "creating",
                "resource": {
                    "urn": f"{URN}gpuprov:index:GpuInstance::instance",
                    "type": "gpuprov:index:GpuInstance",
                    "inputs": {"launch": {"stackId": "beef"}},
                },
            }
        ]
    }
    assert parse_deployment("demo", deployment).stack_id == "beef"


def test_the_provider_is_known_before_a_machine():
    deployment = {"resources": DEPLOYMENT["resources"][:2]}
    assert parse_deployment("demo", deployment).provider == "sandbox"


def test_no_such_stack(tmp_path):
    assert read_file_state(tmp_path, "demo") is None
    assert list_file_stacks(tmp_path) == ()


def test_stacks_are_listed_without_backups(tmp_path):
    for name in ("b", "a"):
        write(tmp_path, name, DEPLOYMENT)
        stack_file(tmp_path, name).with_suffix(".json.bak").write_text("{}")
        stack_file(tmp_path, name).with_suffix(".json.attrs").write_text("{}")
    assert list_file_stacks(tmp_path) == ("a", "b")


@pytest.mark.parametrize("text", ["", "{", "[]", '{"version": 3}', '{"checkpoint": {"latest": {"resources": [{}]}}}'])
def test_a_broken_file_is_an_error_and_no_empty_stack(tmp_path, text):
    path = stack_file(tmp_path, "demo")
    path.parent.mkdir(parents=True)
    path.write_text(text)
    with pytest.raises(CloudError, match="is no state of a stack"):
        read_file_state(tmp_path, "demo")


def test_settings_of_the_cloud_come_from_the_launch_else_from_the_spec():
    def state(launch, workload):
        return parse_deployment(
            "demo",
            {
                "resources": [
                    {
                        "urn": "urn:pulumi:demo::gpuprov::gpuprov:index:Launch::launch",
                        "type": LAUNCH,
                        "outputs": launch,
                    },
                    {
                        "urn": "urn:pulumi:demo::gpuprov::gpuprov:index:GpuInstance::instance",
                        "type": GPU_INSTANCE,
                        "inputs": {"workload": workload},
                        "outputs": {"provider": "aws"},
                    },
                ]
            },
        )

    assert state({"cloudSettings": {"profile": "team"}}, {}).settings == {"profile": "team"}
    assert state({}, {"aws": {"profile": "spec"}, "gcp": {"project": "p"}}).settings == {"profile": "spec"}
    assert state({}, {"name": "demo"}).settings is None


def test_regions_are_those_of_every_offer_and_object():
    launch = ResourceState(
        "u::gpuprov:index:Launch::launch",
        LAUNCH,
        "launch",
        {"offers": [{"cloud": "aws", "region": "us-east-1"}]},
        {"stackId": "me", "image": {"aws/us-west-2/*/g6.xlarge/spot": "ami-1"}},
    )
    machine = ResourceState(
        "u::gpuprov:index:GpuInstance::instance",
        GPU_INSTANCE,
        "i-1",
        {"offers": "[secret]"},
        {"region": "eu-west-1", "securityGroups": [{"region": "eu-north-1", "id": "sg-1"}]},
    )
    cut = PendingOperation("creating", replace(machine, inputs={"offers": [{"region": "ap-south-1"}]}, outputs={}))
    assert StackState("demo", (launch,), (cut,)).regions == {"us-east-1", "us-west-2", "ap-south-1"}
    assert StackState("demo", (launch, machine)).regions == {"us-east-1", "us-west-2", "eu-west-1", "eu-north-1"}
    assert StackState("demo").regions == frozenset()


def test_a_state_of_a_newer_version_is_not_guessed_at(tmp_path):
    path = stack_file(tmp_path, "demo")
    path.parent.mkdir(parents=True)
    for version in (3, 4):
        path.write_text(json.dumps({"version": version, "checkpoint": {"latest": DEPLOYMENT}}))
        assert read_file_state(tmp_path, "demo").stack_id == "f00d"
    path.write_text(json.dumps({"version": 99, "checkpoint": {"latest": DEPLOYMENT}}))
    with pytest.raises(CloudError, match="newer version") as failure:
        read_file_state(tmp_path, "demo")
    assert "nothing was changed" in failure.value.remedy
