"""A world in which every step can go wrong: one account, one state, and controllers that can be killed at any step.

A step is whatever leaves the process: a call of the cloud, a line in the call journal, a commit of the engine. What the engine
commits, and when, is modelled by ``tests.fakes.mini_engine``; what runs between the steps is the product's own code.
"""

from __future__ import annotations

import contextlib
import random
import threading
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from provisioner import tags
from provisioner.clouds.cloud import Cloud, InstanceRequest, Placement, VolumeRequest
from provisioner.errors import GpuprovError
from provisioner.vocabulary import CapacityType
from stacks.provider import journal
from stacks.provider.lifeline import Lifeline
from stacks.provider.patience import PatientCloud
from stacks.provider.session import Session
from tests.fakes.cloud import MACHINE_USD_PER_HOUR, Clock, ClockedLifeline, Crash, FakeCloud
from tests.fakes.mini_engine import MiniEngine, Resource
from tests.faults.codes import error_of

T = TypeVar("T")

COLLEAGUE = "colleague-0001"
"""Stack-id of somebody else's stack of the same name."""
_HERE = Placement("aws", "us-east-1", "use1-az1", "g6.xlarge", CapacityType.ON_DEMAND)
_LISTS: Mapping[str, Any] = {
    "find_instances": list,
    "find_volumes": list,
    "list_objects": list,
    "get_instance": lambda: None,
}


class Mode(StrEnum):
    """What happens at a step. With a code, the code is what the call answers."""

    BEFORE = "crash before"
    """Killed before the step; with a code, the next process gets it as the answer to its first such call."""
    LOST = "effect done, answer lost"
    """It happens, and no answer comes; with a code, the same call made again is answered so."""
    AFTER = "crash after"
    """Killed once the step is done; with a code: refused, and killed before the next step."""
    ANSWERED = "answered"
    """The code is the answer, and the process lives on."""
    STALE = "stale list"
    """A list or a reading that does not show what is there."""


@dataclass(frozen=True, slots=True)
class Strike:
    """What goes wrong at one step of one process."""

    index: int
    mode: Mode
    code: str | None = None


@dataclass
class World:
    """One account with somebody else's objects in it, and one stack's state."""

    cloud: FakeCloud
    state: dict[str, Resource] = field(default_factory=dict)
    answers: dict[str, deque[str]] = field(default_factory=dict)
    """Operation -> codes of its next calls, whoever makes them."""
    foreign: Mapping[str, Any] = field(default_factory=dict)
    jitter: random.Random = field(default_factory=lambda: random.Random(0))
    """Chance in the product's pauses, seeded: the same case waits the same times."""

    @classmethod
    def new(cls, *, visibility_s: float, name: str, seed: int = 0) -> World:
        """A fresh world; ``name`` is the provider: only the sandbox is reached by one host alone."""
        cloud = FakeCloud(
            clock=Clock(),
            name=name,
            visibility=timedelta(seconds=visibility_s),
            boot=timedelta(seconds=5),
            ending=timedelta(seconds=5),
        )
        world = cls(cloud, jitter=random.Random(seed))
        _settle_colleague(cloud)
        world.foreign = world.foreign_now()
        return world

    @property
    def own_machines(self) -> list[Any]:
        """Live machines that are not somebody else's."""
        return [i for i in self.cloud.living if i.id not in self.foreign]

    @property
    def leftovers(self) -> list[str]:
        """Ids of everything that is there and not somebody else's."""
        return [object_id for object_id in self.cloud.leftovers if object_id not in self.foreign]

    def foreign_now(self) -> dict[str, Any]:
        """Somebody else's objects as they are."""
        ids = [m.id for m in self.cloud.living if _is_foreign(m.tags)]
        found: dict[str, Any] = {i: _timeless(self.cloud.machines[i].instance) for i in ids}
        found |= {i: d.volume for i, d in self.cloud.disks.items() if _is_foreign(d.volume.tags)}
        return found | {i: group for i, group in self.cloud.groups.items() if _is_foreign(group[1])}

    def answer_next(self, operation: str, code: str) -> None:
        """Let the next call of an operation be answered with a code."""
        self.answers.setdefault(operation, deque()).append(code)

    def take_answer(self, operation: str) -> str | None:
        """The code that a call gets, if any."""
        queue = self.answers.get(operation)
        return queue.popleft() if queue else None

    def leaked_usd(self, since: Any, kept: str | None) -> float:
        """The most that one machine other than the kept one has cost since a moment."""
        costs = [0.0]
        for machine in self.cloud.machines.values():
            if machine.instance.id == kept or machine.instance.id in self.foreign:
                continue
            until = machine.ended_at or self.cloud.clock.now
            billed_s = max(0.0, (until - max(since, machine.instance.created_at)).total_seconds())
            costs.append(billed_s / 3600 * float(MACHINE_USD_PER_HOUR))
        return max(costs)


@dataclass
class Pace:
    """Counts the steps of one process, and lets one of them go wrong."""

    world: World
    strike: Strike | None = None
    names: list[str] = field(default_factory=list)
    turn: Callable[[str], None] = lambda _stage: None
    """Lets others go on, before a step (``"before"``) and between its effect and its answer (``"after"``)."""
    _is_doomed: bool = False

    def call(self, operation: str, act: Callable[[], T]) -> T:
        """A call of the cloud."""
        strike = self._begin(operation, is_call=True)
        code = self.world.take_answer(operation)
        if strike is not None and strike.code is not None and strike.mode in (Mode.ANSWERED, Mode.AFTER):
            self._is_doomed = strike.mode is Mode.AFTER
            code = strike.code
        if code is not None:
            raise error_of(code)
        if strike is not None and strike.mode is Mode.STALE:
            return _LISTS[operation]()  # type: ignore[no-any-return]
        error: GpuprovError | None = None
        result: T | None = None
        try:
            result = act()
        except GpuprovError as refusal:
            error = refusal
        self.turn("after")
        if strike is not None and strike.mode is Mode.LOST:
            if strike.code is not None:
                self.world.answer_next(operation, strike.code)
            raise error_of("connection-reset")
        if strike is not None and strike.mode is Mode.AFTER:
            raise Crash(f"after {operation}")
        if error is not None:
            raise error
        return result  # type: ignore[return-value]

    def write(self, name: str, act: Callable[[], None]) -> None:
        """A line in the journal, or a commit of the state: there is nobody who could refuse it or lose the answer."""
        strike = self._begin(name, is_call=False)
        act()
        if strike is not None:
            raise Crash(f"after {name}")

    def _begin(self, name: str, *, is_call: bool) -> Strike | None:
        self.turn("before")
        index = len(self.names)
        self.names.append(name)
        if self._is_doomed:
            raise Crash(f"before {name}, after a refusal")
        strike = self.strike
        if strike is None or strike.index != index:
            return None
        if strike.mode is Mode.BEFORE:
            if strike.code is not None and is_call:
                self.world.answer_next(name, strike.code)
            raise Crash(f"before {name}")
        return strike


class Wire:
    """The cloud as one process reaches it: each call is a step."""

    def __init__(self, cloud: Cloud, pace: Pace) -> None:
        self._cloud = cloud
        self._pace = pace

    @property
    def provider(self) -> str:
        return self._cloud.provider

    def now(self) -> Any:
        return self._cloud.now()

    def __getattr__(self, operation: str) -> Callable[..., Any]:
        act = getattr(self._cloud, operation)
        return lambda *args, **more: self._pace.call(operation, partial(act, *args, **more))


_RUNNING = threading.local()


@contextlib.contextmanager
def journal_steps() -> Iterator[None]:
    """Make each line of the call journal a step of the process that writes it."""
    put = journal.Journal._put

    def step(self: journal.Journal, note: journal.Note) -> None:
        pace: Pace | None = getattr(_RUNNING, "pace", None)
        if pace is None:
            put(self, note)
        else:
            pace.write(f"journal {note.stage}", lambda: put(self, note))

    journal.Journal._put = step  # type: ignore[method-assign]
    try:
        yield
    finally:
        journal.Journal._put = put  # type: ignore[method-assign]


class Controller(MiniEngine):
    """One process: an engine with its plugin, on one host, working on the world's one state."""

    def __init__(self, world: World, home: Path, pace: Pace, lifeline: Lifeline | None = None) -> None:
        self.world = world
        self.pace = pace
        self.lifeline = lifeline or ClockedLifeline(world.cloud.clock)
        super().__init__(world.cloud, home, world.state)

    def restart(self) -> None:
        """The one plugin process."""
        patient = PatientCloud(Wire(self.cloud, self.pace), self.lifeline, self.world.jitter)  # type: ignore[arg-type]
        self.session = Session(
            self.cloud.name,
            patient,
            self.home,
            self.lifeline,
            lambda _urn, text: self.told.append(text),
            quota_family=lambda offer: offer.instance_type.partition(".")[0],
        )

    def run(self, act: Callable[[Controller], object]) -> GpuprovError | Exception | None:
        """Carry a command out; what it failed with, if it did. A kill passes through."""
        from stacks.provider.session import PartialFailure, ProviderFailure

        _RUNNING.pace = self.pace
        try:
            act(self)
        except (GpuprovError, PartialFailure, ProviderFailure) as error:
            return error
        finally:
            _RUNNING.pace = None
        return None

    def _commit(self, name: str, resource: Resource | None) -> None:
        commit = super()._commit
        self.pace.write(f"commit {name}", lambda: commit(name, resource))


def require_tagged(cloud: FakeCloud) -> None:
    """Every machine and disk of ours carried all tags in its create call."""
    for request in (*(m.request for m in cloud.machines.values()), *(d.request for d in cloud.disks.values())):
        if not _is_foreign(request.tags):
            missing = set(tags.REQUIRED) - set(request.tags)
            assert not missing, f"{request.name} was made without {missing}"


def _settle_colleague(cloud: FakeCloud) -> None:
    """A stack of the same name with another stack-id, a machine without tags, and one that only wears our stack's name."""
    written = dict.fromkeys(tags.REQUIRED, "x") | {
        tags.STACK_ID: COLLEAGUE,
        tags.STACK: "dev",
        tags.RESOURCE: "gpu",
        tags.EXPIRES_AT: tags.NONE,
    }
    group = cloud.ensure_security_group(_HERE, {tags.STACK_ID: COLLEAGUE, tags.RESOURCE: "gpu"}, [], [22])
    looks = (written, {}, {tags.STACK: "dev", tags.RESOURCE: "gpu", "Name": "dev-gpu"})
    for number, carried in enumerate(looks):
        request = InstanceRequest(f"theirs-{number}", "dev-gpu", _HERE, "image-1", 1, carried, security_group=group)
        cloud.create_instance(request)
    disk = VolumeRequest("theirs", "dev-data", "us-east-1", "use1-az1", 1, {**written, tags.RESOURCE: "data"}, "aws")
    cloud.create_volume(disk)
    cloud.clock.advance(timedelta(hours=1))
    _ = cloud.living
    cloud.calls.clear()


def _is_foreign(carried: Mapping[str, str]) -> bool:
    return carried.get(tags.STACK_ID) in (None, COLLEAGUE)


def _timeless(machine: Any) -> Any:
    return machine.id, machine.state, dict(machine.tags), machine.public_ip, machine.image
