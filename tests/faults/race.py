"""Seeded schedules: two controllers on one stack, killed at any step, in an account where things happen by themselves.

Each controller is a thread, and a baton lets exactly one of them go on, so a seed always gives the same schedule. A controller
that loses only its engine lives on as an orphaned plugin: the call in flight lands some time later, and what it does then must
still be right beside the controller that has taken over.
"""

from __future__ import annotations

import random
import shutil
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from provisioner.clouds.cloud import InstanceState
from tests.fakes.cloud import Clock, ClockedLifeline, Crash
from tests.fakes.mini_engine import offer, program
from tests.faults.codes import CODES
from tests.faults.matrix import LEAK_MAX_S, PASSES, Act
from tests.faults.world import Controller, Pace, World, require_tagged

STEPS_MAX = 400
"""Beyond this many steps nothing more happens by itself; the controllers come to their end."""
_PAUSE = timedelta(minutes=3)
"""Between two runs of the same command: within two of them a launch whose permit has just ended may be renewed."""
_LANDS_WITHIN_S = 45.0
"""How long a call in flight may take to land: shorter than the minute for which the product waits for it."""
_UNLOCKED_AFTER = timedelta(minutes=1)
"""A lock that a dead process of another host left is given away by a person (`gpuprov unlock`), who needs a moment."""
_HANDS_OVER, _DIES, _HAPPENS = 0.15, 0.02, 0.03
_OPERATIONS = (
    "resolve_image", "create_instance", "get_instance", "find_instances", "terminate_instance", "set_tags",
    "create_volume", "find_volumes", "attach_volume", "delete_volume", "ensure_security_group",
    "delete_security_group", "list_objects",
)  # fmt: skip
_OFFERS = [offer("use1-az1"), offer("use1-az2")]
_KEYS = ("aws/us-east-1/use1-az1/g6.xlarge/on-demand", "aws/us-east-1/use1-az2/g6.xlarge/on-demand")
_DISKS = {"data": "200GiB"}


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a schedule came to."""

    steps: int
    kills: int
    passes: int
    most_at_once: int
    leaked_usd: float


@dataclass(eq=False)
class Process:
    """One command of one controller."""

    lifeline: ClockedLifeline
    is_orphan: bool = False
    lands_at: datetime | None = None


def _closed() -> threading.Lock:
    lock = threading.Lock()
    lock.acquire()
    return lock


@dataclass(eq=False)
class Player:
    """One controller: a host, and the commands that somebody gives there."""

    home: Path
    commands: list[Act]
    go: threading.Lock = field(default_factory=_closed)
    """The baton: open for whoever may go on. A bare lock, since it changes hands some thirty times a schedule."""
    is_done: bool = False
    process: Process | None = None


class SharedLifeline(ClockedLifeline):
    """A lifeline whose waits let the other controller go on."""

    def __init__(self, clock: Clock, turn: Callable[[], None]) -> None:
        super().__init__(clock)
        self._turn = turn

    def sleep(self, seconds: float) -> None:
        self._clock.advance(timedelta(seconds=seconds))
        self._turn()
        self.check()


@dataclass
class Schedule:
    """One seed, played."""

    seed: int
    folder: Path
    chance: random.Random = field(init=False)
    world: World = field(init=False)
    players: list[Player] = field(init=False)
    holder: Player | None = None
    """Who holds the engine's lock."""
    dead_holder: Player | None = None
    """Whose process died with the lock, and left its file."""
    died_at: datetime | None = None
    steps: int = 0
    kills: int = 0
    most_at_once: int = 0
    broken: list[BaseException] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.chance = random.Random(self.seed)
        shutil.rmtree(self.folder, ignore_errors=True)
        self.is_one_host = self.chance.random() < 0.5
        name = "sandbox" if self.is_one_host else "aws"
        self.world = World.new(visibility_s=self.chance.choice((0, 3, 20)), name=name, seed=self.seed)
        self.world.cloud.on_call = lambda _: self._look()
        homes = [self.folder / ("host" if self.is_one_host else f"host-{number}") for number in range(2)]
        self.players = [Player(home, [self._command() for _ in range(self.chance.randrange(1, 4))]) for home in homes]

    def play(self) -> Outcome:
        """Play to the end, heal, and end the stack.

        Raises:
            AssertionError: an invariant does not hold.
        """
        threads = [threading.Thread(target=self._live, args=(player,), daemon=True) for player in self.players]
        for thread in threads:
            thread.start()
        self.players[0].go.release()
        for thread in threads:
            thread.join(120)
            assert not thread.is_alive(), "a controller hangs"
        if self.broken:
            raise self.broken[0]
        passes, leaked = self._heal()
        return Outcome(self.steps, self.kills, passes, self.most_at_once, leaked)

    # The controllers

    def _live(self, me: Player) -> None:
        me.go.acquire()
        try:
            for command in me.commands:
                self._carry_out(me, command)
        except BaseException as error:  # noqa: BLE001 - told by the main thread
            self.broken.append(error)
        finally:
            me.process = None
            me.is_done = True
            if self.holder is me:
                self.holder = None
            other = self._other(me)
            if not other.is_done:
                other.go.release()

    def _carry_out(self, me: Player, command: Act) -> None:
        process = Process(SharedLifeline(self.world.cloud.clock, lambda: self._turn(me, "waits")))
        me.process = process
        if not self._lock(me):
            return
        pace = _SharedPace(self.world, turn=lambda stage: self._turn(me, stage))
        pace.process = process
        try:
            Controller(self.world, me.home, pace, process.lifeline).run(command)
        except Crash:
            self._leave_lock(me)  # the state holds what was committed, and nothing else is left of the process
        if self.holder is me:
            self.holder = None

    def _lock(self, me: Player) -> bool:
        """Take the engine's lock; a living holder is waited for, and somebody else's command goes first."""
        for _ in range(20):
            if self.holder is None and self._is_given_away(me):
                self.holder, self.dead_holder = me, None
                return True
            self.world.cloud.clock.advance(timedelta(seconds=5))
            self._turn(me, "waits")
        return False

    def _is_given_away(self, me: Player) -> bool:
        if self.dead_holder in (None, me) or self.is_one_host:
            return True
        return self.died_at is not None and self.world.cloud.clock.now - self.died_at >= _UNLOCKED_AFTER

    def _leave_lock(self, me: Player) -> None:
        if self.holder is me:
            self.holder, self.dead_holder, self.died_at = None, me, self.world.cloud.clock.now

    # The baton

    def _turn(self, me: Player, stage: str) -> None:
        self.steps += 1
        is_wild = self.steps < STEPS_MAX
        if is_wild and self.chance.random() < _HAPPENS:
            self._happen(me)
        process = me.process
        is_working = process is not None and self.holder is me and stage != "waits" and not process.is_orphan
        if is_wild and process is not None and is_working and self.chance.random() < _DIES:
            self._kill(me, process)
        self._hand_over(me)
        if process is not None and process.lands_at is not None:
            while self.world.cloud.clock.now < process.lands_at and not self._other(me).is_done:
                self.world.cloud.clock.advance(timedelta(seconds=1))
                self._hand_over(me, surely=True)
            process.lands_at = None

    def _kill(self, me: Player, process: Process) -> None:
        self.kills += 1
        if self.chance.random() < 0.5:
            raise Crash("killed with its plugin")
        process.is_orphan = True
        process.lifeline.close("the engine is gone")
        process.lands_at = self.world.cloud.clock.now + timedelta(seconds=self.chance.uniform(0, _LANDS_WITHIN_S))
        if not self.is_one_host:  # on the same host the plugin holds the lock of the stack as well
            self._leave_lock(me)

    def _hand_over(self, me: Player, *, surely: bool = False) -> None:
        other = self._other(me)
        if other.is_done:
            return
        due = other.process.lands_at if other.process is not None else None
        is_due = due is not None and due <= self.world.cloud.clock.now
        if surely or is_due or self.chance.random() < _HANDS_OVER:
            other.go.release()
            me.go.acquire()

    def _other(self, me: Player) -> Player:
        return self.players[1 - self.players.index(me)]

    # What happens

    def _command(self) -> Act:
        kind = self.chance.random()
        if kind < 0.1:
            return lambda one: one.refresh()
        if kind < 0.2:
            return lambda one: one.destroy()
        given = program(offers=_OFFERS, rootVolume=self.chance.choice(("100GiB", "100GiB", "150GiB")), disks=_DISKS)
        return lambda one: one.up(given)

    def _happen(self, me: Player) -> None:
        cloud, chance = self.world.cloud, self.chance
        event = chance.randrange(6)
        own = [machine for machine in self.world.own_machines if cloud._is_visible(cloud.machines[machine.id])]
        if event == 0 and own:
            chance.choice((cloud.vanish, cloud.reclaim))(own[0].id)
        elif event == 1:
            cloud.no_capacity = {chance.choice(_KEYS)} if not cloud.no_capacity else set()
        elif event == 2:
            self._pass(me, timedelta(minutes=chance.choice((1, 10))))
        elif event == 3 and own and own[0].state is InstanceState.RUNNING:
            cloud.machines[own[0].id].instance = _stopped(cloud.machines[own[0].id].instance)
        else:
            self.world.answer_next(chance.choice(_OPERATIONS), chance.choice(CODES))

    def _pass(self, me: Player, span: timedelta) -> None:
        """Let time pass; a call that is in flight meanwhile lands when it is due, not at the end of the span."""
        clock, other = self.world.cloud.clock, self._other(me).process
        until = clock.now + span
        if other is not None and other.lands_at is not None and clock.now < other.lands_at < until:
            clock.advance(other.lands_at - clock.now)
            self._hand_over(me)
        clock.advance(max(until - clock.now, timedelta(0)))

    def _look(self) -> None:
        self.most_at_once = max(self.most_at_once, len(self.world.own_machines))

    # The end

    def _heal(self) -> tuple[int, float]:
        world = self.world
        world.cloud.no_capacity = set()
        world.answers.clear()
        world.cloud.clock.advance(_UNLOCKED_AFTER)
        since = world.cloud.clock.now
        given = program(offers=_OFFERS, rootVolume="100GiB", disks=_DISKS)
        passes = self._until_done(lambda one: one.up(given))
        own = world.own_machines
        assert [machine.id for machine in own] == [world.state["gpu"].id], "not the one machine of the state"
        leaked = world.leaked_usd(since, own[0].id)
        assert leaked <= LEAK_MAX_S / 3600, f"{leaked} USD"
        self._until_done(lambda one: one.destroy())
        world.cloud.clock.advance(timedelta(minutes=5))
        assert world.leftovers == [], world.leftovers
        assert world.foreign_now() == world.foreign, "somebody else's objects were touched"
        require_tagged(world.cloud)
        assert self.most_at_once <= 1, f"{self.most_at_once} machines at once"
        return passes, leaked

    def _until_done(self, act: Act) -> int:
        failure: Any = None
        for number in range(1, PASSES + 1):
            home = self.players[number % 2].home
            failure = Controller(self.world, home, Pace(self.world)).run(act)
            if failure is None:
                return number
            self.world.cloud.clock.advance(_PAUSE)
        raise AssertionError(f"not healed after {PASSES} runs: {failure}")


class _SharedPace(Pace):
    """The pace of a process that may be an orphan: its engine commits nothing any more."""

    process: Process

    def write(self, name: str, act: Callable[[], None]) -> None:
        super().write(name, lambda: self._commit(name, act))

    def _commit(self, name: str, act: Callable[[], None]) -> None:
        if self.process.is_orphan and name.startswith("commit "):
            raise Crash("the engine is gone")
        act()


def _stopped(machine: Any) -> Any:
    from dataclasses import replace

    return replace(machine, state=InstanceState.STOPPED)


def play(seed: int, folder: Path) -> Outcome:
    """Play one seed."""
    return Schedule(seed, folder).play()
