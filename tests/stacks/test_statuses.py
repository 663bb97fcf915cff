"""``status``: each stack beside what the cloud shows."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from types import SimpleNamespace

import pytest

from provisioner import tags
from provisioner.clouds.cloud import BillableObject, End, Ended
from provisioner.errors import CapacityError, CloudError
from provisioner.reaper.evidence import judge
from provisioner.reaper.machines import Observed
from provisioner.tags import parse_time
from stacks import statuses
from stacks.failures import encode
from stacks.site import Site
from stacks.state import ResourceState, StackState, stack_file
from stacks.statuses import Status, document, read_all, rows

MACHINE = "urn:pulumi:whole::gpuprov::gpuprov:index:GpuInstance::instance"


def write(home, name, text):
    path = stack_file(home / "state", name)
    path.parent.mkdir(parents=True, exist_ok=True)
    (home / "state" / "passphrase").write_text("x")
    path.write_text(text)


def checkpoint(name, resources=()):
    return json.dumps({"version": 3, "checkpoint": {"stack": name, "latest": {"resources": list(resources)}}})


@pytest.fixture
def site(home):
    write(home, "whole", checkpoint("whole"))
    return Site(home, None, print)


def test_a_stack_that_cannot_be_read_does_not_hide_the_others(home, site):
    write(home, "broken", "{")
    found = document(read_all(site))
    broken, whole = found["stacks"]
    assert (broken["stack"], broken["state"], broken["price_usd_per_hour"]) == ("broken", "unknown", None)
    assert "is no state of a stack" in broken["notes"][0]
    assert (whole["stack"], whole["state"], whole["notes"]) == ("whole", "empty", [])
    assert [row["stack"] for row in rows(read_all(site))] == ["broken", "whole"]


def test_a_stack_that_cannot_be_read_is_an_error_where_it_is_asked_for(home, site):
    write(home, "broken", "{")
    with pytest.raises(CloudError, match="is no state of a stack"):
        read_all(site, ("broken",))


def test_why_a_machine_is_not_whole_is_told_without_marks(home, site):
    text = encode(CapacityError("no room for its disk"))
    assert "[gpuprov:" in text
    entry = {"urn": MACHINE, "type": "gpuprov:index:GpuInstance", "id": "i-1", "initErrors": [text]}
    write(home, "whole", checkpoint("whole", [entry]))
    (whole,) = document(read_all(site))["stacks"]
    assert whole["notes"] == ["instance is not whole: no room for its disk"]


def test_what_an_engine_does_stands_beside_what_was_planned():
    node = {"plannedTokensPerS": 1600, "boundBy": "memory-bandwidth", "remedy": "fp8 weights"}
    state = StackState("s", (ResourceState(MACHINE, "gpuprov:index:GpuInstance", "i-1", {"node": node}, {}),))
    said = {"state": "busy", "why": "requests", "tokens_per_s": 412.0, "running": 3, "waiting": 12}
    (row,) = rows([Status(state, "sandbox", None, decision=said)])
    assert row["notes"] == [
        "busy: requests",
        "412 tokens/s of 1600 planned a copy (bound by memory-bandwidth); 3 requests run, 12 wait; first remedy: fp8 weights",
    ]
    (row,) = rows([Status(StackState("s"), "sandbox", None, decision={"state": "busy", "tokens_per_s": None})])
    assert row["notes"] == []


class _Account:
    """One machine, its console and a clock."""

    def __init__(self, *console, now="2026-11-30T13:00:00Z"):
        self.console = console
        self.at = parse_time(now)
        self.ended = []

    def now(self):
        return self.at

    def list_objects(self):
        carried = {tags.STACK_ID: "me"}
        return [
            BillableObject("aws", "instance", "i-1", "us-east-1", "use1-az1", "running", carried, "0.8", self.at, {})
        ]

    def get_instance(self, place, instance_id):
        return self.list_objects()[0]

    def read_console(self, place, instance_id):
        return self.console


def _state(home):
    place = {"cloud": "aws", "region": "us-east-1", "zone": "use1-az1", "instanceType": "g6.xlarge"}
    outputs = {**place, "capacityType": "on-demand", "instanceId": "i-1", "stackId": "me", "power": "running"}
    entry = {"urn": MACHINE, "type": "gpuprov:index:GpuInstance", "id": "i-1", "outputs": outputs}
    launch = {"urn": f"{MACHINE}-launch", "type": "gpuprov:index:Launch", "id": "me", "outputs": {"stackId": "me"}}
    write(home, "whole", checkpoint("whole", [launch, entry]))


@pytest.mark.parametrize(
    ("now", "word"), [("2026-11-30T12:14:59Z", "running"), ("2026-11-30T12:15:01Z", "unreachable")]
)
def test_p19_three_missed_heartbeats_are_unreachable_and_never_gone(home, site, monkeypatch, now, word):
    _state(home)
    account = _Account('{"gpuprov": 1, "at": "2026-11-30T12:00:00Z", "state": "busy", "why": "requests"}', now=now)
    monkeypatch.setattr(statuses, "cloud_of", lambda *_: account)
    (whole,) = document(read_all(site))["stacks"]
    assert whole["state"] == word
    assert any("it is kept, and bills" in note for note in whole["notes"]) is (word == "unreachable")
    seen = Observed(console=account.console)
    assert judge(seen, account.now()).state == ("busy" if word == "running" else "unknown")  # and `reap` ends neither


def test_p19_a_console_that_cannot_be_read_leaves_the_machine_as_the_cloud_shows_it(home, site, monkeypatch):
    _state(home)
    account = _Account()

    def fail(place, instance_id):
        raise CloudError("the connection was lost")

    account.read_console = fail
    monkeypatch.setattr(statuses, "cloud_of", lambda *_: account)
    (whole,) = document(read_all(site))["stacks"]
    assert whole["state"] == "running"
    assert "its console could not be read: the connection was lost" in whole["notes"]


PLACE = {"cloud": "aws", "region": "us-east-1", "zone": "use1-az1", "instanceType": "g6.xlarge", "capacityType": "spot"}
SAID = '{"gpuprov": 1, "at": "2026-11-30T12:00:00Z", "state": "dead-man", "act": "stop", "why": "its lifetime is over"}'


class Cloud:
    """One machine: listed or not, with what is still known of it, and its console."""

    def __init__(self, state, *, listed=True, said=(), stopped_at=None, marks=None, how=None):
        self.state, self.listed, self.said = state, listed, said
        self.tags = {"gpuprov:stack-id": "me", **(marks or {})}
        self.extra = {**({"stopped_at": stopped_at} if stopped_at else {}), **({"ended": how} if how else {})}
        self.ended = None if how is None else Ended(how, parse_time(stopped_at or "none"))

    def list_objects(self):
        now = datetime(2026, 11, 30, tzinfo=UTC)
        machine = BillableObject(
            "aws", "instance", "i-1", "us-east-1", "use1-az1", self.state, self.tags, "1", now, self.extra
        )
        return [machine] if self.listed else []

    def now(self):
        return datetime(2026, 11, 30, 20, tzinfo=UTC)

    def get_instance(self, place, instance_id):
        return SimpleNamespace(state=self.state, tags=self.tags, ended=self.ended)

    def read_console(self, place, instance_id):
        return self.said


@pytest.fixture
def shown(home, site, monkeypatch):
    def show(cloud, /, **more):
        outputs = {**PLACE, **more, "instanceId": "i-1", "power": "running", "ready": True, "provider": "sandbox"}
        launch = {"urn": "urn:pulumi:whole::gpuprov::gpuprov:index:Launch::launch", "type": "gpuprov:index:Launch"}
        machine = {"urn": MACHINE, "type": "gpuprov:index:GpuInstance", "id": "i-1", "outputs": outputs}
        launch |= {"id": "l", "outputs": {"stackId": "me"}}
        write(home, "whole", checkpoint("whole", [launch, machine]))
        monkeypatch.setattr("stacks.statuses.cloud_of", lambda *_: cloud)
        (found,) = document(read_all(site))["stacks"]
        return found

    return show


def test_a_machine_that_the_cloud_took_back_is_interrupted_and_another_one_is_gone(shown):
    assert shown(Cloud("interrupted", listed=False))["state"] == "interrupted"
    assert shown(Cloud("terminated", listed=False))["state"] == "gone"


@pytest.mark.parametrize(("state", "listed"), [("stopped", True), ("terminated", False)])
def test_a_lifetime_that_is_over_shows_as_such(shown, state, listed):
    found = shown(Cloud(state, listed=listed, said=(SAID,), stopped_at="2026-11-30T12:01:00Z"))
    assert found["state"] == "reaped"
    assert "its lifetime is over" in found["notes"][0]
    assert found["outputs"]["ready"] is False


def test_an_older_end_is_no_word_on_a_machine_that_was_stopped_later(shown):
    found = shown(Cloud("stopped", said=(SAID,), stopped_at="2026-11-30T18:00:00Z"))
    assert (found["state"], found["notes"]) == ("stopped", [])
    found = shown(Cloud("running", said=(SAID,)))
    assert (found["state"], found["notes"], found["outputs"]["ready"]) == ("running", [], True)


def test_a_mark_is_told_with_the_way_to_keep_the_machine(shown):
    marks = {"gpuprov-reap-due": "2026-11-30T22:04:27Z", "gpuprov-reap-for": "idle"}
    (note,) = shown(Cloud("running", marks=marks))["notes"]
    assert "2026-11-30T22:04:27Z" in note
    assert note.endswith("gpuprov keepalive whole --for 2h")
    assert shown(Cloud("running", marks={"gpuprov-reap-due": "none"}))["notes"] == []


def test_a_data_disk_that_is_lost_is_told(shown):
    assert shown(Cloud("running"), volumeIds=["vol-1"])["notes"] == [
        "data disk vol-1 is not there any more; `gpuprov up` makes an empty one"
    ]


@pytest.mark.parametrize("how", End)
@pytest.mark.parametrize("listed", [True, False])
def test_why_a_machine_is_stopped_or_gone_is_told_as_its_cloud_tells_it(shown, how, listed):
    cloud = Cloud("stopped" if listed else "terminated", listed=listed, stopped_at="2026-11-30T18:00:00Z", how=how)
    found = shown(cloud)
    assert found["state"] == cloud.state
    if listed and how is End.CALLED:  # what its owner did is no riddle
        assert found["notes"] == []
        return
    (note,) = found["notes"]
    assert note.startswith(f"{'stopped' if listed else 'ended'} at 2026-11-30T18:00:00Z: ")
    assert "`gpuprov " in note
    assert "`gpuprov up` makes a new one" in note or listed


@pytest.mark.parametrize(
    ("how", "at", "is_its_own"),
    [
        (End.FROM_INSIDE, "2026-11-30T12:01:00Z", True),
        (End.FROM_INSIDE, "2026-11-30T18:00:00Z", False),  # it was started again since, and shut down by somebody
        (End.CALLED, "2026-11-30T12:01:00Z", False),
        (End.TAKEN_BACK, "2026-11-30T12:01:00Z", False),
    ],
)
def test_a_watchers_last_word_explains_only_a_shutdown_from_inside(shown, how, at, is_its_own):
    found = shown(Cloud("terminated", listed=False, said=(SAID,), stopped_at=at, how=how))
    assert (found["state"] == "reaped") is is_its_own
    assert ("its lifetime is over" in found["notes"][0]) is is_its_own


@pytest.mark.parametrize(
    ("cloud", "said"),
    [("aws", "EC2 took its capacity back, and alone starts it again"), ("gcp", "`gpuprov start` starts it")],
)
def test_who_starts_a_machine_that_was_taken_back_and_stopped(shown, cloud, said):
    (note,) = shown(Cloud("stopped", how=End.TAKEN_BACK), cloud=cloud)["notes"]
    assert said in note


def test_a_console_that_cannot_be_read_hides_no_interruption(shown):
    cloud = Cloud("interrupted", listed=False, how=End.TAKEN_BACK)

    def fail(place, instance_id):
        raise CloudError("no right to read it")

    cloud.read_console = fail
    found = shown(cloud)
    assert found["state"] == "interrupted"
    assert any("the cloud took it back; `gpuprov up` makes a new one" in note for note in found["notes"])
    assert "its console could not be read: no right to read it" in found["notes"]
