"""Whether a stack's workload answers: its watcher says so on the serial console, so no port has to be open for it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from time import sleep
from typing import Any

from provisioner import tags
from provisioner.clouds.cloud import Cloud, InstanceState
from provisioner.errors import TimedOut
from provisioner.node.idleness import IDLE
from provisioner.reaper.console import said
from provisioner.reaper.evidence import last_line
from provisioner.units import format_usd
from stacks.own_machine import placement_of
from stacks.provider import node
from stacks.provider.lifetime import part
from stacks.state import StackState

READY, DONE, NEVER = "ready", "done", "never-ready"
_NOT = ("boot", NEVER, "dead-man")
_STOPPED = (InstanceState.STOPPING, InstanceState.STOPPED)
_POLL_FIRST_S, _POLL_LAST_S = 0.2, 5.0
_TAIL = 8


@dataclass(frozen=True, slots=True)
class Probe:
    """What is waited for, and how long."""

    limit_s: float
    keep_failed: bool
    price_usd_per_hour: Decimal | None = None
    """Of the whole stack, for what a wait in vain has cost; ``None`` where it is unknown."""
    run: str | None = None
    """What has to answer (``gpuprov:run-digest``); a line of what ran before says nothing about it."""


def probe_of(state: StackState | None) -> Probe | None:
    """How readiness of the stack's machine is seen; ``None`` where its workload has no probe."""
    if state is None or state.instance is None or not state.outputs.get("instanceId"):
        return None
    inputs = state.instance.inputs
    workload, facts = part(inputs, "workload"), part(inputs, "node")
    if not node.has_probe(workload):
        return None
    keep_failed = bool(part(workload, "lifecycle").get("keep_failed"))
    run = (state.outputs.get("cloudTags") or {}).get(tags.RUN_DIGEST)
    return Probe(node.ready_limit_s(workload, facts) or 0.0, keep_failed, run=run)


def is_ready(console: Sequence[str], run: str | None = None) -> bool:
    """Whether the workload answered after the last start that the console shows.

    Args:
        console: its lines, oldest first.
        run: what has to answer; a console may show what ran before for minutes.
    """
    for line in reversed(console):
        found = said(line)
        if found is not None and found.get("state") in (READY, DONE):
            return run is None or found.get("run") in (None, run)
        if found is not None and (found.get("state") in _NOT or _is_last_word(found)):
            return False
    return False


def _is_last_word(found: Mapping[str, Any]) -> bool:
    """Whether a machine that was idle ended itself with it: what was ready before is not ready after its next start."""
    return found.get("state") == IDLE and found.get("act") is not None


def ready_now(cloud: Cloud, state: StackState | None) -> bool | None:
    """Whether it answers; ``None`` where that is not probed, and running is all there is to tell."""
    probe = probe_of(state)
    if state is None or probe is None:
        return None
    console = cloud.read_console(placement_of(state.outputs), str(state.outputs["instanceId"]))
    return is_ready(console, probe.run)


def wait(
    cloud: Cloud, state: StackState, probe: Probe, say: Callable[[str], None], pause: Callable[[float], None] = sleep
) -> None:
    """Return when the workload answers.

    Raises:
        TimedOut: it does not within the limit, or its machine is gone; with its last lines. The machine was told to end unless
            the spec keeps failed ones.
    """
    place, instance_id = placement_of(state.outputs), str(state.outputs["instanceId"])
    begun, pause_s, told = cloud.now(), _POLL_FIRST_S, 0
    while True:
        console = cloud.read_console(place, instance_id)
        if is_ready(console, probe.run):
            return
        for line in console[told:]:
            found = said(line)
            if found is not None and found.get("state") == "boot":
                say(str(found.get("why")))
        told = len(console)
        machine = cloud.get_instance(place, instance_id)
        waited_s = (cloud.now() - begun).total_seconds()
        is_over = machine is None or machine.state not in (InstanceState.RUNNING, InstanceState.PENDING)
        # Its own watcher may be first to give it up; its disks would bill on for nothing.
        has_stopped = machine is not None and machine.state in _STOPPED and _gave_up(console)
        if is_over or waited_s > probe.limit_s:
            break
        pause(pause_s)
        pause_s = min(pause_s * 1.5, _POLL_LAST_S)
    tail = " | ".join(line.strip()[:200] for line in console[-_TAIL:]) or "nothing on its console"
    if (is_over and not has_stopped) or probe.keep_failed:
        kept = "it is gone" if is_over else "it is kept (lifecycle.keep_failed) and bills"
    else:
        cloud.terminate_instance(place, instance_id)
        kept = "it was ended"
    price = probe.price_usd_per_hour
    cost = "an unknown sum" if price is None else format_usd(price * Decimal(waited_s) / 3600, 4)
    raise TimedOut(
        f"{instance_id} was not ready after {waited_s:.0f} s (3 times the predicted start), which cost {cost}; "
        f"{kept}; last lines: {tail}",
        remedy="see `gpuprov logs`; correct `run` or `run.ready`, then `gpuprov up` again",
    )


def _gave_up(console: Sequence[str]) -> bool:
    """Whether the watcher ended the machine since it was never ready."""
    last = last_line(console)
    return last is not None and last.get("state") == NEVER


def endpoint_of(state: StackState | None) -> str | None:
    """Address of the first serving port: public where the spec opens it to somebody, else private."""
    if state is None or state.instance is None:
        return None
    workload = part(state.instance.inputs, "workload")
    ports, outputs = node.ports_of(workload), state.outputs
    is_open = bool(part(workload, "access").get("cidrs"))
    host = outputs.get("publicIp") if is_open else outputs.get("privateIp")
    if not ports or not host or outputs.get("power") != InstanceState.RUNNING:
        return None
    return f"http://{host}:{ports[0]}"
