"""The node's own end, played: what runs on a machine of ours, and the moments at which that ends it.

The judgement is the product's own: ``provisioner.node.idleness`` decides over the signals that are set for a machine,
``provisioner.node.deadman`` counts lease and spend. What is set holds until something changes, so a look at each change is as
good as one every 30 s, and one jump of the clock ends alike with many small steps. All functions are pure; moments are
microseconds by the sandbox's clock.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from enum import Enum, auto
from typing import Any

from provisioner.clouds.sandbox.clock import from_us
from provisioner.node.deadman import LEASE_TAG, Limits, Switch, advance, ends_of
from provisioner.node.idleness import (
    FAILED,
    IDLE_TAG,
    QUIET,
    Decision,
    Memory,
    Rules,
    asked_s,
    decide,
    evidence,
    within_bounds,
)
from provisioner.tags import format_time

SECOND_US = 1_000_000
WINDOW_S = 3600.0
"""What quiet is counted against where nothing is ended for it."""
_STARTS = json.dumps({"gpuprov": 1, "state": "boot", "why": "ready to start the workload"})
"""The last word of ``templates/boot.sh``; it knows no time."""
_UNSEEN: Mapping[str, Any] = {}


class Event(Enum):
    """What comes by itself; of two at one moment, the one that stands first here."""

    FINISHED = auto()
    """The workload's command ends for good."""
    READY = auto()
    """The workload answers its probe."""
    NEVER_READY = auto()
    DEAD_MAN = auto()
    """Its spend is used up, or its lease is over where the spec asks for one."""
    LEASE_OVER = auto()
    """A keepalive holds off idleness no longer."""
    IDLE = auto()


@dataclass(frozen=True, slots=True)
class Finish:
    """The end of the workload's command."""

    at_us: int
    exit_code: int
    tail: tuple[str, ...] = ()
    """The last lines that it wrote."""


@dataclass(frozen=True, slots=True)
class Node:
    """What the watcher and the dead man's switch of one machine know, as of the last change."""

    config: Mapping[str, Any]
    """As in the machine's user data, see ``provisioner.node.watcher``."""
    booted_us: int
    at_us: int
    """Moment of the last change: nothing that follows from it comes earlier."""
    woke_us: int
    """Since when they run: the boot, or the end of a failure."""
    switch: Switch
    switch_us: int
    """Moment that the switch has counted up to."""
    after_s: float | None
    """Quiet time that ends the machine; ``None`` is off."""
    idle_tag: str
    ready_us: int | None = None
    """When the workload will answer its probe; ``None`` once it has, or where nothing is probed."""
    measures: bool = False
    """Whether the start takes a time that somebody chose: then ``idle.after: auto`` follows it."""
    finish: Finish | None = None
    """An end of the workload that is to come."""
    ended: Finish | None = None
    """The end of the workload, once it has come."""
    seen: Mapping[str, Any] | None = None
    """The signals that hold, under the names of an idle decision; ``None`` while none was ever set since the start."""
    memory: Memory = field(default_factory=Memory)
    said: str = ""
    """What was judged last, and told."""
    said_us: int = 0
    is_dead: bool = False
    """Both have failed: nothing on the machine ends it."""

    @property
    def workload(self) -> str | None:
        """What the workload's unit does, in the words of ``provisioner.node.sensors``; ``None`` for a bare machine."""
        if not self.config.get("run"):
            return None
        if self.ended is not None:
            return "finished" if self.ended.exit_code == 0 and self.config.get("once") else "failed"
        return "active" if self.ready_us is None else "starting"


@dataclass(frozen=True, slots=True)
class Turn:
    """What a moment brings."""

    node: Node
    lines: tuple[str, ...] = ()
    """On the serial console."""
    ends: bool = False
    """Whether the machine shuts down."""


@dataclass(frozen=True, slots=True)
class Boot:
    """A start of a machine, as what runs on it sees it."""

    at_us: int
    tags: Mapping[str, str]
    ready_us: int
    """When a workload that is probed will answer."""
    measures: bool


def booted(config: Mapping[str, Any], boot: Boot, before: Node | None) -> Turn:
    """After a start: armed, or counting on from the run before."""
    known = before.switch if before is not None else None
    switch = advance(known, _limits(config), (str(boot.at_us), 0.0), _lease_of(boot.tags), boot.at_us / SECOND_US)
    node = Node(
        config=config,
        booted_us=boot.at_us,
        at_us=boot.at_us,
        woke_us=boot.at_us,
        switch=switch,
        switch_us=boot.at_us,
        after_s=config.get("idle_after_s"),
        idle_tag=str(config.get("idle_tag") or ""),
        ready_us=boot.ready_us if config.get("ready") else None,
        measures=boot.measures,
        # One that has told what it saw goes on telling: what was set before the start holds no more, and is unknown.
        seen=_UNSEEN if before is not None and before.seen is not None else None,
    )
    turn = _looked(_follow_idle(node, boot.tags), boot.at_us)
    return Turn(turn.node, (*([_STARTS] if config.get("run") else []), *turn.lines))


def left(node: Node, at_us: int) -> Node:
    """After the machine went down, for whatever reason."""
    return node if node.is_dead else replace(node, at_us=at_us, switch=_counted(node, at_us), switch_us=at_us)


def sensed(node: Node, seen: Mapping[str, Any] | None, at_us: int) -> Turn:
    """After other signals were set; ``None``: none are any more, which is unknown where some were."""
    if seen is None and node.seen is not None:
        seen = _UNSEEN
    return _looked(replace(node, seen=seen, at_us=at_us), at_us)


def heard(node: Node, tags: Mapping[str, str], at_us: int) -> Turn:
    """After the machine's tags were written."""
    if node.is_dead:
        return Turn(node)
    switch = _counted(node, at_us, tags)
    node = _follow_idle(replace(node, at_us=at_us, switch=switch, switch_us=at_us), tags)
    return _looked(node, at_us)


def killed(node: Node, at_us: int) -> Node:
    """After the watcher and the switch have failed for good."""
    return replace(node, is_dead=True, at_us=at_us)


def revived(node: Node, tags: Mapping[str, str], at_us: int) -> Turn:
    """After they run again: the switch has counted on, by the uptime; the watcher has forgotten what it saw."""
    if not node.is_dead:
        return Turn(node)
    return heard(replace(node, is_dead=False, woke_us=at_us, memory=Memory(), said=""), tags, at_us)


def next_event(node: Node) -> tuple[int, Event] | None:
    """The earliest event that comes by itself."""
    if node.is_dead:
        return None
    found: list[tuple[int, Event]] = [(at_us, Event.DEAD_MAN) for at_us, _ in _switch_ends(node)]
    if node.finish is not None:
        found.append((node.finish.at_us, Event.FINISHED))
    if node.ready_us is not None:
        if node.ended is None:
            found.append((node.ready_us, Event.READY))
        limit_s = node.config.get("ready_limit_s")
        if limit_s and not node.config.get("keep_failed"):
            found.append((node.booted_us + _us(limit_s), Event.NEVER_READY))
    if node.seen is not None and node.switch.lease_tag and (node.switch.lease_left_s or 0) > 0:
        found.append((node.switch_us + _us(node.switch.lease_left_s or 0), Event.LEASE_OVER))
    if node.after_s and node.memory.quiet_since_s is not None:
        found.append((node.booted_us + _us(node.memory.quiet_since_s + node.after_s), Event.IDLE))
    if not found:
        return None
    at_us, event = min((max(at_us, node.at_us), event.value) for at_us, event in found)
    return at_us, Event(event)


def happen(node: Node, event: Event, at_us: int, act: str) -> Turn:
    """Carry out the next event.

    Args:
        node: as it is; for a workload that fails, with the signals that this leaves.
        event: from ``next_event``.
        at_us: when.
        act: ``stop`` or ``terminate``: what a shutdown does to this machine.
    """
    node = replace(node, at_us=at_us)
    if event is Event.FINISHED and node.finish is not None:
        return _finished(replace(node, ended=node.finish, finish=None), node.finish.tail, act)
    if event is Event.READY:
        return _ready(node)
    if event is Event.NEVER_READY:
        limit_s = float(node.config["ready_limit_s"])
        return Turn(node, (_end(node, act, "never-ready", f"not ready after {limit_s:.0f} s"),), ends=True)
    if event is Event.DEAD_MAN:
        why = min(_switch_ends(node))[1]
        switch = replace(_counted(node, at_us), ended_by=why)
        node = replace(node, switch=switch, switch_us=at_us)
        return Turn(node, (_end(node, act, "dead-man", why),), ends=True)
    if event is Event.LEASE_OVER:
        switch = _counted(node, at_us)
        switch = replace(switch, lease_left_s=min(switch.lease_left_s or 0.0, 0.0))
        return _looked(replace(node, switch=switch, switch_us=at_us), at_us)
    node, decision = _look(node, at_us, is_due=True)
    return Turn(node, (_end(node, act, "idle", decision.reason, **_facts(node, decision)),), ends=True)


def repeated(node: Node, now_us: int) -> str | None:
    """What was judged last, as of now: a real watcher repeats it every ``HEARTBEAT_S``. ``None`` where nothing was judged yet."""
    if not node.said or node.is_dead or now_us <= node.said_us:
        return None
    return _told(node, _look(node, now_us)[1], now_us)


def document(node: Node) -> str:
    """The node as the sandbox's file keeps it."""
    return json.dumps(asdict(node))


def from_document(text: str) -> Node:
    """The node from its text."""
    found = json.loads(text)
    memory = found["memory"]
    for name in ("floors", "counters"):
        memory[name] = tuple(tuple(entry) for entry in memory[name])
    memory["noise"] = tuple(memory["noise"])
    found["memory"], found["switch"] = Memory(**memory), Switch(**found["switch"])
    for name in ("finish", "ended"):
        found[name] = found[name] and Finish(**{**found[name], "tail": tuple(found[name]["tail"])})
    return Node(**found)


def line(at_us: int, **facts: Any) -> str:
    """A line of the watcher, as a real one writes it on the serial console."""
    return json.dumps({"gpuprov": 1, "at": format_time(from_us(at_us)), **facts})


def _ready(node: Node) -> Turn:
    start_s = _uptime_s(node, node.at_us)
    said = line(node.at_us, state="ready", run=node.config.get("run_digest"), after_s=round(start_s))
    node = replace(node, ready_us=None)
    if node.measures and node.idle_tag == "auto" and node.after_s:
        node = replace(node, after_s=within_bounds(start_s))
    turn = _looked(node, node.at_us)
    return Turn(turn.node, (said, *turn.lines))


def _finished(node: Node, tail: tuple[str, ...], act: str) -> Turn:
    if node.workload == "finished":
        return Turn(node, (*tail, _end(node, act, "done", "the work is done")), ends=True)
    turn = _looked(node, node.at_us)
    return Turn(turn.node, (*tail, *turn.lines))


def _end(node: Node, act: str, state: str, why: str, **more: Any) -> str:
    """The last line of a machine that ends itself: its hook has run, where it has one."""
    hook = {"hook": "done"} if node.config.get("hook") else {}
    return line(node.at_us, state=state, act=act, why=why, **hook, **more)


def _looked(node: Node, at_us: int) -> Turn:
    """A look, told where it differs from what was told last; none before anything is known of the machine."""
    if node.seen is None or node.is_dead:
        return Turn(node)
    node, decision = _look(node, at_us)
    what = f"{decision.state} {sorted(name for name, (word, _) in decision.sources.items() if word != 'idle')}"
    if what == node.said:
        return Turn(node)
    node = replace(node, said=what, said_us=at_us)
    return Turn(node, (_told(node, decision, at_us),))


def _told(node: Node, decision: Decision, at_us: int) -> str:
    after_s = node.after_s
    ends_s = None if not after_s or decision.state != QUIET else round(after_s - decision.quiet_s)
    facts = {"idle_after_s": after_s, "ends_in_s": ends_s, **_facts(node, decision)}
    return line(at_us, state=decision.state, why=decision.reason, **facts)


def _facts(node: Node, decision: Decision) -> dict[str, Any]:
    """What was seen, with the last lines of a workload that has failed."""
    tail = node.ended.tail if node.ended is not None and decision.sources.get("workload") == FAILED else None
    return {**evidence(decision), **({} if tail is None else {"tail": list(tail)})}


def _look(node: Node, at_us: int, *, is_due: bool = False) -> tuple[Node, Decision]:
    """One reading, judged by the watcher's own judgement."""
    at_s, since_s, after_s = _uptime_s(node, at_us), node.memory.quiet_since_s, node.after_s
    if is_due and since_s is not None and after_s:
        at_s = max(at_s, since_s + after_s)
        while at_s - since_s < after_s:  # a moment in seconds is rounded; the one that is due is full
            at_s = math.nextafter(at_s, math.inf)
    # What is set holds, so that no pause between two looks is a gap.
    rules = Rules(after_s or WINDOW_S, math.inf, bool(node.config.get("gpu_only")))
    memory, decision = decide(node.memory, at_s, _reading(node, at_us), rules)
    return replace(node, memory=memory), decision


def _reading(node: Node, at_us: int) -> dict[str, Any]:
    # A machine has GPUs: that nothing tells of them is unknown, and unknown is busy.
    reading: dict[str, Any] = {"gpus": None, "gpus_expected": int(node.config.get("gpus") or 0), **(node.seen or {})}
    word = node.workload
    if word is not None:
        reading["workload"] = word
        reading["held"] = word == "active" and not node.config.get("ports")
    switch = node.switch
    if switch.lease_tag and switch.lease_left_s is not None:
        reading["lease_s"] = max(0.0, switch.lease_left_s - (at_us - node.switch_us) / SECOND_US)
    return reading


def _follow_idle(node: Node, tags: Mapping[str, str]) -> Node:
    """An edit of ``idle.after`` reaches a live machine by its tag; nonsense changes nothing."""
    tag = tags.get(IDLE_TAG, "")
    if not tag or tag == node.idle_tag:
        return node
    try:
        after_s = asked_s(tag, float(node.config.get("idle_after_s") or WINDOW_S))
    except ValueError:
        return node
    return replace(node, after_s=after_s, idle_tag=tag)


def _counted(node: Node, at_us: int, tags: Mapping[str, str] | None = None) -> Switch:
    """The dead man's switch up to a moment."""
    clock = (node.switch.boot_id, _uptime_s(node, at_us))
    lease = None if tags is None else _lease_of(tags)
    return advance(node.switch, _limits(node.config), clock, lease, at_us / SECOND_US)


def _switch_ends(node: Node) -> list[tuple[int, str]]:
    """When the switch ends the machine, and why."""
    return [(node.switch_us + _us(left_s), why) for left_s, why in ends_of(node.switch, _limits(node.config))]


def _limits(config: Mapping[str, Any]) -> Limits:
    """Without the lifetime: every machine of the sandbox keeps that, by its tag alone."""
    return Limits(None, config.get("spend_s"), config.get("lease_s"))


def _lease_of(tags: Mapping[str, str]) -> Mapping[str, str]:
    return {LEASE_TAG: tags.get(LEASE_TAG, "")}


def _uptime_s(node: Node, at_us: int) -> float:
    return (at_us - node.booted_us) / SECOND_US


def _us(seconds: float) -> int:
    """Whole microseconds, never too few."""
    return math.ceil(seconds * SECOND_US)
