"""Published reports of lost, doubled and forgotten machines, played on the plugin's own code; ids name scenario rows."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path
from typing import Any, TypeVar

import pytest

from provisioner import tags
from provisioner.clouds.cloud import Instance, InstanceRequest, InstanceState
from provisioner.errors import CapacityError, CloudError
from stacks.orphans import Books, Verdict, judge_all
from stacks.provider.session import PartialFailure
from tests.fakes.cloud import Crash, FakeCloud
from tests.fakes.mini_engine import MiniEngine, engine, offer, program

T = TypeVar("T")
FIRST = "aws/us-east-1/use1-az1/g6.xlarge/on-demand"
DISKS = {"first": "100GiB", "second": "100GiB", "third": "100GiB"}


def only(mini: MiniEngine) -> Instance:
    (machine,) = mini.cloud.living
    return machine


def test_l1_e10_a_machine_that_can_neither_start_nor_be_ended_stops_the_failover_and_stays_in_the_state(
    home: Path,
) -> None:
    mini = engine(home)
    mini.cloud.dies_at_boot = {FIRST: InstanceState.TERMINATING}  # the wait finds that it will never run
    mini.cloud.errors["terminate_instance"].extend((False, CloudError("not now")) for _ in range(3))
    with pytest.raises(PartialFailure, match="not now") as failure:
        mini.up(program())
    assert mini.cloud.offers_asked() == [FIRST]  # no second offer was asked while the first machine may bill
    (lost,) = mini.cloud.machines
    assert failure.value.resource_id == lost == mini.outputs("gpu")["instanceId"]
    assert mini.state["gpu"].init_errors
    for _ in range(2):  # each further run tries to end it again, and asks for nothing before it has
        with pytest.raises(CloudError, match="not now"):
            mini.up(program())
        assert mini.outputs("gpu")["instanceId"] == lost
        assert mini.cloud.offers_asked() == [FIRST]
    mini.cloud.dies_at_boot.clear()
    mini.up(program())
    assert mini.cloud.count("terminate_instance") == 4
    assert only(mini).id == mini.outputs("gpu")["instanceId"] != lost


def test_l1_what_a_failed_wait_left_is_kept_by_the_next_run(home: Path) -> None:
    mini = engine(home)
    mini.cloud.errors["get_instance"].append((False, CloudError("the wait broke")))
    with pytest.raises(PartialFailure, match="the wait broke"):
        mini.up(program())
    assert mini.outputs("gpu")["instanceId"] == only(mini).id
    mini.up(program())
    assert mini.outputs("gpu")["instanceId"] == only(mini).id
    mini.cloud.clock.advance(timedelta(seconds=2))
    mini.refresh()
    assert mini.outputs("gpu")["power"] == "running"
    assert mini.cloud.offers_asked() == [FIRST]


@pytest.mark.parametrize("seconds", [0.9, 2.0])
def test_l2_e11_a_machine_that_does_not_show_at_first_is_waited_for(home: Path, seconds: float) -> None:
    mini = engine(home, visibility=timedelta(seconds=seconds))
    mini.up(program())
    machine = only(mini)
    assert mini.outputs("gpu")["instanceId"] == machine.id
    looks = [call for call in mini.cloud.calls if call.operation == "get_instance"]
    assert len(looks) > 2  # the first ones found nothing
    assert mini.up(program()) == [("launch", "same"), ("gpu", "same")]
    assert mini.cloud.offers_asked() == [FIRST]


class SharedCloud(FakeCloud):
    """One account for many engines at once; three in ten create calls find no room."""

    def __init__(self) -> None:
        super().__init__()
        self.lock = threading.RLock()
        self.draw = random.Random(656)
        self.refused = 0

    def create_instance(self, request: InstanceRequest) -> Instance:
        with self.lock:
            if self.draw.random() < 0.3:
                self.refused += 1
                raise CapacityError("InsufficientInstanceCapacity")
            return super().create_instance(request)

    def _call(self, operation: str, place: str, act: Callable[[], T], token: str | None = None) -> T:
        with self.lock:
            return super()._call(operation, place, act, token)


def test_l9_a_hundred_ups_at_once_make_a_machine_each(tmp_path: Path) -> None:
    cloud = SharedCloud()
    stacks = [MiniEngine(cloud, tmp_path / str(number)) for number in range(100)]
    offers = [offer(f"z{number}", f"r{number % 3}") for number in range(12)]
    barrier = threading.Barrier(len(stacks))

    def up(mini: MiniEngine) -> str:
        barrier.wait()
        mini.up(program(offers=offers))
        return str(mini.outputs("gpu")["instanceId"])

    with ThreadPoolExecutor(len(stacks)) as pool:
        made = list(pool.map(up, stacks))
    assert len(cloud.machines) == len(set(made)) == len(stacks)
    assert {machine.id for machine in cloud.living} == set(made)
    assert len({machine.tags[tags.STACK_ID] for machine in cloud.living}) == len(stacks)
    assert cloud.refused > 20


@pytest.mark.parametrize("operation", ["create_instance", "create_volume", "attach_volume"])
@pytest.mark.parametrize("made_before", [0, 1, 2])
def test_l10_a_failure_after_any_of_several_creates_loses_none_of_them(
    home: Path, operation: str, made_before: int
) -> None:
    mini = engine(home)
    original: Callable[..., Any] = getattr(mini.cloud, operation)
    calls = []

    def fail(*arguments: Any) -> Any:
        calls.append(arguments)
        if len(calls) == made_before + 1:
            raise CloudError("an unknown trouble")
        return original(*arguments)

    setattr(mini.cloud, operation, fail)
    wanted = program(disks=DISKS)
    if operation != "create_instance" or made_before == 0:
        with pytest.raises(Exception, match="an unknown trouble"):
            mini.up(wanted)
    else:
        mini.up(wanted)  # one machine takes one create call
    stack_id = mini.outputs("launch")["stackId"]
    assert all(entry.tags[tags.STACK_ID] == stack_id for entry in mini.cloud.list_objects())
    mini.destroy()
    mini.cloud.clock.advance(timedelta(minutes=2))
    assert mini.cloud.leftovers == []


def test_l11_a_pipeline_killed_at_any_call_leaves_only_what_says_whose_it_is_and_when_it_ends(home: Path) -> None:
    whole = engine(home / "whole")
    whole.up(program(disks=DISKS))
    for index in range(len(whole.cloud.calls)):
        mini = engine(home / str(index))
        mini.cloud.crash_at = (index, True)
        with pytest.raises(Crash):
            mini.up(program(disks=DISKS))
        mini.cloud.crash_at = None
        mini.cloud.clock.advance(timedelta(hours=13, minutes=1))  # an hour past max_lifetime
        found = mini.cloud.list_objects()
        machines = [entry for entry in found if entry.kind == "instance"]
        for entry in machines:
            assert entry.extra["name"].startswith("dev-gpu-")
            assert entry.tags[tags.STACK] == "dev"
            assert entry.tags[tags.SPEC_DIGEST].startswith("sha256:")
        verdicts = {
            one.entry.kind: one.verdict for one in judge_all(found, Books(), mini.cloud.now()) if one.entry in machines
        }
        assert set(verdicts.values()) <= {Verdict.EXPIRED}
        assert len(verdicts) == len(machines) <= 1


def test_e18_a_state_that_cannot_be_written_after_the_create_is_resolved_by_adoption(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mini = engine(home)
    commit = MiniEngine._commit

    def full(self: MiniEngine, name: str, resource: Any) -> None:
        if name == "gpu":
            raise OSError("no space left on device")
        commit(self, name, resource)

    with monkeypatch.context() as patch:
        patch.setattr(MiniEngine, "_commit", full)
        with pytest.raises(OSError, match="no space"):
            mini.up(program())
    assert "gpu" not in mini.state
    made = only(mini).id
    mini.restart()
    mini.up(program())
    assert only(mini).id == made == mini.outputs("gpu")["instanceId"]
    assert mini.cloud.offers_asked() == [FIRST]


@pytest.mark.parametrize("shows", [True, False], ids=["by its tags", "by its token"])
def test_l13_a_create_whose_answer_nobody_kept_is_found_by_tag_and_else_by_its_token(home: Path, shows: bool) -> None:
    mini = engine(home)
    asked = []

    def kill(request: InstanceRequest) -> Instance:
        asked.append(request.token)
        made = FakeCloud.create_instance(mini.cloud, request)
        if len(asked) > 1:
            return made
        if not shows:  # not for longer than the next run looks by tag
            mini.cloud.machines[made.id].visible_at += timedelta(seconds=20)
        raise Crash("after the create")

    mini.cloud.create_instance = kill  # type: ignore[method-assign]
    with pytest.raises(Crash):
        mini.up(program())
    made = next(iter(mini.cloud.machines))
    mini.restart()
    mini.up(program())
    assert list(mini.cloud.machines) == [made]
    assert mini.outputs("gpu")["instanceId"] == made
    assert len(set(asked)) == 1
    assert len(asked) == (1 if shows else 2)
