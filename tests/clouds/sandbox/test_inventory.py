"""What carries our tags, and construction that costs nothing."""

from __future__ import annotations

import subprocess
import sys

from provisioner.clouds.sandbox.cloud import SandboxCloud
from provisioner.tags import parse_time


def test_only_our_tags_are_listed(box):
    foreign = box.running("token-1", tags={"Name": "machine-token-2", "team": "search"})
    ours = box.running("token-2")
    box.cloud.create_volume(box.volume(tags={"Name": "disk"}))
    listed = {thing.id for thing in box.cloud.list_objects()}
    assert ours.id in listed
    assert foreign.id not in listed
    assert len(listed) == 3


def test_objects_keep_the_cloud_of_their_offer_and_say_that_they_are_the_sandbox_s(box, gcp_box):
    box.running("token-1")
    gcp_box.running("token-2")
    assert {(thing.cloud, thing.extra["provider"]) for thing in box.cloud.list_objects()} == {
        ("aws", "sandbox"),
        ("gcp", "sandbox"),
    }
    assert box.cloud.provider == "sandbox"


def test_parts_carry_the_machine_s_tags_and_name_it(box):
    made = box.running()
    box.cloud.set_tags(box.here, made.id, {"gpuprov:generation": "9"})
    things = box.cloud.list_objects()
    assert [(thing.kind, thing.extra.get("role")) for thing in things] == [
        ("instance", None),
        ("volume", "root"),
        ("ip", None),
    ]
    assert {thing.tags["gpuprov:generation"] for thing in things} == {"9"}
    assert {thing.extra.get("instance", made.id) for thing in things} == {made.id}
    assert {thing.id for thing in things}.isdisjoint({disk.id for disk in box.cloud.find_volumes({}, [box.here])})


def test_tags_of_volumes_and_groups_can_be_written(box):
    volume = box.cloud.create_volume(box.volume())
    group = box.cloud.ensure_security_group(box.here, {"gpuprov:stack": "a"}, [], [])
    for one in (volume.id, group):
        box.cloud.set_tags(box.here, one, {"team": "search"})
    box.wait()
    assert {thing.tags["team"] for thing in box.cloud.list_objects()} == {"search"}


def test_ensuring_a_group_brings_its_rules_in_line(box):
    wanted = {"gpuprov:stack": "a"}
    for cidrs, ports in (([], []), (["203.0.113.7/32"], [22]), (["203.0.113.7/32"], [22])):
        box.cloud.ensure_security_group(box.here, wanted, cidrs, ports)
    effects = [str(call.effect) for call in box.controls.calls(operation="ensure_security_group")]
    assert effects == ["created", "changed", "none"]


def test_construction_opens_nothing(home):
    SandboxCloud(home / "deeper", catalog=lambda: 1 / 0)
    assert list(home.iterdir()) == []


def test_reads_need_no_catalog(box):
    made = box.running()

    def never():
        raise AssertionError("the catalog was read")

    reader = SandboxCloud(box.home, host=box.clock.host, catalog=never)
    reader.now()
    reader.get_instance(box.here, made.id)
    reader.find_instances({}, [box.here])
    reader.list_objects()
    reader.stop_instance(box.here, made.id)
    box.wait()
    reader.start_instance(box.here, made.id)
    reader.controls.bill()
    reader.terminate_instance(box.here, made.id)
    reader.close()


def test_the_catalog_is_read_once(box):
    loads = []

    def load():
        from provisioner.catalog.snapshot import load_catalog

        loads.append(1)
        return load_catalog()

    cloud = SandboxCloud(box.home, host=box.clock.host, catalog=load)
    for number in range(5):
        cloud.create_instance(box.request(f"token-{number}"))
    cloud.close()
    assert loads == [1]


def test_importing_the_sandbox_imports_nothing_heavy():
    program = (
        "import sys, provisioner.clouds.sandbox.cloud as m; m.SandboxCloud(__import__('pathlib').Path('/nowhere'));"
        "heavy = ('boto3', 'botocore', 'google', 'pulumi', 'grpc', 'pydantic', 'yaml', 'click', 'rich', 'provisioner.catalog',"
        " 'provisioner.planner');"
        "print([n for n in sys.modules if n.startswith(heavy)])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def test_a_stopped_machine_says_since_when(box):
    made = box.running()
    (machine,) = [entry for entry in box.cloud.list_objects() if entry.kind == "instance"]
    assert "stopped_at" not in machine.extra
    box.cloud.stop_instance(box.here, made.id)
    box.wait()
    stopped_at = box.cloud.now()
    box.clock.pass_time(hours=3)
    (machine,) = [entry for entry in box.cloud.list_objects() if entry.kind == "instance"]
    assert abs((stopped_at - parse_time(machine.extra["stopped_at"])).total_seconds()) < 60
