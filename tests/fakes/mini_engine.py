"""The engine's part in a few lines: checks, diffs and steps over our three resources, with a state that survives crashes.

It commits after each step, as the real engine does, and knows nothing of what a cut step did.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from stacks.provider.gpu_instance import GpuInstances
from stacks.provider.launch import Launches
from stacks.provider.patience import PatientCloud
from stacks.provider.session import Checked, PartialFailure, Session
from stacks.provider.values import Properties, plain_map, wrap_map
from stacks.provider.volume import Volumes
from tests.fakes.cloud import Clock, ClockedLifeline, FakeCloud

FACTS = ("stackId", "generation", "createdAt", "expiresAt", "image", "owner", "avoid")


@dataclass
class Resource:
    """A resource in the state."""

    id: str
    inputs: Properties
    outputs: Properties
    init_errors: list[str] = field(default_factory=list)


class CheckFailed(AssertionError):
    """Inputs were refused."""


@dataclass
class MiniEngine:
    """One stack named ``dev`` with a launch, data disks and a machine named ``gpu``."""

    cloud: FakeCloud
    home: Path
    state: dict[str, Resource] = field(default_factory=dict)
    steps: list[tuple[str, str]] = field(default_factory=list)
    told: list[str] = field(default_factory=list)
    session: Session = field(init=False)

    def __post_init__(self) -> None:
        self.restart()

    def restart(self) -> None:
        """A new plugin process."""
        lifeline = ClockedLifeline(self.cloud.clock)
        patient = PatientCloud(self.cloud, lifeline)
        self.session = Session(
            self.cloud.name,
            patient,
            self.home,
            lifeline,
            lambda _urn, text: self.told.append(text),
            lambda _urn, text: self.told.append(text),
            quota_family=lambda offer: offer.instance_type.partition(".")[0],
        )

    def outputs(self, name: str) -> dict[str, Any]:
        """Outputs of a resource as plain values."""
        return plain_map(self.state[name].outputs)

    def refresh(self) -> None:
        """Read everything; what is gone leaves the state."""
        for name, resource in list(self.state.items()):
            read = self._read(name, resource)
            self._commit(name, None if read is None else Resource(*read, init_errors=[]))

    def up(self, program: Mapping[str, Any], *, refresh: bool = True) -> list[tuple[str, str]]:
        """Bring the state in line with the program; the steps that were taken."""
        if refresh:
            self.refresh()
        self.steps = []
        common = {key: program[key] for key in ("workload", "offers", "rootVolume", "node") if key in program}
        self._step("launch", wrap_map(common))
        launch = {fact: self.outputs("launch")[fact] for fact in FACTS}
        disks = dict(program.get("disks", {}))
        for name, size in disks.items():
            volume = {"stackId": launch["stackId"], "size": size, "offers": program["offers"]}
            volume |= {"speed": program["speed"]} if "speed" in program else {}
            self._step(name, wrap_map(volume))
        machine = {**common, "launch": launch}
        machine |= {key: program[key] for key in ("tags", "power", "wait", "rootSpeed") if key in program}
        if disks:
            speed = {"speed": program["speed"]} if "speed" in program else {}
            machine["volumes"] = [{"name": name, "size": self.outputs(name)["size"], **speed} for name in disks]
        self._step("gpu", wrap_map(machine))
        return self.steps

    def destroy(self) -> None:
        """Delete everything, machine first, launch last."""
        order = sorted(self.state, key=lambda name: {"gpu": 0, "launch": 2}.get(name, 1))
        for name in order:
            self._delete(name)

    def _step(self, name: str, news: Properties) -> None:
        old = self.state.get(name)
        checked = self._check(name, old.inputs if old else {}, news)
        if checked.wrong:
            raise CheckFailed(dict(checked.wrong))
        if old is None:
            self._create(name, checked.inputs)
            return
        changed = self._diff(name, old, checked.inputs)
        if any(changed.values()):
            self.steps.append((name, "replace"))
            self._delete(name)
            self._create(name, checked.inputs, "")
        elif changed or old.init_errors:
            self.steps.append((name, "update"))
            self._update(name, old, checked.inputs)
        else:
            self.steps.append((name, "same"))
            old.inputs = checked.inputs

    def _create(self, name: str, inputs: Properties, step: str = "create") -> None:
        if step:
            self.steps.append((name, step))
        operations = self._operations(name)
        try:
            created = operations.create(urn(name), inputs)
        except PartialFailure as failure:
            self._commit(name, Resource(failure.resource_id, inputs, failure.properties, [str(failure)]))
            raise
        self._commit(name, Resource(created.resource_id, inputs, created.properties))

    def _update(self, name: str, old: Resource, inputs: Properties) -> None:
        operations = self._operations(name)
        try:
            if isinstance(operations, Launches):
                outputs = operations.update(old.outputs, inputs)
            else:
                outputs = operations.update(urn(name), old.outputs, inputs)
        except PartialFailure as failure:
            self._commit(name, Resource(failure.resource_id, inputs, failure.properties, [str(failure)]))
            raise
        self._commit(name, Resource(old.id, inputs, outputs))

    def _delete(self, name: str) -> None:
        operations = self._operations(name)
        if isinstance(operations, Launches):
            operations.delete(self.state[name].outputs)
        else:
            operations.delete(urn(name), self.state[name].outputs)
        self._commit(name, None)

    def _commit(self, name: str, resource: Resource | None) -> None:
        """Write a resource, or that it is gone, into the state: the moment from which a killed engine knows of it."""
        if resource is None:
            del self.state[name]
        else:
            self.state[name] = resource

    def _diff(self, name: str, old: Resource, inputs: Properties) -> dict[str, bool]:
        operations = self._operations(name)
        if isinstance(operations, GpuInstances):
            return dict(operations.diff(urn(name), old.outputs, inputs).changed)
        return dict(operations.diff(old.outputs, inputs).changed)

    def _check(self, name: str, olds: Properties, news: Properties) -> Checked:
        return self._operations(name).check(urn(name), olds, news)

    def _read(self, name: str, old: Resource) -> tuple[str, Properties, Properties] | None:
        operations = self._operations(name)
        if isinstance(operations, Launches):
            found = operations.read(old.id, old.outputs, old.inputs)
        elif isinstance(operations, GpuInstances):
            found = operations.read(urn(name), old.outputs, old.inputs)
        else:
            found = operations.read(urn(name), old.id, old.outputs, old.inputs)
        return None if found.resource_id is None else (found.resource_id, found.inputs, found.properties)

    def _operations(self, name: str) -> Launches | GpuInstances | Volumes:
        if name == "launch":
            return Launches(self.session)
        return GpuInstances(self.session) if name == "gpu" else Volumes(self.session)


def urn(name: str) -> str:
    """URN of a resource of the stack."""
    kind = {"launch": "Launch", "gpu": "GpuInstance"}.get(name, "Volume")
    return f"urn:pulumi:dev::chat::gpuprov:index:{kind}::{name}"


def offer(
    zone: str = "use1-az1", region: str = "us-east-1", kind: str = "g6.xlarge", capacity: str = "on-demand"
) -> dict[str, Any]:
    """An offer as a program states it."""
    return {"cloud": "aws", "region": region, "zone": zone, "instanceType": kind, "capacityType": capacity}


def program(**changes: Any) -> dict[str, Any]:
    """A small program; changes replace its parts."""
    workload = {"name": "chat", "task": "serve", "lifecycle": {"max_lifetime": "12h"}}
    return {"workload": workload, "offers": [offer("use1-az1"), offer("use1-az2")], **changes}


def engine(home: Path, **cloud: Any) -> MiniEngine:
    """An engine on a fresh cloud."""
    return MiniEngine(FakeCloud(clock=Clock(), **cloud), home)
