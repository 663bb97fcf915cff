"""What people see while the engine works: plain lines, with the time since the start.

Lines only, also on a terminal: they survive in a log of a pipeline, and a create with failover takes minutes, of which each
offer tried is a line. A step that is quick and changes nothing is not told.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from time import monotonic
from typing import Any

from provisioner import tags
from provisioner.units import format_bytes
from stacks import foreign
from stacks.health import OK
from stacks.outcome import Drift, Outcome, Step, describe, is_machine
from stacks.state import GPU_INSTANCE

_SIGNS = {"create": "+", "update": "~", "replace": "±", "delete": "-", "same": " "}
_DOING = {"create": "creating", "update": "updating", "replace": "replacing", "delete": "deleting"}
_DONE = {"create": "created", "update": "updated", "replace": "replaced", "delete": "deleted"}


class Progress:
    """Tells steps and attempts through one function, each with the seconds since the start."""

    def __init__(self, tell: Callable[[str], None]) -> None:
        self._tell = tell
        self._began_s = monotonic()
        self.is_on = True
        """Off during a preview, whose steps are shown as a list afterwards."""

    def step(self, step: Step, stage: str) -> None:
        """A step begins or ends."""
        if not self.is_on or step.kind == "same":
            return
        noun = describe(Step(step.kind, step.type, step.name)).partition(" ")[2]
        if stage == "begin" and is_machine(step):
            self._line(f"{_DOING[step.kind]} {noun}")
        elif stage == "done":
            self._line(f"{_DONE[step.kind]} {noun}")
        elif stage == "failed":
            self._line(f"failed: {step.kind} {noun}")

    def detail(self, text: str) -> None:
        """A line of the plugin: an offer tried, a wait."""
        if self.is_on:
            self._line(text)

    def _line(self, text: str) -> None:
        self._tell(f"{monotonic() - self._began_s:6.1f} s  {text}")


def preview_lines(outcome: Outcome) -> list[str]:
    """The preview for people: what changes, one line each; nothing for what stays."""
    lines = [*drift_lines(outcome)]
    changing = [step for step in outcome.steps if step.kind != "same"]
    lines += [f"  {_SIGNS[step.kind]} {describe(step)}" for step in changing]
    # A difference in `power` means that the machine is gone already.
    if any(is_machine(step) and step.kind == "replace" and "power" not in step.diffs for step in changing):
        lines.append(
            "    a machine that still runs ends first: where no offer has capacity then, none runs until a later `up`"
        )
    if not changing:
        lines.append("  no changes")
    return lines


def drift_lines(outcome: Outcome) -> list[str]:
    """What a refresh found to be other than the state says."""
    return [line for drift in outcome.drift for line in _drift_lines(drift)]


def _drift_lines(drift: Drift) -> list[str]:
    noun = f"{drift.type.rpartition(':')[2]} {drift.name}"
    if drift.is_gone:
        shown = drift.before.get("instanceId") or drift.before.get("volumeId") or drift.id
        return [f"  ! {noun} is not there any more ({shown})"]
    standing = _standing_lines(drift, noun)
    changed = drift.changed()
    if drift.type == GPU_INSTANCE and "power" in changed:
        was, now = changed.pop("power")
        standing.insert(0, f"  ! {noun} is {now}, was {was}")
        if now in _OVER:
            return standing
        changed.pop("publicIp", None)  # it comes and goes with the power
    if changed.pop("health", (None, None))[1] == OK:
        standing.append(f"  ! {noun} is well again")
    told = {name: pair for name, pair in changed.items() if pair[1] is not None and name not in _SAID_APART}
    if "diskSpeed" in told:
        told.pop("speed", None)
    if drift.foreign:
        told = {name: pair for name, pair in told.items() if name not in _ASKED}
    return [*(f"  ! {noun}: {text}" for name, pair in told.items() for text in _told(name, *pair)), *standing]


_OVER = ("terminated", "terminating", "interrupted")
_SAID_APART = ("foreignRules", "foreignChanges", "ready")
_ASKED = ("instanceType", "capacityType", "zone", "region", "image")
"""Outputs that say again what a change by hand says."""


def _standing_lines(drift: Drift, noun: str) -> list[str]:
    """What is so as long as it is so, whether this refresh was the first to see it or not."""
    lines = [f"  ! {noun}: {foreign.words(change)}; {change.undo or '`up` puts it right'}" for change in drift.foreign]
    lines += [f"  ! {noun}: {rule} in its security group; `up` puts it right" for rule in drift.rules]
    if foreign.left(drift.foreign):
        stack = (drift.after.get("cloudTags") or {}).get(tags.STACK, "STACK")
        lines.append(
            f"    what `up` does not put right is undone by hand, or by another machine: `gpuprov down {stack} --keep-data`,"
            " then `gpuprov up SPEC`; data disks stay"
        )
    return [*lines, *([f"  ! {noun} is impaired: {drift.ailment}"] if drift.ailment is not None else [])]


def _told(name: str, was: Any, now: Any) -> list[str]:
    """One output that differs, with both values; of tags those that differ."""
    if isinstance(was, Mapping) and isinstance(now, Mapping):
        keys = sorted({key for key in (*was, *now) if was.get(key) != now.get(key)})
        return [f"{name}.{key} is {_shown(key, now.get(key))}, was {_shown(key, was.get(key))}" for key in keys]
    return [f"{name} is {_shown(name, now)}, was {_shown(name, was)}"]


def _shown(name: str, value: Any) -> str:
    if value is None or value in ([], ""):
        return "none"
    if isinstance(value, list):
        return ", ".join(str(entry) for entry in value)
    return format_bytes(value) if name == "diskSize" and isinstance(value, int) else str(value)
