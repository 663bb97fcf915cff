"""Which rules run on a subject, at which level, with which parameters: what a policy file says, already checked."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import field
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from policies.facts import Subject, Unknown
from policies.files import report_path
from policies.registry import RULES
from policies.rule import Level, Rule
from policies.waivers import Waiver
from provisioner.errors import Position
from provisioner.records import record

ENVIRONMENT_KEYS = ("environment", "env", "stage")
"""Tags that name an environment, in the order in which they are looked for."""
_STRICTNESS = {Level.DISABLED: 0, Level.ADVISORY: 1, Level.MANDATORY: 2}


@record(frozen=True, slots=True)
class RuleChoice:
    """How one rule runs on one subject."""

    level: Level
    parameters: Mapping[str, Any]
    unknown_passes: bool = False


@record(frozen=True, slots=True)
class Override:
    """What a policy file changes of a rule; ``None`` leaves it."""

    level: Level | None = None
    parameters: Mapping[str, Any] = field(default_factory=dict)
    unknown_passes: bool | None = None

    def apply(self, choice: RuleChoice) -> RuleChoice:
        """The choice with these changes."""
        return RuleChoice(
            self.level if self.level is not None else choice.level,
            {**choice.parameters, **self.parameters},
            self.unknown_passes if self.unknown_passes is not None else choice.unknown_passes,
        )


@record(frozen=True, slots=True)
class Scope:
    """Overrides for some subjects: all of the given conditions must hold, one word of each is enough."""

    overrides: Mapping[str, Override]
    paths: tuple[str, ...] = ()
    names: tuple[str, ...] = ()
    environments: tuple[str, ...] = ()
    tags: Mapping[str, str] = field(default_factory=dict)

    def matches(self, subject: Subject, path: str) -> bool | None:
        """Whether the scope holds for a subject; ``None`` where its tags are not known."""
        if self.paths and not any(fnmatchcase(path, glob) for glob in self.paths):
            return False
        if self.names and not any(fnmatchcase(subject.name, glob) for glob in self.names):
            return False
        if not self.environments and not self.tags:
            return True
        if isinstance(subject.tags, Unknown):
            return None
        answers = [*self._environment(subject.tags), *self._tags(subject.tags)]
        return False if False in answers else None if None in answers else True

    def _environment(self, tags: Mapping[str, Any]) -> Iterator[bool | None]:
        if self.environments:
            value = next((tags[key] for key in ENVIRONMENT_KEYS if key in tags), "")
            yield None if isinstance(value, Unknown) else value in self.environments

    def _tags(self, tags: Mapping[str, Any]) -> Iterator[bool | None]:
        for key, wanted in self.tags.items():
            value = tags.get(key, "")
            yield None if isinstance(value, Unknown) else fnmatchcase(value, wanted)


@record(frozen=True, slots=True)
class Policy:
    """A whole policy: levels and parameters, scopes, waivers, baseline. ``root`` is what report paths are relative to."""

    overrides: Mapping[str, Override] = field(default_factory=dict)
    scopes: tuple[Scope, ...] = ()
    waivers: tuple[Waiver, ...] = ()
    baseline: frozenset[str] = frozenset()
    unknown_passes: bool = False
    file: Position | None = None
    root: Path | None = None
    rules: tuple[Rule, ...] = RULES

    def selected(self) -> tuple[Rule, ...]:
        """Rules that run on some subject at least."""
        return tuple(rule for rule in self.rules if any(level is not Level.DISABLED for level in self._levels(rule)))

    def _levels(self, rule: Rule) -> Iterator[Level]:
        yield self.overrides.get(rule.id, Override()).level or rule.level
        for scope in self.scopes:
            if (override := scope.overrides.get(rule.id)) is not None and override.level is not None:
                yield override.level

    def choice(self, rule: Rule, subject: Subject) -> RuleChoice:
        """Level and parameters for one subject; later scopes win.

        A scope whose tags are not known counts where it makes the rule stricter, and only there.
        """
        choice = RuleChoice(rule.level, rule.defaults(), self.unknown_passes)
        choice = self.overrides.get(rule.id, Override()).apply(choice)
        for scope in self.scopes:
            override = scope.overrides.get(rule.id)
            if override is None:
                continue
            matched = scope.matches(subject, self.path_of(subject))
            changed = override.apply(choice)
            if matched or (matched is None and _STRICTNESS[changed.level] > _STRICTNESS[choice.level]):
                choice = changed
        return choice

    def path_of(self, subject: Subject) -> str:
        """The subject's file as scopes name it."""
        return report_path(subject.path, self.root)

    def levels(self) -> Mapping[str, Level]:
        """Level of every rule where no scope says otherwise."""
        return {rule.id: self.overrides.get(rule.id, Override()).level or rule.level for rule in self.rules}
