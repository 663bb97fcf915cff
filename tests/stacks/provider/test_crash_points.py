"""The process is killed before or after the effect of any cloud call; then it runs again: one machine, nothing left over."""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from provisioner.clouds.cloud import InstanceState
from provisioner.errors import Ambiguous, CapacityError, GpuprovError, Throttled
from stacks.provider.session import PartialFailure, ProviderFailure
from tests.fakes.cloud import Crash
from tests.fakes.mini_engine import MiniEngine, engine, offer, program

AZ1 = "aws/us-east-1/use1-az1/g6.xlarge/on-demand"
DISKS = {"data": "200GiB"}
LAGS = (timedelta(0), timedelta(seconds=7))

Act = Callable[[MiniEngine], object]


def first_up(mini: MiniEngine) -> None:
    mini.up(program(disks=DISKS))


def failover(mini: MiniEngine) -> None:
    mini.cloud.no_capacity = {AZ1}
    mini.up(program(disks=DISKS))


def capacity_returns(mini: MiniEngine) -> None:
    mini.cloud.no_capacity = {AZ1}
    try:
        mini.up(program(disks=DISKS))
    finally:
        mini.cloud.no_capacity = set()  # the first offer would say yes to a careless second run


def dying_first_offer(mini: MiniEngine) -> None:
    mini.cloud.dies_at_boot = {AZ1: InstanceState.TERMINATED}
    mini.up(program(disks=DISKS))


def after_vanish(mini: MiniEngine) -> None:
    mini.up(program(disks=DISKS))


def after_reclaim(mini: MiniEngine) -> None:
    mini.up(program(disks=DISKS))


def replacement(mini: MiniEngine) -> None:
    mini.up(program(disks=DISKS, rootVolume="200GiB"))


def starting(mini: MiniEngine) -> None:
    mini.up(program(disks=DISKS))


def other_run(mini: MiniEngine) -> None:
    mini.up(program(disks=DISKS))


def ending(mini: MiniEngine) -> None:
    mini.destroy()


def _with_machine(mini: MiniEngine) -> None:
    mini.up(program(disks=DISKS))
    mini.cloud.clock.advance(timedelta(minutes=10))


def _running_other(mini: MiniEngine) -> None:
    workload = {**program()["workload"], "run": {"command": ["serve"], "ports": [8000]}}
    mini.up(program(disks=DISKS, workload=workload))
    mini.cloud.clock.advance(timedelta(minutes=10))


def _vanished(mini: MiniEngine) -> None:
    _with_machine(mini)
    mini.cloud.vanish(mini.cloud.living[0].id)


def _vanished_at_once(mini: MiniEngine) -> None:
    mini.up(program(disks=DISKS))
    mini.cloud.vanish(mini.cloud.living[0].id)


def _reclaimed(mini: MiniEngine) -> None:
    _with_machine(mini)
    mini.cloud.reclaim(mini.cloud.living[0].id)


def _stopped(mini: MiniEngine) -> None:
    _with_machine(mini)
    machine = mini.cloud.living[0]
    mini.cloud.stop_instance(machine.placement, machine.id)


def _nothing(mini: MiniEngine) -> None:
    del mini


SCENES: dict[str, tuple[Act, Act]] = {
    "first up": (_nothing, first_up),
    "failover": (_nothing, failover),
    "capacity returns": (_nothing, capacity_returns),
    "dying first offer": (_nothing, dying_first_offer),
    "vanished": (_vanished, after_vanish),
    "vanished at once": (_vanished_at_once, after_vanish),
    "reclaimed": (_reclaimed, after_reclaim),
    "replacement": (_with_machine, replacement),
    "starting": (_stopped, starting),
    "other run": (_running_other, other_run),
    "ending": (_with_machine, ending),
}


def stage(home: Path, scene: str, lag: timedelta, name: str = "sandbox") -> MiniEngine:
    """A stack just before the act of a scene."""
    shutil.rmtree(home, ignore_errors=True)
    mini = engine(home, visibility=lag, name=name)
    SCENES[scene][0](mini)
    mini.restart()
    return mini


def calls_of(home: Path, scene: str, lag: timedelta, name: str = "sandbox") -> range:
    """Indices of the cloud calls of the act."""
    mini = stage(home, scene, lag, name)
    first = len(mini.cloud.calls)
    SCENES[scene][1](mini)
    return range(first, len(mini.cloud.calls))


def crash(mini: MiniEngine, act: Act, index: int, *, after: bool) -> bool:
    """Run the act until it is killed; whether it was."""
    mini.cloud.crash_at = (index, after)
    try:
        act(mini)
    except Crash:
        return True
    finally:
        mini.cloud.crash_at = None
        mini.restart()
    return False


def assert_whole(mini: MiniEngine) -> None:
    """One machine, known to the state, with its disk; a further run changes nothing; the end leaves nothing."""
    (machine,) = mini.cloud.living
    assert mini.outputs("gpu")["instanceId"] == machine.id
    (disk,) = mini.cloud.disks.values()
    assert disk.volume.attached_to == machine.id
    kinds = {kind for _, kind in mini.up(program(disks=DISKS))}
    assert kinds == {"same"}
    mini.destroy()
    assert mini.cloud.leftovers == []


def resolve(mini: MiniEngine) -> None:
    """What a user does after a crash: the same command again."""
    mini.up(program(disks=DISKS))
    mini.cloud.clock.advance(timedelta(minutes=2))


@pytest.mark.parametrize("lag", LAGS, ids=["seen at once", "seen late"])
@pytest.mark.parametrize("scene", SCENES)
def test_e3_every_crash_point_then_up(home: Path, scene: str, lag: timedelta) -> None:
    indices = calls_of(home, scene, lag)
    assert len(indices) > 5
    for index in indices:
        for after in (False, True):
            mini = stage(home, scene, lag)
            assert crash(mini, SCENES[scene][1], index, after=after)
            resolve(mini)
            assert_whole(mini)


@pytest.mark.parametrize("scene", SCENES)
def test_every_crash_point_then_destroy(home: Path, scene: str) -> None:
    lag = LAGS[1]
    for index in calls_of(home, scene, lag):
        for after in (False, True):
            mini = stage(home, scene, lag)
            crash(mini, SCENES[scene][1], index, after=after)
            mini.destroy()
            mini.cloud.clock.advance(timedelta(minutes=2))
            assert mini.cloud.leftovers == [], (index, after)


@pytest.mark.parametrize("scene", SCENES)
def test_e3_every_crash_point_then_up_on_another_host(home: Path, scene: str) -> None:
    lag = LAGS[1]
    for index in calls_of(home, scene, lag, "aws"):
        for after in (False, True):
            mini = stage(home, scene, lag, "aws")
            crash(mini, SCENES[scene][1], index, after=after)
            shutil.rmtree(home, ignore_errors=True)
            resolve(mini)
            assert_whole(mini)


@pytest.mark.parametrize("scene", SCENES)
def test_two_crashes(home: Path, scene: str) -> None:
    lag = LAGS[1]
    chance = random.Random(scene)
    indices = calls_of(home, scene, lag)
    for _ in range(30):
        mini = stage(home, scene, lag)
        crash(mini, SCENES[scene][1], chance.choice(indices), after=chance.random() < 0.5)
        second = len(mini.cloud.calls) + chance.randrange(12)
        crash(mini, lambda one: one.up(program(disks=DISKS)), second, after=chance.random() < 0.5)
        resolve(mini)
        assert_whole(mini)


def test_random_lives(home: Path) -> None:
    """Seeded schedules of edits, losses, errors and crashes; at no moment two machines, at the end nothing."""
    for seed in range(80):
        _live(home, random.Random(seed))


def _live(home: Path, chance: random.Random) -> None:
    shutil.rmtree(home, ignore_errors=True)
    mini = engine(home, visibility=timedelta(seconds=chance.choice((0, 3, 20))))
    mini.cloud.on_call = lambda _call: _at_most_one(mini)
    offers = [offer("use1-az1"), offer("use1-az2")]
    for _ in range(chance.randrange(3, 9)):
        _disturb(mini, chance)
        given = program(offers=offers, rootVolume=chance.choice(("100GiB", "100GiB", "150GiB")), disks=DISKS)
        try:
            chance.choice((mini.up, mini.up, mini.up, lambda _: mini.refresh()))(given)
        except Crash:
            mini.restart()
        except (ProviderFailure, PartialFailure, GpuprovError):
            pass  # a refusal or a scripted error: the next run goes on
        mini.cloud.crash_at = None
    mini.cloud.errors.clear()
    mini.cloud.no_capacity = set()
    mini.cloud.clock.advance(timedelta(hours=1))
    mini.up(program(offers=offers, disks=DISKS))
    assert [m.id for m in mini.cloud.living] == [mini.outputs("gpu")["instanceId"]]
    mini.destroy()
    assert mini.cloud.leftovers == []


def _disturb(mini: MiniEngine, chance: random.Random) -> None:
    event = chance.randrange(8)
    living = mini.cloud.living
    if event == 0 and living:
        mini.cloud.vanish(living[0].id)
    elif event == 1 and living:
        mini.cloud.reclaim(living[0].id)
    elif event == 2:
        mini.cloud.crash_at = (len(mini.cloud.calls) + chance.randrange(20), chance.random() < 0.5)
    elif event == 3:
        error: Any = chance.choice((Ambiguous("lost"), Throttled("slow"), CapacityError("full")))
        operation = chance.choice(("create_instance", "create_volume", "get_instance", "attach_volume"))
        if not (isinstance(error, CapacityError) and operation == "get_instance"):
            takes_effect = isinstance(error, Ambiguous) and chance.random() < 0.5
            mini.cloud.errors[operation].append((takes_effect, error))
    elif event == 4:
        mini.cloud.no_capacity = {AZ1} if not mini.cloud.no_capacity else set()
    elif event == 5:
        mini.cloud.clock.advance(timedelta(minutes=chance.choice((1, 10, 50))))
    elif event == 6 and living and living[0].state is InstanceState.RUNNING:
        mini.cloud.machines[living[0].id].instance = _stopped_copy(mini, living[0].id)


def _stopped_copy(mini: MiniEngine, instance_id: str) -> Any:
    from dataclasses import replace

    return replace(mini.cloud.machines[instance_id].instance, state=InstanceState.STOPPED)


def _at_most_one(mini: MiniEngine) -> None:
    assert len(mini.cloud.living) <= 1, [m.id for m in mini.cloud.living]
