"""Lifecycle rules: a machine that is not needed ends, and a training that is cut goes on."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta

from policies.facts import UNKNOWN, Known, SpecFacts, Unknown
from policies.parameters import Parameter
from policies.rule import Level, Outcome, Rule, Setting, Severity, failed, passed, unknown
from provisioner.units import format_duration
from provisioner.vocabulary import Pattern, Task
from provisioner.workload.quantities import DURATION

IDLE_SUGGESTED = "30m"
LIFETIME_SUGGESTED = "24h"
OTHER_ENDS = ("lifecycle.max_spend", "lifecycle.lease")
"""Keys that end a machine beside its idle rule and its lifetime."""


def _ends_else(facts: SpecFacts, other: str) -> Known[bool]:
    """Whether the other of idle rule and lifetime, a limit on money, or a lease ends the machine; both of the former have defaults."""
    answers = [_says(facts.read(other), "off"), *(_says(facts.read(key), None) for key in OTHER_ENDS)]
    return True if True in answers else UNKNOWN if UNKNOWN in answers else False


def _says(value: object, nothing: object) -> Known[bool]:
    return UNKNOWN if isinstance(value, Unknown) else value != nothing


def idle_rule(facts: SpecFacts, setting: Setting) -> Iterator[Outcome]:
    """A bursty workload ends its machine when it is idle, or has at least another end."""
    key = "lifecycle.idle.after"
    limit: timedelta | None = setting.parameters["max_idle"]
    pattern, after = facts.read("lifecycle.pattern"), facts.read(key)
    suggested = format_duration(limit) if limit is not None else IDLE_SUGGESTED
    remedy = f"write lifecycle.idle.after: {suggested}, or auto"
    if pattern == Pattern.STEADY and limit is None:
        return
    if after is UNKNOWN or pattern is UNKNOWN:
        yield unknown(key, "whether idle machines end is not known yet", remedy)
    elif after == "off":
        ends = _ends_else(facts, "lifecycle.max_lifetime") if limit is None else False
        yield _judge_off(key, ends, f"nothing ends this {pattern} workload's machine while it is idle", remedy)
    elif limit is not None and isinstance(after, timedelta) and after > limit:
        yield failed(
            key, f"a machine may be idle for {format_duration(after)}, more than {format_duration(limit)}", remedy
        )
    else:
        yield passed(key)


def _judge_off(key: str, ends: Known[bool], message: str, remedy: str) -> Outcome:
    """An end that is switched off: no fault where another one is sure."""
    if isinstance(ends, Unknown):
        return unknown(key, f"{message}, and whether something else does is not known yet", remedy)
    return passed(key) if ends else failed(key, message, remedy)


def lifetime_limit(facts: SpecFacts, setting: Setting) -> Iterator[Outcome]:
    """A bursty workload's machine ends at the latest after a stated time, or has at least another end."""
    key = "lifecycle.max_lifetime"
    limit: timedelta | None = setting.parameters["max_lifetime"]
    pattern, lifetime = facts.read("lifecycle.pattern"), facts.read(key)
    suggested = format_duration(limit) if limit is not None else LIFETIME_SUGGESTED
    remedy = f"write lifecycle.max_lifetime: {suggested}"
    if pattern == Pattern.STEADY and limit is None:
        return
    if lifetime is UNKNOWN or pattern is UNKNOWN:
        yield unknown(key, "how long the machine may live is not known yet", remedy)
    elif lifetime == "off":
        ends = _ends_else(facts, "lifecycle.idle.after") if limit is None else False
        yield _judge_off(
            key, ends, f"nothing ends this {pattern} workload's machine if its idle rule never fires", remedy
        )
    elif limit is not None and isinstance(lifetime, timedelta) and lifetime > limit:
        yield failed(
            key, f"a machine may live for {format_duration(lifetime)}, more than {format_duration(limit)}", remedy
        )
    else:
        yield passed(key)


def stopped_limit(facts: SpecFacts, setting: Setting) -> Iterator[Outcome]:
    """A stopped machine does not keep its disks for months."""
    key = "lifecycle.stopped.terminate_after"
    limit: timedelta = setting.parameters["max_stopped"]
    after = facts.read(key)
    remedy = f"write lifecycle.stopped.terminate_after: {format_duration(limit)}, or less"
    if after is UNKNOWN:
        yield unknown(key, "how long a stopped machine stays is not known yet", remedy)
    elif after > limit:
        yield failed(key, f"a stopped machine keeps its disks, and their bill, for {format_duration(after)}", remedy)
    else:
        yield passed(key)


def training_checkpoint(facts: SpecFacts, setting: Setting) -> Iterator[Outcome]:
    """A training writes checkpoints often enough that a crash costs hours, not days."""
    key = "training.checkpoint"
    limit: timedelta = setting.parameters["max_interval"]
    task = facts.read("task")
    if task in (Task.SERVE, Task.BATCH):
        return
    every = facts.read("training.checkpoint.every")
    remedy = "write training.checkpoint: {every: 30m, resumable: true}"
    if every is UNKNOWN or task is UNKNOWN:
        yield unknown(key, "how often checkpoints are written is not known yet", remedy)
    elif every is None:
        yield failed(key, "a crash or an interruption loses the whole training: it states no checkpoints", remedy)
    elif every > limit:
        yield failed(f"{key}.every", f"a crash loses up to {format_duration(every)} of training", remedy, identity=key)
    else:
        yield passed(key)


def keep_failed(facts: SpecFacts, setting: Setting) -> Iterator[Outcome]:
    """A machine whose start failed is not kept, since it bills like any other."""
    del setting
    key = "lifecycle.keep_failed"
    kept = facts.read(key)
    if kept is UNKNOWN:
        yield unknown(key, "whether failed machines are kept is not known yet", "remove lifecycle.keep_failed")
    elif kept:
        yield failed(
            key,
            "a machine whose start failed goes on billing until someone ends it",
            "remove lifecycle.keep_failed when done",
        )
    else:
        yield passed(key)


RULES = (
    Rule(
        "idle-rule",
        "lifecycle",
        "Bursty workloads end idle machines",
        "Forgotten machines are the largest avoidable GPU cost: a bursty workload without an idle rule or another end bills through every night.",
        Severity.HIGH,
        (SpecFacts,),
        idle_rule,
        parameters=(
            Parameter(
                "max_idle",
                DURATION,
                None,
                "longest idle time that passes, for steady workloads too; none = any, and off where a lifetime, max_spend or lease ends the machine",
            ),
        ),
    ),
    Rule(
        "lifetime-limit",
        "lifecycle",
        "Bursty workloads have a longest lifetime",
        "An idle rule can be kept awake by a hung process; the lifetime ends the machine whatever it does.",
        Severity.HIGH,
        (SpecFacts,),
        lifetime_limit,
        parameters=(
            Parameter(
                "max_lifetime",
                DURATION,
                None,
                "longest lifetime that passes, for steady workloads too; none = any, and off where an idle rule, max_spend or lease ends the machine",
            ),
        ),
    ),
    Rule(
        "stopped-limit",
        "lifecycle",
        "Stopped machines are ended in time",
        "A stopped machine costs nothing but its disks, for ever.",
        Severity.LOW,
        (SpecFacts,),
        stopped_limit,
        level=Level.ADVISORY,
        parameters=(
            Parameter("max_stopped", DURATION, timedelta(days=30), "longest time that a machine may stay stopped"),
        ),
    ),
    Rule(
        "training-checkpoint",
        "lifecycle",
        "Trainings write checkpoints",
        "Hardware faults and maintenance end long trainings on every cloud, on-demand too.",
        Severity.MEDIUM,
        (SpecFacts,),
        training_checkpoint,
        level=Level.ADVISORY,
        parameters=(Parameter("max_interval", DURATION, timedelta(hours=4), "longest time between two checkpoints"),),
    ),
    Rule(
        "keep-failed",
        "lifecycle",
        "Failed machines are not kept",
        "Kept machines are for debugging; in a committed spec they are a leak.",
        Severity.MEDIUM,
        (SpecFacts,),
        keep_failed,
        level=Level.ADVISORY,
    ),
)
