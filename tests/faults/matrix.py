"""Every step of create, replace, adopt and delete, gone wrong in every way; then the same command again until it holds.

Source of the shape: crash before, effect without an answer, crash after, each with and without an error code, over all steps;
then every ordered pair of crashes, the second one in the run that heals the first.
"""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

from provisioner import tags
from provisioner.node.renew import program_of, wanted_files
from tests.fakes.cloud import Crash
from tests.fakes.mini_engine import program
from tests.faults.codes import CODES
from tests.faults.world import Controller, Mode, Pace, Strike, World, require_tagged

PASSES = 3
"""Runs of the same command within which everything must be as it should be."""
PAUSE = timedelta(minutes=1)
LEAK_MAX_S = 300.0
_FIRST = "aws/us-east-1/use1-az1/g6.xlarge/on-demand"
_DISKS = {"data": "200GiB"}
_READS = ("find_instances", "find_volumes", "get_instance", "list_objects")
_CRASHES = (Mode.BEFORE, Mode.AFTER)

Act = Callable[[Controller], object]


@dataclass(frozen=True, slots=True)
class Scene:
    """What is there before, what the command is, and what must be in the end."""

    name: str
    prepare: Callable[[World, Path], None]
    act: Act
    leaves_machine: bool = True
    keeps_machine: bool = False
    """The machine of before is the one that must be there in the end."""


@dataclass(frozen=True, slots=True)
class Case:
    """One way in which a scene goes wrong."""

    scene: str
    first: Strike
    second: Strike | None = None
    other_host: bool = False
    """The runs that heal it are on another host, which has no call journal."""

    def __str__(self) -> str:
        blows = " then ".join(f"{s.mode} {s.code or ''} at {s.index}" for s in (self.first, self.second) if s)
        return f"{self.scene}, {blows}{', healed elsewhere' if self.other_host else ''}"


@dataclass(frozen=True, slots=True)
class Healed:
    """What a case came to."""

    passes: int
    leaked_usd: float
    struck: str
    """Name of the step that went wrong."""


def _up(**changes: Any) -> Act:
    return lambda one: one.up(program(disks=_DISKS, **changes))


def _down(one: Controller) -> object:
    return one.destroy()


def _nothing(world: World, home: Path) -> None:
    del world, home


def _refusing(world: World, home: Path) -> None:
    del home
    world.cloud.no_capacity = {_FIRST}


def _living(world: World, home: Path) -> None:
    Controller(world, home, Pace(world)).up(program(disks=_DISKS))
    world.cloud.clock.advance(timedelta(minutes=10))


_SERVING = {**program()["workload"], "run": {"command": ["serve"], "ports": [8000]}}


def _serving_without_disk(world: World, home: Path) -> None:
    Controller(world, home, Pace(world)).up(program(workload=_SERVING))
    world.cloud.clock.advance(timedelta(minutes=10))


def _running_other(world: World, home: Path) -> None:
    Controller(world, home, Pace(world)).up(program(disks=_DISKS, workload=_SERVING))
    world.cloud.clock.advance(timedelta(minutes=10))


_TERMINATED = {**program()["workload"], "lifecycle": {"idle": {"then": "terminate"}}}


def _lost(world: World, home: Path) -> None:
    _living(world, home)
    world.cloud.reclaim(world.own_machines[0].id)


def _orphaned(world: World, home: Path) -> None:
    """A machine that was made and never committed."""
    steps = steps_of("create", home / "probe")
    pace = Pace(world, Strike(steps.index("create_instance"), Mode.AFTER))
    try:
        Controller(world, home, pace).run(_up())
    except Crash:
        world.cloud.clock.advance(timedelta(seconds=3))


SCENES: Mapping[str, Scene] = {
    scene.name: scene
    for scene in (
        Scene("create", _nothing, _up()),
        Scene("failover", _refusing, _up()),
        Scene("adopt", _orphaned, _up(), keeps_machine=True),
        Scene("unchanged", _living, _up(), keeps_machine=True),
        Scene("replace", _living, _up(rootVolume="200GiB")),
        Scene("rerun", _running_other, _up(), keeps_machine=True),
        Scene("disk", _serving_without_disk, _up(workload=_SERVING, node={"volumes": ["data"]}), keeps_machine=True),
        Scene("shutdown", _living, _up(workload=_TERMINATED), keeps_machine=True),
        Scene("lost", _lost, _up()),
        Scene("delete", _living, _down, leaves_machine=False),
    )
}
_VISIBILITY_S = 7.0


def singles(home: Path) -> Iterator[Case]:
    """All single faults."""
    for name in SCENES:
        steps = steps_of(name, home)
        for index in points(steps):
            yield from _at(name, index, steps[index])


def points(steps: list[str]) -> list[int]:
    """Steps to strike at: of a row of equal ones (somebody waits), the first, the second and the last."""

    def is_inside(i: int) -> bool:
        return i >= 2 and steps[i - 2 : i + 2] == [steps[i]] * 4

    return [i for i in range(len(steps)) if not is_inside(i)]


def _at(scene: str, index: int, step: str) -> Iterator[Case]:
    is_call = not step.startswith(("journal ", "commit "))
    for other_host in (False, True):
        for mode in _CRASHES if not is_call else (*_CRASHES, Mode.LOST):
            yield Case(scene, Strike(index, mode), other_host=other_host)
        if step in _READS:
            yield Case(scene, Strike(index, Mode.STALE), other_host=other_host)
    if is_call:
        for mode in (Mode.BEFORE, Mode.LOST, Mode.AFTER, Mode.ANSWERED):
            for number, code in enumerate(CODES):
                yield Case(scene, Strike(index, mode, code), other_host=bool((number + index) % 2))


def pairs(home: Path, *, every: int = 1, offset: int = 0) -> Iterator[Case]:
    """Ordered pairs of crash points, all of them by default: one in the command, one in the run that heals it."""
    for name in ("create", "replace", "delete"):
        for index in points(steps_of(name, home))[offset::every]:
            for mode in _CRASHES:
                first = Strike(index, mode)
                for again in points(healing_steps(Case(name, first), home)):
                    for second in _CRASHES:
                        yield Case(name, first, Strike(again, second), other_host=bool((index + again) % 2))


def steps_of(scene: str, home: Path) -> list[str]:
    """Names of the steps of a scene that nothing disturbs."""
    world, pace = _stage(SCENES[scene], home), None
    pace = Pace(world)
    failure = Controller(world, home, pace).run(SCENES[scene].act)
    assert failure is None, failure
    return pace.names


def healing_steps(case: Case, home: Path) -> list[str]:
    """Names of the steps of the run that heals a first crash."""
    world = _stage(SCENES[case.scene], home)
    _strike(world, home, SCENES[case.scene].act, case.first)
    pace = Pace(world)
    Controller(world, home, pace).run(SCENES[case.scene].act)
    return pace.names


def play(case: Case, home: Path) -> Healed:
    """Play a case to its end.

    Raises:
        AssertionError: an invariant does not hold.
    """
    scene = SCENES[case.scene]
    world = _stage(scene, home, name="aws" if case.other_host else "sandbox")
    before = [machine.id for machine in world.own_machines]
    disks = [disk for disk in world.cloud.disks if disk not in world.foreign]
    struck = _strike(world, home, scene.act, case.first)
    if case.second is not None:
        if case.other_host:
            shutil.rmtree(home, ignore_errors=True)
        _strike(world, home, scene.act, case.second)
    elif case.other_host:
        shutil.rmtree(home, ignore_errors=True)
    since = world.cloud.clock.now
    passes = _heal(world, home, scene.act)
    kept = _require_whole(world, scene, before, disks)
    leaked = world.leaked_usd(since, kept)
    assert leaked <= LEAK_MAX_S / 3600, f"{leaked} USD"
    if scene.leaves_machine:
        _heal(world, home, _down)
    world.cloud.clock.advance(timedelta(minutes=5))
    assert world.leftovers == [], world.leftovers
    assert world.foreign_now() == world.foreign, "somebody else's objects were touched"
    require_tagged(world.cloud)
    return Healed(passes, leaked, struck)


def _stage(scene: Scene, home: Path, *, name: str = "sandbox") -> World:
    shutil.rmtree(home, ignore_errors=True)
    world = World.new(visibility_s=_VISIBILITY_S, name=name)
    world.cloud.on_call = lambda _: _at_most_one(world)
    scene.prepare(world, home)
    return world


def _strike(world: World, home: Path, act: Act, strike: Strike) -> str:
    pace = Pace(world, strike)
    with contextlib.suppress(Crash):  # that is what it was for
        Controller(world, home, pace).run(act)
    return pace.names[strike.index] if strike.index < len(pace.names) else "(not reached)"


def _heal(world: World, home: Path, act: Act) -> int:
    """Run the command until it works and leaves nothing to do; how many runs that took."""
    failure: object = None
    for number in range(1, PASSES + 1):
        failure = Controller(world, home, Pace(world)).run(act)
        if failure is None:
            return number
        world.cloud.clock.advance(PAUSE)
    raise AssertionError(f"not healed after {PASSES} runs: {failure}")


def _require_whole(world: World, scene: Scene, before: list[str], disks: list[str]) -> str | None:
    """What must be so after the last run; the id of the machine that stays."""
    if not scene.leaves_machine:
        world.cloud.clock.advance(timedelta(seconds=30))
        assert world.leftovers == [], world.leftovers
        return None
    (machine,) = world.own_machines
    assert world.state["gpu"].id == machine.id, "the state holds another machine"
    own = [disk for disk in world.cloud.disks if disk not in world.foreign]
    assert len(own) == 1, own
    assert world.cloud.disks[own[0]].volume.attached_to == machine.id
    assert not disks or own == disks, "the data disk is another one"
    if (then := machine.tags.get(tags.IDLE_THEN)) is not None:
        made = world.cloud.machines[machine.id].request.stop_on_shutdown
        assert world.cloud.shutdowns.get(machine.id, made) is (then == "stop"), "its tag says another end"
    if scene.name == "disk":
        files = wanted_files(program_of(world.cloud.user_data[machine.id].encode()))
        assert b"VOLUMES='data=" in files["etc/gpuprov/run.env"][0], "the machine was not told of its disk"
    assert (then == "terminate") is (scene.name == "shutdown"), "the edit did not reach the machine"
    if scene.keeps_machine:
        assert [machine.id] == before, "a healthy machine was replaced"
    return machine.id


def _at_most_one(world: World) -> None:
    own = world.own_machines
    assert len(own) <= 1, [machine.id for machine in own]
