"""Terraform plans and states as facts: actions, unknown values, modules, templates, separate rules, places."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from datetime import date
from pathlib import Path
from typing import Any

import pytest

from policies.facts import UNKNOWN, MachineFacts, Subject
from policies.facts_terraform import merged
from policies.finding import Verdict
from policies.gate import judge
from policies.placement import Placer
from policies.selection import Policy
from policies.sources import read_file
from provisioner.errors import UsageError
from tests.policies.builders import catalog, document

TODAY = date(2026, 11, 30)
GOOD_INSTANCE: dict[str, Any] = {
    "ami": "ami-0123456789abcdef0",
    "instance_type": "g6.xlarge",
    "root_block_device": [{"encrypted": True, "volume_size": 200}],
    "ebs_block_device": [],
    "metadata_options": [{"http_tokens": "required", "http_put_response_hop_limit": 1}],
    "tags": {"owner": "ana"},
}
GOOD_GCP: dict[str, Any] = {
    "machine_type": "g2-standard-4",
    "zone": "us-central1-a",
    "boot_disk": [{"initialize_params": [{"image": "projects/p/global/images/one", "size": 200}]}],
    "network_interface": [{"network": "default", "access_config": []}],
    "scheduling": [{"on_host_maintenance": "TERMINATE"}],
    "labels": {"owner": "ana"},
}


def change(kind: str, after: Any, *, actions: tuple[str, ...] = ("create",), **facts: Any) -> dict[str, Any]:
    inner = {"actions": list(actions), "before": None, "after": after, "after_unknown": facts.pop("unknown", {})}
    inner["after_sensitive"] = facts.pop("sensitive", {})
    name = facts.pop("name", "gpu")
    return {"address": f"{kind}.{name}", "mode": "managed", "type": kind, "name": name, "change": inner, **facts}


Read = Callable[..., list[Subject]]


@pytest.fixture
def read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Read:
    monkeypatch.chdir(tmp_path)

    def reader(*changes: dict[str, Any], **parts: Any) -> list[Subject]:
        plan = {"format_version": "1.2", "terraform_version": "1.9.5", "resource_changes": list(changes), **parts}
        path = Path("tfplan.json")
        path.write_text(json.dumps(plan, indent=1))
        return read_file(path, Placer(catalog()))[0]

    return reader


def verdict(subjects: list[Subject]) -> Verdict:
    return judge(subjects, Policy(), TODAY)


def violated(subjects: list[Subject]) -> set[str]:
    return {finding.rule.id for finding in verdict(subjects).violations}


@pytest.mark.parametrize("after", [GOOD_INSTANCE, GOOD_INSTANCE | {"root_block_device": [{"encrypted": "true"}]}])
def test_a_sound_instance_passes(read: Read, after: dict[str, Any]) -> None:
    found = verdict(read(change("aws_instance", after)))
    assert not found.violations
    assert {finding.rule.id for finding in found.findings} == {"unsized-resource"}


def test_a_sound_google_machine_passes(read: Read) -> None:
    assert not violated(read(change("google_compute_instance", GOOD_GCP)))


@pytest.mark.parametrize(
    ("kind", "after", "rule"),
    [
        ("aws_instance", {"root_block_device": [{"encrypted": False}]}, "root-encryption"),
        ("aws_instance", {"root_block_device": []}, "root-encryption"),
        ("aws_instance", {"ebs_block_device": [{"device_name": "/dev/sdf", "encrypted": False}]}, "data-encryption"),
        ("aws_instance", {"metadata_options": [{"http_tokens": "optional"}]}, "imdsv2"),
        ("aws_instance", {"metadata_options": []}, "imdsv2"),
        ("aws_instance", {"metadata_options": None}, "imdsv2"),
        ("aws_instance", {"user_data": "export HF_TOKEN=hf_" + "a" * 30}, "secret-in-user-data"),
        ("aws_instance", {"tags": {"key": "AKIAIOSFODNN7EXAMPLE"}}, "secret-in-tags"),
        ("aws_instance", {"tags": {"gpuprov:workload": "none.yaml"}}, "workload-tag"),
        ("aws_instance", {"availability_zone": "af-south-1a", "instance_type": "p5.48xlarge"}, "region-support"),
        ("google_compute_instance", {"scheduling": [{"on_host_maintenance": "MIGRATE"}]}, "host-maintenance"),
        ("google_compute_instance", {"scheduling": []}, "host-maintenance"),
        ("google_compute_instance", {"metadata": {"startup-script": "DB_PASSWORD=hunter22"}}, "secret-in-user-data"),
        ("google_compute_instance", {"metadata_startup_script": "x=AKIAIOSFODNN7EXAMPLE"}, "secret-in-user-data"),
        ("google_compute_instance", {"zone": "africa-south1-a"}, "region-support"),
    ],
)
def test_one_fault_in_a_machine_is_found(read: Read, kind: str, after: dict[str, Any], rule: str) -> None:
    good = GOOD_INSTANCE if kind == "aws_instance" else GOOD_GCP
    assert violated(read(change(kind, good | after))) == {rule}


@pytest.mark.parametrize(
    ("kind", "after", "rules"),
    [
        ("aws_ebs_volume", {"encrypted": False, "size": 500}, {"data-encryption"}),
        ("aws_ebs_volume", {"size": 500}, {"data-encryption"}),
        ("aws_ebs_volume", {"encrypted": True, "size": 500}, set()),
        ("google_compute_disk", {"size": 500}, set()),
        (
            "aws_security_group",
            {"ingress": [{"cidr_blocks": ["0.0.0.0/0"], "from_port": 443, "to_port": 443, "protocol": "tcp"}]},
            {"open-cidr"},
        ),
        (
            "aws_security_group",
            {"ingress": [{"ipv6_cidr_blocks": ["::/0"], "from_port": 0, "to_port": 0, "protocol": "-1"}]},
            {"open-cidr"},
        ),
        (
            "aws_security_group",
            {"ingress": [{"cidr_blocks": ["10.0.0.0/8"], "from_port": 22, "to_port": 22, "protocol": "tcp"}]},
            set(),
        ),
        ("aws_security_group", {"ingress": []}, set()),
        (
            "aws_security_group_rule",
            {"type": "ingress", "cidr_blocks": ["0.0.0.0/0"], "from_port": 80, "to_port": 80, "protocol": "tcp"},
            {"open-cidr"},
        ),
        (
            "aws_security_group_rule",
            {"type": "egress", "cidr_blocks": ["0.0.0.0/0"], "from_port": 0, "to_port": 0, "protocol": "-1"},
            set(),
        ),
        ("aws_vpc_security_group_ingress_rule", {"cidr_ipv4": "0.0.0.0/0", "ip_protocol": "-1"}, {"open-cidr"}),
        (
            "aws_vpc_security_group_ingress_rule",
            {"cidr_ipv4": "203.0.113.7/32", "ip_protocol": "tcp", "from_port": 443, "to_port": 443},
            set(),
        ),
        (
            "google_compute_firewall",
            {"direction": "INGRESS", "source_ranges": ["0.0.0.0/0"], "allow": [{"protocol": "tcp", "ports": ["443"]}]},
            {"open-cidr"},
        ),
        (
            "google_compute_firewall",
            {"direction": "EGRESS", "source_ranges": ["0.0.0.0/0"], "allow": [{"protocol": "all"}]},
            set(),
        ),
        (
            "google_compute_firewall",
            {"source_ranges": ["0.0.0.0/0"], "disabled": True, "allow": [{"protocol": "all"}]},
            set(),
        ),
        (
            "google_compute_firewall",
            {"source_ranges": ["0.0.0.0/0"], "deny": [{"protocol": "all"}], "allow": []},
            set(),
        ),
        (
            "google_compute_firewall",
            {"source_ranges": ["35.235.240.0/20"], "allow": [{"protocol": "tcp", "ports": ["22"]}]},
            set(),
        ),
        ("google_compute_firewall", {"allow": [{"protocol": "tcp"}]}, {"open-cidr"}),
        ("google_compute_firewall", {"source_ranges": [], "allow": [{"protocol": "tcp"}]}, {"open-cidr"}),
        ("google_compute_firewall", {"source_tags": ["web"], "allow": [{"protocol": "tcp"}]}, set()),
        ("google_compute_firewall", {"source_service_accounts": ["a@b"], "allow": [{"protocol": "tcp"}]}, set()),
    ],
)
def test_disks_and_firewalls(read: Read, kind: str, after: dict[str, Any], rules: set[str]) -> None:
    assert violated(read(change(kind, after))) == rules


def test_launch_templates_are_judged_and_lend_their_settings(read: Read) -> None:
    template = {
        "image_id": "ami-0123456789abcdef0",
        "instance_type": "g6.xlarge",
        "metadata_options": [{"http_tokens": "required"}],
        "block_device_mappings": [{"device_name": "/dev/sda1", "ebs": [{"encrypted": "true", "volume_size": 200}]}],
        "tag_specifications": [{"resource_type": "instance", "tags": {"owner": "ana"}}],
    }
    instance = {"launch_template": [{"version": "$Latest"}], "tags": {}}
    unknown = {
        "root_block_device": True,
        "metadata_options": True,
        "ebs_block_device": True,
        "instance_type": True,
        "ami": True,
    }
    resources = [
        {"address": "aws_launch_template.t", "expressions": {}},
        {
            "address": "aws_instance.gpu",
            "expressions": {
                "launch_template": [{"id": {"references": ["aws_launch_template.t.id", "aws_launch_template.t"]}}]
            },
        },
    ]
    configuration = {"root_module": {"resources": resources}}
    found = read(
        change("aws_launch_template", template, name="t"),
        change("aws_instance", instance, unknown=unknown),
        configuration=configuration,
    )
    assert not violated(found)
    machines = [subject for subject in found if isinstance(subject, MachineFacts)]
    assert machines[1].instance_type == "g6.xlarge"
    assert machines[1].tags == {"owner": "ana"}
    bad = template | {"metadata_options": [{"http_tokens": "optional"}]}
    twice = read(
        change("aws_launch_template", bad, name="t"),
        change("aws_instance", instance, unknown=unknown),
        configuration=configuration,
    )
    assert sum(finding.rule.id == "imdsv2" for finding in verdict(twice).violations) == 2


def test_only_what_stays_is_judged(read: Read) -> None:
    bad = GOOD_INSTANCE | {"metadata_options": [{"http_tokens": "optional"}]}
    for actions in (("delete",), ("forget",), ("read",)):
        assert not read(change("aws_instance", None if actions == ("delete",) else bad, actions=actions))
    for actions in (("create",), ("update",), ("delete", "create"), ("create", "delete"), ("no-op",)):
        assert violated(read(change("aws_instance", bad, actions=actions))) == {"imdsv2"}
    assert not read(change("aws_instance", bad, mode="data"))


def test_a_plan_that_is_not_whole_is_refused(read: Read) -> None:
    for parts, words in (({"errored": True}, "ended with an error"), ({"format_version": "2.0"}, "not known")):
        with pytest.raises(UsageError, match=words):
            read(change("aws_instance", GOOD_INSTANCE), **parts)
    assert read(change("aws_instance", GOOD_INSTANCE), errored=False, complete=True)


def test_what_a_plan_defers_is_judged_too(read: Read) -> None:
    bad = change("aws_instance", GOOD_INSTANCE | {"metadata_options": [{"http_tokens": "optional"}]}, name="later")
    later = [{"reason": "instance_count_unknown", "resource_change": bad}]
    assert violated(read(deferred_changes=later)) == {"imdsv2"}
    subjects = read(change("aws_instance", GOOD_INSTANCE), deferred_changes=later)
    assert {finding.subject for finding in verdict(subjects).violations} == {"aws_instance.later"}


def test_instances_of_count_and_for_each_are_found_in_the_configuration(read: Read) -> None:
    """What the provider computes where a program says nothing is told apart for each instance of each module."""
    after = {key: value for key, value in GOOD_INSTANCE.items() if key != "ebs_block_device"}
    computed = {"user_data": True, "ebs_block_device": True}
    module = {"resources": [{"address": "aws_instance.gpu", "expressions": {name: {} for name in after}}]}
    called = {"root_module": {"module_calls": {"pool": {"module": {"module_calls": {"one": {"module": module}}}}}}}
    addresses = (
        "module.pool[0].module.one.aws_instance.gpu[3]",
        'module.pool["a"].module.one["b]c"].aws_instance.gpu["x.y"]',
        'module.pool["q\\"]"].module.one.aws_instance.gpu',
    )
    changes = [change("aws_instance", after, unknown=computed) | {"address": address} for address in addresses]
    subjects = read(*changes, configuration=called)
    assert {subject.name for subject in subjects} == set(addresses)
    assert not violated(subjects)


def test_other_resources_are_counted_not_judged(read: Read, tmp_path: Path) -> None:
    read(change("aws_s3_bucket", {"bucket": "x"}))
    subjects, notes = read_file(tmp_path / "tfplan.json", Placer(catalog()))
    assert not subjects
    assert "its only resource is no machine" in notes[0]


def test_values_and_modules_of_a_state_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    bad = GOOD_INSTANCE | {"metadata_options": [{"http_tokens": "optional"}]}
    resource = {"address": "module.a.aws_instance.gpu[0]", "mode": "managed", "type": "aws_instance", "values": bad}
    module = {"root_module": {"child_modules": [{"child_modules": [{"resources": [resource]}]}]}}
    for key in ("values", "planned_values"):
        Path("state.json").write_text(
            json.dumps({"format_version": "1.0", "terraform_version": "1.9.5", key: module}, indent=1)
        )
        found = verdict(read_file(Path("state.json"), Placer(catalog()))[0])
        (finding,) = found.violations
        assert finding.rule.id == "imdsv2"
        assert finding.subject == "module.a.aws_instance.gpu[0]"
        assert "optional" in Path("state.json").read_text().splitlines()[finding.position.line - 1]


def test_findings_point_at_the_line(read: Read) -> None:
    found = verdict(read(change("aws_instance", GOOD_INSTANCE | {"root_block_device": [{"encrypted": False}]})))
    line = Path("tfplan.json").read_text().splitlines()[found.violations[0].position.line - 1]
    assert '"encrypted": false' in line


def test_the_region_comes_from_the_zone_the_resource_or_the_provider(read: Read) -> None:
    configured = {
        "root_module": {
            "resources": [{"address": "aws_instance.gpu", "provider_config_key": "aws", "expressions": {}}]
        },
        "provider_config": {"aws": {"expressions": {"region": {"references": ["var.region"]}}}},
    }
    variables = {"region": {"value": "us-west-2"}}
    (machine,) = read(change("aws_instance", GOOD_INSTANCE), configuration=configured, variables=variables)
    assert isinstance(machine, MachineFacts)
    assert machine.region == "us-west-2"
    (machine,) = read(
        change("aws_instance", GOOD_INSTANCE | {"availability_zone": "eu-west-1b"}), configuration=configured
    )
    assert isinstance(machine, MachineFacts)
    assert machine.region == "eu-west-1"
    (machine,) = read(change("aws_instance", GOOD_INSTANCE | {"region": "eu-north-1"}))
    assert isinstance(machine, MachineFacts)
    assert machine.region == "eu-north-1"
    (machine,) = read(change("aws_instance", GOOD_INSTANCE))
    assert isinstance(machine, MachineFacts)
    assert machine.region is None


def test_a_group_whose_rules_stand_elsewhere_is_not_unknown(read: Read) -> None:
    """``ingress`` is computed where a program declares none; the configuration tells the two apart."""
    group = change("aws_security_group", {"name": "g"}, unknown={"ingress": True})
    assert violated(read(group)) == {"open-cidr"}
    bare = {"root_module": {"resources": [{"address": "aws_security_group.gpu", "expressions": {"name": {}}}]}}
    assert not violated(read(group, configuration=bare))
    inline = {"root_module": {"resources": [{"address": "aws_security_group.gpu", "expressions": {"ingress": {}}}]}}
    assert violated(read(group, configuration=inline)) == {"open-cidr"}


def test_a_rule_by_source_tag_leaves_its_ranges_to_the_provider(read: Read) -> None:
    """The provider marks ``source_ranges`` as computed where the program names a tag instead."""
    rule = change(
        "google_compute_firewall",
        {"source_tags": ["web"], "allow": [{"protocol": "tcp"}]},
        unknown={"source_ranges": True},
    )
    assert violated(read(rule)) == {"open-cidr"}
    expressions = {"source_tags": {}, "allow": {}}
    bare = {"root_module": {"resources": [{"address": "google_compute_firewall.gpu", "expressions": expressions}]}}
    assert not violated(read(rule, configuration=bare))
    hidden = change("google_compute_firewall", {"allow": [{"protocol": "tcp"}]}, unknown={"source_tags": True})
    assert violated(read(hidden)) == {"open-cidr"}


def test_a_launch_configuration_is_a_machine(read: Read) -> None:
    sound = {key: value for key, value in GOOD_INSTANCE.items() if key != "ami"} | {"image_id": "ami-1"}
    assert not violated(read(change("aws_launch_configuration", sound)))
    open_ = sound | {"metadata_options": [{"http_tokens": "optional"}], "root_block_device": [{"encrypted": False}]}
    assert violated(read(change("aws_launch_configuration", open_))) == {"imdsv2", "root-encryption"}


def test_a_plan_whose_list_of_changes_is_empty_is_judged_by_its_planned_values(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    disk = {"address": "aws_ebs_volume.d", "mode": "managed", "type": "aws_ebs_volume", "values": {"encrypted": False}}
    for resources, rules in (([disk], {"data-encryption"}), ([], set())):
        plan = {
            "format_version": "1.2",
            "resource_changes": [],
            "planned_values": {"root_module": {"resources": resources}},
        }
        Path("tfplan.json").write_text(json.dumps(plan))
        assert violated(read_file(Path("tfplan.json"), Placer(catalog()))[0]) == rules
    Path("tfplan.json").write_text(json.dumps({"format_version": "1.2", "resource_changes": []}))
    subjects, notes = read_file(Path("tfplan.json"), Placer(catalog()))
    assert not subjects
    assert "nothing to judge" in notes[0]


@pytest.mark.parametrize("size", [10**400, float("1e300"), "9" * 400])
def test_a_disk_size_beyond_all_numbers_is_no_crash(read: Read, size: object) -> None:
    disk = {"encrypted": True, "volume_size": size}
    assert not violated(read(change("aws_instance", GOOD_INSTANCE | {"root_block_device": [disk]})))


def test_what_the_provider_computes_by_itself_is_not_unknown(read: Read) -> None:
    """A plan of a real provider marks user-data, disks and market options as computed where the program has none."""
    computed = {"user_data": True, "user_data_base64": True, "ebs_block_device": True, "instance_market_options": True}
    after = {key: value for key, value in GOOD_INSTANCE.items() if key != "ebs_block_device"}
    instance = change("aws_instance", after, unknown=computed)
    names = {name: {} for name in after}
    known = {"root_module": {"resources": [{"address": "aws_instance.gpu", "expressions": names}]}}
    assert not violated(read(instance, configuration=known))
    assert violated(read(instance)) == {"secret-in-user-data", "root-encryption", "data-encryption"}
    told = {"root_module": {"resources": [{"address": "aws_instance.gpu", "expressions": names | {"user_data": {}}}]}}
    assert violated(read(instance, configuration=told)) == {"secret-in-user-data"}


def test_a_value_that_the_program_marks_as_secret_is_one(read: Read) -> None:
    after = GOOD_INSTANCE | {"user_data": "just words"}
    assert violated(read(change("aws_instance", after, sensitive={"user_data": True}))) == {"secret-in-user-data"}
    meta = GOOD_GCP | {"metadata": {"key": "just words"}}
    assert violated(read(change("google_compute_instance", meta, sensitive={"metadata": {"key": True}}))) == {
        "secret-in-user-data"
    }


def test_the_tag_places_the_workload_on_the_machine(read: Read, tmp_path: Path) -> None:
    (tmp_path / "chat.yaml").write_text(json.dumps(document()))
    (tmp_path / "large.yaml").write_text(json.dumps(document({"model.id": "meta-llama/Llama-3.1-70B-Instruct"})))
    good = GOOD_INSTANCE | {"tags": {"owner": "ana", "gpuprov:workload": "chat.yaml"}}
    found = verdict(read(change("aws_instance", good)))
    assert not found.violations
    assert "unsized-resource" not in {finding.rule.id for finding in found.findings}
    small = good | {"tags": {"gpuprov:workload": "large.yaml"}}
    (finding,) = [
        each for each in verdict(read(change("aws_instance", small))).violations if each.rule.id == "under-sized"
    ]
    assert "GiB" in finding.outcome.message
    assert finding.outcome.remedy
    assert "g6.xlarge" in Path("tfplan.json").read_text().splitlines()[finding.position.line - 1]
    assert violated(read(change("aws_instance", good, unknown={"tags": {"gpuprov:workload": True}}))) >= {
        "workload-tag"
    }
    assert violated(read(change("aws_instance", good, unknown={"instance_type": True}))) >= {"under-sized"}


ATTACH = {"device_name": "/dev/sdf"}


def links(volume: str, instance: str, module: str = "") -> dict[str, Any]:
    """A configuration in which an attachment refers to a volume and an instance."""
    expressions = {
        "volume_id": {"references": [f"{volume}.id", volume]},
        "instance_id": {"references": [f"{instance}.id", instance]},
    }
    inner = {"resources": [{"address": "aws_volume_attachment.a", "expressions": expressions}]}
    return {"root_module": {"module_calls": {module: {"module": inner}}} if module else inner}


def attach(volume_zone: str, machine_zone: str | None, suffix: str = "", prefix: str = "") -> list[dict[str, Any]]:
    unknown = {"volume_id": True, "instance_id": True}
    machine = GOOD_INSTANCE | {"availability_zone": machine_zone} if machine_zone else GOOD_INSTANCE
    parts = (
        ("aws_ebs_volume.d", {"encrypted": True, "availability_zone": volume_zone}, {}),
        ("aws_instance.m", machine, {} if machine_zone else {"availability_zone": True}),
        ("aws_volume_attachment.a", ATTACH, unknown),
    )
    return [
        change(address.partition(".")[0], after, unknown=hidden) | {"address": f"{prefix}{address}{suffix}"}
        for address, after, hidden in parts
    ]


def test_a_disk_of_another_zone_than_its_machine_is_found(read: Read) -> None:
    told = links("aws_ebs_volume.d", "aws_instance.m")
    assert not violated(read(*attach("us-east-1a", "us-east-1a"), configuration=told))
    subjects = read(*attach("us-east-1a", "us-east-1b"), configuration=told)
    (finding,) = verdict(subjects).violations
    assert finding.rule.id == "volume-zone"
    assert "us-east-1b" in str(finding.outcome.remedy)
    assert violated(read(*attach("us-east-1a", None), configuration=told)) == {"volume-zone"}
    assert not violated(read(*attach("us-east-1a", "us-east-1b")))  # nothing says what is attached to what
    counted = [*attach("us-east-1a", "us-east-1a", "[0]"), *attach("us-east-1b", "us-east-1a", "[1]")]
    assert {f.subject for f in verdict(read(*counted, configuration=told)).violations} == {"aws_volume_attachment.a[1]"}
    deep = attach("us-east-1a", "us-east-1b", prefix="module.pool.")
    inside = links("aws_ebs_volume.d", "aws_instance.m", "pool")
    assert violated(read(*deep, configuration=inside)) == {"volume-zone"}


def test_the_ids_of_a_state_tell_what_is_attached_to_what(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    values = {
        "aws_ebs_volume": {"id": "vol-1", "encrypted": True, "availability_zone": "us-east-1a"},
        "aws_instance": GOOD_INSTANCE | {"id": "i-1", "availability_zone": "us-east-1c"},
        "aws_volume_attachment": {"volume_id": "vol-1", "instance_id": "i-1"},
    }
    resources = [
        {"address": f"{kind}.x", "mode": "managed", "type": kind, "values": held} for kind, held in values.items()
    ]
    Path("state.json").write_text(
        json.dumps(
            {"format_version": "1.0", "terraform_version": "1.9", "values": {"root_module": {"resources": resources}}}
        )
    )
    assert violated(read_file(Path("state.json"), Placer(catalog()))[0]) == {"volume-zone"}


def test_a_google_disk_of_another_zone_is_found(read: Read) -> None:
    link = "https://www.googleapis.com/compute/v1/projects/p/zones/us-central1-b/disks/d"
    for zone, rules in (("us-central1-a", {"volume-zone"}), ("us-central1-b", set())):
        after = GOOD_GCP | {"zone": zone, "attached_disk": [{"source": link}]}
        assert violated(read(change("google_compute_instance", after))) == rules
    machine = change(
        "google_compute_instance",
        GOOD_GCP | {"attached_disk": [{}, {}]},
        unknown={"attached_disk": [{"source": True}, {"source": True}]},
    )
    disks = [change("google_compute_disk", {"zone": f"us-central1-{zone}"}, name=zone) for zone in "ac"]
    sources = [{"source": {"references": [f"google_compute_disk.{zone}.id"]}} for zone in "ac"]
    told = {
        "root_module": {
            "resources": [{"address": "google_compute_instance.gpu", "expressions": {"attached_disk": sources}}]
        }
    }
    (finding,) = verdict(read(machine, *disks, configuration=told)).violations
    assert finding.rule.id == "volume-zone"
    assert "google_compute_disk.c" in finding.outcome.message


@pytest.mark.parametrize(
    ("end", "rules"),
    [
        ("2026-12-02T23:59:59Z", {"reservation-expiry"}),
        ("2027-06-01T00:00:00Z", set()),
        (None, set()),
        ("soon", {"reservation-expiry"}),
    ],
)
def test_the_end_of_a_reservation_is_read(read: Read, end: str | None, rules: set[str]) -> None:
    subjects = read(change("aws_ec2_capacity_reservation", {"instance_type": "p5.48xlarge", "end_date": end}))
    assert {finding.rule.id for finding in verdict(subjects).findings} == rules


def test_a_driver_that_does_not_know_the_gpu_is_found(read: Read) -> None:
    image = "projects/deeplearning-platform-release/global/images/common-cu121-debian-11-nvidia-{}-v1"
    for driver, rules in ((570, set()), (470, {"image-driver"})):
        disk = {"boot_disk": [{"initialize_params": [{"image": image.format(driver), "size": 200}]}]}
        assert violated(read(change("google_compute_instance", GOOD_GCP | disk))) == rules


@pytest.mark.parametrize("path", ["../outside.yaml", "/etc/passwd", "folder", "", "x" * 5000])
def test_a_tag_that_leads_out_of_the_project_names_no_spec(read: Read, tmp_path: Path, path: str) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path.parent / "outside.yaml").write_text(json.dumps(document()))
    tags = {"owner": "ana", "gpuprov:workload": path}
    assert violated(read(change("aws_instance", GOOD_INSTANCE | {"tags": tags}))) == {"workload-tag"}


def test_metadata_names_the_workload_on_google_cloud(read: Read, tmp_path: Path) -> None:
    (tmp_path / "chat.yaml").write_text(json.dumps(document()))
    after = GOOD_GCP | {"metadata": {"gpuprov-workload": "chat.yaml"}}
    found = verdict(read(change("google_compute_instance", after)))
    assert not found.violations
    assert "unsized-resource" not in {finding.rule.id for finding in found.findings}


def test_attached_gpus_are_what_is_sized(read: Read, tmp_path: Path) -> None:
    (tmp_path / "chat.yaml").write_text(
        json.dumps(document({"model.weights": "int4-awq", "inference.context_tokens": 2048}))
    )
    (tmp_path / "large.yaml").write_text(json.dumps(document()))
    host = GOOD_GCP | {"machine_type": "n1-standard-8", "guest_accelerator": [{"type": "nvidia-tesla-t4", "count": 1}]}
    fits = host | {"metadata": {"gpuprov-workload": "chat.yaml"}}
    assert "under-sized" not in violated(read(change("google_compute_instance", fits)))
    large = host | {"metadata": {"gpuprov-workload": "large.yaml"}}
    assert violated(read(change("google_compute_instance", large))) & {"under-sized", "gpu-formats"}


@pytest.mark.parametrize(
    "document_",
    [
        {"format_version": "1.2", "terraform_version": "1.9.5"},
        {"resource_changes": [{"address": "a"}]},
        {"resource_changes": [{"address": "a", "type": "aws_instance", "change": []}]},
        {"resource_changes": ["x"]},
        {"planned_values": {"root_module": {"resources": ["x"]}}},
        {"planned_values": []},
        {"resource_changes": None},
    ],
)
def test_damaged_plans_are_refused(tmp_path: Path, document_: dict[str, Any]) -> None:
    path = tmp_path / "tfplan.json"
    path.write_text(json.dumps(document_))
    with pytest.raises(UsageError) as found:
        read_file(path, Placer(catalog()))
    assert "tfplan.json" in str(found.value.where)


@pytest.mark.parametrize(
    ("after", "unknown", "result"),
    [
        ({"a": 1}, {}, {"a": 1}),
        ({"a": 1}, {"b": True}, {"a": 1, "b": UNKNOWN}),
        ({"a": [{"x": 1}]}, {"a": [{"y": True}]}, {"a": [{"x": 1, "y": UNKNOWN}]}),
        ({"a": []}, {"a": [{"y": True}]}, {"a": [{"y": UNKNOWN}]}),
        ({"a": 1}, True, UNKNOWN),
        (None, {"a": True}, {"a": UNKNOWN}),
        ({"a": [1, 2]}, {"a": [False, True]}, {"a": [1, UNKNOWN]}),
        ({"a": 1}, None, {"a": 1}),
    ],
)
def test_unknown_values_are_laid_over_the_known(after: Any, unknown: Any, result: Any) -> None:
    assert merged(after, unknown) == result


FAULTS = (
    ("aws_instance", GOOD_INSTANCE | {"root_block_device": [{"encrypted": False, "volume_size": 200}]}),
    ("aws_instance", GOOD_INSTANCE | {"metadata_options": [{"http_tokens": "optional"}]}),
    ("aws_instance", GOOD_INSTANCE | {"user_data": "HF_TOKEN=hf_" + "a" * 30}),
    ("aws_ebs_volume", {"encrypted": False}),
    (
        "aws_security_group",
        {"ingress": [{"cidr_blocks": ["0.0.0.0/0"], "from_port": 1, "to_port": 2, "protocol": "tcp"}]},
    ),
    ("google_compute_instance", GOOD_GCP | {"scheduling": [{"on_host_maintenance": "MIGRATE"}]}),
    ("google_compute_firewall", {"source_ranges": ["0.0.0.0/0"], "allow": [{"protocol": "tcp"}]}),
)


def hide(value: Any, dice: random.Random) -> tuple[Any, Any]:
    """A value with some of its parts moved to ``after_unknown``."""
    if dice.random() < 0.15:
        return None, True
    if isinstance(value, dict):
        parts = {key: hide(item, dice) for key, item in value.items()}
        return {key: part[0] for key, part in parts.items() if part[1] is not True}, {
            key: part[1] for key, part in parts.items()
        }
    if isinstance(value, list):
        items = [hide(item, dice) for item in value]
        return [item[0] for item in items], [item[1] for item in items]
    return value, False


@pytest.mark.parametrize("number", range(120))
def test_values_that_are_computed_later_never_make_a_faulty_plan_pass(read: Read, number: int) -> None:
    dice = random.Random(number)
    kind, after = FAULTS[number % len(FAULTS)]
    known, unknown = hide(after, dice)
    assert violated(read(change(kind, known, unknown=unknown))), (known, unknown)
