from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest

from provisioner.errors import UsageError
from stacks.provider.launch import Launches
from stacks.provider.values import UNKNOWN, plain_map, wrap_map
from tests.fakes.cloud import CallRecord, Crash
from tests.fakes.mini_engine import MiniEngine, engine, offer, program, urn


def diff(mini: MiniEngine, **changes: object) -> dict[str, bool]:
    checked = Launches(mini.session).check(urn("launch"), mini.state["launch"].inputs, wrap_map(program(**changes)))
    return dict(Launches(mini.session).diff(mini.state["launch"].outputs, checked.inputs).changed)


def test_it_holds_all_that_later_calls_are_made_of(home: Path) -> None:
    mini = engine(home)
    mini.up(program(workload={"name": "chat", "task": "finetune", "tags": {"owner": "bo"}}))
    outputs = mini.outputs("launch")
    assert len(outputs["stackId"]) == 32
    assert mini.state["launch"].id == outputs["stackId"]
    assert outputs["generation"] == 1
    assert outputs["createdAt"] == "2026-11-30T12:00:00Z"
    assert outputs["expiresAt"] == "2026-12-01T12:00:00Z"
    assert outputs["owner"] == "bo"
    assert outputs["image"] == {
        "aws/us-east-1/use1-az1/g6.xlarge/on-demand": "image-1",
        "aws/us-east-1/use1-az2/g6.xlarge/on-demand": "image-2",
    }


def test_e6_two_stacks_of_the_same_program_are_two(home: Path, tmp_path: Path) -> None:
    one, other = engine(home), engine(tmp_path / "other")
    one.up(program())
    other.up(program())
    assert one.outputs("launch")["stackId"] != other.outputs("launch")["stackId"]
    tokens = [next(iter(mini.cloud.machines.values())).request.token for mini in (one, other)]
    assert tokens[0] != tokens[1]


def test_a_pinned_image_is_not_looked_up(home: Path) -> None:
    mini = engine(home)
    mini.up(program(workload={"name": "chat", "task": "serve", "aws": {"image": "ami-pin"}}))
    assert set(mini.outputs("launch")["image"].values()) == {"ami-pin"}
    assert mini.cloud.count("resolve_image") == 0
    assert mini.cloud.living[0].image == "ami-pin"


def test_an_unchanged_launch_asks_the_cloud_nothing(home: Path) -> None:
    mini = engine(home)
    mini.up(program())
    before = len(mini.cloud.calls)
    assert diff(mini) == {}
    assert diff(mini, offers=program()["offers"][::-1]) == {}
    assert diff(mini, workload={"name": "chat", "task": "serve", "lifecycle": {"max_lifetime": "1h"}}) == {}
    assert len(mini.cloud.calls) == before


def test_new_offers_get_images_while_no_machine_lives(home: Path) -> None:
    mini = engine(home)
    mini.up(program())
    del mini.state["gpu"]
    mini.cloud.machines.clear()
    more = [*program()["offers"], offer("use1-az6")]
    assert diff(mini, offers=more) == {"offers": False}
    kept = mini.outputs("launch")["image"]
    mini.up(program(offers=more), refresh=False)
    outputs = mini.outputs("launch")
    assert outputs["generation"] == 1
    assert kept.items() < outputs["image"].items()


def test_new_offers_are_no_change_while_the_machine_keeps_its_own(home: Path) -> None:
    mini = engine(home)
    mini.up(program())
    assert diff(mini, offers=[*program()["offers"], offer("use1-az6")]) == {}


def test_a_crash_after_the_generation_rose_does_not_raise_it_again(home: Path) -> None:
    mini = engine(home)
    mini.up(program())
    launch = mini.state["launch"]
    news = Launches(mini.session).check(urn("launch"), launch.inputs, wrap_map(program(rootVolume="200GiB"))).inputs
    launch.outputs = Launches(mini.session).update(launch.outputs, news)
    assert mini.outputs("launch")["generation"] == 2
    assert Launches(mini.session).diff(launch.outputs, news).changed == {}
    mini.up(program(rootVolume="200GiB"))
    assert mini.cloud.living[0].tags["gpuprov:generation"] == "2"


def test_previews_tell_the_generation_and_hide_the_rest(home: Path) -> None:
    mini = engine(home)
    news = Launches(mini.session).check(urn("launch"), {}, wrap_map(program())).inputs
    first = plain_map(Launches(mini.session).preview_create(news))
    assert (first["generation"], first["stackId"], first["rootVolume"]) == (1, UNKNOWN, 100 * 2**30)
    mini.up(program())
    mini.cloud.reclaim(mini.cloud.living[0].id)
    mini.refresh()
    seen = plain_map(Launches(mini.session).preview_update(mini.state["launch"].outputs, news))
    assert (seen["generation"], seen["image"], seen["stackId"]) == (2, UNKNOWN, mini.outputs("launch")["stackId"])
    assert "spent" not in seen


def test_a_lifetime_that_is_none_is_refused_in_check(home: Path) -> None:
    workload = {"name": "chat", "task": "serve", "lifecycle": {"max_lifetime": "soon"}}
    checked = Launches(engine(home).session).check(urn("launch"), {}, wrap_map(program(workload=workload)))
    assert "max_lifetime" in checked.wrong["workload"]


def test_a_default_of_a_later_version_does_not_replace_machines(home: Path) -> None:
    mini = engine(home)
    mini.up(program(rootVolume="123GiB"))
    assert mini.up(program()) == [("launch", "same"), ("gpu", "same")]


def test_a_terminating_machine_is_waited_for_and_the_generation_rises(home: Path) -> None:
    mini = engine(home, boot=timedelta(0))
    mini.cloud.ending = timedelta(seconds=40)
    mini.up(program())
    old = mini.cloud.living[0]
    mini.cloud.terminate_instance(old.placement, old.id)
    mini.refresh()
    assert mini.outputs("gpu")["power"] == "terminating"
    assert mini.up(program()) == [("launch", "update"), ("gpu", "replace")]
    (machine,) = mini.cloud.living
    assert machine.tags["gpuprov:generation"] == "2"


def test_another_launchs_state_does_not_read(home: Path) -> None:
    with pytest.raises((UsageError, ValueError)):
        Launches(engine(home).session).diff(wrap_map({"stackId": "x"}), wrap_map(program()))


def test_e1_an_end_on_another_host_waits_for_a_machine_that_a_killed_run_made_a_moment_ago(
    home: Path, tmp_path: Path
) -> None:
    mini = engine(home, name="aws", visibility=timedelta(seconds=20))
    mini.cloud.on_call = lambda call: _die_after(mini, call)
    with pytest.raises(Crash):
        mini.up(program())
    mini.cloud.on_call = None
    mini.cloud.crash_at = None
    assert len(mini.cloud.living) == 1
    mini.home = tmp_path / "other"
    mini.restart()
    assert set(mini.state) == {"launch"}
    mini.destroy()
    assert mini.cloud.living == []
    assert mini.cloud.count("terminate_instance") == 1


def _die_after(mini: MiniEngine, call: CallRecord) -> None:
    if call.operation == "create_instance":
        mini.cloud.crash_at = (len(mini.cloud.calls) - 1, True)


def test_an_end_does_not_wait_where_the_machine_of_the_launch_was_seen(home: Path, tmp_path: Path) -> None:
    mini = engine(home, name="aws")
    mini.up(program())
    mini.home = tmp_path / "other"
    mini.restart()
    before = mini.cloud.clock.now
    mini.destroy()
    assert mini.cloud.clock.now - before < timedelta(seconds=30)
    assert mini.cloud.leftovers == []
