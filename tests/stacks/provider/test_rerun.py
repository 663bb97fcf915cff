"""A live machine takes another start over: the same machine where it can be stopped, a new one where it cannot."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from provisioner import tags
from provisioner.errors import CapacityError, Rejected
from provisioner.node.config import config_of
from provisioner.node.renew import program_of, wanted_files
from stacks.provider.node import run_digest
from stacks.provider.session import PartialFailure
from tests.fakes.mini_engine import MiniEngine, engine, offer, program

SAME = [("launch", "same"), ("gpu", "same")]
AZ1 = "aws/us-east-1/use1-az1/g6.xlarge/on-demand"


def running(command: str = "old", **changes: Any) -> dict[str, Any]:
    """A program whose machine serves with a command."""
    workload = {**program()["workload"], "run": {"command": [command], "ports": [8000], "image": "x@sha256:1"}}
    return program(**{"workload": workload, "node": {"startS": 300, "offers": {}}, **changes})


def edited(**changes: Any) -> dict[str, Any]:
    """The spec with other parts."""
    return {**running()["workload"], **changes}


def only(mini: MiniEngine) -> str:
    """Id of the one machine that lives."""
    (machine,) = mini.cloud.living
    return machine.id


def files_of(mini: MiniEngine, machine: str) -> dict[str, str]:
    """What a machine that was told another start writes at its next boot."""
    found = wanted_files(program_of(mini.cloud.user_data[machine].encode()))
    return {name: content.decode() for name, (content, _) in found.items()}


def command_of(mini: MiniEngine, machine: str) -> str:
    return files_of(mini, machine)["etc/gpuprov/argv"].rstrip("\0")


def test_the_same_machine_runs_the_new_start_with_one_stop_and_a_second_up_changes_nothing(home: Path) -> None:
    mini = engine(home)
    mini.up(running("old"))
    machine = only(mini)
    before = len(mini.cloud.calls)
    assert mini.up(running("new")) == [("launch", "same"), ("gpu", "update")]
    assert only(mini) == machine
    order = [
        c.operation
        for c in mini.cloud.calls[before:]
        if c.operation in ("stop_instance", "set_user_data", "start_instance")
    ]
    assert order == ["stop_instance", "set_user_data", "start_instance"]
    assert command_of(mini, machine) == "new"
    assert mini.outputs("gpu")["power"] == "running"
    assert mini.up(running("new")) == SAME
    assert mini.cloud.count("create_instance") == 1


def test_the_preview_says_what_is_done_what_it_costs_and_for_how_long(home: Path) -> None:
    mini = engine(home)
    mini.up(running("old"))
    mini.told.clear()
    mini.up(running("new"))
    said = next(text for text in mini.told if "has changed" in text)
    assert "is stopped, told so and started again, with its disks" in said
    assert "requests in flight may finish" in said
    assert "about 5 min" in said


@pytest.mark.parametrize(
    ("training", "words"),
    [
        (
            {"checkpoint": {"hook": ["./save.sh"], "resumable": True}},
            "runs its checkpoint hook first and then goes on from it",
        ),
        ({"checkpoint": {"hook": ["./save.sh"]}}, "runs its checkpoint hook first and then starts anew"),
        ({}, "is cut off: it has no checkpoint hook"),
    ],
)
def test_a_job_in_progress_is_named(home: Path, training: dict[str, Any], words: str) -> None:
    mini = engine(home)
    mini.up(running(workload=edited(task="finetune", training=training)))
    mini.told.clear()
    mini.up(running(workload=edited(task="finetune", training=training, run={"command": ["other"]})))
    assert any(words in text for text in mini.told)


def test_a_machine_that_cannot_be_stopped_is_replaced_and_its_data_disk_stays(home: Path) -> None:
    spot = [offer("use1-az1", capacity="spot")]
    mini = engine(home)
    mini.up(running("old", offers=spot, disks={"data": "200GiB"}))
    first, (disk,) = only(mini), mini.cloud.disks
    mini.told.clear()
    steps = mini.up(running("new", offers=spot, disks={"data": "200GiB"}))
    assert ("gpu", "replace") in steps
    assert only(mini) != first
    assert list(mini.cloud.disks) == [disk]
    assert any("a one-time spot instance cannot be stopped" in text and "data disks stay" in text for text in mini.told)
    assert {kind for _, kind in mini.up(running("new", offers=spot, disks={"data": "200GiB"}))} == {"same"}


def test_no_room_for_a_replacement_leaves_the_old_machine_at_work(home: Path) -> None:
    spot = [offer("use1-az1", capacity="spot")]
    mini = engine(home)
    mini.up(running("old", offers=spot))
    first = only(mini)
    mini.cloud.no_capacity = {AZ1.replace("on-demand", "spot")}
    with pytest.raises(CapacityError, match="was left as it is"):
        mini.up(running("new", offers=spot))
    assert only(mini) == first


def test_a_start_without_capacity_is_told_and_goes_on_with_the_next_up(home: Path) -> None:
    mini = engine(home)
    mini.up(running("old", disks={"data": "200GiB"}))
    machine = only(mini)
    mini.cloud.no_capacity = {AZ1}
    with pytest.raises(PartialFailure, match="stays stopped, with its disks") as failure:
        mini.up(running("new", disks={"data": "200GiB"}))
    assert isinstance(failure.value.cause, CapacityError)
    mini.cloud.no_capacity = set()
    stops = mini.cloud.count("stop_instance")
    mini.up(running("new", disks={"data": "200GiB"}))
    assert only(mini) == machine
    assert mini.outputs("gpu")["power"] == "running"
    assert mini.cloud.count("stop_instance") == stops
    assert {kind for _, kind in mini.up(running("new", disks={"data": "200GiB"}))} == {"same"}


def test_a_stopped_machine_is_told_and_started_without_another_stop(home: Path) -> None:
    mini = engine(home)
    mini.up(running("old"))
    mini.cloud.stop_instance(mini.cloud.living[0].placement, only(mini))
    stops = mini.cloud.count("stop_instance")
    mini.up(running("new"))
    assert mini.cloud.count("stop_instance") == stops
    assert mini.outputs("gpu")["power"] == "running"
    assert command_of(mini, only(mini)) == "new"


def test_limits_that_the_machine_keeps_itself_are_told_to_come_later_and_come_with_the_next_start(home: Path) -> None:
    mini = engine(home)
    mini.up(running("old"))
    mini.told.clear()
    limited = edited(lifecycle={"max_lifetime": "12h", "max_spend": "40 USD"})
    given = running(workload=limited, node={"startS": 300, "offers": {AZ1: {"price": "1", "gpus": 1}}})
    assert mini.up(given) == [("launch", "same"), ("gpu", "update")]
    assert any("lifecycle.max_spend" in text and "next starts it" in text for text in mini.told)
    assert mini.cloud.count("stop_instance") == 0
    mini.cloud.stop_instance(mini.cloud.living[0].placement, only(mini))
    mini.up(given)
    assert config_of(mini.cloud.user_data[only(mini)])["spend_s"] == 144000


def test_flags_of_the_plan_reach_the_machine_and_predictions_do_not_restart_it(home: Path) -> None:
    mini = engine(home)
    auto = edited(run="auto")
    node = {"argv": ["vllm", "serve", "m"], "image": "vllm:1", "startS": 300, "idleAfterS": 600, "offers": {}}
    mini.up(running(workload=auto, node=node))
    later = node | {
        "startS": 450,
        "idleAfterS": 700,
        "plannedTokensPerS": 9.0,
        "offers": {AZ1: {"price": "1", "gpus": 1}},
    }
    assert mini.up(running(workload=auto, node=later)) == SAME
    flags = later | {"argv": ["vllm", "serve", "m", "--max-model-len", "4096"]}
    assert ("gpu", "update") in mini.up(running(workload=auto, node=flags))
    assert mini.up(running(workload=auto, node=flags)) == SAME


@pytest.mark.parametrize(
    "part",
    [
        {"command": ["other"]},
        {"image": "x@sha256:2"},
        {"env": {"A": "2"}},
        {"env": {"A": {"secret": "aws-secretsmanager:b"}}},
        {"ports": [8001]},
        {"ready": {"path": "/up", "port": 8000}},
        {"data": "s3://bucket/set"},
    ],
)
def test_each_part_of_a_run_tells(part: dict[str, Any]) -> None:
    run = {"command": ["serve"], "image": "x@sha256:1", "ports": [8000], "env": {"A": "1"}}
    assert run_digest({"task": "serve", "run": run}, {}) != run_digest({"task": "serve", "run": {**run, **part}}, {})


def test_what_says_nothing_about_the_start_does_not_tell() -> None:
    spec = {"task": "serve", "run": {"command": ["serve"]}}
    more = {
        "lifecycle": {"idle": {"after": "15m"}, "max_lifetime": "2h"},
        "tags": {"team": "a"},
        "access": {"cidrs": ["1.2.3.4/32"]},
    }
    assert run_digest(spec, {}) == run_digest(spec | more, {"startS": 9})
    assert run_digest({"task": "serve"}, {}) == tags.NONE


def test_a_machine_without_the_tag_is_left_alone(home: Path) -> None:
    mini = engine(home)
    mini.up(running("old"))
    from dataclasses import replace

    machine = mini.cloud.machines[only(mini)]
    kept = {key: value for key, value in machine.instance.tags.items() if key != tags.RUN_DIGEST}
    machine.instance = replace(machine.instance, tags=kept)
    mini.up(running("new"))
    assert mini.cloud.count("stop_instance") == 0


def test_a_machine_that_a_cut_run_left_is_adopted_and_told(home: Path) -> None:
    mini = engine(home)
    mini.up(running("old"))
    machine = only(mini)
    del mini.state["gpu"]
    mini.restart()
    mini.up(running("new"))
    assert only(mini) == machine
    assert command_of(mini, machine) == "new"


def test_what_a_live_machine_does_not_take_over_at_once_is_said_and_only_once(home: Path) -> None:
    mini = engine(home)
    mini.up(running())
    mini.told.clear()
    other = edited(lifecycle={"max_lifetime": "12h"})
    given = running(workload=other, disks={"data": "200GiB"})
    mini.up(given)
    said = "\n".join(mini.told)
    assert "data disk data: the live machine learns of it when `up` next starts it" in said
    mini.told.clear()
    mini.up(given)
    assert mini.told == []


def test_a_data_disk_that_is_added_is_attached_first_and_mounted_with_one_stop_and_start(home: Path) -> None:
    mini = engine(home)
    mini.up(running())
    machine = only(mini)
    mini.cloud.calls.clear()
    mini.told.clear()
    given = running(disks={"data": "200GiB"}, node={"startS": 300, "offers": {}, "volumes": ["data"]})
    mini.up(given)
    assert only(mini) == machine
    steps = ("attach_volume", "stop_instance", "set_user_data", "start_instance")
    assert [c.operation for c in mini.cloud.calls if c.operation in steps] == list(steps)
    assert files_of(mini, machine)["etc/gpuprov/run.env"].startswith(f"VOLUMES='data={200 * 2**30}'")
    assert any("data disk data, mounted before the workload starts" in text for text in mini.told)
    assert not any("learns of it" in text for text in mini.told)
    mini.told.clear()
    assert {kind for _, kind in mini.up(given)} == {"same"}
    assert mini.told == []


def test_a_disk_that_cannot_be_attached_leaves_the_machine_at_work(home: Path) -> None:
    mini = engine(home)
    mini.up(running())
    mini.cloud.errors["attach_volume"].append((False, Rejected("AttachmentLimitExceeded")))
    given = running(disks={"data": "200GiB"}, node={"startS": 300, "offers": {}, "volumes": ["data"]})
    with pytest.raises(PartialFailure, match="AttachmentLimitExceeded"):
        mini.up(given)
    assert mini.cloud.count("stop_instance") == 0
    mini.up(given)
    assert mini.cloud.count("stop_instance") == 1
    assert mini.outputs("gpu")["power"] == "running"


def test_a_disk_that_grows_stops_nothing(home: Path) -> None:
    mini = engine(home)
    node = {"startS": 300, "offers": {}, "volumes": ["data"]}
    mini.up(running(disks={"data": "200GiB"}, node=node))
    mini.told.clear()
    mini.up(running(disks={"data": "300GiB"}, node=node))
    assert mini.cloud.count("stop_instance") == 0
    assert [disk.volume.size_bytes for disk in mini.cloud.disks.values()] == [300 * 2**30]
    assert mini.told == []
