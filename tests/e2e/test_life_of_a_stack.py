"""The whole road with the real engine on the sandbox: up, status, stop, start, drift, down."""

from __future__ import annotations

import pytest

from provisioner import tags

pytestmark = [pytest.mark.engine, pytest.mark.slow]


def test_a_stack_lives_and_ends(bench):
    made = bench.up()
    assert made.code == 0, made.err
    document = made.document
    assert document["schema"] == "gpuprov.up/1"
    assert document["stack"] == "demo"
    assert document["changes"] == {"create": 3, "update": 0, "replace": 0, "delete": 0, "same": 0}
    assert [attempt["outcome"] for attempt in document["attempts"]] == ["created"]
    outputs = document["outputs"]
    assert outputs["provider"] == "sandbox"
    assert outputs["ready"] is True
    assert len(outputs["volume_ids"]) == 1
    assert "sandbox: nothing real is created" in made.err
    assert "create GpuInstance instance" in made.err
    assert "using pulumi-resource-" not in made.err

    (machine,) = bench.machines()
    assert machine.id == outputs["instance_id"]
    assert document["price_usd_per_hour"] == machine.price_usd_per_hour
    for entry in bench.cloud.list_objects():
        if entry.price_usd_per_hour != "0":
            assert set(tags.REQUIRED) <= set(entry.tags), entry.id

    creates = len(bench.creates())
    again = bench.up()
    assert again.code == 0, again.err
    assert again.document["changes"] == {"create": 0, "update": 0, "replace": 0, "delete": 0, "same": 3}
    assert again.document["attempts"] == []
    assert "no changes" in again.err
    assert len(bench.creates()) == creates

    status = bench.run("status", "--format", "json").document
    assert [(s["stack"], s["state"], s["provider"]) for s in status["stacks"]] == [("demo", "running", "sandbox")]
    assert {entry["kind"] for entry in status["objects"]} == {"instance", "volume", "ip", "security-group"}
    assert {"cloud", "kind", "id", "region", "zone", "state", "tags", "price_usd_per_hour", "created_at"} <= set(
        status["objects"][0]
    )

    kept = bench.down("--keep-data")
    assert kept.code == 0, kept.err
    assert [disk["id"] for disk in kept.document["kept"]] == outputs["volume_ids"]
    assert kept.document["removed"] is False
    assert "keeps data disk" in kept.err
    assert "50.0 GiB" in kept.err
    assert bench.machines() == []

    back = bench.up()
    assert back.document["outputs"]["volume_ids"] == outputs["volume_ids"]
    assert back.document["outputs"]["zone"] == outputs["zone"]
    assert back.document["outputs"]["instance_id"] != outputs["instance_id"]

    ended = bench.down()
    assert ended.code == 0, ended.err
    assert ended.document["removed"] is True
    assert ended.document["objects"] == []
    assert "deletes data disk" in ended.err
    assert bench.running_bill() == []
    assert bench.most_machines_at_once() == 1
    gone = bench.down()
    assert gone.code == 2
    assert gone.document["schema"] == "gpuprov.down/1"
    assert gone.document["error"]["code"] == 2


def test_stop_start_and_drift(make_bench):
    types = "placement: {regions: [us-east-1], instance_types: [g6.xlarge, g6.2xlarge]}"
    bench = make_bench(extra=f"lifecycle: {{pattern: bursty, max_lifetime: 12h}}\n{types}")
    made = bench.up().document["outputs"]
    expiry = made["expires_at"]
    assert expiry != "none"
    bench.sandbox("clock", "advance", "1h")

    stopped = bench.run("stop", "demo", "--format", "json")
    assert stopped.code == 0, stopped.err
    assert stopped.document["state"] == "stopped"
    assert bench.machines()[0].price_usd_per_hour == "0"
    assert bench.run("stop", "demo").code == 0

    bench.sandbox("capacity", "set", "*/*/*/*/*", "0")
    refused = bench.run("start", "demo", "--format", "json")
    assert refused.code == 7, refused.err
    assert "stays stopped" in refused.err
    assert made["instance_id"] in refused.err
    assert [machine.state for machine in bench.machines()] == ["stopped"]
    bench.sandbox("capacity", "clear")
    own = bench.run("refresh", "demo", "--format", "json")
    assert own.document["drift"] == []  # the new end that it was given is our own change
    assert own.document["outputs"]["expires_at"] > expiry

    started = bench.run("start", "demo", "--format", "json")
    assert started.code == 0, started.err
    (moved,) = started.document["drift"]
    assert moved["changes"].keys() == {"power", "ready"}
    assert bench.run("preview", str(bench.spec), "--format", "json").document["drift"] == []
    outputs = started.document["outputs"]
    assert started.document["state"] == "running"
    assert outputs["instance_id"] == made["instance_id"]
    assert outputs["expires_at"] > expiry
    assert bench.machines()[0].tags[tags.EXPIRES_AT] == outputs["expires_at"]
    same = bench.up()
    assert same.document["changes"]["same"] == 2, same.err
    assert same.document["outputs"]["expires_at"] == outputs["expires_at"]

    bench.sandbox("impair", made["instance_id"], "--check", "system")
    bench.sandbox("alter", made["instance_id"], "--instance-type", "g6.2xlarge", "--root-speed", "6000:500")
    for command in (("refresh", "demo"), ("preview", str(bench.spec))):
        shown = bench.run(*command, "--format", "json")
        assert shown.code == 0, shown.err
        (entry,) = [one for one in shown.document["drift"] if one["name"] == "instance"]
        assert "the host's status check fails" in entry["health"]
        assert entry["gone"] is False
        altered = {one["what"]: (one["found"], one["wanted"]) for one in entry["foreign"]}
        assert altered == {
            "instance type": ("g6.2xlarge", made["instance_type"]),
            "speed of the root disk": ("6000 IOPS, 500 MiB/s", "3000 IOPS, 125 MiB/s"),
        }
    told = bench.run("status", "demo", "--format", "json").document["stacks"][0]
    assert told["state"] == "running"
    assert any("stop and start it" in note for note in told["notes"])
    kept = bench.up()
    assert kept.code == 0, kept.err
    assert "is impaired: the host's status check fails" in kept.err
    assert kept.document["outputs"]["instance_id"] == made["instance_id"]
    # The spec allows the other type, so the machine is kept, told, and counted at its own price; its disk is put right.
    assert kept.document["outputs"]["instance_type"] == "g6.2xlarge"
    assert kept.document["price_usd_per_hour"] == bench.machines()[0].price_usd_per_hour
    assert "instance type is g6.2xlarge, not g6.xlarge; gpuprov sandbox alter" in kept.err
    (after,) = [one for one in bench.run("refresh", "demo", "--format", "json").document["drift"] if one["foreign"]]
    assert [one["what"] for one in after["foreign"]] == ["instance type"]

    bench.sandbox("vanish", made["instance_id"])
    drifted = bench.run("refresh", "demo", "--format", "json")
    assert [entry["gone"] for entry in drifted.document["drift"] if entry["name"] == "instance"] == [True]
    assert drifted.document["state"] == "no machine"
    lost = bench.run("start", "demo")
    assert lost.code == 4
    assert "`gpuprov up` makes" in lost.err
    assert bench.machines() == []

    new = bench.up()
    assert new.code == 0, new.err
    assert new.document["outputs"]["instance_id"] != made["instance_id"]
    assert len(bench.machines()) == 1
    assert bench.down().code == 0
    assert bench.running_bill() == []


def test_up_shows_a_vanished_machine_and_makes_one_again(bench):
    first = bench.up().document["outputs"]["instance_id"]
    bench.sandbox("vanish", first)
    shown = bench.run("preview", str(bench.spec), "--format", "json")
    assert shown.code == 0, shown.err
    assert [entry["id"] for entry in shown.document["drift"] if entry["gone"]] == [first]
    assert shown.document["changes"]["create"] == 1
    again = bench.up()
    assert again.code == 0, again.err
    assert f"is not there any more ({first})" in again.err
    assert len(bench.machines()) == 1
    assert bench.down().code == 0
    assert bench.running_bill() == []


def test_a_preview_makes_nothing_and_leaves_nothing(bench):
    shown = bench.run("preview", str(bench.spec), "--format", "json")
    assert shown.code == 0, shown.err
    assert shown.document["schema"] == "gpuprov.preview/1"
    assert shown.document["changes"]["create"] == 3
    assert shown.document["plan"]["schema"] == "gpuprov.plan/1"
    assert bench.creates() == []
    assert bench.run("status", "--format", "json").document["stacks"] == []


def test_an_edit_updates_and_a_smaller_gpu_replaces(bench):
    first = bench.up().document["outputs"]["instance_id"]
    text = bench.spec.read_text()
    bench.spec.write_text(text + "tags: {team: search}\n")
    tagged = bench.up()
    assert tagged.document["changes"]["update"] == 1, tagged.err
    assert tagged.document["changes"]["replace"] == 0
    assert bench.machines()[0].tags["team"] == "search"
    bench.spec.write_text(
        text.replace("storage:", "placement: {instance_types: [g6e.xlarge], regions: [us-east-1]}\nstorage:")
    )
    refused = bench.up()
    # The data disk is in another zone and cannot move: nothing is touched, and the way out is named.
    assert refused.code in (2, 4), refused.err
    assert [machine.id for machine in bench.machines()] == [first]
    assert bench.down().code == 0
    assert bench.running_bill() == []


def test_an_edited_run_reaches_the_live_machine_and_a_start_without_room_goes_on_later(make_bench):
    bench = make_bench(extra='storage: {data: 50GiB}\nrun: {image: "x@sha256:1", command: [old], ports: [8000]}')
    made = bench.up().document["outputs"]
    text = bench.spec.read_text()
    bench.spec.write_text(text.replace("[old]", "[new]"))
    shown = bench.run("preview", str(bench.spec), "--format", "json").document
    assert (shown["changes"]["update"], shown["changes"]["replace"]) == (1, 0)
    assert any("is stopped, told so and started again" in warning for warning in shown["warnings"])
    assert bench.run("up", str(bench.spec)).code == 2, "nobody said yes"
    assert bench.machines()[0].state == "running"
    pool = "/".join(made[key] for key in ("cloud", "region", "zone", "instance_type", "capacity_type"))
    bench.sandbox("capacity", "set", pool, "0")
    refused = bench.up()
    assert refused.code == 7, refused.err
    assert [machine.state for machine in bench.machines()] == ["stopped"]
    assert refused.document["outputs"]["volume_ids"] == made["volume_ids"]
    bench.sandbox("capacity", "clear")
    done = bench.up()
    assert done.code == 0, done.err
    assert done.document["outputs"]["instance_id"] == made["instance_id"]
    assert done.document["outputs"]["ready"] is True
    assert [machine.state for machine in bench.machines()] == ["running"]
    assert bench.up().document["changes"]["same"] == 3
    assert bench.most_machines_at_once() == 1
    assert bench.down().code == 0
    assert bench.running_bill() == []
