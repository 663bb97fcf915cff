"""What is to be done with one machine now: a pure function of the machine, the evidence and the time.

Decide, mark, wait, look again, act: nothing is ended on the first look, and what works again loses its mark.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum

from provisioner import tags
from provisioner.node.idleness import IDLE, UNKNOWN
from provisioner.reaper import machines
from provisioner.reaper.ending import STOP, TERMINATE, Ending, ending
from provisioner.reaper.evidence import Evidence
from provisioner.reaper.machines import Machine

GRACE_STOP_MAX = timedelta(minutes=10)
GRACE_TERMINATE = timedelta(hours=1)
OVERDUE = timedelta(minutes=15)
"""Past its lifetime by this much, the machine's own timer has failed."""


class Step(StrEnum):
    """What is done."""

    KEEP = "keep"
    MARK = "mark"
    WAIT = "wait"
    ACT = "act"
    UNMARK = "unmark"


class Cause(StrEnum):
    """Why a machine should end."""

    IDLE = "idle"
    OVER_AGE = "over-age"
    STOPPED = "stopped-too-long"


@dataclass(frozen=True, slots=True)
class Verdict:
    """What is to be done with a machine, and why."""

    machine: Machine
    step: Step
    reason: str
    cause: Cause | None = None
    ending: Ending | None = None
    due_at: datetime | None = None
    quiet: timedelta = timedelta(0)

    @property
    def is_unjudged(self) -> bool:
        """Whether it is kept because a source that counts cannot be read: it may be idle for ever."""
        return self.step is Step.KEEP and self.reason.startswith(f"{UNKNOWN}: ")


def decide(machine: Machine, evidence: Evidence | None, now: datetime) -> Verdict:
    """Judge a machine.

    Args:
        machine: as it is now.
        evidence: of a running one; ``None`` where it need not, or could not, be looked at.
        now: the cloud's time.
    """
    cause, reason, threshold = _cause(machine, evidence, now)
    if cause is None:
        return Verdict(machine, Step.UNMARK if machine.due_at is not None else Step.KEEP, reason)
    how = _how(machine, cause)
    quiet = evidence.quiet if evidence is not None else timedelta(0)
    due_at, marked_for = machine.due_at, machine.tags.get(machines.CAUSE)
    if due_at is None or marked_for != cause:
        # Tags hold whole seconds; a grace is never cut short by rounding.
        due = (now + grace(how.how, threshold)).replace(microsecond=0) + timedelta(seconds=1)
        return Verdict(machine, Step.MARK, reason, cause, how, due, quiet)
    step = Step.ACT if due_at <= now else Step.WAIT
    return Verdict(machine, step, reason, cause, how, due_at, quiet)


def grace(how: str, threshold: timedelta | None) -> timedelta:
    """How long a mark waits before a stop or a termination."""
    if how == TERMINATE:
        return GRACE_TERMINATE
    return min(threshold, GRACE_STOP_MAX) if threshold is not None else GRACE_STOP_MAX


def needs_evidence(machine: Machine) -> bool:
    """Whether its signals have a say in what is done with it."""
    has_limit = machine.tags.get(tags.IDLE_AFTER, tags.NONE) != tags.NONE
    return machine.is_running and has_limit and not machine.is_opted_out


def can_stop(machine: Machine) -> bool:
    """Whether a machine is known to be one that its market, its disks and its spot request let stop."""
    if machine.capacity_type is None or machine.cannot_stop:
        return False
    return ending(machine.cloud, machine.capacity_type, machine.disk, STOP).how == STOP


def _how(machine: Machine, cause: Cause) -> Ending:
    if cause is Cause.STOPPED:
        return Ending(TERMINATE, "it has been stopped for longer than its stack allows")
    wanted = machine.tags.get(tags.IDLE_THEN)
    if wanted == STOP and machine.cannot_stop:
        wanted = None  # the spec was edited since, or the request was cancelled; a stop would be refused, and it would bill on
    return ending(machine.cloud, machine.capacity_type, machine.disk, wanted)


def _cause(machine: Machine, evidence: Evidence | None, now: datetime) -> tuple[Cause | None, str, timedelta | None]:
    """Why it should end (``None`` where it should not), in words, and the threshold that it crossed."""
    if machine.is_opted_out:
        return None, f"opted out by tag {machines.KEEP}", None
    if machine.state == "stopped":
        return _stopped(machine, now)
    if not machine.is_running:
        return None, f"it is {machine.state}", None
    expires_at = machines.expires_at(machine)
    if expires_at is not None and now - expires_at > OVERDUE:
        return Cause.OVER_AGE, f"its lifetime ended at {tags.format_time(expires_at)}", None
    # A keepalive holds off idleness alone: the lifetime is a limit on money, on the machine and from outside alike.
    lease = machines.lease_until(machine)
    if lease is not None and lease > now:
        return None, f"kept until {tags.format_time(lease)}", None
    threshold = machines.idle_after(machine, evidence.idle_after if evidence is not None else None)
    if threshold is None:
        return None, "no idle limit", None
    if evidence is None:
        return None, "not looked at", None
    if evidence.state != IDLE:
        return None, f"{evidence.state}: {evidence.reason}", None
    if evidence.quiet < threshold:
        left = threshold - evidence.quiet
        return None, f"quiet for {_minutes(evidence.quiet)}, idle in {_minutes(left)}", None
    return Cause.IDLE, f"idle for {_minutes(evidence.quiet)} ({evidence.reason})", threshold


def _stopped(machine: Machine, now: datetime) -> tuple[Cause | None, str, timedelta | None]:
    allowed = machines.duration(machine.tags.get(tags.TERMINATE_AFTER))
    if allowed is None:
        return None, "stopped, without a limit", None
    if machine.stopped_at is None:
        return None, "stopped; the cloud does not say since when", None
    if now - machine.stopped_at <= allowed:
        return None, f"stopped, and may be so until {tags.format_time(machine.stopped_at + allowed)}", None
    return Cause.STOPPED, f"stopped since {tags.format_time(machine.stopped_at)}", None


def _minutes(duration: timedelta) -> str:
    minutes = duration.total_seconds() / 60
    return f"{minutes:.0f} min" if minutes < 120 else f"{minutes / 60:.1f} h"


__all__ = ["STOP", "TERMINATE", "Cause", "Step", "Verdict", "can_stop", "decide", "grace", "needs_evidence"]
