"""An end from outside asks the machine first: what only the machine sees, a request that arrives now, is never lost."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import datetime, timedelta
from random import Random
from typing import Any

import pytest

from provisioner import tags
from provisioner.errors import CloudError
from provisioner.node.drain import CAUSE_TAG, DRAIN_TAG, Listener
from provisioner.reaper import machines
from provisioner.reaper.asking import CANCELLED, DRAINED, PATIENCE, SILENT
from provisioner.reaper.decision import Step
from provisioner.reaper.machines import Machine, Observed
from provisioner.reaper.sweep import Limits, sweep
from tests.node.test_drain import Server
from tests.reaper.account import START, Account, account, machine


def line(at: datetime, state: str, **facts: Any) -> str:
    return json.dumps({"gpuprov": 1, "at": tags.format_time(at), "state": state, **facts})


class Node:
    """A machine's watcher, answering as the real one does; ``answer`` is what it says, ``None`` for silence."""

    def __init__(self, found: Account, answer: str | None) -> None:
        self.found, self.answer = found, answer
        self.asked: list[tuple[str, str]] = []

    def __call__(self, seconds: float) -> None:
        """Called while the sweep waits."""
        self.found.at += timedelta(seconds=seconds)
        for one in self.found.held.values():
            request = one.tags.get(DRAIN_TAG, tags.NONE)
            known = (one.id, request)
            if request != tags.NONE and known not in self.asked and self.answer is not None:
                self.asked.append(known)
                facts = {"act": "cancelled"} if self.answer == "busy" else {}
                say(self.found, one, line(self.found.at, self.answer, request=request, **facts))


def say(found: Account, one: Machine, text: str) -> None:
    seen = found.seen[one.id]
    found.seen[one.id] = replace(seen, console=[*seen.console, text])


def due(found: Account) -> None:
    """Mark what is idle, and let its grace pass while its watcher goes on saying that it is idle."""
    for one in list(found.held.values()):
        say(found, one, line(found.at, "idle", quiet_s=3600))
    sweep(found, Limits(share=1.0), dry=False)
    found.at += timedelta(minutes=12)
    for one in list(found.held.values()):
        say(found, one, line(found.at, "idle", quiet_s=3600))


@pytest.fixture
def found() -> Account:
    made = account(machine())
    due(made)
    return made


def test_a_drained_machine_is_ended_and_its_door_stays_shut_until_then(found):
    node = Node(found, "drained")
    done = sweep(found, Limits(), dry=False, pause=node)
    assert found.done == [("stop", machine().id)]
    assert [outcome.answer for outcome in done.outcomes] == [DRAINED]
    assert len(node.asked) == 1
    # A door that opens before the stop would take a request and drop it.
    assert found.held[machine().id].tags[DRAIN_TAG] == node.asked[0][1]


def test_a_cancel_is_honoured_and_takes_the_mark_away_at_once(found):
    done = sweep(found, Limits(), dry=False, pause=Node(found, "busy"))
    assert found.done == []
    (outcome,) = done.outcomes
    assert (outcome.verdict.step, outcome.answer) == (Step.UNMARK, CANCELLED)
    kept = found.held[machine().id].tags
    assert (kept[machines.DUE], kept[DRAIN_TAG]) == (tags.NONE, tags.NONE)


def test_a_watcher_that_does_not_answer_is_waited_for_once_and_the_last_look_decides(found):
    node = Node(found, None)
    before = found.at
    done = sweep(found, Limits(), dry=False, pause=node)
    assert found.at - before <= PATIENCE
    assert found.done == [("stop", machine().id)]
    assert [outcome.answer for outcome in done.outcomes] == [SILENT]


def test_a_machine_without_a_watcher_is_not_asked():
    found = account(machine())
    sweep(found, Limits(), dry=False)
    found.at += timedelta(minutes=12)
    done = sweep(found, Limits(), dry=False, pause=lambda _: pytest.fail("nobody was asked"))
    assert found.done == [("stop", machine().id)]
    assert [outcome.answer for outcome in done.outcomes] == [None]
    assert DRAIN_TAG not in found.held[machine().id].tags


def test_a_dry_run_asks_nobody(found):
    before = dict(found.held)
    sweep(found, Limits(), dry=True, pause=lambda _: pytest.fail("nobody was asked"))
    assert found.held == before


def test_a_keepalive_that_comes_while_it_drains_lets_it_work_again(found):
    class Kept(Node):
        def __call__(self, seconds: float) -> None:
            super().__call__(seconds)
            one = found.held[machine().id]
            until = tags.format_time(found.at + timedelta(hours=2))
            found.held[one.id] = replace(one, tags={**one.tags, tags.LEASE_UNTIL: until})

    sweep(found, Limits(), dry=False, pause=Kept(found, "drained"))
    assert found.done == []
    assert found.held[machine().id].tags[DRAIN_TAG] == tags.NONE


def test_a_lifetime_ends_all_the_same_after_the_machine_was_asked():
    over = machine(tags={tags.EXPIRES_AT: tags.format_time(START - timedelta(hours=1)), tags.IDLE_AFTER: "none"})
    found = account(over)
    due(found)
    found.at += timedelta(hours=1)
    say(found, over, line(found.at, "busy"))
    node = Node(found, "drained")
    sweep(found, Limits(), dry=False, pause=node)
    assert len(node.asked) == 1
    assert found.done == [("stop", over.id)]


def test_many_are_asked_at_once_and_one_that_fails_holds_up_none():
    several = [machine(number) for number in range(4)]
    found = account(*several)
    due(found)
    write = found.write_tags

    def refusing(one: Machine, written: Any) -> None:
        if one.id == several[1].id and DRAIN_TAG in written:
            raise CloudError("no")
        write(one, written)

    found.write_tags = refusing  # type: ignore[method-assign]
    before = found.at
    sweep(found, Limits(share=1.0), dry=False, pause=Node(found, "drained"))
    assert len(found.done) == 4
    assert found.at - before <= timedelta(seconds=6)


class Box(Account):
    """An account with one machine that serves: its real listener, its server, and time that passes with every call."""

    def __init__(self, seed: int) -> None:
        base = account(machine())
        super().__init__(base.held, base.seen)
        self.random = Random(seed)
        self.server = Server(self.random)
        due(self)
        self.server = Server(self.random)
        self.server.arrivals = sorted(self.random.uniform(0, 40) for _ in range(self.random.randrange(1, 5)))
        self.lost = 0
        self.listener = Listener(self.server, self.server.is_quiet, self.server.move, lambda _: None, self.said)

    def said(self, **facts: Any) -> None:
        state = facts.pop("state")
        say(self, self.held[machine().id], line(self.at, state, **facts))

    def wait(self, seconds: float) -> None:
        """Time passes; the watcher looks at its tags now and then."""
        self.at += timedelta(seconds=seconds)
        self.server.move()
        if self.random.random() < 0.7 and self.held:
            one = self.held[machine().id].tags
            known = {key: one[key] for key in (DRAIN_TAG, CAUSE_TAG) if key in one}
            self.listener.hear(known, self.server.now, self.at.timestamp())

    def observe(self, machine: Machine, since: datetime) -> Observed:
        self.server.move()
        return super().observe(machine, since)

    def write_tags(self, machine: Machine, written: Any) -> None:
        super().write_tags(machine, written)
        self.server.move()

    def stop(self, machine: Machine) -> None:
        self.server.move()
        self.lost += len(self.server.running)
        super().stop(machine)


def lost_by_reap(count: int) -> tuple[int, int, int]:
    """Requests lost, taken, and machines ended over so many interleavings of requests with an end from outside."""
    lost = taken = ended = 0
    for seed in range(count):
        box = Box(seed)
        sweep(box, Limits(), dry=False, pause=box.wait)
        if box.done:
            ended += 1
        else:
            box.wait(5)
            box.listener.hear({}, box.server.now, box.at.timestamp())
            assert box.server.is_open, "it works on"
        lost += box.lost
        taken += box.server.taken
    return lost, taken, ended


def test_e26_no_interleaving_of_an_end_from_outside_loses_a_request():
    lost, taken, ended = lost_by_reap(200)
    assert lost == 0
    assert taken > 100
    assert 20 < ended < 200
