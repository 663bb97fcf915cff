"""What an engine run did, read from its event stream: frozen results, no text of the engine's own display.

The stream is the only source: the exit code of the engine does not tell a policy violation from a failed create, and its
screen output is for people.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from provisioner.clouds.cloud import ForeignChange
from provisioner.errors import CloudError, GpuprovError, PolicyViolation
from stacks import failures, foreign
from stacks.failures import Attempt
from stacks.health import OK
from stacks.state import GPU_INSTANCE

OWN_TYPES = "gpuprov:index:"
_AMBIENT_PLUGIN = "using pulumi-resource-"
"""Start of the engine's warning about a plugin on PATH; ours always is, on purpose."""
_PARTIAL_FAILURE = 1
"""Status of a step that failed and left something in the state all the same.

Source: pulumi/pulumi sdk/go/common/resource/status.go.
"""
_STATED = ("offers", "workload", "asked")
"""Outputs that repeat what the program states or a call asked for: no cloud shows them, so a refresh finds nothing there."""
_KIND_OF_STEP = {
    "create": "create",
    "create-replacement": "replace",
    "replace": "replace",
    "update": "update",
    "delete": "delete",
    "delete-replaced": "replace",
    "discard-replaced": "replace",
    "same": "same",
    "import": "create",
    "import-replacement": "replace",
    "read": "same",
}


@dataclass(frozen=True, slots=True)
class Changes:
    """Resources of ours by what happened to them; one that is replaced counts once, one whose step failed not at all."""

    create: int = 0
    update: int = 0
    replace: int = 0
    delete: int = 0
    same: int = 0

    @property
    def is_empty(self) -> bool:
        """Whether nothing changes."""
        return not (self.create or self.update or self.replace or self.delete)

    def to_document(self) -> dict[str, int]:
        """The counts as they stand in JSON."""
        return {
            "create": self.create,
            "update": self.update,
            "replace": self.replace,
            "delete": self.delete,
            "same": self.same,
        }


@dataclass(frozen=True, slots=True)
class Step:
    """What a run does, or would do, to one resource."""

    kind: str
    """``create``, ``update``, ``replace``, ``delete`` or ``same``."""
    type: str
    name: str
    diffs: tuple[str, ...] = ()
    """Properties that differ, for updates and replacements."""


@dataclass(frozen=True, slots=True)
class Drift:
    """A difference between the state and the cloud that a refresh found."""

    type: str
    name: str
    id: str | None
    is_gone: bool
    before: Mapping[str, Any] = field(default_factory=dict)
    after: Mapping[str, Any] = field(default_factory=dict)

    @property
    def ailment(self) -> str | None:
        """What is wrong with a machine that runs, found now or before; ``None`` where nothing is, or that is not known."""
        found = self.after.get("health")
        return None if self.is_gone or found in (None, OK) else str(found)

    @property
    def foreign(self) -> tuple[ForeignChange, ...]:
        """What somebody has changed on a machine by hand, now or before; empty once it is as it was asked for."""
        return () if self.is_gone else foreign.read(self.after.get("foreignChanges"))

    @property
    def rules(self) -> tuple[str, ...]:
        """Rules of the machine's group that are other than the spec's, changed now or before."""
        return () if self.is_gone else tuple(str(rule) for rule in self.after.get("foreignRules") or ())

    def changed(self) -> dict[str, tuple[Any, Any]]:
        """Outputs that differ: name -> (state, cloud). What the state never knew is learned, and no difference."""
        pairs = {name: (value, self.after.get(name)) for name, value in self.before.items() if value is not None}
        return {name: pair for name, pair in pairs.items() if pair[0] != pair[1] and name not in _STATED}


@dataclass(frozen=True, slots=True)
class Violation:
    """A rule of the policy pack that failed in the engine."""

    rule: str
    message: str
    resource: str | None
    is_mandatory: bool


@dataclass(frozen=True, slots=True)
class Outcome:
    """One run of the engine."""

    changes: Changes = field(default_factory=Changes)
    steps: tuple[Step, ...] = ()
    drift: tuple[Drift, ...] = ()
    attempts: tuple[Attempt, ...] = ()
    """Offers that were tried: as the failure lists them, else as they were told."""
    told: tuple[Attempt, ...] = ()
    """Offers that were tried in this very run."""
    violations: tuple[Violation, ...] = ()
    warnings: tuple[str, ...] = ()
    failure: GpuprovError | None = None
    """Why it failed; ``None`` where it did not."""


Listener = Callable[["Step", str], None]
"""Called with each step and its stage: ``begin``, ``done`` or ``failed``."""


class EventLog:
    """Collects the events of one run. The engine's stream ends before the engine does, so ``outcome`` sees all of them."""

    def __init__(self, listener: Listener | None = None, tell: Callable[[str], None] | None = None) -> None:
        self._listener = listener
        self._tell = tell
        self._steps: dict[str, Step] = {}
        self._drift: dict[str, Drift] = {}
        self._refreshing: set[str] = set()
        self._done: set[str] = set()
        self._undone: set[str] = set()
        self._attempts: list[Attempt] = []
        self._violations: list[Violation] = []
        self._warnings: dict[str, None] = {}
        self._errors: list[str] = []

    def on_event(self, event: Any) -> None:
        """Take one ``pulumi.automation.events.EngineEvent``."""
        if event.diagnostic_event is not None:
            self._on_diagnostic(event.diagnostic_event)
        elif event.policy_event is not None:
            self._on_policy(event.policy_event)
        elif event.resource_pre_event is not None:
            self._on_step(event.resource_pre_event.metadata, "begin")
        elif event.res_outputs_event is not None:
            self._on_step(event.res_outputs_event.metadata, "done")
        elif event.res_op_failed_event is not None:
            failed = event.res_op_failed_event
            if failed.status != _PARTIAL_FAILURE:
                self._undone.add(failed.metadata.urn)
            self._on_step(failed.metadata, "failed")

    def outcome(self, exit_text: str | None = None) -> Outcome:
        """The result; ``exit_text`` is the engine's error output where it ended with an error."""
        failure, attempts = self._failure(exit_text)
        undone = self._undone - self._done
        kinds = [step.kind for urn, step in self._steps.items() if urn not in undone]
        return Outcome(
            changes=Changes(*(kinds.count(kind) for kind in ("create", "update", "replace", "delete", "same"))),
            steps=tuple(self._steps.values()),
            drift=tuple(self._drift.values()),
            attempts=attempts or tuple(self._attempts),
            told=tuple(self._attempts),
            violations=tuple(self._violations),
            warnings=tuple(self._warnings),
            failure=failure,
        )

    def _on_diagnostic(self, event: Any) -> None:
        text = event.message.strip()
        if event.severity == "error":
            self._errors.append(text)
            return
        found = failures.decode_attempts(text)
        self._attempts.extend(found)
        if event.severity == "warning" and not text.startswith(_AMBIENT_PLUGIN):
            self._warnings[failures.strip(text)] = None
        elif event.severity == "info" and (found or event.urn) and self._tell is not None:
            self._tell(failures.strip(text))

    def _on_policy(self, event: Any) -> None:
        violation = Violation(
            rule=event.policy_name,
            message=" ".join(event.message.split()),
            resource=event.resource_urn,
            is_mandatory=event.enforcement_level == "mandatory",
        )
        if violation not in self._violations:
            self._violations.append(violation)

    def _on_step(self, metadata: Any, stage: str) -> None:
        if not metadata.type.startswith(OWN_TYPES):
            return
        # A refresh begins as `refresh` and ends as `refresh`, `same`, `update` or `delete`, by the kind of run.
        operation = getattr(metadata.op, "value", metadata.op)
        if stage == "begin" and operation == "refresh":
            self._refreshing.add(metadata.urn)
        elif metadata.urn in self._refreshing:
            self._refreshing.discard(metadata.urn)
            if stage == "done":
                self._drift[metadata.urn] = _drift(metadata)
        elif kind := _KIND_OF_STEP.get(operation):
            if stage == "done":
                self._done.add(metadata.urn)
            self._note(Step(kind, metadata.type, _name(metadata), _diffs(metadata)), metadata.urn, stage)

    def _note(self, step: Step, urn: str, stage: str) -> None:
        before = self._steps.get(urn)
        if before is None or (stage == "begin" and before.kind != "replace"):
            self._steps[urn] = step
        if self._listener is not None:
            self._listener(step, stage)

    def _failure(self, exit_text: str | None) -> tuple[GpuprovError | None, tuple[Attempt, ...]]:
        mandatory = [violation for violation in self._violations if violation.is_mandatory]
        if mandatory:
            return _policy_failure(mandatory), ()
        for text in self._errors:
            if decoded := failures.decode(text):
                return decoded.error, decoded.attempts
        if exit_text is None:
            return None, ()
        plain = [failures.strip(text) for text in self._errors if not _is_echo(text)]
        message = " ".join((plain[0] if plain else exit_text).split())
        return CloudError(f"the engine failed: {message}"), ()


def _drift(metadata: Any) -> Drift:
    old, new = metadata.old, metadata.new
    return Drift(
        metadata.type,
        _name(metadata),
        old.id if old is not None else None,
        is_gone=new is None,
        before=dict(old.outputs or {}) if old is not None else {},
        after=dict(new.outputs or {}) if new is not None else {},
    )


def _name(metadata: Any) -> str:
    return str(metadata.urn.rpartition("::")[2])


def _diffs(metadata: Any) -> tuple[str, ...]:
    return tuple(metadata.diffs or metadata.detailed_diff or ())


def _policy_failure(violations: list[Violation]) -> PolicyViolation:
    first = violations[0]
    more = f" (and {len(violations) - 1} more)" if len(violations) > 1 else ""
    return PolicyViolation(f"rule {first.rule} failed: {first.message}{more}", where=first.resource)


def _is_echo(text: str) -> bool:
    """Whether an error only says that the run failed, after another one said why."""
    return text.strip() in (
        "update failed",
        "preview failed",
        "refresh failed",
        "destroy failed",
        "resource operations failed",
    )


def describe(step: Step) -> str:
    """A step for people: ``create GpuInstance instance``."""
    diffs = f" ({', '.join(step.diffs)})" if step.diffs and step.kind in ("update", "replace") else ""
    return f"{step.kind} {step.type.removeprefix(OWN_TYPES)} {step.name}{diffs}"


def is_machine(step: Step) -> bool:
    """Whether the step is about the machine: the one that bills and takes time."""
    return step.type == GPU_INSTANCE
