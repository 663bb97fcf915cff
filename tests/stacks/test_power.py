"""A start that the cloud takes back: told at once, with its reason, and nothing is made in its place."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from types import SimpleNamespace

import pytest

from provisioner.clouds.cloud import Instance, InstanceState, Placement
from provisioner.errors import CapacityError, Rejected
from provisioner.vocabulary import CapacityType
from stacks import power

PLACE = Placement("aws", "us-east-1", "use1-az1", "g6.xlarge", CapacityType.ON_DEMAND)
STOPPED = Instance("i-1", "chat", PLACE, InstanceState.STOPPED, {}, "ami-1", datetime(2026, 11, 30, tzinfo=UTC))


class Falling:
    """A cloud whose machine begins to start, and is stopped again."""

    def __init__(self, end: Instance) -> None:
        self.shown = [STOPPED, replace(STOPPED, state=InstanceState.PENDING), end]
        self.started: list[str] = []

    def start_instance(self, placement: Placement, instance_id: str) -> Instance:
        self.started.append(instance_id)
        return replace(STOPPED, state=InstanceState.PENDING)

    def get_instance(self, placement: Placement, instance_id: str) -> Instance | None:
        return self.shown.pop(0) if len(self.shown) > 1 else self.shown[0]


@pytest.mark.parametrize(
    ("failure", "kind", "remedy"),
    [
        (None, CapacityError, "try again later"),
        ("let aws.kms_key be enabled", Rejected, "let aws.kms_key be enabled"),
    ],
)
def test_a_start_that_falls_back_is_told_at_once(monkeypatch, failure, kind, remedy):
    cloud = Falling(replace(STOPPED, console=("Server.InsufficientInstanceCapacity: none",), failure=failure))
    monkeypatch.setattr(power, "cloud_of", lambda *_: cloud)
    monkeypatch.setattr(power, "machine_of", lambda *_: STOPPED)
    monkeypatch.setattr(power, "renew", lambda *_: None)
    monkeypatch.setattr(power, "sleep", lambda _: None)
    session = SimpleNamespace(site=SimpleNamespace(home=None), require_free=lambda: None)
    with pytest.raises(kind, match=r"began to start and is stopped again \(Server.Insufficient") as told:
        power.start_machine(session, None, "aws")
    assert type(told.value) is kind
    assert remedy in told.value.remedy
    assert cloud.started == ["i-1"]


@pytest.mark.parametrize(("disk", "is_told"), [("local", True), ("network", False), (None, False)])
def test_a_stop_says_what_is_lost_with_local_disks(monkeypatch, disk, is_told):
    running = replace(STOPPED, state=InstanceState.RUNNING)
    cloud = SimpleNamespace(stop_instance=lambda *_: STOPPED, get_instance=lambda *_: STOPPED)
    monkeypatch.setattr(power, "cloud_of", lambda *_: cloud)
    monkeypatch.setattr(power, "machine_of", lambda *_: running)
    said: list[str] = []
    session = SimpleNamespace(
        site=SimpleNamespace(home=None),
        watch=SimpleNamespace(say=said.append),
        refresh=lambda _: None,
        require_free=lambda: None,
    )
    facts = {} if disk is None else {"offers": {PLACE.key: {"disk": disk}}}
    state = SimpleNamespace(instance=SimpleNamespace(inputs={"node": facts}))
    power.stop_machine(session, state, "aws")
    assert (said != []) is is_told
    assert all("local NVMe disks is lost" in line for line in said)
