"""The gate inside a Pulumi engine: one resource at a time, with values that may not be known yet.

A fact that is unknown in a preview is deferred: it is reported, and the same rule judges the resolved inputs before the
resource is made; what is unknown then still fails.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from policies.config import load_policy
from policies.day import today_utc
from policies.facts import Source, Subject
from policies.facts_others import Project, project_of, resource_subjects
from policies.facts_own import INSTANCE_RESOURCE, Holder, instance_subjects
from policies.facts_pulumi import TERRAFORM_TYPES, plain, secret_names
from policies.files import find_policy
from policies.finding import Finding
from policies.gate import judge
from policies.json_source import JsonSource
from policies.json_value import Value
from policies.placement import Placer
from policies.registry import BY_ID
from policies.resources import Resource
from policies.rule import Result, Rule
from policies.secrets import redact, redact_shapes
from policies.selection import Override, Policy
from provisioner.catalog.snapshot import load_catalog
from provisioner.errors import Position, SpecError, UsageError
from provisioner.records import record

NO_SOURCE = JsonSource("-", "{}", {})
"""Resources of an engine lie in no file."""


@record(frozen=True, slots=True)
class Diagnostic:
    """What the engine is told of one rule on one resource."""

    rule: Rule
    message: str
    mandatory: bool


@dataclass
class EngineGate:
    """The gate of one engine run. ``preview`` says that computed values are not known yet."""

    folder: Path
    preview: bool = False
    policy: Policy = field(default_factory=Policy)
    _placer: Placer | None = None

    @classmethod
    def of_project(cls, folder: Path) -> EngineGate:
        """The gate of a Pulumi project, with the policy file in its folder or above it.

        Raises:
            UsageError: the policy file is wrong.
        """
        return cls(folder, policy=load_policy(find_policy([folder])))

    def configure(self, config: Mapping[str, tuple[str | None, Mapping[str, Any]]]) -> None:
        """Take the engine's configuration: per rule a level and parameters.

        Raises:
            UsageError: an unknown rule, level or parameter, or a value of the wrong kind.
        """
        from policies.policy_keys import LIST_RULES
        from provisioner.workload.nearest import nearest

        rules = {rule.id: rule for rule in self.policy.rules}
        overrides = dict(self.policy.overrides)
        for name, (level, properties) in config.items():
            if name not in rules:
                near = nearest(name, rules)
                ahead = f"did you mean {near}? " if near else ""
                raise UsageError(
                    f"the policy configuration names {name!r}, which is no rule", remedy=f"{ahead}{LIST_RULES}"
                )
            change = self._override(rules[name], level, properties)
            before = overrides.get(name, Override())
            overrides[name] = Override(
                change.level or before.level, {**before.parameters, **change.parameters}, before.unknown_passes
            )
        self.policy = replace(self.policy, overrides=overrides)
        if not self.policy.selected():
            raise UsageError(
                "the policy configuration disables every rule", remedy="enable a rule, or leave the pack out"
            )

    @staticmethod
    def _override(rule: Rule, level: str | None, properties: Mapping[str, Any]) -> Override:
        from policies.policy_keys import read_override
        from provisioner.workload.kinds import Misfit
        from provisioner.workload.tree import from_python

        word = "mandatory" if level == "remediate" else level
        keys = {**properties, **({"level": word} if word is not None else {})}
        try:
            return read_override(rule, from_python(keys))
        except Misfit as misfit:
            raise UsageError(f"the policy configuration of {rule.id}: {misfit.message}", remedy=misfit.remedy) from None

    def load(self) -> Placer:
        """The catalog, read once."""
        if self._placer is None:
            self._placer = Placer(load_catalog())
        return self._placer

    def analyze(self, token: str, name: str, properties: Mapping[str, Any]) -> list[Diagnostic]:
        """What the rules say of a resource's inputs.

        Raises:
            UsageError: no rule is selected, or a rule crashed.
        """
        if token != INSTANCE_RESOURCE and token not in TERRAFORM_TYPES:
            return []
        try:
            subjects = list(self._subjects(token, name, properties))
        except SpecError as error:
            where = f" at {error.where}" if error.where else ""
            message = f"the workload of {name} is no valid spec{where}: {error.message}"
            return [Diagnostic(BY_ID["under-sized"], redact(message), mandatory=True)]
        verdict = judge(subjects, self.policy, today_utc())
        found = [finding for finding in verdict.findings if self._concerns(finding)]
        waiting = [finding for finding in found if self._is_deferred(finding)]
        said = [_diagnostic(finding) for finding in found if not self._is_deferred(finding)]
        return [*said, *_deferred(waiting)]

    def _is_deferred(self, finding: Finding) -> bool:
        """Whether a fact is only not known yet."""
        return self.preview and finding.result is Result.UNKNOWN and not finding.outcome.stays

    @staticmethod
    def _concerns(finding: Finding) -> bool:
        """Whether a finding is about the resource: dead waivers are not, since one resource never shows all."""
        return finding.waiver is None and bool(finding.rule.applies_to)

    def _subjects(self, token: str, name: str, properties: Mapping[str, Any]) -> Iterator[Subject]:
        values = Value(plain(properties))
        if token == INSTANCE_RESOURCE:
            yield from instance_subjects(values, Holder(name, "-", Source.ENGINE, _nowhere), self.load())
            return
        inputs = values.value if isinstance(values.value, Mapping) else {}
        resource = Resource(
            address=name,
            type=TERRAFORM_TYPES[token],
            attributes=values,
            json=NO_SOURCE,
            source=Source.ENGINE,
            sensitive=secret_names(properties),
            declared=frozenset(inputs),
        )
        yield from resource_subjects(resource, TERRAFORM_TYPES[token], self.load(), self._project())

    def _project(self) -> Project:
        return project_of(self.folder / "Pulumi.yaml")


def _diagnostic(finding: Finding) -> Diagnostic:
    fix = f"; fix: {finding.outcome.remedy}" if finding.outcome.remedy else ""
    return Diagnostic(finding.rule, redact_shapes(f"{finding.outcome.message}{fix}"), finding.is_violation)


def _deferred(waiting: Sequence[Finding]) -> list[Diagnostic]:
    """One line for all rules that wait for values."""
    if not waiting:
        return []
    first = waiting[0]
    more = f", and {len(waiting) - 1} more rules wait" if len(waiting) > 1 else ""
    message = f"{first.outcome.message}{more}; judged again before the resource is made"
    return [Diagnostic(first.rule, redact_shapes(message), mandatory=False)]


def _nowhere(path: tuple[str | int, ...]) -> Position:
    del path
    return Position("-")
