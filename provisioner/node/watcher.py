"""The watcher: ends this machine when it is idle, when its work is done, and, as the dead man's switch, when its time is up.

``watch`` looks once a period and decides; ``tick`` is one look of the dead man's switch. Both end the machine by a shutdown of
the operating system, with no cloud credentials, and say on the serial console why. Python 3.9 and its standard library only.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from provisioner.node.deadman import (
    EXPIRY_TAG,
    LEASE_TAG,
    Switch,
    advance,
    boot_id,
    limits_of,
    newest_switch,
    save_switch,
)
from provisioner.node.drain import CAUSE_TAG, DRAIN_TAG, HURRY_S, Gate, Listener, drain
from provisioner.node.gpu_readings import nvml_gpus
from provisioner.node.idleness import (
    FAILED,
    HEARTBEAT_S,
    IDLE,
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
from provisioner.node.reach import HTTP_TIMEOUT_S, fetch, run_bounded, run_tool
from provisioner.node.renew import install, program_of, renew
from provisioner.node.sensors import Machine

CONFIG = "/etc/gpuprov/node.json"
STATE = "/var/lib/gpuprov"
HOOK_S = 100.0
"""Longest run of the hook: EC2 gives 120 s of notice, and the watcher sees it within ``GLANCE_S``."""
GLANCE_S = 5.0
"""Between two looks, notices of the cloud and requests from outside are asked for this often.

Source: EC2 user guide, "Spot Instance interruption notices" (check every 5 seconds).
"""
HOOK_HOLDS_S = 300.0
"""A checkpoint of this age is good enough for a shutdown: the hook has run for it, or for a notice, a moment ago."""
THEN_TAG = "gpuprov:idle-then"
MARK = "gpuprov"
"""First key of our lines on the console."""


@dataclass
class Node:
    """This machine, as the watcher knows it."""

    config: Mapping[str, Any]
    root: Path = Path("/")
    metadata: str = "http://169.254.169.254"
    clock: Path | None = None
    """File with monotonic and wall seconds, for tests; ``None`` reads the real clocks."""
    machine: Machine = field(init=False)

    def __post_init__(self) -> None:
        self.machine = Machine(
            root=self.root,
            metadata=self.metadata,
            ports=tuple(self.config.get("ports") or ()),
            gpus=int(self.config.get("gpus") or 0),
            has_run=bool(self.config.get("run")),
        )

    @property
    def period_s(self) -> float:
        """Seconds between two looks."""
        return float(self.config.get("period_s") or 30)

    @property
    def state(self) -> Path:
        """Folder of what must survive a reboot."""
        return self.machine.path(STATE)

    @property
    def switches(self) -> tuple[Path, Path]:
        """Where the dead man's switch is kept: on disk, and in memory for a disk that is full."""
        return self.state / "deadman.json", self.machine.path("/run/gpuprov/deadman.json")

    def switch(self) -> Switch | None:
        """The dead man's switch as it was written last."""
        return newest_switch(self.switches, boot_id(self.root))

    def now_s(self) -> float:
        """Monotonic seconds since boot; time asleep counts."""
        if self.clock is not None:
            return float(self.clock.read_text().split()[0])
        return time.clock_gettime(time.CLOCK_BOOTTIME)

    def wall_s(self) -> float:
        """The guest's wall clock, which may be wrong."""
        return float(self.clock.read_text().split()[1]) if self.clock is not None else time.time()

    def say(self, **facts: Any) -> None:
        """One JSON line to the serial console."""
        line = json.dumps({MARK: 1, "at": _rfc3339(self.wall_s()), **facts}, sort_keys=False) + "\n"
        for name in ("/dev/ttyS0", "/dev/console"):
            if _written(self.machine.path(name), line.encode()):
                return
        with suppress(OSError):
            sys.stderr.write(line)

    def hook(self, limit_s: float) -> bool | None:
        """Run the user's checkpoint hook within a time; whether it worked, ``None`` without one."""
        hook = list(self.config.get("hook") or ())
        if not hook:
            return None
        script = self.machine.path("/opt/gpuprov/run.sh")
        if script.exists():  # which knows the container and the environment of the workload
            hook.insert(0, str(script))
        worked = run_bounded(hook, max(1.0, limit_s))[0] == 0
        if worked:
            with suppress(OSError):  # a full disk: at worst the hook runs once more
                self.state.mkdir(parents=True, exist_ok=True)
                (self.state / "hook").write_text(f"{boot_id(self.root)} {self.now_s()}")
        return worked

    def leave(self) -> None:
        """The system goes down, whoever asked for it: the hook runs before the workload is told to stop, unless it just did."""
        try:
            boot, at_s = (self.state / "hook").read_text().rsplit(" ", 1)
            if boot == boot_id(self.root) and self.now_s() - float(at_s) < HOOK_HOLDS_S:
                return
        except (OSError, ValueError):
            pass  # it has not run yet
        worked = self.hook(HOOK_S)
        if worked is not None:
            self.say(state="leaving", why="the system goes down", hook="done" if worked else "failed")

    def renew(self) -> None:
        """At boot: take over what the user data says now; without an answer, keep what there is."""
        for _ in range(10):
            try:
                changed = renew(self.root, program_of(self.machine.user_data()), run_tool)
            except OSError as error:
                why = str(error)
                time.sleep(2 if self.clock is None else 0)
            except ValueError as error:
                why = str(error)
                break
            else:
                if changed:
                    self.say(state="boot", why=f"takes over a new start: {', '.join(changed)}"[:500])
                return
        self.say(state="boot", why=f"keeps its start: {why}")

    def end(self, why: str, state: str, limit_s: float = HOOK_S, **more: Any) -> None:
        """Run the hook, say it, and shut the operating system down; the cloud stops or terminates the machine by its setting."""
        then = self.config.get("then", "terminate")
        # An edit of ``idle.then`` changes the machine and its tag, but for spot; nothing keeps the machine from its end.
        with suppress(Exception):
            then = then if self.config.get("spot") else self.machine.tags([THEN_TAG])[0].get(THEN_TAG, then)
        worked = self.hook(limit_s)
        hook = {} if worked is None else {"hook": "done" if worked else "failed"}
        self.say(state=state, act=then, why=why, **hook, **more)
        run_tool(["sync"], 20.0)  # a disk that hangs must not keep the machine
        for command in (
            ["systemctl", "poweroff"],
            ["shutdown", "-h", "now"],
            ["systemctl", "poweroff", "--force", "--force"],
        ):
            if run_tool(command, 30.0) is not None:
                return


def tick(node: Node) -> Switch:
    """One look of the dead man's switch; ends the machine where it is due."""
    switch = node.switch()
    try:
        tags, date = node.machine.tags((EXPIRY_TAG, LEASE_TAG))
        found: Mapping[str, str] | None = tags
    except Exception:  # noqa: BLE001 - whatever answers there, time goes on
        found, date = None, None
    limits = limits_of(node.config)
    now = node.wall_s() if date is None else date
    fresh = advance(switch, limits, (boot_id(node.root), node.now_s()), found, now)
    for path in node.switches:
        save_switch(path, fresh)
    if fresh.ended_by:
        # Each further tick tries again, until the machine is gone.
        node.end(fresh.ended_by, "dead-man", HURRY_S)
    return fresh


@dataclass
class Watch:
    """The loop's own memory."""

    node: Node
    rules: Rules
    memory: Memory = field(default_factory=Memory)
    said: str = ""
    said_at_s: float = -1e18
    ready: bool = False
    noticed: bool = False
    listener: Listener = field(init=False)
    after_s: float | None = field(init=False)
    """Quiet time that ends the machine; ``None`` is off."""
    idle_tag: str = field(init=False)
    """What the tag said when ``after_s`` was read from it, or when the machine was made."""

    measured_s: float | None = None
    """What the start of this machine has taken, within bounds."""

    def __post_init__(self) -> None:
        node = self.node
        self.after_s = node.config.get("idle_after_s")
        self.idle_tag = str(node.config.get("idle_tag") or "")
        gate = Gate(node.machine.ports, node.state / "draining", run_tool)
        gate.open()  # what a watcher that was killed has shut, though a full disk kept no flag of it
        self.listener = Listener(gate, self._is_calm, _pause(node), self._hook, node.say)

    def grow(self) -> None:
        """Let the file systems of data disks that were made larger fill them, under the workload that goes on."""
        path = self.node.machine.path
        with suppress(OSError):
            for link in path("/dev/disk/by-label").glob("gpuprov-*"):
                if (
                    f"{link.resolve()} " in path("/proc/mounts").read_text()
                    and run_tool(["resize2fs", str(link)]) is None
                ):
                    self.node.say(state="boot", why=f"{link} cannot grow")

    def glance(self) -> None:
        """What cannot wait for the next look: the cloud's notice, and a request to drain."""
        if self._is_interrupted():
            return
        try:
            tags, date = self.node.machine.tags((DRAIN_TAG, CAUSE_TAG, IDLE_TAG))
        except OSError:
            return
        self._follow_idle(tags.get(IDLE_TAG, ""))
        self.listener.hear(tags, self.node.now_s(), self.node.wall_s() if date is None else date)

    def _follow_idle(self, tag: str) -> None:
        """An edit of ``idle.after`` reaches a live machine by its tag; nonsense changes nothing."""
        if tag == self.idle_tag or not tag:
            return
        try:
            self.after_s = asked_s(tag, self.measured_s or float(self.node.config.get("idle_after_s") or 3600))
        except ValueError:
            return
        self.idle_tag = tag
        self.rules = replace(self.rules, window_s=self.after_s or self.rules.window_s)

    def _hook(self, limit_s: float) -> bool | None:
        """The hook of a drain; where the cloud's notice came in between it has just run, and must not write over what it wrote."""
        return None if self.noticed else self.node.hook(limit_s)

    def _is_calm(self) -> bool:
        """Whether nothing works at this moment, by the same judgement as ever; a drain does not outlast the cloud's notice."""
        if self._is_interrupted():
            return True
        now_s = self.node.now_s()
        self.memory, seen = decide(self.memory, now_s, self.node.machine.read(now_s), self.rules)
        return seen.state in (QUIET, IDLE)

    def look(self) -> Decision | None:
        """One reading, judged and acted upon; ``None`` where the machine was told to end for another reason."""
        node, now_s = self.node, self.node.now_s()
        if self._is_interrupted():
            return None
        reading = node.machine.read(now_s)
        if self._is_over(reading.get("workload"), now_s):
            return None
        if (
            node.config.get("run")
            and not self.ready
            and reading.get("workload") == "active"
            and node.config.get("ready")
        ):
            reading["workload"] = "starting"
        reading.update(self._lease())
        self.memory, decision = decide(self.memory, now_s, reading, self.rules)
        if decision.is_due and self.after_s and self.listener.closed_at_s is None:
            return self._end_idle(decision)
        self._tell(decision, now_s)
        return decision

    def _lease(self) -> dict[str, float]:
        switch = self.node.switch()
        if switch is None or switch.lease_left_s is None or not switch.lease_tag:
            return {}
        # Counted on from there: a keepalive must not hold for ever where nothing ticks any more.
        return {"lease_s": max(0.0, switch.lease_left_s - max(0.0, self.node.now_s() - switch.at_s))}

    def _is_interrupted(self) -> bool:
        """Whether the cloud takes the machine back: the hook runs once, at once."""
        if self.node.config.get("spot") is False:
            return False
        try:
            action = self.node.machine.interruption()
        except (OSError, ValueError):
            return self.noticed
        # A machine that slept through its interruption wakes up without a notice.
        was_noticed, self.noticed = self.noticed, action is not None
        if was_noticed or action is None:
            return self.noticed
        self.node.say(state="interrupted", act=action, why="the cloud takes the machine back")
        worked = self.node.hook(HOOK_S)
        if worked is not None:
            self.node.say(state="interrupted", act=action, hook="done" if worked else "failed")
        return True

    def _is_over(self, workload: str | None, now_s: float) -> bool:
        """Whether the work is done, or never came up: both end the machine whatever its sensors say."""
        config = self.node.config
        if not config.get("run"):
            return False
        if workload == "finished" and config.get("once"):
            self.node.end("the work is done", "done")
            return True
        if self.ready or not config.get("ready"):
            return False
        if self._answers(config["ready"]):
            self.ready = True
            self.node.say(state="ready", run=config.get("run_digest"), after_s=round(now_s))
            self.measured(now_s)
            self._mark_ready(now_s)
            return False
        limit_s = config.get("ready_limit_s")
        # Since boot: a watcher that is started again and again must not begin to count anew.
        if not limit_s or config.get("keep_failed") or now_s < float(limit_s):
            return False
        self.node.end(f"not ready after {float(limit_s):.0f} s", "never-ready", tail=self._tail())
        return True

    def measured(self, start_s: float) -> None:
        """``idle.after: auto``: from now on wait as long as this very start has taken, not as long as the plan thought."""
        self.measured_s = within_bounds(start_s)
        if self.idle_tag == "auto" and self.after_s:
            self.after_s = self.measured_s
            self.rules = replace(self.rules, window_s=self.measured_s)

    def _mark_ready(self, now_s: float) -> None:
        with suppress(OSError):  # a full disk: a watcher that starts again then asks once more
            self.node.state.mkdir(parents=True, exist_ok=True)
            (self.node.state / "ready").write_text(f"{boot_id(self.node.root)} {now_s:.0f}")

    def _answers(self, probe: Mapping[str, Any]) -> bool:
        try:
            status, _ = fetch(
                f"http://{self.node.machine.host}:{probe['port']}{probe.get('path') or '/'}", HTTP_TIMEOUT_S
            )
        except OSError:
            return False
        # Without a path, any answer tells that it is up.
        return not probe.get("path") or 200 <= status < 400

    def _end_idle(self, decision: Decision) -> Decision | None:
        """Stop taking requests, look again, and only then end; a request that came in between cancels it."""
        node = self.node

        def is_quiet() -> bool:
            self.memory, again = decide(
                self.memory, node.now_s(), {**node.machine.read(node.now_s()), **self._lease()}, self.rules
            )
            return again.is_due

        if not drain(self.listener.gate, is_quiet, _pause(node)):
            node.say(state="busy", act="cancelled", why="work arrived while the machine was about to end")
            return decision
        node.end(decision.reason, "idle", **self._facts(decision))
        return None

    def _tell(self, decision: Decision, now_s: float) -> None:
        what = f"{decision.state} {sorted(name for name, (word, _) in decision.sources.items() if word != 'idle')}"
        if what == self.said and now_s - self.said_at_s < HEARTBEAT_S:
            return
        self.said, self.said_at_s = what, now_s
        after = self.after_s
        ends = None if not after or decision.state != "quiet" else round(float(after) - decision.quiet_s)
        self.node.say(
            state=decision.state, why=decision.reason, idle_after_s=after, ends_in_s=ends, **self._facts(decision)
        )

    def _facts(self, decision: Decision) -> dict[str, Any]:
        """What was seen; with the last lines of a workload that has failed for good."""
        has_failed = decision.sources.get("workload") == FAILED
        return {**evidence(decision), **({"tail": self._tail()} if has_failed else {})}

    def _tail(self) -> list[str]:
        """Last lines of the workload, for who asks why."""
        shown = run_tool(["journalctl", "-u", self.node.machine.units[0], "-n", "8", "-o", "cat", "--no-pager"])
        return [] if shown is None else [line[:200] for line in shown.strip().splitlines()]


def _pause(node: Node) -> Any:
    def pause() -> None:
        time.sleep(float(node.config.get("drain_s") or 5) if node.clock is None else 0)

    return pause


def watch(node: Node, looks: int | None = None) -> None:
    """Look once a period, for ever or a number of times; one look that fails is told and does not end the loop."""
    config = node.config
    after_s = float(config.get("idle_after_s") or 3600)
    rules = Rules(after_s, node.period_s, bool(config.get("gpu_only")))
    loop = Watch(node, rules)
    ready = node.state / "ready"
    while looks is None or looks > 0:
        begun = time.monotonic()
        # A watcher that was killed and started again must not wait for readiness anew.
        try:
            if not loop.ready and ready.exists():
                boot, _, start_s = ready.read_text().rpartition(" ")
                if boot == boot_id(node.root):
                    loop.ready = True
                    loop.measured(float(start_s))
            loop.glance()
            loop.grow()
            loop.look()
            while node.clock is None and (left_s := node.period_s - (time.monotonic() - begun)) > 0:
                time.sleep(min(GLANCE_S, left_s))
                loop.glance()
        except Exception as error:  # noqa: BLE001 - whatever it is, the watcher goes on, and what it cannot see is busy
            loop.memory = Memory(gpus_seen=loop.memory.gpus_seen)
            node.say(state="unknown", why=f"the watcher failed: {type(error).__name__}: {error}"[:500])
        looks = None if looks is None else looks - 1
        time.sleep(max(0.0, node.period_s - (time.monotonic() - begun)) if node.clock is None else 0.02)


def _written(path: Path, line: bytes) -> bool:
    """Whether a console took a line within 2 s; one that is not there, or does not drain, must not hold up an end."""
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_NOCTTY | os.O_NONBLOCK)
    except OSError:
        return False
    try:
        for _ in range(100):
            with suppress(BlockingIOError):
                line = line[os.write(descriptor, line) :]
            if not line:
                return True
            time.sleep(0.02)
    except OSError:
        return False
    finally:
        os.close(descriptor)
    return False


def _rfc3339(seconds: float) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(seconds))


def main(arguments: list[str] | None = None) -> int:
    """``install``, ``watch``, ``tick``, ``renew`` or ``leave``; ``GPUPROV_NODE_ROOT``, ``_METADATA`` and ``_CLOCK`` put the machine elsewhere for tests."""
    words = sys.argv[1:] if arguments is None else arguments
    root = Path(os.environ.get("GPUPROV_NODE_ROOT") or "/")
    clock = os.environ.get("GPUPROV_NODE_CLOCK")
    if words[:1] == ["gpus"]:
        sys.stdout.write(json.dumps(nvml_gpus(*words[1:])))
        return 0
    if words == ["install"]:
        return 0 if install(root, Path(__file__).read_bytes(), run_tool) else 1
    try:
        config = json.loads((root / CONFIG.lstrip("/")).read_text())
    except (OSError, ValueError):
        if words not in (["tick"], ["renew"]):
            raise
        config = {}  # what is on disk still says when the end is, and a first boot that was cut is made good
    metadata = os.environ.get("GPUPROV_NODE_METADATA") or "http://169.254.169.254"
    node = Node(config, root, metadata, Path(clock) if clock else None)
    if words == ["tick"]:
        tick(node)
    elif words == ["watch"]:
        watch(node)
    elif words == ["renew"]:
        node.renew()
    elif words == ["leave"]:
        node.leave()
    else:
        sys.stderr.write("usage: watcher.py install | watch | tick | renew | leave\n")
        return 2
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
