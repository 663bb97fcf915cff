"""What a changed input does to a machine, input by input."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import pytest

from provisioner.errors import GpuprovError, Rejected, UsageError
from stacks.provider.identity import Slot, object_tags
from stacks.provider.instance_diff import diff
from stacks.provider.machine_state import STABLE
from stacks.provider.values import UNKNOWN
from tests.fakes.mini_engine import offer, urn

GIB = 2**30
WORKLOAD: dict[str, Any] = {"name": "chat", "task": "serve", "lifecycle": {"max_lifetime": "12h"}}
LAUNCH = {
    "stackId": "5ac1",
    "generation": 1,
    "createdAt": "2026-11-30T12:00:00Z",
    "expiresAt": "2026-12-01T00:00:00Z",
    "image": {"aws/us-east-1/use1-az1/g6.xlarge/on-demand": "ami-1"},
    "owner": "ana",
}
NEWS: dict[str, Any] = {
    "launch": LAUNCH,
    "workload": WORKLOAD,
    "offers": [offer("use1-az1"), offer("use1-az2")],
    "rootVolume": 100 * GIB,
    "volumes": [{"name": "data", "size": 200 * GIB}],
    "tags": {"team": "search"},
    "power": "running",
}
OLDS: dict[str, Any] = {
    "provider": "sandbox",
    "stackId": "5ac1",
    "cloud": "aws",
    "region": "us-east-1",
    "zone": "use1-az1",
    "instanceId": "i-1",
    "instanceType": "g6.xlarge",
    "capacityType": "on-demand",
    "volumeIds": ["vol-1"],
    "generation": 1,
    "createdAt": "2026-11-30T12:00:05Z",
    "expiresAt": "2026-12-01T00:00:00Z",
    "image": "ami-1",
    "ready": True,
    "power": "running",
    "attempts": [],
    "securityGroups": [],
    "cloudTags": object_tags(
        Slot("5ac1", "dev", "gpu"),
        WORKLOAD,
        generation=1,
        expires_at="2026-12-01T00:00:00Z",
        owner="ana",
        stated={"team": "search"},
    ),
    "workload": WORKLOAD,
    "rootVolume": 100 * GIB,
    "volumes": NEWS["volumes"],
    "tags": NEWS["tags"],
}


def changed(news: dict[str, Any] | None = None, olds: dict[str, Any] | None = None) -> dict[str, bool]:
    before, after = deepcopy(OLDS) | (olds or {}), deepcopy(NEWS) | (news or {})
    return dict(diff(urn("gpu"), before, after).changed)


AHEAD = {**LAUNCH, "generation": 2, "createdAt": UNKNOWN, "expiresAt": UNKNOWN, "image": UNKNOWN}


@pytest.mark.parametrize(
    ("news", "olds"),
    [
        ({}, {}),
        ({"offers": NEWS["offers"][::-1]}, {}),
        ({"offers": [offer("use1-az9"), *NEWS["offers"]]}, {}),
        ({"offers": [{k: v for k, v in offer().items() if k != "zone"}]}, {}),
        ({"launch": AHEAD}, {}),
        ({"wait": "created"}, {}),
        ({}, {"power": "pending"}),
        (
            {},
            {
                "expiresAt": "2026-12-03T00:00:00Z",
                "cloudTags": {**OLDS["cloudTags"], "gpuprov:expires-at": "2026-12-03T00:00:00Z"},
            },
        ),
        ({}, {"cloudTags": {**OLDS["cloudTags"], "foreign": "tag"}}),
        ({"power": "stopped"}, {"power": "stopped"}),
        ({"power": "stopped"}, {"power": "stopping"}),
        ({"power": "stopped"}, {"power": "terminated"}),
        ({}, {"publicIp": "198.51.100.9"}),
    ],
)
def test_nothing_changes(news: dict[str, Any], olds: dict[str, Any]) -> None:
    assert changed(news, olds) == {}


@pytest.mark.parametrize(
    ("news", "olds", "inputs"),
    [
        ({"tags": {"team": "ads"}}, {}, {"tags"}),
        ({"tags": {}}, {}, {"tags"}),
        ({"workload": {**WORKLOAD, "model": {"id": "x"}}}, {}, {"workload", "tags"}),
        ({"workload": {**WORKLOAD, "lifecycle": {"max_lifetime": "24h"}}}, {}, {"workload", "tags"}),
        ({"volumes": [{"name": "data", "size": 300 * GIB}]}, {}, {"volumes"}),
        ({"volumes": [*NEWS["volumes"], {"name": "more", "size": 50 * GIB}]}, {}, {"volumes"}),
        ({}, {"volumeIds": []}, {"volumes"}),
        ({"volumes": UNKNOWN}, {}, {"volumes"}),
        ({}, {"power": "stopped"}, {"power"}),
        ({}, {"power": "stopping"}, {"power"}),
        ({"power": "stopped"}, {}, {"power"}),
        ({}, {"cloudTags": {k: v for k, v in OLDS["cloudTags"].items() if k != "gpuprov:owner"}}, {"tags"}),
        ({"workload": {**WORKLOAD, "run": {"env": {"A": UNKNOWN}}}}, {}, {"workload"}),
    ],
)
def test_it_changes_in_place(news: dict[str, Any], olds: dict[str, Any], inputs: set[str]) -> None:
    found = changed(news, olds)
    assert found.keys() == inputs
    assert not any(found.values())


@pytest.mark.parametrize(
    ("news", "inputs"),
    [
        ({"offers": [offer("use1-az1", kind="g6.2xlarge")]}, {"offers"}),
        ({"offers": [offer("use1-az1", capacity="spot")]}, {"offers"}),
        ({"rootVolume": 50 * GIB}, {"rootVolume"}),
        ({"rootVolume": 150 * GIB}, {"rootVolume"}),
        ({"workload": {**WORKLOAD, "aws": {"image": "ami-2"}}}, {"workload"}),
    ],
)
def test_it_replaces_the_machine_if_the_launch_is_ahead(news: dict[str, Any], inputs: set[str]) -> None:
    found = changed({**news, "launch": AHEAD})
    assert found.keys() == inputs
    assert all(found.values())
    with pytest.raises(UsageError, match="still of generation 1; nothing was changed"):
        changed(news)


def test_a_pin_to_the_image_that_it_has_changes_only_the_spec() -> None:
    assert not any(changed({"workload": {**WORKLOAD, "aws": {"image": "ami-1"}}}).values())
    assert not any(changed({"workload": {**WORKLOAD, "gcp": {"image": "other"}}}).values())


@pytest.mark.parametrize("power", ["terminated", "interrupted", "terminating"])
def test_a_lost_machine_is_replaced(power: str) -> None:
    assert changed({}, {"power": power}) == {"power": True}
    assert changed({"launch": AHEAD}, {"power": power}) == {"power": True}


@pytest.mark.parametrize(
    ("news", "text"),
    [
        ({"volumes": [{"name": "data", "size": 100 * GIB}]}, "cannot shrink to 100.0 GiB.*snapshot.*only then end"),
        ({"volumes": []}, "taken out of a live machine"),
        ({"volumes": None}, "taken out of a live machine"),
        ({"volumes": [{"name": "other", "size": 500 * GIB}]}, "data disk data was taken out"),
        ({"offers": [offer("use1-az2")], "launch": AHEAD}, "no offer is there.*snapshot"),
        ({"offers": [offer("a", "us-west-2")], "launch": AHEAD}, "no offer is there.*snapshot"),
    ],
)
def test_what_would_cost_data_is_refused_with_the_steps(news: dict[str, Any], text: str) -> None:
    after = {key: value for key, value in {**NEWS, **news}.items() if value is not None}
    with pytest.raises(Rejected, match=text):
        diff(urn("gpu"), OLDS, after)


def test_a_machine_of_another_launch_is_replaced() -> None:
    assert changed({"launch": {**LAUNCH, "stackId": "another"}}) == {"launch": True}
    assert changed({"launch": {**LAUNCH, "stackId": UNKNOWN}}) == {}


def test_a_machine_without_disks_may_move() -> None:
    olds = {"volumes": [], "volumeIds": []}
    assert changed({"offers": [offer("use1-az2")], "launch": AHEAD, "volumes": []}, olds) == {"offers": True}


def test_an_unknown_launch_in_a_preview_is_taken_for_ahead() -> None:
    assert changed({"launch": UNKNOWN, "rootVolume": 150 * GIB}) == {"rootVolume": True}
    assert changed({"launch": UNKNOWN}) == {}
    assert changed({"rootVolume": UNKNOWN, "launch": AHEAD}) == {}
    assert changed({"offers": UNKNOWN, "launch": AHEAD}) == {}


def test_stable_outputs_are_named_where_the_machine_stays() -> None:
    after = {**NEWS, "tags": {"team": "ads"}}
    assert set(diff(urn("gpu"), OLDS, after).stable) == set(STABLE)
    assert not diff(urn("gpu"), {**OLDS, "power": "terminated"}, NEWS).stable


def test_a_state_that_does_not_read_says_so() -> None:
    broken = {key: value for key, value in OLDS.items() if key != "createdAt"}
    with pytest.raises(GpuprovError, match="cannot be imported by id"):
        diff(urn("gpu"), broken, NEWS)


ASKED = {"offer": "aws/us-east-1/use1-az1/g6.xlarge/on-demand", "image": "ami-1"}
PINNED = {"workload": {**WORKLOAD, "aws": {"image": "ami-1"}}}


@pytest.mark.parametrize(
    ("news", "olds"),
    [
        ({}, {"instanceType": "g6.2xlarge"}),
        ({}, {"capacityType": "spot"}),
        (PINNED, {"image": "ami-2", **PINNED}),
    ],
)
def test_what_somebody_has_changed_is_no_reason_to_end_a_machine(news: dict[str, Any], olds: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match="still of generation 1"):  # an older state does not say what was asked for
        changed(news, olds)
    assert not any(changed(news, {**olds, "asked": ASKED}).values())
    assert any(changed({**news, "launch": AHEAD}, {**olds, "asked": ASKED}).values())
    with pytest.raises(UsageError, match="still of generation 1"):
        changed({**news, "offers": [{**offer("use1-az1"), "instanceType": "g6e.xlarge"}]}, {**olds, "asked": ASKED})


def test_only_what_can_be_put_right_is_an_update() -> None:
    change = {"what": "instance type", "wanted": "g6.xlarge", "found": "g6.2xlarge"}
    assert changed({}, {"foreignChanges": [change]}) == {"workload": False}
    assert changed({}, {"foreignChanges": [{**change, "undo": "by hand"}]}) == {}
