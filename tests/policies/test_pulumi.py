"""Pulumi previews and exported stacks as facts: our own resources, bridged ones, secrets, values that are not known yet."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from datetime import date
from pathlib import Path
from typing import Any

import pytest

from policies.facts import UNKNOWN, MachineFacts, OfferedFacts, SpecFacts, Subject
from policies.facts_pulumi import TERRAFORM_TYPES, UNKNOWN_WORDS, plain, secret_names
from policies.finding import Verdict
from policies.gate import judge
from policies.placement import Placer
from policies.selection import Policy
from policies.sources import read_file
from provisioner.errors import UsageError
from tests.policies.builders import catalog, document

TODAY = date(2026, 11, 30)
LATER = "04da6b54-80e4-46f7-96ec-b56ff0331ba9"
SIGNATURE = "4dabf18193072939515e22adb298388d"
SECRET = "1b47061264138c4ac30d75fd1eb44270"
OFFER = {
    "cloud": "aws",
    "region": "us-east-1",
    "zone": "use1-az4",
    "instanceType": "g6.2xlarge",
    "capacityType": "on-demand",
}
OWN = {"workload": document(), "offers": [OFFER], "rootVolume": 107374182400, "tags": {"owner": "ana"}}
MACHINE = {
    "ami": "ami-0123456789abcdef0",
    "instanceType": "g6.xlarge",
    "rootBlockDevice": {"encrypted": True, "volumeSize": 200},
    "metadataOptions": {"httpTokens": "required"},
    "tags": {"owner": "ana"},
}
GCP = {
    "machineType": "g2-standard-4",
    "zone": "us-central1-a",
    "bootDisk": {"initializeParams": {"image": "projects/p/global/images/one", "size": 200}},
    "networkInterfaces": [{"network": "default"}],
    "scheduling": {"onHostMaintenance": "TERMINATE"},
    "labels": {"owner": "ana"},
}
OWN_TYPE, AWS_TYPE, GCP_TYPE = "gpuprov:index:GpuInstance", "aws:ec2/instance:Instance", "gcp:compute/instance:Instance"
Read = Callable[..., list[Subject]]


def preview(*resources: tuple[str, Any], op: str = "create") -> dict[str, Any]:
    return {
        "steps": [
            {
                "op": op,
                "urn": f"urn:pulumi:dev::p::{kind}::m{n}",
                "newState": {"urn": f"urn:pulumi:dev::p::{kind}::m{n}", "type": kind, "inputs": inputs},
            }
            for n, (kind, inputs) in enumerate(resources)
        ]
    }


def state(*resources: tuple[str, Any], **facts: Any) -> dict[str, Any]:
    held = [
        {
            "urn": f"urn:pulumi:dev::p::{kind}::m{n}",
            "custom": True,
            "type": kind,
            "inputs": inputs,
            "outputs": {},
            **facts,
        }
        for n, (kind, inputs) in enumerate(resources)
    ]
    return {"version": 3, "deployment": {"manifest": {"time": "2026-11-30T00:00:00Z"}, "resources": held}}


@pytest.fixture
def read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Read:
    monkeypatch.chdir(tmp_path)

    def reader(document_: dict[str, Any]) -> list[Subject]:
        Path("doc.json").write_text(json.dumps(document_, indent=1))
        return read_file(Path("doc.json"), Placer(catalog()))[0]

    return reader


def verdict(subjects: list[Subject]) -> Verdict:
    return judge(subjects, Policy(), TODAY)


def violated(subjects: list[Subject]) -> set[str]:
    return {finding.rule.id for finding in verdict(subjects).violations}


@pytest.mark.parametrize("form", [preview, state])
@pytest.mark.parametrize(("kind", "inputs"), [(OWN_TYPE, OWN), (AWS_TYPE, MACHINE), (GCP_TYPE, GCP)])
def test_sound_resources_pass(
    read: Read, form: Callable[..., dict[str, Any]], kind: str, inputs: dict[str, Any]
) -> None:
    subjects = read(form((kind, inputs)))
    assert subjects
    assert not violated(subjects)


@pytest.mark.parametrize("form", [preview, state])
@pytest.mark.parametrize(
    ("kind", "inputs", "rule"),
    [
        (OWN_TYPE, OWN | {"workload": document({"model.id": "meta-llama/Llama-3.1-70B-Instruct"})}, "under-sized"),
        (OWN_TYPE, OWN | {"offers": [OFFER, OFFER | {"instanceType": "g4dn.xlarge"}]}, "gpu-formats"),
        (OWN_TYPE, OWN | {"offers": [OFFER, OFFER | {"instanceType": "p9.unheard"}]}, "under-sized"),
        (OWN_TYPE, OWN | {"offers": [OFFER | {"region": "af-south-1", "zone": None}]}, "region-support"),
        (OWN_TYPE, OWN | {"offers": [OFFER | {"instanceType": "p5.48xlarge"}]}, "price-over-limit"),
        (OWN_TYPE, OWN | {"rootVolume": "8GiB"}, "disk-size"),
        (OWN_TYPE, OWN | {"offers": []}, "under-sized"),
        (OWN_TYPE, OWN | {"tags": {"note": "AKIAIOSFODNN7EXAMPLE"}}, "secret-in-tags"),
        (OWN_TYPE, OWN | {"workload": document({"access": {"cidrs": ["0.0.0.0/0"]}})}, "open-cidr"),
        (AWS_TYPE, MACHINE | {"rootBlockDevice": {"encrypted": False}}, "root-encryption"),
        (AWS_TYPE, MACHINE | {"rootBlockDevice": None}, "root-encryption"),
        (AWS_TYPE, MACHINE | {"ebsBlockDevices": [{"deviceName": "/dev/sdf", "encrypted": False}]}, "data-encryption"),
        (AWS_TYPE, MACHINE | {"metadataOptions": {"httpTokens": "optional"}}, "imdsv2"),
        (AWS_TYPE, MACHINE | {"userData": "export DB_PASSWORD=hunter22"}, "secret-in-user-data"),
        (AWS_TYPE, MACHINE | {"tags": {"gpuprov:workload": "none.yaml"}}, "workload-tag"),
        (AWS_TYPE, MACHINE | {"tags": {"gpuprov:workload": LATER}}, "workload-tag"),
        (GCP_TYPE, GCP | {"scheduling": {"onHostMaintenance": "MIGRATE"}}, "host-maintenance"),
        (GCP_TYPE, GCP | {"metadataStartupScript": "T=hf_" + "a" * 30}, "secret-in-user-data"),
        ("aws:ebs/volume:Volume", {"encrypted": False, "size": 5}, "data-encryption"),
        (
            "aws:ec2/securityGroup:SecurityGroup",
            {"ingress": [{"cidrBlocks": ["0.0.0.0/0"], "fromPort": 1, "toPort": 2, "protocol": "tcp"}]},
            "open-cidr",
        ),
        (
            "aws:vpc/securityGroupIngressRule:SecurityGroupIngressRule",
            {"cidrIpv4": "0.0.0.0/0", "ipProtocol": "-1"},
            "open-cidr",
        ),
        (
            "gcp:compute/firewall:Firewall",
            {"sourceRanges": ["0.0.0.0/0"], "allows": [{"protocol": "tcp", "ports": ["443"]}]},
            "open-cidr",
        ),
    ],
)
def test_one_fault_is_found(
    read: Read, form: Callable[..., dict[str, Any]], kind: str, inputs: dict[str, Any], rule: str
) -> None:
    assert rule in violated(read(form((kind, inputs))))


def test_a_stated_footprint_is_not_looked_at(read: Read) -> None:
    large = document({"model.id": "meta-llama/Llama-3.1-70B-Instruct"})
    claim = {"workload": large, "offers": [OFFER], "footprint": {"per_gpu": {"total_bytes": 1}}, "fits": True}
    assert "under-sized" in violated(read(preview((OWN_TYPE, claim))))


def test_findings_point_into_the_document(read: Read) -> None:
    inputs = OWN | {"offers": [OFFER, OFFER | {"instanceType": "p9.unheard"}]}
    (finding,) = [
        each for each in verdict(read(preview((OWN_TYPE, inputs)))).violations if each.rule.id == "under-sized"
    ]
    lines = Path("doc.json").read_text().splitlines()
    assert "p9.unheard" in "\n".join(lines[finding.position.line - 1 : finding.position.line + 7])


def test_what_goes_away_is_not_judged(read: Read) -> None:
    bad = (AWS_TYPE, MACHINE | {"metadataOptions": {"httpTokens": "optional"}})
    for op in ("delete", "delete-replaced", "read", "discard-replaced"):
        assert not read(preview(bad, op=op))
    for op in ("create", "update", "replace", "create-replacement", "same", "import", "refresh"):
        assert violated(read(preview(bad, op=op))) == {"imdsv2"}
    assert not read(state(bad, delete=True))
    assert not read(state(bad, external=True))


def test_a_preview_that_failed_is_refused(read: Read) -> None:
    failed = preview((AWS_TYPE, MACHINE)) | {"diagnostics": [{"message": "boom", "severity": "error"}]}
    with pytest.raises(UsageError, match="this preview failed"):
        read(failed)
    assert read(failed | {"diagnostics": [{"message": "old", "severity": "warning"}]})


def test_a_replacement_is_judged_once(read: Read) -> None:
    bad = (AWS_TYPE, MACHINE | {"metadataOptions": {"httpTokens": "optional"}})
    steps = [preview(bad, op=op)["steps"][0] for op in ("create-replacement", "replace", "delete-replaced")]
    assert len(verdict(read({"steps": steps})).violations) == 1
    other = preview((AWS_TYPE, MACHINE | {"rootBlockDevice": {"encrypted": False}}))["steps"]
    assert violated(read({"steps": [*steps, *other]})) == {"imdsv2", "root-encryption"}


def test_what_a_state_observed_counts_where_the_program_is_silent(read: Read) -> None:
    inputs = {key: value for key, value in MACHINE.items() if key not in {"rootBlockDevice", "metadataOptions"}}
    outputs = {"rootBlockDevice": {"encrypted": True}, "metadataOptions": {"httpTokens": "required"}}
    assert violated(read(state((AWS_TYPE, inputs)))) == {"imdsv2", "root-encryption"}
    assert not violated(read(state((AWS_TYPE, inputs), outputs=outputs)))


def test_computed_parts_of_a_workload_leave_the_others_known(read: Read) -> None:
    later = document({"inference.context_tokens": LATER, "access": {"cidrs": ["0.0.0.0/0"]}})
    subjects = read(preview((OWN_TYPE, OWN | {"workload": later})))
    spec, placed = subjects
    assert isinstance(spec, SpecFacts)
    assert isinstance(placed, OfferedFacts)
    assert spec.read("access.cidrs") == ("0.0.0.0/0",)
    assert spec.read("inference.context_tokens") is UNKNOWN
    assert placed.workload is UNKNOWN
    assert {"open-cidr", "under-sized"} <= violated(subjects)


def test_computed_tags_do_not_hide_the_size(read: Read) -> None:
    later = document({"tags": {"owner": LATER}, "run": {"image": "x@sha256:" + "a" * 64, "env": {"A": LATER}}})
    spec, placed = read(preview((OWN_TYPE, OWN | {"workload": later, "tags": {}})))
    assert isinstance(placed, OfferedFacts)
    assert placed.workload is not UNKNOWN
    assert isinstance(spec, SpecFacts)
    assert spec.read_entries("run.env") == {"A": UNKNOWN}
    assert spec.tags["owner"] is UNKNOWN  # type: ignore[index]


def test_secrets_are_unwrapped_where_they_are_readable_and_marked(read: Read) -> None:
    wrapped = {SIGNATURE: SECRET, "value": "#!/bin/sh"}
    assert plain({"a": wrapped}) == {"a": "#!/bin/sh"}
    assert plain({SIGNATURE: SECRET, "ciphertext": "v1:x"}) is UNKNOWN
    assert plain({SIGNATURE: SECRET, "plaintext": '"#!/bin/sh"'}) == "#!/bin/sh"
    assert plain({SIGNATURE: SECRET, "plaintext": "not json"}) is UNKNOWN
    assert secret_names({"userData": wrapped, "ami": "x", "metadata": {"key": "[secret]"}}) == {"user_data", "key"}
    assert violated(read(preview((AWS_TYPE, MACHINE | {"userData": wrapped})))) == {"secret-in-user-data"}
    hidden = {SIGNATURE: SECRET, "ciphertext": "v1:x"}
    assert violated(read(state((AWS_TYPE, MACHINE | {"userData": hidden})))) == {"secret-in-user-data"}


def test_every_word_for_an_unknown_value_is_read() -> None:
    assert all(plain(word) is UNKNOWN for word in UNKNOWN_WORDS)
    assert plain([1, LATER, {"a": LATER}]) == [1, UNKNOWN, {"a": UNKNOWN}]
    deep: Any = "x"
    for _ in range(500):
        deep = [deep]
    plain(deep)


def test_the_tag_places_the_workload_on_the_machine(read: Read, tmp_path: Path) -> None:
    (tmp_path / "chat.yaml").write_text(json.dumps(document({"model.id": "meta-llama/Llama-3.1-70B-Instruct"})))
    inputs = MACHINE | {"tags": {"gpuprov:workload": "chat.yaml"}}
    assert "under-sized" in violated(read(preview((AWS_TYPE, inputs))))


@pytest.mark.parametrize(("zone", "rules"), [("us-east-1a", set()), ("us-east-1d", {"volume-zone"})])
def test_what_is_attached_to_what_is_told_by_ids_or_by_the_engine(read: Read, zone: str, rules: set[str]) -> None:
    disk, machine = {"encrypted": True, "availabilityZone": zone}, MACHINE | {"availabilityZone": "us-east-1a"}
    kinds = ("aws:ebs/volume:Volume", AWS_TYPE, "aws:ec2/volumeAttachment:VolumeAttachment")
    urns = [f"urn:pulumi:dev::p::{kind}::m{n}" for n, kind in enumerate(kinds)]
    known = state((kinds[0], disk), (kinds[1], machine), (kinds[2], {"volumeId": "vol-1", "instanceId": "i-1"}))
    for held, name in zip(known["deployment"]["resources"], ("vol-1", "i-1", "a-1"), strict=True):
        held["id"] = name
    assert violated(read(known)) == rules
    later = preview((kinds[0], disk), (kinds[1], machine), (kinds[2], {"volumeId": LATER, "instanceId": LATER}))
    depends = {"volumeId": [urns[0]], "instanceId": [urns[1]]}
    later["steps"][2]["newState"]["propertyDependencies"] = depends
    assert violated(read(later)) == rules
    assert violated(read({"steps": [*later["steps"][:2]]})) == set()


def test_an_invalid_workload_is_a_wrong_document(read: Read) -> None:
    with pytest.raises(UsageError, match="m0"):
        read(preview((OWN_TYPE, OWN | {"workload": document({"inferense": {}})})))


@pytest.mark.parametrize(
    "document_",
    [
        {"steps": ["x"]},
        {"steps": [{"op": "create", "newState": {"type": OWN_TYPE, "inputs": "x"}}]},
        {"deployment": {"manifest": {}, "resources": "x"}},
        {"deployment": {"manifest": {}, "resources": [{"type": AWS_TYPE, "inputs": ["x"]}]}},
        {"deployment": {"manifest": {}, "resources": [3]}},
    ],
)
def test_damaged_documents_never_pass(read: Read, document_: dict[str, Any]) -> None:
    try:
        subjects = read(document_)
    except UsageError:
        return
    assert violated(subjects)


def test_every_bridged_type_has_a_reader() -> None:
    from policies.facts_machines import READERS

    assert set(TERRAFORM_TYPES.values()) == set(READERS)


FAULTS = (
    (OWN_TYPE, OWN | {"workload": document({"model.id": "meta-llama/Llama-3.1-70B-Instruct"})}),
    (OWN_TYPE, OWN | {"workload": document({"access": {"cidrs": ["0.0.0.0/0"]}})}),
    (OWN_TYPE, OWN | {"workload": document({"lifecycle.idle.after": "off", "lifecycle.max_lifetime": "off"})}),
    (AWS_TYPE, MACHINE | {"rootBlockDevice": {"encrypted": False}}),
    (AWS_TYPE, MACHINE | {"metadataOptions": {"httpTokens": "optional"}}),
    (GCP_TYPE, GCP | {"scheduling": {"onHostMaintenance": "MIGRATE"}}),
)


def hide(value: Any, dice: random.Random) -> Any:
    if dice.random() < 0.12:
        return LATER
    if isinstance(value, dict):
        return {key: hide(item, dice) for key, item in value.items()}
    return [hide(item, dice) for item in value] if isinstance(value, list) else value


@pytest.mark.parametrize("number", range(120))
def test_values_that_are_computed_later_never_make_a_faulty_program_pass(read: Read, number: int) -> None:
    dice = random.Random(number)
    kind, inputs = FAULTS[number % len(FAULTS)]
    hidden = hide(inputs, dice)
    assert violated(read(preview((kind, hidden)))), hidden


def test_a_machine_of_a_preview_is_a_machine(read: Read) -> None:
    (machine,) = read(preview((AWS_TYPE, MACHINE | {"availabilityZone": "us-west-2a"})))
    assert isinstance(machine, MachineFacts)
    assert (machine.name, machine.region, machine.has_gpu) == ("m0", "us-west-2", True)
