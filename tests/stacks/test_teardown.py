"""``down`` after a run that was cut off on another host: what that run made shows late, and is ended all the same."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import pytest

from provisioner.clouds.cloud import InstanceRequest, Placement, VolumeRequest
from provisioner.errors import Rejected
from provisioner.units import GIB
from provisioner.vocabulary import CapacityType
from stacks import teardown
from stacks.outcome import Outcome
from stacks.state import GPU_INSTANCE, LAUNCH, PendingOperation, ResourceState, StackState
from tests.clouds.conftest import tags
from tests.fakes.cloud import FakeCloud

PLACE = Placement("aws", "us-east-1", "use1-az2", "g6.xlarge", CapacityType.ON_DEMAND)
MACHINE = ResourceState("urn:pulumi:chat::gpuprov::gpuprov:index:GpuInstance::machine", GPU_INSTANCE, None, {}, {})
HELD = ResourceState(
    "urn:pulumi:chat::gpuprov::gpuprov:index:Launch::launch", LAUNCH, "stack-0001", {}, {"stackId": "stack-0001"}
)
CUT = StackState("chat", (HELD,), (PendingOperation("creating", MACHINE),))


@dataclass
class Session:
    """A stack under its lock, whose engine ends what the state holds."""

    said: list[str] = field(default_factory=list)
    is_removed: bool = False
    stack: str = "chat"
    site: Any = field(default_factory=lambda: SimpleNamespace(home=None))

    @property
    def watch(self) -> Any:
        return SimpleNamespace(say=self.said.append)

    def require_free(self) -> None:
        """Nobody else holds it."""

    def destroy(self, _provider: str, _urns: Any = ()) -> Outcome:
        return Outcome()

    def state(self) -> StackState:
        return StackState("chat")

    def remove(self) -> None:
        self.is_removed = True


@pytest.fixture
def cloud(monkeypatch):
    made = FakeCloud(name="aws", visibility=timedelta(seconds=20))
    monkeypatch.setattr(teardown, "cloud_of", lambda *_: made)

    def seconds() -> float:
        return made.clock.now.timestamp()

    monkeypatch.setattr(teardown, "monotonic", seconds)
    monkeypatch.setattr(teardown, "sleep", lambda seconds: made.clock.advance(timedelta(seconds=seconds)))
    return made


def disk(cloud):
    request = VolumeRequest("v", "data", "us-east-1", "use1-az2", GIB, tags(resource="data"), "aws")
    return cloud.create_volume(request)


def test_a_disk_that_another_host_made_a_moment_ago_is_waited_for_and_deleted(cloud):
    made = disk(cloud)
    session = Session()
    ended = teardown.end_stack(session, CUT, "aws", keep_data=False)
    assert session.is_removed
    assert ended.standing.objects == ()
    assert made.id not in cloud.disks
    assert any(made.id in line for line in session.said)


def test_a_machine_that_shows_late_is_ended_before_the_disk_that_it_holds(cloud):
    made, data = cloud.create_instance(InstanceRequest("t", "m", PLACE, "ami-1", GIB, tags())), disk(cloud)
    cloud.clock.advance(timedelta(minutes=1))
    cloud.attach_volume(PLACE, made.id, data.id)
    shows_at = cloud.clock.now + timedelta(seconds=30)
    cloud.machines[made.id].visible_at = cloud.disks[data.id].visible_at = shows_at
    session = Session()
    teardown.end_stack(session, CUT, "aws", keep_data=False)
    assert session.is_removed
    assert cloud.living == []
    assert data.id not in cloud.disks


def test_a_stack_that_nothing_cut_off_is_not_waited_for(cloud):
    before = cloud.clock.now
    teardown.end_stack(Session(), replace(CUT, pending=()), "aws", keep_data=False)
    assert cloud.clock.now - before < timedelta(seconds=5)


def test_a_disk_that_cannot_be_deleted_keeps_the_stack(cloud, monkeypatch):
    disk(cloud)
    cloud.visibility = timedelta(0)
    monkeypatch.setattr(cloud, "delete_volume", lambda *_: (_ for _ in ()).throw(Rejected("VolumeInUse: by i-9")))
    session = Session()
    with pytest.raises(Rejected, match="VolumeInUse"):
        teardown.end_stack(session, CUT, "aws", keep_data=False)
    assert not session.is_removed
