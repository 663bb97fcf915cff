"""What people see while the engine works: plain lines, with the time since the start.

Lines only, also on a terminal: they survive in a log of a pipeline, and a create with failover takes minutes, of which each
offer tried is a line. A step that is quick and changes nothing is not told.
"""

from __future__ import annotations

from collections.abc import Callable
from time import monotonic

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
    ailing = [f"  ! {noun} is impaired: {drift.ailment}"] if drift.ailment is not None else []
    changed = drift.changed()
    if drift.type == GPU_INSTANCE and "power" in changed:
        was, now = changed["power"]
        return [f"  ! {noun} is {now}, was {was}", *ailing]
    if changed.pop("health", (None, None))[1] == OK:
        ailing = [f"  ! {noun} is well again"]
    told = [name for name in changed if changed[name][1] is not None]
    return [*([f"  ! {noun} differs in the cloud: {', '.join(told)}"] if told else []), *ailing]
